"""Settings: read once from the environment, validated as a whole, passed on as a value.

Every setting has a name, a unit in its name where it has one, a default and a sentence on its effect; the README's
table is generated from here.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from ipaddress import ip_network
from typing import Any

from app.errors import SettingsError


def _setting(default: Any, variable: str, effect: str) -> Any:
    # A password must not come into a log with the settings.
    shown = not variable.endswith("DATABASE_URL")
    return field(default=default, repr=shown, metadata={"variable": variable, "effect": effect})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of API and workers. Times ending in `_s` are seconds."""

    database_url: str = _setting(
        "", "DATABASE_URL", "PostgreSQL to use, as a libpq URL or keyword string; several hosts follow a failover"
    )
    listen_database_url: str = _setting(
        "",
        "PGTICK_LISTEN_DATABASE_URL",
        "direct address for LISTEN when DATABASE_URL leads through a transaction pooler",
    )
    host: str = _setting("127.0.0.1", "PGTICK_HOST", "address the API listens on")
    port: int = _setting(8080, "PORT", "port the API listens on")
    default_user: str = _setting("default", "PGTICK_DEFAULT_USER", "user_id of jobs that are posted without one")
    max_body_bytes: int = _setting(8_388_608, "PGTICK_MAX_BODY_BYTES", "larger request bodies are answered with 413")
    tokens: bool = _setting(
        False, "PGTICK_TOKENS", "true: the API asks for tokens, made with `pgtick tokens add`; false: it asks nobody"
    )
    trust_network: bool = _setting(
        False,
        "PGTICK_TRUST_NETWORK",
        "true: serve another address than loopback without tokens, when whoever can reach it may do everything",
    )
    rate_limit: float = _setting(
        0.0, "PGTICK_RATE_LIMIT", "requests a second of one token (or address) in each API process; 0: no limit"
    )
    dashboard_read_only: bool = _setting(
        False, "PGTICK_DASHBOARD_READ_ONLY", "true: the dashboard shows, and changes nothing"
    )
    task_modules: tuple[str, ...] = _setting(
        (), "PGTICK_TASKS", "modules that register a worker's tasks, separated by commas"
    )
    queues: tuple[str, ...] = _setting((), "PGTICK_QUEUES", "queues a worker serves, separated by commas; empty: all")
    concurrency: int = _setting(1000, "PGTICK_CONCURRENCY", "async executions a worker process holds at once")
    threads: int = _setting(20, "PGTICK_THREADS", "plain functions a worker process runs at once")
    processes: int = _setting(
        4, "PGTICK_PROCESSES", "isolated executions a worker process runs at once, in child processes"
    )
    suspects: int = _setting(
        32, "PGTICK_SUSPECTS", "executions whose worker died that a worker process runs at once, each alone in a child"
    )
    memory_limit_mb: int = _setting(
        0, "PGTICK_MEMORY_LIMIT_MB", "address space of an isolated execution, MiB; 0: no limit"
    )
    poll_s: float = _setting(
        0.5, "PGTICK_POLL_S", "longest pause between claims; bounds lateness when no wake-up arrives"
    )
    claim_ahead_s: float = _setting(0.5, "PGTICK_CLAIM_AHEAD_S", "how far ahead of its time an execution is claimed")
    sweep_s: float = _setting(
        1.0, "PGTICK_SWEEP_S", "shortest pause between looks for what came in long after its time without a wake-up"
    )
    lease_s: float = _setting(
        30.0,
        "PGTICK_LEASE_S",
        "executions of a lost host start again after so long; those of a killed process within seconds",
    )
    renew_s: float = _setting(5.0, "PGTICK_RENEW_S", "pause between lease renewals; at most half of the lease")
    report_s: float = _setting(0.05, "PGTICK_REPORT_S", "longest wait of an outcome for its batch")
    report_batch: int = _setting(500, "PGTICK_REPORT_BATCH", "outcomes written in one statement")
    horizon_s: float = _setting(60.0, "PGTICK_HORIZON_S", "how far ahead recurring occurrences are made pending")
    janitor_s: float = _setting(
        5.0, "PGTICK_JANITOR_S", "pause between rounds of the janitor, which takes back what killed processes held"
    )
    kill_after_s: float = _setting(
        5.0,
        "PGTICK_KILL_AFTER_S",
        "time to end for a run that timed out or was cancelled, before it is killed or given up",
    )
    unhealthy_s: float = _setting(
        30.0, "PGTICK_UNHEALTHY_S", "a worker whose loop does not come round for so long is unhealthy"
    )
    drain_s: float = _setting(30.0, "PGTICK_DRAIN_S", "time that running executions get when a worker is stopped")
    runway_hours: int = _setting(48, "PGTICK_RUNWAY_HOURS", "partitions made ahead; later one-offs stand in schedules")
    guards_s: float = _setting(10.0, "PGTICK_GUARDS_S", "pause between looks for findings, such as old snapshots")
    old_snapshot_s: float = _setting(
        60.0, "PGTICK_OLD_SNAPSHOT_S", "a transaction that is open for longer is a finding: it holds back VACUUM"
    )
    partitions_s: float = _setting(60.0, "PGTICK_PARTITIONS_S", "pause between looks after partitions")
    retention_days: int = _setting(30, "PGTICK_RETENTION_DAYS", "finished executions and their jobs are kept so long")
    archive: str = _setting(
        "",
        "PGTICK_ARCHIVE",
        "folder, or URL such as s3://bucket/prefix, that what is past retention is written to before it is dropped;"
        " empty: it is not",
    )
    http_allow: tuple[str, ...] = _setting(
        (),
        "PGTICK_HTTP_ALLOW",
        "addresses and networks that HTTP tasks may call besides public ones, e.g. 10.1.0.0/16, separated by commas",
    )
    health_port: int = _setting(0, "PGTICK_HEALTH_PORT", "port of a worker's /healthz on loopback; 0: none")
    log_format: str = _setting("text", "PGTICK_LOG_FORMAT", "text (key=value lines) or json")
    log_level: str = _setting("info", "PGTICK_LOG_LEVEL", "debug, info, warning or error")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Reads and validates all settings; raises SettingsError listing every fault at once."""
        environment = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        faults: list[str] = []
        for setting in fields(cls):
            text = environment.get(setting.metadata["variable"], "").strip()
            if not text:
                continue
            try:
                values[setting.name] = _convert(text, setting.default)
            except ValueError:
                faults.append(f"{setting.metadata['variable']}: {text!r} is not {_kind(setting.default)}")
        settings = cls(**values)
        faults += settings.faults()
        if faults:
            raise SettingsError(faults)
        return settings

    def faults(self) -> list[str]:
        """What is wrong with these values and their relations, one sentence each, naming the variable."""
        faults = [
            f"{setting.metadata['variable']}: {fault}"
            for setting in fields(self)
            if (fault := _fault(setting.name, getattr(self, setting.name)))
        ]
        if self.renew_s > self.lease_s / 2:
            faults.append("PGTICK_RENEW_S: must be at most half of PGTICK_LEASE_S, or one slow renewal loses the lease")
        if self.renew_s > 20:
            faults.append("PGTICK_RENEW_S: must be at most 20, or workers that live look silent")
        if self.unhealthy_s < max(5.0, 2 * self.renew_s):
            faults.append("PGTICK_UNHEALTHY_S: must be at least 5 and twice PGTICK_RENEW_S, or healthy loops look ill")
        if self.poll_s > 1:
            faults.append("PGTICK_POLL_S: must be at most 1, or executions start later than 2 s without a wake-up")
        if self.claim_ahead_s >= self.lease_s:
            faults.append("PGTICK_CLAIM_AHEAD_S: must be less than PGTICK_LEASE_S")
        if self.horizon_s < 2 * self.poll_s:
            faults.append("PGTICK_HORIZON_S: must be at least twice PGTICK_POLL_S")
        if self.runway_hours < 26:
            faults.append("PGTICK_RUNWAY_HOURS: must be at least 26, the longest back-off and a margin")
        for text in self.http_allow:
            try:
                ip_network(text)
            except ValueError as error:
                faults.append(f"PGTICK_HTTP_ALLOW: {error}")
        if self.log_format not in ("text", "json"):
            faults.append("PGTICK_LOG_FORMAT: must be text or json")
        if self.log_level not in ("debug", "info", "warning", "error"):
            faults.append("PGTICK_LOG_LEVEL: must be debug, info, warning or error")
        return faults

    def api_faults(self) -> list[str]:
        """What keeps the API from being served as it is set: open to a network, it must ask who is there."""
        if self.tokens or self.trust_network or self.host in LOOPBACK:
            return []
        return [
            f"PGTICK_HOST: {self.host} can be reached from other machines; set PGTICK_TOKENS=true and make tokens with"
            " `pgtick tokens add`, or PGTICK_TRUST_NETWORK=true if everybody who can reach it may do everything"
        ]

    def serving_faults(self) -> list[str]:
        """What keeps a server of the API from starting: besides api_faults, that it has no database."""
        return self.api_faults() + ([] if self.database_url else ["DATABASE_URL: is not set"])

    @classmethod
    def unknown(cls, environment: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
        """Variables that look like settings and are none, most of them misspelt: each with a sentence on it."""
        known = [setting.metadata["variable"] for setting in fields(cls)]
        short = {variable.removeprefix("PGTICK_"): variable for variable in known}
        found = []
        for name in sorted(os.environ if environment is None else environment):
            if name.startswith("PGTICK_") and name not in known:
                close = get_close_matches(name.removeprefix("PGTICK_"), short, n=1)
                found.append((name, "is no setting" + (f"; did you mean {short[close[0]]}?" if close else "")))
        return found


LOOPBACK = ("127.0.0.1", "::1", "[::1]", "localhost")
MAY_BE_ZERO = {"rate_limit", "health_port", "memory_limit_mb", "claim_ahead_s", "drain_s"}
MOST = {
    "port": (65_535, "there are no more ports"),
    "health_port": (65_535, "there are no more ports"),
    "max_body_bytes": (1 << 30, "each is held in memory"),
    "concurrency": (100_000, "more are no more at once, and a claim would hold them back from other workers"),
    "threads": (10_000, "each has a stack of its own"),
    "processes": (1_000, "each is a process of its own"),
    "suspects": (1_000, "each is a process of its own"),
    "memory_limit_mb": (1 << 30, "no address space is larger"),
    "report_batch": (100_000, "one statement takes them all"),
    "runway_hours": (720, "each hour is a partition that every claim knows of"),
    "retention_days": (36_500, "a hundred years are for ever"),
}
LONGEST_S = (604_800, "no pause, lease or drain has use for more than a week")
_TRUTHS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def _fault(name: str, value: Any) -> str | None:
    """What keeps a number from being used at all."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return "must be a finite number"
    if value < 0 or (value == 0 and name not in MAY_BE_ZERO):
        return "must be at least 0" if name in MAY_BE_ZERO else "must be greater than 0"
    most, reason = LONGEST_S if name.endswith("_s") else MOST.get(name, (value, ""))
    return f"must be at most {most:,}: {reason}" if value > most else None


def _convert(text: str, default: Any) -> Any:
    if isinstance(default, tuple):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if isinstance(default, bool):
        if text.lower() not in _TRUTHS:
            raise ValueError(text)
        return _TRUTHS[text.lower()]
    return type(default)(text)


def _kind(default: Any) -> str:
    if isinstance(default, bool):
        return "true or false"
    return "a whole number" if isinstance(default, int) else "a number"

"""What a scenario found: read from the database and the meters, shown as a table, kept as JSON and a histogram."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import psutil

from tests.bench.lab import Lab, Reading

FOLDER = Path(__file__).parent / "results"
BOUNDS_MS = (0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 1500, 2000, 5000)
"""Upper bounds of the histogram's bars; a last one has the rest."""

_LATENESS = """
select count(*)::int8,
       count(*) filter (where late <= 2000)::int8,
       count(*) filter (where late < 0)::int8,
       percentile_disc(array[0.5, 0.95, 0.99, 1]) within group (order by late)
from (
    select extract(epoch from started_at - due_at)::float8 * 1000 as late
    from pgtick.finished_executions
    where started_at is not null
) s
"""
_HISTOGRAM = """
select width_bucket(extract(epoch from started_at - due_at)::float8 * 1000, %s::float8[]), count(*)::int8
from pgtick.finished_executions where started_at is not null group by 1
"""
# Every start is counted by its worker; a start more than the attempts kept in history was a second run.
_DOUBLED = """
select (select coalesce(sum(started), 0)::int8 from pgtick.execution_stats)
     - (select coalesce(sum(attempt), 0)::int8 from pgtick.finished_executions where started_at is not null)
"""


@dataclass
class Result:
    """The figures of one run of a scenario. `facts` are those that only this scenario has."""

    scenario: str
    jobs: int
    jobs_per_s: float
    lateness_ms: dict[str, float] = field(default_factory=dict)
    share_within_2s: float | None = None
    early: int = 0
    doubled: int = 0
    lost: int = 0
    cpu_us_per_job: dict[str, float] = field(default_factory=dict)
    wal_bytes_per_job: float | None = None
    rss_mb: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    histogram: list[int] = field(default_factory=list)

    @classmethod
    def of_run(cls, scenario: str, lab: Lab, jobs: int, used: Reading, lost: int | None = None, **facts: Any) -> Result:
        """The figures of jobs that ran; the workers have been stopped, so that their counts are complete.

        The rate is that from the first start to the last end. Without `lost`, every job runs once.
        """
        row = lab.connection.execute(_LATENESS).fetchone()
        assert row is not None
        ran, in_time, early, late = row
        per_s = lab.value(
            "select count(*) / greatest(extract(epoch from max(finished_at) - min(started_at))::float8, 0.001)"
            " from pgtick.finished_executions where started_at is not null"
        )
        bars = dict(lab.connection.execute(_HISTOGRAM, [list(map(float, BOUNDS_MS))]).fetchall())
        return cls(
            scenario=scenario,
            jobs=jobs,
            jobs_per_s=per_s,
            lateness_ms=dict(zip(("p50", "p95", "p99", "max"), late, strict=True)) if late else {},
            share_within_2s=in_time / max(ran, 1),
            early=early,
            doubled=max(0, lab.value(_DOUBLED)),
            lost=jobs - ran if lost is None else lost,
            **cls.costs(lab, jobs, used),
            facts=facts,
            histogram=[bars.get(n, 0) for n in range(len(BOUNDS_MS) + 1)],
        )

    @staticmethod
    def costs(lab: Lab, jobs: int, used: Reading) -> dict[str, Any]:
        return {
            "cpu_us_per_job": {part: getattr(used, part) / jobs * 1e6 for part in ("server", "worker", "api")},
            "wal_bytes_per_job": used.wal / jobs,
            "rss_mb": lab.rss / 2**20 if lab.rss else None,
        }

    def table(self) -> str:
        """The figures as lines of name and value."""
        late, cpu = self.lateness_ms, self.cpu_us_per_job
        rows: list[tuple[str, str]] = [("jobs", f"{self.jobs:,}"), ("jobs/s", f"{self.jobs_per_s:,.0f}")]
        if late:
            rows.append(("lateness ms", "  ".join(f"{name} {value:,.1f}" for name, value in late.items())))
        if self.share_within_2s is not None:
            rows.append(("within 2 s", f"{self.share_within_2s:.4%}"))
        rows.append(("early / doubled / lost", f"{self.early} / {self.doubled} / {self.lost}"))
        if cpu:
            rows.append(("CPU µs per job", "  ".join(f"{part} {value:,.0f}" for part, value in cpu.items())))
        if self.wal_bytes_per_job is not None:
            rows.append(("WAL bytes per job", f"{self.wal_bytes_per_job:,.0f}"))
        if self.rss_mb is not None:
            rows.append(("worker RSS MB", f"{self.rss_mb:,.0f}"))
        rows += [(name.replace("_", " "), _shown(value)) for name, value in self.facts.items()]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"  {name:<{width}}  {value}" for name, value in rows)

    def write(self) -> None:
        """Writes results/<scenario>.json, and the histogram as results/<scenario>.svg if there is one."""
        FOLDER.mkdir(exist_ok=True)
        kept = {name: value for name, value in vars(self).items() if name != "histogram"}
        kept |= {
            "histogram": {"bounds_ms": BOUNDS_MS, "counts": self.histogram},
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": {"cores": os.cpu_count(), "memory_mb": psutil.virtual_memory().total // 2**20},
        }
        (FOLDER / f"{self.scenario}.json").write_text(json.dumps(kept, indent=2, default=str) + "\n")
        if any(self.histogram):
            (FOLDER / f"{self.scenario}.svg").write_text(self.svg())

    def svg(self) -> str:
        """The lateness histogram as a picture that needs nothing but a browser."""
        bar, height, left, top = 34, 220, 10, 40
        labels = [f"≤{bound:g}" for bound in BOUNDS_MS] + [f">{BOUNDS_MS[-1]:g}"]
        total, most = sum(self.histogram), max(self.histogram)
        width = left * 2 + bar * len(labels)
        late = ", ".join(f"{name} {value:,.1f}" for name, value in self.lateness_ms.items())
        title = f"{self.scenario}: {self.jobs:,} jobs, {self.jobs_per_s:,.0f}/s; lateness in ms: {late}"
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top + height + 40}"',
            ' font-family="sans-serif" font-size="11">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="{left}" y="20" font-size="14">{escape(title)}</text>',
        ]
        for place, (label, count) in enumerate(zip(labels, self.histogram, strict=True)):
            x, tall = left + place * bar, height * count / most
            parts.append(
                f'<rect x="{x + 2}" y="{top + height - tall:.1f}" width="{bar - 4}" height="{tall:.1f}" fill="#336791">'
                f"<title>{label} ms: {count:,} ({count / total:.2%})</title></rect>"
            )
            parts.append(f'<text x="{x + bar / 2}" y="{top + height + 16}" text-anchor="middle">{label}</text>')
        parts.append(f'<text x="{left}" y="{top + height + 34}">lateness, ms</text></svg>')
        return "\n".join(parts) + "\n"


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, dict):
        return "  ".join(f"{name} {_shown(each)}" for name, each in value.items())
    if isinstance(value, list):
        return "  ".join(map(_shown, value))
    return f"{value:,}" if isinstance(value, int) else str(value)

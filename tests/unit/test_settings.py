"""Settings are validated as a whole, and every fault is named at once."""

from __future__ import annotations

from dataclasses import fields

import pytest

from app.errors import SettingsError
from app.settings import MOST, Settings


def faults(**environment: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        Settings.from_environment(environment)
    return caught.value.faults


def test_defaults_are_valid() -> None:
    assert Settings.from_environment({}) == Settings()


def test_values_come_from_the_environment() -> None:
    settings = Settings.from_environment({"PGTICK_TASKS": "shop.tasks, mail.tasks", "PGTICK_LEASE_S": "12.5"})
    assert settings.task_modules == ("shop.tasks", "mail.tasks")
    assert settings.lease_s == 12.5


def test_all_faults_are_listed_with_their_variable() -> None:
    found = faults(PGTICK_CONCURRENCY="many", PGTICK_RENEW_S="20", PGTICK_UNHEALTHY_S="60", PGTICK_LOG_FORMAT="xml")
    assert [fault.partition(":")[0] for fault in found] == ["PGTICK_CONCURRENCY", "PGTICK_RENEW_S", "PGTICK_LOG_FORMAT"]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PGTICK_POLL_S", "5"),
        ("PGTICK_LEASE_S", "0"),
        ("PGTICK_THREADS", "-1"),
        ("PGTICK_CLAIM_AHEAD_S", "60"),
        ("PGTICK_RUNWAY_HOURS", "1"),
        ("PORT", "http"),
        ("PORT", "99999"),
        ("PGTICK_HEALTH_PORT", "70000"),
        ("PGTICK_LEASE_S", "nan"),
        ("PGTICK_LEASE_S", "inf"),
        ("PGTICK_POLL_S", "nan"),
        ("PGTICK_CLAIM_AHEAD_S", "nan"),
        ("PGTICK_CLAIM_AHEAD_S", "-5"),
        ("PGTICK_RATE_LIMIT", "-1"),
        ("PGTICK_DRAIN_S", "1e300"),
        ("PGTICK_RETENTION_DAYS", "1000000000"),
        ("PGTICK_RETENTION_DAYS", "10000000"),
        ("PGTICK_CONCURRENCY", "1000000000000"),
        ("PGTICK_CONCURRENCY", "1" + "0" * 400),
    ],
)
def test_values_that_would_break_a_promise_are_refused(variable: str, value: str) -> None:
    assert faults(**{variable: value})[0].startswith(variable)


def test_names_that_are_no_settings_are_told_with_the_nearest_one() -> None:
    environment = {"PGTICK_POLL": "1", "PGTICK_PORT": "1", "PGTICK_XYZZY": "1", "PGTICK_POLL_S": "1", "PATH": "/bin"}
    assert Settings.unknown(environment) == [
        ("PGTICK_POLL", "is no setting; did you mean PGTICK_POLL_S?"),
        ("PGTICK_PORT", "is no setting; did you mean PORT?"),
        ("PGTICK_XYZZY", "is no setting"),
    ]


def test_an_api_is_served_with_a_database_only() -> None:
    assert Settings().serving_faults() == ["DATABASE_URL: is not set"]
    assert Settings(database_url="postgresql://x/").serving_faults() == []


def test_every_whole_number_has_a_bound() -> None:
    whole = {setting.name for setting in fields(Settings) if type(setting.default) is int}
    assert whole == set(MOST)


def test_the_bounds_themselves_are_taken() -> None:
    assert Settings(**{name: most for name, (most, _) in MOST.items()}).faults() == []

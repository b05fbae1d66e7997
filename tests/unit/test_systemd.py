"""The systemd units: systemd itself finds no fault, they are well sandboxed, and their times fit the program's."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app import gunicorn_conf
from app.settings import Settings

FOLDER = Path(__file__).parents[2] / "workers" / "systemd"
SERVICES = ["pgtick-api.service", "pgtick-worker@.service"]

needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units with the programs of this virtual environment, which exist here."""
    for unit in FOLDER.glob("pgtick*"):
        text = unit.read_text().replace("/opt/pgtick/.venv/bin", str(Path(sys.prefix) / "bin"))
        (tmp_path / unit.name).write_text(text)
    return tmp_path


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], text=True, capture_output=True, check=False)


def settings_of(service: str) -> configparser.SectionProxy:
    unit = configparser.RawConfigParser(strict=False)  # a directive may be given twice
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((FOLDER / service).read_text())
    merged = configparser.RawConfigParser()
    merged.optionxform = str  # type: ignore[assignment,method-assign]
    merged["all"] = {**unit["Unit"], **unit["Service"]}
    return merged["all"]


@needs_systemd
@pytest.mark.parametrize("unit", [*SERVICES, "pgtick.target"])
def test_systemd_finds_no_fault(units: Path, unit: str) -> None:
    # Unknown directives are a line on stderr only: the exit status stays 0.
    done = analyze("verify", "--man=no", str(units / unit))
    ours = [line for line in done.stderr.splitlines() if "pgtick" in line]
    assert (ours, done.returncode) == ([], 0), done.stderr


@needs_systemd
@pytest.mark.parametrize("unit", SERVICES)
def test_services_are_sandboxed(units: Path, unit: str) -> None:
    done = analyze("security", "--offline=true", "--no-pager", str(units / unit))
    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert exposure, done.stdout + done.stderr
    assert float(exposure[1]) <= 3.0, done.stdout


@pytest.mark.parametrize("unit", SERVICES)
def test_an_outage_of_any_length_locks_no_service_out(unit: str) -> None:
    service = settings_of(unit)
    assert (service["StartLimitIntervalSec"], service["Restart"]) == ("0", "always")
    assert 1 <= int(service["RestartSec"]) <= 10


def test_stopping_waits_longer_than_draining() -> None:
    worker, api = settings_of("pgtick-worker@.service"), settings_of("pgtick-api.service")
    assert int(worker["TimeoutStopSec"]) >= Settings().drain_s + 30
    assert int(api["TimeoutStopSec"]) > gunicorn_conf.graceful_timeout
    assert {worker["KillMode"], api["KillMode"]} == {"mixed"}


@pytest.mark.parametrize("unit", [*SERVICES, "pgtick.target"])
def test_the_guide_installs_what_units_name_as_their_documentation(unit: str) -> None:
    named = re.search(r"^Documentation=file://(\S+)$", (FOLDER / unit).read_text(), re.MULTILINE)
    assert named
    assert f"README.md {named[1]} " in (FOLDER / "README.md").read_text()


def test_the_example_environment_sets_what_settings_know() -> None:
    known = {setting.metadata["variable"] for setting in Settings.__dataclass_fields__.values()}
    lines = (FOLDER / "pgtick.env.example").read_text().splitlines()
    named = {found[1] for line in lines if (found := re.match(r"(?:# )?([A-Z_]+)=", line))}
    assert {"DATABASE_URL", "PGTICK_TASKS"} <= named <= known


def test_units_run_the_commands_of_the_command_line() -> None:
    from app.cli import pgtick

    for unit in SERVICES:
        program, command = settings_of(unit)["ExecStart"].split()
        assert Path(program).name == "pgtick"
        assert command in pgtick.commands

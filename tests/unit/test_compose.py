"""The compose file: accepted by docker compose where there is one, sound by itself, and running what is tested here."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.settings import Settings

CHECKOUT = Path(__file__).parents[2]
FILE = CHECKOUT / "docker-compose.yml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]

# The keys of a service that the Compose Specification knows and this file may use.
KEYS = {
    "build", "cap_drop", "command", "depends_on", "deploy", "environment", "healthcheck", "image", "init", "ports",
    "pull_policy", "read_only", "restart", "security_opt", "shm_size", "stop_grace_period", "tmpfs", "volumes",
}  # fmt: skip
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}


def has_compose() -> bool:
    if not shutil.which("docker"):
        return False
    return subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not has_compose(), reason="docker compose is not installed")
def test_docker_compose_accepts_the_file() -> None:
    done = subprocess.run(
        ["docker", "compose", "--file", str(FILE), "config", "--quiet"], text=True, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_uses_keys_of_the_specification(name: str) -> None:
    service = SERVICES[name]
    assert set(service) <= KEYS
    assert "image" in service
    assert isinstance(service["command"], list)
    assert all(isinstance(word, str) for word in service["command"])
    for other, how in service.get("depends_on", {}).items():
        assert other in SERVICES
        assert how["condition"] in CONDITIONS
        assert how["condition"] != "service_healthy" or "healthcheck" in SERVICES[other]
    for volume in service.get("volumes", []):
        assert volume.split(":")[0] in COMPOSE["volumes"]
    for port in service.get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port), "nothing is open to the network without being asked for"


def test_services_run_what_make_run_and_the_units_run() -> None:
    commands = {name: " ".join(service["command"]) for name, service in SERVICES.items()}
    assert commands["migrate"] == "python -m alembic upgrade head"
    assert commands["worker"] == "python -m workers"
    assert commands["api"].startswith("python -m gunicorn --config=python:app.gunicorn_conf ")
    assert commands["api"].endswith(" app.wsgi:app")


def test_settings_in_it_exist() -> None:
    known = {setting.metadata["variable"] for setting in Settings.__dataclass_fields__.values()}
    for name, service in SERVICES.items():
        if name != "postgres":
            assert set(service["environment"]) <= known


def test_workers_get_the_time_to_drain() -> None:
    seconds = int(SERVICES["worker"]["stop_grace_period"].removesuffix("s"))
    assert seconds >= Settings().drain_s + 10


def test_every_password_can_be_set_from_outside() -> None:
    assert set(re.findall(r"\$\{(\w+)", FILE.read_text())) == {"PGTICK_DB_PASSWORD"}

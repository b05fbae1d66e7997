"""What gunicorn is told by the settings."""

from __future__ import annotations

import runpy
import sys

import pytest
from gunicorn.util import parse_address


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "127.0.0.1"), ("localhost", "localhost"), ("::1", "::1"), ("[::1]", "::1"), ("::", "::")],
)
def test_any_address_can_be_listened_on(host: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGTICK_HOST", host)
    monkeypatch.setenv("PORT", "8081")
    monkeypatch.delitem(sys.modules, "app.gunicorn_conf", raising=False)  # imported by others, with other settings
    told = runpy.run_module("app.gunicorn_conf")
    assert parse_address(told["bind"]) == (address, 8081)

"""README's table of settings is true."""

from __future__ import annotations

from tests.docs.settings_table import table, written


def test_readme_lists_every_setting_with_its_default_and_effect() -> None:
    assert written() == table(), "run: python -m tests.docs.settings_table"

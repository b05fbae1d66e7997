"""Addresses of databases as people write them."""

from __future__ import annotations

import pytest

from app.errors import SettingsError
from app.settings import Settings
from app.store.connections import conninfo, parsed

WHERE = {"user": "ann", "password": "s3cr et", "host": "db", "dbname": "shop"}


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "postgresql+psycopg2"])
def test_a_url_may_name_a_driver(scheme: str) -> None:
    assert parsed(f"{scheme}://ann:s3cr%20et@db/shop") == WHERE


@pytest.mark.parametrize(
    "url",
    [
        "mysql://ann:s3cret@db/shop",
        '"postgresql://ann:s3cret@db/shop"',
        "'postgresql://ann:s3cret@db/shop'",
        "postgresql://ann:s3cret%zz@db/shop",
        "postgresql://ann:s3cret@db/shop?passwort=s3cret",
        "host=db password='s3cret",
        "s3cret",
    ],
)
def test_a_malformed_one_is_not_shown(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        conninfo(url)
    assert caught.value.faults[0].startswith("DATABASE_URL: is neither")
    assert "s3cret" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_settings_show_no_address() -> None:
    settings = Settings(database_url="postgresql://:s3cret@db", listen_database_url="postgresql://:s3cret@db")
    assert "s3cret" not in repr(settings)

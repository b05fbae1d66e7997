"""Logging in with a token, and what each role then sees."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from app.store import tokens
from tests.browser.driving import Browser
from tests.browser.serving import serving
from tests.support.databases import Server


@pytest.fixture
def guarded(server: Server, template: str, browser: Browser) -> Iterator[psycopg.Connection]:
    """A site that asks for tokens."""
    with (
        server.database(template) as dsn,
        serving(dsn, tokens=True) as base,
        psycopg.connect(dsn, autocommit=True) as connection,
    ):
        connection.execute("insert into pgtick.tasks (task_id, target) values ('send_email', 'x')")
        browser.driver.get(base + "/ui/login")
        browser.driver.delete_all_cookies()
        browser.base = base
        yield connection


def log_in(browser: Browser, token: str) -> None:
    browser.fill("token", token)
    browser.click("Log in")


def test_a_token_lets_in_and_keeps_out_of_what_belongs_to_others(guarded: psycopg.Connection, browser: Browser) -> None:
    _, token = tokens.add(guarded, "ida", "laptop")
    own, other = (
        guarded.execute("select pgtick.create_job('send_email', user_id => %s)::text", [user]).fetchone()[0]  # type: ignore[index]
        for user in ("ida", "bob")
    )
    browser.open(f"/ui/jobs/{own}")
    browser.sees("Token of the API")
    log_in(browser, token[:-1] + "x")
    browser.sees("That token is not known")
    log_in(browser, token)
    browser.sees(own)
    assert browser.path == f"/ui/jobs/{own}"
    browser.sees("ida (user)")
    browser.open(f"/ui/jobs/{other}")
    browser.sees("There is no such job")
    for verb in ("cancel", "run-now"):
        browser.open(f"/ui/jobs/{other}/{verb}")
        browser.sees("There is no such job")
    browser.open("/ui/jobs")
    assert [link.get_attribute("href") for link in browser.all("#rows td a")] == [f"{browser.base}/ui/jobs/{own}"]
    browser.open("/")
    assert "bob" not in browser.driver.page_source
    browser.open("/ui/database")
    browser.sees("operator")
    browser.click("Log out", within="footer")
    browser.sees("Token of the API")
    browser.open("/ui/jobs")
    browser.sees("Token of the API")


def test_a_revoked_token_is_out_at_once(guarded: psycopg.Connection, browser: Browser) -> None:
    token_id, token = tokens.add(guarded, "ida", "laptop", "operator")
    browser.open("/ui/workers")
    log_in(browser, token)
    browser.sees("No worker is alive")
    tokens.revoke(guarded, token_id)
    browser.sees("Token of the API")

"""Jobs made inside the caller's own transaction, with psycopg or with SQLAlchemy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from app.client import enqueue

Connection = psycopg.Connection[Any]
Opened = Callable[[], Any]


@contextmanager
def by_psycopg(dsn: str) -> Iterator[Any]:
    with psycopg.connect(dsn) as connection:
        yield connection


@contextmanager
def by_sqlalchemy(dsn: str) -> Iterator[Any]:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn), poolclass=NullPool)
    with engine.begin() as connection:
        yield connection


@contextmanager
def by_session(dsn: str) -> Iterator[Any]:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn), poolclass=NullPool)
    with Session(engine) as session, session.begin():
        yield session


WAYS = pytest.mark.parametrize("opened", [by_psycopg, by_sqlalchemy, by_session])


@pytest.fixture
def tasks(connection: Connection) -> None:
    connection.execute("insert into pgtick.tasks (task_id, target) values ('send_invoice', 'x')")


@WAYS
def test_a_job_exists_when_the_transaction_does(dsn: str, connection: Connection, tasks: None, opened: Any) -> None:
    with opened(dsn) as mine:
        job_id = enqueue(mine, "send_invoice", {"order": 7, "100%": ":x"}, user_id="ann", max_retries=1, timeout_s=2.5)
        assert connection.execute("select count(*) from pgtick.jobs").fetchone() == (0,)
    row = connection.execute(
        "select job_id::text, user_id, parameters, max_retries, timeout_s, schedule_type from pgtick.jobs"
    ).fetchone()
    assert row == (job_id, "ann", {"order": 7, "100%": ":x"}, 1, 2.5, "NOW")
    assert connection.execute("select count(*) from pgtick.pending_executions").fetchone() == (1,)


@WAYS
def test_a_job_is_gone_with_the_transaction(dsn: str, connection: Connection, tasks: None, opened: Any) -> None:
    with pytest.raises(ZeroDivisionError), opened(dsn) as mine:  # noqa: PT012 (nothing else raises it)
        enqueue(mine, "send_invoice")
        raise ZeroDivisionError
    assert connection.execute("select count(*) from pgtick.jobs").fetchone() == (0,)


@WAYS
def test_a_trace_goes_along_and_an_invalid_one_does_not(
    dsn: str, connection: Connection, tasks: None, opened: Any
) -> None:
    traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    with opened(dsn) as mine:
        enqueue(mine, "send_invoice", {"n": 1}, traceparent=traceparent, tracestate="a=1,b=2")
        enqueue(mine, "send_invoice", {"n": 2}, traceparent="nonsense", tracestate="a=1")
        enqueue(mine, "send_invoice", {"n": 3})
    traces = connection.execute("select trace from pgtick.jobs order by parameters").fetchall()
    assert traces == [({"traceparent": traceparent, "tracestate": "a=1,b=2"},), (None,), (None,)]


def test_dates_and_cron_expressions(dsn: str, connection: Connection, tasks: None) -> None:
    row = connection.execute("select date_trunc('second', now()) + interval '1 hour'").fetchone()
    assert row is not None
    at: datetime = row[0]
    enqueue(connection, "send_invoice", schedule=at + timedelta(microseconds=1))
    enqueue(connection, "send_invoice", schedule="0 10 * * *", timezone="Europe/Berlin")
    assert connection.execute("select scheduled_at from pgtick.pending_executions").fetchone() == (
        at + timedelta(microseconds=1),
    )
    assert connection.execute("select expression, timezone from pgtick.schedules").fetchone() == (
        "0 10 * * *",
        "Europe/Berlin",
    )
    with pytest.raises(ValueError, match="aware"):
        enqueue(connection, "send_invoice", schedule=datetime(2030, 1, 1))
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="no task"):
        enqueue(connection, "nope")
    with pytest.raises(ValueError):
        enqueue(connection, "send_invoice", {"n": float("nan")})


def test_a_date_without_offset_and_zone_is_refused(dsn: str, tasks: None) -> None:
    with by_psycopg(dsn) as mine, pytest.raises(psycopg.errors.InvalidParameterValue, match="has no offset"):
        enqueue(mine, "send_invoice", schedule="2030-01-01T09:00")
    with by_psycopg(dsn) as mine:
        enqueue(mine, "send_invoice", schedule="2030-01-01T09:00", timezone="Europe/Berlin")
        enqueue(mine, "send_invoice", schedule="0 9 * * *")
        rows = mine.execute("select timezone from pgtick.jobs order by job_id").fetchall()
    assert rows == [("Europe/Berlin",), ("UTC",)]

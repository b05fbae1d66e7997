"""How values look on pages. Whatever is not made here goes through Jinja's escaping."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from markupsafe import Markup, escape

from app.clock import clock, in_utc
from app.dashboard import session
from app.store.monitoring import MOST_COUNTED

_INSTANT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?\+00", re.ASCII)
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def instant(value: datetime | str | None) -> datetime | None:
    """An instant of the store, or of the API's JSON."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def when(value: datetime | str | None, *, exact: bool = False) -> Markup:
    """A time in the viewer's zone, as short as today allows; in UTC and exactly on hover."""
    at = instant(value)
    if at is None:
        return Markup("–")
    where = session.viewer_zone()
    local, today = at.astimezone(where), clock.now_utc().astimezone(where).date()
    digits = "%H:%M:%S" if local.second or local.microsecond or exact else "%H:%M"
    if exact:
        text = f"{local:%a %d %b %Y %H:%M:%S}.{local.microsecond // 1000:03}"
    elif local.date() == today:
        text = f"{local:{digits}}"
    elif abs((local.date() - today).days) < 300:
        text = f"{local:%a %d %b {digits}}"
    else:
        text = f"{local:%d %b %Y {digits}}"
    return _time(at, text)


def wall(value: str) -> str:
    """What a clock on the wall shows at an instant with the offset of that place."""
    return f"{datetime.fromisoformat(value):%a %d %b %H:%M:%S}".removesuffix(":00")


def ago(value: datetime | str | None) -> Markup:
    """How long ago, or in how long; the time itself on hover."""
    at = instant(value)
    if at is None:
        return Markup("–")
    left = (at - clock.now_utc()) / timedelta(seconds=1)
    if abs(left) < 1:
        return _time(at, "now")
    return _time(at, f"in {span(left)}" if left > 0 else f"{span(-left)} ago")


def _time(at: datetime, text: str) -> Markup:
    utc = at.astimezone(UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        in_utc(utc), f"{utc:%a %d %b %Y %H:%M:%S.%f}"[:-3] + " UTC", text
    )


def span(value: float | timedelta | None) -> str:
    """A length of time: 12 ms, 1.5 s, 3 min, 2.5 h, 4 d."""
    if value is None:
        return "–"
    seconds = value / timedelta(seconds=1) if isinstance(value, timedelta) else float(value)
    sign, seconds = ("−" if seconds < 0 else ""), abs(seconds)
    if seconds < 0.0995:
        ms = seconds * 1000
        return f"{sign}{ms:.0f} ms" if ms >= 9.95 else f"{sign}{ms:.1f}".rstrip("0").rstrip(".") + " ms"
    if seconds < 0.9995:
        return f"{sign}{seconds * 1000:.0f} ms"
    if seconds < 99.5:
        return f"{sign}{seconds:.1f}".removesuffix(".0") + " s"
    if seconds < 119.5:
        return f"{sign}{seconds:.0f} s"
    for size, unit in _UNITS:
        if seconds >= size * (1.5 if unit != "min" else 1):
            amount = seconds / size
            return (
                f"{sign}{amount:.0f} {unit}"
                if amount >= 9.95
                else f"{sign}{amount:.1f}".removesuffix(".0") + f" {unit}"
            )
    return f"{sign}{seconds:.0f} s"


def count(value: float | None) -> str:
    """1,234; small fractions keep their first digits."""
    if value is None:
        return "–"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


def counted(value: int) -> str:
    """A count that ends where counting would cost too much."""
    return f"over {MOST_COUNTED - 1:,}" if value >= MOST_COUNTED else count(value)


def share(value: float | None) -> str:
    """A share as per cent that is never rounded up to 100."""
    if value is None:
        return "–"
    percent = float(value) * 100
    if percent >= 100 or percent <= 0:
        return f"{percent:.0f} %"
    return f"{min(percent, 99.99):.2f} %" if percent > 99 else f"{max(percent, 0.1):.1f} %"


def size(value: float | None) -> str:
    """Bytes: 12 kB, 3.4 MB."""
    amount = float(value or 0)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if amount >= 10 or unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def pretty(value: Any) -> str:
    """JSON, indented."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def brief(value: Any, length: int = 120) -> str:
    """JSON or text on one line, cut."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 1] + "…"


def took(run: Mapping[str, Any]) -> str:
    """How long an execution ran, or has been running."""
    started, finished = instant(run["started_at"]), instant(run["finished_at"])
    if started is None or (finished is None and run["status"] != "IN_PROGRESS"):
        return "–"
    return span(max((finished or clock.now_utc()) - started, timedelta(0)))


def late_s(run: Mapping[str, Any]) -> float | None:
    """Seconds that an execution started after it was due, or that it has been due for."""
    due = instant(run["due_at"])
    if run["status"] in ("PENDING", "RETRYING") and due is not None:
        return max((clock.now_utc() - due) / timedelta(seconds=1), 0) or None
    found: float | None = run["lateness_s"]
    return found


def sentence(text: str) -> Markup:
    """A sentence of the database's, with its times in the viewer's zone."""
    parts, end = [], 0
    for found in _INSTANT.finditer(text):
        parts += [escape(text[end : found.start()]), when(f"{found[0]}:00")]
        end = found.end()
    return Markup("").join([*parts, escape(text[end:])])


def as_sentence(text: str) -> str:
    """A text of the API as a sentence: with a capital, unless it begins with a name, and an end."""
    first = text.partition(" ")[0]
    begun = text[:1].upper() + text[1:] if first.isalpha() or not first.strip("abcdefghijklmnopqrstuvwxyz-") else text
    return begun if begun.endswith((".", "!", "?", ":")) or not begun else f"{begun}."


def short_id(value: str | None) -> str:
    """Enough of a job's id to tell it from its neighbours: ids made in the same second begin alike."""
    return "–" if value is None else f"…{value[-12:]}"


def plural(number: int, one: str, many: str | None = None) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


FILTERS: dict[str, Callable[..., Any]] = {
    "when": when,
    "ago": ago,
    "span": span,
    "count": count,
    "counted": counted,
    "share": share,
    "late_s": late_s,
    "sentence": sentence,
    "as_sentence": as_sentence,
    "size": size,
    "took": took,
    "wall": wall,
    "pretty": pretty,
    "brief": brief,
    "short_id": short_id,
    "plural": plural,
}

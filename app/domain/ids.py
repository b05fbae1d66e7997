"""Job ids: UUIDv7, so that ids sort by creation and name the day they were made; and the names that tasks may have."""

from __future__ import annotations

import os
import re

UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", re.ASCII)
TASK_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}", re.ASCII)
TASK_ID_RULE = "1 to 200 letters, digits and _.:/-, and begins with a letter, a digit or _"
_VARIANT = 0x8000_0000_0000_0000


def uuid7s(count: int, now: float) -> list[str]:
    """`count` new ids in ascending order; `now` is the database's time in seconds since the epoch.

    The 12 bits after the milliseconds count 1/4096 ms (RFC 9562 §6.2, method 3); each id of a batch takes the next.
    """
    first = int(now * 4_096_000)
    noise = os.urandom(8 * count)
    ids = []
    for n in range(count):
        tick = f"{first + n:015x}"
        tail = f"{int.from_bytes(noise[8 * n : 8 * n + 8]) >> 2 | _VARIANT:016x}"
        ids.append(f"{tick[:8]}-{tick[8:12]}-7{tick[12:]}-{tail[:4]}-{tail[4:]}")
    return ids


def uuid7(now: float) -> str:
    """One new id."""
    return uuid7s(1, now)[0]


def parse_uuid(text: str) -> str | None:
    """The id in lower case, or None when the text is no UUID in its usual form."""
    return text.lower() if UUID.fullmatch(text) else None

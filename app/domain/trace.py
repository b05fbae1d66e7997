"""W3C Trace Context: what a request says of the trace it is part of, kept with the jobs it makes and handed on.

pgtick is no part of the trace itself: what came is sent on as it came.
"""

from __future__ import annotations

import json
import re

_PARENT = re.compile(r"(?!ff)([0-9a-f]{2})-((?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_MEMBER = r"(?:[a-z0-9][a-z0-9_*/@-]*=[ -+\--<>-~]*[!-+\--<>-~])?"
_STATE = re.compile(rf"{_MEMBER}(?:[ \t]*,[ \t]*{_MEMBER}){{0,31}}")
STATE_LIMIT = 512
"""Characters of a `tracestate` that must be handed on; a longer one is not kept."""
KNOWN_FLAGS = 0x03


def read_trace(traceparent: str | None, tracestate: str | None) -> str | None:
    """The headers to hand on, as JSON; None without a valid `traceparent`. An invalid `tracestate` is left out.

    `pgtick.read_trace` says the same in SQL.
    """
    if traceparent is None:
        return None
    found = _PARENT.fullmatch(traceparent.strip(" \t"))
    if found is None:
        return None
    version, ids, flags, more = found.groups()
    if version == "00":
        if more is not None:
            return None
    else:  # of a later version, what this one knows
        flags = f"{int(flags, 16) & KNOWN_FLAGS:02x}"
    trace = {"traceparent": f"00-{ids}-{flags}"}
    state = (tracestate or "").strip(" \t")
    if 0 < len(state) <= STATE_LIMIT and _STATE.fullmatch(state):
        trace["tracestate"] = state
    return json.dumps(trace)

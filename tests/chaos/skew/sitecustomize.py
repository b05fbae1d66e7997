"""Makes the wall clock of a process wrong by $CHAOS_CLOCK_OFFSET_S seconds, as on a host without NTP."""

import os
import time

_offset = float(os.environ.get("CHAOS_CLOCK_OFFSET_S", "0"))
_time = time.time

if _offset:
    time.time = lambda: _time() + _offset

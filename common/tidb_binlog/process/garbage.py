"""Garbage: how often the interpreter searches for objects that refer to each other in circles.

Messages and rows make tuples and objects by the thousand and free them at once. The default searches
all that is old after every few thousand of them, and a full search takes a tenth of a second.
"""

from __future__ import annotations

import gc
from typing import Final

_THRESHOLDS: Final = (50_000, 5, 400)
"""Searches of the middle generation cost the same in all, however many: one of a quarter of a million objects
keeps the event loop for 25 ms, one of a million for 100."""


def collect_rarely() -> None:
    """For a process at the end of its start: what is there stays, so search only newer objects, and less
    often. Nothing is searched for now: of what modules and a start make, next to nothing is garbage. Again in
    the same process, it does nothing."""
    if gc.get_threshold() != _THRESHOLDS:
        gc.freeze()
        gc.set_threshold(*_THRESHOLDS)

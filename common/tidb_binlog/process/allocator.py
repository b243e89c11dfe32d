"""Allocator: how the C library hands out memory to this process's threads.

By default each thread gets an arena of its own, up to eight for each core, and what one has freed no other
can use: the peak is the sum of what each thread once had. The interpreter lets one thread run at a time, so
arenas of their own spare its threads hardly a wait.
"""

from __future__ import annotations

import ctypes
from typing import Final

_M_ARENA_MAX: Final = -8
ARENAS: Final = 1


def share_arenas() -> bool:
    """Let all threads share so many arenas; before any other thread is started. False where the C library is
    another than glibc, whose allocators have no arenas of this kind."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_M_ARENA_MAX, ARENAS))

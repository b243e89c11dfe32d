"""Progress: how far a run of reparo is, on standard error.

In     what was read, what was applied
Out    on a terminal one line that is written over; elsewhere a line every ten seconds
Tests  tests/drainer/reparo/test_process.py
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Final

from drainer.reparo.ordered_records import Seen
from drainer.reparo.summary import shown_time
from tidb_binlog.observe.show import TerminalLine, print_warning

PACE_S: Final = 0.5
LINE_EVERY_S: Final = 10.0
_MIB: Final = 1 << 20


def shown(seen: Seen, rows: int, rate: float) -> str:
    """One line."""
    share = f"{100 * seen.bytes // seen.bytes_all} %, " if seen.bytes_all else ""
    return (
        f"reparo: {share}{seen.bytes / _MIB:,.0f} of {seen.bytes_all / _MIB:,.0f} MiB read, {rows:,}"
        f" row changes ({rate:,.0f}/s), at {shown_time(seen.last_ts) or 'the beginning'}"
    )


async def show_progress(seen: Seen, rows: Callable[[], int], monotonic_s: Callable[[], float]) -> None:
    """Until it is cancelled."""
    is_terminal = sys.stderr.isatty()
    line = TerminalLine() if is_terminal else None
    said_s, before = monotonic_s(), 0
    last_s = said_s
    try:
        while True:
            await asyncio.sleep(PACE_S)
            now_s = monotonic_s()
            if line is not None:
                line.show(shown(seen, rows(), (rows() - before) / max(now_s - last_s, PACE_S)))
                before, last_s = rows(), now_s
            elif now_s - said_s >= LINE_EVERY_S:
                print_warning(shown(seen, rows(), (rows() - before) / (now_s - said_s)))
                before, said_s = rows(), now_s
    finally:
        if line is not None:
            line.clear()

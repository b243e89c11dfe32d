"""Work on a thread that nothing waits for: its value, its error, or too late."""

from __future__ import annotations

import threading

import pytest

from tests.waiting import PATIENCE_S
from tidb_binlog.net.abandonable_thread import in_abandonable_thread


async def test_value_and_error() -> None:
    assert await in_abandonable_thread(divmod, 7, 2, timeout_s=10.0) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await in_abandonable_thread(divmod, 7, 0, timeout_s=10.0)


async def test_what_takes_too_long_is_abandoned() -> None:
    ends = threading.Event()
    ended = threading.Event()

    def hang() -> None:
        ends.wait(PATIENCE_S)
        ended.set()

    with pytest.raises(TimeoutError):
        await in_abandonable_thread(hang, timeout_s=0.01)
    ends.set()
    assert ended.wait(PATIENCE_S)

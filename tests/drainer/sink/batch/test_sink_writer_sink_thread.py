"""Methods of a sink on a thread of their own: whatever they do, the caller's event loop turns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from drainer.sink.batch.sink_writer import Raised, SinkThread
from tests.waiting import PATIENCE_S


@pytest.fixture
def thread() -> Iterator[SinkThread]:
    made = SinkThread("test")
    yield made
    made.end()


async def test_functions_and_coroutine_functions_run_there(thread: SinkThread) -> None:
    async def name() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    assert await thread.call(name) == "sink-test"
    assert await thread.call(lambda: threading.current_thread().name) == "sink-test"
    assert await thread.call(max, 3, 5) == 5


@pytest.mark.parametrize(
    "error", [ValueError("v"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()]
)
async def test_whatever_is_raised_comes_back_and_the_thread_goes_on(
    thread: SinkThread, error: BaseException
) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(Raised) as raised:
        await thread.call(fail)
    assert raised.value.error is error
    assert await thread.call(lambda: 1) == 1


async def test_a_call_that_hangs_is_left_behind(thread: SinkThread) -> None:
    free = threading.Event()
    try:
        hanging = asyncio.create_task(thread.call(free.wait))
        await asyncio.sleep(0)  # the event loop turns
        thread.end()
        assert not hanging.done()
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
    finally:
        free.set()
    await asyncio.to_thread(thread.join)


async def test_a_coroutine_that_hangs_is_cancelled_by_the_end(thread: SinkThread) -> None:
    began, ended = threading.Event(), threading.Event()

    async def hang() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    hanging = asyncio.create_task(thread.call(hang))
    assert await asyncio.to_thread(began.wait, PATIENCE_S)
    thread.end()
    await asyncio.to_thread(thread.join)
    assert ended.is_set()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    with pytest.raises(asyncio.CancelledError):
        await thread.call(lambda: None)

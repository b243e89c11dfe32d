"""The synchronous face over a stream in memory: interrupted, closed, ended anywhere, it leaves no thread."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Self

import pytest

from drainer.changes.model import Transaction
from drainer.reading.errors import StreamEnded
from drainer.reading.subscribe.named_reader import NameTaken
from drainer.reading.subscribe.subscription_sync import AHEAD, SyncSubscription, _Handful
from tests.interrupts import interrupted
from tests.waiting import PATIENCE_S, until_here
from tidb_binlog.errors import Corruption

_lines, _first = inspect.getsourcelines(SyncSubscription.__next__)
LAST_LINE = _first + len(_lines) - 1
assert "return change" in _lines[-1]
LINES_OF = {
    function.__code__
    for function in (SyncSubscription.__next__, SyncSubscription._next_handful, _Handful.ask)
}


class Interrupt:
    """A trace function: Ctrl-C before line `at` of the lines that `__next__` runs."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.seen = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code not in LINES_OF:
            return None
        if event == "line" and frame.f_lineno != LAST_LINE:
            self.seen += 1
            if self.seen == self.at:
                raise KeyboardInterrupt
        return self


class MemoryStream:
    """Gives numbered transactions in handfuls; waits where it is told to."""

    def __init__(self, count: int, *, at_once: int = 3) -> None:
        self.left = list(range(1, count + 1))
        self.at_once = at_once
        self.most: list[int] = []
        self.waits = threading.Event()
        self.let: asyncio.Event | None = None
        self.held = False
        self.error: Exception | None = None
        self.ended: Exception | None = None
        self.finished: list[int] = []
        self.closed = 0
        self.position = 0

    async def __aenter__(self) -> Self:
        self.let = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        await asyncio.to_thread(lambda: None)  # a thread that must not stay, either
        return self

    def check(self) -> None:
        if self.ended is not None:
            raise self.ended

    async def take(self, most: int) -> list[Transaction]:
        self.most.append(most)
        if self.held:
            assert self.let is not None
            self.waits.set()
            await self.let.wait()
        if not self.left and self.error is not None:
            raise self.error
        taken, self.left = self.left[: self.at_once], self.left[self.at_once :]
        self.position = taken[-1] if taken else self.position
        return [Transaction(ts, ts, ()) for ts in taken]

    async def done(self, change: Transaction, *, stored: bool = False) -> None:
        self.finished.append(change.commit_ts)

    async def close(self) -> None:
        self.closed += 1

    def release(self) -> None:
        assert self.let is not None
        self.loop.call_soon_threadsafe(self.let.set)


@pytest.fixture(autouse=True)
def _no_thread_stays() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def opened(stream: MemoryStream) -> SyncSubscription:
    face: Any = SyncSubscription(stream)  # type: ignore[arg-type]
    return face  # type: ignore[no-any-return]


def test_every_change_comes_once_in_order_and_the_end_ends() -> None:
    stream = MemoryStream(10)
    with opened(stream) as face:
        assert [change.commit_ts for change in face] == list(range(1, 11))
        assert list(face) == []
    assert set(stream.most) == {AHEAD}
    assert stream.closed == 1


def test_what_is_made_ahead_is_one_handful() -> None:
    stream = MemoryStream(10)
    with opened(stream) as face:
        assert next(face).commit_ts == 1
        assert (len(stream.left), face.position) == (7, 1)
        face.done(next(face))
    assert stream.finished == [2]


def test_an_interrupt_loses_no_change() -> None:
    stream = MemoryStream(4)
    with opened(stream) as face:
        assert [next(face).commit_ts for _ in range(3)] == [1, 2, 3]
        stream.held = True

        with interrupted(lambda: stream.waits.wait(PATIENCE_S)):
            next(face)
        stream.release()
        until_here(lambda: not stream.left)
        assert face.position == 3, "what came after the interrupt was not given"
        assert next(face).commit_ts == 4


def test_an_interrupt_at_any_line_loses_no_change_and_repeats_none() -> None:
    """But for the last, the `return`: CPython looks for signals in calls and jumps."""
    for at in itertools.count(1):
        interrupt = Interrupt(at)
        stream = MemoryStream(5)
        found: list[int] = []
        with opened(stream) as face:
            sys.settrace(interrupt)
            try:
                while len(found) < 5:
                    try:
                        found.append(next(face).commit_ts)
                    except KeyboardInterrupt:
                        assert face.position == len(found)
            finally:
                sys.settrace(None)
        assert found == [1, 2, 3, 4, 5], f"interrupted at line {at} of those that ran"
        if interrupt.seen < at:
            break
    assert at > 30


@pytest.mark.parametrize("moment", ["before", "ahead", "waiting"])
def test_it_may_be_left_anywhere(moment: str) -> None:
    stream = MemoryStream(5)
    with opened(stream) as face:
        if moment != "before":
            next(face)
        if moment == "waiting":
            stream.held = True
            next(face), next(face)
            face._handful = _Handful(3)
            face._running.call_soon(lambda: face._handful._make(face._stream))
            stream.waits.wait(PATIENCE_S)
    face.close()
    assert stream.closed == 1
    with pytest.raises(StreamEnded, match="the stream is closed"):
        next(face)


def test_what_ends_the_stream_comes_after_the_changes_before_it() -> None:
    stream = MemoryStream(4)
    stream.error = Corruption("broken")
    with opened(stream) as face:
        assert [next(face).commit_ts for _ in range(4)] == [1, 2, 3, 4]
        with pytest.raises(Corruption, match="broken"):
            next(face)


def test_a_reader_that_lost_its_name_gives_nothing_that_was_made_ahead() -> None:
    """Another process has it: it would do the same changes."""
    stream = MemoryStream(10)
    with opened(stream) as face:
        assert next(face).commit_ts == 1
        stream.ended = NameTaken("index is another process's")
        for _ in range(2):
            with pytest.raises(NameTaken):
                next(face)


def test_a_program_may_wait_for_a_change_with_a_limit() -> None:
    """It loses none by that, and learns of the end."""
    stream = MemoryStream(4)
    with opened(stream) as face:
        assert face.ready(30)
        assert face.ready(30), "it was not given yet"
        assert [next(face).commit_ts for _ in range(3)] == [1, 2, 3]
        stream.held = True
        assert not face.ready(0)
        assert not face.ready(0.01)
        assert face.position == 3
        stream.release()
        assert face.ready(30)
        assert next(face).commit_ts == 4
        assert face.ready(30)
        assert list(face) == []
        stream.error = Corruption("broken")
        assert face.ready(30), "`next` raises it"
        with pytest.raises(Corruption):
            next(face)


def test_one_that_was_not_opened_says_how() -> None:
    with pytest.raises(StreamEnded, match="the stream is not open") as caught:
        next(opened(MemoryStream(1)))
    assert "with drainer.subscribe_sync" in caught.value.hint


def test_a_stream_that_cannot_be_opened_leaves_nothing() -> None:
    class Refused(MemoryStream):
        async def __aenter__(self) -> Self:
            raise Corruption("no")

    with pytest.raises(Corruption, match="no"), opened(Refused(1)):
        pass

"""A stream is held still between two transactions, goes on to a place, and ends a hold that nobody ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from drainer.operate.control.hold_state import HoldPoint
from drainer.operate.control.pause_and_reload import Control
from drainer.operate.control.rate_limit import Limits
from drainer.sink.runner import HELD, HELD_TO_COMPARE, Runner, TakeRows
from drainer.stream.pull.merged import Merged, MergedBatch, Spilled
from drainer.txn import Ddl, Item, LargeTransaction, Transaction
from tests.contract.beds import Medium, MemorySink
from tests.fakes import virtual_time
from tests.waiting import PATIENCE_S, until
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import Conflict, Rejected, Unavailable
from tidb_binlog.status.troubles import STUCK_S


class Held(MemorySink):
    can_be_held = True
    floor_ts = 0

    @property
    def equal_from_ts(self) -> int:
        return self.floor_ts

    async def hold_point(self) -> HoldPoint:
        await self.flush()
        return HoldPoint(self.handed_over_ts, 9, 3)


class Snapshot(Held):
    chunks = 0

    async def take_snapshot(self, rows: LargeTransaction, *, is_end: bool) -> None:
        self.chunks += 1


class Silent(Held):
    """Of a downstream that neither answers nor refuses."""

    doing = ""

    async def save(self) -> None:
        await asyncio.Event().wait()


def test_a_downstream_that_never_answers_is_said() -> None:
    async def live() -> tuple[str, str]:
        runner = Runner(sink := Silent(Medium()), Items(), interval_s=0.5)
        keeping = asyncio.create_task(runner.keep_checkpoint())
        await virtual_time.passes(STUCK_S)
        before = runner.held_up
        await virtual_time.passes(1.0)
        keeping.cancel()
        found = runner.held_up
        sink.doing = "running DDL job 7"
        assert runner.held_up == "", "that may take hours"
        return before, found

    assert virtual_time.run(live()) == ("", "the checkpoint is not stored, for 10 s")


class Items:
    def translate(self, merged: Merged) -> Item:
        return Transaction(merged.commit_ts - 1, merged.commit_ts, (), 0)

    def pieces(self, spilled: Spilled) -> Iterator[Transaction]:
        raise AssertionError("no large ones")


class Stream:
    """A runner that is given batches by hand."""

    def __init__(self, floor_ts: int = 0, sink: type[MemorySink] = Held, items: Items | None = None) -> None:
        self.medium = Medium()
        self.sink = sink(self.medium)
        if isinstance(self.sink, Held):
            self.sink.floor_ts = floor_ts
        self.control = Control(SystemClock())
        self.hold = self.control.hold
        self.runner = Runner(self.sink, items or Items(), self.control)
        self._batches: asyncio.Queue[MergedBatch] = asyncio.Queue(100)

    async def __aenter__(self) -> Stream:
        self._task = asyncio.create_task(self.runner.run(self._stream()))
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.runner.stop(5.0)
        await self._task

    async def _stream(self) -> AsyncIterator[MergedBatch]:
        while True:
            yield await self._batches.get()

    def give(self, *commits: int, watermark: int) -> None:
        self.put(*(Merged(ts, b"") for ts in commits), watermark=watermark)

    def put(self, *entries: Merged, watermark: int) -> None:
        self._batches.put_nowait(MergedBatch(list(entries), watermark))

    @property
    def written(self) -> list[int]:
        return [item.commit_ts for item in self.medium.items]

    async def until(self, ts: int) -> None:
        await until(lambda: self.sink.handed_over_ts >= ts)


async def test_an_idle_stream_is_held_at_its_watermark() -> None:
    async with Stream() as stream:
        stream.give(10, watermark=15)
        await stream.until(15)
        held = await stream.hold.ask()
        assert held.hold_point == HoldPoint(15, 9, 3)
        assert stream.runner.doing == HELD_TO_COMPARE
        stream.give(20, watermark=25)
        for _ in range(20):
            await asyncio.sleep(0)
        assert stream.written == [10], "nothing is written while it is held"
        assert stream.hold.release(held.token).valid
        await stream.until(25)
        assert stream.written == [10, 20]


async def test_it_stands_between_two_transactions_of_a_batch_and_goes_on_to_a_place() -> None:
    async with Stream() as stream:
        asked = asyncio.create_task(stream.hold.ask())
        await asyncio.sleep(0)
        stream.give(10, 20, 30, 40, watermark=45)
        held = await asked
        assert held.hold_point.ts < 10
        assert stream.written == []
        held = await stream.hold.go_on(held.token, 30)
        assert (held.hold_point.ts, stream.written) == (30, [10, 20, 30])
        held = await stream.hold.go_on(held.token, 35)
        assert (held.hold_point.ts, stream.written) == (35, [10, 20, 30]), "nothing lies between"
        held = await stream.hold.go_on(held.token, 45)
        assert (held.hold_point.ts, stream.written) == (45, [10, 20, 30, 40])
        ahead = asyncio.create_task(stream.hold.go_on(held.token, 60))
        stream.give(50, watermark=59)
        await stream.until(59)
        assert not ahead.done(), "60 may still be committed"
        stream.give(watermark=70)
        assert (await ahead).hold_point.ts == 60
        with pytest.raises(Rejected, match="cannot go back"):
            await stream.hold.go_on(held.token, 59)
        assert stream.hold.release(held.token).valid


async def test_one_that_is_armed_stands_below_every_timestamp_that_is_drawn_afterwards() -> None:
    async with Stream() as stream:
        stream.give(10, watermark=15)
        await stream.until(15)
        token = stream.hold.arm()
        drawn_ts = 19
        stream.give(17, 20, watermark=25)
        stream.give(watermark=30)
        for _ in range(20):
            await asyncio.sleep(0)
        assert stream.sink.handed_over_ts < drawn_ts, "neither a transaction nor a watermark went on"
        held = await stream.hold.go_on(token, drawn_ts)
        assert (held.hold_point.ts, stream.written) == (19, [10, 17])
        assert stream.hold.release(token).valid
        await stream.until(30)


async def test_where_another_program_may_have_written_more_it_is_not_held() -> None:
    async with Stream(floor_ts=25) as stream:
        asked = asyncio.create_task(stream.hold.ask())
        await asyncio.sleep(0)
        stream.give(10, 20, watermark=24)
        await stream.until(24)
        assert not asked.done()
        stream.give(30, watermark=35)
        held = await asked
        assert (held.hold_point.ts, stream.written) == (24, [10, 20])


async def test_a_hold_that_nobody_ends_is_over_at_its_limit() -> None:
    async with Stream() as stream:
        stream.give(10, watermark=15)
        held = await stream.hold.ask(limit_s=0.001)
        stream.give(20, watermark=25)
        await stream.until(25)
        released = stream.hold.release(held.token)
        assert (released.valid, released.why) == (False, "the limit of 0.001 s was over")


async def test_who_waits_too_long_is_told_what_the_stream_does_and_another_can_ask() -> None:
    async with Stream(floor_ts=100) as stream:
        with pytest.raises(Unavailable, match=r"no place to be held at within 0\.001 s: waiting for binlogs"):
            await stream.hold.ask(wait_s=0.001)
        stream.hold.reason = lambda: "pump a is not reachable"
        with pytest.raises(Unavailable, match="waiting for binlogs, pump a is not reachable"):
            await stream.hold.ask(wait_s=0.001)
        asked = asyncio.create_task(stream.hold.ask())
        await asyncio.sleep(0)
        with pytest.raises(Conflict):
            await stream.hold.ask()
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        stream.give(watermark=101)
        assert (await stream.hold.ask()).hold_point.ts == 101


async def test_a_stream_that_an_operator_paused_can_be_held_too() -> None:
    async with Stream() as stream:
        stream.give(10, watermark=15)
        await stream.until(15)
        stream.control.pause()
        stream.give(20, watermark=25)
        await until(lambda: stream.runner.doing == HELD)
        held = await stream.hold.ask()
        assert held.hold_point.ts == 15
        with pytest.raises(Unavailable, match=HELD):
            await stream.hold.go_on(held.token, 20, wait_s=0.001)
        stream.control.resume()
        await stream.until(25)


LARGE = Spilled(20, 19, 300, 0, 0, lambda offset, size: b"")


class Sized(Items):
    def translate(self, merged: Merged) -> Item:
        return Transaction(merged.commit_ts - 1, merged.commit_ts, (), 100)

    def pieces(self, spilled: Spilled) -> Iterator[Transaction]:
        for number in range(3):
            yield Transaction(19, 20, (), 100, last=number == 2)


async def test_what_an_operator_paused_stays_as_it_is_when_it_ends() -> None:
    async with Stream() as stream:
        stream.control.pause()
        stream.give(10, 20, watermark=25)
        await until(lambda: stream.runner.doing == HELD)
        assert await stream.runner.stop(PATIENCE_S)
        assert (stream.written, stream.sink.handed_over_ts) == ([], 0)


@pytest.mark.parametrize("second", [Merged(20, b""), Merged(20, b"", spilled=LARGE)])
async def test_nor_is_more_written_if_it_was_paused_while_rows_waited_for_the_rate(second: Merged) -> None:
    async with Stream(items=Sized()) as stream:
        stream.control.change_rate(Limits(size=1))
        stream.put(Merged(10, b""), second, Merged(30, b""), watermark=35)
        await until(lambda: stream.runner.doing == HELD)
        stream.control.pause()
        assert await stream.runner.stop(PATIENCE_S)
        assert (stream.written, stream.sink.handed_over_ts) == ([10], 10)


class OneChunk:
    """Rows that come first: when they are closed, what is raised of them is the end."""

    ts = 5

    async def give(self, take: TakeRows, save: object) -> None:
        with contextlib.suppress(Unavailable):
            await take(LargeTransaction(5, 5, 100, lambda: iter(())), 1, is_end=True)

    async def close(self) -> None:
        return


async def test_nor_are_rows_that_come_before_the_stream() -> None:
    sink = Snapshot(Medium())
    control = Control(SystemClock())
    runner = Runner(sink, Items(), control, first=OneChunk())
    control.pause()
    stream = asyncio.create_task(runner.run(Stream()._stream()))
    await until(lambda: runner.doing == HELD)
    assert await runner.stop(PATIENCE_S)
    await stream
    assert (sink.chunks, runner.rows) == (0, 0)


async def test_the_end_of_the_stream_ends_the_hold() -> None:
    async with Stream() as stream:
        stream.give(10, watermark=15)
        held = await stream.hold.ask(limit_s=30.0)
        assert await stream.runner.stop(PATIENCE_S)
        assert stream.hold.release(held.token).why == "the drainer stops"
        with pytest.raises(Unavailable):
            await stream.hold.ask()


async def test_a_downstream_that_is_no_database_is_not_held() -> None:
    async with Stream(sink=MemorySink) as stream:
        with pytest.raises(Unavailable, match="no rows are applied to a database"):
            await stream.hold.ask()


async def test_rows_that_came_before_the_ddl_of_their_columns_are_in_the_status_of_every_sink() -> None:
    class WithDdl(Items):
        def translate(self, merged: Merged) -> Item:
            skip = "filtered" if merged.commit_ts > 10 else ""
            return Ddl(
                merged.commit_ts, 7, 70, "d", "ALTER", (("d", "t"),), 1, skip, early="rows lack values"
            )

    async with Stream(items=WithDdl()) as stream:
        stream.give(10, 20, watermark=25)
        await stream.until(25)
        (told,) = stream.runner.facts()["EarlyRows"]
        of_ddl = {"job_id": 7, "commit_ts": 10, "schema_version": 1, "tables": ["d.t"]}
        assert told == of_ddl | {"last_s": told["last_s"]}
        assert 0 <= SystemClock().wall_s() - told["last_s"] < 3600

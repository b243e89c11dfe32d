"""A batch sink under the port: failures, holds, hangs, the end; nothing of it reaches the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from drainer import Ddl, Retry, SinkEnded, Transaction
from drainer.checkpoint.fencing import WentBack
from drainer.checkpoint.savepoint import Savepoint
from drainer.checkpoint.value import Checkpoint
from drainer.ddl import rules as ddl_rules
from drainer.ddl.policy import Policy
from drainer.operate.control.pause_and_reload import Control
from drainer.sink.batch.batched_sink import BatchedSink
from drainer.sink.batch.public_items import PublicItems
from drainer.sink.batch.sink_writer import SinkWriter
from drainer.sink.runner import HELD, Runner
from drainer.testing.sink_contract import Life
from drainer.testing.stream import Stream
from drainer.txn import INSERT
from tests.waiting import PATIENCE_S, settle
from tidb_binlog.clock import ManualClock, SystemClock
from tidb_binlog.errors import BinlogError, ConfigError, Conflict, Corruption, DownstreamError

Items = Sequence[Transaction | Ddl]


class Scripted:
    """Does what `script` says of each write, and keeps what it was given."""

    def __init__(self, *script: Any, position: int | None = None) -> None:
        self.script = list(script)
        self.position = position
        self.calls: list[str] = []
        self.written: list[int] = []

    def open(self) -> int | None:
        self.calls.append("open")
        return self.position

    def write(self, items: Items, position: int) -> None:
        self.calls.append("write")
        step = self.script.pop(0) if self.script else None
        if callable(step):
            step()
        elif step is not None:
            raise step
        self.written += [item.commit_ts for item in items]
        if self.position is not None:
            self.position = position

    def close(self) -> None:
        self.calls.append("close")


class World:
    """A life of a sink on a stream; `sink` may be opened again by another world."""

    def __init__(
        self, directory: Path, sink: Any, stream: Stream, rules: Any = (), *, initial_ts: int = 0
    ) -> None:
        self.directory = directory
        self._initial_ts = initial_ts
        self.sink = sink
        self.stream = stream
        self.ended: list[None] = []
        self._rules = rules
        self.exactly_once = self.follows_ddl = True

    async def open(self, stream: Stream) -> Runner[BatchedSink]:
        self.writer = SinkWriter(
            self.sink,
            "it",
            PublicItems(),
            SystemClock(),
            ended=lambda: self.ended.append(None),
            pause_s=0.001,
        )
        position = await self.writer.open()
        savepoint = Savepoint(str(self.directory))
        stored = savepoint.load()
        start_ts = (stored.commit_ts if stored else 0) if position is None else position
        start_ts = start_ts or self._initial_ts
        sink = BatchedSink(
            self.writer,
            start_ts,
            0,
            savepoint,
            Policy(ddl_rules.parse(self._rules)),
            SystemClock(),
            stores_position=position is not None,
            position_s=0.0,
        )
        self.control = Control(SystemClock())
        return Runner(sink, stream.translator(start_ts), self.control, interval_s=0.01)

    async def die(self) -> None:
        self.writer.thread.end()

    def blocked(self) -> Any:
        raise NotImplementedError

    def rows(self, table: str) -> Any:
        raise NotImplementedError

    async def life(self) -> Life:
        life = await Life.begin(self, self.stream)
        life.give()
        return life


def some(transactions: int = 3) -> Stream:
    stream = Stream()
    for number in range(transactions):
        stream.transaction(("t", INSERT, (number, "v")))
    return stream


def all_of(stream: Stream) -> list[int]:
    return [entry.commit_ts for entry in stream.entries]


async def test_after_an_exception_it_is_opened_again_and_the_same_items_come(
    tmp_path: Path,
) -> None:
    sink = Scripted(Retry("not now", after=0.0), Retry("nor now"))
    stream = some()
    life = await World(tmp_path, sink, stream).life()
    await life.until(lambda: life.sink.stored_ts == stream.now_ts)
    assert sink.calls[:7] == ["open", "write", "close", "open", "write", "close", "open"]
    assert sink.written == all_of(stream)
    assert life.sink.held_up == ""
    await life.stop()
    assert sink.calls[-1] == "close"


async def test_what_the_sink_calls_retriable_is_tried_again(tmp_path: Path) -> None:
    class Patient(Scripted):
        retriable = (OSError,)

    sink = Patient(ConnectionResetError("gone"), TimeoutError())
    stream = some()
    life = await World(tmp_path, sink, stream).life()
    await life.until(lambda: life.sink.stored_ts == stream.now_ts)
    await life.stop()
    assert sink.written == all_of(stream)


async def test_what_is_written_already_is_not_written_again(tmp_path: Path) -> None:
    """The store had committed when the connection broke."""

    class Breaks(Scripted):
        batch_rows = 1

        def write(self, items: Items, position: int) -> None:
            super().write(items, position)
            if len(self.written) == 4:
                self.written.append(-1)
                raise Retry("lost the answer")

    sink = Breaks(position=0)
    stream = some()
    life = await World(tmp_path, sink, stream).life()
    await life.until(lambda: life.sink.stored_ts == stream.now_ts)
    await life.stop()
    assert [ts for ts in sink.written if ts > 0] == all_of(stream)


async def test_an_exception_is_shown_and_holds_until_an_operator_resumes(tmp_path: Path) -> None:
    sink = Scripted(ValueError("no such\nindex"))
    stream = some()
    world = World(tmp_path, sink, stream)
    life = await world.life()
    await life.until(lambda: life.sink.facts()["Sink"]["held"])
    assert life.runner.doing == "held by the sink: ValueError: no such index (PUT /apply/resume tries again)"
    assert life.sink.facts()["Sink"]["error"] == "ValueError: no such index"
    assert sink.calls == ["open", "write", "close"]
    world.control.resume()
    await life.until(lambda: life.sink.stored_ts == stream.now_ts)
    assert sink.written == all_of(stream)
    assert not life.sink.facts()["Sink"]["held"]
    await life.stop()


async def test_a_held_sink_ends_at_once_and_nothing_counts_as_stored(tmp_path: Path) -> None:
    sink = Scripted(ValueError("no"))
    stream = some()
    world = World(tmp_path, sink, stream)
    life = await world.life()
    await life.until(lambda: life.sink.facts()["Sink"]["held"])
    async with asyncio.timeout(PATIENCE_S):
        assert not await life.runner.stop(30.0)
    await life.end()
    stored = Savepoint(str(tmp_path)).load()
    assert stored is None or stored.commit_ts < stream.entries[0].commit_ts
    again = await world.life()
    await again.until(lambda: again.sink.stored_ts == stream.now_ts)
    await again.stop()
    assert sink.written == all_of(stream)


async def test_a_sink_that_hangs_is_shown_and_left_behind(tmp_path: Path) -> None:
    """The event loop, and with it the heartbeat, turns all the time."""
    free = threading.Event()
    sink = Scripted(free.wait)
    stream = some()
    world = World(tmp_path, sink, stream)
    life = await world.life()
    try:
        await life.until(lambda: "write" in sink.calls)
        clock = world.writer._clock = ManualClock()
        world.writer._since_s = clock.monotonic_s()
        clock.advance(61)
        assert life.runner.doing == "waiting for the sink for 61 s"
        assert not await life.runner.stop(0.05)
        await life.end()
        assert sink.calls == ["open", "write"], "what hangs cannot be closed"
        assert Savepoint(str(tmp_path)).load() is None
    finally:
        free.set()
        await asyncio.to_thread(world.writer.thread.join)


async def test_a_sink_that_takes_no_more_ends_the_drainer_with_what_was_written(tmp_path: Path) -> None:
    class Full(Scripted):
        batch_rows = 1

    sink = Full(None, None, None, None, SinkEnded("the reader is gone"))
    stream = some()
    world = World(tmp_path, sink, stream)
    life = await world.life()
    await life.until(lambda: bool(world.ended))
    await life.runner.stop(30.0)
    await life.end()
    stored = Savepoint(str(tmp_path)).load()
    assert stored is not None
    assert stored.commit_ts == sink.written[-1] == all_of(stream)[3]


@pytest.mark.parametrize("error", [Retry("not now", after=60.0), ValueError("no"), SinkEnded("nobody reads")])
@pytest.mark.parametrize("large", [True, False])
async def test_what_the_sink_did_not_take_before_a_stop_comes_at_the_next_start(
    tmp_path: Path, error: Exception, large: bool
) -> None:
    """Whatever the stream does meanwhile: go on to the end of a transaction, or past a watermark."""
    stream = some()

    class OneByOne(Scripted):
        batch_rows = 1

    sink = OneByOne(*[None] * len(stream.entries), error)
    last_ts = stream.large_transaction(3) if large else stream.transaction(("t", INSERT, (9, "v")))
    world = World(tmp_path, sink, stream)
    life = await world.life()
    await life.until(lambda: bool(world.ended) or life.sink.held_up != "")
    if not large:
        life.promise(stream.now_ts + 5)
        await settle()
    await life.runner.stop(30.0)
    await life.end()
    stored = Savepoint(str(tmp_path)).load()
    assert stored is None or stored.commit_ts < last_ts
    again = await world.life()
    await again.until(lambda: again.sink.stored_ts >= last_ts)
    await again.stop()
    assert sink.written.count(last_ts) == 1


async def test_a_store_that_went_back_begins_the_stream_anew(tmp_path: Path) -> None:
    sink = Scripted(position=0)
    stream = some()
    life = await World(tmp_path, sink, stream).life()
    await life.until(lambda: life.sink.stored_ts == stream.now_ts)
    sink.position = 900
    sink.script = [Retry("restarted")]
    stream.transaction(("t", INSERT, (9, "later")))
    life.give()
    with pytest.raises(WentBack):
        await life.until(lambda: False)
    assert WentBack in life.sink.rebuilt_after
    await life.die()


async def test_a_sink_that_fails_before_it_has_a_position_is_tried_again(tmp_path: Path) -> None:
    """It says 0, and the stream began at the upstream's time: nothing went back."""
    sink = Scripted(Retry("not now", after=0.0), Retry("nor now", after=0.0), position=0)
    stream = some()
    initial_ts = stream.entries[0].commit_ts
    life = await World(tmp_path, sink, stream, initial_ts=initial_ts).life()
    await life.until(lambda: life.sink.stored_ts == stream.now_ts)
    await life.stop()
    assert sink.written == all_of(stream)[1:]


async def test_a_sink_that_was_given_nothing_leaves_no_savepoint(tmp_path: Path) -> None:
    """It would be one that the sink knows nothing of: as if its store were gone."""
    stream = some()
    sink = Scripted(position=0)
    life = await Life.begin(World(tmp_path, sink, stream, initial_ts=stream.now_ts), stream)
    await life.stop()
    assert sink.written == []
    assert Savepoint(str(tmp_path)).load() is None or sink.position


async def test_another_writer_ends_the_stream(tmp_path: Path) -> None:
    sink = Scripted(position=0)
    stream = some()
    life = await World(tmp_path, sink, stream).life()
    await life.until(lambda: life.sink.stored_ts == stream.now_ts)
    sink.position = 1 << 40
    sink.script = [Retry("restarted")]
    stream.transaction(("t", INSERT, (9, "later")))
    life.give()
    with pytest.raises(Conflict, match="another program"):
        await life.until(lambda: False)
    await life.die()


@pytest.mark.parametrize("error", [Conflict("moved by another"), Corruption("no position")])
async def test_what_no_attempt_can_help_ends_the_drainer(tmp_path: Path, error: BinlogError) -> None:
    """As `PositionTable` and `PositionFile` raise it."""
    sink = Scripted(error)
    life = await World(tmp_path, sink, some()).life()
    with pytest.raises(type(error)):
        await life.until(lambda: False)
    assert sink.calls == ["open", "write", "close"]
    await life.die()


async def test_a_paused_drainer_gives_nothing_to_the_sink(tmp_path: Path) -> None:
    sink = Scripted()
    stream = some()
    world = World(tmp_path, sink, stream)
    life = await Life.begin(world, stream)
    world.control.pause()
    life.give()
    await life.until(lambda: life.runner.doing == HELD)
    assert sink.written == []
    world.control.resume()
    await life.until(lambda: life.sink.stored_ts == stream.now_ts)
    assert sink.written == all_of(stream)
    await life.stop()


@pytest.mark.parametrize("position", ["7", -1, 1.5])
async def test_a_position_that_is_none_is_refused(tmp_path: Path, position: Any) -> None:
    writer = SinkWriter(Scripted(position=position), "it", PublicItems(), SystemClock())
    with pytest.raises(ConfigError, match=r"open\(\) of the sink it returned"):
        await writer.open()
    await writer.end()


async def test_ddl_follow_the_rules_of_the_configuration(tmp_path: Path) -> None:
    given: list[str] = []

    class Noting(Scripted):
        def write(self, items: Items, position: int) -> None:
            given.extend(item.query for item in items if isinstance(item, Ddl))
            super().write(items, position)

    rules = (
        {"tbl-name": "t", "db-name": "d", "kind": ["CREATE TABLE"], "action": "skip"},
        {"tbl-name": "u", "db-name": "d", "action": "rewrite", "text": "SELECT 'other'"},
    )
    stream = some(1)
    life = await World(tmp_path, Noting(), stream, rules).life()
    await life.until(lambda: life.sink.stored_ts == stream.now_ts)
    await life.stop()
    assert given == ["CREATE DATABASE `d`", "SELECT 'other'"]


async def test_a_rule_may_stop_at_a_ddl_and_all_before_it_is_kept(tmp_path: Path) -> None:
    rules = ({"tbl-name": "u", "db-name": "d", "action": "stop"},)
    life = await World(tmp_path, Scripted(), some(1), rules).life()
    with pytest.raises(DownstreamError, match="stops the drainer"):
        await life.until(lambda: False)
    await life.die()


async def test_the_savepoint_knows_the_schema_version_of_where_it_is(tmp_path: Path) -> None:
    stream = some()
    life = await World(tmp_path, Scripted(), stream).life()
    await life.until(lambda: life.sink.stored_ts == stream.now_ts)
    await life.stop()
    assert Savepoint(str(tmp_path)).load() == Checkpoint(stream.now_ts, True, 3)


async def test_a_drainer_whose_rows_cannot_be_read_ends(tmp_path: Path) -> None:
    """That is no exception of the sink: it is neither held nor tried again."""

    def broken(items: Any) -> Any:
        raise LookupError("a bug of ours")

    sink = Scripted()
    stream = some()
    world = World(tmp_path, sink, stream)
    life = await world.life()
    world.writer._convert = broken
    with pytest.raises(LookupError):
        await life.until(lambda: life.sink.stored_ts == stream.now_ts)
    await life.die()


async def test_a_batch_gathers_for_the_interval_unless_it_is_complete(tmp_path: Path) -> None:
    """An hour is long: only a DDL, a full batch and the end come before it."""
    stream = some(5)
    sink = Scripted()
    sink.batch_interval_s, sink.batch_rows = 3600.0, 4  # type: ignore[attr-defined]
    life = await World(tmp_path, sink, stream).life()
    await life.until(lambda: len(sink.written) == len(stream.entries) - 1)
    await settle()
    assert sink.written == all_of(stream)[:-1], "DDL and four rows, and not the fifth"
    await life.stop()
    assert sink.written == all_of(stream)
    again = some(5)
    again.transaction(("t", INSERT, (9, "later")))
    sink.batch_interval_s = 0.05  # type: ignore[attr-defined]
    later = await World(tmp_path, sink, again).life()
    await later.until(lambda: sink.written == all_of(again))
    await later.stop()

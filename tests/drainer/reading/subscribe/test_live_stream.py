"""Live stream over every recorded scenario: connections are cut, calls cancelled, readers killed."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from drainer import txn
from drainer.changes.row_reader import RowReader
from drainer.reading.errors import BinlogsLost, OutOfOrder, ReadingError, StreamEnded, UpstreamWentBack
from drainer.reading.subscribe.live_stream import Item, Large, LiveStream
from drainer.reading.subscribe.reader_position import ReaderPosition
from drainer.stream.pull.spill import SpillDirectory
from drainer.stream.rules.table_filter import TableFilter
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from tests.drainer.support import recorded
from tests.drainer.support.scripted_pump import (
    Connection,
    MemoryRegistry,
    ScriptedClient,
    ScriptedPump,
    row_payload,
    until,
)
from tidb_binlog import rpc
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import Corruption, Unavailable
from tidb_binlog.tso import Ts
from tidb_binlog.wire import pump_pb2

Shown = tuple[Any, ...]
FAR_TS = 1 << 60


class Upstream:
    """History and time of a recorded cluster."""

    cluster_id = 77

    def __init__(self, jobs: list[bytes]) -> None:
        self._jobs = {recorded.ddl_job.decode(job)["id"]: job for job in jobs}
        self.now_ts = FAR_TS
        self.history = self
        self.oracle = self

    async def job(self, job_id: int) -> bytes | None:
        return self._jobs.get(job_id)

    async def timestamp(self) -> Ts:
        return Ts(self.now_ts)


class MemoryPresence:
    """A name in a registry that never fails."""

    def __init__(self, stored_ts: int = 0) -> None:
        self.unbroken: int | None = 0
        self._left_ts = stored_ts
        self._position: ReaderPosition | None = None

    @property
    def stored_ts(self) -> int:
        return self._left_ts if self._position is None else self._position.position

    def begin(self, ts: int, notify: Callable[[], Awaitable[None]]) -> None:
        self._position = ReaderPosition(ts)

    def given(self, ts: int) -> None:
        assert self._position is not None
        self._position.given(ts)

    def passed(self, ts: int) -> None:
        assert self._position is not None
        self._position.passed(ts)

    def done(self, ts: int) -> None:
        assert self._position is not None
        self._position.done(ts)

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def store(self) -> bool:
        return True

    async def close(self) -> None:
        """Nothing is held."""


class LogPump:
    """Serves a log in small messages; large binlogs in parts; connections end when the dice say so."""

    def __init__(self, name: str, log: list[tuple[int, bytes]], rng: random.Random, *, old: bool) -> None:
        self.log = log
        self.scripted = ScriptedPump(f"{name}:1", serves_batches=not old)
        self._rng = rng
        self._old = old
        self._served: Connection | None = None
        self._todo: list[tuple[int, bytes]] = []

    def turn(self) -> None:
        """Serve a little."""
        connections = self.scripted.connections
        if not connections or not connections[-1].requests:
            return
        connection = connections[-1]
        if connection is not self._served:
            self._served = connection
            self._todo = [entry for entry in self.log if entry[0] > self._after(connection)]
            self._ended = False
        if self._rng.random() < 0.02:
            connection.fail(Unavailable("connection reset"))
            self._todo, self._ended = [], True
        elif self._todo:
            taken = [self._todo.pop(0) for _ in range(min(len(self._todo), self._rng.randint(1, 4)))]
            self._send(connection, taken)
        elif not self._ended:
            self._ended = True
            self._send(connection, [])

    def _after(self, connection: Connection) -> int:
        if self._old:
            return int(pump_pb2.PullBinlogReq.FromString(connection.requests[0]).startFrom.offset)
        return connection.batch_requests()[0].after_ts

    def _send(self, connection: Connection, entries: list[tuple[int, bytes]]) -> None:
        if self._old:
            for _, payload in entries:
                connection.send_entity(payload)
            if not entries:
                connection.send_entity(recorded_mark(FAR_TS - 1))
            return
        above = connection.batch_requests()[0].parts_above
        for ts, payload in entries:
            if len(payload) <= above:
                connection.send([payload], ts)
                continue
            for at in range(0, len(payload), 100):
                part = pump_pb2.Part(commit_ts=ts, size=len(payload), offset=at, data=payload[at : at + 100])
                reply = pump_pb2.PullBatchesResp(part=part, watermark=ts if at + 100 >= len(payload) else 0)
                connection.replies.put_nowait(reply.SerializeToString())
        if not entries:
            connection.send([], FAR_TS - 1)


def recorded_mark(ts: int) -> bytes:
    """A time mark, as an old pump stores one."""
    return recorded.binlog_pb2.Binlog(tp=1, start_ts=ts, commit_ts=ts).SerializeToString()


class Cluster:
    """Pumps with the logs of a scenario; a reader may be opened on it at any position."""

    def __init__(self, scenario: str, seed: int, directory: Path) -> None:
        self.rng = rng = random.Random(seed)
        self.jobs = recorded.jobs(scenario)
        logs = sorted((recorded.ROOT / scenario).glob("pulled*.jsonl.gz"))
        self.pumps = []
        for number, path in enumerate(logs):
            entries = recorded.pulled(scenario, path.name.removeprefix("pulled").removesuffix(".jsonl.gz"))
            old = rng.random() < 0.3
            self.pumps.append(
                LogPump(f"p{number}", [(one.commit_ts, one.payload) for one in entries], rng, old=old)
            )
        self.registry = MemoryRegistry(**{f"p{number}": "online" for number in range(len(logs))})
        self.directory = directory

    def client(self, address: str) -> ScriptedClient:
        return next(pump for pump in self.pumps if pump.scripted.address == address).scripted.client(address)

    def open(self, after_ts: int, presence: MemoryPresence | None = None) -> LiveStream:
        tracker = SchemaTracker.from_history(self.jobs, finished_ts=after_ts)
        stream = LiveStream(
            Upstream(self.jobs),  # type: ignore[arg-type]
            self.registry,  # type: ignore[arg-type]
            Translator(tracker, TableFilter()),
            after_ts=after_ts,
            clock=ManualClock(),
            connect=self.client,
            spill=SpillDirectory(str(self.directory), above_bytes=self.rng.choice((300, 1 << 20))),
            presence=presence,
            stop_ts=FAR_TS - 2,
        )
        stream.start()
        return stream

    async def serve(self) -> None:
        while True:
            for pump in self.pumps:
                pump.turn()
            await asyncio.sleep(0)


def shown(item: Item, reader: RowReader) -> Shown:
    """What a program is given, in a form that compares."""
    if isinstance(item, txn.Ddl):
        return ("ddl", item.commit_ts, item.query)
    pieces = item.pieces if isinstance(item, Large) else [item]
    rows = [row for piece in pieces for events in piece.tables for row in reader.rows(events)]
    return ("rows", item.commit_ts, [(str(row.table), row.kind, row.before, row.after) for row in rows])


def expected(scenario: str) -> list[Shown]:
    """As the translator has it at once."""
    translator, reader = (
        Translator(SchemaTracker.from_history(recorded.jobs(scenario), finished_ts=0), TableFilter()),
        RowReader(),
    )
    found = []
    for entry in recorded.merged(scenario):
        item = translator.translate(entry)
        if isinstance(item, txn.Transaction):
            if item.tables:
                found.append(shown(item, reader))
        elif not item.skip and not item.half_done:
            found.append(shown(item, reader))
    return found


async def patient(stream: LiveStream, rng: random.Random) -> Item | None:
    """The next item; calls before it are cancelled wherever they are."""
    for _ in range(rng.choice((0, 0, 1, 3))):
        call = asyncio.ensure_future(stream.next())
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        if not call.cancel():
            return call.result()
        try:
            return await call
        except asyncio.CancelledError:
            pass
    return await stream.next()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause before a new attempt, or between listings."""
    monkeypatch.setattr("drainer.stream.pull.pump_source.RETRY_FIRST_S", 1e-6)
    monkeypatch.setattr("drainer.stream.pull.pump_source.RETRY_MAX_S", 1e-6)
    monkeypatch.setattr("drainer.stream.pull.collector.LIST_GAP_S", 0.0)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
async def test_killed_at_random_every_row_comes_once(scenario: str, named: bool, tmp_path: Path) -> None:
    cluster = Cluster(scenario, len(scenario) + named, tmp_path)
    rng, reader = cluster.rng, RowReader()
    wanted = expected(scenario)
    assert wanted
    kills = min(24, max(3, len(wanted) // 8))
    places = sorted(rng.sample(range(len(wanted)), min(kills, len(wanted))))
    found: list[Shown] = []
    position = 0
    serving = asyncio.create_task(cluster.serve())
    try:
        async with asyncio.timeout(120):
            while True:
                presence = MemoryPresence(position) if named else None
                stream = cluster.open(position, presence)
                while (item := await patient(stream, rng)) is not None:
                    found.append(shown(item, reader))
                    position = item.commit_ts
                    assert stream.position == position
                    if presence is not None:
                        presence.done(position)
                        assert presence.stored_ts == position
                    if places and len(found) > places[0]:
                        places.pop(0)
                        break
                await stream.close()
                if item is None:
                    break
                if presence is not None:
                    position = presence.stored_ts
    finally:
        serving.cancel()
        await asyncio.wait({serving})
    assert not places
    assert found == wanted
    assert list(tmp_path.iterdir()) == []


# -- what ends a stream -----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def small(
    registry: MemoryRegistry, *, now_ts: int = FAR_TS
) -> AsyncIterator[tuple[LiveStream, ScriptedPump]]:
    upstream, pump = Upstream([]), ScriptedPump("a:1")
    upstream.now_ts = now_ts
    stream = LiveStream(
        upstream,  # type: ignore[arg-type]
        registry,  # type: ignore[arg-type]
        Translator(SchemaTracker(), TableFilter()),
        after_ts=8,
        clock=ManualClock(),
        connect=pump.client,
        spill=SpillDirectory("never made"),
    )
    stream.start()
    try:
        yield stream, pump
    finally:
        await stream.close()


async def refused(pump: ScriptedPump, error: Exception) -> None:
    (await pump.connected()).fail(error)


async def says(stream: LiveStream, kind: type[Exception], text: str) -> Any:
    """Now, and whenever it is asked again."""
    async with asyncio.timeout(5):
        with pytest.raises(kind, match=text) as caught:
            await stream.next()
        with pytest.raises(kind, match=text):
            await stream.next()
    return caught.value


async def test_binlogs_that_were_purged() -> None:
    async with small(MemoryRegistry(a="online")) as (stream, pump):
        await refused(pump, rpc.RpcStatus(11, "position 8 is below the gc timestamp 20 of this pump"))
        error = await says(stream, BinlogsLost, "cannot serve binlogs after commit_ts 8")
        assert (error.position, bool(error.hint), isinstance(error, ReadingError)) == (8, True, True)


async def test_a_pump_that_left_with_what_was_not_read() -> None:
    registry = MemoryRegistry(a="online")
    async with small(registry) as (stream, pump):
        await pump.connected()
        registry.change("a", "offline", last_ts=30)
        error = await says(stream, BinlogsLost, "pump a has left the cluster with binlogs up to commit_ts 30")
        assert error.lowest == 30


async def test_a_pump_that_breaks_its_order() -> None:
    async with small(MemoryRegistry(a="online")) as (stream, pump):
        connection = await pump.connected()
        connection.send([row_payload(1, 20), row_payload(2, 19)], 20)
        error = await says(stream, OutOfOrder, "sent commit_ts 19 after commit_ts 20")
        assert error.position == 8


async def test_an_upstream_that_went_back() -> None:
    async with small(MemoryRegistry(a="online"), now_ts=5) as (stream, pump):
        await refused(pump, rpc.RpcStatus(rpc.DATA_LOSS, "position 8 lies in the future"))
        await says(stream, UpstreamWentBack, "the upstream is at 5")


async def test_rows_of_a_table_that_no_ddl_made() -> None:
    async with small(MemoryRegistry(a="online")) as (stream, pump):
        (await pump.connected()).send([row_payload(9, 10)], 12)
        await says(stream, Corruption, "rows of an unknown table")


async def test_a_closed_stream_says_so() -> None:
    async with small(MemoryRegistry(a="online")) as (stream, pump):
        await pump.connected()
        waiting = asyncio.ensure_future(stream.next())
        await asyncio.sleep(0)
        await stream.close()
        with pytest.raises(StreamEnded):
            await waiting
        await says(stream, StreamEnded, "the stream is closed")
    assert {task.get_name() for task in asyncio.all_tasks()} & {"collector", "live stream", "merge"} == set()


async def test_the_position_follows_what_nobody_writes() -> None:
    registry = MemoryRegistry(a="online")
    async with small(registry) as (stream, pump):
        waiting = asyncio.ensure_future(stream.next())
        connection = await pump.connected()
        connection.send([], 50)
        await until(lambda: stream.position == 50)
        waiting.cancel()
        await asyncio.wait({waiting})

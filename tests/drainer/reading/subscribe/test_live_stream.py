"""Live stream over every recorded scenario: connections are cut, calls cancelled, readers killed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from drainer import txn
from drainer.changes.row_reader import RowReader
from drainer.reading.errors import BinlogsLost, OutOfOrder, ReadingError, StreamEnded, UpstreamWentBack
from drainer.reading.subscribe.live_stream import Item, Large, LiveStream
from drainer.reading.subscribe.named_reader import NamedReader
from drainer.stream.pull.spill import SpillDirectory
from drainer.stream.rules.table_rules import TableFilter
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from tests.drainer.reading.subscribe.streams import FAR_TS, Cluster, MemoryPresence, Upstream
from tests.drainer.support import recorded
from tests.drainer.support.scripted_pump import MemoryRegistry, ScriptedClient, ScriptedPump, row_payload
from tests.fakes import virtual_time
from tests.fakes.virtual_time import LoopClock
from tests.waiting import PATIENCE_S, until
from tidb_binlog import rpc, tso
from tidb_binlog.clock import ManualClock
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import DRAINERS, ClusterView, NodeEntry
from tidb_binlog.errors import Corruption

Shown = tuple[Any, ...]


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


@pytest.mark.parametrize(
    ("scenario", "named"), [(name, bool(number % 2)) for number, name in enumerate(recorded.SCENARIOS)]
)
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
        async with asyncio.timeout(PATIENCE_S):
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
    async with asyncio.timeout(PATIENCE_S):
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


# -- a day without a write, in virtual time -------------------------------------------------------------


NIGHT_S = 8 * 3600.0
ASK_S = 20.0


def now_ts() -> int:
    return tso.from_wall_s(LoopClock().wall_s())


class Lease:
    """Of the one reader; `gaps_s` are the times between two extensions."""

    def __init__(self, ttl_s: int) -> None:
        self.ttl_s = ttl_s
        self.last_s = LoopClock().monotonic_s()
        self.longest_gap_s = 0.0
        self.withdrawn = False

    async def keep_alive(self) -> None:
        now_s = LoopClock().monotonic_s()
        self.longest_gap_s = max(self.longest_gap_s, now_s - self.last_s)
        self.last_s = now_s

    async def withdraw(self) -> None:
        self.withdrawn = True


class QuietRegistry(MemoryRegistry):
    """With an entry for a reader."""

    def __init__(self, **pumps: str) -> None:
        super().__init__(**pumps)
        self.reader: NodeEntry | None = None
        self.lease: Lease | None = None
        self.listings = 0

    async def view(self) -> ClusterView:
        self.listings += 1
        found = await super().view()
        drainers = {} if self.reader is None else {self.reader.status.node_id: self.reader}
        return ClusterView(found.revision, found.pumps, drainers)

    async def put(self, kind: str, status: NodeStatus, expected: int | None) -> int:
        assert kind == DRAINERS
        assert (expected or 0) == (0 if self.reader is None else self.reader.mod_revision)
        self.reader = NodeEntry(status, (expected or 0) + 1, True)
        return self.reader.mod_revision

    async def announce(self, kind: str, node_id: str, ttl_s: int) -> Lease:
        self.lease = Lease(ttl_s)
        return self.lease


async def serve(pump: ScriptedPump) -> None:
    """Its watermark is the time, whenever it is asked for a later one."""
    told = 0
    while True:
        await virtual_time.passes(5.0)
        if pump.connections and pump.connection.requests:
            wanted = max(one.wait_watermark for one in pump.connection.batch_requests()[-2:])
            del pump.connection.requests[:-2]
            if wanted > told:
                told = now_ts()
            pump.connection.send([], told)


async def night(*, named: bool) -> None:
    registry = QuietRegistry(a="online", b="online")
    pumps = {f"{name}:1": ScriptedPump(f"{name}:1") for name in "ab"}
    start_ts = now_ts()
    reader: NamedReader | None = None
    if named:
        reader = NamedReader("cache", registry, now_ts, LoopClock(), lambda: "")  # type: ignore[arg-type]
        await reader.register()
        await virtual_time.passes(60.0)  # the program reads its schema, or starts Spark

    def connect(address: str) -> ScriptedClient:
        return pumps[address].client(address)

    stream = LiveStream(
        Upstream([]),  # type: ignore[arg-type]
        registry,  # type: ignore[arg-type]
        Translator(SchemaTracker(), TableFilter()),
        after_ts=start_ts,
        clock=LoopClock(),
        connect=connect,
        spill=SpillDirectory("never made"),
        presence=reader,
        idle_ask_s=ASK_S,
    )
    stream.start()
    tasks = [asyncio.create_task(serve(pump)) for pump in pumps.values()]
    tasks.append(asyncio.create_task(stream.next()))  # type: ignore[arg-type]
    sizes = []
    for _ in range(24):
        await virtual_time.passes(NIGHT_S / 24)
        assert not tasks[-1].done(), "nothing was written"
        assert tso.age_s(stream.position, LoopClock().wall_s()) < ASK_S + 12, "the position follows the clock"
        if reader is not None:
            assert registry.reader is not None
            assert tso.age_s(registry.reader.status.max_commit_ts, LoopClock().wall_s()) < ASK_S + 15
        gc.collect()
        sizes.append(len(gc.get_objects()))
    if registry.lease is not None:
        assert registry.lease.longest_gap_s < registry.lease.ttl_s / 2, "the lease never came near its end"
    assert registry.listings < 3 * NIGHT_S / ASK_S
    assert sizes[-1] - sizes[2] < 500, f"objects pile up: {sizes}"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await stream.close()
    if reader is not None:
        await reader.close()
        assert registry.lease is not None
        assert registry.lease.withdrawn


@pytest.mark.parametrize("named", [False, True])
def test_a_night_of_silence(named: bool) -> None:
    virtual_time.run(night(named=named))


async def test_another_event_loop_is_refused_instead_of_waiting_for_ever(tmp_path: Path) -> None:
    async def use() -> None:
        with pytest.raises(StreamEnded, match="another event loop"):
            await stream.next()

    cluster = Cluster("basic", 1, tmp_path)
    stream = cluster.open(0, None)
    try:
        await asyncio.to_thread(asyncio.run, use())
    finally:
        await stream.close()

"""Rows before the stream: stopped at any step a start goes on at the same moment, and nothing is missing."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer import Ddl, Transaction
from drainer.app.build_batch import where_to_begin
from drainer.app.first_rows import FirstRows, open_first_rows
from drainer.changes.row_reader import RowReader
from drainer.checkpoint.savepoint import SNAPSHOT_NAME, Savepoint
from drainer.checkpoint.value import Checkpoint
from drainer.ddl.policy import Policy
from drainer.points.load import table_copy, upstream_schema
from drainer.points.snapshot.moment import open_upstream_snapshot
from drainer.sink.batch.batched_sink import BatchedSink
from drainer.sink.batch.public_items import PublicItems
from drainer.sink.batch.sink_writer import SinkWriter
from drainer.sink.runner import TakeRows
from drainer.stream.rules.rule_set import read_rules
from drainer.txn import LargeTransaction
from tests.drainer.points.load.load_bed import SCHEMA, Bed
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import Conflict, Corruption, Rejected

pytestmark = pytest.mark.integration
KEYED, PLAIN = 1000, 300
STOOD = sorted(
    [*(("keyed", number) for number in range(KEYED)), *(("plain", number) for number in range(PLAIN))]
)


class Crash(Exception):
    """Nothing is done after it."""


class ListSink:
    """What it was given; it crashes before or after it has taken so many chunks."""

    def __init__(self, left: int = -1, *, takes: bool = True) -> None:
        self.chunks: list[list[tuple[str, int]]] = []
        self.stored_ts = 0
        self.ended = False
        self._left = left
        self._takes = takes

    async def take_snapshot(self, chunk: LargeTransaction, count: int, *, is_end: bool) -> None:
        reader = RowReader()
        rows = [row for piece in chunk.pieces() for row in reader.transaction(piece).rows]
        assert len(rows) == count
        self._left -= 1
        if self._left == 0 and not self._takes:
            raise Crash
        self.chunks.append([(row.table.name, next(iter(row.after.values()))) for row in rows if row.after])
        self.ended = is_end
        if self._left == 0:
            raise Crash

    async def save(self) -> None:
        self.stored_ts = 1


class OwnStore:
    """A store with transactions: rows and position at once. A step of `script` that is True is a crash before
    the commit, False one after it; None is none. Without `position` it stores none."""

    def __init__(self, position: int | None = 0) -> None:
        self.rows: list[tuple[str, int]] = []
        self.position = position
        self.positions: list[int] = []
        self.script: list[bool | None] = []

    def open(self) -> int | None:
        return self.position

    def write(self, items: Sequence[Transaction | Ddl], position: int) -> None:
        step = self.script.pop(0) if self.script else None
        if step is True:
            raise Conflict("a crash before the commit", hint="")
        for item in items:
            assert isinstance(item, Transaction)
            assert item.snapshot
            self.rows += [(row.table.name, next(iter(row.after.values()))) for row in item.rows if row.after]
        self.positions.append(position)
        if self.position is not None:
            self.position = position
        if step is False:
            raise Conflict("a crash after the commit", hint="")


class OwnSink:
    """Drives a store as the Drainer does, for one life."""

    def __init__(self, store: OwnStore, data_dir: Path) -> None:
        self._writer = SinkWriter(store, "own", PublicItems(), SystemClock())
        self._data_dir = data_dir
        self._sink: BatchedSink | None = None

    async def open(self) -> int | None:
        return await self._writer.open()

    async def take_snapshot(self, rows: LargeTransaction, _count: int, *, is_end: bool) -> None:
        if self._sink is None:
            self._sink = BatchedSink(
                self._writer,
                rows.commit_ts - 1,
                0,
                Savepoint(str(self._data_dir)),
                Policy(()),
                SystemClock(),
                stores_position=await self._writer.open() is not None,
            )
        await self._sink.take_snapshot(rows, is_end=is_end)

    async def save(self) -> None:
        assert self._sink is not None
        await self._sink.save()

    def end(self) -> None:
        self._writer.thread.end()


@pytest.fixture
def bed(mariadb: MariaDbServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    monkeypatch.setattr(table_copy, "CHUNK_ROWS_MAX", 200)
    bed = Bed(mariadb)
    bed.publish("keyed", [("id", "bigint"), ("item", "varchar(40)")], ("id",))
    bed.publish("plain", [("a", "int")])
    bed.run(
        f"CREATE TABLE {SCHEMA}.keyed (id BIGINT PRIMARY KEY, item VARCHAR(40))",
        f"CREATE TABLE {SCHEMA}.plain (a INT)",
        f"INSERT INTO {SCHEMA}.keyed SELECT seq, 'x' FROM seq_0_to_{KEYED - 1}",
        f"INSERT INTO {SCHEMA}.plain SELECT seq FROM seq_0_to_{PLAIN - 1}",
    )
    yield bed
    bed.clean()


@pytest.fixture
def reopening(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a TiDB: T is shown again. Nothing is written meanwhile, so any moment is T."""

    async def again(*arguments: Any, at_ts: int = 0, **more: Any) -> Any:
        snapshot: Any = await open_upstream_snapshot(*arguments, **more)
        snapshot.ts = at_ts or snapshot.ts
        return snapshot

    monkeypatch.setattr(upstream_schema, "open_upstream_snapshot", again)


async def life(
    bed: Bed, data_dir: Path, sink: Any, stored: Checkpoint | None = None, stands_at: int | None = None
) -> FirstRows | None:
    """Returns the rows that were there to give."""

    async def wait_for(work: Any) -> Any:
        return await work()

    bed.options = {"data_dir": str(data_dir), "load": True, "table_migrate_rule": ()}
    async with contextlib.AsyncExitStack() as ends:
        context: Any = SimpleNamespace(
            settings=bed.settings(),
            upstream=bed.upstream,
            ends=ends,
            operating=SimpleNamespace(wait_for=wait_for),
        )
        first = await open_first_rows(context, read_rules(bed.settings()), stored, stands_at)
        if first is not None:
            await first.give(sink.take_snapshot, sink.save)
        return first


@pytest.mark.parametrize("takes", [True, False])
async def test_killed_at_any_chunk_it_goes_on_at_the_same_moment(
    bed: Bed, tmp_path: Path, reopening: None, monkeypatch: pytest.MonkeyPatch, takes: bool
) -> None:
    """What was begun is given as it was, though the upstream's statistics say something else by then."""
    given: list[list[tuple[str, int]]] = []
    moments = set()
    while True:
        sink = ListSink(2, takes=takes)
        monkeypatch.setattr(table_copy, "CHUNK_ROWS_MAX", 150 + len(given) * 7)
        try:
            first = await life(bed, tmp_path, sink)
        except Crash:
            given += sink.chunks
            moments.add((tmp_path / SNAPSHOT_NAME).read_text().split(":")[1])
            continue
        assert first is not None
        given += sink.chunks
        moments.add(str(first.ts))
        break
    assert len(moments) == 1
    assert sink.ended
    assert sink.stored_ts
    assert not (tmp_path / SNAPSHOT_NAME).exists()
    once = {tuple(chunk) for chunk in given}
    assert sorted(row for chunk in once for row in chunk) == STOOD
    assert (len(once) == len(given)) is not takes, "what came last before a kill comes again"


async def own_life(bed: Bed, data_dir: Path, store: OwnStore) -> FirstRows | None:
    sink = OwnSink(store, data_dir)
    try:
        return await life(bed, data_dir, sink, Savepoint(str(data_dir)).load(), await sink.open())
    finally:
        sink.end()


async def test_a_store_with_transactions_has_each_row_once_wherever_it_is_killed(
    bed: Bed, tmp_path: Path, reopening: None
) -> None:
    """Also rows of a table without a key."""
    draw, store, kills = random.Random(3), OwnStore(), 0
    while True:
        store.script = [None] * draw.randrange(3) + [draw.random() < 0.5]
        try:
            first = await own_life(bed, tmp_path, store)
            break
        except Conflict:
            kills += 1
    assert kills > 3
    assert sorted(store.rows) == STOOD
    assert store.positions == sorted(set(store.positions)), "it rises"
    moment = store.position
    assert first is None or first.ts == moment
    assert not (tmp_path / SNAPSHOT_NAME).exists()
    assert moment is not None
    assert where_to_begin("own", moment, Savepoint(str(tmp_path)).load(), 7).commit_ts == moment


async def test_stopped_where_the_answer_of_a_store_is_lost(
    bed: Bed, tmp_path: Path, reopening: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, give = OwnStore(), FirstRows.give
    store.script = [None, None, False]

    async def given(first: FirstRows, take: TakeRows, save: Callable[[], Awaitable[None]]) -> None:
        async def taken(rows: LargeTransaction, count: int, *, is_end: bool) -> None:
            try:
                await take(rows, count, is_end=is_end)
            except Conflict:
                await first.close()
                raise

        await give(first, taken, save)

    with monkeypatch.context() as patch:
        patch.setattr(FirstRows, "give", given)
        await own_life(bed, tmp_path, store)
    assert 0 < len(store.rows) < len(STOOD)
    await own_life(bed, tmp_path, store)
    assert sorted(store.rows) == STOOD


async def test_a_store_without_a_position_may_have_the_last_rows_twice(
    bed: Bed, tmp_path: Path, reopening: None
) -> None:
    store = OwnStore(None)
    store.script = [None, None, False]
    with pytest.raises(Conflict):
        await own_life(bed, tmp_path, store)
    given = len(store.rows)
    await own_life(bed, tmp_path, store)
    assert sorted(set(store.rows)) == STOOD
    assert 0 < len(store.rows) - len(STOOD) < given


async def test_a_store_and_a_data_directory_that_do_not_belong_together(
    bed: Bed, tmp_path: Path, reopening: None
) -> None:
    store = OwnStore()
    store.script = [None, False]
    with pytest.raises(Conflict):
        await own_life(bed, tmp_path, store)
    for position in (0, 7):
        store.position = position
        with pytest.raises(Rejected, match=f"has {position} rows of it") as refused:
            await own_life(bed, tmp_path, store)
        assert "empty store" in refused.value.hint
    store.position = 1 << 60
    assert await own_life(bed, tmp_path, store) is None, "all rows are there, and the stream goes on"


async def test_it_happens_once(bed: Bed, tmp_path: Path) -> None:
    sink = ListSink()
    first = await life(bed, tmp_path, sink)
    assert first is not None
    assert sorted(row for chunk in sink.chunks for row in chunk) == STOOD
    assert await life(bed, tmp_path, sink, Checkpoint(first.ts, False, 1)) is None


async def test_a_moment_that_is_gone_is_said(bed: Bed, tmp_path: Path) -> None:
    with pytest.raises(Crash):
        await life(bed, tmp_path, ListSink(2))
    before = Checkpoint(int((tmp_path / SNAPSHOT_NAME).read_text().split(":")[1]) - 1, True, 1)
    for stored in (None, before):
        with pytest.raises(Rejected, match="the snapshot cannot go on") as refused:
            await life(bed, tmp_path, ListSink(), stored)
        assert "another topic" in refused.value.hint
    (tmp_path / SNAPSHOT_NAME).write_text("nonsense\n")
    with pytest.raises(Corruption, match="cannot be read"):
        await life(bed, tmp_path, ListSink())

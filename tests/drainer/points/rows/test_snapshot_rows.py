"""Rows of a publisher's database at T, in transactions that say where they end; who goes on gets the rest."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.changes.row_reader import RowReader
from drainer.mysql.connection import Connection
from drainer.points.load import table_copy, upstream_schema
from drainer.points.rows import snapshot_rows
from drainer.points.rows.snapshot_position import SnapshotPosition, SnapshotRequest
from drainer.points.rows.snapshot_rows import ChunkRows, SnapshotRows, Spool, open_snapshot
from drainer.points.snapshot.moment import open_upstream_snapshot
from drainer.points.snapshot.publisher_database import PublisherSnapshot
from drainer.points.snapshot.sessions import SnapshotLost
from drainer.points.worker_pool import Ended
from drainer.stream.rules.rule_set import read_rules
from tests.drainer.points.load.load_bed import CLUSTER, SCHEMA, Bed
from tests.waiting import PATIENCE_S, until_here
from tidb_binlog.ddl_job import ActionType, database_info
from tidb_binlog.errors import ConfigError, Unavailable

pytestmark = pytest.mark.integration
KEYED, PLAIN = 1500, 900
Found = list[tuple[str, tuple[Any, ...]]]


@pytest.fixture
def bed(mariadb: MariaDbServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    """A table with a key in several chunks, one without, an empty one at the end."""
    monkeypatch.setattr(table_copy, "CHUNK_ROWS_MAX", 300)
    bed = Bed(mariadb)
    bed.options = {"table_migrate_rule": ()}
    bed.publish("keyed", [("id", "bigint"), ("item", "varchar(40)")], ("id",))
    bed.publish("plain", [("a", "int"), ("b", "varchar(20)")])
    bed.publish("void", [("a", "int")])
    bed.run(
        f"CREATE TABLE {SCHEMA}.keyed (id BIGINT PRIMARY KEY, item VARCHAR(40))",
        f"CREATE TABLE {SCHEMA}.plain (a INT, b VARCHAR(20))",
        f"CREATE TABLE {SCHEMA}.void (a INT)",
        f"INSERT INTO {SCHEMA}.keyed SELECT seq, CONCAT('item', seq) FROM seq_1_to_{KEYED}",
        f"INSERT INTO {SCHEMA}.plain SELECT seq DIV 3, 'x' FROM seq_1_to_{PLAIN}",
    )
    yield bed
    bed.clean()


@asynccontextmanager
async def opened(
    bed: Bed, position: SnapshotPosition | None = None, directory: str | None = None
) -> AsyncIterator[SnapshotRows]:
    rules = read_rules(bed.settings())
    asked = SnapshotRequest(
        bed.settings(), bed.upstream, rules, position or SnapshotPosition(), "test", directory
    )
    rows, _ = await open_snapshot(asked)
    try:
        yield rows
    finally:
        await rows.close()


def read(reader: RowReader, chunk: ChunkRows) -> Found:
    found = []
    for piece in chunk.pieces():
        assert (piece.commit_ts, piece.start_ts, piece.snapshot) == (
            chunk.position.ts,
            chunk.position.ts,
            chunk.position.text(),
        )
        for row in reader.transaction(piece).rows:
            assert row.after is not None
            found.append((row.table.name, tuple(row.after.values())))
    return found


async def all_of(rows: SnapshotRows) -> list[tuple[SnapshotPosition, Found]]:
    reader, chunks = RowReader(), []
    while (chunk := await rows.next()) is not None:
        chunks.append((chunk.position, read(reader, chunk)))
    return chunks


def expected() -> Found:
    keyed = [("keyed", (number, f"item{number}")) for number in range(1, KEYED + 1)]
    return sorted([*keyed, *(("plain", (number // 3, "x")) for number in range(1, PLAIN + 1))])


async def test_all_rows_of_one_moment_each_once(bed: Bed) -> None:
    async with opened(bed) as rows:
        bed.run(f"UPDATE {SCHEMA}.keyed SET item='later'", f"DELETE FROM {SCHEMA}.plain")
        chunks = await all_of(rows)
    assert sorted(row for _, some in chunks for row in some) == expected()
    assert len(chunks) > 5
    positions = [position for position, _ in chunks]
    assert {position.ts for position in positions} == {rows.begin.ts}
    assert [position.rows for position in positions] == sorted(position.rows for position in positions)
    assert [position.is_end for position in positions] == [False] * (len(chunks) - 1) + [True]


async def test_names_with_dots_are_of_several_tables(bed: Bed) -> None:
    """`load_app`.`a.b` and `load_app.a`.`b`."""
    bed.publish("a.b", [("id", "int")], ("id",))
    schema = f"{SCHEMA}.a"
    bed.schema_id = 99
    bed.job(ActionType.CREATE_SCHEMA, schema_name=schema, db_info=database_info(99, schema))
    bed.publish("b", [("id", "int")], ("id",), schema=schema)
    for number, name in enumerate((f"{SCHEMA}`.`a.b", f"{schema}`.`b")):
        bed.run(
            f"CREATE DATABASE IF NOT EXISTS `{schema}`",
            f"CREATE TABLE `{name}` (id INT PRIMARY KEY)",
            f"INSERT INTO `{name}` VALUES ({number})",
        )
    try:
        async with opened(bed) as rows:
            found = [row for _, some in await all_of(rows) for row in some]
    finally:
        bed.run(f"DROP DATABASE `{schema}`")
    assert sorted(found) == sorted([*expected(), ("a.b", (0,)), ("b", (1,))])


@pytest.fixture
def reopening(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a TiDB: T is shown again. Nothing is written meanwhile, so any moment is T."""

    async def again(*arguments: Any, at_ts: int = 0, **more: Any) -> Any:
        snapshot: Any = await open_upstream_snapshot(*arguments, **more)
        snapshot.ts = at_ts or snapshot.ts
        return snapshot

    monkeypatch.setattr(upstream_schema, "open_upstream_snapshot", again)


async def test_who_goes_on_behind_any_position_gets_the_rest(bed: Bed, reopening: None) -> None:
    async with opened(bed) as rows:
        whole = await all_of(rows)
    for number, (position, _) in enumerate(whole[:-1], 1):
        async with opened(bed, SnapshotPosition.of(position.text())) as rest:
            assert rest.begin.ts == rows.begin.ts
            following = await all_of(rest)
        before = [row for _, some in whole[:number] for row in some]
        assert sorted([*before, *(row for _, some in following for row in some)]) == expected()
        assert following[-1][0].rows == KEYED + PLAIN


async def test_what_cannot_go_on_is_said(bed: Bed, reopening: None, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(bed) as rows:
        first = await rows.next()
    assert first is not None
    options = bed.options
    for changed in (
        {"table_migrate_rule": (), "ignore_table": ({"db-name": SCHEMA, "tbl-name": "void"},)},
        {**options, "row_rule": ({"db-name": SCHEMA, "tbl-name": "keyed", "where": "id > 1"},)},
    ):
        bed.options = changed
        with pytest.raises(ConfigError, match="begun with other tables or rules"):
            async with opened(bed, first.position):
                pass
    bed.options, bed.cluster_id = options, CLUSTER + 1
    with pytest.raises(ConfigError, match="of another cluster"):
        async with opened(bed, first.position):
            pass
    bed.cluster_id = CLUSTER
    monkeypatch.undo()
    with pytest.raises(SnapshotLost, match="does not show"):
        async with opened(bed, first.position):
            pass


async def test_the_upstream_keeps_t_for_who_comes_back(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    close = PublisherSnapshot.close

    async def closed(self: PublisherSnapshot, *, keep: bool = False) -> None:
        kept.append(keep)
        await close(self)

    monkeypatch.setattr(PublisherSnapshot, "close", closed)
    async with opened(bed) as rows:
        await rows.next()
    async with opened(bed) as rows:
        await all_of(rows)
        assert kept == [True, True], "sessions end with the last row"


async def test_a_session_that_dies_costs_nothing_while_another_shows_t(bed: Bed) -> None:
    ids = "SELECT ID FROM information_schema.PROCESSLIST ORDER BY ID"
    before = set(bed.rows(ids))
    async with opened(bed) as rows:
        reader = RowReader()
        chunk = await rows.next()
        assert chunk is not None
        found = read(reader, chunk)
        first = next(number for number in bed.rows(ids) if number not in before)
        bed.run(f"UPDATE {SCHEMA}.keyed SET item='later'", f"KILL {first[0]}")
        found += [row for _, some in await all_of(rows) for row in some]
    assert sorted(found) == expected()


async def test_none_is_taken_for_the_end_where_t_is_lost(bed: Bed) -> None:
    async with opened(bed) as rows:
        assert await rows.next() is not None
        rows._snapshot.cut()
        for _ in range(2):
            with pytest.raises(SnapshotLost):
                await all_of(rows)


async def test_a_large_chunk_waits_on_disk(bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_rows, "MEMORY_BYTES", 1000)
    monkeypatch.setattr(snapshot_rows, "_PIECE_ROWS", 100)
    place = tmp_path / "made" / "when needed"
    async with opened(bed, directory=str(place)) as rows:
        chunk = await rows.next()
        assert chunk is not None
        assert chunk.is_large
        pieces = list(chunk.pieces())
        assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
        assert len(pieces) > 2
        found = read(RowReader(), chunk)
        found += [row for _, some in await all_of(rows) for row in some]
    assert sorted(found) == expected()
    assert not list(place.iterdir())


def test_a_disk_without_room_says_so_when_rows_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_rows, "MEMORY_BYTES", 10)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda dir: open("/dev/full", "w+b"))  # noqa: SIM115
    with pytest.raises(Unavailable, match="takes no rows"):
        Spool(str(tmp_path)).add([b"less than a buffer"])


async def test_a_call_that_is_cancelled_loses_nothing(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    spool = SnapshotRows._spool

    def slow(self: SnapshotRows, *arguments: Any) -> Any:
        go.wait()
        return spool(self, *arguments)

    monkeypatch.setattr(SnapshotRows, "_spool", slow)
    async with opened(bed) as rows:
        for _ in range(3):
            waiting = asyncio.create_task(rows.next())
            await asyncio.sleep(0)
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting
        go.set()
        assert sorted(row for _, some in await all_of(rows) for row in some) == expected()


async def test_it_ends_while_the_upstream_hangs(bed: Bed, until_waits: Callable[[str], None]) -> None:
    lock = bed.connect()
    async with opened(bed) as rows:
        lock.run(f"LOCK TABLES {SCHEMA}.keyed WRITE".encode())
        waiting = asyncio.create_task(rows.next())
        await asyncio.to_thread(until_waits, "keyed")
        async with asyncio.timeout(PATIENCE_S):
            await rows.close()
            with pytest.raises(Ended):
                await waiting
    lock.close()


async def test_one_that_is_given_up_leaves_no_thread_with_an_upstream_that_hangs(
    bed: Bed, until_waits: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def size(connection: Connection, *_name: str) -> None:
        try:
            connection.rows(f"SELECT COUNT(*) FROM {SCHEMA}.keyed".encode())
        finally:
            ended.set()

    async def begin() -> None:
        async with opened(bed):
            raise AssertionError("the table is locked")

    ended = threading.Event()
    monkeypatch.setattr(upstream_schema, "table_size", size)
    lock = bed.connect()
    lock.run(f"LOCK TABLES {SCHEMA}.keyed WRITE".encode())
    opening = asyncio.create_task(begin())
    try:
        await asyncio.to_thread(until_waits, "keyed")
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert await asyncio.to_thread(ended.wait, PATIENCE_S)
    finally:
        lock.close()


@pytest.fixture
def until_waits(bed: Bed) -> Callable[[str], None]:
    """Returns when a session waits for the definition of a table."""

    def wait(table: str) -> None:
        until_here(
            lambda: bed.rows(
                "SELECT 1 FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for table metadata%'"
                f" AND INFO LIKE '%{table}%'"
            )
        )

    return wait

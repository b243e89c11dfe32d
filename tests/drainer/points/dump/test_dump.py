"""An image from a publisher's database: all rows at T, fit for a restore; what a kill leaves is no image."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.chunks.chunk import Chunk
from drainer.points.dump.dump import Dump, Dumped, TableDump, Writing
from drainer.points.dump.dump_directory import PLACE, DumpDirectory
from drainer.points.image.manifest import Manifest, is_image
from drainer.points.image.objects import Objects
from drainer.points.load import table_copy
from drainer.points.load.contents import contents_of
from drainer.points.load.counters import Counters
from drainer.points.restore.options import RestoreOptions
from drainer.points.restore.restoring import Outcome, Restoration
from drainer.points.snapshot.moment import open_upstream_snapshot
from drainer.stream.rules.rule_set import read_rules
from drainer.stream.schema.tracker import SchemaTracker
from tests.drainer.points.load.load_bed import COPY, SCHEMA, Bed
from tests.object_store import ObjectStore
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import Conflict, Rejected, Unavailable

pytestmark = pytest.mark.integration
TABLES = ("orders", "log", "names")
ROUTE = {"source": {"schema": SCHEMA}, "target": {"schema": COPY}}


@pytest.fixture
def bed(mariadb: MariaDbServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    """A table with a key, one without, one of text; in several chunks."""
    monkeypatch.setattr(table_copy, "CHUNK_ROWS_MAX", 300)
    bed = Bed(mariadb)
    bed.options = {"table_migrate_rule": ()}
    bed.publish("orders", [("id", "bigint"), ("item", "varchar(40)"), ("price", "decimal(10,2)")], ("id",))
    bed.publish("log", [("a", "int"), ("b", "varchar(20)")])
    bed.publish("names", [("name", "varchar(40)"), ("born", "datetime(3)")], ("name",))
    bed.run(
        f"CREATE TABLE {SCHEMA}.orders (id BIGINT PRIMARY KEY, item VARCHAR(40), price DECIMAL(10,2))",
        f"CREATE TABLE {SCHEMA}.log (a INT, b VARCHAR(20))",
        f"CREATE TABLE {SCHEMA}.names (name VARCHAR(40) COLLATE utf8mb4_bin PRIMARY KEY, born DATETIME(3))",
        f"INSERT INTO {SCHEMA}.orders SELECT seq, CONCAT('it''em\\\\', seq), seq / 7 FROM seq_1_to_1500",
        f"INSERT INTO {SCHEMA}.log SELECT seq DIV 3, 'x' FROM seq_1_to_900",
        f"INSERT INTO {SCHEMA}.names SELECT CONCAT('ü', seq), '2024-01-01 00:00:00.125' FROM seq_1_to_100",
    )
    yield bed
    bed.run("DROP DATABASE IF EXISTS tidb_binlog_reparo")
    bed.clean()


async def dump(bed: Bed, directory: Path | str, **more: Any) -> Dumped:
    return await Dump(bed.settings(), bed.upstream, str(directory), **more).run()


async def restored(bed: Bed, directory: Path | str) -> Outcome:
    bed.options = {**bed.options, "table_migrate_rule": (ROUTE,), "row_rule": ()}
    options = RestoreOptions(bed.settings(), image=str(directory))
    return await Restoration(options, asyncio.Event()).run()


class Killed(Exception):
    """As good as kill -9: nothing is done after it."""


class KillingCounters(Counters):
    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def copied(self, table: str, rows: int, size_bytes: int, *, compared: bool) -> None:
        super().copied(table, rows, size_bytes, compared=compared)
        self.left -= 1
        if not self.left:
            raise Killed


async def test_what_is_upstream_at_t_is_an_image_that_a_database_is_made_of(bed: Bed, tmp_path: Path) -> None:
    done = await dump(bed, tmp_path / "image")
    assert (done.tables, done.rows, done.kept) == (3, 2500, 0)
    made = Manifest.load(str(tmp_path / "image"))
    assert made.objects
    assert (made.commit_ts, {one.table: one.rows for one in made.tables}) == (
        done.ts,
        {"orders": 1500, "log": 900, "names": 100},
    )
    assert len(list((tmp_path / "image" / f"{SCHEMA}.orders").iterdir())) > 2
    assert not (tmp_path / "image" / PLACE).exists()
    found = Objects.load(str(tmp_path / "image"), made)
    assert [one.name[1] for one in found.tables] == ["binlog_outcome", *sorted(TABLES)][1:]
    outcome = await restored(bed, tmp_path / "image")
    assert (outcome.rows, outcome.compared, outcome.is_equal, outcome.finished) == (2500, 2500, True, True)
    assert bed.is_equal(*TABLES)


async def test_an_image_is_of_one_moment_however_often_it_was_killed(bed: Bed, tmp_path: Path) -> None:
    """A publisher's database shows T to one process only: the next one begins at another."""
    seen = []
    for after in (2, 5):
        with pytest.raises(Killed):
            await dump(bed, tmp_path / "image", counters=KillingCounters(after))
        assert not is_image(str(tmp_path / "image"))
        place = DumpDirectory(str(tmp_path / "image"))
        seen.append(place.ts)
        place.close()
        bed.run(
            f"UPDATE {SCHEMA}.orders SET item='later' WHERE id IN (1, 250, 1499)",
            f"DELETE FROM {SCHEMA}.log WHERE a = {after}",
        )
    done = await dump(bed, tmp_path / "image")
    assert seen == sorted({*seen, done.ts})[:2]
    assert (await restored(bed, tmp_path / "image")).is_equal
    assert bed.is_equal(*TABLES)


async def test_an_image_in_an_object_store(bed: Bed, s3: ObjectStore) -> None:
    with pytest.raises(Killed):
        await dump(bed, s3.uri("images/one"), counters=KillingCounters(2))
    assert not is_image(s3.uri("images/one"))
    done = await dump(bed, s3.uri("images/one"))
    assert not any(PLACE in name for name in s3.objects())
    assert sum(one.rows for one in Manifest.load(s3.uri("images/one")).tables) == done.rows == 2500
    outcome = await restored(bed, s3.uri("images/one"))
    assert (outcome.compared, outcome.is_equal, outcome.finished) == (2500, True, True)
    assert bed.is_equal(*TABLES)


def test_an_image_in_an_object_store_is_of_one_process(s3: ObjectStore) -> None:
    place = DumpDirectory(s3.uri("image"))
    place.begin(7)
    with pytest.raises(Conflict, match="another process writes an image") as refused:
        DumpDirectory(s3.uri("image"))
    assert "image/.dump/lock" in refused.value.hint
    for name in ("a.t", "a.t2"):
        for number in range(3):
            place.add(name, [Chunk(number, ("id",), (b"%d" % number,), ())])
    place.close()
    again = DumpDirectory(s3.uri("image"))
    assert again.ts == 7
    assert [chunk.number for chunk in again.chunks("a.t")] == [0, 1, 2]
    again.begin(8)
    assert again.chunks("a.t") == []
    again.close()


def test_half_of_an_image_that_is_begun_anew_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before any of its files is removed: what is left is whole, or of no timestamp."""
    removed, deaths = os.unlink, iter(range(100))
    for number in deaths:
        place = DumpDirectory(str(tmp_path / str(number)))
        place.begin(7)
        for name in ("a.t", "z.t"):
            for chunk in range(3):
                place.add(name, [Chunk(chunk, ("id",), (b"%d" % chunk,), ())])
        left = [number]

        def dying(*given: Any, left: list[int] = left, **options: Any) -> None:
            if not left[0]:
                raise Killed
            left[0] -= 1
            removed(*given, **options)

        monkeypatch.setattr(os, "unlink", dying)
        try:
            place.begin(8)
            break
        except Killed:
            pass
        finally:
            monkeypatch.undo()
            place.close()
        again = DumpDirectory(str(tmp_path / str(number)))
        if again.ts:
            assert [len(again.chunks(name)) for name in ("a.t", "z.t")] == [3, 3]
        again.close()
    assert next(deaths) > 6


async def test_at_the_same_moment_what_is_there_is_not_read_again(bed: Bed, tmp_path: Path) -> None:
    """As a TiDB shows it."""
    snapshot = await open_upstream_snapshot(bed.settings(), bed.upstream, 3)
    tracker = SchemaTracker.from_history(bed.history.jobs, schema_version=4)
    contents = contents_of(tracker, read_rules(bed.settings()))
    dumping = Dump(bed.settings(), bed.upstream, str(tmp_path / "image"))

    def write(counters: Counters) -> list[TableDump]:
        place = DumpDirectory(str(tmp_path / "image"))
        try:
            place.begin(snapshot.ts)
            tables = dumping._tables(snapshot, contents)
            counters.begin(snapshot.ts, {table.source.label: table.size.rows for table in tables})
            Writing(snapshot, place, counters, SystemClock(), workers=2).run(tables)
            return tables
        finally:
            place.close()

    try:
        with pytest.raises(Killed):
            await asyncio.to_thread(write, KillingCounters(3))
        orders = tmp_path / "image" / PLACE / f"{SCHEMA}.orders"
        cut = orders.read_text().splitlines()
        with orders.open("a") as file:
            file.write("[torn")
        bed.run(f"DELETE FROM {SCHEMA}.orders WHERE id > 700")
        counters = Counters()
        tables = await asyncio.to_thread(write, counters)
    finally:
        await snapshot.close()
    now = counters.view()
    assert now.rows == 2500
    assert 0 < now.rows_here < 2500
    assert orders.read_text().splitlines()[: len(cut)] == cut
    assert sorted(one.writer.table_image().rows for one in tables) == [100, 900, 1500]


async def test_filters_and_rules_count_as_for_the_drainer(bed: Bed, tmp_path: Path) -> None:
    bed.options = {
        "table_migrate_rule": (
            {"source": {"schema": SCHEMA, "table": "orders"}, "target": {"schema": COPY}},
        ),
        "ignore_table": ({"db-name": SCHEMA, "tbl-name": "log"},),
        "column_rule": ({"db-name": SCHEMA, "tbl-name": "orders", "ignore-columns": ["price"]},),
        "row_rule": (
            {"db-name": SCHEMA, "tbl-name": "orders", "where": "id > 10", "mask": {"item": "null"}},
        ),
    }
    await dump(bed, tmp_path / "image")
    made = Manifest.load(str(tmp_path / "image"))
    by_name = {one.table: one for one in made.tables}
    orders, names = by_name["orders"], by_name["names"]
    assert (orders.schema, orders.rows, names.schema, names.rows) == (COPY, 1490, SCHEMA, 100)
    assert [column.name for column in orders.version.info.columns] == ["id", "item"]
    bed.run(f"CREATE DATABASE {COPY}")
    bed.options = {"ignore_table": ({"db-name": SCHEMA, "tbl-name": "names"},)}
    options = RestoreOptions(bed.settings(), image=str(tmp_path / "image"))
    assert (await Restoration(options, asyncio.Event()).run()).is_equal
    assert bed.rows(f"SELECT COUNT(*), MIN(id), COUNT(item) FROM {COPY}.orders") == [(1490, 11, 0)]


async def test_a_dry_run_writes_nothing(bed: Bed, tmp_path: Path) -> None:
    found = await Dump(bed.settings(), bed.upstream, str(tmp_path / "image")).plan()
    assert {one.name for one in found.tables} == {f"{SCHEMA}.{name}" for name in TABLES}
    assert not (tmp_path / "image").exists()


async def test_what_cannot_be_one_image_is_refused(bed: Bed, tmp_path: Path) -> None:
    for name in ("a1", "a2"):
        bed.publish(name, [("id", "int")], ("id",))
    bed.options = {
        "table_migrate_rule": (
            {"source": {"schema": SCHEMA, "table": "a?"}, "target": {"schema": SCHEMA, "table": "a"}},
        )
    }
    with pytest.raises(Rejected, match=f"several tables are routed to {SCHEMA}.a"):
        await dump(bed, tmp_path / "image")


async def test_a_user_without_rights_is_told_and_the_same_call_goes_on(bed: Bed, tmp_path: Path) -> None:
    grants = (f"{SCHEMA}.orders", f"{SCHEMA}.names")
    user = "'half'@'%'"
    bed.run(
        f"CREATE OR REPLACE USER {user}",
        *(f"GRANT SELECT ON {name} TO {user}" for name in grants),
        f"GRANT SELECT, INSERT, LOCK TABLES ON {SCHEMA}.* TO {user}",
        f"REVOKE SELECT ON {SCHEMA}.* FROM {user}",
        f"GRANT SELECT ON {SCHEMA}.binlog_outcome TO {user}",
    )
    options = bed.options
    bed.options = {**options, "from_user": "half", "from_password": ""}
    with pytest.raises(Rejected, match="1142: SELECT command denied to user"):
        await dump(bed, tmp_path / "image")
    assert not is_image(str(tmp_path / "image"))
    bed.options = options
    assert (await dump(bed, tmp_path / "image")).rows == 2500
    bed.run(f"DROP USER {user}")


def test_a_directory_is_one_image_of_one_process(tmp_path: Path) -> None:
    place = DumpDirectory(str(tmp_path / "image"))
    with pytest.raises(Conflict, match="another process writes an image"):
        DumpDirectory(str(tmp_path / "image"))
    place.close()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(Rejected, match="is not empty"):
        DumpDirectory(str(tmp_path / "other"))
    Manifest(1, "", "", "", (), ()).store(str(tmp_path / "made"))
    with pytest.raises(Rejected, match="has an image already"):
        DumpDirectory(str(tmp_path / "made"))
    with pytest.raises(Unavailable, match="cannot be written"):
        DumpDirectory(str(tmp_path / "other" / "file" / "image"))


async def test_an_image_that_waits_for_a_server_that_hangs_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    asks, is_cut = threading.Event(), threading.Event()

    class Waits:
        def __init__(self, *_: object, **__: object) -> None:
            self.stop = threading.Event()

        def run(self, _tables: object) -> None:
            asks.set()
            is_cut.wait()

    async def no_tables(*_: object) -> list[TableDump]:
        return []

    monkeypatch.setattr("drainer.points.dump.dump.Writing", Waits)
    dump: Any = SimpleNamespace(
        _asked=no_tables, _tables=None, counters=Counters(), _clock=None, _workers=1, _rate_rows=0
    )
    snapshot: Any = SimpleNamespace(ts=5, cut=is_cut.set)
    nothing: Any = None
    writes = asyncio.create_task(Dump._rows(dump, snapshot, nothing, nothing))
    await asyncio.to_thread(asks.wait)
    writes.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writes
    assert is_cut.is_set()

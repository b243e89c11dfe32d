"""Images of archives: the rows of a table at a point in time, from nothing and from an image before."""

from __future__ import annotations

import random
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from drainer.mysql.connection import Connection
from drainer.points.image.manifest import MANIFEST, ROWS, Manifest
from drainer.points.image.parquet_reader import TableReader
from drainer.points.image.parquet_writer import TableWriter
from drainer.spark import image
from drainer.spark.audit.auditing import audit
from drainer.spark.image import table_lifetimes
from drainer.spark.image.table_lifetimes import Life
from drainer.txn import INSERT, Ddl, TableEvents, TableVersion, Transaction
from tests.common.rowcodec.tables import index, key, kind, table
from tests.drainer.reading.archive.support import corpus
from tests.drainer.support import archive_life
from tests.drainer.support.apply_model import SHAPES, World
from tests.drainer.support.relay_world import items
from tests.spark.support.table_history import History
from tidb_binlog.errors import Conflict, Rejected
from tidb_binlog.rowcodec.encoder import RowEncoder


def rows_of(world: World) -> Counter[Any]:
    return Counter(tuple(map(stored, row.values())) for row in world.rows.values())


def stored(value: Any) -> Any:
    """As a FLOAT has it."""
    return struct.unpack("f", struct.pack("f", value))[0] if isinstance(value, float) else value


def rows_in(spark: SparkSession, directory: Path) -> Counter[Any]:
    frame = spark.read.parquet(str(directory / "m.dst")).drop("_invalid")
    return Counter(tuple(row) for row in frame.collect())


def rewritten(directory: Path, made: Manifest, base: Path) -> Path:
    """The same image as `binlogctl load` writes it, read from files of Spark."""
    tables = []
    for one in made.tables:
        reader, writer = TableReader(str(directory), one), TableWriter(str(base), one.version)
        writer.begin()
        with writer.part(0) as part:
            for group in reader.groups():
                part.add(list(reader.images(group)))
        tables.append(writer.table_image())
    replace(made, tables=tuple(tables), hashed=ROWS).store(str(base))
    return base


@pytest.mark.parametrize("small_bytes", [0, 1 << 30])
@pytest.mark.parametrize("shape", ["unique", "keyless"])
async def test_rows_at_a_moment(
    spark: SparkSession, connection: Connection, tmp_path: Path, shape: str, small_bytes: int
) -> None:
    world = World(connection, next(one for one in SHAPES if one.name == shape), random.Random(shape))
    history = History(world)
    history.some(5)
    history.schema_change("TRUNCATE TABLE dst")
    world.run("DELETE FROM m.ref")
    world.rows.clear()
    history.some(30)
    middle, then = history.last_ts, rows_of(world)
    if shape == "unique":
        history.replaced()
    history.some(30)
    archive, first, second = str(tmp_path / "archive"), tmp_path / "first", tmp_path / "second"
    await history.write(tmp_path / "archive")

    made = image.make(spark, archive, str(first), {"stop": str(middle)})
    assert rows_in(spark, first) == then
    (table,) = made.tables
    assert (made.commit_ts, table.rows) == (middle, sum(then.values()))
    base = rewritten(first, made, tmp_path / "base")
    again = image.make(spark, archive, str(second), base=str(base), small_bytes=small_bytes)
    assert rows_in(spark, second) == rows_of(world)
    assert again.commit_ts == history.last_ts
    assert Manifest.load(str(second)) == again
    if shape == "unique":
        whole = image.make(spark, archive, str(tmp_path / "whole"), small_bytes=small_bytes)
        assert [one.checksum for one in whole.tables] == [one.checksum for one in again.tables]


def ddl(ts: int, action: int, query: str) -> Ddl:
    return Ddl(ts, 0, action, "d", query, (("d", "t"),), 0)


def test_what_rows_count() -> None:
    name = ("d", "t")
    assert table_lifetimes.lives([name], [], 7) == {name: Life(7, whole=False)}
    create, drop = ddl(10, 3, "CREATE TABLE t (a int)"), ddl(20, 4, "DROP TABLE t")
    assert table_lifetimes.lives([name], [create], 0) == {name: Life(10, whole=True, altered=10)}
    assert table_lifetimes.lives([name], [create, drop], 0) == {}
    assert table_lifetimes.lives([name], [create], 10) == {name: Life(10, whole=False)}
    convert = ddl(30, 12, "ALTER TABLE t MODIFY a VARCHAR(9)")
    assert table_lifetimes.lives([name], [create, convert], 0) == {name: Life(10, True, True, altered=30)}
    database = Ddl(40, 0, 2, "d", "DROP DATABASE d", (("d", ""),), 0)
    assert table_lifetimes.lives([name], [create, database], 0) == {}


@pytest.mark.parametrize(
    "query",
    [
        "RENAME TABLE u TO t",
        "ALTER TABLE t RENAME TO u",
        "ALTER TABLE t DROP PARTITION p0",
        "RECOVER TABLE t",
    ],
)
def test_rows_that_nobody_tells_of_are_refused(query: str) -> None:
    with pytest.raises(Rejected, match="cannot be known after commit_ts 5"):
        table_lifetimes.lives([("d", "t")], [ddl(5, 0, query)], 0)
    kept = ddl(5, 0, "ALTER TABLE t RENAME COLUMN a TO b")
    assert table_lifetimes.lives([("d", "t")], [kept], 0) == {("d", "t"): Life(0, whole=False, altered=5)}


def test_a_table_that_moved_in_an_earlier_life_is_there_in_this_one() -> None:
    name, other = ("d", "t"), ("d", "u")
    moved = Ddl(5, 0, 14, "d", "RENAME TABLE t TO u", (name, other), 0)
    create = ddl(10, 3, "CREATE TABLE t (a int)")
    gone = Ddl(20, 0, 4, "d", "DROP TABLE u", (other,), 0)
    assert table_lifetimes.lives([name], [moved, create, gone], 0) == {name: Life(10, True, altered=10)}
    with pytest.raises(Rejected, match=r"d\.u cannot be known after commit_ts 5"):  # no row of it came since
        table_lifetimes.lives([name], [moved, create], 0)
    kept = table_lifetimes.lives([name], [moved, create], 0, lambda schema, table: table == "t")
    assert kept == {name: Life(10, whole=True, altered=10)}
    with pytest.raises(Rejected, match=r"d\.t cannot be known"):
        table_lifetimes.lives([name], [create, moved], 0)


@pytest.mark.parametrize(
    ("query", "is_known"),
    [
        ("ALTER TABLE odd ADD COLUMN b INT NOT NULL DEFAULT 7", False),
        ("ALTER TABLE odd ADD INDEX (after), DROP `x y`", False),
        ("ALTER TABLE odd RENAME COLUMN after TO b", False),
        ("ALTER TABLE odd ADD INDEX (after)", True),
    ],
)
async def test_columns_that_no_row_has_shown_are_not_those_of_before(
    tmp_path: Path, query: str, is_known: bool
) -> None:
    def no_spark() -> SparkSession:
        raise AssertionError("there is little to read")

    archive, (_, full, last), rows = await odd_archive(tmp_path / "archive", query, 5)
    before = image.make(
        no_spark, str(archive), str(tmp_path / "full"), {"stop": str(full)}, small_bytes=1 << 20
    )
    assert before.tables[0].rows == len(rows)
    for options in ({}, {"stop": str(last)}):
        into = str(tmp_path / f"last{len(options)}")
        if is_known:
            made = image.make(no_spark, str(archive), into, options, small_bytes=1 << 20)
            assert made.tables[0].rows == len(rows)
        else:
            with pytest.raises(
                Rejected, match=f"no row shows which columns d.odd has after commit_ts {last}"
            ):
                image.make(no_spark, str(archive), into, options, small_bytes=1 << 20)


async def test_files_that_another_command_left_are_no_part_of_an_image(tmp_path: Path) -> None:
    def no_spark() -> SparkSession:
        raise AssertionError("there is little to read")

    archive, (_, full, _), rows = await odd_archive(tmp_path / "archive")
    into, options = tmp_path / "image", {"stop": str(full)}
    before = image.make(no_spark, str(archive), str(into), options, small_bytes=1 << 20)
    (into / MANIFEST).unlink()  # killed before
    (file,) = into.glob("d.odd/*.parquet")
    (file.parent / "part-000001.parquet").write_bytes(file.read_bytes())  # `load -to archive` has several
    assert image.make(no_spark, str(archive), str(into), options, small_bytes=1 << 20) == before
    assert before.tables[0].rows == len(rows)


ODD = ("i.d", "a`b", "_invalid", "after", "x y", "__INVALID")


async def odd_archive(
    directory: Path, change: str = "TRUNCATE TABLE odd", action: int = 11
) -> tuple[Path, list[int], list[dict[str, Any]]]:
    """A table with such columns, its key among them; the timestamps and what is there at the end."""
    kinds = [key("int") if number < 2 else kind("datetime") for number in range(len(ODD))]
    primary = index(1, (ODD[0], 0), (ODD[1], 1), primary=True)
    info = table(*zip(ODD, kinds, strict=True), handle="rowid", indexes=(primary,))
    version = TableVersion(info, "d", "odd", 1)
    encoder = RowEncoder(info)
    rows = [dict(zip(ODD, (n, n % 3, *[None] * 3, "0000-00-00 00:00:00"), strict=True)) for n in range(60)]
    first = 1 << 40
    stream: list[Any] = [Ddl(first, 1, 3, "d", "CREATE TABLE odd (a INT)", (("d", "odd"),), 1)]
    for row in rows:
        ts = first + 10 * len(stream)
        events = TableEvents(version, [INSERT], [encoder.insert(tuple(row.values()), len(stream))], 0)
        stream.append(Transaction(ts - 1, ts, (events,), 1))
    last = first + 10 * len(stream)
    stream.append(Ddl(last, 2, action, "d", change, (("d", "odd"),), 2))
    await archive_life.whole(directory, archive_life.Ready(stream))
    return directory, [first, last - 10, last], rows


@pytest.mark.parametrize("here", [True, False])
async def test_columns_of_any_name_and_moments_of_schema_changes(
    spark: SparkSession, tmp_path: Path, here: bool
) -> None:
    archive, (first, full, last), rows = await odd_archive(tmp_path / "archive")

    def no_spark() -> SparkSession:
        raise AssertionError("there is little to read")

    small = 1 << 20 if here else 0
    told: list[str] = []

    def made(at: int, base: str = "") -> tuple[Manifest, Path]:
        into = tmp_path / f"{at}{base[-4:]}"
        options = {"stop": str(at)}
        run = no_spark if here else spark
        sizes: Any = {"small_bytes": small, "tell": told.append}
        return image.make(run, str(archive), str(into), options, base=base, **sizes), into

    found, into = made(full)
    assert found.tables[0].rows == len(rows)
    assert told == ["d.odd, table 1 of 1"]
    reader = TableReader(str(into), found.tables[0])
    assert sum(len(list(reader.images(group))) for group in reader.groups()) == len(rows)
    batches = [batch for group in reader.groups() for batch in reader.batches(group)]
    assert all("0000-00-00" in note for batch in batches for note in batch.column("___invalid").to_pylist())
    assert audit(None, str(archive), {"stop": str(full)}, image=str(into)).findings["contents"].listed == []
    half, _ = made(full - 300)
    again, _ = made(full, str(tmp_path / str(full - 300)))
    assert again.tables[0].rows == half.tables[0].rows + 30 == len(rows)
    assert [one.rows for one in made(last)[0].tables] == [0]
    assert [one.rows for one in made(first)[0].tables] == [0]


async def test_changes_that_do_not_fit_make_no_image(
    spark: SparkSession, connection: Connection, tmp_path: Path
) -> None:
    world = World(connection, next(one for one in SHAPES if one.name == "int"), random.Random(2))
    history = History(world)
    history.schema_change("CREATE TABLE dst (id INT)")
    history.some(40)
    history.stream[1:20] = []  # a gap
    await history.write(tmp_path / "archive")
    with pytest.raises(Conflict, match="were never added"):
        image.make(spark, str(tmp_path / "archive"), str(tmp_path / "image"))
    assert not (tmp_path / "image" / MANIFEST).exists()


def test_a_table_that_did_not_change_after_the_base_stays(spark: SparkSession, tmp_path: Path) -> None:
    """An archive whose older segments are gone: nothing in it tells of that table."""
    transactions = [item for item in items("basic") if not isinstance(item, Ddl)]
    names = [{events.table.name for events in item.tables} for item in transactions]
    place = max(at for at, some in enumerate(names) if some == {"customer"})
    assert {"orders"} in names[:place]
    image_ts = transactions[place].commit_ts
    whole = corpus.our_archive(items("basic"), tmp_path / "whole")
    rest = corpus.our_archive(transactions[place : place + 1], tmp_path / "rest")
    base, later = str(tmp_path / "base"), str(tmp_path / "later")
    before = image.make(spark, whole.uri, base, {"stop": str(image_ts - 1)})
    made = image.make(spark, rest.uri, later, {"stop": str(image_ts)}, base=base)
    assert [one.table for one in made.tables] == ["customer", "orders"]
    assert replace(made.tables[1], files=before.tables[1].files) == before.tables[1]
    assert made.tables[0].checksum != before.tables[0].checksum


def test_an_archive_without_definitions_makes_no_empty_image(spark: SparkSession, tmp_path: Path) -> None:
    foreign = corpus.unpacked("basic", "events", tmp_path / "foreign")
    with pytest.raises(Rejected, match="defines none of the tables"):
        image.make(spark, foreign.uri, str(tmp_path / "image"))
    assert not (tmp_path / "image").exists()

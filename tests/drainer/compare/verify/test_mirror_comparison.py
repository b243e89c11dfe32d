"""A mirror beside the upstream: its rows are there, all of them, and no others. Without Spark and Java."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from pyiceberg.catalog import load_catalog

from binlog_playground.cluster.mariadb import MariaDbServer
from binlogctl.cli import command_line
from binlogctl.cli.command_line import Call
from binlogctl.cli.commands import DIFFERS, DONE
from binlogctl.commands import verify
from drainer.checkpoint.value import Checkpoint
from drainer.compare.verify.mirror_comparison import MirrorVerification
from drainer.compare.verify.result import How, Kind, State, TableResult, Verification
from drainer.config.options import DrainerConfig
from drainer.lake.iceberg import IcebergLake
from drainer.lake.lake_table import plain_name
from drainer.lake.mirror import schema_of
from drainer.lake.warehouse import MIRROR, LakePosition, app_of, lake_of
from drainer.mysql.connection import Target
from drainer.points.image.parquet_reader import TableReader
from drainer.reading.archive.views.changes import INVALID, ImageSide
from drainer.reading.subscribe.table_choice import TablePattern
from drainer.txn import INSERT, TableVersion
from tests.drainer.points.load.load_bed import CLUSTER, COPY, SCHEMA, Bed, MemoryHistory, MemoryOracle
from tests.drainer.points.restore.image_world import IMAGE, options, restore, world
from tests.drainer.support import recorded
from tests.fakes.tidb_sql import tidb_sql
from tests.missing import without
from tidb_binlog import ddl_job, tso
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.errors import ConfigError, Rejected

pytestmark = pytest.mark.integration
COLUMNS = [("id", "BIGINT"), ("name", "VARCHAR(40)"), ("price", "DECIMAL(10,2)")]
ROWS = [(number, f"Name {number}", Decimal(number) / 4) for number in range(1, 101)]


class Garbage:
    """Of an upstream that takes no holds."""

    async def hold(self, name: str, ts: int, ttl_s: int) -> int:
        raise Rejected("this PD is too old")


@dataclass
class Mirror:
    """What a stream has left in a warehouse, written as any program may."""

    settings: DrainerConfig

    def write(self, version: TableVersion, rows: pa.Table, position: int = 0) -> None:
        lake = lake_of(self.settings, CLUSTER)
        lake.open()
        name, app = plain_name(version.downstream), app_of(self.settings, CLUSTER)
        is_new = lake.load(name) is None
        if is_new:
            lake.create(name, schema_of(version), "")
        if isinstance(lake, IcebergLake):
            uri = f"sqlite:///{self.settings.warehouse}/catalog.db"
            with contextlib.closing(load_catalog("lake", type="sql", uri=uri)) as catalog:
                table = catalog.load_table(name)
                write = table.append if is_new else table.overwrite
                write(rows, snapshot_properties={app: str(position)})
        else:
            mark = CommitProperties(app_transactions=[Transaction(app, position)])
            place = Path(self.settings.warehouse, *name)
            write_deltalake(str(place), rows, mode="overwrite", commit_properties=mark)
        lake.close()

    def reach(self, commit_ts: int, *tables: TableVersion) -> None:
        position = LakePosition(self.settings, CLUSTER, MIRROR)
        position.store_tables(frozenset(plain_name(table.downstream) for table in tables))
        position.store(Checkpoint(commit_ts, True, 0))


@dataclass
class Shop:
    """Tables `t` and `u` of a database; of these a mirror, both of the same rows at first."""

    bed: Bed
    mirror: Mirror
    tables: dict[str, TableVersion]

    async def compared(self, **more: Any) -> Verification:
        given = {"upstream": self.bed.upstream, "workers": 2, "at_rest": True, **more}
        return await MirrorVerification(self.mirror.settings, **given).run()

    async def table(self, **more: Any) -> TableResult:
        return next(each for each in (await self.compared(**more)).tables if each.downstream == (COPY, "t"))

    def write(self, name: str, rows: Iterable[tuple[Any, ...]], position: int = 0) -> None:
        schema = schema_of(self.tables[name])
        columns = dict(zip(schema.names, zip(*[(*row, None) for row in rows], strict=True), strict=True))
        self.mirror.write(self.tables[name], pa.table(columns, schema=schema), position)


@pytest.fixture(params=["delta", "iceberg"])
def empty(request: pytest.FixtureRequest, mariadb: MariaDbServer, tmp_path: Path) -> Iterator[Shop]:
    """Nothing is mirrored yet."""
    bed = Bed(mariadb)
    bed.options |= {"db_type": request.param, "warehouse": str(tmp_path / "lake"), "node_id": "mirrors"}
    tables = {}
    for name in ("t", "u"):
        info = bed.publish(name, COLUMNS, ("id",))
        tables[name] = TableVersion(info, SCHEMA, name, 1, (COPY, name))
        bed.run(
            f"CREATE TABLE {SCHEMA}.{name} (id BIGINT PRIMARY KEY, name VARCHAR(40), price DECIMAL(10,2))"
        )
    yield Shop(bed, Mirror(bed.settings()), tables)
    bed.clean()


@pytest.fixture
def shop(empty: Shop) -> Shop:
    for name, version in empty.tables.items():
        empty.bed.run(
            f"INSERT INTO {SCHEMA}.{name} SELECT seq, CONCAT('Name ', seq), seq / 4 FROM mysql.seq_1_to_100"
        )
        empty.write(name, reversed(ROWS))
        assert version.downstream == (COPY, name)
    empty.mirror.reach(500, *empty.tables.values())
    return empty


async def test_a_mirror_that_is_right(shop: Shop) -> None:
    result = await shop.compared()
    assert [(each.state, each.why, each.rows, each.downstream_rows) for each in result.tables] == [
        (State.EQUAL, "", 100, 100),
        (State.EQUAL, "", 100, 100),
    ]
    assert (result.ts, result.notes) == (500, ())
    assert {each.how for each in result.tables} == {How.VALUES}
    chosen = await shop.compared(selected=[TablePattern.of("*.t")])
    assert [each.downstream for each in chosen.tables] == [(COPY, "t")]


async def test_rows_that_differ(shop: Shop) -> None:
    told: list[Kind] = []
    shop.write("t", [*ROWS[:40], (41, "other", Decimal("10.25")), *ROWS[42:], (101, None, None)])
    table = await shop.table(on_difference=lambda _, difference: told.append(difference.kind))
    assert (table.state, table.missing, table.extra, table.changed) == (State.DIFFERS, 1, 1, 1)
    assert {
        each.kind: (each.key, each.columns, each.upstream, each.downstream) for each in table.differences
    } == {
        Kind.CHANGED: (
            (b"41",),
            ("name",),
            (b"41", b"'Name 41'", b"10.25"),
            (b"41", b"'other'", b"10.25"),
        ),
        Kind.MISSING: ((b"42",), (), (b"42", b"'Name 42'", b"10.50"), None),
        Kind.EXTRA: ((b"101",), (), None, (b"101", b"NULL", b"NULL")),
    }
    assert sorted(told) == sorted(each.kind for each in table.differences)


async def test_the_command(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    """Its file has any downstream; what it says and ends with is that of any comparison."""
    settings = shop.mirror.settings
    place = f"{settings.db_type}://{settings.warehouse}"
    argv = ["verify", "-drainer-config", "drainer.toml", "-mirror", place, "-at-rest", "-output", "json"]
    call = command_line.parse(argv, {})
    assert isinstance(call, Call)
    job = verify.Job(call, replace(settings, db_type="file", warehouse=""), verify.ProgressLine(quiet=True))
    assert verify.code(await job.with_mirror(shop.bed.upstream)) == DONE
    assert json.loads(capsys.readouterr().out)["downstream"] == f"mirror {settings.warehouse}"
    shop.write("u", ROWS[1:])
    assert verify.code(await job.with_mirror(shop.bed.upstream)) == DIFFERS


async def test_a_table_that_is_not_in_the_lake(empty: Shop) -> None:
    """It has had no row: as long as that is so upstream, too, both are equal."""
    empty.write("u", ROWS[:1])
    empty.mirror.reach(500, empty.tables["u"])
    empty.bed.run(f"INSERT INTO {SCHEMA}.u VALUES (1, 'Name 1', 0.25)")
    assert (await empty.compared()).state is State.EQUAL
    empty.bed.run(f"INSERT INTO {SCHEMA}.t VALUES (1, 'x', 1)")
    table = await empty.table()
    assert (table.state, table.missing) == (State.DIFFERS, 1)


async def test_columns_and_tables_that_only_one_side_has(shop: Shop) -> None:
    other = replace(shop.tables["t"], target=(COPY, "a b"))
    shop.mirror.write(other, schema_of(other).empty_table())
    shop.mirror.reach(500, *shop.tables.values(), other)
    assert (await shop.compared()).notes == (f"the warehouse has {COPY}.a~20~b besides: not compared",)
    statement = f"ALTER TABLE {SCHEMA}.t ADD doubled DECIMAL(12,2) AS (price * 2)"
    info = shop.tables["t"].info
    doubled = replace(info.columns[2], id=9, name="doubled", offset=3, generated="`price` * 2")
    altered = replace(info, columns=(*info.columns, doubled)).to_json()
    shop.bed.job(ActionType.ADD_COLUMN, table_id=info.id, table_name="t", table_info=altered, query=statement)
    shop.bed.run(statement)
    assert (await shop.table()).state is State.EQUAL
    shop.bed.run(f"ALTER TABLE {SCHEMA}.t ADD more INT")
    table = await shop.table()
    assert (table.state, table.why) == (State.DIFFERS, "downstream has no column more")


async def test_what_another_program_wrote_keeps_to_its_table(shop: Shop) -> None:
    schema = schema_of(shop.tables["t"])
    row = {"id": [1], "name": ["x"], "price": [Decimal(1)], INVALID: ["no JSON"]}
    shop.mirror.write(shop.tables["t"], pa.table(row, schema=schema))
    of_t, of_u = (await shop.compared()).tables
    assert (of_t.state, of_u.state) == (State.NOT_COMPARABLE, State.EQUAL)
    assert of_t.why.startswith(f"{COPY}.t in the lake is no mirror of its table: JSONDecodeError")


async def test_a_warehouse_without_a_mirror(empty: Shop) -> None:
    with pytest.raises(ConfigError, match=f"has no mirror of the upstream with the cluster id {CLUSTER}"):
        await empty.compared()
    empty.mirror.reach(0)
    with pytest.raises(ConfigError, match="has only begun"):
        await empty.compared()
    for name in ("one", "two"):
        Mirror(replace(empty.mirror.settings, node_id=name)).reach(500)
    with pytest.raises(ConfigError, match="has mirrors of mirrors, one, two"):
        await empty.compared()


async def test_a_package_that_is_missing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    form = shop.mirror.settings.db_type
    without(monkeypatch, {"delta": "deltalake", "iceberg": "pyiceberg.catalog"}[form])
    with pytest.raises(ConfigError, match="needs ") as raised:
        await shop.compared()
    assert raised.value.hint == f"pip install 'tidb-binlog[{form}]'"


async def test_another_upstream_has_to_stand_still(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="is no TiDB") as raised:
        await shop.compared(at_rest=False)
    assert "-at-rest" in raised.value.hint


async def test_a_tidb_is_read_where_the_mirror_is(empty: Shop) -> None:
    """Also by a table that is ahead of the stream's position, as after a stream that died within a batch."""
    bed = empty.bed
    first, second, third = [await bed.oracle.timestamp() for _ in range(3)]
    for name in ("t", "u"):
        bed.run(f"ALTER TABLE {SCHEMA}.{name} ADD SYSTEM VERSIONING")
    for ts, statement in ((first, "INSERT INTO {} VALUES (1, 'a', 1)"), (second, "UPDATE {} SET name='b'")):
        when = f"SET timestamp={tso.physical_ms(ts) / 1000 - 0.0005:.4f}"
        bed.run(when, *(statement.format(f"{SCHEMA}.{name}") for name in ("t", "u")))
    bed.run(f"SET timestamp={tso.physical_ms(third) / 1000 - 0.0005:.4f}", f"DELETE FROM {SCHEMA}.t")
    upstream = SimpleNamespace(**{**vars(bed.upstream), "garbage": Garbage()})
    with tidb_sql(bed.server) as target:
        at = {"from_host": target.host, "from_port": target.port, "from_outcome_table": ""}
        empty.mirror.settings = replace(empty.mirror.settings, **at)
        empty.write("t", [(1, "a", Decimal(1))], first)
        empty.write("u", [(1, "a", Decimal(1))], first)
        empty.mirror.reach(first, *empty.tables.values())
        result = await empty.compared(at_rest=False, upstream=upstream)
        assert [(each.state, each.why) for each in result.tables] == [(State.EQUAL, "")] * 2
        assert (result.ts, result.notes) == (first, ())
        empty.write("u", [(1, "b", Decimal(1))], second)
        result = await empty.compared(at_rest=False, upstream=upstream)
        assert [(each.state, each.why) for each in result.tables] == [(State.EQUAL, "")] * 2
        assert (result.ts, [note[:29] for note in result.notes]) == (first, ["the stream is within a batch:"])
        empty.mirror.reach(second, *empty.tables.values())
        result = await empty.compared(at_rest=False, upstream=upstream)
        (table,) = [each for each in result.tables if each.wrong]
        assert [each.columns for each in table.differences] == [("name",)]


def mirrored(version: TableVersion, images: Iterable[bytes]) -> pa.Table:
    """As the stream makes them."""
    schema = schema_of(version)
    image = pa.struct([field for field in schema if field.name != INVALID])
    side = ImageSide("after", 3, pa.schema([("after", image)]), version)
    invalid: dict[int, dict[str, Any]] = {}
    rows: list[Any] = [(version, INSERT, None, data) for data in images]
    columns = side.array(rows, invalid).flatten()
    notes = [
        json.dumps({name.removeprefix("after."): text for name, text in invalid[at].items()})
        if at in invalid
        else None
        for at in range(len(rows))
    ]
    return pa.table([*columns, pa.array(notes, pa.string())], schema=schema)


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_values_of_all_types(mariadb: MariaDbServer, target: Target, tmp_path: Path, form: str) -> None:
    """Those of a recorded TiDB, put into a database by a restore, and into a mirror as the stream does it."""
    manifest = world(tmp_path, "types", 0.8)
    assert restore(options(target, tmp_path, archive="")).is_equal
    history = MemoryHistory()
    history.jobs = [
        job for job in recorded.jobs("types") if ddl_job.parse(job).finished_ts <= manifest.commit_ts
    ]
    upstream: Any = SimpleNamespace(
        cluster_id=CLUSTER, history=history, oracle=MemoryOracle(), garbage=Garbage()
    )
    settings = DrainerConfig(
        db_type=form, warehouse=str(tmp_path / "lake"), node_id="m", ignore_schemas="", from_host="127.0.0.1"
    )
    mirror, versions = Mirror(settings), []
    for table in manifest.tables:
        reader = TableReader(str(tmp_path / IMAGE), table)
        rows = mirrored(
            reader.version, (image for group in reader.groups() for image in reader.images(group))
        )
        mirror.write(reader.version, rows)
        versions.append(reader.version)
    mirror.reach(manifest.commit_ts, *versions)
    with tidb_sql(mariadb) as tidb:
        account = {f"from_{key}": getattr(tidb, key) for key in ("host", "port", "user", "password")}
        result = asyncio.run(MirrorVerification(replace(settings, **account), upstream).run())
    assert [(each.downstream, each.why, each.differences) for each in result.tables if each.wrong] == []
    assert {each.state for each in result.tables} == {State.EQUAL}
    assert result.rows == sum(table.rows for table in manifest.tables)

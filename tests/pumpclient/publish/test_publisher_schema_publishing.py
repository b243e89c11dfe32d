"""Catalogue, definitions and rows by name; in memory, and several publishers at once on a real etcd."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

from pumpclient import (
    InvalidBinlog,
    InvalidDefinition,
    InvalidValue,
    Publisher,
    SchemaChanged,
    SyncPublisher,
    TransactionState,
    column,
    create_table_job,
)
from pumpclient.publish.row_values import row_values
from pumpclient.schema.table_definition import column_named, create_text, field_type, table, without_column
from pumpclient.testing import MemoryCluster
from tests.cases import case
from tests.pumpclient.support.memory_cluster import ORDERS, shop
from tests.rig.workload import kinds
from tidb_binlog import binlog
from tidb_binlog import table_info as ti
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import Rejected
from tidb_binlog.etcd.client import EtcdClient
from tidb_binlog.rowcodec.plan import compile_table
from tidb_binlog.table_info import TableInfo
from tidb_binlog.upstream.standalone import GRACE_S, CatalogChange, StandaloneUpstream
from tidb_binlog.wire.binlog_pb2 import PrewriteValue


def jobs(cluster: MemoryCluster) -> list[dict[str, Any]]:
    return [json.loads(job) for job in cluster.upstream.job_list]


def queries(cluster: MemoryCluster) -> list[str]:
    payloads = [binlog.parse(payload) for payload in cluster.pumps["a"].payloads]
    return [payload.ddl_query.decode() for payload in payloads if payload.tp == binlog.PREWRITE]


def test_types_are_those_that_tidb_writes() -> None:
    """The playground's table of kinds is compared with recorded jobs; flags of keys aside."""
    for kind in [kind for _, kind in kinds.ALL_KINDS]:
        with case(kind):
            made = column("c", kind.sql).type.to_json()
            wanted = kind.field_type(0)
            assert {name: made[name] for name in made} == {name: wanted[name] for name in made}


@pytest.mark.parametrize(
    ("text", "tp", "flen", "decimal"),
    [
        ("integer", ti.LONG, 11, 0),
        ("Boolean", ti.TINY, 1, 0),
        ("numeric(8, 3)", ti.DECIMAL, 8, 3),
        ("decimal", ti.DECIMAL, 10, 0),
        ("double precision", ti.DOUBLE, 22, -1),
        ("varchar( 40 )", ti.VARCHAR, 40, 0),
        ("char", ti.STRING, 1, 0),
        ("longtext", ti.LONG_BLOB, 4294967295, 0),
        ("datetime", ti.DATETIME, 19, 0),
        ("timestamp(6)", ti.TIMESTAMP, 26, 6),
        ("enum('it''s','b')", ti.ENUM, 4, 0),
    ],
)
def test_words_of_types(text: str, tp: int, flen: int, decimal: int) -> None:
    found = field_type(text)
    assert (found.tp, found.flen, found.decimal) == (tp, flen, decimal)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "varchar",
        "varchar(x)",
        "geometry",
        "text unsigned",
        "enum()",
        "enum(a)",
        "int collate utf8mb4_bin",
        "char(3) collate latin1_bin",
        "int)",
        "int; drop table t",
    ],
)
def test_words_that_are_no_type(text: str) -> None:
    with pytest.raises(InvalidDefinition):
        column("c", text)


def test_keys_decide_how_a_table_stores_its_rows() -> None:
    columns = [column("a", "int"), column("b", "varchar(9)"), column("year", "year")]
    assert table("t", columns, ["a"]).pk_is_handle
    assert table("t", columns, ["b"]).is_common_handle
    assert table("t", columns, ["year"]).is_common_handle
    both = table("t", columns, ["b", "a"], [["year", "b"]])
    assert [index.name for index in both.unique_indexes] == ["PRIMARY", "year_b"]
    assert both.columns[0].type.not_null
    none = table("t", columns)
    assert (none.pk_is_handle, none.is_common_handle, none.indexes) == (False, False, ())
    assert create_text(both, columns, ["b", "a"]) == (
        "CREATE TABLE `t` (`a` INT, `b` VARCHAR(9), `year` YEAR, PRIMARY KEY (`b`, `a`),"
        " UNIQUE KEY `year_b` (`year`, `b`))"
    )
    assert (
        column("a`b", "varchar(9)", nullable=False, default="it's \\").text()
        == "`a``b` VARCHAR(9) NOT NULL DEFAULT 'it''s \\\\'"
    )
    shrunk = without_column(table("t", columns, unique=[["b"]]), "a")
    assert [(one.name, one.offset) for one in shrunk.columns] == [("b", 0), ("year", 1)]
    assert shrunk.indexes[0].columns[0].offset == 0
    for wrong in (
        lambda: without_column(both, "a"),
        lambda: table("t", columns, ["x"]),
        lambda: table("t", []),
        lambda: table("t", [*columns, column("A", "int")]),
    ):
        with pytest.raises(InvalidDefinition):
            wrong()


class Size(Enum):
    small = 1
    big = 2


def test_values_of_drivers_and_mappers() -> None:
    types = {
        "i": "bigint",
        "f": "double",
        "d": "decimal(20,6)",
        "s": "varchar(40)",
        "x": "varbinary(20)",
        "day": "date",
        "at": "datetime(6)",
        "stamp": "timestamp",
        "for": "time(6)",
        "size": "enum('small','big')",
        "tags": "set('a','b')",
        "data": "json",
        "yes": "bool",
        "none": "text",
    }
    info = table("t", [column(name, text) for name, text in types.items()])
    east = timezone(timedelta(hours=2))
    row = row_values(
        info,
        {
            "I": 7,
            "f": 0.5,
            "d": Decimal("1.25"),
            "s": UUID(int=5),
            "x": bytearray(b"\0\1"),
            "day": date(2024, 2, 29),
            "at": datetime(2024, 2, 29, 12, 0, 0, 250),
            "stamp": datetime(2024, 2, 29, 1, 0, tzinfo=east),
            "for": -timedelta(hours=30, microseconds=1),
            "size": Size.big,
            "tags": {"b", "a"},
            "data": {"k": [1]},
            "yes": True,
        },
    )
    decoded = compile_table(info).decode_insert(_encoded(info, row))
    assert decoded == (
        7,
        0.5,
        Decimal("1.25") if isinstance(decoded[2], Decimal) else "1.250000",
        UUID(int=5).hex,
        b"\0\1",
        "2024-02-29",
        "2024-02-29 12:00:00.000250",
        "2024-02-28 23:00:00",
        "-30:00:00.000001",
        "big",
        "a,b",
        '{"k": [1]}',
        1,
        None,
    )
    assert row_values(info, {"for": time(1, 2, 3)})["for"] == "01:02:03"
    assert row_values(info, {"stamp": datetime(2024, 1, 1, tzinfo=UTC)})["stamp"] == "2024-01-01 00:00:00"
    with pytest.raises(InvalidDefinition, match=r"no column colour \(it has .*stamp, .*add_column"):
        row_values(info, {"colour": "red"})
    with pytest.raises(InvalidDefinition, match=r"column s .* cannot hold a object") as caught:
        row_values(info, {"s": object()})
    assert "0x" not in str(caught.value)


def _encoded(info: TableInfo, row: dict[str, Any]) -> bytes:
    from tidb_binlog.rowcodec.encoder import RowEncoder

    return RowEncoder(info).insert(row, rowid=1)


async def test_a_publisher_allots_ids_and_versions() -> None:
    cluster, publisher = await shop()
    async with publisher:
        assert await publisher.create_database("SHOP", if_not_exists=True) == 0
        assert (
            await publisher.create_table("shop.Orders", ORDERS, primary_key=["id"], if_not_exists=True) == 0
        )
        commit_ts = await publisher.add_column("shop.orders", column("size", "int", default="3"))
        assert publisher.schema_version == 3
    described = jobs(cluster)
    assert [job["binlog"]["SchemaVersion"] for job in described] == [1, 2, 3]
    assert [job["binlog"]["FinishedTS"] for job in described][-1] == commit_ts
    ids = [job["id"] for job in described]
    tables = [job["binlog"]["TableInfo"]["id"] for job in described if job["binlog"]["TableInfo"]]
    assert ids == sorted({*ids})
    assert len({*ids, tables[0], described[0]["schema_id"]}) == 5
    assert queries(cluster) == [
        "CREATE DATABASE `shop`;",
        "CREATE TABLE `orders` (`id` BIGINT NOT NULL, `item` VARCHAR(40) DEFAULT 'pen', PRIMARY KEY (`id`));",
        "ALTER TABLE `orders` ADD COLUMN `size` INT DEFAULT '3';",
    ]


async def test_what_the_catalogue_does_not_allow() -> None:
    cluster, publisher = await shop()
    async with publisher:
        wrong = [
            publisher.create_database("shop"),
            publisher.create_database("a.b"),
            publisher.create_table("shop.orders", ORDERS),
            publisher.create_table("shop.orders", ORDERS[:1], primary_key=["id"], if_not_exists=True),
            publisher.create_table("nowhere.t", ORDERS),
            publisher.create_table("t", ORDERS),
            publisher.drop_table("shop.nothing"),
            publisher.add_column("shop.orders", column("item", "int")),
            publisher.add_column("shop.orders", column("n", "int", nullable=False)),
            publisher.drop_column("shop.orders", "id"),
            publisher.drop_index("shop.orders", "nothing"),
            publisher.rename_table("shop.orders", "orders"),
        ]
        for change in wrong:
            with pytest.raises(InvalidDefinition):
                await change
    assert len(jobs(cluster)) == 2


@pytest.mark.parametrize(
    ("sql_type", "default"),
    [
        ("int", "abc"),
        ("tinyint", "300"),
        ("varchar(2)", "xxx"),
        ("date", "2024-13-45"),
        ("enum('a')", "b"),
        ("decimal(3,1)", "1000"),
        ("time", "99:99:99"),
        ("timestamp", "1960-01-01"),
        ("json", "{"),
    ],
)
def test_a_default_that_the_column_cannot_hold_is_no_definition(sql_type: str, default: str) -> None:
    """Rows without the column would be such that nobody can read."""
    with pytest.raises(InvalidDefinition, match="column c cannot have this default"):
        column("c", sql_type, default=default)


async def test_ids_of_columns_are_not_used_twice() -> None:
    _, publisher = await shop()
    async with publisher:
        await publisher.add_column("shop.orders", column("x", "int"))
        await publisher.drop_column("shop.orders", "x")
        await publisher.add_column("shop.orders", column("x", "text"))
        info = publisher.catalog.table("shop.orders").info
        assert column_named(info, "x").id == 4


async def test_a_value_that_does_not_fit_is_said_by_a_public_error_and_leaves_no_row() -> None:
    """Whether it is found out as the value is read or as it is written."""
    cluster, publisher = await shop()
    async with publisher:
        await publisher.create_table(
            "shop.docs", [column("id", "int", nullable=False), column("doc", "json")], primary_key=["id"]
        )
        async with publisher.transaction() as txn:
            good = {"id": 1, "doc": "[1]"}
            for bad in ({"id": 2, "doc": "{"}, {"id": 2, "doc": "1e400"}, {"id": None, "doc": "1"}):
                with pytest.raises(InvalidValue, match=r"column (doc|id) of table docs"):
                    txn.insert("shop.docs", bad)
                with pytest.raises(InvalidValue):
                    txn.update("shop.docs", good, bad)
                with pytest.raises(InvalidValue):
                    txn.delete("shop.docs", bad)
            txn.insert("shop.docs", good)
    payloads = [binlog.parse(payload) for payload in cluster.pumps["a"].payloads]
    (message,) = [payload for payload in payloads if payload.prewrite_value]
    (mutation,) = PrewriteValue.FromString(message.prewrite_value).mutations
    assert len(mutation.sequence) == 1


async def test_rows_by_name() -> None:
    cluster, publisher = await shop()
    async with publisher:
        async with publisher.transaction() as txn:
            txn.insert("shop.orders", {"id": 1})
            txn.update("SHOP.Orders", {"id": 1, "item": "pen"}, {"id": 1, "item": None})
            txn.delete("shop.orders", {"id": 1, "item": None})
        async with publisher.transaction() as other:
            for wrong in (
                lambda: other.insert("shop.nothing", {"id": 1}),
                lambda: other.insert("shop.orders", {"id": 1, "colour": "red"}),
                lambda: other.insert("shop.orders", {"item": "no key"}),
                lambda: other.insert("shop.orders", {"id": None}),
                lambda: other.insert("shop.orders", {"id": "seven"}),
                lambda: other.insert("shop.orders", b"bytes"),
                lambda: other.insert(5, {"id": 1}),
                lambda: other.update("shop.orders", {"id": 1}),
            ):
                with pytest.raises(Rejected) as caught:
                    wrong()
                assert "seven" not in str(caught.value)
        async with publisher.transaction(schema_version=1) as old:
            with pytest.raises(InvalidBinlog, match="version of its own"):
                old.insert("shop.orders", {"id": 1})
        info = publisher.catalog.table("shop.orders").info
    payloads = [binlog.parse(payload) for payload in cluster.pumps["a"].payloads]
    (message,) = [payload for payload in payloads if payload.prewrite_value]
    value = PrewriteValue.FromString(message.prewrite_value)
    (mutation,) = value.mutations
    assert (value.schema_version, mutation.table_id, list(mutation.sequence)) == (2, info.id, [0, 1, 4])
    plan = compile_table(info)
    assert plan.decode_insert(mutation.inserted_rows[0]) == (1, "pen")
    assert plan.decode_update(mutation.updated_rows[0]) == ((1, "pen"), (1, None))


async def test_a_value_that_the_row_before_has_is_not_replaced_by_a_default() -> None:
    _, publisher = await shop()
    async with publisher, publisher.transaction() as txn:
        with pytest.raises(InvalidDefinition, match="lacks item, which that before has"):
            txn.update("shop.orders", {"id": 1, "item": "cap"}, {"ID": 2})
        txn.update("shop.orders", {"id": 1}, {"ID": 2, "item": "cap"})


@pytest.mark.parametrize("prepared", [False, True])
async def test_a_table_altered_under_a_transaction_refuses_it(prepared: bool) -> None:
    """And one altered beside it does not."""

    class Answers:
        def name(self) -> str:
            return "app"

        def committed(self, start_ts: int) -> bool:
            raise AssertionError

        def purge(self, below_ts: int) -> None:
            pass

    cluster = MemoryCluster(["a"])
    one, other = await cluster.publisher(Answers()), await cluster.publisher()
    async with one, other:
        await other.create_database("shop")
        await other.create_table("shop.orders", ORDERS, primary_key=["id"])
        await other.create_table("shop.beside", ORDERS, primary_key=["id"])
        await one.refresh()
        for table_name, refused in (("shop.beside", False), ("shop.orders", True)):
            transaction = one.transaction()
            await transaction.begin()
            transaction.insert("shop.orders", {"id": 1})
            await other.add_column(table_name, column("size", "int"))
            if refused:
                with pytest.raises(SchemaChanged):
                    await (transaction.prepare() if prepared else transaction.commit())
                assert transaction.state is TransactionState.ROLLED_BACK
            else:
                if prepared:
                    await transaction.prepare()
                await transaction.commit()
        async with one.transaction() as again:
            again.insert("shop.orders", {"id": 1, "size": 3})
        await one.flush()
    assert [tp for tp, _, _ in cluster.pumps["a"].transactions()].count(binlog.ROLLBACK) == 1


async def test_the_first_catalogue_is_founded_above_the_history() -> None:
    cluster = MemoryCluster(["a"])
    info = table("t", ORDERS, ["id"])
    cluster.upstream.job_list.append(create_table_job(70, 90, "old", info, schema_version=33))
    async with await cluster.publisher() as publisher:
        assert publisher.schema_version == 33
        await publisher.create_database("shop")
    assert (jobs(cluster)[-1]["schema_id"], jobs(cluster)[-1]["binlog"]["SchemaVersion"]) == (91, 34)


@pytest.mark.integration
async def test_several_publishers_change_the_schema_at_once(etcd_clean: str) -> None:
    """Each change has an id and a version of its own, in the order of their commit_ts."""
    cluster = MemoryCluster(["a"])
    publishers = []
    for _ in range(3):
        upstream = StandaloneUpstream(await EtcdClient.connect(etcd_clean), 1, ManualClock(), GRACE_S)
        client = cluster.client()
        await client.start()
        publishers.append(Publisher(client, upstream, clock=ManualClock()))
        await publishers[-1].refresh()
    await publishers[0].create_database("shop")

    async def change(number: int) -> list[int]:
        publisher = publishers[number]
        name = f"shop.t{number}"
        await publisher.refresh()
        return [
            await publisher.create_table(name, ORDERS, primary_key=["id"]),
            await publisher.add_column(name, column("size", "int")),
            await publisher.truncate_table(name),
        ]

    drawn = await asyncio.gather(*map(change, range(3)))
    found = [json.loads(job) async for page in publishers[0]._upstream.history.pages() for job in page]
    versions = [(job["binlog"]["SchemaVersion"], job["binlog"]["FinishedTS"]) for job in found]
    assert [version for version, _ in versions] == list(range(1, 11))
    assert [finished for _, finished in versions] == sorted(finished for _, finished in versions)
    assert {finished for _, finished in versions[1:]} == {ts for each in drawn for ts in each}
    used = [job["id"] for job in found]
    used += [job["binlog"]["TableInfo"]["id"] for job in found if job["type"] in (3, 11)]
    assert len(set(used)) == len(used) == 16
    for publisher in publishers:
        await publisher.close(drain_s=0.0)


async def test_a_change_under_way_at_a_fence_is_made_anew_at_a_later_timestamp(etcd_clean: str) -> None:
    """A load's timestamp, drawn before the fence, then has everything at or below it in the history."""
    upstream = StandaloneUpstream(await EtcdClient.connect(etcd_clean), 1, ManualClock(), GRACE_S)
    cluster = MemoryCluster(["a"])
    client = cluster.client()
    await client.start()
    publisher = Publisher(client, upstream, clock=ManualClock())
    await upstream.catalog.fence()  # nothing was founded yet
    await publisher.refresh()
    commit, fenced_ts = upstream.catalog.commit, 0

    async def interrupted(start_ts: int, change: CatalogChange) -> int:
        nonlocal fenced_ts
        if not fenced_ts:
            fenced_ts = await upstream.oracle.timestamp()
            await upstream.catalog.fence()
        return await commit(start_ts, change)

    upstream.catalog.commit = interrupted  # type: ignore[method-assign]
    commit_ts = await publisher.create_database("shop")
    assert commit_ts > fenced_ts > 0
    prewrites = [binlog.parse(one) for one in cluster.pumps["a"].payloads]
    assert [one.tp for one in prewrites].count(binlog.PREWRITE) == 2, "the first one is rolled back"
    await publisher.close(drain_s=0.0)


def test_synchronous_face() -> None:
    cluster = MemoryCluster(["a"])
    with SyncPublisher(cluster.publisher) as publisher:
        publisher.create_database("shop")
        publisher.create_table("shop.orders", ORDERS, primary_key=["id"])
        with publisher.transaction() as txn:
            txn.insert("shop.orders", {"id": 1})
        assert txn.commit_ts > txn.start_ts
        with pytest.raises(RuntimeError), publisher.transaction() as lost:  # noqa: PT012
            lost.insert("shop.orders", {"id": 2})
            raise RuntimeError
        assert lost.state is TransactionState.ROLLED_BACK
        assert publisher.flush(10.0)
    publisher.close()
    assert [tp for tp, _, _ in cluster.pumps["a"].transactions()][-2:] == [binlog.PREWRITE, binlog.COMMIT]

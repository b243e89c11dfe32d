"""Which DDL takes long on a server, by its kind, the table's size and what the server says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.ddl.convert import columns
from drainer.ddl.derive.derive import same_names
from drainer.ddl.derive.render import Server
from drainer.ddl.run.facts import DdlFacts
from drainer.ddl.run.plan import Plan
from drainer.ddl.run.runner import DdlRunner
from drainer.ddl.run.takes_long import Beside, why_long
from drainer.mysql.chunks.table_size import TableSize
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.rows.dialect import Dialect
from drainer.txn import Ddl, Tracked
from tests.drainer.ddl.convert.schema import ID, Schema, column
from tests.drainer.support.apply_life import clean, run
from tests.fakes.tidb_sql import tidb_sql
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.table_info import (
    DOUBLE,
    LONG,
    LONGLONG,
    PARTITION_HASH,
    PARTITION_RANGE,
    VARCHAR,
    FieldType,
    Index,
    IndexColumn,
    TableInfo,
)

SPARE: Final = ("spares", "spare_1")
ANY_SIZE: Final = Beside(0, SPARE)
V = column(2, FieldType(LONG))
W = column(3, FieldType(LONG), "w", 2)


def text(length: int) -> FieldType:
    return FieldType(VARCHAR, 0, length, charset="utf8mb4", collate="utf8mb4_bin")


def table(*parts: Any, indexes: tuple[Index, ...] = (), name: str = "t", **more: Any) -> Tracked:
    number = {"t": 1, "u": 9}[name]
    info = TableInfo(number, name, (ID, *parts), indexes, pk_is_handle=True)
    return Tracked("d", name, {**info.to_json(), **more})


def parts(kind: int, *bounds: str) -> dict[str, Any]:
    listed = [
        {"id": 50 + number, "name": {"O": f"p{number}", "L": f"p{number}"}, "less_than": [bound]}
        if bound
        else {"id": 50 + number, "name": {"O": f"p{number}", "L": f"p{number}"}}
        for number, bound in enumerate(bounds)
    ]
    partition = {"type": kind, "expr": "`id`", "enable": True, "definitions": listed, "num": len(listed)}
    return {"partition": partition}


def ddl(action: int, before: Tracked, *after: Tracked, more: tuple[Tracked, ...] = ()) -> Ddl:
    changed = (before, *more)
    names = tuple(dict.fromkeys((one.schema, one.name) for one in (*changed, *after)))
    return Ddl(100, 7, action, "d", "ALTER TABLE t ..", names, 5, before=changed, after=after)


KEYED = Index(1, "k", (IndexColumn("v", 1),), unique=False, primary=False)
RANGE = parts(PARTITION_RANGE, "10", "20")
EXCHANGED = {"partition": {**RANGE["partition"], "definitions": [
    {**RANGE["partition"]["definitions"][0], "id": 9}, RANGE["partition"]["definitions"][1],
]}}  # fmt: skip
KINDS: Final[dict[str, tuple[Ddl, str]]] = {
    "a column comes": (ddl(ActionType.ADD_COLUMN, table(V), table(V, W)), ""),
    "a column becomes longer": (
        ddl(ActionType.MODIFY_COLUMN, table(column(2, text(20))), table(column(2, text(40)))),
        "",
    ),
    "a comment": (ddl(ActionType.MODIFY_TABLE_COMMENT, table(V), table(V, comment="c")), ""),
    "a key goes": (ddl(ActionType.DROP_INDEX, table(V, indexes=(KEYED,)), table(V)), ""),
    "a key comes": (ddl(ActionType.ADD_INDEX, table(V), table(V, indexes=(KEYED,))), "add index"),
    "a column and a key come": (
        ddl(ActionType.MULTI_SCHEMA_CHANGE, table(V), table(V, W, indexes=(KEYED,))),
        "multi-schema change",
    ),
    "a column becomes wider": (
        ddl(ActionType.MODIFY_COLUMN, table(V), table(column(2, FieldType(LONGLONG)))),
        "modify column",
    ),
    "values are converted": (
        ddl(ActionType.MODIFY_COLUMN, table(column(2, FieldType(DOUBLE))), table(column(4, text(20)))),
        "column v from double to varchar(20)",
    ),
    "emptied": (ddl(ActionType.TRUNCATE_TABLE, table(V), table(V)), ""),
    "dropped": (ddl(ActionType.DROP_TABLE, table(V)), ""),
    "renamed": (ddl(ActionType.RENAME_TABLE, table(V), replace(table(V), name="t2")), ""),
    "a partition comes": (
        ddl(ActionType.ADD_TABLE_PARTITION, table(V, **parts(PARTITION_RANGE, "10")), table(V, **RANGE)),
        "",
    ),
    "a partition goes": (
        ddl(ActionType.DROP_TABLE_PARTITION, table(V, **RANGE), table(V, **parts(PARTITION_RANGE, "10"))),
        "",
    ),
    "partitions come": (
        ddl(ActionType.ALTER_TABLE_PARTITIONING, table(V), table(V, **parts(PARTITION_HASH, "", ""))),
        "alter table partition by",
    ),
    "partitions go": (
        ddl(ActionType.REMOVE_PARTITIONING, table(V, **RANGE), table(V)),
        "remove partitioning",
    ),
    "a partition is exchanged": (
        ddl(
            ActionType.EXCHANGE_TABLE_PARTITION, table(V, **RANGE),
            table(V, **EXCHANGED), replace(table(V, name="u"), name="u"), more=(table(V, name="u"),),
        ),
        "exchange partition",
    ),
}  # fmt: skip


IN_MYSQL: Final = {"a column becomes longer": "modify column"}
"""It copies nothing, but does not call that INSTANT."""


@pytest.fixture
def target(server_not_tidb: Target) -> Iterator[Target]:
    clean(server_not_tidb)
    run(server_not_tidb, "CREATE DATABASE d", f"CREATE DATABASE {SPARE[0]}")
    yield server_not_tidb
    clean(server_not_tidb)


def create(target: Target, *tables: Tracked, job: int = 1) -> None:
    """As they are before, by the runner itself."""
    runner = DdlRunner(target, Schema())
    for one in tables:
        runner.run(Ddl(1, job, ActionType.CREATE_TABLE, "d", "", (("d", one.name),), 1, after=(one,)))
    runner.close()


def why(target: Target, asked: Ddl, beside: Beside = ANY_SIZE, **settings: Any) -> str:
    runner = DdlRunner(target, Schema(), **settings)
    try:
        return runner.takes_long(asked, beside)
    finally:
        runner.close()


@pytest.mark.integration
@pytest.mark.parametrize("name", KINDS)
def test_by_kind(target: Target, name: str) -> None:
    asked, reason = KINDS[name]
    with connect(target) as connection:
        if connection.dialect is Dialect.MYSQL:
            reason = IN_MYSQL.get(name, reason)
    create(target, *asked.before)
    before = run(target, "SHOW CREATE TABLE d.t")
    found = why(target, asked)
    assert bool(found) == bool(reason), found
    assert found.startswith(reason)
    assert run(target, "SHOW CREATE TABLE d.t") == before
    assert run(target, f"SHOW TABLES FROM {SPARE[0]}") == []


@pytest.mark.integration
def test_it_is_a_matter_of_size(target: Target) -> None:
    asked, _ = KINDS["a key comes"]
    create(target, *asked.before)
    values = ",".join(f"({number},1)" for number in range(600))
    run(target, f"INSERT INTO d.t (id, v) VALUES {values}", "ANALYZE TABLE d.t")
    assert why(target, asked, Beside(10_000, SPARE)) == ""
    assert why(target, asked, Beside(-1, SPARE)) == ""
    assert why(target, asked, Beside(300, SPARE)) == "add index, d.t has about 600 rows"


def test_long_rows_count_for_several() -> None:
    assert Beside(1000, SPARE).is_large(TableSize(1000, 0))
    assert not Beside(1000, SPARE).is_large(TableSize(999, 1000 * 8192 - 1))
    assert Beside(1000, SPARE).is_large(TableSize(1, 1000 * 8192))
    assert Beside(0, SPARE).is_large(TableSize(0, 0))
    assert not Beside(-1, SPARE).is_large(TableSize(1 << 40, 0))


@pytest.mark.integration
def test_an_empty_table_that_was_left_is_in_nobodys_way(target: Target) -> None:
    asked, _ = KINDS["a column comes"]
    create(target, *asked.before)
    run(target, f"CREATE TABLE {SPARE[0]}.{SPARE[1]} (w INT)", "SELECT 1")
    assert why(target, asked) == ""
    assert run(target, f"SHOW TABLES FROM {SPARE[0]}") == []


@pytest.mark.integration
def test_where_the_server_cannot_be_asked_it_takes_long(target: Target) -> None:
    asked, _ = KINDS["a column comes"]
    create(target, *asked.before)
    assert why(target, asked, Beside(0, ("not_there", "spare"))).startswith("add column, d.t has about")


@pytest.mark.integration
def test_what_waits_anyway_is_refused_at_once(target: Target) -> None:
    asked, _ = KINDS["values are converted"]
    create(target, *asked.before)
    assert why(target, asked, conversions=columns.WAIT) == ""
    assert why(target, asked, conversions=columns.DOWNSTREAM).startswith("modify column, d.t has")


@pytest.mark.integration
def test_a_table_that_is_not_there_is_refused_at_once(target: Target) -> None:
    assert why(target, KINDS["a key comes"][0]) == ""


@pytest.fixture
def session(target: Target) -> Iterator[Connection]:
    with connect(target) as connection:
        yield connection


@pytest.mark.integration
@pytest.mark.parametrize("name", KINDS)
def test_of_a_tidb(mariadb: MariaDbServer, target: Target, name: str) -> None:
    """It alters definitions alone but for what reads or copies rows, and is not asked."""
    asked, reason = KINDS[name]
    create(target, *asked.before)
    with tidb_sql(mariadb) as shown, connect(shown) as session:
        facts = DdlFacts(session, Server(Dialect.TIDB), same_names)
        found = why_long(facts, asked, Plan(), columns.CONVERT, ANY_SIZE)
    assert bool(found) == bool(reason or asked.action == ActionType.MODIFY_COLUMN), found

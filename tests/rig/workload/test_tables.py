"""Definitions and DDL jobs have the form that TiDB writes: compared with recorded ones, key by key."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from binlog_playground.run import RECORDED
from binlog_playground.scenario import load
from tests.rig.workload import job, kinds, tables
from tidb_binlog.ddl_job import ActionType, DdlJob
from tidb_binlog.table_info import TableInfo


def job_of(
    job_id: int,
    action: int,
    schema_id: int,
    schema: str,
    table_id: int,
    table: str,
    query: str,
    schema_version: int,
) -> DdlJob:
    return DdlJob(
        job_id,
        action,
        schema_id=schema_id,
        schema_name=schema,
        table_id=table_id,
        table_name=table,
        query=query,
        schema_version=schema_version,
    )


def recorded_jobs() -> dict[str, dict[str, Any]]:
    return {(text := json.loads(raw))["query"]: text for _, raw in load(RECORDED).jobs}


def made(described: DdlJob, table: tables.Table | None, start_ts: int) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(job.job_json(described, table, start_ts))
    return document


def orders() -> tables.Table:
    return tables.new_table(
        86,
        "shop",
        "orders",
        (
            ("id", kinds.BIGINT),
            ("cust", kinds.INT),
            ("item", kinds.varchar(30)),
            ("qty", kinds.INT_UNSIGNED),
        ),
        primary=("id",),
        storage=tables.HANDLE,
    ).with_index("k_cust", (("cust", -1),), unique=False)


def test_create_table_job_has_the_recorded_keys_and_column_types() -> None:
    recorded = next(
        text for query, text in recorded_jobs().items() if query.startswith("CREATE TABLE orders")
    )
    described = job_of(89, ActionType.CREATE_TABLE, 84, "shop", 86, "orders", "CREATE TABLE", 44)
    ours = made(described, orders(), recorded["start_ts"])
    assert list(ours) == list(recorded)
    assert list(ours["binlog"]) == list(recorded["binlog"])
    their_table, our_table = recorded["binlog"]["TableInfo"], ours["binlog"]["TableInfo"]
    assert list(our_table) == list(their_table)
    assert our_table["cols"] == [column for column in their_table["cols"] if column["name"]["O"] != "created"]
    assert our_table["index_info"] == their_table["index_info"]


def test_added_column_has_the_recorded_form() -> None:
    recorded = next(text for query, text in recorded_jobs().items() if "ADD COLUMN email" in query)
    theirs = next(c for c in recorded["binlog"]["TableInfo"]["cols"] if c["name"]["O"] == "email")
    table = tables.new_table(
        86,
        "shop",
        "customer",
        (("id", kinds.INT), ("name", kinds.varchar(40)), ("credit", kinds.DECIMAL)),
        primary=("id",),
        storage=tables.HANDLE,
    ).with_column("email", kinds.varchar(60), not_null=False, default="none@example.com", after="name")
    assert table.info()["cols"][2] == theirs
    assert [column["offset"] for column in table.info()["cols"]] == [0, 1, 2, 3]


def test_create_schema_job() -> None:
    recorded = recorded_jobs()["CREATE DATABASE shop"]
    described = job_of(85, ActionType.CREATE_SCHEMA, 84, "shop", 0, "", "CREATE DATABASE shop", 42)
    ours = made(described, None, recorded["start_ts"])
    assert ours["binlog"]["DBInfo"] == recorded["binlog"]["DBInfo"]
    assert ours["schema_state"] == recorded["schema_state"]


@pytest.mark.parametrize("table", tables.standing_tables("demo", itertools.count(1)), ids=lambda t: t.name)
def test_definitions_are_read_back_as_meant(table: tables.Table) -> None:
    info = TableInfo.from_json(table.info())
    assert [column.name for column in info.columns] == list(table.column_names)
    assert info.pk_is_handle == (table.storage == tables.HANDLE)
    assert info.is_common_handle == (table.storage == tables.COMMON)
    if table.primary:
        handle = info.handle_column
        primary = info.primary_index
        names = [handle.name] if handle else [part.name for part in primary.columns] if primary else []
        assert names == list(table.primary)
    unique = {
        index.name: [(part.name, part.length) for part in index.columns] for index in info.unique_indexes
    }
    for index in table.indexes:
        assert unique[index.name] == list(index.parts)


def test_drop_column_is_announced_before_it_is_done() -> None:
    described = job_of(1, ActionType.DROP_COLUMN, 2, "demo", 3, "t", "ALTER TABLE t DROP COLUMN c", 5)
    assert job.binlog_states(described) == (1, 0)
    assert job.binlog_states(job_of(1, ActionType.ADD_COLUMN, 2, "demo", 3, "t", "", 5)) == (5,)
    assert job.binlog_states(job_of(1, ActionType.DROP_TABLE, 2, "demo", 3, "t", "", 5)) == (0,)


def test_create_sql() -> None:
    by_name = {table.name: table for table in tables.standing_tables("demo", itertools.count(1))}
    assert by_name["prefix_key"].create_sql() == (
        "CREATE TABLE `prefix_key` (`id` INT NOT NULL, `code` VARCHAR(20), "
        "`name` VARCHAR(20) COLLATE utf8mb4_general_ci, `amount` INT, "
        "PRIMARY KEY (`id`) /*T![clustered_index] CLUSTERED */, "
        "UNIQUE KEY `code_prefix` (`code`(3)), UNIQUE KEY `name_prefix` (`name`(2)))"
    )
    assert (
        "PRIMARY KEY (`name`) /*T![clustered_index] NONCLUSTERED */"
        in by_name["ignored_case_key"].create_sql()
    )


def test_a_job_about_several_tables_has_them_in_the_order_of_its_statement() -> None:
    described = job_of(1, ActionType.RENAME_TABLES, 2, "demo", 3, "a", "RENAME TABLE a TO c, b TO a", 5)
    one, other = tables.swapped("demo", itertools.count(3))
    document = json.loads(job.job_json(described, None, 7, (one, other)))
    infos = [TableInfo.from_json(info) for info in document["binlog"]["MultipleTableInfos"]]
    assert [(info.id, info.name) for info in infos] == [(3, "swapped_1"), (4, "swapped_2")]
    assert document["binlog"]["TableInfo"] is None

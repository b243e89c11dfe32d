"""Rows of the demo survive TiDB's encoding: what is decoded is shown as what the model expects."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pytest

from pumpclient.publish.transaction import Kind
from tests.rig.workload import kinds, tables
from tests.rig.workload.encoding import RowImages
from tests.rig.workload.model import DELETE, INSERT, UPDATE, Change, Model
from tests.rig.workload.tables import Table
from tests.rig.workload.values import random_value, shown
from tests.rig.workload.workload import Workload
from tidb_binlog.rowcodec.plan import compile_table
from tidb_binlog.table_info import TableInfo

STANDING = tables.standing_tables("demo", itertools.count(1))


def decoded(table: Table, values: Any) -> list[object]:
    return [shown(column.kind, value) for column, value in zip(table.columns, values, strict=True)]


@pytest.mark.parametrize("table", STANDING, ids=lambda table: table.name)
def test_images_of_every_table_decode_to_what_is_expected(table: Table) -> None:
    workload = Workload(Random(1), Model("demo"))
    plan = compile_table(TableInfo.from_json(table.info()))
    images = RowImages()
    for number in range(200):
        old, new = workload.random_row(table), workload.random_row(table)
        ((_, kind, row),) = images.encode([Change(table, INSERT, number, None, old)])
        assert kind is Kind.INSERT
        assert decoded(table, plan.decode_insert(row)) == decoded(table, old)
        ((_, kind, row),) = images.encode([Change(table, DELETE, number, old, None)])
        assert kind is Kind.DELETE
        assert decoded(table, plan.decode_delete(row)) == decoded(table, old)
        same_handle = tuple(
            old[i] if column.name in table.primary else new[i] for i, column in enumerate(table.columns)
        )
        ((_, kind, row),) = images.encode([Change(table, UPDATE, number, old, same_handle)])
        assert kind is Kind.UPDATE
        before, after = plan.decode_update(row)
        assert decoded(table, before) == decoded(table, old)
        assert decoded(table, after) == decoded(table, same_handle)


def test_an_update_of_the_handle_is_a_delete_and_an_insert() -> None:
    table = STANDING[0]
    change = Change(table, UPDATE, 1, (1, "1.000000", "a"), (2, "1.000000", "a"))
    assert [kind for _, kind, _ in RowImages().encode([change])] == [Kind.DELETE, Kind.INSERT]


def test_an_update_of_a_key_beside_a_hidden_row_id_is_an_update() -> None:
    table = next(table for table in STANDING if table.name == "ignored_case_key")
    change = Change(table, UPDATE, 1, ("a", 1, None), ("B", 1, None))
    assert [kind for _, kind, _ in RowImages().encode([change])] == [Kind.UPDATE]


def test_every_type_gives_more_than_one_value() -> None:
    random = Random(2)
    for name, kind in kinds.ALL_KINDS:
        assert len({random_value(kind, random) for _ in range(100)}) > 1, name

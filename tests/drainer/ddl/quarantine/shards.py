"""Shards: tables upstream that are one downstream, and the histories of their definitions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from drainer.stream.rules.name_pattern import Source
from drainer.stream.rules.rule_set import Rules
from drainer.stream.rules.table_rules import RouteRule, TableRouter
from tests.crash.small_run import KEY, Statement
from tests.drainer.support.apply_life import column
from tests.drainer.support.made_recording import inserts
from tidb_binlog.table_info import (
    FLAG_NO_DEFAULT,
    FLAG_NOT_NULL,
    LONG,
    VARCHAR,
    Column,
    Index,
    TableInfo,
)

COLUMNS = (column(1, "id", LONG, KEY), column(2, "v", LONG))

REQUIRED = FLAG_NOT_NULL | FLAG_NO_DEFAULT

C = column(3, "c", VARCHAR)


def table(number: int, *more: Column, indexes: tuple[Index, ...] = ()) -> TableInfo:
    columns = tuple(replace(one, offset=at) for at, one in enumerate((*COLUMNS, *more)))
    return TableInfo(100 + number, f"t{number}", columns, indexes=indexes, pk_is_handle=True)


def typed(name: str, tp: int, flag: int = 0, flen: int = 64) -> Column:
    made = column(3 if name == "c" else 4, name, tp, flag)
    return replace(made, type=replace(made.type, flen=flen))


ROUTES = Rules(
    router=TableRouter([RouteRule("shards", Source.of("d", "t*"), "d", "all")]), disjoint_shards=True
)

DATABASE = Statement(1, "CREATE DATABASE `d`", None)

T1, T2 = table(1, C), table(2, C)


def statement(kind: int, text: str, made: TableInfo) -> Statement:
    return Statement(kind, text, made)


def create(made: TableInfo) -> Statement:
    return statement(3, f"CREATE TABLE `{made.name}` (`id` INT PRIMARY KEY, `v` INT, `c` VARCHAR(64))", made)


BEGIN = (DATABASE, create(T1), create(T2), [*inserts(T1, (1, 1, "a")), *inserts(T2, (2, 2, "b"))])

N1, N2 = table(1), table(2)

W1, W2 = (table(number, C, typed("e", LONG, REQUIRED)) for number in (1, 2))

DROP_C = tuple(statement(6, f"ALTER TABLE `{one.name}` DROP COLUMN `c`", one) for one in (N1, N2))

ADD_E = tuple(statement(5, f"ALTER TABLE `{one.name}` ADD COLUMN `e` INT NOT NULL", one) for one in (W1, W2))

MERGES: dict[str, tuple[list[Any], list[tuple[Any, ...]]]] = {
    "drop column": (
        [DROP_C[0], [*inserts(N1, (3, 3)), *inserts(T2, (4, 4, "kept"))],
         [(T2, (2, 2, "b"), (2, 2, "x"))], DROP_C[1], inserts(N2, (5, 5)), inserts(N1, (6, 6))],
        [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6)],
    ),
    "add column, not null": (
        [ADD_E[0], [*inserts(W1, (3, 3, "a", 9)), *inserts(T2, (4, 4, "b"))],
         [(T2, (2, 2, "b"), None)], ADD_E[1], inserts(W2, (5, 5, "c", 7))],
        [(1, 1, "a", 0), (3, 3, "a", 9), (4, 4, "b", 0), (5, 5, "c", 7)],
    ),
}  # fmt: skip

"""Rows that a downstream refuses: what is recorded upstream, and what is there afterwards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from drainer.mysql.connection import Target
from tests.crash.small_run import KEY, Statement
from tests.drainer.support.apply_life import Recording, column, run
from tests.drainer.support.made_recording import inserts, recording
from tidb_binlog.table_info import LONG, VARCHAR, Index, IndexColumn, TableInfo

COLUMNS = (column(1, "id", LONG, KEY), column(2, "u", VARCHAR), column(3, "v", LONG))

ON_U = Index(1, "k", (IndexColumn("u", 1),), unique=True, primary=False)

ONE = TableInfo(101, "t", COLUMNS, indexes=(ON_U,), pk_is_handle=True)

DATABASE = Statement(1, "CREATE DATABASE `d`", None)

CREATE = "CREATE TABLE `t` (`id` INT PRIMARY KEY, `u` VARCHAR(64), `v` INT"


def contents(target: Target) -> list[Any]:
    return sorted(run(target, "SELECT id, u, v FROM d.t"))


BOTH = recording(
    DATABASE,
    Statement(3, f"{CREATE}, UNIQUE KEY `k` (`u`))", ONE),
    inserts(ONE, (1, "a", 1), (2, "b", 2)),
    [(ONE, (1, "a", 1), (1, "c", 1)), *inserts(ONE, (3, "a", 3))],
    inserts(ONE, (4, "d", 4), (5, "x\x1b[2J", 5)),
    [(ONE, (5, "x\x1b[2J", 5), (5, "e", 6))],
)

EVERYTHING = [(1, "c", 1), (2, "b", 2), (3, "a", 3), (4, "d", 4), (5, "e", 6)]


def begin(found: Recording, upto: int) -> Recording:
    return replace(found, entries=found.entries[:upto])

"""Lakes of a test: tables upstream whose columns change, and lives of a sink that may die at any step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from drainer.lake.lake_sink import LakeItems, LakeSink
from drainer.lake.lake_table import Lake, LakeTable, Name
from drainer.txn import DELETE, INSERT, UPDATE, TableEvents, TableVersion, Transaction
from tidb_binlog.clock import ManualClock
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import LONG, VARCHAR, Column, FieldType, TableInfo


def column(number: int, name: str, tp: int = LONG, **more: Any) -> Column:
    charset = {"charset": "utf8mb4", "collate": "utf8mb4_bin"} if tp == VARCHAR else {}
    return Column(number, name, number, FieldType(tp, **charset, **more))


def version_of(
    *columns: Column, name: str = "t", number: int = 7, target: Name | None = None
) -> TableVersion:
    ordered = tuple(replace(each, offset=place) for place, each in enumerate(columns))
    return TableVersion(TableInfo(number, name, ordered), "d", name, 1, target)


def change(version: TableVersion, kind: int, *rows: tuple[Any, ...]) -> TableEvents:
    """One row of an INSERT or DELETE, two of an UPDATE."""
    encoder = RowEncoder(version.info)
    if kind == UPDATE:
        encoded = encoder.update(rows[0], rows[1], 1)
    else:
        encoded = encoder.insert(rows[0], 1) if kind == INSERT else encoder.delete(rows[0], 1)
    assert kind in (INSERT, UPDATE, DELETE)
    return TableEvents(version, (kind,), [encoded], 0)


def transaction(commit_ts: int, *events: TableEvents) -> Transaction:
    numbered = tuple(replace(each, first_ordinal=seq) for seq, each in enumerate(events))
    return Transaction(commit_ts - 1, commit_ts, numbered, 100)


class Killed(BaseException):
    """The process is dead: nothing after it happens."""


class Mortal(Lake):
    """Counts every step that changes something, and dies before or after one of them."""

    def __init__(self, lake: Lake, dies_at: tuple[int, str] | None = None) -> None:
        self._lake = lake
        self._dies_at = dies_at
        self.can_widen = lake.can_widen
        self.steps: list[str] = []

    def step(self, what: str, do: Callable[[], Any]) -> Any:
        self.steps.append(what)
        if self._dies_at == (len(self.steps), "before"):
            raise Killed
        result = do()
        if self._dies_at == (len(self.steps), "after"):
            raise Killed
        return result

    def open(self) -> None:
        self._lake.open()

    def load(self, name: Name) -> LakeTable | None:
        table = self._lake.load(name)
        return None if table is None else MortalTable(table, self)

    def create(self, name: Name, schema: pa.Schema, ids: str) -> LakeTable:
        return MortalTable(self.step(f"create {name[1]}", lambda: self._lake.create(name, schema, ids)), self)

    def close(self) -> None:
        self._lake.close()


class MortalTable:
    def __init__(self, table: LakeTable, lake: Mortal) -> None:
        self._table = table
        self._lake = lake

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._table, name)
        if name in ("remember", "evolve", "append", "compact", "expire"):
            return lambda *arguments: self._lake.step(name, lambda: value(*arguments))
        return value


def sink_of(lake: Lake, clock: ManualClock | None = None, **settings: Any) -> LakeSink:
    sink = LakeSink(lake, clock or ManualClock(), batch_bytes=1 << 20, batch_interval_s=0, **settings)
    sink.open()
    return sink


def give(sink: LakeSink, items: Iterable[Any]) -> None:
    """As one batch."""
    batch = list(items)
    sink.write(LakeItems()(batch), batch[-1].commit_ts)

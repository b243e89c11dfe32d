"""Downstream tables: what is known of the tables that rows go to, read once between two schema changes.

Owns    the definitions of the archive, to which it adds those that only the downstream knows
Holds   what it says is as after the last schema change that ran
Tests   tests/spark/replay/test_entry.py
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from drainer.mysql.connection import Connection
from drainer.mysql.rows.causality import Spread
from drainer.mysql.rows.change import Form, TableTarget
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.mysql.rows.table_target import target_of
from drainer.mysql.table_reader import read_table
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.files.selection import Selection
from drainer.relay import downstream_definitions
from drainer.spark.effects.operations import table_id
from drainer.spark.replay.writer import Tables
from drainer.txn import TableVersion
from tidb_binlog.errors import DownstreamError
from tidb_binlog.tso import Ts

_ALL: Final = Selection()


class DownstreamTables:
    def __init__(self, definitions: Definitions, connection: Connection, selection: Selection = _ALL) -> None:
        self.definitions = definitions
        self._connection = connection
        self._selection = selection
        self._archived = {(table.schema, table.table) for table in definitions}
        self._downstream: dict[int, DownstreamTable] = {}
        self._fresh = False

    def forget(self) -> None:
        """A schema change ran."""
        self._downstream.clear()
        self._fresh = False

    def prepare(self, start_ts: Ts) -> None:
        """Before rows from `start_ts` on are read: tables that the archive does not define."""
        if self._fresh:
            return
        self._fresh = True
        for version in downstream_definitions.read(self._connection, self._is_undefined):
            self.definitions.add(start_ts, version.schema, version.name, version)

    def _is_undefined(self, schema: str, table: str) -> bool:
        return (schema, table) not in self._archived and self._selection.wants_table(schema, table)

    def tables(self, versions: Iterable[TableVersion]) -> Tables:
        """What a writer needs for rows of these. Tables that are missing downstream are left out."""
        apart = set()
        for version in versions:
            target = self._target(version)
            if target is None or not target.keyed:
                continue
            if target.form is Form.REWRITE or target.spread is not Spread.BY_KEY:
                apart.add(table_id(version))
        return Tables(self.definitions, dict(self._downstream), frozenset(apart))

    def before_of(self, versions: Iterable[TableVersion]) -> frozenset[int]:
        """Tables that keep rows in place whose unique values did not change: former images are needed."""
        return frozenset(
            table_id(version)
            for version in versions
            if (target := self._target(version)) is not None and target.gentle
        )

    def _target(self, version: TableVersion) -> TableTarget | None:
        """None if rows of it cannot go downstream now: they are of another time, or a writer will say why."""
        number = table_id(version)
        if number not in self._downstream:
            table = read_table(self._connection, *version.downstream)
            if table is None:
                return None
            self._downstream[number] = table
        try:
            return target_of(version, 1, self._downstream[number])
        except DownstreamError:
            return None

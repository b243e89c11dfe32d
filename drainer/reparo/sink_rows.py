"""Sink rows: rows of an archive become row events as a sink takes them.

Holds  a table has the same identity in every life: its name downstream. So its rows go to the same lanes when
       a job is done in several lives, whatever its number in a catalogue was
Why    an image holds all columns in one form. With a hidden row id before or after it, it is a row as TiDB
       writes it for a table whose key is an index like any other; so nothing is encoded anew
Tests  tests/drainer/reparo/test_archive_source.py
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from drainer.reading.archive.decode.records import Row
from drainer.stream.rules.rule_set import Rules
from drainer.stream.translate.row_edit import row_edit
from drainer.stream.translate.row_filter import RowFilter
from drainer.txn import INSERT, UPDATE, TableEvents, TableVersion
from tidb_binlog.rowcodec.put import put_int
from tidb_binlog.rowcodec.varint import put_svarint
from tidb_binlog.table_info import ROWID_COLUMN_ID, Index, IndexColumn, TableInfo
from tidb_binlog.tso import Ts

_HANDLE: Final = put_int(0, unsigned=False)
_ROW_ID: Final = b"\x08" + put_svarint(ROWID_COLUMN_ID) + _HANDLE
_PRIMARY: Final = "PRIMARY"


class SinkRows:
    """One plan a definition; a plan lives as long as this."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._placed: dict[TableVersion, TableVersion] = {}
        self._filters: dict[TableVersion, RowFilter] = {}

    def events(self, rows: Iterable[Row], first_seq: int, commit_ts: Ts) -> list[TableEvents]:
        """Row events of rows that follow each other, as row rules leave them.

        Raises `ConfigError` for rules that contradict or do not fit, `Corruption`."""
        tables = self._encoded(rows, first_seq)
        if self._rules.rows.is_empty:
            return tables
        passed = (
            self._filters[events.table].passed(events.kinds, events.rows, events.first_ordinal, commit_ts)
            for events in tables
        )
        return [kept for each in passed for kept in each]

    def _encoded(self, rows: Iterable[Row], first_seq: int) -> list[TableEvents]:
        tables: list[TableEvents] = []
        table: TableVersion | None = None
        kinds: list[int] = []
        encoded: list[bytes] = []
        seq = first_seq
        for version, kind, before, after in rows:
            if version is not table:
                table = version
                kinds, encoded = [], []
                tables.append(TableEvents(self.placed(version), kinds, encoded, seq))
            if kind == INSERT:
                encoded.append(_HANDLE + after)  # type: ignore[operator]
            elif kind == UPDATE:
                encoded.append(before + _ROW_ID + after + _ROW_ID)  # type: ignore[operator]
            else:
                encoded.append(before)  # type: ignore[arg-type]
            kinds.append(kind)
            seq += 1
        return tables

    def placed(self, version: TableVersion) -> TableVersion:
        """The table under its name downstream, without the columns left out, its key an index."""
        target = self._placed.get(version)
        if target is None:
            plan = self._rules.placed(version)
            target = replace(plan, info=_with_index(plan.info), target=plan.downstream)
            self._filters[target] = RowFilter(0, target, edit=row_edit(self._rules, target))
            self._placed[version] = target
        return target


def _with_index(info: TableInfo) -> TableInfo:
    handle = info.handle_column
    indexes = info.indexes
    if handle is not None:
        number = max((index.id for index in indexes), default=0) + 1
        part = IndexColumn(handle.name, handle.offset)
        indexes = (*indexes, Index(number, _PRIMARY, (part,), unique=True, primary=True))
    return replace(info, indexes=indexes, pk_is_handle=False, is_common_handle=False)

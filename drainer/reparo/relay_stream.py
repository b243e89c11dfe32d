"""Relay stream: a relay log as a stream with filters and routes of its own.

Out     batches and their items, in order of commit_ts, each once
Holds   the names that rules mean are those in the relay log: a Drainer's own routes were applied before

Tests   tests/drainer/reparo/test_applying.py
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

from drainer.formats.binlog_directory import BinlogDirectory
from drainer.mysql.connection import Target
from drainer.reading.archive.files.selection import Selection
from drainer.relay.downstream_definitions import RelayTables
from drainer.relay.source import RelaySchema, RelaySource
from drainer.reparo.ddl_screen import screened
from drainer.reparo.ordered_records import Seen
from drainer.stream.pull.merged import Merged, MergedBatch, Spilled
from drainer.stream.rules.rule_set import Rules
from drainer.stream.translate.moved_rows import in_order
from drainer.stream.translate.row_edit import row_edit
from drainer.stream.translate.row_filter import RowFilter
from drainer.txn import Ddl, Item, TableEvents, TableVersion, Transaction
from tidb_binlog.clock import SystemClock
from tidb_binlog.tso import Ts


class RelayStream:
    """Raises `Corruption` and `DownstreamError`. Blocks while it is made: every record is checked."""

    def __init__(
        self, directory: BinlogDirectory, target: Target, selection: Selection, rules: Rules
    ) -> None:
        self._tables = RelayTables(target)
        self._source = RelaySource(directory, self._tables, SystemClock())
        self._source.survey()
        self._selection = selection
        self._rules = rules
        self._filters: dict[TableVersion, RowFilter] = {}
        self._known: set[tuple[str, str]] = set()
        self._targets: dict[tuple[str, str], tuple[str, str]] = {}
        self.seen = Seen(bytes_all=sum(file.size for file in directory.files.values()))

    def close(self) -> None:
        """Close the connection."""
        self._tables.close()

    @property
    def schema(self) -> RelaySchema:
        """Get what DDL have said of databases."""
        return self._source.schema

    @property
    def end_ts(self) -> Ts:
        """Tell where the stream ends."""
        stop, last_ts = self._selection.stop, self._source.last_ts
        return min(stop, last_ts) if stop else last_ts

    def take(self, after_ts: Ts) -> None:
        """Leave out what lies at or below `after_ts`."""
        after_ts = max(after_ts, self._selection.start - 1)
        self._source.take(after_ts, max(self.end_ts, after_ts), self._selection.stop)

    def batches(self) -> AsyncIterator[MergedBatch]:
        """Read the batches."""
        return self._source.batches()

    def translate(self, merged: Merged) -> Item:
        """Make the item of the next entry."""
        self._note(merged.commit_ts)
        item = self._source.translate(merged)
        if isinstance(item, Ddl):
            ddl = self._screened(item)
            self._targets = dict(zip(ddl.tables, ddl.targets, strict=False))
            self._known.update(name for name in ddl.tables if name[1])
            self.seen.ddl += not ddl.skip
            return ddl
        return self._passed(item)

    def pieces(self, spilled: Spilled) -> Iterator[Transaction]:
        """Read the pieces of a large transaction."""
        return map(self._passed, self._source.pieces(spilled))

    def route(self, schema: str, table: str = "") -> tuple[str, str]:
        """The name downstream of what the DDL that was read last is about."""
        return self._targets.get((schema, table)) or self._rules.router.route(schema, table)

    def _screened(self, ddl: Ddl) -> Ddl:
        """Of our records: a Drainer's verdict stands, and its routes."""
        rules = self._rules
        if ddl.skip or ddl.refused:
            return ddl
        if ddl.job is None:
            return screened(ddl, rules, self._known)
        names = ddl.targets or ddl.tables
        if not rules.sync_ddl:
            return replace(ddl, skip="sync-ddl is false")
        if names and not any(rules.allows(*name) for name in names):
            return replace(ddl, skip="filtered")
        if ddl.targets and not rules.router.is_empty:
            return replace(ddl, refused="a Drainer has routed it, and it cannot be routed again")
        return ddl

    def _note(self, commit_ts: Ts) -> None:
        self.seen.first_ts = self.seen.first_ts or commit_ts
        self.seen.last_ts = commit_ts

    def _passed(self, transaction: Transaction) -> Transaction:
        tables = tuple(self._kept(transaction.tables, transaction.commit_ts))
        return replace(transaction, tables=in_order(tables, transaction.commit_ts))

    def _kept(self, tables: tuple[TableEvents, ...], commit_ts: Ts) -> Iterator[TableEvents]:
        for events in tables:
            row_filter = self._filter(events.table)
            if row_filter.table is not None:
                yield from row_filter.passed(events.kinds, events.rows, events.first_ordinal, commit_ts)

    def _filter(self, table: TableVersion) -> RowFilter:
        row_filter = self._filters.get(table)
        if row_filter is None:
            schema, name = table.downstream
            self._known.add((schema, name))
            dropped = self._rules.events.ignored_rows(schema, name)
            here = replace(table, schema=schema, name=name, target=None)
            placed = self._rules.placed(here) if self._rules.allows(schema, name) else None
            if placed is not None:
                left_out = placed.left_out | table.left_out
                placed = replace(placed, target=placed.downstream, left_out=left_out)
            edit = row_edit(self._rules, here) if placed is not None else None
            row_filter = self._filters[table] = RowFilter(0, placed, dropped, edit=edit)
        return row_filter

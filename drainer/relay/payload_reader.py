"""Payload reader: binlogs of a relay log become transactions again, as the translator gave them.

In     the rules and definitions that a file notes, records that are read by them
Out    the rows that went downstream, or a part of a large transaction; what DDL say
Holds  rows are those that the translator made of the same binlog: filters, row rules and masks are those of
       then, ordinals count filtered rows too. A table that a record does not name has no row that replicates
Never  reads a row by another definition than the one it was written by: `Corruption` where that is missing
Tests  tests/drainer/relay/test_payload_reader.py
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NoReturn

from google.protobuf.message import DecodeError

from drainer.formats.obinlog.reader import ddl_of
from drainer.formats.relay_payload.record import RecordHead
from drainer.stream.pull import large_txn
from drainer.stream.pull.merged import Spilled
from drainer.stream.rules.rule_history import rules_from
from drainer.stream.rules.rule_set import Rules
from drainer.stream.translate.row_events import row_events
from drainer.stream.translate.row_filter import RowGate, screened
from drainer.txn import Ddl, TableEvents, TableVersion, Transaction
from tidb_binlog.errors import Corruption
from tidb_binlog.foreign_document import UNREADABLE
from tidb_binlog.protobuf_fields import Read
from tidb_binlog.wire import binlog_pb2

_HINT: Final = "restore the file from a backup; with the upstream at hand, move the binlog files away"


class PayloadReader:
    """Of records that go by the same rules. `rules`: their text, None if the file does not say."""

    def __init__(self, rules: str | None, intern: Callable[[TableVersion], TableVersion]) -> None:
        self._text = rules
        self._intern = intern
        self._rules: Rules | None = None
        self._tables: dict[int, TableVersion] = {}
        self._gates: dict[int, RowGate] = {}

    @property
    def rules(self) -> Rules:
        """Raises `Corruption`, and `ConfigError` for what this release does not know."""
        if self._rules is None:
            if self._text is None:
                raise Corruption("the file does not say which rules its records go by", hint=_HINT)
            self._rules = rules_from(self._text) if self._text else Rules()
        return self._rules

    def define(self, tables: Iterable[tuple[int, TableVersion]]) -> None:
        for number, version in tables:
            self._tables[number] = self._intern(version)

    def ddl(self, read: Read, head: RecordHead) -> Ddl:
        """Raises `Corruption`."""
        try:
            return ddl_of(json.loads(read(head.body, head.size - head.body)))
        except UNREADABLE as error:
            _fail("DDL", head.commit_ts, f"cannot be read: {error}")

    def transaction(self, read: Read, head: RecordHead) -> Transaction:
        """A whole transaction. Raises `Corruption`, and what `rules` raises."""
        payload, commit_ts = read(head.body, head.size - head.body), head.commit_ts
        try:
            message = binlog_pb2.Binlog.FromString(payload)
            prewrite = binlog_pb2.PrewriteValue.FromString(message.prewrite_value)
        except DecodeError as error:
            _fail("transaction", commit_ts, f"cannot be decoded: {error}")
        gates = {gate.table.id: gate for gate in self._of_record(head) if gate.table is not None}
        tables: list[TableEvents] = []
        ordinal = 0
        for mutation in prewrite.mutations:
            sequence: Sequence[int] = mutation.sequence[:]
            gate = gates.get(mutation.table_id)
            if gate is not None:
                tables += gate.passed(*row_events(mutation, sequence, commit_ts), ordinal, commit_ts)
            ordinal += len(sequence)
        return Transaction(message.start_ts, commit_ts, tuple(tables), len(payload))

    def pieces(self, read: Read, head: RecordHead) -> Iterator[Transaction]:
        """The same in pieces, at least one. Raises as `transaction`, before the first."""
        found = self._of_record(head)
        tables = {gate.table.id: gate.table for gate in found if gate.table is not None}
        gates = {gate.table: gate for gate in found if gate.table is not None}
        size = head.size - head.body

        def body(offset: int, wanted: int) -> bytes:
            return read(head.body + offset, min(wanted, size - offset))

        spilled = Spilled(head.commit_ts, 0, size, 0, 0, body)
        for piece in large_txn.pieces(spilled, lambda table_id, *_: tables.get(table_id)):
            yield screened(piece, gates)

    def _of_record(self, head: RecordHead) -> list[RowGate]:
        return [self._gates.get(number) or self._gate(number, head.commit_ts) for number in head.numbers]

    def _gate(self, number: int, commit_ts: int) -> RowGate:
        table, rules = self._tables.get(number), self.rules
        if table is None:
            _fail("transaction", commit_ts, f"has a definition ({number}) that the file does not have")
        edit = None
        if not rules.rows.is_empty:
            from drainer.stream.translate.row_edit import row_edit  # most relay logs are read without

            edit = row_edit(rules, table)
        dropped = rules.events.ignored_rows(table.schema, table.name)
        gate = self._gates[number] = RowGate(0, table, dropped, edit=edit)
        return gate


def _fail(what: str, commit_ts: int, why: str) -> NoReturn:
    raise Corruption(f"{what} with commit_ts {commit_ts} of the relay log {why}", hint=_HINT) from None


class PayloadReaders:
    """Along one file, record by record."""

    def __init__(self, intern: Callable[[TableVersion], TableVersion] = lambda version: version) -> None:
        self._intern = intern
        self._current = PayloadReader(None, intern)

    def of(self, head: RecordHead) -> PayloadReader:
        """What reads the next record, and may be used for it as long as wanted."""
        if head.rules is not None:
            self._current = PayloadReader(head.rules, self._intern)
        self._current.define(head.tables)
        return self._current

"""Payload writer: items of the stream as records of the relay log's own format.

In     the rules in force, transactions with what the pump sent, DDL, in the order of the stream
Out    payloads of records, each with what a reader has to know and does not yet
Holds  a file is read without any other: rules and definitions are noted with the first record that needs them
       in it. Whatever was written before in the file, by a Drainer that was killed perhaps, is not relied on
Why    nothing is encoded: a transaction costs a lookup for each of its tables and a copy
Tests  tests/drainer/relay/test_payload_reader.py
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from drainer.formats.obinlog.writer import ddl_document
from drainer.formats.relay_payload.record import BINLOG, DDL, MARK, USUAL_HEAD, VERSION, notes_of, pack
from drainer.txn import Ddl, TableVersion, Transaction


class PayloadWriter:
    """Numbers of definitions begin anew with each file, and with other rules."""

    def __init__(self) -> None:
        self._rules = ""
        self._noted = False  # the rules, in this file
        self._numbers: dict[TableVersion, int] = {}
        self._fresh: list[tuple[int, TableVersion]] = []

    def begin_file(self) -> None:
        """What follows goes into another file."""
        self._noted = False
        self._numbers.clear()

    def rules(self, text: str) -> None:
        """What follows goes by these rules."""
        self._rules = text
        self.begin_file()

    def transaction(self, transaction: Transaction) -> bytes:
        """A record of a whole transaction."""
        return self.before(transaction) + transaction.payload

    def before(self, transaction: Transaction) -> bytes:
        """What stands before its payload."""
        commit_ts, tables = transaction.commit_ts, transaction.tables
        if len(tables) == 1:  # as in most transactions
            (events,) = tables
            number = self._numbers.get(events.table)
            if number is not None and self._noted:
                return USUAL_HEAD.pack(MARK, VERSION, BINLOG, commit_ts, 0, len(events.rows), 1, number)
        return self.head(commit_ts, [one.table for one in tables], sum(len(one.rows) for one in tables))

    def head(self, commit_ts: int, tables: Iterable[TableVersion], rows: int) -> bytes:
        """What stands before a transaction that has so many rows of these tables."""
        numbers = dict.fromkeys([self._number(table) for table in tables])
        return pack(BINLOG, commit_ts, self._notes(), rows, numbers)

    def ddl(self, ddl: Ddl, text: str) -> bytes:
        """A record of a DDL. `text` is what runs downstream now; whoever reads it decides anew."""
        body = json.dumps(ddl_document(ddl), separators=(",", ":")).encode()
        return pack(DDL, ddl.commit_ts, self._notes(), 0, ()) + body

    def _number(self, table: TableVersion) -> int:
        number = self._numbers.get(table)
        if number is None:
            number = self._numbers[table] = len(self._numbers) + 1
            self._fresh.append((number, table))
        return number

    def _notes(self) -> bytes:
        if self._noted and not self._fresh:
            return b""
        rules, fresh = None if self._noted else self._rules, self._fresh
        self._noted, self._fresh = True, []
        return notes_of(rules, fresh)

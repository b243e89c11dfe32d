"""Relay payload: the relay log's own format, binlogs as the pump sent them; its records, read and written.

Out    its head: format version, kind, commit_ts, what it notes, by which definitions its rows are read
Holds  the first octet tells it from obinlog, whose records begin with 0x08: both may lie in one directory
       A file is read without any other: rules and definitions are noted with the first record that needs them
       in it. Whatever was written before in the file, by a Drainer that was killed perhaps, is not relied on
Why    nothing is encoded: a transaction costs a lookup for each of its tables and a copy
Never  guesses at a version that it does not know: `ConfigError` names it
Tests  tests/drainer/relay/test_payload_reader.py

    u8   0xB7
    u8   version of the format: 1
    u8   kind: 1 binlog, 2 DDL
    u8   0
    u64  commit_ts
    u32  bytes of notes
    u64  row changes that replicate
    u32  number of definitions
    ...  notes: JSON, none if there is nothing to note
    u32  a definition of each table of which rows replicate
    ...  body, up to the end: the binlog as the pump sent it, or the DDL as JSON

All little-endian. Notes hold for the record and for those after it in the file:

    rules    the rules in force, as `rule_set.Rules.text` has them. What was defined before is forgotten
    tables   [number, whether changes are withheld, definition] of tables that are not defined yet
    before   bytes of the file before, in the first record of a file that the same Drainer went on with
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple

from drainer.formats.obinlog import reader as obinlog_read
from drainer.formats.obinlog import writer as obinlog_write
from drainer.formats.obinlog.writer import ddl_document
from drainer.txn import Ddl, TableVersion, Transaction
from tidb_binlog.errors import ConfigError, Corruption
from tidb_binlog.foreign_document import UNREADABLE
from tidb_binlog.protobuf_fields import Read
from tidb_binlog.tso import Ts

MARK: Final = 0xB7
VERSION: Final = 1
BINLOG: Final = 1
DDL: Final = 2
HEAD: Final = struct.Struct("<BBBxQIQI")
USUAL_HEAD: Final = struct.Struct("<BBBxQIQII")
"""Without notes, with one definition."""
_NUMBER: Final = struct.Struct("<I")
_HINT: Final = "the record is whole, so it was written like this: compare the versions of the drainers"


class RecordHead(NamedTuple):
    """A record without its body, which lies in [`body`, `size`). `rules` is None where none are noted,
    `before` 0."""

    commit_ts: Ts
    is_ddl: bool
    rows: int
    body: int
    size: int
    rules: str | None
    tables: tuple[tuple[int, TableVersion], ...]
    numbers: tuple[int, ...]
    before: int = 0


class FixedHead(NamedTuple):
    """What every record begins with."""

    kind: int
    commit_ts: Ts
    notes: int
    rows: int
    numbers: int

    @property
    def body(self) -> int:
        """Where the body begins."""
        return HEAD.size + self.notes + self.numbers * _NUMBER.size


def is_payload_record(data: bytes) -> bool:
    """Whether a record that begins so is of this format, in whatever version."""
    return data[:1] == b"\xb7"


def in_memory(payload: bytes) -> Read:
    """A record that is in memory, for readers of stretches."""
    return lambda offset, size: payload[offset : offset + size]


def pack(kind: int, commit_ts: Ts, notes: bytes, rows: int, numbers: Collection[int]) -> bytes:
    """What stands before the body."""
    count = len(numbers)
    head = HEAD.pack(MARK, VERSION, kind, commit_ts, len(notes), rows, count)
    return head + notes + struct.pack(f"<{count}I", *numbers)


def notes_of(rules: str | None, tables: Collection[tuple[int, TableVersion]], before: int = 0) -> bytes:
    """Notes; none if there is nothing to note."""
    document: dict[str, Any] = {"before": before} if before else {}
    if rules is not None:
        document["rules"] = rules
    if tables:
        document["tables"] = [
            [number, version.partial, obinlog_write.definition_document(version)]
            for number, version in tables
        ]
    return json.dumps(document, separators=(",", ":")).encode() if document else b""


def commit_ts_of(head: bytes) -> int:
    """commit_ts of a record of either format, from its first bytes. Raises `Corruption`, `ConfigError`."""
    if not is_payload_record(head):
        return obinlog_write.commit_ts_of(head)
    return fixed_head(head).commit_ts


def record_head(read: Read, size: int) -> RecordHead:
    """Read all but the body. Raises `Corruption`, `ConfigError` for another version."""
    fixed = fixed_head(read(0, HEAD.size))
    kind, commit_ts, notes_size, rows, count = fixed
    if fixed.body > size:
        raise Corruption(f"record with commit_ts {commit_ts} of the relay log is too short", hint=_HINT)
    rules, tables, before = _notes(read(HEAD.size, notes_size), commit_ts) if notes_size else (None, (), 0)
    numbers = struct.unpack(f"<{count}I", read(HEAD.size + notes_size, count * _NUMBER.size)) if count else ()
    return RecordHead(commit_ts, kind == DDL, rows, fixed.body, size, rules, tables, numbers, before)


def fixed_head(head: bytes) -> FixedHead:
    """Of the first bytes of a record. Raises `Corruption`, `ConfigError` for another version."""
    if len(head) < 2 or head[1] != VERSION:
        raise ConfigError(
            f"the relay log has records of format version {head[1] if len(head) > 1 else 'none'}, and this"
            f" release knows version {VERSION}",
            hint="start the release that wrote them; or, with the upstream at hand, move the binlog files"
            " away: the drainer continues from its checkpoint",
        )
    if len(head) < HEAD.size:
        raise Corruption(f"record of {len(head)} bytes is none of a relay log", hint=_HINT)
    fixed = FixedHead(*HEAD.unpack_from(head)[2:])
    if fixed.kind not in (BINLOG, DDL):
        raise Corruption(
            f"record with commit_ts {fixed.commit_ts} of the relay log is of no known kind", hint=_HINT
        )
    return fixed


def _notes(data: bytes, commit_ts: Ts) -> tuple[str | None, tuple[tuple[int, TableVersion], ...], int]:
    try:
        document = json.loads(data)
        rules = document.get("rules")
        tables = tuple(
            (int(number), obinlog_read.version_of(definition, partial=bool(partial)))
            for number, partial, definition in document.get("tables", ())
        )
        return None if rules is None else str(rules), tables, int(document.get("before", 0))
    except UNREADABLE as error:
        raise Corruption(
            f"notes of the record with commit_ts {commit_ts} of the relay log cannot be read: {error}",
            hint=_HINT,
        ) from None


class PayloadWriter:
    """Numbers of definitions begin anew with each file, and with other rules."""

    def __init__(self) -> None:
        self._rules = ""
        self._noted = False  # the rules, in this file
        self._before = 0  # bytes of the file before, until they are noted
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

    def follows(self, size: int) -> None:
        """The file that was begun follows one of so many bytes."""
        self._before = size

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
        return self.head(commit_ts, [each.table for each in tables], sum(len(each.rows) for each in tables))

    def head(self, commit_ts: Ts, tables: Iterable[TableVersion], rows: int) -> bytes:
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
        rules, fresh, before = None if self._noted else self._rules, self._fresh, self._before
        self._noted, self._fresh, self._before = True, [], 0
        return notes_of(rules, fresh, before)

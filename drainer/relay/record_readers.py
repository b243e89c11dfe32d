"""Record readers: records of a file of a relay log, in the order of the file, whatever their format.

Out    commit_ts of each, and what makes an item of the stream of it: what went downstream
Holds  what a record defines holds for it and for those after it: a Drainer that started again in the middle
       of a file counts its definitions anew. Of a binlog as a pump sent it, rows are those that the
       translator made of it: filters, row rules and masks are those of then, ordinals count filtered rows
       too. A table that a record does not name has no row that replicates
Never  reads a row by another definition than the one it was written by: `Corruption` where that is missing
Tests  tests/drainer/relay/test_payload_reader.py, tests/drainer/app/test_recovery.py
"""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NoReturn, Protocol

from google.protobuf.message import DecodeError

from drainer.formats.obinlog import reader as obinlog_read
from drainer.formats.obinlog.reader import ForeignTable, ObinlogReader, Resolve, ToUtc, ddl_of
from drainer.formats.relay_payload import RecordHead, is_payload_record, record_head
from drainer.stream.pull import large_txn
from drainer.stream.pull.merged import Spilled
from drainer.stream.rules.rule_history import rules_from
from drainer.stream.rules.rule_set import Rules
from drainer.stream.translate.moved_rows import WHOLE_BYTES_MAX, in_order
from drainer.stream.translate.row_filter import RowFilter, left_first, row_events, screened
from drainer.txn import Item, TableEvents, TableVersion, Transaction
from tidb_binlog.errors import Corruption
from tidb_binlog.foreign_document import UNREADABLE
from tidb_binlog.late_dataclass import replace
from tidb_binlog.protobuf_fields import Read
from tidb_binlog.time_text import named_zone
from tidb_binlog.tso import Ts
from tidb_binlog.wire import binlog_pb2


def to_utc(time_zone: str) -> ToUtc:
    """How TIMESTAMP texts of a record become UTC. Go drainers write local time and do not say so."""
    if time_zone in ("UTC", "+00:00"):
        return lambda text: text
    zone = named_zone(time_zone) if time_zone else None
    if time_zone and zone is None:
        raise Corruption(
            f"the relay log has TIMESTAMPs of the time zone {time_zone!r}, which is not known here",
            hint="install the time zone data of the system",
        )

    def convert(text: str) -> str:
        if text.startswith("0000-00-00"):
            return text
        whole, dot, fraction = text.partition(".")
        local = datetime.datetime.fromisoformat(whole).replace(tzinfo=zone)
        return f"{local.astimezone(datetime.UTC):%Y-%m-%d %H:%M:%S}{dot}{fraction}"

    return convert


_HINT: Final = "restore the file from a backup; with the upstream at hand, move the binlog files away"


class RecordReader(Protocol):
    """Reads records that have their definitions in common. Raises `Corruption`, `ConfigError`, what resolves
    a table."""

    @property
    def own(self) -> bool:
        """Whether they are not of a Go drainer, which says less."""
        ...

    @property
    def rules(self) -> Rules | None:
        """By which they went, None where nothing says it."""
        ...

    def is_ddl(self, read: Read, size: int) -> bool:
        """Whether a record of this size is one of a DDL."""
        ...

    def item(self, read: Read, size: int) -> Item:
        """What the record holds: a DDL, or a whole transaction."""
        ...

    def pieces(self, read: Read, size: int) -> Iterator[Transaction]:
        """The pieces of a transaction; at least one."""
        ...


class PayloadReader:
    """Reads binlogs as pumps sent them that went by the same rules, whose text is None if the file does not
    say it."""

    own = True

    def __init__(self, rules: str | None, intern: Callable[[TableVersion], TableVersion]) -> None:
        self._text = rules
        self._intern = intern
        self._rules: Rules | None = None  # read when they are asked for: they may be of another release
        self._tables: dict[int, TableVersion] = {}  # by their numbers in the file
        self._filters: dict[int, RowFilter] = {}

    @property
    def rules(self) -> Rules:
        """Raises `Corruption`, and `ConfigError` for what this release does not know."""
        if self._rules is None:
            if self._text is None:
                raise Corruption("the file does not say which rules its records go by", hint=_HINT)
            self._rules = rules_from(self._text) if self._text else Rules()
        return self._rules

    def define(self, tables: Iterable[tuple[int, TableVersion]]) -> None:
        """Take the definitions that a record notes."""
        for number, version in tables:
            self._tables[number] = self._intern(version)

    def is_ddl(self, read: Read, size: int) -> bool:
        """Whether a record of this size is one of a DDL."""
        return record_head(read, size).is_ddl

    def item(self, read: Read, size: int) -> Item:
        """What a record holds. Raises `Corruption`, and what `rules` raises."""
        head = record_head(read, size)
        content, commit_ts = read(head.body, head.size - head.body), head.commit_ts
        if head.is_ddl:
            try:
                return ddl_of(json.loads(content))
            except UNREADABLE as error:
                _fail("DDL", commit_ts, f"cannot be read: {error}")
        return self._transaction(head, content)

    def _transaction(self, head: RecordHead, content: bytes) -> Transaction:
        commit_ts = head.commit_ts
        try:
            message = binlog_pb2.Binlog.FromString(content)
            prewrite = binlog_pb2.PrewriteValue.FromString(message.prewrite_value)
        except DecodeError as error:
            _fail("transaction", commit_ts, f"cannot be decoded: {error}")
        filters = {
            row_filter.table.id: row_filter
            for row_filter in self._of_record(head)
            if row_filter.table is not None
        }
        tables: list[TableEvents] = []
        ordinal = 0
        for mutation in left_first(prewrite.mutations, routed=not self.rules.router.is_empty):
            sequence: Sequence[int] = mutation.sequence[:]
            row_filter = filters.get(mutation.table_id)
            if row_filter is not None:
                tables += row_filter.passed(*row_events(mutation, sequence, commit_ts), ordinal, commit_ts)
            ordinal += len(sequence)
        return Transaction(message.start_ts, commit_ts, in_order(tuple(tables), commit_ts), len(content))

    def pieces(self, read: Read, size: int) -> Iterator[Transaction]:
        """A transaction in pieces, at least one. Raises as `item`, before the first."""
        head = record_head(read, size)
        routed = not self.rules.router.is_empty
        if routed and head.size - head.body <= WHOLE_BYTES_MAX:
            yield self._transaction(head, read(head.body, head.size - head.body))
            return
        in_record = self._of_record(head)
        tables = {
            row_filter.table.id: row_filter.table for row_filter in in_record if row_filter.table is not None
        }
        filters = {row_filter.table: row_filter for row_filter in in_record if row_filter.table is not None}
        body_size = head.size - head.body

        def body(offset: int, length: int) -> bytes:
            return read(head.body + offset, min(length, body_size - offset))

        spilled = Spilled(head.commit_ts, 0, body_size, 0, 0, body)
        for piece in large_txn.pieces(spilled, lambda table_id, *_: tables.get(table_id), routed=routed):
            passed = screened(piece, filters)
            yield replace(passed, tables=in_order(passed.tables, passed.commit_ts))

    def _of_record(self, head: RecordHead) -> list[RowFilter]:
        return [self._filters.get(number) or self._filter(number, head.commit_ts) for number in head.numbers]

    def _filter(self, number: int, commit_ts: Ts) -> RowFilter:
        table, rules = self._tables.get(number), self.rules
        if table is None:
            _fail("transaction", commit_ts, f"has a definition ({number}) that the file does not have")
        edit = None
        if not rules.rows.is_empty:
            from drainer.stream.translate.row_edit import row_edit  # most relay logs are read without

            edit = row_edit(rules, table)
        dropped = rules.events.ignored_rows(table.schema, table.name)
        row_filter = self._filters[number] = RowFilter(0, table, dropped, edit=edit)
        return row_filter


def _fail(what: str, commit_ts: Ts, why: str) -> NoReturn:
    raise Corruption(f"{what} with commit_ts {commit_ts} of the relay log {why}", hint=_HINT) from None


class _ObinlogReader:
    """`zone` is what records say of their TIMESTAMPs, "" those of a Go drainer; `to_utc` goes by it."""

    rules = None

    def __init__(
        self, definitions: Mapping[int, TableVersion], resolve: Resolve, zone: str, default_zone: str
    ) -> None:
        self._reader = ObinlogReader(definitions, resolve)
        self._to_utc = functools.cache(lambda: to_utc(zone or default_zone))
        self.own = bool(zone)

    def is_ddl(self, read: Read, size: int) -> bool:
        """Whether a record of this size is one of a DDL."""
        return obinlog_read.head(read, size).ddl is not None

    def item(self, read: Read, size: int) -> Item:
        """What a record holds."""
        head = obinlog_read.head(read, size)
        if head.ddl is not None:
            return obinlog_read.ddl(read, head)
        return self._reader.transaction(read, head, self._to_utc())

    def pieces(self, read: Read, size: int) -> Iterator[Transaction]:
        """A transaction in pieces, at least one."""
        return self._reader.pieces(read, obinlog_read.head(read, size), self._to_utc())


def _unresolved(table: ForeignTable) -> NoReturn:
    raise Corruption(f"nothing says how {table.schema}.{table.name} is defined", hint=_HINT)


class RecordReaders:
    """Reads along one file. `resolve` may block; `intern` gives the object that stands for a definition;
    `time_zone` is that of a Go drainer, "" that of this machine."""

    def __init__(
        self,
        resolve: Resolve = _unresolved,
        intern: Callable[[TableVersion], TableVersion] = lambda version: version,
        time_zone: str = "",
    ) -> None:
        self._resolve = resolve
        self._intern = intern
        self._time_zone = time_zone
        self._payload = PayloadReader(None, intern)
        self._documents: dict[int, bytes] = {}  # definitions of obinlog records as they stand there
        self._definitions: dict[int, TableVersion] = {}  # the same, decoded
        self._obinlogs: dict[str, _ObinlogReader] = {}  # by time zone
        self.before = 0
        """Bytes that the file before has, as far as a record has said it."""

    def of(self, read: Read, size: int) -> tuple[int, RecordReader]:
        """The next record's commit_ts, and what reads it, as long as wanted. Raises `Corruption`,
        `ConfigError`."""
        if not is_payload_record(read(0, 1)):
            obinlog = obinlog_read.head(read, size)
            return obinlog.commit_ts, self._of_obinlog(obinlog)
        head = record_head(read, size)
        if head.rules is not None:
            self._payload = PayloadReader(head.rules, self._intern)
        self._payload.define(head.tables)
        self.before = self.before or head.before
        return head.commit_ts, self._payload

    def lose(self) -> None:
        """Records were passed over: of binlogs as pumps sent them, rules and numbers of definitions may have
        begun anew there. Rows are read by what is noted from here on, or not at all."""
        self._payload = PayloadReader(None, self._intern)

    def _of_obinlog(self, head: obinlog_read.RecordHead) -> RecordReader:
        for number, document in head.definitions.items():
            if self._documents.get(number, document) != document:
                # Another Drainer goes on here, and has numbers of its own.
                self._definitions, self._obinlogs = dict(self._definitions), {}
            self._documents[number] = document
            self._definitions[number] = self._intern(obinlog_read.definition(document))
        reader = self._obinlogs.get(head.time_zone)
        if reader is None:
            reader = _ObinlogReader(self._definitions, self._resolve, head.time_zone, self._time_zone)
            self._obinlogs[head.time_zone] = reader
        return reader

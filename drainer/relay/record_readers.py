"""Record readers: records of a file in the order of the file, whatever their format.

In     the records of one file; for tables of which a Go drainer's says too little, the downstream
Out    commit_ts of each, and what makes an item of the stream of it
Holds  what a record defines holds for it and for those after it: a Drainer that started again in the middle
       of a file counts its definitions anew
Tests  tests/drainer/app/test_recovery.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from drainer.formats.obinlog import reader as obinlog_read
from drainer.formats.obinlog.reader import ObinlogReader, RecordHead, Resolve, ToUtc
from drainer.formats.relay_payload.record import is_payload_record, record_head
from drainer.relay.payload_reader import PayloadReader, PayloadReaders
from drainer.relay.record_time import to_utc
from drainer.stream.rules.rule_set import Rules
from drainer.txn import Item, TableVersion, Transaction
from tidb_binlog.protobuf_fields import Read


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

    def is_ddl(self, read: Read, size: int) -> bool: ...

    def item(self, read: Read, size: int) -> Item: ...

    def pieces(self, read: Read, size: int) -> Iterator[Transaction]: ...


class _Obinlog:
    def __init__(self, definitions: Mapping[int, TableVersion], resolve: Resolve, zone: str) -> None:
        self._reader = ObinlogReader(definitions, resolve)
        self._zone = zone
        self._to_utc: ToUtc | None = None
        self.own = bool(zone)
        self.rules = None

    def is_ddl(self, read: Read, size: int) -> bool:
        return obinlog_read.head(read, size).ddl is not None

    def item(self, read: Read, size: int) -> Item:
        head = obinlog_read.head(read, size)
        if head.ddl is not None:
            return obinlog_read.ddl(read, head)
        return self._reader.transaction(read, head, self._utc())

    def pieces(self, read: Read, size: int) -> Iterator[Transaction]:
        return self._reader.pieces(read, obinlog_read.head(read, size), self._utc())

    def _utc(self) -> ToUtc:
        if self._to_utc is None:
            self._to_utc = to_utc(self._zone)
        return self._to_utc


class _Payload:
    own = True

    def __init__(self, reader: PayloadReader) -> None:
        self._reader = reader

    @property
    def rules(self) -> Rules:
        return self._reader.rules

    def is_ddl(self, read: Read, size: int) -> bool:
        return record_head(read, size).is_ddl

    def item(self, read: Read, size: int) -> Item:
        head = record_head(read, size)
        return self._reader.ddl(read, head) if head.is_ddl else self._reader.transaction(read, head)

    def pieces(self, read: Read, size: int) -> Iterator[Transaction]:
        return self._reader.pieces(read, record_head(read, size))


class RecordReaders:
    """Along one file. `resolve` blocks."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._payloads = PayloadReaders()
        self._payload: tuple[PayloadReader, _Payload] | None = None
        self._documents: dict[int, bytes] = {}
        self._definitions: dict[int, TableVersion] = {}
        self._obinlogs: dict[str, _Obinlog] = {}  # by time zone

    def of(self, read: Read, size: int) -> tuple[int, RecordReader]:
        """commit_ts of the next record, and what reads it. Raises `Corruption`, `ConfigError`."""
        if not is_payload_record(read(0, 1)):
            found = obinlog_read.head(read, size)
            return found.commit_ts, self._of_obinlog(found)
        head = record_head(read, size)
        reader = self._payloads.of(head)
        if self._payload is None or self._payload[0] is not reader:
            self._payload = reader, _Payload(reader)
        return head.commit_ts, self._payload[1]

    def _of_obinlog(self, found: RecordHead) -> RecordReader:
        for number, document in found.definitions.items():
            if self._documents.get(number, document) != document:
                # Another Drainer goes on here, and has numbers of its own.
                self._definitions, self._obinlogs = dict(self._definitions), {}
            self._documents[number] = document
            self._definitions[number] = obinlog_read.definition(document)
        reader = self._obinlogs.get(found.time_zone)
        if reader is None:
            reader = _Obinlog(self._definitions, self._resolve, found.time_zone)
            self._obinlogs[found.time_zone] = reader
        return reader

"""Source: the records of a relay log as the stream that an applier takes, in place of pumps.

Out    batches and their items, in order of commit_ts, each once; a DDL ends its batch
Holds  every record is compared with its checksum before the first item goes out: damage in the middle leaves
       nothing half applied. Of records with one commit_ts the newest counts: a drainer that started again
       wrote anew what lies after its checkpoint
Why    the schema that a DDL runner asks for is what the DDL of the relay log carry with them
Tests  tests/drainer/app/test_recovery.py

Blocks on a thread; `batches` and `translate` are called on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Final, NamedTuple

from drainer import metrics
from drainer.formats import binlog_file
from drainer.formats.binlog_directory import BinlogDirectory, BinlogFile
from drainer.formats.binlog_file import Place
from drainer.formats.relay_payload import in_memory
from drainer.relay.downstream_definitions import RelayTables
from drainer.relay.record_readers import RecordReader, RecordReaders
from drainer.stream.pull.merged import BATCH_BYTES, DecodedItems, Merged, MergedBatch, Spilled
from drainer.stream.rules.rule_set import Rules
from drainer.txn import Ddl, Item, Transaction
from tidb_binlog.clock import Clock
from tidb_binlog.errors import ConfigError, Corruption
from tidb_binlog.protobuf_fields import Read
from tidb_binlog.record import RecordError
from tidb_binlog.tso import Ts

_DEFAULT_CHARSET: Final = ("utf8mb4", "utf8mb4_bin")


class RelaySchema:
    """What DDL of a relay log say of databases: as they are after the last one that was read."""

    def __init__(self) -> None:
        self._databases: dict[str, tuple[str, str]] = {}
        self.ddl_ts = 0
        """commit_ts of the last DDL that was read."""
        self.rules: Rules | None = None
        """By which it went, where the relay log says so."""

    def database_collation(self, schema: str) -> tuple[str, str] | None:
        """(charset, collation); of a database that no DDL was about, what TiDB takes by itself."""
        return self._databases.get(schema.lower(), _DEFAULT_CHARSET)

    def pass_ddl(self, ddl: Ddl, rules: Rules | None = None) -> None:
        """Take what a DDL says."""
        self.ddl_ts, self.rules = ddl.commit_ts, rules
        database = ((ddl.job or {}).get("binlog") or {}).get("DBInfo") or {}
        if database.get("charset") and database.get("collate"):
            name = str(database["db_name"]["O"])
            self._databases[name.lower()] = (str(database["charset"]), str(database["collate"]))


class _Found(NamedTuple):
    """Where a record is, and what reads it."""

    file: BinlogFile
    place: Place
    reader: RecordReader


class RelaySource:
    """Raises `Corruption` from every method; `DownstreamError` while it is read."""

    def __init__(self, directory: BinlogDirectory, tables: RelayTables, clock: Clock) -> None:
        self._directory = directory
        self._tables = tables
        self._clock = clock
        self._index: dict[int, _Found] = {}  # by commit_ts
        self._ready = DecodedItems()  # items of the batch that is applied
        self._after_ts = self._to_ts = self._stop_ts = 0
        self.schema = RelaySchema()
        self.own = True
        """No record is of a Go drainer, which says less."""
        self.last_ts = 0
        self.ddls = 0

    # -- looking it over -------------------------------------------------------------------------

    def survey(self) -> None:
        """Check every record and note where it is. Blocks."""
        for index, file in self._directory.files.items():
            readers = RecordReaders(self._tables.resolve)
            for place in self._directory.places[index]:
                try:
                    binlog_file.check(file.read, place)
                except RecordError as error:
                    metrics.RELAY_CORRUPTION.inc()
                    raise binlog_file.damage(file.path, error) from None
                try:
                    commit_ts, reader = readers.of(_reading(file, place), place.size)
                except (Corruption, ConfigError) as error:
                    raise type(error)(
                        f"{file.path}: offset {place.record}: {error.message}", hint=error.hint
                    ) from None
                self._check_before(index, readers.before)
                self.own = self.own and reader.own
                self._index[commit_ts] = _Found(file, place, reader)
                self.last_ts = max(self.last_ts, commit_ts)

    def _check_before(self, index: int, size: int) -> None:
        """The file before has so many bytes, if any are known: it may be cut between two records."""
        file = self._directory.files.get(index - 1)
        if size and file is not None and file.size != size:
            metrics.RELAY_CORRUPTION.inc()
            error = RecordError(file.size, f"the file ends here, and {size} bytes were written", False)
            raise binlog_file.damage(file.path, error)

    def take(self, after_ts: Ts, to_ts: Ts, stop_ts: Ts = 0) -> None:
        """Leave out what lies at or below `after_ts`, or above `stop_ts` if that is given. The stream
        continues to `to_ts`, with or without a record there. Raises `ConfigError` for rules that cannot be
        had any more: a function of a row rule is gone perhaps."""
        self._after_ts = after_ts
        self._to_ts = to_ts
        self._stop_ts = stop_ts
        for commit_ts, record in self._index.items():
            if commit_ts > after_ts and not (stop_ts and commit_ts > stop_ts):
                _ = record.reader.rules  # read before the first row goes out

    @property
    def records(self) -> int:
        """How many there are to apply."""
        return sum(commit_ts > self._after_ts for commit_ts in self._index)

    # -- the stream ------------------------------------------------------------------------------

    async def batches(self) -> AsyncIterator[MergedBatch]:
        """Ends after the last record. A batch is read when the one before is applied."""
        items = self._items()
        while True:
            batch = await asyncio.to_thread(self._ready.batch, items)
            if batch is None:
                yield MergedBatch([], self._to_ts if self._stop_ts else max(self._to_ts, self.last_ts))
                return
            yield batch

    def translate(self, merged: Merged) -> Item:
        """The item of the next entry."""
        item = self._ready.next()
        if isinstance(item, Ddl):
            reader = self._index[item.commit_ts].reader
            self.schema.pass_ddl(item, reader.rules)
            self._tables.forget()
            self.ddls += 1
        return item

    def pieces(self, spilled: Spilled) -> Iterator[Transaction]:
        """The pieces of a large transaction. Blocks."""
        record = self._index[spilled.commit_ts]
        return record.reader.pieces(spilled.read, record.place.size)

    def _items(self) -> Iterator[Item | Spilled]:
        for commit_ts in sorted(self._index):
            if commit_ts <= self._after_ts or (self._stop_ts and commit_ts > self._stop_ts):
                continue
            file, place, reader = self._index[commit_ts]
            started_s = self._clock.monotonic_s()
            read = _reading(file, place)
            if place.size > BATCH_BYTES and not reader.is_ddl(read, place.size):
                yield Spilled(commit_ts, 0, place.size, 0, 0, read)
                continue
            payload = file.read(place.start, place.size)
            metrics.RELAY_READ_SECONDS.observe(self._clock.monotonic_s() - started_s)
            yield reader.item(in_memory(payload), place.size)


def _reading(file: BinlogFile, place: Place) -> Read:
    return lambda offset, size: file.read(place.start + offset, min(size, place.size - offset))

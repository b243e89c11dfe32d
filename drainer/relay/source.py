"""Relay source: the records of a relay log as the stream that an applier takes, in place of pumps.

In     a binlog directory, the commit_ts after which to begin
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
import datetime
import zoneinfo
from collections.abc import AsyncIterator, Iterator
from typing import Final

from common.clock import Clock
from common.errors import Corruption
from common.protobuf_fields import Read
from common.record import RecordError
from drainer import metrics
from drainer.formats import binlog_file
from drainer.formats.binlog_directory import BinlogDirectory, BinlogFile
from drainer.formats.binlog_file import Place
from drainer.formats.obinlog import reader as obinlog_read
from drainer.formats.obinlog.reader import ObinlogReader, RecordHead, ToUtc
from drainer.pull.merged import Merged, MergedBatch, Spilled
from drainer.pull.ready_items import BATCH_BYTES, ReadyItems
from drainer.relay.table_definitions import RelayTables
from drainer.txn import Ddl, Item, TableVersion, Transaction

_DEFAULT_CHARSET: Final = ("utf8mb4", "utf8mb4_bin")


class RelaySchema:
    """What DDL of a relay log say of databases: as they are after the last one that was read."""

    def __init__(self) -> None:
        self._databases: dict[str, tuple[str, str]] = {}
        self.ddl_ts = 0
        """commit_ts of the last DDL that was read."""

    def database_collation(self, schema: str) -> tuple[str, str] | None:
        """(charset, collation); of a database that no DDL was about, what TiDB takes by itself."""
        return self._databases.get(schema.lower(), _DEFAULT_CHARSET)

    def pass_ddl(self, ddl: Ddl) -> None:
        self.ddl_ts = ddl.commit_ts
        database = ((ddl.job or {}).get("binlog") or {}).get("DBInfo") or {}
        if database.get("charset") and database.get("collate"):
            name = str(database["db_name"]["O"])
            self._databases[name.lower()] = (str(database["charset"]), str(database["collate"]))


def to_utc(time_zone: str) -> ToUtc:
    """How TIMESTAMP texts of a record become UTC. Go drainers write local time and do not say so."""
    if time_zone in ("UTC", "+00:00"):
        return lambda text: text
    try:
        zone = zoneinfo.ZoneInfo(time_zone) if time_zone else None
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        raise Corruption(
            f"the relay log has TIMESTAMPs of the time zone {time_zone!r}, which is not known here",
            hint="install the time zone data of the system",
        ) from None

    def convert(text: str) -> str:
        if text.startswith("0000-00-00"):
            return text
        whole, dot, fraction = text.partition(".")
        local = datetime.datetime.fromisoformat(whole).replace(tzinfo=zone)
        return f"{local.astimezone(datetime.UTC):%Y-%m-%d %H:%M:%S}{dot}{fraction}"

    return convert


class RelaySource:
    """Raises `Corruption` from every method; `DownstreamError` while it is read."""

    def __init__(self, directory: BinlogDirectory, tables: RelayTables, clock: Clock) -> None:
        self._directory = directory
        self._tables = tables
        self._clock = clock
        self._index: dict[int, tuple[int, Place]] = {}  # commit_ts -> file, place
        self._definitions: dict[int, dict[int, TableVersion]] = {}  # by file
        self._readers: dict[int, ObinlogReader] = {}
        self._zones: dict[str, ToUtc] = {}
        self._ready = ReadyItems()
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
            numbered = self._definitions.setdefault(index, {})
            for place in self._directory.places[index]:
                try:
                    binlog_file.check(file.read, place)
                except RecordError as error:
                    metrics.RELAY_CORRUPTION.inc()
                    raise binlog_file.damage(file.path, error) from None
                found = self._head(file, place)
                for number, document in found.definitions.items():
                    numbered[number] = obinlog_read.definition(document)
                self.own = self.own and bool(found.time_zone)
                self._index[found.commit_ts] = (index, place)
                self.last_ts = max(self.last_ts, found.commit_ts)

    def _head(self, file: BinlogFile, place: Place) -> RecordHead:
        try:
            return obinlog_read.head(_reading(file, place), place.size)
        except Corruption as error:
            raise Corruption(
                f"{file.path}: offset {place.record}: {error.message}", hint=error.hint
            ) from None

    def take(self, after_ts: int, to_ts: int, stop_ts: int = 0) -> None:
        """Leave out what lies at or below `after_ts`, or above `stop_ts` if that is given. The stream
        continues to `to_ts`, with or without a record there."""
        self._after_ts = after_ts
        self._to_ts = to_ts
        self._stop_ts = stop_ts

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
            self.schema.pass_ddl(item)
            self._tables.forget()
            self._readers.clear()
            self.ddls += 1
        return item

    def pieces(self, spilled: Spilled) -> Iterator[Transaction]:
        """The pieces of a large transaction. Blocks."""
        index, place = self._index[spilled.commit_ts]
        found = obinlog_read.head(spilled.read, place.size)
        return self._reader(index).pieces(spilled.read, found, self._zone(found))

    def _items(self) -> Iterator[Item | Spilled]:
        for commit_ts in sorted(self._index):
            if commit_ts <= self._after_ts or (self._stop_ts and commit_ts > self._stop_ts):
                continue
            index, place = self._index[commit_ts]
            file = self._directory.files[index]
            started_s = self._clock.monotonic_s()
            if place.size > BATCH_BYTES:
                found = self._head(file, place)
                if found.ddl is None:
                    yield Spilled(commit_ts, 0, place.size, 0, 0, _reading(file, place))
                    continue
            payload = file.read(place.start, place.size)
            metrics.RELAY_READ_SECONDS.observe(self._clock.monotonic_s() - started_s)
            read = _slices(payload)
            found = obinlog_read.head(read, place.size)
            if found.ddl is not None:
                yield obinlog_read.ddl(read, found)
            else:
                yield self._reader(index).transaction(read, found, self._zone(found))

    def _zone(self, found: RecordHead) -> ToUtc:
        zone = self._zones.get(found.time_zone)
        if zone is None:
            zone = self._zones[found.time_zone] = to_utc(found.time_zone)
        return zone

    def _reader(self, index: int) -> ObinlogReader:
        reader = self._readers.get(index)
        if reader is None:
            reader = ObinlogReader(self._definitions[index], self._tables.resolve)
            self._readers[index] = reader
        return reader


def _reading(file: BinlogFile, place: Place) -> Read:
    return lambda offset, size: file.read(place.start + offset, min(size, place.size - offset))


def _slices(payload: bytes) -> Read:
    return lambda offset, size: payload[offset : offset + size]

"""Value log: the transactions of pumps, put together from the halves in their files, in commit order.

In      the files of a value log, or of those of several pumps; definitions with the DDL history
Out     `Changes` and `SchemaChange` as a file archive has them; or binlogs as the collector hands them on
Why     a value log is in the order in which transactions began
Holds   a transaction belongs to the file that has its prewrite, so files are read apart; its end may lie in
        any file after. Of two prewrites of one transaction the first counts. Time marks, what was rolled
        back and what has no end are left out. Bytes of a write that a kill cut off are passed over, wherever
        they are: the pump appends after them. Transactions of all pumps are in one order, each once. Of every
        transaction 16 bytes are in memory, besides those of one file
        The schema is followed from the first transaction that is read on; what the history has before it is
        applied at once. System schemas are left out, and DDL that changed nothing
Never   opens the index, takes a lock, writes into a pump's directory: the pump may be running. A record that
        is whole and damaged is `Corruption`
Tests   tests/drainer/reading/archive/decode/test_value_log.py, tests/spark/test_export.py
"""

from __future__ import annotations

import contextlib
import functools
import heapq
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

from drainer.places.open_file import File
from drainer.places.place import Place
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.images import Images
from drainer.reading.archive.decode.records import Changes, Record, SchemaChange, changes
from drainer.reading.archive.files.framing import CHUNK, value_records
from drainer.reading.archive.files.payload import PayloadHead
from drainer.reading.archive.files.segments import PUMP, Slice, survey
from drainer.reading.archive.files.selection import Selection
from drainer.stream.pull.merged import Merged
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from drainer.txn import Transaction
from tidb_binlog import binlog, ddl_job, tso
from tidb_binlog.binlog import COMMIT, PREWRITE, Header
from tidb_binlog.errors import ConfigError, Corruption
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.record import (
    VALUE_FOOTER,
    VALUE_FOOTER_MAGIC,
    VALUE_HEADER,
    VALUE_HEADER_SIZE,
    VALUE_LOG_MAGIC,
    RecordError,
    decode_value,
)
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.table_info import SchemaState
from tidb_binlog.tso import Ts
from tidb_binlog.wire import binlog_pb2

_BEGIN: Final = 64
_USUAL_BYTES: Final = 16 << 10
_MAGIC: Final = VALUE_LOG_MAGIC.to_bytes(4, "little")
LONGEST: Final = tso.compose(24 * 3600 * 1000)
"""How long a transaction may be open: no end is searched in files that begin later than that."""


@dataclass(slots=True)
class Transactions:
    """Of one file: (commit_ts, offset of the prewrite), and those without an end, offsets by start_ts.

    `reach`: the highest timestamp in the file. What is committed up to it was begun in the log before that.
    """

    committed: list[tuple[int, int]] = field(default_factory=list)
    unfinished: dict[int, int] = field(default_factory=dict)
    rolled_back: int = 0
    reach: int = 0


class ValueLog:
    """One file and what lies after it. With `skip_damage` what cannot be read is left out."""

    def __init__(self, location: Place, part: Slice, *, skip_damage: bool = False) -> None:
        self._location = location
        self._part = part
        self._skip_damage = skip_damage

    def transactions(self) -> Transactions:
        """Read the file, and those after it until every prewrite has its end. Raises `Corruption`."""
        transactions, early = Transactions(), {}
        for pos, header in self._headers(self._part.name):
            transactions.reach = max(transactions.reach, header.index_ts)
            if header.is_fake:
                continue
            if header.tp != PREWRITE:
                if not self._end(transactions, header):
                    early[header.start_ts] = header
            elif header.start_ts not in transactions.unfinished:
                transactions.unfinished[header.start_ts] = pos
                if header.start_ts in early:
                    self._end(transactions, early.pop(header.start_ts))
        for name in self._part.following:
            if not transactions.unfinished or self._begins_late(name, max(transactions.unfinished)):
                break
            for _, header in self._headers(name):
                if header.tp != PREWRITE:
                    self._end(transactions, header)
        transactions.committed.sort()
        return transactions

    @staticmethod
    def _end(transactions: Transactions, header: Header) -> bool:
        """Note an end; False if its transaction did not begin in the file, or has ended."""
        pos = transactions.unfinished.pop(header.start_ts, None)
        if pos is None:
            return False
        if header.tp == COMMIT:
            transactions.committed.append((header.commit_ts, pos))
        else:
            transactions.rolled_back += 1
        return True

    # -- records ---------------------------------------------------------------------------------

    def _headers(self, name: str) -> Iterator[tuple[int, Header]]:
        """Every whole record of a file."""
        with self._location.open(name) as file:
            at, size = 0, _records_end(file)
            while at < size:
                try:
                    for pos, payload in value_records(file.read, at, size):
                        yield pos, binlog.leading_header(payload[:_BEGIN])
                    return
                except RecordError as error:
                    at = self._after(name, file, error, size)

    def _after(self, name: str, file: File, error: RecordError, size: int) -> int:
        """Where the next record begins. Raises `Corruption` if the one here is damaged, not cut off."""
        header = file.read(error.offset, VALUE_HEADER_SIZE)
        following = _next_record(file, error.offset + 1, size)
        if len(header) == VALUE_HEADER_SIZE and not self._skip_damage:
            magic, length, _ = VALUE_HEADER.unpack(header)
            end = error.offset + VALUE_HEADER_SIZE + length
            if magic == VALUE_LOG_MAGIC and end in (following, size) and not error.torn:
                raise Corruption(
                    f"{self._location.path_of(name)}: {error}",
                    hint="restore the file from a backup; or read with damage=report, without this record",
                )
        return following

    def _begins_late(self, name: str, start_ts: Ts) -> bool:
        begin = self._location.read(name, VALUE_HEADER_SIZE, _BEGIN)
        return bool(begin) and binlog.leading_header(begin).index_ts > start_ts + LONGEST


def _records_end(file: File) -> int:
    """Where the footer of a file begins that is written no more, else its end."""
    assert file.size is not None, "value logs are never compressed"
    footer = file.read(max(0, file.size - VALUE_FOOTER.size), VALUE_FOOTER.size)
    if len(footer) == VALUE_FOOTER.size and VALUE_FOOTER.unpack(footer)[1] == VALUE_FOOTER_MAGIC:
        return file.size - VALUE_FOOTER.size
    return file.size


def _next_record(file: File, at: int, size: int) -> int:
    """Offset of the next whole record; the end of the records if there is none."""
    while at < size:
        data = file.read(at, min(CHUNK, size - at))
        place = data.find(_MAGIC)
        if place < 0:
            at += max(1, len(data) - len(_MAGIC) + 1)
            continue
        at += place
        try:
            next(value_records(file.read, at, size))
        except RecordError:
            at += 1
            continue
        return at
    return size


def payload_at(file: File, pos: int) -> bytes:
    """The payload of the record there."""
    data = file.read(pos, _USUAL_BYTES)
    _, length, _ = VALUE_HEADER.unpack_from(data)
    if VALUE_HEADER_SIZE + length > len(data):
        data = file.read(pos, VALUE_HEADER_SIZE + length)
    return decode_value(data, base=pos)[0]


_NEEDS_HISTORY: Final = "give the file with the DDL history (ddl-history): one job of the history a line"


def followed(definitions: Definitions, first_ts: Ts) -> Translator:
    """Follows the schema from the transaction with this commit_ts on."""
    return Translator(SchemaTracker.from_history(definitions.history, finished_ts=first_ts - 1), Rules())


class PumpReader(ValueLog):
    """Reads the transactions of one file with the DDL history. With `skip_damage` what cannot be read is left
    out."""

    def __init__(
        self, location: Place, part: Slice, definitions: Definitions, *, skip_damage: bool = False
    ) -> None:
        super().__init__(location, part, skip_damage=skip_damage)
        self._definitions = definitions
        self._images = Images()

    def open(self) -> contextlib.AbstractContextManager[File]:
        """The file."""
        return self._location.open(self._part.name)

    def records(self, selection: Selection) -> Iterator[Record]:
        """Raises `Corruption`, and `ConfigError` without a DDL history."""
        committed = [entry for entry in self.transactions().committed if selection.wants_ts(entry[0])]
        if not committed:
            return
        if not self._definitions.history:
            raise ConfigError(
                f"{self._location.shown} is a value log, which has no definitions of tables",
                hint=_NEEDS_HISTORY,
            )
        translator = followed(self._definitions, committed[0][0])
        with self.open() as file:
            for commit_ts, pos in committed:
                entry = self.merged(file, commit_ts, pos)
                if entry is not None:
                    yield from self.record(translator, entry, pos, selection)

    def merged(self, file: File, commit_ts: Ts, pos: int) -> Merged | None:
        """A transaction as the collector hands it on; None for the new value of a sequence."""
        payload = payload_at(file, pos)
        message = binlog.parse(payload)
        job = None
        if message.ddl_job_id:
            if message.ddl_query.lstrip().lower().startswith(binlog.SEQUENCE_VALUE):
                return None
            if message.ddl_schema_state != SchemaState.DELETE_ONLY:
                job = self._jobs.get(message.ddl_job_id)
        ended = binlog.commit(message.start_ts, commit_ts)
        return Merged(commit_ts, binlog.join(payload, ended), ddl_job.decode(job) if job else None)

    @functools.cached_property
    def _jobs(self) -> dict[int, bytes]:
        return {(ddl_job.head(job) or ddl_job.parse(job)).id: job for job in self._definitions.history}

    def record(
        self, translator: Translator, entry: Merged, pos: int, selection: Selection
    ) -> Iterator[Record]:
        """What a transaction or a schema change is. Raises `Corruption`."""
        name = self._part.name
        try:
            item = translator.translate(entry)
            if isinstance(item, Transaction):
                begin = Changes(item.commit_ts, item.start_ts, name, pos, 0, [])
                yield from changes(self._images.runs(item, self._definitions), selection, begin)
            elif not item.skip and selection.wants_ddl(item.tables):
                yield SchemaChange(item, name, pos)
        except (Corruption, RowError) as error:
            path = self._location.path_of(name)
            raise Corruption(f"{path}: offset {pos}: {error.message}", hint=error.hint) from None

    def heads(self) -> Iterator[PayloadHead]:
        """Of the transactions that were committed."""
        with self.open() as file:
            for commit_ts, pos in self.transactions().committed:
                payload = payload_at(file, pos)
                message: Any = binlog.parse(payload)
                value = binlog_pb2.PrewriteValue.FromString(message.prewrite_value)
                rows = sum(len(mutation.sequence) for mutation in value.mutations)
                yield PayloadHead(commit_ts, pos, len(payload), message.ddl_job_id != 0, rows)


class _Place(NamedTuple):
    """Where a transaction is. The first one of several with one commit_ts counts."""

    commit_ts: Ts
    log: int
    pos: int


class PumpLogs:
    """Files of value logs. Raises `ConfigError` for a directory without any, and `Corruption`.

    `unfinished`: how many prewrites have no end. `complete_ts`: no transaction up to it will come, though
    the pumps run: a commit_ts is taken when the prewrite is in the log.
    """

    def __init__(
        self, pumps: Sequence[Place], definitions: Definitions, *, skip_damage: bool = False
    ) -> None:
        self._definitions = definitions
        self._logs: list[PumpReader] = []
        self._committed: list[tuple[array[int], array[int]]] = []
        reaches: list[int] = []
        begun: list[int] = []
        for pump in pumps:
            seen = survey(pump, PUMP)
            if not seen.segments:
                raise ConfigError(
                    f"{pump.shown} has no value log", hint="give the data directory of a pump, or a copy"
                )
            reach = 0
            for part in seen.plan(Selection(), skip_damage=skip_damage):
                log = PumpReader(seen.location, part, definitions, skip_damage=skip_damage)
                transactions = log.transactions()
                reach = max(reach, transactions.reach)
                begun += transactions.unfinished
                self._logs.append(log)
                times = array("q", [commit_ts for commit_ts, _ in transactions.committed])
                self._committed.append((times, array("q", [pos for _, pos in transactions.committed])))
            reaches.append(reach)
        self.unfinished = len(begun)
        reach = min(reaches)
        open_ts = [start_ts for start_ts in begun if start_ts + LONGEST > reach]
        self.complete_ts = min([reach, *(start_ts - 1 for start_ts in open_ts)])

    @property
    def files(self) -> int:
        """Count the files."""
        return len(self._logs)

    @property
    def first_ts(self) -> Ts:
        """Tell the first commit_ts; 0 where there is none."""
        return min((times[0] for times, _ in self._committed if times), default=0)

    def after(self, ts: Ts) -> int:
        """How many transactions."""
        return sum(commit_ts > ts for times, _ in self._committed for commit_ts in times)

    def merged(self, after_ts: Ts, stop_ts: Ts) -> Iterator[Merged]:
        """What lies after the one commit_ts, up to the other. A client that was not answered may have told
        two pumps."""
        return (entry for _, entry in self._entries(after_ts, stop_ts))

    def records(self, selection: Selection) -> Iterator[Record]:
        """Raises `Corruption`, and `ConfigError` without a DDL history."""
        if not self._definitions.history:
            raise ConfigError("value logs have no definitions of tables", hint=_NEEDS_HISTORY)
        begin = max(selection.start, self.first_ts, 1)
        translator = followed(self._definitions, begin)
        for place, entry in self._entries(begin - 1, selection.stop or 1 << 63):
            yield from self._logs[place.log].record(translator, entry, place.pos, selection)

    def _entries(self, after_ts: Ts, stop_ts: Ts) -> Iterator[tuple[_Place, Merged]]:
        """Files stay open until the reading ends."""
        last_ts = after_ts
        with contextlib.ExitStack() as ends:
            opened = functools.cache(lambda log: ends.enter_context(self._logs[log].open()))
            for place in self._places():
                if place.commit_ts > stop_ts:
                    return
                if place.commit_ts <= last_ts:
                    continue
                entry = self._logs[place.log].merged(opened(place.log), place.commit_ts, place.pos)
                if entry is not None:
                    last_ts = place.commit_ts
                    yield place, entry

    def _places(self) -> Iterable[_Place]:
        of_files = (
            map(_Place, times, repeat(number), places)
            for number, (times, places) in enumerate(self._committed)
        )
        return heapq.merge(*of_files)

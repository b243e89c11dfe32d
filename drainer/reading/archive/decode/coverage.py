"""Coverage: what a file of an archive holds, how far it can be read, and what is wrong with it.

Out    one `FileCoverage`: counts, first and last commit_ts, readable bytes, the first problem and its place
Holds  a file that its index covers is not read, unless it is to be verified: an index is a summary of its
       records, not a proof that they are still there
Never  raises for damage: it is what this is asked for
Tests  tests/drainer/reading/archive/decode/test_reading.py
"""

from __future__ import annotations

from drainer.formats.relay_payload import in_memory, is_payload_record
from drainer.places.open_file import File
from drainer.places.place import Place
from drainer.reading.archive.decode.reading import is_end
from drainer.reading.archive.decode.value_log import ValueLog, payload_at
from drainer.reading.archive.files import payload as payloads
from drainer.reading.archive.files.framing import after_damage, file_records
from drainer.reading.archive.files.payload import Counts
from drainer.reading.archive.files.segments import PUMP, Segment, Slice, Survey
from drainer.relay.record_readers import RecordReaders
from drainer.stream.translate.row_filter import row_events
from drainer.txn import Transaction
from tidb_binlog.binlog import parse
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.record import FILE_OVERHEAD, RecordError
from tidb_binlog.tso import Ts
from tidb_binlog.wire import binlog_pb2


@dataclass(slots=True)
class FileCoverage:
    """`torn_bytes`: of a record at the end that was never completed. `unfinished`: transactions of a value
    log that are neither committed nor rolled back."""

    file: str
    index: int
    size: int
    kind: str
    first_ts: Ts | None = None
    last_ts: Ts | None = None
    transactions: int = 0
    ddl: int = 0
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    bytes_ok: int = 0
    torn_bytes: int = 0
    unfinished: int = 0
    problem: str | None = None
    problem_pos: int | None = None

    def see(self, commit_ts: Ts, *, is_ddl: bool) -> None:
        """Note a record."""
        if self.last_ts is None or self.first_ts is None:
            self.first_ts = self.last_ts = commit_ts
        elif commit_ts > self.last_ts:
            self.last_ts = commit_ts
        elif commit_ts < self.first_ts:
            self.first_ts = commit_ts
        if is_ddl:
            self.ddl += 1
        else:
            self.transactions += 1

    def count(self, inserts: int, updates: int, deletes: int) -> None:
        """Add rows."""
        self.inserts += inserts
        self.updates += updates
        self.deletes += deletes

    def fail(self, problem: str, pos: int) -> None:
        """Note what is wrong; the first one counts."""
        if self.problem is None:
            self.problem, self.problem_pos = problem, pos


def slices(survey: Survey) -> list[Slice]:
    """A slice a file, for checks of single files."""
    return [survey.slice_of(place) for place in range(len(survey.segments))]


def cover(
    location: Place, part: Slice, segment: Segment | None = None, *, verify: bool = False
) -> FileCoverage:
    """One file. `segment`: what the survey knows of it, so that its index counts."""
    coverage = FileCoverage(part.name, part.index, part.size, part.kind)
    if part.trouble:
        coverage.fail(part.trouble, 0)
    if part.kind == PUMP:
        _value_log(location, part, coverage)
        return coverage
    at = 0
    described = segment.described if segment is not None else None
    if described is not None and segment is not None and not verify:
        usable = segment.compressed or described.size <= segment.size
        if usable and described.size:
            at = coverage.bytes_ok = described.size
            coverage.first_ts, coverage.last_ts = described.first_ts, described.last_ts
            coverage.transactions, coverage.ddl = described.transactions, described.ddl
            for counts in described.rows.values():
                coverage.count(*counts)
            if segment.is_covered:
                return coverage
    with location.open(part.name) as file:
        _records(location, file, part, coverage, at)
    return coverage


def _records(location: Place, file: File, part: Slice, coverage: FileCoverage, at: int) -> None:
    counts = Counts()
    after: int | None = at
    while after is not None:
        try:
            _stretch(file, after, part.kind, coverage, counts)
            break
        except RecordError as error:
            if is_end(file, part, error):
                coverage.torn_bytes = (file.size or 0) - error.offset
                break
            after = after_damage(file.read, error.offset)
            lost = "" if after is not None else "; nothing after it can be read"
            coverage.fail(f"{location.path_of(part.name)}: {error}{lost}", error.offset)
        except Corruption as error:  # it cannot be unpacked
            coverage.fail(error.message, coverage.bytes_ok)
            break
    for kinds in counts.values():
        coverage.count(*kinds)


def _stretch(file: File, at: int, kind: str, coverage: FileCoverage, counts: Counts) -> None:
    """Records from there on, to the end or to one that is damaged."""
    head_of, sent = payloads.HEADS[kind], RecordReaders()
    for pos, payload in file_records(file.read, at):
        try:
            head = head_of(payload, pos, counts)
            coverage.see(head.commit_ts, is_ddl=head.is_ddl)
            if is_payload_record(payload):
                _count_sent(payload, sent, coverage)
        except Corruption as error:
            coverage.fail(error.message, pos)
        coverage.bytes_ok += len(payload) + FILE_OVERHEAD


def _count_sent(payload: bytes, sent: RecordReaders, coverage: FileCoverage) -> None:
    """Rows of a binlog as a pump sent it that went downstream."""
    read, size = in_memory(payload), len(payload)
    item = sent.of(read, size)[1].item(read, size)
    if isinstance(item, Transaction):
        for events in item.tables:
            coverage.count(*(events.kinds.count(kind) for kind in range(3)))


def _value_log(location: Place, part: Slice, coverage: FileCoverage) -> None:
    log = ValueLog(location, part)
    try:
        transactions = log.transactions()
    except Corruption as error:
        coverage.fail(error.message, 0)
        log = ValueLog(location, part, skip_damage=True)
        transactions = log.transactions()
    coverage.unfinished = len(transactions.unfinished)
    coverage.bytes_ok = part.size
    with location.open(part.name) as file:
        for commit_ts, pos in transactions.committed:
            message = parse(payload_at(file, pos))
            coverage.see(commit_ts, is_ddl=message.ddl_job_id != 0)
            for mutation in binlog_pb2.PrewriteValue.FromString(message.prewrite_value).mutations:
                kinds, _ = row_events(mutation, mutation.sequence[:], commit_ts)
                coverage.count(*(kinds.count(kind) for kind in range(3)))

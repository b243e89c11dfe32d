"""Value log: the ordered set of segments. Everything acknowledged is here, in the order of arrival.

Owns    the segments; the newest one is written by one thread, all may be read by any thread
Order   record bytes, then fdatasync, then `end` moves; a new file and its directory entry are on the medium
        before the first record goes in, its predecessor's footer before that
Never   writes again after an error of append or sync: the caller stops (see `writer`)
Tests   tests/crash/test_pump_log.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from pump.log import recovery, segment
from pump.log.block_cache import BlockCache
from pump.log.log_file import OsLogDirectory
from pump.log.record import START, LogRecord, ValuePointer
from pump.log.recovery import FoundSegment
from pump.log.segment import Segment
from tidb_binlog import binlog
from tidb_binlog.errors import BinlogError, Corruption, Rejected
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log
from tidb_binlog.record import VALUE_HEADER_SIZE, RecordError, value_header
from tidb_binlog.tso import Ts

SEGMENT_BYTES_MAX = 500 << 20
_HEAD_BYTES = 40  # of a payload: its type and timestamps are in them
FINALIZE_BYTES_MIN = 51_200  # a newest file at least this large gets its footer at a clean stop

_logger = log.get("value_log")


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """What opening found: where replay begins, and what was cut off the newest file, if anything."""

    replay_from: ValuePointer
    cut: recovery.Cut | None
    cut_path: str = ""
    cut_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ClosedFile:
    """A file that is written no more. `max_ts`: from its footer; None if it has none that can be believed."""

    fid: int
    size: int
    max_ts: Ts | None


class RecordBatch(NamedTuple):
    """Records in log order and the place after the last of them."""

    records: list[LogRecord]
    after: ValuePointer


def header_of(payload: bytes, path: str, offset: int) -> binlog.Header:
    """Header of a payload stored at a place; `Corruption` if it is not a Binlog."""
    try:
        return binlog.header(binlog.parse(payload))
    except Rejected as error:
        raise Corruption(
            f"{path}: offset {offset}: {error.message}", hint="the file was altered; restore it"
        ) from None


class ValueLog:
    """The value log of one data directory. `open` before anything else."""

    def __init__(
        self,
        directory: OsLogDirectory,
        *,
        group_bytes_max: int,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        loss_accepted: Callable[[str, int], bool] = lambda _name, _offset: False,
    ) -> None:
        self._directory = directory
        self._group_bytes_max = group_bytes_max
        self._segment_bytes_max = segment_bytes_max
        self._loss_accepted = loss_accepted
        self._segments: dict[int, Segment] = {}
        self.blocks = BlockCache()
        self.first_fid = 0
        self.active: Segment
        """The newest segment, the only one that is written."""

    # -- opening ---------------------------------------------------------------------------------

    def open(
        self, head: ValuePointer, handle: ValuePointer, known_ts: Ts, sure: ValuePointer = START
    ) -> OpenedLog:
        """Look at all files; verify the newest from `head` on and cut its torn tail.

        `known_ts`: largest timestamp in the index. `sure`: everything before it was acknowledged, as
        everything up to the record at `head` was. Raises `Corruption` naming file and offset.
        """
        fids = sorted(fid for fid in map(segment.fid_of, self._directory.names()) if fid is not None)
        if not fids:
            self._create(0)
            return OpenedLog(ValuePointer(0, 0), None)
        for fid in fids:
            name = segment.name_of(fid)
            self._add(Segment(fid, self._directory.open(name), end=self._directory.size(name)))
        self.first_fid = fids[0]
        plan = recovery.plan([FoundSegment(fid, self._segments[fid].end) for fid in fids], head, handle)
        cut_path, size = self.active.file.path, self.active.end
        newest = self.active.fid
        sure_to = sure.offset if sure.fid == newest else 0
        if head.fid == newest and head != START:
            sure_to = max(sure_to, head.offset + 1)
        cut = self._verify_newest(plan.verify_from.offset, sure_to, known_ts)
        return OpenedLog(plan.replay_from, cut, cut_path, size - cut.offset if cut else 0)

    def _verify_newest(self, start: int, sure_to: int, known_ts: Ts) -> recovery.Cut | None:
        newest, size = self.active, self.active.end
        # What lies further back is verified by the indexer, which reads what the index does not know anyway.
        walked = newest.walk(start, size, self._group_bytes_max)
        newest.max_ts = max(known_ts, largest_ts(walked.records))
        if (
            walked.error is not None
            and (again := self._given_up(newest, walked.end, walked.error)) is not None
        ):
            return self._verify_newest(again, sure_to, newest.max_ts)
        newest.end = walked.end
        is_closed = walked.error is not None and newest.footer_at(walked.end) is not None
        cut = None
        if walked.error is not None and not is_closed:
            cut = self._cut(newest, walked.error, size, sure_to)
        # The last group may be in the page cache alone: a killed process had not synced it, or a sync had
        # failed, after which the kernel takes the pages for clean and the next sync says yes.
        newest.file.renew(min(walked.checked_from, max(newest.end - self._group_bytes_max, 0)))
        if is_closed:
            self._create(newest.fid + 1)
        return cut

    def _cut(self, newest: Segment, error: RecordError, size: int, sure_to: int) -> recovery.Cut:
        at = error.offset
        # One record beyond the reach of a single group decides; one nearer is only reported.
        later = newest.find_record(at + self._group_bytes_max + 1, size) or newest.find_record(at + 1, size)
        tear = recovery.Tear(at, size, error.reason, later, later is not None and _has_pair(newest, at, size))
        verdict = recovery.judge_tear(
            tear,
            acknowledged_to=sure_to,
            group_bytes_max=self._group_bytes_max,
            loss_accepted=self._loss_accepted(segment.name_of(newest.fid), at),
        )
        if isinstance(verdict, recovery.RefuseStart):
            raise self._refusal(newest, at, verdict.reason)
        newest.file.truncate(at)
        newest.end = at
        return verdict

    @staticmethod
    def _refusal(damaged: Segment, offset: int, reason: str) -> Corruption:
        return Corruption(
            f"{damaged.file.path}: offset {offset}: {reason}",
            hint="restore the file from a backup, or give up what is lost there with "
            f"`--accept-loss {segment.name_of(damaged.fid)}:{offset}`",
        )

    def _given_up(self, damaged: Segment, offset: int, error: RecordError) -> int | None:
        """Where records continue after a damage whose loss is accepted; None if it is not, or they do not."""
        if not self._loss_accepted(segment.name_of(damaged.fid), offset):
            return None
        again = damaged.resume_at(offset)
        _logger.error("loss accepted", file=damaged.file.path, error=error, goes_on_at=again)
        return again

    def _create(self, fid: int) -> None:
        self._add(Segment(fid, self._directory.create(segment.name_of(fid)), end=0))

    def _add(self, newest: Segment) -> None:
        self._segments[newest.fid] = newest
        self.active = newest

    # -- writing: one thread ---------------------------------------------------------------------

    @property
    def end(self) -> ValuePointer:
        """After the last durable record."""
        newest = self.active
        return ValuePointer(newest.fid, newest.end)

    def append(self, payloads: Sequence[bytes]) -> list[ValuePointer]:
        """Write one group and return the places of its records. Not durable before `commit`."""
        if self.active.end > self._segment_bytes_max:
            self.active.close_with_footer()
            self._create(self.active.fid + 1)
        newest, at = self.active, self.active.end
        fid, make = newest.fid, tuple.__new__  # a NamedTuple's own constructor is a Python function
        places: list[ValuePointer] = []
        parts: list[bytes] = []
        for payload in payloads:
            places.append(make(ValuePointer, (fid, at)))
            parts += (value_header(payload), payload)
            at += VALUE_HEADER_SIZE + len(payload)
        newest.file.append(parts)
        return places

    def commit(self, places: Sequence[ValuePointer], last_size: int, max_ts: Ts, *, sync: bool) -> None:
        """Make the group just appended durable and readable."""
        newest = self.active
        if sync:
            newest.file.sync()
        newest.max_ts = max(newest.max_ts, max_ts)
        newest.end = places[-1].offset + VALUE_HEADER_SIZE + last_size

    def close(self, *, healthy: bool) -> None:
        """Close all files; the newest gets its footer if it is large and nothing went wrong."""
        try:
            if healthy and self.active.end >= FINALIZE_BYTES_MIN:
                self.active.close_with_footer()
        finally:
            for segment in self._segments.values():
                segment.file.close()

    # -- reading: any thread ---------------------------------------------------------------------

    def segment(self, fid: int) -> Segment:
        try:
            return self._segments[fid]
        except KeyError:
            raise Corruption(
                f"the index points into {segment.name_of(fid)}, which does not exist",
                hint="restore the file, or stop the pump and remove the directory `kv`",
            ) from None

    def read(self, place: ValuePointer) -> bytes:
        """Payload at a place; `Corruption` if there is none."""
        return self.segment(place.fid).read(place.offset)

    def head_at(self, place: ValuePointer) -> binlog.Head | None:
        """Type and timestamps of the record at a place, not verified; None if there is none."""
        try:
            return binlog.leading_header(self.segment(place.fid).begin(place.offset, _HEAD_BYTES))
        except (BinlogError, OSError):
            return None

    def record_batches(self, cursor: ValuePointer, stop: ValuePointer) -> Iterator[RecordBatch]:
        """Records in [cursor, stop) in log order, about a megabyte of log at a time. `Corruption` at a bad
        one, after those in front of it; where its loss is accepted, the next one follows."""
        fid, offset = cursor
        while fid <= stop.fid:
            file = self.segment(fid)
            limit = stop.offset if fid == stop.fid else file.end
            if offset > file.end and not self._loss_accepted(segment.name_of(fid), file.end):
                raise self._refusal(file, file.end, f"the file ends early, there were records up to {offset}")
            again: int | None = None
            for records, after, error in file.scan(offset, limit):
                if records:
                    yield RecordBatch(records, ValuePointer(fid, after))
                if error is not None and (fid == stop.fid or file.footer_at(after) is None):
                    if not self._loss_accepted(segment.name_of(fid), after):
                        raise self._refusal(file, after, error.reason)
                    again = self._given_up(file, after, error)
            fid, offset = (fid + 1, 0) if again is None else (fid, again)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum([segment.end for segment in tuple(self._segments.values())])

    def starts(self) -> dict[int, int]:
        """Bytes of the files before each one."""
        segments = tuple(self._segments.values())
        ends = accumulate([segment.end for segment in segments], initial=0)
        return dict(zip([segment.fid for segment in segments], ends, strict=False))

    def end_of(self, fid: int) -> int:
        """Bytes of a file, a footer included where the file was there at start."""
        return self.segment(fid).end

    # -- retention -------------------------------------------------------------------------------

    def closed_files(self) -> list[ClosedFile]:
        """All files but the newest, ascending. Reads the footers that were not read yet."""
        return [
            ClosedFile(segment.fid, segment.end, segment.closed_max_ts())
            for segment in list(self._segments.values())
            if segment is not self.active
        ]

    def remove(self, upto_fid: int) -> int:
        """Remove every file up to this one, never the newest, the oldest first; returns their bytes.

        A read of one of them that is under way finishes undisturbed. Raises `OSError`.
        """
        removed = 0
        for fid in [fid for fid in list(self._segments) if fid <= upto_fid and fid != self.active.fid]:
            gone = self._segments[fid]
            self._directory.remove(segment.name_of(fid))
            del self._segments[fid]
            self.first_fid = fid + 1
            gone.file.close()
            removed += gone.end
        if removed:
            self._directory.sync()
        return removed


def largest_ts(records: Sequence[LogRecord]) -> Ts:
    """Largest index timestamp; 0 without records."""
    return max([start if tp == binlog.PREWRITE else commit for tp, start, commit, _ in records], default=0)


def _has_pair(newest: Segment, at: int, size: int) -> bool:
    """Whether after a tear at `at` lie a prewrite and, later, the end of its transaction."""
    first = newest.find_record(at + 1, size)
    prewrites: set[int] = set()
    for scanned in () if first is None else newest.scan(first, size):
        for record in scanned.records:
            if record.tp == binlog.PREWRITE:
                prewrites.add(record.start_ts)
            elif record.start_ts in prewrites:
                return True
    return False

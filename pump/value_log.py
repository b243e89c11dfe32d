"""Value log: the ordered set of segments. Everything acknowledged is here, in the order of arrival.

Owns    the segments; the newest one is written by one thread, all may be read by any thread
Order   record bytes, then fdatasync, then `end` moves; a new file and its directory entry are on the medium
        before the first record goes in, its predecessor's footer before that
Never   writes again after an error of append or sync: the caller stops (see `writer`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from common import binlog
from common.errors import Corruption, Rejected
from common.record import VALUE_HEADER_SIZE, RecordError, value_header
from pump import recovery, segment
from pump.log_file import LogDirectory
from pump.logged import Logged
from pump.recovery import FoundSegment
from pump.segment import Segment
from pump.value_pointer import ValuePointer

SEGMENT_BYTES_MAX = 500 << 20
FINALIZE_BYTES_MIN = 51_200  # a newest file at least this large gets its footer at a clean stop


@dataclass(frozen=True, slots=True)
class Opened:
    """What opening found: where replay begins, and what was cut off the newest file, if anything."""

    replay_from: ValuePointer
    cut: recovery.Cut | None
    cut_path: str = ""
    cut_bytes: int = 0


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
        directory: LogDirectory,
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

    # -- opening ---------------------------------------------------------------------------------

    def open(self, head: ValuePointer, handle: ValuePointer, known_ts: int) -> Opened:
        """Open all files; verify the newest from `head` on and cut its torn tail.

        `known_ts`: largest timestamp in the index. Raises `Corruption` naming file and offset.
        """
        fids = sorted(fid for fid in map(segment.fid_of, self._directory.names()) if fid is not None)
        for fid in fids:
            file = self._directory.open(segment.name_of(fid))
            self._segments[fid] = Segment(fid, file, end=file.size())
        if not fids:
            self._create(0)
            return Opened(ValuePointer(0, 0), None)
        plan = recovery.plan([FoundSegment(fid, self._segments[fid].end) for fid in fids], head, handle)
        cut_path, size = self.active.file.path, self.active.end
        cut = self._verify_newest(plan.verify_from.offset, head, known_ts)
        return Opened(plan.replay_from, cut, cut_path, size - cut.offset if cut else 0)

    def _verify_newest(self, start: int, head: ValuePointer, known_ts: int) -> recovery.Cut | None:
        newest, size, at = self.active, self.active.end, start
        newest.max_ts = known_ts
        try:
            for offset, payload, behind in newest.scan(start, size):
                header = header_of(payload, newest.file.path, offset)
                newest.max_ts = max(newest.max_ts, header.index_ts)
                at = behind
        except RecordError as error:
            at = error.offset
            if newest.footer_at(at) is not None:
                newest.end = at
                self._create(newest.fid + 1)
                return None
            return self._cut(newest, error, size, head)
        newest.end = at
        return None

    def _cut(self, newest: Segment, error: RecordError, size: int, head: ValuePointer) -> recovery.Cut:
        at = error.offset
        # One record beyond the reach of a single group decides; one nearer is only worth telling.
        later = newest.find_record(at + self._group_bytes_max + 1, size) or newest.find_record(at + 1, size)
        tear = recovery.Tear(at, size, error.reason, later)
        verdict = recovery.judge_tear(
            tear,
            acknowledged_to=head.offset + 1 if head.fid == newest.fid and head != (0, 0) else 0,
            group_bytes_max=self._group_bytes_max,
            loss_accepted=self._loss_accepted(segment.name_of(newest.fid), at),
        )
        if isinstance(verdict, recovery.Refuse):
            raise Corruption(
                f"{newest.file.path}: offset {at}: {verdict.reason}",
                hint="restore the file from a backup, or give up everything behind this place with "
                f"`--accept-loss {segment.name_of(newest.fid)}:{at}`",
            )
        newest.file.truncate(at)
        newest.end = at
        return verdict

    def _create(self, fid: int) -> None:
        file = self._directory.create(segment.name_of(fid))
        self._segments[fid] = Segment(fid, file, end=0)

    # -- writing: one thread ---------------------------------------------------------------------

    @property
    def active(self) -> Segment:
        """The newest segment, the only one that is written."""
        return self._segments[next(reversed(self._segments))]

    @property
    def end(self) -> ValuePointer:
        """Behind the last durable record."""
        newest = self.active
        return ValuePointer(newest.fid, newest.end)

    @property
    def first_fid(self) -> int:
        return next(iter(self._segments))

    def append(self, payloads: Sequence[bytes]) -> list[ValuePointer]:
        """Write one group and return the places of its records. Not durable before `commit`."""
        if self.active.end > self._segment_bytes_max:
            self.active.close_with_footer()
            self._create(self.active.fid + 1)
        newest, at = self.active, self.active.end
        places, parts = [], []
        for payload in payloads:
            places.append(ValuePointer(newest.fid, at))
            parts.append(value_header(payload))
            parts.append(payload)
            at += VALUE_HEADER_SIZE + len(payload)
        newest.file.append(parts)
        return places

    def commit(self, places: Sequence[ValuePointer], last_size: int, max_ts: int, *, sync: bool) -> None:
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
            for found in self._segments.values():
                found.file.close()

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

    def forward(self, cursor: ValuePointer, stop: ValuePointer) -> Iterator[tuple[Logged, ValuePointer]]:
        """Records in [cursor, stop) in log order, each with the place behind it."""
        fid, offset = cursor
        while fid <= stop.fid:
            found = self.segment(fid)
            limit = stop.offset if fid == stop.fid else found.end
            try:
                for at, payload, behind in found.scan(offset, limit):
                    header = header_of(payload, found.file.path, at)
                    place = ValuePointer(fid, at)
                    logged = Logged(header.tp, header.start_ts, header.commit_ts, place)
                    yield logged, ValuePointer(fid, behind)
            except RecordError as error:
                if fid == stop.fid or found.footer_at(error.offset) is None:
                    raise found.corruption(error) from None
            fid, offset = fid + 1, 0

"""Stream archive: an archive that is written meanwhile, as a streaming query sees it.

Owns    nothing: what it knows is read again every time, but for the kind and the indexes of closed segments
Holds   what was listed and the writer's mark belong together. A segment may be compressed meanwhile: offsets
        in it stay what they are
Never   reads a value log: its binlogs are not in the order of their commits
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from drainer.formats import binlog_file
from drainer.formats.binlog_file import SYNCED, SYNCED_SIZE, Synced
from drainer.formats.segment_index import UTC
from drainer.places.open_file import COMPRESSED
from drainer.places.place import Entry, Place
from drainer.reading.archive.files import segments
from drainer.reading.archive.files.framing import file_records
from drainer.reading.archive.files.payload import HEADS, PB, RELAY
from drainer.reading.archive.files.segments import AUTO, Segment, Slice, Survey
from drainer.spark.source.stream_offsets import (
    BEFORE_ALL,
    START,
    Admission,
    Extent,
    Offset,
    SegmentRange,
    Step,
    Sums,
    advance,
    between,
    cut,
    extents,
    gap,
    is_behind,
    places_of,
    settle,
)
from tidb_binlog.errors import ConfigError, Corruption, Unavailable
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.observe import log
from tidb_binlog.record import FILE_OVERHEAD, RecordError
from tidb_binlog.tso import Ts

logger = log.get("drainer.spark.stream_archive")
T = TypeVar("T")

_TRIES: Final = 20
_UNKNOWN: Final = 1 << 62
"""Size of a compressed segment that no index tells of: offsets in it are of what comes out of it."""


@dataclass(frozen=True, slots=True)
class StreamPart:
    """What a task reads: of a slice what is at or above `start_ts`. Below it a relay log has what came
    before, and what a drainer wrote anew that started again."""

    slice: Slice
    start_ts: Ts


class StreamArchive:
    """Raises `ConfigError`, `Corruption`, `Unavailable` from every method.

    `keep_going`: lost segments and gaps are passed over, and said in the log.
    """

    def __init__(
        self,
        location: Place,
        kind: str = AUTO,
        *,
        keep_going: bool = False,
        damage: str = "fail",
        time_zone: str = UTC,
    ) -> None:
        if kind not in (AUTO, PB, RELAY):
            raise ConfigError(
                f"{location.shown}: an archive of kind {kind} cannot be followed",
                hint="value logs are in no order of commits; follow a drainer's archive (db-type = file)",
            )
        self._location = location
        self._kind = kind
        self._keep_going = keep_going
        self._time_zone = time_zone
        self._skips_damage = damage == "report"
        self._closed: dict[int, Segment] = {}

    # -- what a query asks -----------------------------------------------------------------------

    def beginning(self, start_ts: Ts) -> Offset:
        """In front of the first record at or above it, or some segment before."""
        begin = START
        for extent in self.extents() if start_ts else ():
            first_ts = self._segment(extent).first_ts
            if first_ts is None or first_ts >= start_ts:
                if begin == START and extent.segment and first_ts != start_ts and self.kind == PB:
                    self._lose(f"it begins with {extent.name}, and this query with commit_ts {start_ts}")
                break
            begin = Offset(extent.segment, 0, 0)
        return begin

    def end(self) -> Offset:
        """After everything that may be read now; its commit_ts is not known."""
        readable = self.extents()
        return Offset(readable[-1].segment, readable[-1].size, 0) if readable else START

    def latest(self, start: Offset, admission: Admission, upto: Offset | None = None) -> Offset:
        """Where the batch that begins at `start` ends; `start` itself if nothing is new. `upto`: of `end`."""
        return self._patiently(lambda: self._latest(start, admission, upto))

    def _latest(self, start: Offset, admission: Admission, upto: Offset | None) -> Offset:
        readable = self.extents()
        if upto is not None:
            readable = [_before(extent, upto) for extent in readable if extent.segment <= upto.segment]
        begin = self._settled(start, readable)
        if is_behind(begin, readable):
            if readable and begin.segment == readable[-1].segment:
                # Its writer started again and took back a DDL at its end, which it writes again.
                logger.warning("the archive is behind this query", start=str(start), size=readable[-1].size)
                return start
            raise Corruption(
                f"{self._location.shown} ends before segment {begin.segment}, of which this query has read",
                hint="was it replaced by an older copy? Restore it, or start anew with another checkpoint",
            )
        if not readable:
            return start
        if upto is not None and begin >= upto:
            return start
        return advance(begin, readable, admission, self.steps, self._sums)

    def first_needed(self, start: Offset) -> int:
        """The first segment of a batch from there on, whether it is still there or not."""
        if start.segment != BEFORE_ALL:
            return start.segment
        return settle(start, self.extents())[0].segment

    def check_from(self, segment: int) -> None:
        """Raises `Corruption` if that segment is gone, or one after it that is followed by others."""
        self._settled(Offset(segment, 0, 0), self.extents())

    def parts(self, start: Offset, end: Offset, max_bytes: int) -> list[StreamPart]:
        """What a batch reads, in order; the same rows whenever it is asked."""
        return self._patiently(lambda: self._parts(start, end, max_bytes))

    def _parts(self, start: Offset, end: Offset, max_bytes: int) -> list[StreamPart]:
        readable = self.extents()
        begin = self._settled(start, readable)
        for extent in readable:
            if not begin.segment <= extent.segment <= end.segment:
                continue
            segment = self._segment(extent)
            why = segment.trouble or (segments.short(segment) if extent.closed else "")
            if why and not self._skips_damage:
                raise Corruption(f"{self._location.shown}: {why}", hint="restore it from a backup")
        parts: list[StreamPart] = []
        after_ts = start.commit_ts
        for piece in between(begin, end, readable):
            extent = Extent(piece.segment, piece.name, piece.end, True)
            if self.kind == RELAY:
                # From the beginning of the file: what its records are about is said there.
                parts.append(StreamPart(self._slice(piece._replace(begin=0)), after_ts + 1))
                for step in self.steps(extent, piece.begin):
                    after_ts = max(after_ts, step.commit_ts)
            else:
                steps = self._coarse(piece) or self.steps(extent, piece.begin)
                parts += [StreamPart(self._slice(smaller), 0) for smaller in cut(piece, steps, max_bytes)]
        return parts

    def _slice(self, piece: SegmentRange) -> Slice:
        zone = self._time_zone
        if zone != UTC:
            extent = Extent(piece.segment, piece.name, piece.end, True)
            zone = segments.zone_of(self._segment(extent).described, zone)
        return Slice(piece.name, piece.segment, self.kind, piece.begin, piece.end, piece.end, time_zone=zone)

    def survey(self, parts: Sequence[StreamPart]) -> Survey:
        """Of the segments of these parts alone."""
        by_index = {extent.segment: extent for extent in self.extents()}
        indexes = sorted({part.slice.index for part in parts})
        inspected = [self._segment(by_index[index]) for index in indexes if index in by_index]
        return Survey(self._location, self.kind, tuple(inspected))

    def present(self, part: StreamPart) -> Slice:
        """The slice under the name that its segment has now. Raises `Corruption` if it is gone."""
        planned = part.slice
        if self._location.has(planned.name):
            return planned
        for index, name in self._names():
            if index == planned.index:
                return replace(planned, name=name)
        raise Corruption(
            f"{self._location.path_of(planned.name)} is gone, and a batch was to read it",
            hint="restore it from a backup and start again; keep segments longer (retention-time)",
        )

    def _patiently(self, ask: Callable[[], T]) -> T:
        """A file may be compressed or removed between being listed and being opened: read again."""
        for _ in range(_TRIES):
            try:
                return ask()
            except FileNotFoundError as error:
                missing = error.filename
        raise Unavailable(
            f"{missing} is listed and cannot be opened", hint="check the file system of the archive"
        )

    # -- what is there ---------------------------------------------------------------------------

    def extents(self) -> list[Extent]:
        """What may be read now."""
        for _ in range(_TRIES):
            before, entries, mark = self._mark(), self._location.list(), self._mark()
            synced, synced_before = Synced.from_bytes(mark), Synced.from_bytes(before)
            if len(mark) == SYNCED_SIZE and synced is None:
                continue  # it was being written
            listed = [
                (index, entry.name, self._size(index, entry.name, entry.size))
                for index, entry in segments.named(entries)
            ]
            readable = extents(listed, synced)
            # A writer only appends to what it has synced: a file that is shorter has lost its end.
            if readable is not None and not any(
                synced_before and synced_before.index == index and synced_before.offset > size
                for index, _, size in listed
            ):
                return readable
        raise Unavailable(
            f"{self._location.shown}: the file {SYNCED} and the segments do not belong together",
            hint="is the newest segment missing, or its end? Restore it, or remove the file if no drainer"
            " writes there",
        )

    def _mark(self) -> bytes:
        return self._location.content(SYNCED) or b""

    @property
    def kind(self) -> str:
        """`pb` or `relay`; by the first record, once there is one."""
        if self._kind == AUTO:
            kind = segments.kind_of_files(self._location, [name for _, name in self._names()])
            if kind is None:
                return PB
            self._kind = kind
        return self._kind

    def steps(self, extent: Extent, position: int) -> Iterator[Step]:
        """The records of an extent, compared with their checksums, from a position on."""
        head_of, at, last_ts = HEADS[self.kind], position, 0
        with self._location.open(extent.name) as file:

            def read(offset: int, size: int) -> bytes:
                return file.read(offset, min(size, extent.size - offset))

            try:
                for begin, payload in file_records(read, position):
                    at = begin + FILE_OVERHEAD + len(payload)
                    head = head_of(payload, begin, None)
                    last_ts = head.commit_ts
                    yield Step(last_ts, begin, at, head.rows)
            except RecordError as error:
                if not extent.closed and binlog_file.is_torn_end(
                    error, extent.segment, None, read, extent.size
                ):
                    return
                if not self._skips_damage or not extent.closed:
                    path = self._location.path_of(extent.name)
                    raise binlog_file.damage(path, error) from None
                yield Step(last_ts, at, extent.size)

    def _names(self) -> list[tuple[int, str]]:
        return [(index, entry.name) for index, entry in segments.named(self._location.list())]

    def _settled(self, start: Offset, readable: list[Extent]) -> Offset:
        begin, lost = settle(start, readable)
        if lost is not None:
            error = lost.error(self._location.shown)
            if not self._keep_going:
                raise error
            logger.error("rows are lost to this query", reason=error.message)
        missing = gap(readable, begin.segment)
        if missing is not None:
            self._lose(f"after segment {missing[0]} comes {missing[1]}")
        return begin

    def _lose(self, why: str) -> None:
        """Raises `Corruption` unless the query is to go on without what is missing."""
        text = f"{self._location.shown}: {why}"
        if not self._keep_going:
            raise Corruption(text, hint="restore what is missing; `binlog-spark files` shows all of it")
        logger.error("rows are lost to this query", reason=text)

    # -- indexes ---------------------------------------------------------------------------------

    def _segment(self, extent: Extent) -> Segment:
        """What its index says; kept for a closed segment."""
        segment = self._closed.get(extent.segment)
        if segment is None:
            entry = Entry(extent.name, extent.size, 0)
            segment = segments.inspect(self._location, self.kind, extent.segment, entry)
            if extent.closed and segment.is_covered:
                self._closed[extent.segment] = segment
        return segment

    def _size(self, index: int, name: str, size: int) -> int:
        if not name.endswith(COMPRESSED):
            return size
        described = self._segment(Extent(index, name, size, True)).described
        return described.size if described is not None else _UNKNOWN

    def _sums(self, extent: Extent) -> Sums | None:
        segment = self._segment(extent)
        if segment.described is None or not segment.is_covered or segment.described.size != extent.size:
            return None
        rows = sum(sum(counts) for counts in segment.described.rows.values())
        return Sums(rows, segment.described.last_ts)

    def _coarse(self, piece: SegmentRange) -> list[Step]:
        """Stretches of a piece that end at places of its index; nothing if it has none."""
        if self.kind == RELAY:
            return []
        segment = self._closed.get(piece.segment)
        if segment is None or segment.described is None:
            return []
        return places_of(segment.described.places, piece)


def _before(extent: Extent, upto: Offset) -> Extent:
    """As much of an extent as there was when `upto` was its archive's end."""
    if extent.segment < upto.segment:
        return extent
    return extent._replace(size=min(extent.size, upto.position), closed=False)

"""Stream offsets: how far a query over a growing archive has come, and how far it may go next.

In      segments as they were listed, what their writer says is on the medium, records in order, limits
Out     offsets: (segment, position, commit_ts), the next one of a batch, what its partitions read
Holds   an offset never goes back, lies between records, never in the middle of a DDL; before it is nothing
        that was not synced. A segment that was read to its end and has a successor is left for the successor,
        so that it may be removed then. What was removed before it was read is an error, never passed over
        unless that was asked for
Never   reads a relay log's record twice: a drainer that starts again writes anew what lies after its
        checkpoint, and only what is above the offset's commit_ts is new
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from drainer.formats.binlog_file import Synced
from tidb_binlog.errors import ConfigError, Corruption
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts

BATCH_BYTES: Final = 64 << 20
"""Of the archive, that a batch reads, where nothing else was asked for."""
INTERVAL_S: Final = 1.0
"""Between batches."""
BEFORE_ALL: Final = -1
"""Segment of an offset in front of whatever segment is the first one."""


class Offset(NamedTuple):
    """Everything before `position` of `segment` was read; `commit_ts` is the largest one in it."""

    segment: int
    position: int
    commit_ts: Ts

    def document(self) -> dict[str, Any]:
        """As Spark keeps it in its checkpoint."""
        return {"segment": self.segment, "position": self.position, "commit_ts": self.commit_ts}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Offset:
        """Raises `ConfigError` for an offset of something else."""
        try:
            return cls(int(document["segment"]), int(document["position"]), int(document["commit_ts"]))
        except (KeyError, TypeError, ValueError):
            raise ConfigError(
                f"the checkpoint has an offset that is none of an archive: {document}",
                hint="give this query a checkpoint directory of its own",
            ) from None


START: Final = Offset(BEFORE_ALL, 0, 0)


class Extent(NamedTuple):
    """What may be read of a segment: `size` bytes. `closed`: there is a newer one, so it gets no more."""

    segment: int
    name: str
    size: int
    closed: bool


class SegmentRange(NamedTuple):
    """What a partition reads: records between two positions of a segment."""

    segment: int
    name: str
    begin: int
    end: int


class Step(NamedTuple):
    """A record of a segment: where it ends, and its rows if they are counted."""

    commit_ts: Ts
    begin: int
    end: int
    rows: int = 0


def extents(listed: Sequence[tuple[int, str, int]], synced: Synced | None) -> list[Extent] | None:
    """What may be read of listed segments (index, name, size), in order.

    `synced` was read after listing. None: it names a newer segment, list again. Where it names an older one
    or is not there, a Go drainer writes, which says nothing: whole records count then.
    """
    if not listed:
        return [] if synced is None or not synced.offset else None
    newest = listed[-1][0]
    if synced is not None and synced.index > newest:
        return None
    readable = [Extent(index, name, size, True) for index, name, size in listed]
    index, name, size = listed[-1]
    if synced is not None and synced.index == index:
        size = min(size, synced.offset)
    readable[-1] = Extent(index, name, size, False)
    return readable


def gap(readable: Sequence[Extent], start: int) -> tuple[int, int] | None:
    """The first two segments from `start` on between which one is missing, or that have one index."""
    for before, after in itertools.pairwise(readable):
        if after.segment != before.segment + 1 and before.segment >= start:
            return before.segment, after.segment
    return None


@dataclass(frozen=True, slots=True)
class Lost:
    """Segments from `first` to before `next` were removed before they were read, perhaps only in part."""

    first: int
    next: int

    def error(self, where: str) -> Corruption:
        gone = f"segment {self.first}" + (f" to {self.next - 1}" if self.next - 1 > self.first else "")
        return Corruption(
            f"{where}: {gone} is gone and was not read to its end: rows are lost to this query",
            hint="restore it from a backup and start again; keep segments longer (retention-time); or set "
            "failOnDataLoss=false to continue without them",
        )


def settle(start: Offset, readable: Sequence[Extent]) -> tuple[Offset, Lost | None]:
    """Where reading continues, in an existing segment, and what retention took before it was read."""
    if not readable:
        return start, None
    first = readable[0].segment
    if start.segment == BEFORE_ALL:
        return start._replace(segment=first, position=0), None
    if start.segment < first:
        return Offset(first, 0, start.commit_ts), Lost(start.segment, first)
    return start, None


def is_behind(start: Offset, readable: Sequence[Extent]) -> bool:
    """Whether the archive ends before the offset: its writer cut a DDL at its end, which comes again."""
    if not readable:
        return start.segment != BEFORE_ALL
    newest = readable[-1]
    return (newest.segment, newest.size) < (start.segment, start.position)


@dataclass(slots=True)
class Admission:
    """Decides record by record how far a batch goes: at most so many rows and bytes (0: no limit), but one
    transaction at least, and all records of a DDL or none. `stop_ts` is the last one wanted, 0: all."""

    max_rows: int = 0
    max_bytes: int = 0
    stop_ts: Ts = 0
    rows: int = 0
    bytes: int = 0
    records: int = 0
    last_ts: Ts = 0

    def takes(self, step: Step) -> bool:
        """Whether the next record belongs to the batch; it is counted then."""
        size = step.end - step.begin
        if self.stop_ts and step.commit_ts > self.stop_ts:
            return False
        if self.records and step.commit_ts != self.last_ts and not self._has_room(step.rows, size):
            return False
        self.records += 1
        self.rows += step.rows
        self.bytes += size
        self.last_ts = step.commit_ts
        return True

    def takes_segment(self, rows: int, size: int, last_ts: Ts) -> bool:
        """The same for a whole closed segment of which only sums are known."""
        if (self.stop_ts and last_ts > self.stop_ts) or not self._has_room(rows, size):
            return False
        self.records += 1
        self.rows += rows
        self.bytes += size
        self.last_ts = last_ts
        return True

    def _has_room(self, rows: int, size: int) -> bool:
        return not (
            (self.max_rows and self.rows + rows > self.max_rows)
            or (self.max_bytes and self.bytes + size > self.max_bytes)
        )


class Sums(NamedTuple):
    """What the index of a closed segment says of all of it."""

    rows: int
    last_ts: Ts


def advance(
    start: Offset,
    readable: Sequence[Extent],
    admission: Admission,
    steps: Callable[[Extent, int], Iterable[Step]],
    sums: Callable[[Extent], Sums | None],
) -> Offset:
    """The end of the batch that begins at `start`, which has been settled.

    `steps`: whole records of an extent from a position on. `sums`: of a closed one, if there is an index.
    """
    at = start
    for extent in readable:
        if extent.segment < at.segment:
            continue
        whole = sums(extent) if extent.closed and not at.position else None
        if whole is None or not admission.takes_segment(whole.rows, extent.size, whole.last_ts):
            for step in steps(extent, at.position):
                if not admission.takes(step):
                    return at
                at = Offset(extent.segment, step.end, max(at.commit_ts, step.commit_ts))
        else:
            at = at._replace(commit_ts=max(at.commit_ts, whole.last_ts))
        if extent.closed:
            at = Offset(extent.segment + 1, 0, at.commit_ts)
    return at


def between(start: Offset, end: Offset, readable: Sequence[Extent]) -> list[SegmentRange]:
    """What a batch from `start` to `end` reads. `start` has been settled.

    Raises `Corruption` where the archive no longer has all of it.
    """
    pieces = []
    for extent in readable:
        if not start.segment <= extent.segment <= end.segment:
            continue
        begin = start.position if extent.segment == start.segment else 0
        stop = end.position if extent.segment == end.segment else extent.size
        if begin > extent.size or stop > extent.size:
            raise Corruption(
                f"{extent.name} has {extent.size} bytes, but {max(begin, stop)} of it were there before",
                hint="restore the segment: it was cut or replaced while the query knew more of it",
            )
        if stop > begin:
            pieces.append(SegmentRange(extent.segment, extent.name, begin, stop))
    return pieces


def cut(piece: SegmentRange, steps: Iterable[Step], max_bytes: int) -> list[SegmentRange]:
    """A piece as smaller ones of about `max_bytes`; `steps` are its records, or stretches of them."""
    ranges: list[SegmentRange] = []
    begin = at = piece.begin
    for step in steps:
        if step.begin - begin >= max_bytes:
            ranges.append(piece._replace(begin=begin, end=step.begin))
            begin = step.begin
        at = step.end
    if at > begin:
        ranges.append(piece._replace(begin=begin, end=at))
    return ranges


def places_of(places: Sequence[tuple[int, int]], piece: SegmentRange) -> list[Step]:
    """A piece of a segment as stretches between places of its index, which are (commit_ts, offset)."""
    inner = [(ts, offset) for ts, offset in places if piece.begin < offset < piece.end]
    if not inner:
        return []
    begins = [piece.begin, *(offset for _, offset in inner)]
    ends = [*begins[1:], piece.end]
    times = [inner[0][0], *(ts for ts, _ in inner)]
    return [Step(*stretch) for stretch in zip(times, begins, ends, strict=True)]

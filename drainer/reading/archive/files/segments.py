"""Segments: which files an archive has, and which stretches of them a selection needs.

Out    `Survey`: files in order with what is known of them, and what is wrong; slices to read, each on its own
Holds  a slice begins at a record; slices do not overlap and leave out only what the selection leaves out
Why    a file is skipped by its index, or by the first records of it and of the one after it: no record lies
       after a later one of another file, but where a drainer wrote again what it had written
       What is missing is a stretch of commit_ts: a selection that touches it has no plan, wherever in it the
       selection begins or ends. Of an archive that `.synced` marks, the newest file and its end count, too
Never  raises for a file that is missing or there twice while it is surveyed: `problems` says it
Tests  tests/drainer/reading/archive/files/test_gaps.py, tests/drainer/reading/archive/decode/test_reading.py
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Final

from drainer.formats import binlog_file, segment_index
from drainer.formats.binlog_file import SYNCED, Synced
from drainer.formats.relay_payload import commit_ts_of
from drainer.formats.segment_index import UTC, SegmentIndex
from drainer.places.place import Entry, Place
from drainer.reading.archive.files.framing import file_records
from drainer.reading.archive.files.payload import PB, RELAY, kind_of
from drainer.reading.archive.files.selection import Selection
from drainer.sink.file import table_definitions
from tidb_binlog.binlog import leading_header
from tidb_binlog.errors import ConfigError, Corruption
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.record import FILE_HEADER_SIZE, VALUE_HEADER_SIZE, RecordError
from tidb_binlog.tso import TS_MAX, Ts

PUMP: Final = "pump"
AUTO: Final = "auto"
KINDS: Final = (PB, RELAY, PUMP)
SLICE_BYTES: Final = 128 << 20
WHOLE_FILES: Final = 1 << 62
DEFINITIONS: Final = "definitions"
END: Final = "end"
_VALUE_LOG: Final = re.compile(r"(\d{6,10})\.vlog")
_VALUES: Final = "value"
_AT_ONCE: Final = 16
_HEAD_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a file, or between two of them: what was committed above `after` and below `before`
    (0: ever later) cannot be relied on."""

    kind: str  # missing, doubled, short, DEFINITIONS, END
    segment: str
    offset: int
    text: str
    after: int = 0
    before: int = 0

    def touches(self, start: int, stop: int) -> bool:
        """Whether it matters to who reads from `start` to `stop` (0: to the end)."""
        return max(start, self.after + 1) <= min(stop or TS_MAX, self.before - 1 if self.before else TS_MAX)


@dataclass(frozen=True, slots=True)
class Segment:
    """A file. `first_ts` and `last_ts` as far as they are known without reading it; `described`: its index.

    `trouble` says what is wrong between the file before and this one, or with what belongs to it. `mtime_ns`:
    when it was written for the last time, 0 where it is not known. `synced`: so many bytes of the newest one
    were on the medium, says its writer.
    """

    name: str
    index: int
    size: int
    kind: str
    first_ts: Ts | None = None
    last_ts: Ts | None = None
    described: SegmentIndex | None = None
    compressed: bool = False
    trouble: str = ""
    mtime_ns: int = 0
    synced: int = 0

    @property
    def plain_name(self) -> str:
        """Its name before it was compressed: that of the files beside it."""
        return binlog_file.plain_name(self.name)

    @property
    def is_covered(self) -> bool:
        """The index tells of all of it."""
        return self.described is not None and (self.compressed or self.described.size == self.size)


@dataclass(frozen=True, slots=True)
class Slice:
    """A stretch of a file that is read on its own. `stop` 0: to its end.

    `last`: nothing follows, so it may end in bytes that are no whole record, after those that are known to be
    (`whole`). `following`: the files after it, for what ends there (value logs). `time_zone`: of TIMESTAMPs
    in records that do not say it. `after`: what is at or below it is in files before, and only repeated here.
    """

    name: str
    index: int
    kind: str
    start: int = 0
    stop: int = 0
    size: int = 0
    last: bool = False
    whole: int = 0
    trouble: str = ""
    following: tuple[str, ...] = ()
    time_zone: str = UTC
    after: int = 0

    def joined(self, following: Slice) -> Slice | None:
        """Both as one; None if they do not lie side by side."""
        if self.name != following.name or self.stop != following.start:
            return None
        return replace(self, stop=following.stop, last=following.last)


@dataclass(frozen=True, slots=True)
class Survey:
    """An archive as it was when it was surveyed. `time_zone`: of TIMESTAMPs where nothing says it."""

    location: Place
    kind: str
    segments: tuple[Segment, ...] = ()
    problems: tuple[Problem, ...] = ()
    time_zone: str = UTC

    def plan(
        self, selection: Selection, target_bytes: int = SLICE_BYTES, *, skip_damage: bool = False
    ) -> list[Slice]:
        """What to read, in order. Raises `Corruption` where something of it is missing; with `skip_damage` it
        is left out."""
        if selection.is_empty:
            return []
        if not skip_damage:
            self._refuse_gaps(selection)
        chosen = set(self._wanted(selection))
        slices = [self.slice_of(place) for place in range(len(self.segments)) if place in chosen]
        if self.kind == PUMP:
            return slices
        by_name = {segment.name: segment for segment in self.segments}
        return [cut for part in slices for cut in _cut(part, by_name[part.name], selection, target_bytes)]

    def slice_of(self, place: int) -> Slice:
        """A whole file."""
        segment, last = self.segments[place], place == len(self.segments) - 1
        following = self.segments[place + 1 :] if self.kind == PUMP else ()
        return Slice(
            segment.name,
            segment.index,
            segment.kind,
            size=segment.size,
            last=last,
            whole=max(segment.synced, segment.described.size if segment.described else 0) if last else 0,
            trouble=segment.trouble,
            following=tuple(each.name for each in following),
            time_zone=zone_of(segment.described, self.time_zone),
        )

    def _refuse_gaps(self, selection: Selection) -> None:
        first_ts = next((segment.first_ts for segment in self.segments if segment.first_ts is not None), 0)
        older = []
        if self.kind == PB and self.segments and self.segments[0].index and not selection.continues:
            text = f"it begins with {self.segments[0].name}, at commit_ts {first_ts}: older files are gone"
            older.append(Problem("missing", self.segments[0].name, 0, text, before=first_ts))
        # A range without a beginning begins with what there is.
        start = selection.start or first_ts
        for problem in (*older, *self.problems):
            if self.kind == PUMP or problem.touches(start, selection.stop):
                raise Corruption(
                    f"{self.location.shown}: {problem.text}",
                    hint="restore it from a backup; or leave that time out of the range; or read with"
                    " damage=report, without what is missing",
                )

    def last_ts(self) -> Ts:
        """The last commit_ts, read where no index says it; 0 where there is none."""
        return _last_ts(self.location, self.segments)

    def _wanted(self, selection: Selection) -> Iterable[int]:
        """Places of the segments that may hold what is selected."""
        segments = self.segments
        if self.kind == PUMP:  # ordered by when transactions began, not by when they were committed
            return range(len(segments))
        return (
            place
            for place, segment in enumerate(segments)
            if not _is_before(segment, segments[place + 1 : place + 2], selection.start)
            and not (selection.stop and segment.first_ts is not None and segment.first_ts > selection.stop)
            and not _is_without(segment, selection)
        )


def _is_before(segment: Segment, following: Sequence[Segment], start: int) -> bool:
    if segment.last_ts is not None:
        return segment.last_ts < start
    return any(each.first_ts is not None and each.first_ts < start for each in following)


def _is_without(segment: Segment, selection: Selection) -> bool:
    """Neither a DDL nor a row of the tables is in it, says its index."""
    described = segment.described
    if described is None or not segment.is_covered or described.ddl or selection.takes_all_rows:
        return False
    return not any(
        selection.wants_table(*name) and any(counts[kind] for kind in range(3) if selection.wants_op(kind))
        for name, counts in described.rows.items()
    )


def _cut(whole: Slice, segment: Segment, selection: Selection, target_bytes: int) -> list[Slice]:
    """A segment in slices of about that many bytes, without what lies outside of the range."""
    described = segment.described
    if described is None or segment.compressed or len(described.places) < 2:
        return [whole]
    places = described.places
    if any(after[0] < before[0] for before, after in itertools.pairwise(places)):
        return [whole]
    begin, end = 0, segment.size if not segment.is_covered or whole.last else 0
    for commit_ts, offset in places:
        if commit_ts < selection.start:
            begin = offset
        if selection.stop and commit_ts > selection.stop:
            end = offset
            break
    cuts = [begin]
    for _, offset in places:
        if begin < offset and (not end or offset < end) and offset - cuts[-1] >= target_bytes:
            cuts.append(offset)
    stops = [*cuts[1:], end if end != segment.size else 0]
    return [replace(whole, start=start, stop=stop) for start, stop in zip(cuts, stops, strict=True)]


# -- looking it over -------------------------------------------------------------------------------------


def survey(location: Place, kind: str = AUTO, time_zone: str = UTC) -> Survey:
    """Survey a directory. `time_zone`: that of a Go drainer. Raises `ConfigError` for a directory that is
    not there, or of another kind."""
    if kind != AUTO and kind not in KINDS:
        raise ConfigError(f"{kind!r} is no kind of archive", hint=f"choose from {AUTO}, {', '.join(KINDS)}")
    mark, entries = _listed(location)
    logs = _value_logs(entries)
    if kind in (AUTO, PUMP):
        if not logs and location.has(_VALUES):
            location = location.under(_VALUES)
            logs = _value_logs(location.list())
        if logs or kind == PUMP:
            return _of_pump(location, logs)
    files = named(entries)
    form = kind if kind != AUTO else kind_of_files(location, [entry.name for _, entry in files]) or PB
    return replace(_of_binlog_files(location, form, files, mark), time_zone=time_zone)


def zone_of(described: SegmentIndex | None, otherwise: str) -> str:
    """The time zone of the TIMESTAMPs of a segment."""
    return UTC if described is not None and described.time_zone == UTC else otherwise


def _listed(location: Place) -> tuple[bytes, list[Entry]]:
    """The writer's mark and the files. A writer that is at it may have come between the two: then again."""
    for _ in range(3):
        mark, entries = location.content(SYNCED) or b"", location.list()
        files = named(entries)
        if not _beyond(mark, files):
            break
    return mark, entries


def _beyond(mark: bytes, files: Sequence[tuple[int, Entry]]) -> str:
    """What the writer's mark says to be missing after the newest file; "" for nothing."""
    index, newest = files[-1] if files else (-1, Entry("all that is there", 0, 0))
    synced = Synced.from_bytes(mark)
    if not mark or synced == Synced(max(index, 0), 0):
        return ""
    if synced is None:
        return f"{SYNCED} is damaged: whether files after {newest.name} are missing is not known"
    if synced.index > index:
        return f"file {synced.index} is missing after {newest.name}, says {SYNCED}"
    size = newest.size if not binlog_file.is_compressed(newest.name) else TS_MAX
    if synced.index == index and synced.offset > size:
        return f"{newest.name} has lost {synced.offset - size} bytes at its end, says {SYNCED}"
    return ""


def _value_logs(entries: Iterable[Entry]) -> list[tuple[int, Entry]]:
    return sorted(
        ((int(match[1]), entry) for entry in entries if (match := _VALUE_LOG.fullmatch(entry.name))),
        key=lambda log: log[0],
    )


def named(entries: Iterable[Entry]) -> list[tuple[int, Entry]]:
    """Binlog files in order. One that is being compressed is there twice: the original counts."""
    by_name = {entry.name: entry for entry in entries}
    return [(index, by_name[name]) for index, name in binlog_file.named(by_name)]


def kind_of_files(location: Place, names: Sequence[str]) -> str | None:
    """What the first record says that can be read; None where there is none. Readers find the damage."""
    for name in names:
        with contextlib.suppress(RecordError, Corruption), location.open(name) as file:
            for _, payload in file_records(file.read):
                return kind_of(payload)
    return None


def _of_pump(location: Place, logs: Sequence[tuple[int, Entry]]) -> Survey:
    segments: list[Segment] = []
    problems: list[Problem] = []
    for index, entry in logs:
        trouble = ""
        if segments and index != segments[-1].index + 1:
            trouble = f"value log {segments[-1].index + 1:06d} is missing before {entry.name}"
            problems.append(Problem("missing", entry.name, 0, trouble))
        begin = location.read(entry.name, VALUE_HEADER_SIZE, _HEAD_BYTES)
        first_ts = leading_header(begin).index_ts if begin else None
        segments.append(
            Segment(entry.name, index, entry.size, PUMP, first_ts, trouble=trouble, mtime_ns=entry.mtime_ns)
        )
    return Survey(location, PUMP, tuple(segments), tuple(problems))


def _of_binlog_files(location: Place, kind: str, files: Sequence[tuple[int, Entry]], mark: bytes) -> Survey:
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        inspected = list(pool.map(lambda file: inspect(location, kind, *file), files))
    problems: list[Problem] = []
    for place in range(len(inspected)):
        problems += _problems(location, inspected, place)
    if text := _beyond(mark, files):
        name, size = (inspected[-1].name, inspected[-1].size) if inspected else (SYNCED, 0)
        problems.append(Problem(END, name, size, text, _last_ts(location, inspected)))
    synced = Synced.from_bytes(mark)
    if inspected and synced is not None and synced.index == inspected[-1].index:
        inspected[-1] = replace(inspected[-1], synced=synced.offset)
    troubles: dict[str, list[str]] = {}
    for problem in problems:
        troubles.setdefault(problem.segment, []).append(problem.text)
    segments = (replace(segment, trouble="; ".join(troubles.get(segment.name, ()))) for segment in inspected)
    return Survey(location, kind, tuple(segments), tuple(problems))


def _problems(location: Place, segments: Sequence[Segment], place: int) -> Iterable[Problem]:
    """With a file, or between the one before and it."""
    segment, before = segments[place], segments[place - 1] if place else None
    following = next((other.first_ts for other in segments[place + 1 :] if other.first_ts is not None), 0)
    if before is not None and segment.index == before.index:
        text = f"{before.name} and {segment.name} have the same index"
        yield Problem("doubled", segment.name, 0, text, _last_ts(location, segments[: place - 1]), following)
    elif before is not None and segment.index != before.index + 1:
        missing = f"{before.index + 1}"
        if segment.index > before.index + 2:
            missing = f"{before.index + 1} to {segment.index - 1}"
        text = f"index {missing} is missing between {before.name} and {segment.name}"
        after = _last_ts(location, segments[:place])
        until = segment.first_ts if segment.first_ts is not None else following
        yield Problem("missing", segment.name, 0, text, after, until)
    if segment.described is not None and (text := short(segment)):
        after = _last_ts(location, segments[:place])
        yield Problem("short", segment.name, segment.size, text, after, segment.described.last_ts + 1)
    if segment.trouble:
        after = _last_ts(location, segments[:place])
        until = segment.last_ts + 1 if segment.last_ts is not None else following
        yield Problem(DEFINITIONS, segment.name, 0, segment.trouble, after, until)


def short(segment: Segment) -> str:
    """What its index says to be missing of a file; "" for nothing."""
    described = segment.described
    if described is None or segment.compressed or described.size <= segment.size:
        return ""
    return f"{segment.name} has lost {described.size - segment.size} bytes at its end, says its index"


def _last_ts(location: Place, segments: Sequence[Segment]) -> Ts:
    """The last commit_ts of files, read where no index says it."""
    for segment in reversed(segments):
        if segment.last_ts is not None:
            return segment.last_ts
        last_ts, begin, described = 0, 0, segment.described
        if described is not None and not segment.compressed and not short(segment):
            last_ts, begin = described.last_ts, described.size
        with contextlib.suppress(RecordError, Corruption), location.open(segment.name) as file:
            for _, payload in file_records(file.read, begin):
                last_ts = max(last_ts, commit_ts_of(payload))
        if last_ts:
            return last_ts
    return 0


def inspect(location: Place, kind: str, index: int, entry: Entry) -> Segment:
    """A file of an archive, as far as its index or else its first record tells."""
    name, size = entry.name, entry.size
    compressed = binlog_file.is_compressed(name)
    described, trouble = None, ""
    if kind == PB:
        beside = f"{segment_index.DIRECTORY}/{binlog_file.plain_name(name)}"
        text = location.content(segment_index.file_name(beside))
        described = SegmentIndex.from_json(text) if text else None
        tables = table_definitions.file_name(beside)
        if why := table_definitions.damage(
            location.content(tables) or b"", described.definitions if described else 0
        ):
            trouble = f"{tables} {why}"
    first_ts = last_ts = None
    if described is not None and described.size:
        first_ts = described.first_ts
        if compressed or described.size == size:
            last_ts = described.last_ts
    elif size:
        with contextlib.suppress(Corruption), location.open(name) as file:
            first_ts = _first_ts(file.read(FILE_HEADER_SIZE, _HEAD_BYTES))
    return Segment(name, index, size, kind, first_ts, last_ts, described, compressed, trouble, entry.mtime_ns)


def _first_ts(payload: bytes) -> Ts | None:
    try:
        return commit_ts_of(payload)
    except Corruption:
        return None

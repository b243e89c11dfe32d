"""Replay plan: a range of an archive, frozen, as tasks of known size.

Out    tasks in order: rows between two schema changes with the bytes that hold them, or one schema change
Holds  nothing of the downstream is asked or changed
Why    a job must cut rows into the same chunks whenever it resumes: what decides that is frozen with it
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from drainer.places.place import Place
from drainer.reading.archive.decode import definitions as archived_definitions
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.reading import FAIL, REPORT
from drainer.reading.archive.files.segments import AUTO, PUMP, Slice, Survey, survey
from drainer.reading.archive.files.selection import Selection
from drainer.reading.archive.read_options import time_zone
from drainer.spark.engine import SparkOf
from drainer.spark.replay.epochs import Rows, Step, is_wanted, steps
from drainer.spark.replay.job import Frozen
from drainer.spark.replay.outline import Outline, Point, between, end_of, outline, size_of
from drainer.spark.replay.writer import NOT_SAID, Taking
from tidb_binlog.errors import ConfigError, Corruption
from tidb_binlog.late_dataclass import dataclass, field, replace

if TYPE_CHECKING:
    pass

SMALL_BYTES: Final = 8 << 20
CHUNK_ROWS: Final = 5000
_SLICE_BYTES: Final = 2 << 20
_SHARE_BYTES: Final = (2 << 20, 256 << 20)
_BUCKET_BYTES: Final = 4 << 20
BUCKETS_MAX: Final = 4096
_BUCKETS: Final = (8, BUCKETS_MAX)
_READ_OPTIONS: Final = frozenset({"kind", "damage", "time-zone"})


@dataclass(frozen=True)
class ReplayOptions:
    """`safe`: rows may be downstream already, or be gone. `small_bytes`: steps up to it are done on the
    driver. `skip_ddl`: commit_ts of schema changes that are not run. `source`: options of the data source
    that say how to read: kind, damage, time-zone, fs.*. `continues`: see `Selection`."""

    tables: tuple[str, ...] = ()
    safe: bool = False
    chunk_rows: int = CHUNK_ROWS
    small_bytes: int = SMALL_BYTES
    skip_ddl: frozenset[int] = frozenset()
    source: Mapping[str, str] = field(default_factory=dict)
    continues: bool = False


@dataclass(frozen=True)
class ReplayTask:
    """A step with the bytes that it is about. `buckets` 0: it is done on the driver."""

    step: Step
    slices: tuple[Slice, ...] = ()
    buckets: int = 0


@dataclass(frozen=True)
class ReplayPlan:
    """What is to be done, and from where rows are read.

    `location`: the directory of the slices. `oldest`: index of its first segment, None without one.
    `with_rows`: the tables that rows may be of, None: of any. `defines_all`: no definition need come from the
    downstream. `changes`: rows in the files that were read, before any selection.
    """

    location: Place
    selection: Selection
    definitions: Definitions
    tasks: tuple[ReplayTask, ...]
    frozen: Frozen
    damage: str = FAIL
    skip_ddl: frozenset[int] = frozenset()
    oldest: int | None = None
    with_rows: frozenset[tuple[str, str]] | None = None
    defines_all: bool = False
    changes: int = 0
    taking: Taking = NOT_SAID

    def refuse_gap(self) -> None:
        """Raises `Corruption` if segments are gone that were there when the job began: chunks would be cut
        from other rows than those that are marked as written."""
        oldest = self.oldest
        if self.frozen.first >= 0 and (oldest is None or oldest > self.frozen.first):
            raise Corruption(
                f"{self.frozen.archive}: segment {self.frozen.first} is gone, where this job began to read",
                hint="restore it and the ones after it from a backup, then run the same command again",
            )

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(size_of(task.slices) for task in self.tasks)


def job_of(archive: str, start: int, stop: int, options: ReplayOptions) -> str:
    """The name of a job that was given none: the same for the same request."""
    shown = Place.of(archive, options.source).shown
    asked = [shown, start, stop, options.tables, options.safe, options.source.get("time-zone", "")]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]


def plan(
    spark: SparkOf | None,
    archive: str,
    start: int,
    stop: int,
    options: ReplayOptions,
    begun: Frozen | None = None,
) -> ReplayPlan:
    """Survey the archive. `begun`: what the job was frozen to, if it resumes.

    Raises `ConfigError`, `Corruption`.
    """
    location = Place.of(archive, options.source)
    unknown = [name for name in options.source if name not in _READ_OPTIONS and not name.startswith("fs.")]
    if unknown:
        raise ConfigError(
            f"replay takes no option {', '.join(unknown)}", hint="options are kind, damage, time-zone, fs.*"
        )
    zone = time_zone(options.source.get("time-zone", ""))
    surveyed = survey(location, options.source.get("kind", AUTO), zone)
    if surveyed.kind == PUMP:
        raise ConfigError(
            f"{location.shown} is a Pump's value log, which is not in commit order",
            hint="turn it into a file archive (binlog-spark export), and replay that",
        )
    damage = options.source.get("damage", FAIL)
    asked_stop, stop = stop, begun.stop if begun is not None else stop
    selection = Selection(start, stop, options.tables, continues=options.continues).asked()
    definitions = archived_definitions.of_archive(surveyed.location, surveyed)
    skip_damage = damage == REPORT
    outlined = outline(spark, surveyed, selection, definitions, skip_damage=skip_damage)
    if begun is None:
        selection = replace(selection, stop=end_of(selection, outlined.last_ts))
    slices = outlined.once(surveyed.plan(selection, _SLICE_BYTES, skip_damage=skip_damage))
    tasks = _tasks(slices, selection, outlined, options, with_spark=spark is not None)
    if begun is not None and len(begun.buckets) == len(tasks):  # files may have been compressed meanwhile
        tasks = [replace(task, buckets=count) for task, count in zip(tasks, begun.buckets, strict=True)]
    frozen = Frozen(
        archive=location.shown,
        kind=surveyed.kind,
        start=start,
        stop=selection.stop,
        asked_stop=asked_stop,
        tables=tuple(options.tables),
        chunk_rows=options.chunk_rows,
        safe=options.safe,
        first=_first(tasks) if begun is None else begun.first,
        buckets=tuple(task.buckets for task in tasks),
        damage=damage,
        time_zone=zone,
    )
    return ReplayPlan(
        surveyed.location,
        selection,
        definitions,
        tuple(tasks),
        frozen,
        damage,
        options.skip_ddl,
        oldest=min((segment.index for segment in surveyed.segments), default=None),
        with_rows=_with_rows(surveyed),
        changes=outlined.rows,
    )


def _with_rows(survey: Survey) -> frozenset[tuple[str, str]] | None:
    if not all(segment.is_covered for segment in survey.segments):
        return None
    return frozenset(
        name for segment in survey.segments if segment.described for name in segment.described.rows
    )


def _first(tasks: list[ReplayTask]) -> int:
    return min((part.index for task in tasks for part in task.slices), default=-1)


def _tasks(
    slices: list[Slice], selection: Selection, outlined: Outline, options: ReplayOptions, *, with_spark: bool
) -> list[ReplayTask]:
    changes = [(change, point) for change, point in outlined.changes if is_wanted(change.ddl, selection)]
    places = {change.ddl.commit_ts: point for change, point in reversed(changes)}
    tasks: list[ReplayTask] = []
    begin: Point | None = None
    for step in steps(selection.start, selection.stop, [change for change, _ in changes]):
        if not isinstance(step, Rows):
            begin = places[step.commit_ts]
            tasks.append(ReplayTask(step))
            continue
        parts = between(slices, begin, places.get(step.stop + 1))
        size = size_of(parts)
        buckets = 0 if size <= options.small_bytes or not with_spark else buckets_of(size)
        tasks.append(ReplayTask(step, tuple(parts), buckets))
    return tasks


def buckets_of(size: int) -> int:
    """Into how many buckets the effects of so many bytes go: a power of two."""
    least, most = _BUCKETS
    return min(most, max(least, 1 << (size // _BUCKET_BYTES).bit_length()))


def shares(slices: tuple[Slice, ...], cores: int) -> tuple[tuple[Slice, ...], ...]:
    """Neighbours put together, so much for each core: every share costs a task, and what repeats within one
    does not cross the shuffle."""
    least, most = _SHARE_BYTES
    share_bytes = min(most, max(least, size_of(slices) // cores))
    groups: list[list[Slice]] = []
    size = share_bytes
    for part in slices:
        if size >= share_bytes:
            groups.append([])
            size = 0
        group = groups[-1]
        both = group[-1].joined(part) if group else None
        if both is not None:
            group[-1] = both
        else:
            group.append(part)
        size += size_of((part,))
    return tuple(map(tuple, groups))

"""Auditing: the checks of an archive in their order, and what they found, as one outcome.

Drives  an engine: in this process, or on Spark's executors where there is much to read; the archive and,
        where asked, a database or an image: all are only read
Out     `Outcome`: findings, notes, figures; `report` shows it
Holds   whatever is wrong with the archive is a finding: an audit ends with an error only if it cannot begin
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from drainer.mysql.connection import Target, connect
from drainer.points.image.manifest import Manifest
from drainer.reading.archive.archive_source import ArchiveSource
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.files.segments import DEFINITIONS, END, PUMP, Slice, Survey
from drainer.reading.archive.files.selection import Selection
from drainer.reading.archive.read_options import ReadOptions
from drainer.relay import downstream_definitions
from drainer.spark.audit.checks import chain_rule, coverage, table_matching, tasks
from drainer.spark.audit.checks.chain_rule import ChainCheck, Chains
from drainer.spark.audit.checks.contents import Contents
from drainer.spark.audit.checks.coverage import Misplaced
from drainer.spark.audit.checks.figures import (
    Figures,
    add_coverage,
    add_summaries,
    bucket_s,
    files,
    lags,
    of_coverage,
)
from drainer.spark.audit.checks.findings import CHAINS, CONTENTS, COVERAGE, Finding, Findings, Note
from drainer.spark.audit.checks.lineage_summary import Profiles, StepCounts
from drainer.spark.audit.checks.reference_side import Database, Image, ReferenceSide
from drainer.spark.audit.checks.table_matching import Matching
from drainer.spark.audit.rows import live_rows
from drainer.spark.audit.rows.lineage import Lineages, lower
from drainer.spark.audit.rows.row_steps import COLUMNS, SORTED
from drainer.spark.engine import SMALL_BYTES, Engine, Here, Rows, SparkOf, engine_for
from drainer.spark.replay.outline import size_of
from drainer.txn import TableVersion
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.observe import log
from tidb_binlog.tso import TS_MAX, Ts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
logger = log.get("drainer.spark.audit")

CHUNKS: Final = 64
_HERE_BYTES: Final = 4 << 20
_TWINS_MAX: Final = 200
_NO_CONTENTS: Final = "a pump's value log has only a part of the changes: nothing can be compared with it"
_OF_PUMP: Final = "audit what a drainer wrote, or what `export` makes of the value logs of all pumps"


@dataclass(slots=True)
class Outcome:
    """All that an audit found. `compared_with`: "" where nothing was compared."""

    archive: str
    kind: str
    at_ts: Ts
    findings: dict[str, Findings]
    figures: Figures
    chains: Chains | None = None
    contents: Contents | None = None
    compared_with: str = ""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an audit runs. `size`: bytes of archive, image and database that it reads, about."""

    size: int
    limit: int
    on_driver: bool


def audit(
    spark: SparkSession | SparkOf | None,
    archive: str,
    options: Mapping[str, str] | None = None,
    *,
    target: Target | None = None,
    image: str = "",
    chunks: int = CHUNKS,
    small_bytes: int = SMALL_BYTES,
    announce: Callable[[Placement], None] | None = None,
) -> Outcome:
    """Check an archive. With `image` compare what it says at the image's timestamp with the image;
    with `target` what it says at the range's end with the database there. With both the image is what tables
    hold at its timestamp whose creation the archive does not have.

    `spark`: a session, or what makes one when there are more than `small_bytes` to read; None: everything is
    done here. `announce` hears which it is.

    Raises `ConfigError` for an archive or image that is not there, `DownstreamError` and `Unavailable` for a
    database that does not answer.
    """
    given = ArchiveSource({**(options or {}), "path": archive, "damage": "report"})
    read_options, survey, definitions = given.options, given.survey, given.definitions
    if (image or target) and survey.kind == PUMP:
        raise ConfigError(_NO_CONTENTS, hint=_OF_PUMP)
    base = Image(image, Manifest.load(image)) if image else None
    if base is not None:
        _check_range(base.manifest.commit_ts, read_options.selection, is_base=target is not None)
        _add_definitions(definitions, [table.version for table in base.manifest.tables])
    size = size_of(survey.plan(read_options.selection, skip_damage=True)) + (
        base.size if base is not None else 0
    )
    if target is not None:
        _add_definitions_of(definitions, target)
        size += live_rows.data_bytes(
            target, [(definition.schema, definition.table) for definition in definitions]
        )
    placement = Placement(size, small_bytes, spark is None or size <= small_bytes)
    logger.info("audit", on_driver=placement.on_driver, bytes=size, limit=small_bytes)
    if announce is not None:
        announce(placement)
    engine = engine_for(spark if not placement.on_driver else None)
    run = Audit(engine, read_options, survey, definitions, chunks)
    outcome = run.coverage()
    side: ReferenceSide | None = base
    if target is not None:
        outcome.at_ts = read_options.selection.stop or outcome.figures.last_ts
        outcome.compared_with = repr(target)
        side = Database(target, outcome.at_ts)
    elif base is not None:
        outcome.at_ts = base.manifest.commit_ts
        outcome.compared_with = f"the image {image}"
    try:
        run.rows(outcome, side, base)
    finally:
        if side is not None:
            side.close()
    if base is not None:
        image_ts = base.manifest.commit_ts
        outcome.findings[CONTENTS].notes += _distance(outcome, image_ts, is_base=side is not base)
    return outcome


def _check_range(image_ts: Ts, selection: Selection, *, is_base: bool) -> None:
    """An image of that timestamp can be compared with the range, or the range follows it."""
    if selection.stop and selection.stop < image_ts:
        text = f"the range ends at {selection.stop}, before the image's timestamp {image_ts}"
        raise ConfigError(text, hint="let it end there or later")
    if is_base and selection.start > image_ts + 1:
        text = f"the range begins at {selection.start}, after the image's timestamp {image_ts}"
        raise ConfigError(text, hint="let it begin there: what was committed between them matters")


def _distance(outcome: Outcome, image_ts: Ts, *, is_base: bool) -> list[Note]:
    """Where an image and an archive leave a gap."""
    first_ts, last_ts = outcome.figures.first_ts, outcome.figures.last_ts
    text = ""
    if is_base and first_ts > image_ts:
        text = f"the archive begins at {first_ts}, after the image: whether something is between is unknown"
    elif not is_base and last_ts < image_ts:
        text = f"the archive ends at {last_ts}, before the image's timestamp {image_ts}"
    return [Note(CONTENTS, "", text)] if text else []


def _add_definitions(definitions: Definitions, versions: Iterable[TableVersion]) -> None:
    """For tables of which the archive has no definition."""
    defined = {(definition.schema, definition.table) for definition in definitions}
    for version in versions:
        if version.downstream not in defined:
            definitions.add(0, *version.downstream, version)


def _add_definitions_of(definitions: Definitions, target: Target) -> None:
    defined = {(definition.schema, definition.table) for definition in definitions}
    connection = connect(target)
    try:
        versions = downstream_definitions.read(
            connection, lambda schema, table: (schema, table) not in defined
        )
        _add_definitions(definitions, versions)
    finally:
        connection.close()


class Audit:
    """One audit on its way. The checks are called in their order."""

    def __init__(
        self, engine: Engine, read_options: ReadOptions, survey: Survey, definitions: Definitions, chunks: int
    ) -> None:
        self._engine = engine
        self._options = read_options
        self._survey = survey
        self._chunks = chunks
        self._archive = tasks.TaskInput(survey.location, read_options.selection, definitions)
        self._slices = survey.plan(read_options.selection, read_options.partition_bytes, skip_damage=True)
        self._ddl: list[Slice] = list(self._slices)  # what has schema changes

    def _gather(self, slices: Sequence[Slice], work: Callable[[Iterable[Slice]], Iterator[T]]) -> list[T]:
        """What `work` says of the slices. A little is read here: a job costs more."""
        size = sum((part.stop or part.size) - part.start for part in slices)
        return (Here() if size <= _HERE_BYTES else self._engine).over(slices, work).gather(iter)

    # -- coverage -------------------------------------------------------------------------------------

    def coverage(self) -> Outcome:
        """Files, framing, order, counts."""
        survey = self._survey
        figures = Figures(bucket_s=bucket_s(survey), files=len(survey.segments))
        figures.size = sum(segment.size for segment in survey.segments)
        outcome = Outcome(survey.location.shown, survey.kind, 0, {}, figures)
        if survey.kind == PUMP:
            outcome.findings[COVERAGE] = self._value_logs(figures)
            return outcome
        described = {
            segment.name: segment.described.size
            for segment in survey.segments
            if segment.described is not None
        }
        work = partial(tasks.summaries, survey.location, described, figures.bucket_s)
        summaries = self._gather(self._slices, work)
        looked_at = files(survey, summaries)
        figures.lags = lags(survey, looked_at)
        findings = coverage.check_files(looked_at)
        kinds = {END: "missing file", DEFINITIONS: "damaged definitions"}
        for problem in survey.problems:
            if problem.kind in kinds:
                name = problem.segment
                findings.add(Finding(COVERAGE, kinds[problem.kind], name, problem.text, file=name))
        runs = [
            (summary.slice.index, summary.order.run) for summary in summaries if summary.order.run is not None
        ]
        misplaced = coverage.join_runs(runs)
        findings.take(coverage.check_order(misplaced, self._places(misplaced)))
        outcome.findings[COVERAGE] = findings
        add_summaries(figures, summaries)
        outcome.at_ts = figures.last_ts
        by_place = {(summary.slice.name, summary.slice.start): summary.ddl for summary in summaries}
        self._ddl = [
            replace(part, start=start, stop=stop)
            for part in self._slices
            for start, stop in by_place[part.name, part.start]
        ]
        return outcome

    def _value_logs(self, figures: Figures) -> Findings:
        covered = self._gather(self._slices, partial(tasks.covered, self._survey.location))
        add_coverage(figures, covered)
        looked_at = list(map(of_coverage, covered))
        figures.lags = lags(self._survey, looked_at)
        findings = coverage.check_files(looked_at)
        text = "order of records: a value log is in the order of prewrites"
        findings.notes.append(Note(COVERAGE, "", f"not checked: {text}"))
        return findings

    def _places(self, misplaced: Sequence[Misplaced]) -> dict[int, list[tuple[str, int]]]:
        """Where else the commit_ts of misplaced records are."""
        searched = frozenset(record.commit_ts for record in misplaced[:_TWINS_MAX])
        places: dict[int, list[tuple[str, int]]] = defaultdict(list)
        if searched:
            work = partial(tasks.places, self._survey.location, searched)
            for commit_ts, file, pos in self._gather(self._slices, work):
                places[commit_ts].append((file, pos))
        return places

    # -- rows -----------------------------------------------------------------------------------------

    def rows(self, outcome: Outcome, side: ReferenceSide | None, image: Image | None) -> None:
        """Chains, and contents beside those of a side. `image`: the side, or what tables begin with."""
        figures, archive = outcome.figures, self._archive
        if self._survey.kind == PUMP:
            note = Note(CHAINS, "", f"not checked: {_OF_PUMP}")
            outcome.findings[CHAINS] = Findings(notes=[note])
            return
        changes = self._gather(self._ddl, partial(tasks.statements, archive))
        lineages = Lineages.of(tasks.in_order(changes))
        names = {
            *lineages.names,
            *(lower((definition.schema, definition.table)) for definition in archive.definitions),
        }
        work = partial(tasks.steps, archive, lineages.spans(sorted(names)))
        with ExitStack() as stack:
            steps = self._engine.over(self._slices, work, COLUMNS)
            if self._engine.is_here:  # tasks had rather read again
                steps = stack.enter_context(steps.kept())
            image_ts = image.manifest.commit_ts if image is not None else TS_MAX
            counts = StepCounts(archive.definitions, image_ts, figures.bucket_s)
            profiles = Profiles.of(image_ts, steps.gather(counts))
            figures.changes = profiles.changes
            figures.last_ts = figures.last_ts or profiles.last_ts
            steps = steps.together(*SORTED)
            if side is not None:
                steps = stack.enter_context(steps.kept())
            born = frozenset(lineage.number for lineage in lineages.lineages if lineage.born_ts is not None)
            self._chains(outcome, steps, profiles, born)
            if side is not None:
                inputs = table_matching.ArchiveSide(
                    self._engine, steps, lineages, profiles, archive.definitions, self._options.selection
                )
                match = Matching(inputs, side, outcome.at_ts, None if side is image else image)
                outcome.contents = match.run(self._chunks)
                outcome.findings[CONTENTS] = match.findings

    def _chains(self, outcome: Outcome, steps: Rows, profiles: Profiles, born: frozenset[int]) -> None:
        rekeyed = [number for number, profile in profiles.all.items() if len(profile.key_ids) > 1]
        check = ChainCheck(self._archive.definitions, born.difference(rekeyed))
        outcome.chains = chain_rule.together(steps.gather(check))
        outcome.findings[CHAINS] = outcome.chains.findings
        notes = outcome.chains.findings.notes
        keyless = [profile for profile in profiles.all.values() if profile.key_ids == {0}]
        for profile in sorted(keyless, key=lambda profile: profile.name):
            notes.append(
                Note(CHAINS, ".".join(profile.name), "not checked: its rows have no key that is known")
            )
        for name in sorted(".".join(profiles.all[number].name) for number in rekeyed):
            notes.append(Note(CHAINS, name, "its key was changed: its chains begin again there"))

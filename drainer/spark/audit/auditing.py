"""Auditing: the checks of an archive in their order, and what they found, as one outcome.

Drives  a runner: in this process, or on Spark's executors where there is much to read; the archive and, where
        asked, a database or an image: all are only read
In      a session or what makes one, the options of the data source, what to compare with
Out     `Outcome`: findings, notes, figures; `report` shows it
Holds   whatever is wrong with the archive is a finding: an audit ends with an error only if it cannot begin
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from drainer.mysql.connection import Target, connect
from drainer.points.image.manifest import Manifest
from drainer.reading.archive.archive_source import ArchiveSource
from drainer.reading.archive.decode.coverage import FileCoverage
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.files.segments import DEFINITIONS, END, PUMP, Slice, Survey
from drainer.reading.archive.files.selection import Selection
from drainer.reading.archive.read_options import ReadOptions
from drainer.relay import downstream_definitions
from drainer.spark.audit.checks import coverage, table_matching, tasks
from drainer.spark.audit.checks.chain_check import Chains
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
    run_of,
    with_summaries,
)
from drainer.spark.audit.checks.findings import CHAINS, CONTENTS, COVERAGE, Finding, Findings, Note
from drainer.spark.audit.checks.lineage_summary import Profiles
from drainer.spark.audit.checks.reference_side import Database, Image, ReferenceSide
from drainer.spark.audit.checks.runner import Runner
from drainer.spark.audit.checks.table_matching import Matching
from drainer.spark.audit.on_driver.runner import DriverRunner
from drainer.spark.audit.rows import live_rows
from drainer.spark.audit.rows.lineage import Lineages, lower
from drainer.spark.replay.outline import size_of
from drainer.spark.replay.plan import SparkOf
from drainer.txn import TableVersion
from tidb_binlog.errors import ConfigError
from tidb_binlog.observe import log
from tidb_binlog.tso import TS_MAX, Ts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = log.get("drainer.spark.audit")

CHUNKS: Final = 64
SMALL_BYTES: Final = 64 << 20
"""So much of archive, image and database is read sooner than Spark and its workers are up."""
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
    wanted, survey, definitions = given.options, given.survey, given.definitions
    if (image or target) and survey.kind == PUMP:
        raise ConfigError(_NO_CONTENTS, hint=_OF_PUMP)
    base = Image(image, Manifest.load(image)) if image else None
    if base is not None:
        _check_range(base.manifest.commit_ts, wanted.selection, is_base=target is not None)
        _add_definitions(definitions, [one.version for one in base.manifest.tables])
    size = size_of(survey.plan(wanted.selection, skip_damage=True)) + (base.size if base is not None else 0)
    if target is not None:
        _add_definitions_of(definitions, target)
        size += live_rows.data_bytes(target, [(one.schema, one.table) for one in definitions])
    placement = Placement(size, small_bytes, spark is None or size <= small_bytes)
    logger.info("audit", on_driver=placement.on_driver, bytes=size, limit=small_bytes)
    if announce is not None:
        announce(placement)
    run = Audit(_runner(spark if not placement.on_driver else None), wanted, survey, definitions, chunks)
    outcome = run.coverage()
    run.chains(outcome, base.manifest.commit_ts if base is not None else TS_MAX)
    side: ReferenceSide | None = base
    if target is not None:
        outcome.at_ts = wanted.selection.stop or outcome.figures.last_ts
        outcome.compared_with = repr(target)
        side = Database(target, outcome.at_ts)
    elif base is not None:
        outcome.at_ts = base.manifest.commit_ts
        outcome.compared_with = f"the image {image}"
    if side is not None:
        try:
            run.contents(outcome, side, None if side is base else base)
        finally:
            side.close()
    if base is not None:
        image_ts = base.manifest.commit_ts
        outcome.findings[CONTENTS].notes += _distance(outcome, image_ts, is_base=side is not base)
    return outcome


def _runner(spark: SparkSession | SparkOf | None) -> Runner:
    if spark is None:
        return DriverRunner()
    session = spark() if callable(spark) else spark
    from drainer.spark.audit.on_executors.runner import ExecutorsRunner

    return ExecutorsRunner(session)


def _check_range(image_ts: Ts, wanted: Selection, *, is_base: bool) -> None:
    """An image of that timestamp can be compared with the range, or the range follows it."""
    if wanted.stop and wanted.stop < image_ts:
        text = f"the range ends at {wanted.stop}, before the image's timestamp {image_ts}"
        raise ConfigError(text, hint="let it end there or later")
    if is_base and wanted.start > image_ts + 1:
        text = f"the range begins at {wanted.start}, after the image's timestamp {image_ts}"
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
    known = {(one.schema, one.table) for one in definitions}
    for version in versions:
        if version.downstream not in known:
            definitions.add(0, *version.downstream, version)


def _add_definitions_of(definitions: Definitions, target: Target) -> None:
    known = {(one.schema, one.table) for one in definitions}
    connection = connect(target)
    try:
        found = downstream_definitions.read(connection, lambda schema, table: (schema, table) not in known)
        _add_definitions(definitions, found)
    finally:
        connection.close()


class Audit:
    """One audit on its way. The checks are called in their order."""

    def __init__(
        self, runner: Runner, wanted: ReadOptions, survey: Survey, definitions: Definitions, chunks: int
    ) -> None:
        self._runner = runner
        self._wanted = wanted
        self._survey = survey
        self._chunks = chunks
        self._archive = tasks.TaskInput(survey.location, wanted.selection, definitions)
        self._slices = survey.plan(wanted.selection, wanted.partition_bytes, skip_damage=True)
        self._ddl: list[Slice] = list(self._slices)
        self._lineages = Lineages()
        self._profiles = Profiles(TS_MAX)

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
        described = {one.name: one.described.size for one in survey.segments if one.described is not None}
        work = tasks.summaries(survey.location, described, figures.bucket_s)
        summaries = [json.loads(text) for text in self._runner.texts(self._slices, work)]
        looked_at = files(survey, summaries)
        figures.lags = lags(survey, looked_at)
        found = coverage.check_files(looked_at)
        kinds = {END: "missing file", DEFINITIONS: "damaged definitions"}
        for problem in (one for one in survey.problems if one.kind in kinds):
            name = problem.segment
            found.add(Finding(COVERAGE, kinds[problem.kind], name, problem.text, file=name))
        runs = [(one["index"], run_of(one["run"])) for one in summaries if one["run"] is not None]
        misplaced = coverage.join_runs(runs)
        order = coverage.check_order(misplaced, self._places(misplaced))
        found.extend(order.listed)
        found.counts = found.counts | order.counts
        outcome.findings[COVERAGE] = found
        add_summaries(figures, summaries)
        outcome.at_ts = figures.last_ts
        self._ddl = [
            replace(part, start=start, stop=stop)
            for part, summary in with_summaries(self._slices, summaries)
            for start, stop in summary["ddl"]
        ]
        return outcome

    def _value_logs(self, figures: Figures) -> Findings:
        texts = self._runner.texts(self._slices, tasks.covered(self._survey.location))
        found = [FileCoverage(**json.loads(text)) for text in texts]
        add_coverage(figures, found)
        looked_at = [of_coverage(one) for one in found]
        figures.lags = lags(self._survey, looked_at)
        findings = coverage.check_files(looked_at)
        text = "order of records: a value log is in the order of prewrites"
        findings.notes.append(Note(COVERAGE, "", f"not checked: {text}"))
        return findings

    def _places(self, misplaced: Sequence[Misplaced]) -> dict[int, list[tuple[str, int]]]:
        """Where else the commit_ts of misplaced records are."""
        wanted = frozenset(one.commit_ts for one in misplaced[:_TWINS_MAX])
        if not wanted:
            return {}
        found: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for text in self._runner.texts(self._slices, tasks.places(self._survey.location, wanted)):
            commit_ts, file, pos = json.loads(text)
            found[commit_ts].append((file, pos))
        return found

    # -- chains ---------------------------------------------------------------------------------------

    def chains(self, outcome: Outcome, image_ts: Ts) -> None:
        """Row chains; profiles of all lineages on the way, up to a timestamp and after it."""
        runner, figures = self._runner, outcome.figures
        if self._survey.kind == PUMP:
            note = Note(CHAINS, "", f"not checked: {_OF_PUMP}")
            outcome.findings[CHAINS] = Findings(notes=[note])
            return
        statements = runner.texts(self._ddl, tasks.statements(self._archive))
        self._lineages = lineages = Lineages.of(tasks.in_order(statements))
        names = {*lineages.names, *(lower((one.schema, one.table)) for one in self._archive.definitions)}
        spans = lineages.spans(sorted(names))
        born = frozenset(one.number for one in lineages.lineages if one.born_ts is not None)
        profiles = runner.follow(self._archive, self._slices, spans, born, image_ts, figures.bucket_s)
        self._profiles = profiles
        figures.changes = profiles.changes
        figures.last_ts = figures.last_ts or profiles.last_ts
        rekeyed = [number for number, one in profiles.all.items() if len(one.key_ids) > 1]
        found = runner.chains(rekeyed)
        notes = found.findings.notes
        keyless = [one for one in profiles.all.values() if one.key_ids == {0}]
        for one in sorted(keyless, key=lambda one: one.name):
            notes.append(Note(CHAINS, ".".join(one.name), "not checked: its rows have no key that is known"))
        for name in sorted(".".join(profiles.all[number].name) for number in rekeyed):
            notes.append(Note(CHAINS, name, "its key was changed: its chains begin again there"))
        outcome.chains = found
        outcome.findings[CHAINS] = found.findings

    # -- contents -------------------------------------------------------------------------------------

    def contents(self, outcome: Outcome, side: ReferenceSide, base: Image | None) -> None:
        """Tables as they are at the outcome's timestamp beside those of a side."""
        archive = table_matching.ArchiveSide(
            self._runner,
            self._lineages,
            self._profiles,
            self._archive.definitions,
            self._wanted.selection,
        )
        match = Matching(archive, side, outcome.at_ts, base)
        outcome.contents = match.run(self._chunks)
        outcome.findings[CONTENTS] = match.found

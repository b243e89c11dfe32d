"""Auditing: the checks of an archive in their order, and what they found, as one outcome.

Drives  Spark; the archive and, where asked, a database: both are only read
In      a session, the options of the data source, what to compare with
Out     `Outcome`: findings, notes, figures; `report` shows it
Holds   whatever is wrong with the archive is a finding: an audit ends with an error only if it cannot begin
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as f

from common import tso
from drainer.sink import mysql
from drainer.sink.mysql import Target
from drainer.spark import downstream_definitions, segments
from drainer.spark.audit import chain_check, comparison, contents, coverage, live_rows, tasks
from drainer.spark.audit.chain_check import Chains
from drainer.spark.audit.contents import Contents
from drainer.spark.audit.coverage import Misplaced
from drainer.spark.audit.figures import (
    Figures,
    TableChanges,
    add_summaries,
    bucket_s,
    files,
    run_of,
    with_summaries,
)
from drainer.spark.audit.finding import CHAINS, CONTENTS, COVERAGE, Finding, Findings, Note
from drainer.spark.audit.lineage import Lineages, lower
from drainer.spark.definitions import Definitions, of_archive
from drainer.spark.read_options import ReadOptions
from drainer.spark.segments import PUMP, Slice, Survey
from drainer.txn import TableVersion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHUNKS: Final = 64
_TWINS_MAX: Final = 200
_CHUNK_ROWS: Final = 200_000


@dataclass(slots=True)
class Outcome:
    """All that an audit found. `compared_with`: "" where nothing was compared."""

    archive: str
    kind: str
    at_ts: int
    findings: dict[str, Findings]
    figures: Figures
    chains: Chains | None = None
    contents: Contents | None = None
    compared_with: str = ""


@dataclass(slots=True)
class _Profile:
    """What the steps of one lineage are, by a count of them."""

    name: tuple[str, str]
    steps: int = 0
    last_ts: int = -1
    last_definition: int = 0
    definitions: set[int] = field(default_factory=set)
    key_ids: set[int] = field(default_factory=set)


def audit(
    spark: SparkSession,
    archive: str,
    options: Mapping[str, str] | None = None,
    *,
    target: Target | None = None,
    chunks: int = CHUNKS,
) -> Outcome:
    """Check an archive; with `target` compare what it says at the range's end with the database there.

    Raises `ConfigError` for an archive that is not there, `DownstreamError` and `Unavailable` for a database
    that does not answer.
    """
    options = {**(options or {}), "path": archive, "damage": "report"}
    wanted = ReadOptions.of(options)
    survey = segments.survey(wanted.location, wanted.kind)
    definitions = _definitions(wanted, survey)
    if target is not None:
        _add_definitions(definitions, target)
    run = Audit(spark, wanted, survey, definitions, chunks)
    outcome = run.coverage()
    run.chains(outcome)
    if target is not None:
        run.contents(outcome, target)
    return outcome


def _definitions(wanted: ReadOptions, survey: Survey) -> Definitions:
    if wanted.definitions:
        return Definitions.from_json(wanted.definitions)
    return of_archive(wanted.location, survey)


def _add_definitions(definitions: Definitions, target: Target) -> None:
    """For an archive without definitions: those of the database that it is compared with."""
    known = {(one.schema, one.table) for one in definitions}
    connection = mysql.connect(target)
    try:
        found = downstream_definitions.read(connection, lambda schema, table: (schema, table) not in known)
        for version in found:
            definitions.add(0, version.schema, version.name, version)
    finally:
        connection.close()


class Audit:
    """One audit on its way. The checks are called in their order."""

    def __init__(
        self, spark: SparkSession, wanted: ReadOptions, survey: Survey, definitions: Definitions, chunks: int
    ) -> None:
        self._spark = spark
        self._wanted = wanted
        self._survey = survey
        self._chunks = chunks
        self._archive = tasks.Archive(survey.location, wanted.selection, definitions)
        self._slices = [
            replace(part, trouble="") for part in survey.plan(wanted.selection, wanted.partition_bytes)
        ]
        self._ddl: list[Slice] = list(self._slices)
        self._lineages = Lineages()
        self._steps: DataFrame | None = None
        self._profiles: dict[int, _Profile] = {}

    # -- coverage -------------------------------------------------------------------------------------

    def coverage(self) -> Outcome:
        """Files, framing, order, counts."""
        survey = self._survey
        figures = Figures(bucket_s=bucket_s(survey), files=len(survey.segments))
        figures.size = sum(segment.size for segment in survey.segments)
        outcome = Outcome(survey.location.shown, survey.kind, 0, {}, figures)
        if survey.kind == PUMP:
            found = coverage.check_files(files(survey, []))
            text = "order and checksums of records: a value log is in the order of prewrites"
            found.notes.append(Note(COVERAGE, "", f"not checked: {text}"))
            outcome.findings[COVERAGE] = found
            return outcome
        described = {one.name: one.described.size for one in survey.segments if one.described is not None}
        summaries = tasks.summaries(self._spark, survey.location, self._slices, described, figures.bucket_s)
        found = coverage.check_files(files(survey, summaries))
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

    def _places(self, misplaced: Sequence[Misplaced]) -> dict[int, list[tuple[str, int]]]:
        """Where else the commit_ts of misplaced records are."""
        wanted = frozenset(one.commit_ts for one in misplaced[:_TWINS_MAX])
        if not wanted:
            return {}
        found: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for commit_ts, file, pos in tasks.places(self._spark, self._survey.location, self._slices, wanted):
            found[commit_ts].append((file, pos))
        return found

    # -- chains ---------------------------------------------------------------------------------------

    def chains(self, outcome: Outcome) -> None:
        """Row chains; profiles of all lineages on the way."""
        spark = self._spark
        statements = tasks.statements(spark, self._archive, self._ddl)
        self._lineages = lineages = Lineages.of(statements)
        names = {*lineages.names, *(lower((one.schema, one.table)) for one in self._archive.definitions)}
        spans = lineages.spans(sorted(names))
        born = frozenset(one.number for one in lineages.lineages if one.born_ts is not None)
        steps = tasks.steps(spark, self._archive, self._slices)
        self._steps = chain_check.with_lineage(spark, steps, spans, born)
        outcome.figures.changes = self._profile(outcome.figures)
        rekeyed = [number for number, one in self._profiles.items() if len(one.key_ids) > 1]
        found = chain_check.check(self._steps, self._archive.definitions, rekeyed)
        notes = found.findings.notes
        keyless = [one for one in self._profiles.values() if one.key_ids == {0}]
        for one in sorted(keyless, key=lambda one: one.name):
            notes.append(Note(CHAINS, ".".join(one.name), "not checked: its rows have no key that is known"))
        for number in rekeyed:
            name = ".".join(self._profiles[number].name)
            notes.append(Note(CHAINS, name, "its key was changed: its chains begin again there"))
        outcome.chains = found
        outcome.findings[CHAINS] = found.findings

    def _profile(self, figures: Figures) -> list[TableChanges]:
        assert self._steps is not None
        seconds = f.shiftright(f.col("commit_ts"), tso.LOGICAL_BITS) / 1000
        bucket = f.floor(seconds / figures.bucket_s) * figures.bucket_s
        rows = (
            self._steps.groupBy("lineage", "schema", "table", "definition", "key_id", bucket.alias("bucket"))
            .agg(
                f.count(f.lit(1)).alias("steps"),
                f.count_if(f.col("part") == 0).alias("changes"),
                f.max("commit_ts").alias("last_ts"),
            )
            .collect()
        )
        changes: Counter[tuple[str, int]] = Counter()
        for row in rows:
            name = (row.schema, row.table)
            changes[".".join(name), int(row.bucket)] += row.changes
            one = self._profiles.setdefault(row.lineage, _Profile(name))
            one.steps += row.steps
            one.definitions.add(row.definition)
            one.key_ids.add(row.key_id)
            if row.last_ts > one.last_ts:
                one.last_ts, one.last_definition, one.name = row.last_ts, row.definition, name
        if not figures.last_ts:
            figures.last_ts = max((one.last_ts for one in self._profiles.values()), default=0)
        return [TableChanges(table, at, number) for (table, at), number in sorted(changes.items())]

    # -- contents -------------------------------------------------------------------------------------

    def contents(self, outcome: Outcome, target: Target) -> None:
        """Tables as they are at the end of the range beside those of a database."""
        assert self._steps is not None
        at_ts = self._wanted.selection.stop or outcome.figures.last_ts
        outcome.at_ts = at_ts
        outcome.compared_with = repr(target)
        target = live_rows.at_snapshot(target, at_ts)
        found = Findings()
        reader = live_rows.Reader(target)
        try:
            before = reader.checkpoint()
            comparisons = self._comparisons(reader, found, at_ts)
            chunks = [chunk for one in comparisons.values() for chunk in reader.cut(one.live, _CHUNK_ROWS)]
            self._others(reader, found)
            if comparisons:
                outcome.contents = self._compare(target, comparisons, chunks)
                found.extend(outcome.contents.findings.listed)
                found.counts = found.counts | outcome.contents.findings.counts
                found.notes += outcome.contents.findings.notes
            _standing_still(found, before, reader.checkpoint(), at_ts)
        finally:
            reader.close()
        outcome.findings[CONTENTS] = found

    def _compare(
        self,
        target: Target,
        comparisons: dict[int, comparison.Comparison],
        chunks: Sequence[live_rows.Chunk],
    ) -> Contents:
        assert self._steps is not None
        return contents.check(
            contents.last_rows(self._steps, comparisons),
            tasks.live_rows(self._spark, target, chunks),
            comparisons,
            self._archive.definitions,
            self._chunks,
        )

    def _comparisons(
        self, reader: live_rows.Reader, found: Findings, at_ts: int
    ) -> dict[int, comparison.Comparison]:
        """Tables that can be compared, by lineage; findings and notes on the others."""
        comparisons = {}
        for name in self._names():
            lineage = self._lineages.lineage_at(name, at_ts + 1)
            label = ".".join(name)
            profile = self._profiles.get(lineage.number)
            there = reader.describe(*name)
            if lineage.gone or there is None:
                if lineage.gone and there is not None:
                    text = f"the database has a table that was dropped or renamed: {lineage.reason}"
                    found.add(Finding(CONTENTS, "table too many", label, text))
                elif profile is not None:
                    found.add(Finding(CONTENTS, "table is missing", label, "the database has no such table"))
                continue
            if profile is None:
                self._empty(reader, found, name, born=lineage.born_ts is not None)
                continue
            versions = [self._archive.definitions.version(one) for one in profile.definitions]
            version = self._archive.definitions.version(profile.last_definition)
            how, notes = self._plan(lineage.number, version, there, versions, profile, lineage.born_ts)
            found.notes += [Note(CONTENTS, label, note) for note in notes]
            if how is not None:
                comparisons[lineage.number] = how
        return comparisons

    def _plan(
        self,
        number: int,
        version: TableVersion,
        there: Any,
        versions: Iterable[TableVersion],
        profile: _Profile,
        born_ts: int | None,
    ) -> tuple[comparison.Comparison | None, list[str]]:
        if len(profile.key_ids) > 1:
            return None, ["not compared: its key was changed within the range"]
        whole = born_ts is not None
        how, notes = comparison.plan(number, version, there, whole=whole, written=versions)
        if how is None:
            return None, [f"not compared: {'; '.join(notes)}"]
        if not whole:
            notes.append(
                "compared in the rows that changed within the range: the archive does not go back to the"
                " table's creation"
            )
        return how, notes

    def _names(self) -> list[tuple[str, str]]:
        """Names of tables that the archive knows, as their rows have them."""
        names = {lower(one.name): one.name for one in self._profiles.values()}
        for name in self._lineages.names:
            names.setdefault(name, name)
        wanted = self._wanted.selection
        return sorted(name for name in names.values() if name[1] and wanted.wants_table(*name))

    @staticmethod
    def _empty(reader: live_rows.Reader, found: Findings, name: tuple[str, str], *, born: bool) -> None:
        label = ".".join(name)
        if not born:
            found.notes.append(Note(CONTENTS, label, "not compared: the archive has no row of it"))
        elif rows := reader.count(*name):
            text = f"the table is empty in the archive, the database has {rows} rows"
            found.add(
                Finding(CONTENTS, "row too many", label, text, expected="0 rows", actual=f"{rows} rows")
            )

    def _others(self, reader: live_rows.Reader, found: Findings) -> None:
        """Tables of the same databases of which the archive says nothing."""
        known = {lower(name) for name in self._names()}
        for schema in sorted({name[0] for name in known}):
            for name in sorted(reader.tables(schema) - known):
                if self._wanted.selection.wants_table(*name):
                    text = "not compared: the archive has nothing of it"
                    found.notes.append(Note(CONTENTS, ".".join(name), text))


def _standing_still(found: Findings, before: int, after: int, at_ts: int) -> None:
    if before != after:
        text = (
            "a drainer wrote to the database meanwhile: differences may be its work. Stop it and audit again"
        )
        found.notes.append(Note(CONTENTS, "", text))
    elif before and before != at_ts:
        text = f"the drainer's checkpoint in the database is at {before}, the audit at {at_ts}"
        found.notes.append(Note(CONTENTS, "", text))

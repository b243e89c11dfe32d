"""Table matching: the contents check of an audit: which tables can be compared, and the comparison.

Out     findings and notes on tables, `contents.check` of those that can be compared
Holds   a table is compared whole where the archive has its creation or an image has its beginning; else in
        the rows that changed. What is not compared is noted
Tests   tests/spark/audit/test_auditing.py
"""

from __future__ import annotations

from typing import Final

from drainer.mysql.rows.column_match import DownstreamTable
from drainer.points.image.manifest import TableImage
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.files.selection import Selection
from drainer.spark.audit.checks import comparison, contents, reference_side
from drainer.spark.audit.checks.comparison import Comparison
from drainer.spark.audit.checks.contents import Contents, ContentsInput
from drainer.spark.audit.checks.findings import CONTENTS, Finding, Findings, Note
from drainer.spark.audit.checks.lineage_summary import Profile, Profiles
from drainer.spark.audit.checks.reference_side import Image, ReferenceSide
from drainer.spark.audit.rows.lineage import Lineage, Lineages, Name, lower
from drainer.spark.engine import Engine, Rows
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.tso import Ts

_IN_PART: Final = (
    "compared in the rows that changed within the range: the archive does not go back to the table's creation"
)


@dataclass(frozen=True)
class ArchiveSide:
    """What an archive says. `steps`: of all rows, sorted."""

    engine: Engine
    steps: Rows
    lineages: Lineages
    profiles: Profiles
    definitions: Definitions
    selection: Selection


@dataclass
class Matching:
    """One comparison, of the archive at `at_ts`. `base`: an earlier image, for tables whose
    creation the archive does not have."""

    archive: ArchiveSide
    side: ReferenceSide
    at_ts: Ts
    base: Image | None = None
    findings: Findings = field(default_factory=Findings)

    def run(self, chunks: int) -> Contents | None:
        """None where no table can be compared. All findings and notes are in `findings`."""
        begun = self._begun()
        comparisons = self._comparisons(begun)
        self._others()
        result = self._compare(comparisons, begun, chunks) if comparisons else None
        if result is not None:
            self.findings.take(result.findings)
        self.findings.notes += self.side.notes()
        return result

    def _begun(self) -> dict[int, TableImage]:
        """Tables of the base that are still there, by lineage."""
        if self.base is None:
            return {}
        lineages, since = self.archive.lineages, self.base.manifest.commit_ts
        tables = {
            lineages.lineage_at((table.schema, table.table), since + 1): table
            for table in self.base.manifest.tables
        }
        return {lineage.number: table for lineage, table in tables.items() if lineage.born_ts is None}

    def _compare(
        self, comparisons: dict[int, Comparison], begun: dict[int, TableImage], chunks: int
    ) -> Contents:
        beginning = None
        if self.base is not None:
            beginning = reference_side.beginning(self.archive.engine, self.base, begun, comparisons)
        live = self.side.rows(self.archive.engine, comparisons.values())
        given = ContentsInput(comparisons, self.at_ts, live, chunks, beginning)
        return contents.check(self.archive.steps, given, self.archive.definitions)

    # -- tables -------------------------------------------------------------------------------------------

    def _comparisons(self, begun: dict[int, TableImage]) -> dict[int, Comparison]:
        """Tables that can be compared, by lineage; findings and notes on the others."""
        comparisons = {}
        for name in self._names():
            lineage = self.archive.lineages.lineage_at(name, self.at_ts + 1)
            base = begun.get(lineage.number)
            profile = self._profile(lineage, base)
            downstream = self.side.describe(name)
            if lineage.gone or downstream is None:
                self._absent(name, lineage, is_there=downstream is not None, has_rows=profile is not None)
            elif profile is None:
                self._empty(name, born=lineage.born_ts is not None)
            elif how := self._plan(lineage, profile, downstream, is_begun=base is not None):
                comparisons[lineage.number] = how
        return comparisons

    def _profile(self, lineage: Lineage, base: TableImage | None) -> Profile | None:
        """What is known of a table's rows; of one that the base begins those of the base belong to it."""
        profiles = self.archive.profiles
        if base is None:
            return (profiles.until if self.at_ts <= profiles.until_ts else profiles.all).get(lineage.number)
        profile = profiles.after.get(lineage.number) or Profile((base.schema, base.table))
        number = self.archive.definitions.number_of(base.version)
        profile.definitions.add(number)
        profile.last_definition = profile.last_definition or number
        return profile

    def _absent(self, name: Name, lineage: Lineage, *, is_there: bool, has_rows: bool) -> None:
        label, noun = ".".join(name), self.side.noun
        if lineage.gone and is_there:
            text = f"{noun} has a table that was dropped or renamed: {lineage.reason}"
            self.findings.add(Finding(CONTENTS, "table too many", label, text))
        elif not lineage.gone and has_rows and self.side.should_have(name):
            self.findings.add(Finding(CONTENTS, "table is missing", label, f"{noun} has no such table"))

    def _empty(self, name: Name, *, born: bool) -> None:
        label = ".".join(name)
        if not born:
            self.findings.notes.append(Note(CONTENTS, label, "not compared: the archive has no row of it"))
        elif rows := self.side.count(name):
            text = f"the table is empty in the archive, {self.side.noun} has {rows} rows"
            has = f"{rows} rows"
            self.findings.add(Finding(CONTENTS, "row too many", label, text, expected="0 rows", actual=has))

    def _plan(
        self, lineage: Lineage, profile: Profile, downstream: DownstreamTable, *, is_begun: bool
    ) -> Comparison | None:
        version_of = self.archive.definitions.version
        whole = lineage.born_ts is not None or is_begun
        how, notes = None, ["its key was changed within the range"]
        if len(profile.key_ids) < 2:
            how, notes = comparison.plan(
                lineage.number,
                version_of(profile.last_definition),
                downstream,
                whole=whole,
                written=map(version_of, profile.definitions),
                side=self.side.noun,
            )
        if how is None:
            notes = [f"not compared: {'; '.join(notes)}"]
        elif not whole:
            notes.append(_IN_PART)
        self.findings.notes += [Note(CONTENTS, ".".join(profile.name), note) for note in notes]
        return how

    def _names(self) -> list[Name]:
        """Names of tables that the archive knows, as their rows have them, and those of the base."""
        names = {lower(profile.name): profile.name for profile in self.archive.profiles.all.values()}
        for table in self.base.manifest.tables if self.base is not None else ():
            names.setdefault(lower((table.schema, table.table)), (table.schema, table.table))
        for name in self.archive.lineages.names:
            names.setdefault(name, name)
        wants = self.archive.selection.wants_table
        return sorted(name for name in names.values() if name[1] and wants(*name))

    def _others(self) -> None:
        """Tables of the same databases of which the archive says nothing."""
        archived = {lower(name) for name in self._names()}
        for schema in sorted({name[0] for name in archived}):
            for name in sorted(self.side.names(schema) - archived):
                if self.archive.selection.wants_table(*name):
                    text = "not compared: the archive has nothing of it"
                    self.findings.notes.append(Note(CONTENTS, ".".join(name), text))

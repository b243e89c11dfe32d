"""Chain check: what is wrong with steps of rows that do not follow from the step before them.

In      steps in the order of their rows
Out     findings of `chain_rule`, with the row's key in words; how many links and beginnings there were
Holds   a step that is there twice counts, and is no finding
Why     nearly all links are equal bytes under one definition: only the rest is decoded
Tests   tests/spark/audit/test_auditing.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from drainer.changes import canonical
from drainer.mysql.literal.plan import compile_sql
from drainer.reading.archive.decode.definitions import Definitions
from drainer.spark.audit.checks.chain_rule import Link, finding, judge
from drainer.spark.audit.checks.findings import Finding, Findings
from drainer.spark.audit.rows.projection import Projections
from drainer.spark.audit.rows.row_steps import RowStep
from drainer.txn import TableVersion
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.rowcodec.row_error import RowError


@dataclass(frozen=True, slots=True)
class Chains:
    """Outcome of the check."""

    findings: Findings
    links: int
    beginnings: int
    steps: int


@dataclass(frozen=True, slots=True)
class ChainCheck:
    """What tasks do with steps that are sorted, those of a row in one task. `strict`: lineages that were
    empty when they began, and whose key is the same all the time: a row's first step finds nothing there."""

    definitions: Definitions
    strict: frozenset[int]

    def __call__(self, steps: Iterator[RowStep]) -> Iterator[Chains]:
        counts: Counter[str] = Counter()
        findings = Findings.of(self._findings(self._suspects(steps, counts)))
        total = counts["links"] + counts["beginnings"]
        yield Chains(findings, counts["links"], counts["beginnings"], total)

    def _suspects(self, steps: Iterator[RowStep], counts: Counter[str]) -> Iterator[tuple[RowStep, RowStep]]:
        """Steps that do not follow, byte for byte, from the one before them; for no step itself again."""
        links = beginnings = 0
        last: Any = (None, None, None)  # no row
        for step in steps:
            lineage, key_id, key, commit_ts, order, definition, before, *_ = step
            if not key_id:  # without a key there are no chains
                continue
            if key != last[2] or key_id != last[1] or lineage != last[0]:
                beginnings += 1
                if before is not None and lineage in self.strict:
                    yield step, step
            else:
                links += 1
                if (before != last[7] or (before is not None and definition != last[5])) and (
                    last[3] != commit_ts or last[4] != order
                ):
                    yield step, last
            last = step
        counts.update(links=links, beginnings=beginnings)

    def _findings(self, suspects: Iterable[tuple[RowStep, RowStep]]) -> Iterator[Finding]:
        projections, version_of = Projections(), self.definitions.version
        for pair in suspects:
            step, last = (RowStep._make(values) for values in pair)
            left = None if pair[0] is pair[1] else last.after
            wrong = judge(
                Link(True, step.before, step.definition, left, last.definition), version_of, projections
            )
            if wrong is None:
                continue
            image = step.before if step.before is not None else step.after
            assert image is not None
            version = version_of(step.definition)
            key = key_text(version, image, projections)
            yield finding(wrong, ".".join(version.downstream), key, step.commit_ts, step.file, step.pos)


def together(parts: Sequence[Chains]) -> Chains:
    """What tasks found, as a whole."""
    links, beginnings = (sum(getattr(part, name) for part in parts) for name in ("links", "beginnings"))
    findings = Findings.merged([part.findings for part in parts])
    return Chains(findings, links, beginnings, links + beginnings)


def key_text(version: TableVersion, image: bytes, projections: Projections) -> str:
    """The key of a row for people: `id=5, part=3`."""
    projection = projections.of(version, version)
    if projection is None:
        return ""
    try:
        values = projection.values(image)
        ids = [column.id for column in compile_sql(version.info).key_columns]
    except RowError:
        return ""
    by_id = {
        column.id: (column.name, value) for column, value in zip(projection.columns, values, strict=True)
    }
    return ", ".join(
        f"{by_id[column_id][0]}={canonical.show(by_id[column_id][1])}"
        for column_id in ids
        if column_id in by_id
    )

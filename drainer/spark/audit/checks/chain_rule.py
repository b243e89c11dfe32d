"""Chain rule: the image before a change is the image that the previous change of that row left.

Out    findings: lost, doubled, altered changes, wherever a row shows them; how many links were checked
Holds  a row's first step is a beginning, except in a table whose creation the archive has: there a row that
       is changed or deleted was inserted before. Images under two definitions are compared in the columns
       that both know (`projection`). Definitions that are guessed do not tell which columns are computed,
       of which a Go drainer writes now the value, now NULL, nor which were renamed: less is claimed there

A step takes a row from one state to another: an INSERT begins it, a DELETE ends it, an UPDATE that moves its
key does both, each to another row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from drainer.changes import canonical
from drainer.changes.canonical import differences, show
from drainer.mysql.literal.plan import compile_sql
from drainer.reading.archive.decode.definitions import Definitions
from drainer.spark.audit.checks.findings import CHAINS, Finding, Findings
from drainer.spark.audit.rows.projection import Projections
from drainer.spark.audit.rows.row_steps import RowStep
from drainer.txn import TableVersion
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.tso import Ts

LOST: Final = "row was not there"
KEPT: Final = "row was there"
BROKEN: Final = "broken chain"
UNREADABLE: Final = "unreadable row"
_SHOWN: Final = 4


@dataclass(frozen=True, slots=True)
class Link:
    """A step of a row and the one before it. `before` is what the step found, `left` what the previous step
    left: each None for no row. `is_left_known`: there is a previous step, or the row cannot have
    been there."""

    is_left_known: bool
    before: bytes | None
    definition: int
    left: bytes | None
    left_definition: int


def judge(
    link: Link, version_of: Callable[[int], TableVersion], projections: Projections
) -> tuple[str, str, str, str] | None:
    """(kind, text, expected, actual) of what is wrong with a link, None for nothing."""
    if not link.is_left_known:
        return None
    if link.before is None:
        if link.left is None:
            return None
        return KEPT, "an insert of a row that an earlier change left in place", "no row", "a row"
    if link.left is None:
        return LOST, "an update or delete of a row that did not exist at that time", "no row", "a row"
    if link.definition == link.left_definition and link.before == link.left:
        return None
    return _compare(link, version_of, projections)


def _compare(
    link: Link, version_of: Callable[[int], TableVersion], projections: Projections
) -> tuple[str, str, str, str] | None:
    assert link.before is not None
    assert link.left is not None
    now, then = version_of(link.definition), version_of(link.left_definition)
    is_guessed = not (now.id and then.id)
    if is_guessed and now is not then:
        return None
    reads, old = projections.of(now, now), projections.of(then, now)
    if reads is None or old is None:
        return None
    try:
        before, left = reads.values(link.before), old.values(link.left)
    except RowError as error:
        return UNREADABLE, f"an image cannot be read under the table's definition: {error.message}", "", ""
    names = [column.name for column in reads.columns]
    # What an ALTER put into a new column is its business, not that of the change before it.
    unknown = old.unknown | old.newer
    if is_guessed:
        unknown |= {place for place, pair in enumerate(zip(left, before, strict=True)) if None in pair}
    differing = differences(names, left, before, unknown)
    if not differing:
        return None
    listed = ", ".join(difference.column for difference in differing[:_SHOWN])
    more = f" and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
    return (
        BROKEN,
        f"the image before the change is not what the previous change of the row left: {listed}{more}",
        "; ".join(f"{difference.column} = {show(difference.expected)}" for difference in differing[:_SHOWN]),
        "; ".join(f"{difference.column} = {show(difference.actual)}" for difference in differing[:_SHOWN]),
    )


def finding(
    wrong: tuple[str, str, str, str], table: str, key: str, commit_ts: Ts, file: str, pos: int
) -> Finding:
    kind, text, expected, actual = wrong
    return Finding(CHAINS, kind, table, text, key, commit_ts, file, pos, expected, actual)


# Chain check: what is wrong with steps of rows that do not follow from the step before them.
# Holds   a step that is there twice counts, and is no finding
# Why     nearly all links are equal bytes under one definition: only the rest is decoded


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

"""Contents check: what the archive says a table holds at a point in time, beside what a database holds.

In      comparisons of tables, images of their rows; rows of both sides, judged by a runner
Out     findings with keys; per table and chunk of keys: rows and checksums on both sides
Holds   a checksum is the sum of 64-bit hashes of (key, row) in canonical form, modulo 2^64: it does not
        depend on any order. Rows that are not known whole are left out of it, on both sides, and counted
Why     all rows are read anyway, so they are joined by key: a difference is found with its key at once
Tests   tests/spark/audit/test_auditing.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from drainer.changes import canonical
from drainer.reading.archive.decode.definitions import Definitions
from drainer.spark.audit.checks.comparison import Compared, Comparison, RowReader
from drainer.spark.audit.checks.findings import CONTENTS, Finding, Findings, Note

EQUAL: Final = "equal"
PARTLY: Final = "compared in part"
UNSEEN: Final = "not in the archive"
DIFFERS: Final = "differs"
MISSING: Final = "missing"
SURPLUS: Final = "surplus"
_SHOWN: Final = 4
_MODULUS: Final = 1 << 64

Expected = tuple[int, bytes | None, bytes | None, int, int, str | None]
"""Number of the comparison, key, row, times, turn, unknown places. Without key: a row that is passed over.
`turn`: of those of one key the last one counts."""


@dataclass(frozen=True, slots=True)
class ChunkSum:
    """One chunk of a table's keys: rows and checksums as the archive says and as they are there."""

    chunk: int
    expected_rows: int
    actual_rows: int
    expected_sum: int
    actual_sum: int
    differing: int


@dataclass(slots=True)
class TableOutcome:
    """What the comparison of a table found. `states`: rows by state."""

    table: str
    whole: bool
    keyed: bool
    states: dict[str, int] = field(default_factory=dict)
    chunks: list[ChunkSum] = field(default_factory=list)

    @property
    def expected_sum(self) -> int:
        return sum(one.expected_sum for one in self.chunks) % _MODULUS

    @property
    def actual_sum(self) -> int:
        return sum(one.actual_sum for one in self.chunks) % _MODULUS


@dataclass(slots=True)
class Contents:
    """Outcome of the check."""

    findings: Findings
    tables: list[TableOutcome] = field(default_factory=list)


class LastStep(NamedTuple):
    """What the last step of a row says; of tables without key what each step says."""

    lineage: int
    definition: int
    before: bytes | None
    after: bytes | None


class Judged(NamedTuple):
    """A row of one key beside that of the other side. `here`, `there`: how often it is there."""

    number: int
    key: bytes
    state: str
    here: int
    there: int
    expected: bytes | None
    actual: bytes | None
    unknown: str | None


class Group(NamedTuple):
    """Rows of one chunk and state: their number, how often they are on both sides, sums of their hashes."""

    number: int
    chunk: int
    state: str
    rows: int
    here: int
    there: int
    expected_sum: int
    actual_sum: int


def readers(comparisons: Mapping[int, Comparison], definitions: Definitions) -> dict[int, RowReader]:
    return {number: RowReader(one, definitions.version) for number, one in comparisons.items()}


def compared(steps: Iterable[LastStep], by_number: Mapping[int, RowReader]) -> Iterator[Expected]:
    for number, definition, before, after in steps:
        reader = by_number[number]
        images = [(after, 1), (before, -1)]
        if reader.comparison.keyed:
            images = [(after, 1) if after is not None else (before, 0)]
        for image, times in images:
            if image is None:
                continue
            found = reader.read(image, definition)
            if found is None:
                yield number, None, None, times, 1, None
            else:
                yield expected(number, found, times, 1)


def expected(number: int, found: Compared, times: int, turn: int) -> Expected:
    unknown = ",".join(map(str, sorted(found.unknown))) or None
    return number, found.key, found.row if times else None, times, turn, unknown if times else None


def outcome(
    findings: Findings, groups: Iterable[Group], comparisons: Mapping[int, Comparison], passed_over: int
) -> Contents:
    """`passed_over`: rows without a key to compare them by."""
    found = Findings(counts=findings.counts)
    found.listed = [replace(one, check=CONTENTS) for one in findings.listed]
    if passed_over:
        text = (
            f"{passed_over} rows are not compared: their keys are not ASCII, in a column whose character set"
            " cannot hold every text"
        )
        found.notes.append(Note(CONTENTS, "", text))
    return Contents(found, _tables(groups, comparisons))


def _tables(groups: Iterable[Group], comparisons: Mapping[int, Comparison]) -> list[TableOutcome]:
    tables = {
        number: TableOutcome(one.table, one.whole, one.keyed) for number, one in sorted(comparisons.items())
    }
    sums: dict[tuple[int, int], list[int]] = {}
    for one in sorted(groups):
        states = tables[one.number].states
        states[one.state] = states.get(one.state, 0) + one.rows
        if one.state in (PARTLY, UNSEEN):
            continue
        parts = sums.setdefault((one.number, one.chunk), [0, 0, 0, 0, 0])
        wrong = one.rows if one.state != EQUAL else 0
        for place, value in enumerate((one.here, one.there, one.expected_sum, one.actual_sum, wrong)):
            parts[place] += value
    for (number, chunk), (here, there, expected_sum, actual_sum, wrong) in sorted(sums.items()):
        chunk_sum = ChunkSum(chunk, here, there, expected_sum % _MODULUS, actual_sum % _MODULUS, wrong)
        tables[number].chunks.append(chunk_sum)
    return list(tables.values())


def findings(rows: Iterable[Judged], comparisons: Mapping[int, Comparison]) -> Iterator[Finding]:
    for row in rows:
        found = finding(row, comparisons[row.number])
        if found is not None:
            yield found


def finding(row: Judged, how: Comparison) -> Finding | None:
    key_columns = [how.columns[place] for place in how.live.key] if how.keyed else how.columns
    values = canonical.unpack(row.key)
    key = ", ".join(
        f"{name}={canonical.show(value)}" for name, value in zip(key_columns, values, strict=True)
    )
    if row.state in (DIFFERS, PARTLY):
        assert row.expected is not None
        assert row.actual is not None
        unknown = frozenset(int(one) for one in (row.unknown or "").split(",") if one)
        pair = canonical.unpack(row.expected), canonical.unpack(row.actual)
        found = canonical.differences(how.columns, *pair, unknown)
        if not found:
            return None
        names = ", ".join(one.column for one in found[:_SHOWN])
        return Finding(
            CONTENTS,
            "row differs",
            how.table,
            f"the row differs in {names}"
            + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""),
            key,
            expected="; ".join(f"{one.column} = {canonical.show(one.expected)}" for one in found[:_SHOWN]),
            actual="; ".join(f"{one.column} = {canonical.show(one.actual)}" for one in found[:_SHOWN]),
        )
    rows = [_rows(row.here), _rows(row.there)]
    if row.state == MISSING:
        text = f"the archive has it, {how.side} not"
        return Finding(CONTENTS, "row is missing", how.table, text, key, expected=rows[0], actual=rows[1])
    text = f"{how.side} has it, the archive " + ("not" if how.whole else "deleted it")
    return Finding(CONTENTS, "row too many", how.table, text, key, expected=rows[0], actual=rows[1])


def _rows(number: int) -> str:
    return "no row" if not number else "a row" if number == 1 else f"{number} rows"

"""Contents check: what the archive says a table holds at a point in time, beside what a database holds.

Out     findings with keys; per table and chunk of keys: rows and checksums on both sides
Holds   a checksum is the sum of 64-bit hashes of (key, row) in canonical form, modulo 2^64: it does not
        depend on any order. Rows that are not known whole are left out of it, on both sides, and counted
Why     all rows are read anyway, so they are joined by key: a difference is found with its key at once
Tests   tests/spark/audit/test_auditing.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple
from zlib import crc32

from drainer.changes import canonical
from drainer.reading.archive.decode.definitions import Definitions
from drainer.spark.audit.checks.comparison import Compared, Comparison, RowReader
from drainer.spark.audit.checks.findings import CONTENTS, Finding, Findings, Note
from drainer.spark.audit.rows.row_steps import RowStep
from drainer.spark.engine import Rows
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.tso import Ts

EQUAL: Final = "equal"
PARTLY: Final = "compared in part"
UNSEEN: Final = "not in the archive"
DIFFERS: Final = "differs"
MISSING: Final = "missing"
SURPLUS: Final = "surplus"
_SHOWN: Final = 4
_MODULUS: Final = 1 << 64


class SideRow(NamedTuple):
    """A row in compared form, of the archive (`side` 0) or of what it is compared with (1).

    Without key: a row that is passed over. `turn`: of those of one key in the archive the last one counts."""

    number: int
    key: bytes | None
    side: int
    turn: int
    row: bytes | None
    times: int = 1
    unknown: str | None = None


COLUMNS: Final = "number long, key binary, side long, turn long, row binary, times long, unknown string"


@dataclass(frozen=True)
class Beginning:
    """What tables of these lineages held at a timestamp: rows as `archived` makes them."""

    until_ts: Ts
    lineages: frozenset[int]
    rows: Rows


@dataclass(frozen=True)
class ContentsInput:
    """`comparisons`: by lineage. `live`: rows of the reference side. `chunks`: of keys, for checksums."""

    comparisons: Mapping[int, Comparison]
    at_ts: Ts
    live: Rows
    chunks: int
    beginning: Beginning | None = None


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
        return sum(chunk.expected_sum for chunk in self.chunks) % _MODULUS

    @property
    def actual_sum(self) -> int:
        return sum(chunk.actual_sum for chunk in self.chunks) % _MODULUS


@dataclass(slots=True)
class Contents:
    """Outcome of the check."""

    findings: Findings
    tables: list[TableOutcome] = field(default_factory=list)


class Judged(NamedTuple):
    """A row of one key beside that of the other side. `expected_rows`, `actual_rows`: how often it
    is in the archive and there."""

    number: int
    key: bytes
    state: str
    expected_rows: int
    actual_rows: int
    expected: bytes | None
    actual: bytes | None
    unknown: str | None


Group = tuple[int, int, str]
"""Number of the comparison, chunk, state."""


@dataclass(frozen=True, slots=True)
class ContentsPart:
    """What one task found. `sums`: rows, how often they are on both sides, sums of their hashes."""

    findings: Findings
    sums: dict[Group, list[int]]
    passed_over: int


def check(steps: Rows, given: ContentsInput, definitions: Definitions) -> Contents:
    """`steps` are sorted, those of a row in one task."""
    rows = steps.then(LastRows.of(given, definitions), COLUMNS)
    if given.beginning is not None:
        rows = rows.plus(given.beginning.rows)
    by_key = rows.plus(given.live).together(("number", "key"), ("side", "turn", "row", "times", "unknown"))
    parts = by_key.gather(Judge(given.comparisons, given.chunks, given.beginning is not None))
    return _outcome(parts, given.comparisons)


# -- the archive's rows ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LastRows:
    """The last step of every row of the compared tables, read; of tables without key all steps, each once."""

    comparisons: Mapping[int, Comparison]
    definitions: Definitions
    at_ts: Ts
    begun_ts: Ts
    begun: frozenset[int]

    @classmethod
    def of(cls, given: ContentsInput, definitions: Definitions) -> LastRows:
        begun = given.beginning
        until = (begun.until_ts, begun.lineages) if begun is not None else (-1, frozenset[int]())
        return cls(given.comparisons, definitions, given.at_ts, *until)

    def __call__(self, steps: Iterator[RowStep]) -> Iterator[SideRow]:
        readers = {
            number: RowReader(comparison, self.definitions.version)
            for number, comparison in self.comparisons.items()
        }
        for last in self._last(steps):
            yield from archived(last, readers[last[0]])

    def _last(self, steps: Iterator[RowStep]) -> Iterator[RowStep]:
        last: RowStep | None = None
        for step in steps:
            lineage, commit_ts = step[0], step[3]
            if lineage not in self.comparisons or commit_ts > self.at_ts:
                continue
            if commit_ts <= self.begun_ts and lineage in self.begun:
                continue
            if last is not None and (step[2] != last[2] or lineage != last[0] or step[1] != last[1]):
                yield last
            last = step
        if last is not None:
            yield last


def archived(step: RowStep, reader: RowReader) -> Iterator[SideRow]:
    """What a step says that there is."""
    number, _, _, _, _, definition, before, after, *_ = step
    images = [(after, 1), (before, -1)]
    if reader.comparison.keyed:
        images = [(after, 1) if after is not None else (before, 0)]
    for image, times in images:
        if image is None:
            continue
        compared = reader.read(image, definition)
        if compared is None:
            yield SideRow(number, None, 0, 1, None, times)
        else:
            yield expected(number, compared, times, 1)


def expected(number: int, compared: Compared, times: int, turn: int) -> SideRow:
    """A row of the archive, or of what its tables begin with."""
    unknown = ",".join(map(str, sorted(compared.unknown))) or None
    row = compared.row if times else None
    return SideRow(number, compared.key, 0, turn, row, times, unknown if times else None)


# -- both sides, by key ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judge:
    """What tasks do with rows of both sides that are sorted, those of one key in one task."""

    comparisons: Mapping[int, Comparison]
    chunks: int
    has_beginning: bool

    def __call__(self, rows: Iterator[SideRow]) -> Iterator[ContentsPart]:
        passed_over = 0

        def judged() -> Iterator[Judged]:
            nonlocal passed_over
            for (number, key), of_key in groupby(rows, itemgetter(0, 1)):
                if key is None:
                    passed_over += sum(1 for _ in of_key)
                else:
                    yield self._judge(number, key, of_key)

        sums: dict[Group, list[int]] = {}

        def differing() -> Iterator[Judged]:
            for row in judged():
                _add(sums, row, self.chunks)
                if row.state not in (EQUAL, UNSEEN):
                    yield row

        findings = Findings.of(_findings(differing(), self.comparisons))
        yield ContentsPart(findings, sums, passed_over)

    def _judge(self, number: int, key: bytes, rows: Iterable[SideRow]) -> Judged:
        how = self.comparisons[number]
        only_last = self.has_beginning and how.keyed
        expected_rows = actual_rows = 0
        is_known, row, actual, unknown = False, None, None, None
        for _, _, side, _, image, times, places in rows:  # of several rows of a side the largest
            if side:
                actual, actual_rows = image, actual_rows + 1
            else:
                is_known, row, expected_rows = True, image, times if only_last else expected_rows + times
                unknown = places if only_last else max(unknown or "", places or "") or None
        if expected_rows == actual_rows:
            if unknown is not None and expected_rows == 1:
                state = PARTLY
            else:
                state = EQUAL if not expected_rows or row == actual else DIFFERS
        elif not is_known and not how.whole:
            state = UNSEEN
        else:
            state = MISSING if actual_rows < expected_rows else SURPLUS
        return Judged(number, key, state, expected_rows, actual_rows, row, actual, unknown)


def _add(sums: dict[Group, list[int]], row: Judged, chunks: int) -> None:
    """An equal row, as nearly all are, is hashed once; one that is not known whole not at all."""
    hashes = [0, 0]
    if row.state not in (PARTLY, UNSEEN):
        hashes[0] = _hash(row.key, row.expected) if row.expected_rows > 0 else 0
        if row.actual_rows > 0:
            hashes[1] = hashes[0] if row.state == EQUAL else _hash(row.key, row.actual)
    parts = sums.setdefault((row.number, crc32(row.key) % chunks, row.state), [0, 0, 0, 0, 0])
    times = row.expected_rows, row.actual_rows
    for place, value in enumerate((1, *times, times[0] * hashes[0], times[1] * hashes[1])):
        parts[place] += value


def _hash(key: bytes, row: bytes | None) -> int:
    return int.from_bytes(blake2b(b"%d:%b%b" % (len(key), key, row or b""), digest_size=8).digest(), "big")


# -- the outcome -------------------------------------------------------------------------------------------


def _outcome(parts: Sequence[ContentsPart], comparisons: Mapping[int, Comparison]) -> Contents:
    findings = Findings.merged([part.findings for part in parts])
    if passed_over := sum(part.passed_over for part in parts):
        text = (
            f"{passed_over} rows are not compared: their keys are not ASCII, in a column whose character set"
            " cannot hold every text"
        )
        findings.notes.append(Note(CONTENTS, "", text))
    return Contents(findings, _tables([group for part in parts for group in part.sums.items()], comparisons))


def _tables(
    groups: Iterable[tuple[Group, list[int]]], comparisons: Mapping[int, Comparison]
) -> list[TableOutcome]:
    tables = {
        number: TableOutcome(comparison.table, comparison.whole, comparison.keyed)
        for number, comparison in sorted(comparisons.items())
    }
    sums: dict[tuple[int, int], list[int]] = {}
    for (number, chunk, state), (rows, *of_sides) in sorted(groups):
        states = tables[number].states
        states[state] = states.get(state, 0) + rows
        if state in (PARTLY, UNSEEN):
            continue
        parts = sums.setdefault((number, chunk), [0, 0, 0, 0, 0])
        for place, value in enumerate((*of_sides, rows if state != EQUAL else 0)):
            parts[place] += value
    for (number, chunk), (expected_rows, actual_rows, expected_sum, actual_sum, wrong) in sorted(
        sums.items()
    ):
        chunk_sum = ChunkSum(
            chunk, expected_rows, actual_rows, expected_sum % _MODULUS, actual_sum % _MODULUS, wrong
        )
        tables[number].chunks.append(chunk_sum)
    return list(tables.values())


def _findings(rows: Iterable[Judged], comparisons: Mapping[int, Comparison]) -> Iterator[Finding]:
    for row in rows:
        finding = _finding(row, comparisons[row.number])
        if finding is not None:
            yield finding


def _finding(row: Judged, how: Comparison) -> Finding | None:
    key_columns = [how.columns[place] for place in how.live.key] if how.keyed else how.columns
    values = canonical.unpack(row.key)
    key = ", ".join(
        f"{name}={canonical.show(value)}" for name, value in zip(key_columns, values, strict=True)
    )
    if row.state in (DIFFERS, PARTLY):
        assert row.expected is not None
        assert row.actual is not None
        unknown = frozenset(int(place) for place in (row.unknown or "").split(",") if place)
        pair = canonical.unpack(row.expected), canonical.unpack(row.actual)
        differing = canonical.differences(how.columns, *pair, unknown)
        if not differing:
            return None
        names = ", ".join(difference.column for difference in differing[:_SHOWN])
        return Finding(
            CONTENTS,
            "row differs",
            how.table,
            f"the row differs in {names}"
            + (f" and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""),
            key,
            expected="; ".join(
                f"{difference.column} = {canonical.show(difference.expected)}"
                for difference in differing[:_SHOWN]
            ),
            actual="; ".join(
                f"{difference.column} = {canonical.show(difference.actual)}"
                for difference in differing[:_SHOWN]
            ),
        )
    rows = [_rows(row.expected_rows), _rows(row.actual_rows)]
    if row.state == MISSING:
        text = f"the archive has it, {how.side} not"
        return Finding(CONTENTS, "row is missing", how.table, text, key, expected=rows[0], actual=rows[1])
    text = f"{how.side} has it, the archive " + ("not" if how.whole else "deleted it")
    return Finding(CONTENTS, "row too many", how.table, text, key, expected=rows[0], actual=rows[1])


def _rows(number: int) -> str:
    return "no row" if not number else "a row" if number == 1 else f"{number} rows"

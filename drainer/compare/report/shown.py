"""Shown: the parts of a comparison's result as texts, the same in the terminal, on the page and in JSON.

Values only. A value is shown as the literal that it is, so that NULL, an empty text and the text 'NULL' look
different; what is too long is cut, and says how long it is. JSON has the whole value.

Tests  tests/drainer/compare/report/test_terminal.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from drainer.compare.verify.result import (
    How,
    Kind,
    Name,
    RowDifference,
    State,
    TableResult,
    Values,
    Verification,
)
from tidb_binlog.quantities import count

VALUE_MAX: Final = 120
NO_SIDE: Final = "no row"
_NAMED: Final = 5


def name_text(name: Name) -> str:
    return f"{name[0]}.{name[1]}"


def names_text(names: tuple[Name, ...]) -> str:
    return ", ".join(map(name_text, names))


def whole(value: bytes) -> str:
    """A literal as text; bytes that are none are written as escapes."""
    return value.decode("utf-8", "backslashreplace")


def short(value: bytes) -> str:
    text = whole(value)
    if len(text) <= VALUE_MAX:
        return text
    return f"{text[:VALUE_MAX]}... ({len(value):,} bytes)"


def key_text(table: TableResult, difference: RowDifference) -> str:
    """`id=7, part='x'`; of a table without a key how many rows of these values there are."""
    if difference.copies is not None:
        return f"no key: {difference.copies[0]:,} upstream, {difference.copies[1]:,} downstream"
    return ", ".join(
        f"{column.name}={short(value)}"
        for column, value in zip(table.key_columns, difference.key, strict=True)
    )


def compared_values(table: TableResult, difference: RowDifference) -> Iterator[tuple[str, str, str]]:
    """Column, upstream, downstream: of a changed row what differs, of another one all that it has."""
    for number, column in enumerate(table.row_columns):
        if difference.kind is not Kind.CHANGED or column.name in difference.columns:
            yield column.name, _side(difference.upstream, number), _side(difference.downstream, number)


def _side(values: Values | None, number: int) -> str:
    return NO_SIDE if values is None else short(values[number])


def how_text(table: TableResult) -> str:
    """How a table was compared, and what of it was not."""
    apart = [column for column in table.columns if column.how is How.NOT_COMPARED]
    by_value = [column.name for column in table.columns if column.how is How.VALUES]
    parts = ["checksums" if table.how is How.CHECKSUM else "row by row"]
    if table.how is How.CHECKSUM and by_value:
        parts.append(f"by value: {', '.join(by_value)}")
    if apart:
        reasons = ", ".join(
            f"{column.name} ({column.why})" if column.why else column.name for column in apart
        )
        parts.append(f"not compared: {reasons}")
    if table.other_columns:
        parts.append(f"only downstream: {', '.join(table.other_columns)}")
    return "; ".join(parts)


def _apart(table: TableResult) -> Iterator[str]:
    """Columns of the upstream of which nothing is said."""
    for column in table.columns:
        if column.how is How.NOT_COMPARED and column.name not in table.other_columns:
            yield f"{name_text(table.downstream)}.{column.name}"


def about(table: TableResult) -> str:
    """The last column of a list of tables."""
    if table.state is State.NOT_COMPARABLE:
        return table.why
    return "; ".join(filter(None, (table.why, how_text(table))))


def verdict(result: Verification) -> str:
    """One sentence."""
    tables = count(len(result.tables), "table")
    apart = sum(table.state is State.NOT_COMPARABLE for table in result.tables)
    rest = f"; {count(apart, 'table')} could not be compared" if apart else ""
    if result.state is State.DIFFERS:
        wrong = [table for table in result.tables if table.state is State.DIFFERS]
        differ = "1 row differs" if result.wrong == 1 else f"{result.wrong:,} rows differ"
        # A table that one side lacks has no rows to count.
        where = f"{len(wrong):,} of {tables}"
        differ = (
            f"{differ} in {where}"
            if result.wrong
            else f"{where} {'differs' if len(wrong) == 1 else 'differ'}"
        )
        return f"{differ}{rest}; {compared_text(result)}"
    if result.state is State.EQUAL:
        names = [name for table in result.tables for name in _apart(table)]
        but = f" but for what was not compared ({', '.join(names[:_NAMED])})" if names else ""
        return f"downstream equals upstream{but}: {tables}; {compared_text(result)}"
    if not result.tables:
        return "nothing was compared: no table is there that the filters let through"
    equal = sum(table.state is State.EQUAL for table in result.tables)
    return f"not wholly comparable: {equal:,} of {tables} are equal{rest}; {compared_text(result)}"


def compared_text(result: Verification) -> str:
    """`compared 30,000 rows in 12 chunks, 3 read whole`."""
    whole = f", {result.read_whole:,} read whole" if result.read_whole else ""
    return f"compared {count(result.rows, 'row')} in {count(result.chunks, 'chunk')}{whole}"


def kinds_text(table: TableResult) -> str:
    """`2 missing, 1 changed`."""
    counts = ((table.missing, Kind.MISSING), (table.extra, Kind.EXTRA), (table.changed, Kind.CHANGED))
    return ", ".join(f"{number:,} {kind}" for number, kind in counts if number)

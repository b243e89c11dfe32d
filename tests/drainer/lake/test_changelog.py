"""Recorded rows of every type in tables of both formats, against the values that programs are given."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from drainer.changes.model import Column, Row
from drainer.changes.row_reader import RowReader
from drainer.changes.values import EnumValue, PartialDate
from drainer.txn import Transaction
from tests.contract.lake_beds import BEDS
from tests.drainer.support import recorded
from tests.drainer.support.lake_world import give, sink_of
from tests.drainer.support.relay_world import items


def lake_value(value: Any, column: Column) -> Any:
    """What stands in a changelog for a value that a program is given."""
    if isinstance(value, Decimal) and int(re.findall(r"\d+", column.type)[0]) > 38:
        return format(value, "f")
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, PartialDate) or (isinstance(value, EnumValue) and not value.number):  # has no name
        return None
    if isinstance(value, bytes) and column.python_type is not bytes:
        return None
    return str(value) if isinstance(value, str) else value


def image(row: Row, side: str) -> dict[str, Any] | None:
    values = getattr(row, side)
    columns = {column.name: column for column in row.table.columns}
    return values and {name: lake_value(value, columns[name]) for name, value in values.items()}


def without_nulls(values: dict[str, Any] | None) -> Any:
    """Columns that came later are null in rows before."""
    return values and sorted(
        (name.lower(), canonical(value)) for name, value in values.items() if value is not None
    )


def canonical(value: Any) -> str:
    """Numbers are equal whatever their class, and a FLOAT has the digits of its 32 bits."""
    if isinstance(value, int | Decimal):
        return str(Decimal(value).normalize())
    if isinstance(value, datetime):
        return value.isoformat()
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


@pytest.mark.parametrize(
    ("scenario", "form"),
    [*itertools.product(("types", "ddl"), BEDS), *zip(("keys", "charset"), BEDS, strict=True)],
)
def test_rows_of_every_type(scenario: str, form: str, tmp_path: Path) -> None:
    transactions = [item for item in items(scenario) if isinstance(item, Transaction)]
    bed = BEDS[form](tmp_path)
    sink = sink_of(bed.lake())
    reader = RowReader()
    expected: Counter[Any] = Counter()
    for at in range(0, len(transactions), 50):
        give(sink, transactions[at : at + 50])
    for item in transactions:
        for row in reader.transaction(item).rows:
            images = (str(without_nulls(image(row, side))) for side in ("before", "after"))
            expected[(item.commit_ts, row.table.schema, row.kind, *images)] += 1
    rows: Counter[Any] = Counter()
    for schema, table in bed.tables():
        for each in bed.changes(table, schema):
            images = (str(without_nulls(each[side])) for side in ("before", "after"))
            rows[(each["_commit_ts"], schema, each["_kind"], *images)] += 1
    assert expected
    assert sorted((rows - expected).elements()) == sorted((expected - rows).elements()) == []


def test_scenarios_are_recorded() -> None:
    assert {"types", "ddl", "keys", "charset"} <= set(recorded.SCENARIOS)

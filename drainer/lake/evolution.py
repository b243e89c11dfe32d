"""Evolution: what becomes of a changelog's columns when rows of another table version come.

Out    columns to add and types to widen; or why neither helps, and a new table has to begin

    upstream                                          changelog
    column added, or renamed                          added; the old name stays, null from now on
    column dropped                                    stays, null from now on
    type that the changelog's type holds              as it is
    type that holds all values of the changelog's     widened, if the format can: INT to BIGINT, FLOAT to
                                                      DOUBLE, DECIMAL to one of more digits
    any other type; a name with another id            a new table

Holds  names are the same whatever their case, as in TiDB. Ids count for one table upstream only: another one
       that comes with the same name (dropped and made again, emptied, routed to it) is compared by names
Tests  tests/drainer/lake/test_evolution.py
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa

from tidb_binlog.late_dataclass import dataclass


class LakeColumn(NamedTuple):
    """A column of a table version, with the type that it has in a changelog."""

    name: str
    id: int
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Evolution:
    """`obstacle`: why a new table has to begin, "" if none has to. Names are those of the changelog."""

    added: tuple[tuple[str, pa.DataType], ...] = ()
    widened: tuple[tuple[str, pa.DataType], ...] = ()
    obstacle: str = ""


def lake_type(arrow: pa.DataType) -> pa.DataType:
    """Choose the type of a column in a changelog, as both formats have it: no integer is shorter than 32
    bits, and a TIME is its number of microseconds."""
    if pa.types.is_int8(arrow) or pa.types.is_int16(arrow):
        return pa.int32()
    return pa.int64() if pa.types.is_duration(arrow) else arrow


def holds(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Whether every value of one type is one of the other, and stays so in files of before."""
    if wide == narrow:
        return True
    if pa.types.is_decimal(wide) and pa.types.is_decimal(narrow):
        return bool(wide.scale == narrow.scale and wide.precision >= narrow.precision)
    return (narrow, wide) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def evolution(
    present: Mapping[str, pa.DataType],
    ids: Mapping[str, int],
    columns: Iterable[LakeColumn],
    *,
    can_widen: bool,
) -> Evolution:
    """`ids`: by name, of the same table upstream as far as its rows are in the changelog."""
    names = {name.lower(): name for name in present}
    old_ids = {name.lower(): number for name, number in ids.items()}
    added, widened = [], []
    for column in columns:
        key = column.name.lower()
        if key not in names:
            added.append((column.name, column.type))
            continue
        name, kind = names[key], present[names[key]]
        if old_ids.get(key, column.id) != column.id:
            return Evolution(obstacle=f"column {column.name} is another one than before")
        if holds(kind, column.type):
            continue
        if not (can_widen and holds(column.type, kind)):
            return Evolution(obstacle=f"column {column.name} was {kind} and is {column.type}")
        widened.append((name, column.type))
    return Evolution(tuple(added), tuple(widened))

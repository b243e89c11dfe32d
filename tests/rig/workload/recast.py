"""Recast: what TiDB makes of a value when a column of the demo gets another type. Pure.

In     the types before and after, a value as it is compared
Out    the value then, as it is compared
Why    no row change tells of it: the model and who subscribes must know it, as the Drainer does

Tests  tests/rig/workload/test_recast.py
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from binlog_playground.check.verify import Canonical
from drainer.ddl.convert import cast
from tests.rig.workload import kinds
from tests.rig.workload.kinds import Kind, Value
from tidb_binlog import table_info as ti
from tidb_binlog.table_info import FieldType

_UNINDEXED: Final = (kinds.TEXT, kinds.JSON)
_MOMENTS: Final = (kinds.YEAR, kinds.DATE, kinds.DATETIME, kinds.TIME)
_NO_MOMENTS: Final = (kinds.DECIMAL, kinds.DOUBLE, kinds.ENUM, kinds.TIME)
"""Of these some or all values become no moment: TiDB refuses them, or asks what day it is."""
_NUMBERS: Final = (kinds.SMALLINT, kinds.INT, kinds.BIGINT, kinds.DECIMAL, kinds.DOUBLE)
_TARGETS: Final = (*_NUMBERS, kinds.varchar(20), kinds.varchar(60), *_MOMENTS, *_UNINDEXED)
BY_TYPE: Final = {kind.sql.lower(): kind for kind in (*_TARGETS, kinds.ENUM, kinds.VARBINARY)}


def targets(before: Kind, *, indexed: bool) -> list[Kind]:
    """Types that a column with any values can change to."""
    never = (before, *(_UNINDEXED if indexed else ()), *(_MOMENTS if before in _NO_MOMENTS else ()))
    return [one for one in _TARGETS if one not in never]


def recast(before: Kind, after: Kind, shown: Canonical) -> str | None:
    """`after` is one of the `targets`."""
    assert shown is None or isinstance(shown, str)
    was, now = (FieldType.from_json(kind.field_type(0)) for kind in (before, after))
    value = cast.cast(_value(before, shown), was, now, cast.Moments())
    if value is None or isinstance(value, bytes):
        return None if value is None else value.decode()
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def value_of(kind: Kind, shown: str | None) -> Value:
    """The model's form of a value as it is compared."""
    if shown is None or kind.repr in ("text", "dec"):
        return shown
    return float(shown) if kind.repr == "double" else int(shown)


def _value(kind: Kind, shown: str | None) -> cast.Value:
    if shown is None or kind.repr == "hex":
        return None if shown is None else bytes.fromhex(shown)
    if kind.tp == ti.ENUM:
        return kind.elems.index(shown) + 1
    if kind.repr == "dec":
        return Decimal(shown)
    return shown.encode() if kind.charset != "binary" or kind.tp == ti.JSON else value_of(kind, shown)

"""Images: from the rows of a binlog to complete rows in one form, before and after a change.

In     a table version once, then its encoded rows
Out    an image: the writable columns in table order as (column id, datum) pairs, the form of a DELETE. Hidden
       row ids and generated columns are left out, as an archive has no row ids
Holds  rows with the same values have the same bytes, whether they come from an INSERT, a half of an UPDATE or
       a DELETE of one source
Why    what follows compiles one reader a table version, whatever a row came with
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from common.rowcodec.codegen import Conversion, Shape
from common.rowcodec.datum import NULL_DATUM, read_bytes, read_duration, read_int, read_unsigned, skip
from common.rowcodec.plan import RowReaders
from common.rowcodec.put import put_bytes, put_int
from common.rowcodec.varint import UINT64_END, put_svarint, put_uvarint
from common.table_info import (
    BIT,
    ENUM,
    INTEGER_TYPES,
    JSON,
    SET,
    STRING_TYPES,
    TIME,
    YEAR,
    Column,
    TableInfo,
)
from drainer.spark.decode.records import Row
from drainer.txn import DELETE, INSERT, TableEvents, TableVersion

_PLANS_MAX: Final = 10_000
_EMPTY: Final = b"\x00"


def put_unsigned(value: int) -> bytes:
    return b"\x09" + put_uvarint(value & (UINT64_END - 1))


def _put_signed(value: int) -> bytes:
    return put_int(value - UINT64_END if value >= UINT64_END >> 1 else value, unsigned=False)


def _as_it_stands(b: bytes, i: int) -> tuple[bytes, int]:
    end = skip(b, i)
    return b[i:end], end


def _conversion(column: Column, place: int) -> Conversion:
    """Every value becomes its datum, in the form that a body has."""
    kind = column.type
    names = {"NIL": NULL_DATUM, "put_unsigned": put_unsigned}

    def of(
        shape: Shape, read: Callable[[bytes, int], tuple[Any, int]], put: Callable[[Any], bytes]
    ) -> Conversion:
        def strict(b: bytes, i: int) -> tuple[bytes, int]:
            value, end = read(b, i)
            return put(value), end

        return Conversion(shape, "", strict, names, raw=shape is not Shape.CALL, null="NIL")

    if kind.array or kind.tp == JSON:
        return Conversion(Shape.CALL, "", _as_it_stands, names, null="NIL")
    if kind.tp in INTEGER_TYPES and (not kind.unsigned or kind.tp == YEAR):
        return of(Shape.SIGNED, read_int, _put_signed)
    if kind.tp in INTEGER_TYPES:
        return of(Shape.UNSIGNED, read_int, put_unsigned)
    if kind.tp in (ENUM, SET, BIT):
        return of(Shape.UNSIGNED, read_unsigned, put_unsigned)
    if kind.tp in STRING_TYPES:
        return of(Shape.BYTES, read_bytes, put_bytes)
    if kind.tp == TIME:  # comparable bytes in a clustered key
        return of(Shape.CALL, read_duration, lambda ns: put_int(ns, unsigned=False))
    return Conversion(Shape.CALL, "", _as_it_stands, names, null="NIL")


class ImagePlan:
    """Images of the rows of one table version. Functions raise `RowError` for a row that cannot be right."""

    insert: Callable[[bytes], bytes]
    update: Callable[[bytes], tuple[bytes, bytes]]
    delete: Callable[[bytes], bytes]

    def __init__(self, info: TableInfo) -> None:
        readers = RowReaders(info, _conversion, None)
        strict, places = readers.strict, readers.all_places
        ids = [b"\x08" + put_svarint(column.id) for column in readers.layout.columns]
        unsigned = [conversion.shape is Shape.UNSIGNED for conversion in readers.conversions]
        names: dict[str, Any] = {"join": b"".join, "NOTHING": _EMPTY}
        names |= {f"ID{place}": head for place, head in enumerate(ids)}
        new, old = (
            f"join(({''.join(f'ID{place}, {prefix}{place}, ' for place in places)})) or NOTHING"
            for prefix in "vo"
        )

        def datum(value: Any, place: int) -> bytes:
            if value is None:
                return NULL_DATUM
            if isinstance(value, int):  # an integer handle
                return put_unsigned(value) if unsigned[place] else _put_signed(value)
            assert isinstance(value, bytes)
            return value

        def image(values: tuple[Any, ...]) -> bytes:
            pairs = (ids[place] + datum(value, place) for place, value in enumerate(values))
            return b"".join(pairs) or _EMPTY

        def slow_update(row: bytes) -> tuple[bytes, bytes]:
            before, after, _ = strict.update(row)
            return image(before), image(after)

        self.insert = readers.of_insert(
            places, [f"return {new}"], lambda row: image(strict.insert(row)), extra=names
        )
        self.delete = readers.of_delete(
            places, [f"return {new}"], lambda row: image(strict.delete(row)), extra=names
        )
        self.update = readers.of_update(places, places, [f"return {old}, {new}"], slow_update, extra=names)


class Images:
    """Rows of any table version as images. Plans are kept as long as this."""

    def __init__(self) -> None:
        self._plans: dict[TableVersion, ImagePlan] = {}

    def rows(self, events: TableEvents) -> list[Row]:
        """Raises `RowError`."""
        table = events.table
        plan = self._plans.get(table)
        if plan is None:
            if len(self._plans) >= _PLANS_MAX:
                self._plans.clear()
            plan = self._plans[table] = ImagePlan(table.info)
        found: list[Row] = []
        for kind, row in zip(events.kinds, events.rows, strict=True):
            if kind == INSERT:
                found.append((table, kind, None, plan.insert(row)))
            elif kind == DELETE:
                found.append((table, kind, plan.delete(row), None))
            else:
                before, after = plan.update(row)
                found.append((table, kind, before, after))
        return found

"""Images: from the rows of a binlog to complete rows in one form, before and after a change.

Out    an image: the writable columns in table order as (column id, datum) pairs, the form of a DELETE. Hidden
       row ids and generated columns are left out, as an archive has no row ids
Holds  rows with the same values have the same bytes, whether they come from an INSERT, a half of an UPDATE or
       a DELETE of one source. But the old image of a table without a key lacks the columns that the row does
       (while a DROP COLUMN is under way): nothing else may stand for what the row had
Why    what follows compiles one reader a table version, whatever a row came with
Tests  tests/drainer/reading/archive/test_typed_values.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from drainer.changes.values import DATUM_NAMES, DATUMS, put_signed, put_unsigned, shown
from drainer.mysql.literal.plan import compile_sql
from drainer.reading.archive.decode.records import Row, RowRun
from drainer.txn import DELETE, INSERT, TableEvents, TableVersion, Transaction
from tidb_binlog.rowcodec.codegen import Conversion, Shape
from tidb_binlog.rowcodec.datum import NULL_DATUM, read_duration, skip
from tidb_binlog.rowcodec.plan import RowReaders
from tidb_binlog.rowcodec.put import put_int
from tidb_binlog.rowcodec.strict import Reader
from tidb_binlog.rowcodec.varint import put_svarint
from tidb_binlog.table_info import Column, ColumnKind, TableInfo

if TYPE_CHECKING:
    from drainer.reading.archive.decode.definitions import Definitions

_PLANS_MAX: Final = 10_000
_EMPTY: Final = b"\x00"


def _as_it_stands(b: bytes, i: int) -> tuple[bytes, int]:
    end = skip(b, i)
    return b[i:end], end


def _by(read: Reader) -> Conversion:
    return Conversion(Shape.CALL, "", read, DATUM_NAMES, null="NIL")


_WHOLE_DATUM: Final = _by(_as_it_stands)
_CONVERSIONS: Final[dict[ColumnKind, Conversion]] = {
    **DATUMS,
    # Comparable bytes in a clustered key.
    ColumnKind.TIME: _by(shown(read_duration, lambda ns: put_int(ns, unsigned=False))),
}


def conversion(column: Column, place: int) -> Conversion:
    """Every value becomes its datum, in the form that a body has."""
    return _CONVERSIONS.get(column.type.kind, _WHOLE_DATUM)


class ImagePlan:
    """Images of the rows of one table version. Functions raise `RowError` for a row that cannot be right."""

    insert: Callable[[bytes], bytes]
    update: Callable[[bytes], tuple[bytes, bytes]]
    delete: Callable[[bytes], bytes]

    def __init__(self, info: TableInfo) -> None:
        readers = RowReaders(info, conversion)
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
                return put_unsigned(value) if unsigned[place] else put_signed(value)
            assert isinstance(value, bytes)
            return value

        def image(values: tuple[Any, ...]) -> bytes:
            pairs = (ids[place] + datum(value, place) for place, value in enumerate(values))
            return b"".join(pairs) or _EMPTY

        keyed = bool(compile_sql(info).key_columns)

        def old_image(row: bytes) -> bytes:
            if keyed:
                return image(strict.delete(row))
            pairs = (ids[place] + datum(value, place) for place, value in strict.present(row).items())
            return b"".join(pairs) or _EMPTY

        def slow_update(row: bytes) -> tuple[bytes, bytes]:
            _, after, split = strict.update(row)
            return old_image(row[:split]), image(after)

        self.insert = readers.of_insert(
            places, [f"return {new}"], lambda row: image(strict.insert(row)), extra=names
        )
        self.delete = readers.of_delete(places, [f"return {new}"], old_image, extra=names)
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
        images: list[Row] = []
        for kind, row in zip(events.kinds, events.rows, strict=True):
            if kind == INSERT:
                images.append((table, kind, None, plan.insert(row)))
            elif kind == DELETE:
                images.append((table, kind, plan.delete(row), None))
            else:
                before, after = plan.update(row)
                images.append((table, kind, before, after))
        return images

    def runs(self, item: Transaction, definitions: Definitions) -> Iterator[RowRun]:
        """The rows of a transaction, of each table under the definition that stands for its version. Raises
        `RowError`."""
        for events in item.tables:
            version = definitions.of_upstream(events.table)
            yield events.first_ordinal, [(version, *row[1:]) for row in self.rows(events)]

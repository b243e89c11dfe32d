"""Projection: a row image as it reads under a later definition of its table.

Out    canonical values of the later definition's columns, and the places that cannot be known
Holds  columns are the same where their ids are; under definitions that are not the upstream's, which have no
       ids, where their names are. A column that is newer than the image holds its origin
       default, as the server shows it; without one it is not known, because a MODIFY that converts makes a
       new column too. One whose type was changed in place is known only where the change keeps every value:
       whatever may have been rounded, cut or converted is not claimed
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from drainer.changes import canonical
from drainer.changes.canonical import Canonical, form_of
from drainer.txn import TableVersion
from tidb_binlog.rowcodec.plan import compile_table
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.table_info import Column, FieldType

_INTEGERS: Final = frozenset({canonical.INTEGER, canonical.UNSIGNED})
_IN_NO_IMAGE: Final = 1 << 40
"""Added to numbers of columns that are not ids: in an image they are another column's."""
_SIZED: Final = frozenset({canonical.DECIMALS, canonical.TIMES})


def keeps_values(old: FieldType, new: FieldType) -> bool:
    """Whether every value of a column survives a change of its type, in canonical form."""
    before, after = form_of(old), form_of(new)
    if before in _INTEGERS and after in _INTEGERS:
        return True  # strict mode refuses what does not fit
    if before != after:
        return False
    if before in _SIZED:
        return old.tp == new.tp and new.fsp >= old.fsp
    if before == canonical.DOUBLES:
        return new.tp == old.tp or (new.tp > old.tp and new.decimal < 0)
    if before in (canonical.NAMES, canonical.NUMBER):
        return old.tp == new.tp and new.elems[: len(old.elems)] == old.elems
    return True


class Projection:
    """Reads images of `written` as rows of `target`.

    `unknown` are places (among `columns`) whose values are not known for images of `written`, `newer` those
    of columns that it did not have.
    """

    def __init__(self, written: TableVersion, target: TableVersion) -> None:
        self.columns = tuple(_compared(target))
        mark = _mark(written, target)
        olds = {mark(column): column for column in written.info.columns}
        then = [olds.get(mark(column)) for column in self.columns]
        self.newer = frozenset(place for place, old in enumerate(then) if old is None)
        self.unknown = frozenset(
            place for place, old in enumerate(then) if not _is_known(old, self.columns[place])
        )
        merged = tuple(
            _merged(olds.get(mark(column)), column, is_named=not (written.id and target.id))
            for column in target.info.columns
        )
        self._plan = compile_table(replace(target.info, columns=merged))
        names = [column.name for column in self._plan.columns]
        self._places = tuple(names.index(column.name) for column in self.columns)
        kinds = [self._plan.columns[place].type for place in self._places]
        self._forms = tuple(canonical.OF_IMAGE[form_of(kind)] for kind in kinds)

    def values(self, image: bytes) -> list[Canonical]:
        """Canonical values of `columns`. Raises `RowError`."""
        row = self._plan.decode_delete(image)
        return [
            None if (value := row[place]) is None else form(value)
            for place, form in zip(self._places, self._forms, strict=True)
        ]


class Projections:
    """Made when they are needed, and kept."""

    def __init__(self) -> None:
        self._projections: dict[tuple[TableVersion, TableVersion], Projection | None] = {}

    def of(self, written: TableVersion, target: TableVersion) -> Projection | None:
        """None where rows of the one cannot be read as rows of the other at all."""
        key = (written, target)
        if key not in self._projections:
            try:
                self._projections[key] = Projection(written, target)
            except RowError:
                self._projections[key] = None
        return self._projections[key]


def _compared(version: TableVersion) -> list[Column]:
    """Columns whose values images hold and a statement may name."""
    columns = sorted(version.info.columns, key=lambda column: column.offset)
    return [column for column in columns if column.is_writable and column.id not in version.left_out]


def _mark(written: TableVersion, target: TableVersion) -> Callable[[Column], int | str]:
    """What columns are told apart by."""
    if written.id and target.id:
        return lambda column: column.id
    return lambda column: column.name.lower()


def _is_known(old: Column | None, new: Column) -> bool:
    if old is None:
        return new.origin_default is not None or new.origin_default_bit is not None
    return old.is_writable and keeps_values(old.type, new.type)


def _merged(old: Column | None, column: Column, *, is_named: bool) -> Column:
    """`column` as images have it that were written when it was `old`."""
    if old is not None:
        return replace(column, id=old.id, type=old.type, state=column.state)
    return replace(column, id=column.id + _IN_NO_IMAGE) if is_named else column

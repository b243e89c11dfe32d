"""Row types: rows as objects of a program's own classes, a class for each table.

Holds  a class and a table that do not fit are told by the first row of each version of the table; a value
       that its field does not take by its row. Columns without a field are left out; pydantic decides itself
       about types that are not known here, and about what is left over
Does   what a column has no type of its own for: bool of an integer, an Enum of a name, dict and list of JSON,
       UUID of BINARY(16) or text

Tests  tests/drainer/changes/test_row_types.py
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from typing import Any, Generic

from drainer.changes.model import Column, R, Row, Table
from tidb_binlog.errors import BinlogError
from tidb_binlog.row_class import RowField, is_pydantic, row_fields
from tidb_binlog.rowcodec.values import JsonText

Make = Callable[[Any], Any]
RowTypeOf = type[R] | Mapping[str, type[R]] | None


class RowTypeError(BinlogError):
    """A class and the rows of its table do not fit."""

    exit_code = 6


class ObjectRow(Row[R]):
    """A row of objects. Made by a stream with a `row_type`."""

    __slots__ = ("_plain",)

    def __init__(self, plain: Row, before: R | None, after: R | None) -> None:
        self._plain = plain
        super().__init__(plain.table, plain.kind, before, after)

    @property
    def changed(self) -> tuple[str, ...]:
        return self._plain.changed

    @property
    def key_values(self) -> tuple[Any, ...]:
        return self._plain.key_values


class RowTypes(Generic[R]):
    """`row_type`: a class for all tables, or classes by "database.table"; tables without one keep their
    dicts. Raises `ConfigError` for what is no such class.
    """

    def __init__(self, row_type: RowTypeOf[R]) -> None:
        named = row_type.items() if isinstance(row_type, Mapping) else ()
        self._classes: dict[str, type[Any]] = {name.lower(): cls for name, cls in named}
        self._for_all = None if isinstance(row_type, Mapping) else row_type
        self._fields = {
            cls: row_fields(cls) for cls in (*self._classes.values(), self._for_all) if cls is not None
        }
        self.is_none = not self._fields
        """No table has a class."""
        self._images: dict[Table, Callable[[dict[str, Any]], Any] | None] = {}

    def row(self, row: Row) -> Row[Any]:
        """With objects. Raises `RowTypeError`."""
        table = row.table
        if table not in self._images:
            cls = self._classes.get(str(table).lower(), self._for_all)
            self._images[table] = None if cls is None else _image(cls, self._fields[cls], table)
        image = self._images[table]
        if image is None:
            return row
        before, after = row.before, row.after
        return ObjectRow(row, before and image(before), after and image(after))


def _image(cls: type[Any], fields: tuple[RowField, ...], table: Table) -> Callable[[dict[str, Any]], Any]:
    columns = {column.name.lower(): column for column in table.columns}
    takes: list[tuple[str, str, Make]] = []
    for field in fields:
        column = columns.get(field.column.lower())
        if column is not None:
            takes.append((field.column, column.name, _maker(cls, field, table, column)))
        elif field.needed:
            raise RowTypeError(
                f"{cls.__name__} has the field {field.column}, and table {table} has no such column",
                hint=f"it has {', '.join(columns)}; a field with a default may be missing",
            )
    if not is_pydantic(cls):
        return lambda image: cls(**{name: make(image[column]) for name, column, make in takes})
    return _pydantic(cls, takes, table)


def _pydantic(cls: Any, takes: list[tuple[str, str, Make]], table: Table) -> Callable[[dict[str, Any]], Any]:
    used = {column for _, column, _ in takes}

    def image(row: dict[str, Any]) -> Any:
        values = {name: value for name, value in row.items() if name not in used}  # for `extra`
        values |= {name: make(row[column]) for name, column, make in takes}
        try:
            return cls.model_validate(values)
        except ValueError as error:  # its text has values, which are not for logs
            told: list[Any] = getattr(error, "errors", lambda **_: [])(include_url=False, include_input=False)
            said = "; ".join(f"{'.'.join(map(str, line['loc']))}: {line['msg']}" for line in told)
            raise RowTypeError(
                f"{cls.__name__} does not take a row of table {table}: {said}",
                hint="the stream stands before this transaction: start it again with a class that fits",
            ) from None

    return image


def _maker(cls: type[Any], field: RowField, table: Table, column: Column) -> Make:
    """What makes a field's value of a column's, and checks it."""
    convert, kinds = _conversion(field.kinds, column)
    own, pydantic = f"{cls.__name__}.{field.column}", is_pydantic(cls)
    if convert is None and kinds and not pydantic and not issubclass(column.python_type, kinds):
        raise RowTypeError(
            f"{own} is of type {_names(kinds)}, and column {column.name} of table {table} is {column.type},"
            f" which comes as {column.python_type.__name__}",
            hint=f"write {column.python_type.__name__}{' | None' if column.nullable else ''}",
        )

    def make(value: Any) -> Any:
        if value is None:
            if field.optional:
                return None
            raise RowTypeError(
                f"{own} is not optional, and column {column.name} of table {table} has NULL",
                hint=f"write {_names(kinds) or 'its type'} | None",
            )
        if convert is not None:
            try:
                return convert(value)
            except (KeyError, ValueError, AttributeError):
                raise RowTypeError(
                    f"{own} is of type {_names(kinds)}, and column {column.name} of table {table} has a value"
                    " that it has no form for"
                ) from None
        if kinds and not pydantic and not isinstance(value, kinds):
            raise RowTypeError(
                f"{own} is of type {_names(kinds)}, and column {column.name} of table {table} has a"
                f" {type(value).__name__}",
                hint="dates that no calendar has come as str, texts that are not UTF-8 as bytes: allow them",
            )
        return value

    return make


def _conversion(kinds: tuple[type[Any], ...], column: Column) -> tuple[Make | None, tuple[type[Any], ...]]:
    """Where the column's own type is not wanted: what makes another of it."""
    comes = column.python_type
    if issubclass(comes, kinds or (object,)):
        return None, kinds
    for kind in kinds:
        if kind is bool and comes is int:
            return bool, kinds
        if issubclass(kind, Enum) and issubclass(comes, str):
            return functools.partial(_enum, kind), kinds
        if issubclass(kind, Enum) and comes is int:
            return kind, kinds
        if comes is JsonText and kind in (dict, list):
            return lambda value: value.load(), kinds
        if kind is float and comes is Decimal:
            return float, kinds
        if kind.__module__ == "uuid" and comes in (bytes, str):
            return functools.partial(_uuid, kind), kinds
    return None, kinds


def _enum(kind: type[Enum], name: str) -> Enum:
    return kind[name] if name in kind.__members__ else kind(name)


def _uuid(kind: Any, value: bytes | str) -> Any:
    return kind(bytes=value) if isinstance(value, bytes) else kind(value)


def _names(kinds: tuple[type[Any], ...]) -> str:
    return " | ".join(kind.__name__ for kind in kinds)

"""Row class: a dataclass, attrs or pydantic class of a program, whose fields have the names of columns.

Out    its fields and how to make an object; an object's values by column
Never  imports attrs or pydantic: a class tells by itself what it is

Tests  tests/drainer/changes/test_row_types.py
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class RowField:
    """`column` is what the constructor calls it, `attribute` what an object does. `kinds`: classes that fit
    it, without that of None; () for everything. `optional`: so does None. `needed`: it has no default."""

    column: str
    attribute: str
    kinds: tuple[type[Any], ...]
    optional: bool
    needed: bool


def is_pydantic(cls: type[Any]) -> bool:
    """Whether it checks and converts values itself."""
    return hasattr(cls, "__pydantic_fields__")


def row_fields(cls: type[Any]) -> tuple[RowField, ...]:
    """Raises `ConfigError` for a class that is none of the three."""
    listed = list(_fields(cls)) if isinstance(cls, type) else None
    if not listed:
        raise ConfigError(
            f"{cls!r} is no class for rows", hint="give a dataclass, or a class of attrs or pydantic"
        )
    try:
        hints = typing.get_type_hints(cls)
    except NameError as error:
        raise ConfigError(f"a type in {cls.__name__} is not known: {error}", hint="import it there") from None
    fields = []
    for column, attribute, needed in listed:
        kinds, optional = _kinds(hints.get(attribute, Any))
        fields.append(RowField(column, attribute, kinds, optional, needed))
    return tuple(fields)


def _fields(cls: type[Any]) -> typing.Iterator[tuple[str, str, bool]]:
    """Of each field: column, attribute, whether it has no default."""
    if is_pydantic(cls):
        for name, field in cls.__pydantic_fields__.items():
            alias = field.validation_alias
            yield alias if isinstance(alias, str) else name, name, field.is_required()
    elif dataclasses.is_dataclass(cls):
        for own in dataclasses.fields(cls):
            if own.init:
                default = own.default is dataclasses.MISSING and own.default_factory is dataclasses.MISSING
                yield own.name, own.name, default
    else:
        for of_attrs in getattr(cls, "__attrs_attrs__", ()):
            if of_attrs.init:
                nothing = type(of_attrs.default).__name__ == "_Nothing"
                yield of_attrs.alias, of_attrs.name, nothing


def _kinds(hint: Any) -> tuple[tuple[type[Any], ...], bool]:
    """Classes that fit a type, and whether None does."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _kinds(typing.get_args(hint)[0])
    if origin in (typing.Union, types.UnionType):
        parts = [_kinds(part) for part in typing.get_args(hint)]
        anything = any(not kinds and not none for kinds, none in parts)
        kinds = () if anything else tuple(kind for some, _ in parts for kind in some)
        return kinds, anything or any(none for _, none in parts)
    if hint is type(None):
        return (), True
    if origin is typing.Literal:
        return tuple({type(value) for value in typing.get_args(hint)}), False
    kind = getattr(hint, "__supertype__", origin or hint)  # of a NewType, of list[int]
    if not isinstance(kind, type) or kind in (Any, object):
        return (), True
    return (kind,), False


def columns_of(row: object) -> Mapping[str, Any]:
    """An object's values by column. Raises `ConfigError`."""
    return {field.column: getattr(row, field.attribute) for field in _fields_of(type(row))}


_known_fields: dict[type[Any], tuple[RowField, ...]] = {}


def _fields_of(cls: type[Any]) -> tuple[RowField, ...]:
    fields = _known_fields.get(cls)
    if fields is None:
        fields = _known_fields[cls] = row_fields(cls)
    return fields

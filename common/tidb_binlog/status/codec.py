"""Status codec: a status as JSON values, and a document of any node as far as it can be believed.

Out    that struct: what is missing or is not what it should be has its default, what is unknown is left out
Why    nodes of other releases, Go nodes and whatever else listens at an address answer, too: no answer may
       end a command that asks a whole cluster
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import FieldInfo

from tidb_binlog.foreign_document import ready

_SIZE: Final = 1 << 64
"""Numbers have 64 bits: JSON has larger ones, and Python's has infinite ones."""
_SCALARS: Final = (str, bool, int, float)

S = TypeVar("S", bound=Struct)


def plain(status: Struct | Sequence[Struct] | Mapping[str, Any]) -> Any:
    """A status as dictionaries, lists and scalars, in the order and with the names of the document."""
    return msgspec.to_builtins(status)


def read(document: object, form: type[S]) -> S:
    """`document`: anything; what is no object has nothing to say."""
    if not isinstance(document, Mapping):
        return form()
    said = {}
    for member in _members(form):
        if member.encode_name in document:
            value = _value(document[member.encode_name], member.type)
            if value is not UNSET:
                said[member.name] = value
    return form(**said)


@functools.cache
def _members(form: type[Struct]) -> tuple[FieldInfo, ...]:
    """Asked once for a form: msgspec evaluates all its annotations each time."""
    return msgspec.structs.fields(form)


def own(document: Mapping[str, Any], form: type[S]) -> S:
    """A document that this process has made: as `read`, and a hundred times quicker where nothing in it is
    odd, for there may be thousands of lanes and pumps in it."""
    try:
        return msgspec.convert(document, ready(form))
    except msgspec.ValidationError:
        return read(document, form)


def _value(value: object, form: Any) -> Any:
    """UNSET: not what it should be."""
    if get_origin(form) in (Union, UnionType):
        values = (_value(value, candidate) for candidate in get_args(form))
        return next((candidate for candidate in values if candidate is not UNSET), UNSET)
    if form is type(None):
        return None if value is None else UNSET
    if isinstance(form, type) and issubclass(form, Struct):
        return read(value, form) if isinstance(value, Mapping) else UNSET
    if get_origin(form) is list and isinstance(value, list):
        (of,) = get_args(form)
        return [candidate for candidate in (_value(item, of) for item in value) if candidate is not UNSET]
    if get_origin(form) is dict and isinstance(value, Mapping):
        _, of = get_args(form)
        read_items = ((str(key), item if of is Any else _value(item, of)) for key, item in value.items())
        return {key: item for key, item in read_items if item is not UNSET}
    return _scalar(value, form) if form in _SCALARS else UNSET


def _scalar(value: object, form: type) -> Any:
    if form is str:
        return value.strip() if isinstance(value, str) else UNSET
    if form is bool:
        return value if isinstance(value, bool) else UNSET
    if not isinstance(value, int | float) or isinstance(value, bool) or not -_SIZE <= value < _SIZE:
        return UNSET
    return form(value)

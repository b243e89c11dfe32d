"""Foreign document: what others store where we read, taken without trust.

In     JSON from etcd, from nodes and from the downstream: anybody may have written it
Holds  whatever is wrong with it ends in one error that names it, never in a traceback: an entry that one hand
       spoiled would otherwise end every process that reads it
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import msgspec

from tidb_binlog.errors import Corruption

UNREADABLE: Final = (
    ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError, RecursionError,
)  # fmt: skip
"""What reading a document of another form raises: 1e999 is infinite, brackets go deeper than the stack."""

F = TypeVar("F")
_first_use: Final = threading.Lock()
_ready: Final[set[Any]] = set()
"""Types of which msgspec knows all that they are made of."""


def ready(form: F) -> F:
    """`form`, a type, as msgspec may read a document into it on any thread.

    msgspec finds out at the first use what a type's fields are, and shows them to other threads before it has
    all: these read a null pointer, which ends the process (0.22).
    """
    if form not in _ready:
        with _first_use, suppress(msgspec.ValidationError):
            msgspec.convert(..., form)  # which is no value of any
        _ready.add(form)
    return form


@contextmanager
def reading(what: str, *, hint: str = "") -> Iterator[None]:
    """Anything of `UNREADABLE` becomes a `Corruption` that says what cannot be read."""
    try:
        yield
    except UNREADABLE as error:
        why = f"{type(error).__name__} {error}" if isinstance(error, KeyError | IndexError) else str(error)
        raise Corruption(f"{what} cannot be read: {why}", hint=hint) from None


def typed(data: bytes | str, form: Any, what: str, *, hint: str = "") -> Any:
    """The document as a value of the type `form`. Raises `Corruption`."""
    with reading(what, hint=hint):
        return msgspec.json.decode(data, type=ready(form))


def left_in(path: str) -> object:
    """What the last process left in a JSON file; one that is damaged is as good as none."""
    try:
        with open(path, "rb") as file:
            return json.load(file)
    except (*UNREADABLE, OSError):
        return None


def json_object(body: bytes) -> dict[str, Any] | None:
    """An object of JSON; None for whatever else it is."""
    try:
        document = json.loads(body)
    except UNREADABLE:
        return None
    return document if isinstance(document, dict) else None

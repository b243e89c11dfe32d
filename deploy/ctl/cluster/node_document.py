"""Document: what a node says of itself in JSON, read without trust.

Holds  what is not what it should be, or not where it should be, counts as not said
Tests  tests/deploy/ctl/cluster/test_overview.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_SIZE: Final = 1 << 64


def part(document: object, *keys: str) -> Mapping[str, Any]:
    """The object at the end of these keys; empty if there is none."""
    for key in keys:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document if isinstance(document, Mapping) else {}


def items(document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The objects of a list."""
    found = document.get(key)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def number(document: Mapping[str, Any], key: str) -> float | None:
    """One of 64 bits: JSON has larger ones, and Python's has infinite ones."""
    found = document.get(key)
    if not isinstance(found, int | float) or isinstance(found, bool):
        return None
    return found if -_SIZE <= found < _SIZE else None


def whole(document: Mapping[str, Any], key: str) -> int | None:
    found = number(document, key)
    return None if found is None else int(found)


def texts(document: Mapping[str, Any], key: str) -> list[str]:
    """The texts of a list."""
    found = document.get(key)
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def words(document: Mapping[str, Any], key: str) -> str:
    """Without white space around it."""
    found = document.get(key)
    return found.strip() if isinstance(found, str) else ""

"""Versions: the history of rows (`drainer.spark.history`) without Spark.

In     changes with JSON images, in any order
Out    one row a version, in the order of the keys; the same columns
Holds  all versions that are asked for are in memory
Tests  tests/spark/local/test_same_output.py
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa

from drainer.reading.archive.views.view import TIME
from drainer.spark.local.ordered_rows import Row

SCHEMA: Final = pa.schema(
    {
        "_schema": pa.string(),
        "_table": pa.string(),
        "key": pa.string(),
        "valid_from": pa.int64(),
        "valid_to": pa.int64(),
        "from_time": TIME,
        "to_time": TIME,
        "exists": pa.bool_(),
        "_change_type": pa.string(),
        "_commit_ts": pa.int64(),
        "_start_ts": pa.int64(),
        "_seq": pa.int64(),
        "before": pa.string(),
        "after": pa.string(),
        "_file": pa.string(),
        "_pos": pa.int64(),
    }
)
_OF_CHANGE: Final = ("_change_type", "_commit_ts", "_start_ts", "_seq", "before", "after", "_file", "_pos")


_NAME: Final = itemgetter("_schema", "_table", "key")


class _End(NamedTuple):
    """A change ends a version under a key, begins one, or both."""

    key: str
    part: int
    ended: bool
    begun: bool
    change: Row


def pruned(names: Iterable[str]) -> pa.Schema:
    return pa.schema([SCHEMA.field(name) for name in names])


def versions(changes: Iterable[Row], key: Mapping[str, str] | None) -> list[Row]:
    key_values = key or {}
    ends = [end for change in changes for end in _ends(change) if _has(end.key, key_values)]
    ends.sort(key=lambda end: (*_name(end), end.change["_commit_ts"], end.change["_seq"], end.part))
    rows = [row for _, some in groupby(ends, _name) for row in _of_key(list(some))]
    rows.sort(key=lambda row: (*_NAME(row), row["valid_from"] or -1, _seq(row)))
    return rows


def _seq(row: Row) -> int:
    seq: int | None = row["_seq"]
    return -1 if seq is None else seq


def _name(end: _End) -> tuple[str, str, str]:
    return end.change["_schema"], end.change["_table"], end.key


def _ends(change: Row) -> Iterator[_End]:
    before, after = change["before"], change["after"]
    was, now = before is not None, after is not None
    if change["key"] is None:
        new = after if now else before
        old = before if was and now else None
    else:
        values = _map(change["key"])
        new = _text(values)
        former = _map(before) if was and now else {}
        old = _text({name: former[name] for name in former if name in values}) if former else None
    if old is not None and old != new:
        yield _End(old, 0, True, False, change)
        yield _End(new, 1, False, True, change)
    else:
        yield _End(new, 1, was, now, change)


def _of_key(ends: list[_End]) -> Iterator[Row]:
    following = [after.change for _, after in pairwise(ends)]
    for number, end in enumerate(ends):
        change = end.change
        names = dict(zip(("_schema", "_table", "key"), _name(end), strict=True))
        if not number and end.ended:
            yield {
                **dict.fromkeys(SCHEMA.names),
                **names,
                "valid_to": change["_commit_ts"],
                "to_time": change["_commit_timestamp"],
                "exists": True,
                "after": change["before"],
            }
        last = following[number] if number < len(following) else None
        yield {
            **names,
            "valid_from": change["_commit_ts"],
            "valid_to": last and last["_commit_ts"],
            "from_time": change["_commit_timestamp"],
            "to_time": last and last["_commit_timestamp"],
            "exists": end.begun,
            **{name: change[name] for name in _OF_CHANGE},
        }


def _has(key: str, key_values: Mapping[str, str]) -> bool:
    values = _map(key) if key_values else {}
    return all(values.get(name) == value for name, value in key_values.items())


def _map(document: str) -> dict[str, str | None]:
    """Values as texts, numbers as they are written."""
    values = json.loads(document, parse_int=str, parse_float=str)
    return {name: _value(value) for name, value in values.items()}


def _value(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _text(values: Mapping[str, str | None]) -> str:
    """Equal for equal values, whatever their order."""
    return json.dumps(dict(sorted(values.items())), ensure_ascii=False, separators=(",", ":"))

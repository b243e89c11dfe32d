"""Source text of a function under construction: lines, the names they refer to, pieces of expressions.

Tests  tests/common/rowcodec/test_hostile.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any

from tidb_binlog.late_dataclass import dataclass, field


@dataclass(slots=True)
class Source:
    """A function under construction: its lines and the names they refer to."""

    name: str
    lines: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)

    def add(self, indent: int, *lines: str) -> None:
        self.lines += ["    " * indent + line for line in lines]

    def compile(self) -> Callable[..., Any]:
        """The function; `__doc__` is its source, for people who debug."""
        text = "\n".join(self.lines) + "\n"
        exec(_compiled(text, f"<rowcodec {self.name}>"), self.names)
        function: Callable[..., Any] = self.names[self.name]
        function.__doc__ = text
        return function


@lru_cache(1024)
def _compiled(text: str, name: str) -> CodeType:
    """Once for shards, and for versions of a table that differ in other things."""
    return compile(text, name, "exec")


def without_nulls(result: Sequence[str]) -> Iterator[str]:
    """The statements without `if nulls:` and what is indented below it."""
    left_out = False
    for line in result:
        left_out = line.startswith("if nulls:") or (left_out and line.startswith(" "))
        if not left_out:
            yield line


def offset(base: str, distance: int) -> str:
    """`base + distance` as source: "3", "i" or "i + 3"."""
    name, _, number = base.rpartition(" + ") if " + " in base else ("", "", base)
    if not name and not number.isdecimal():
        name, number = base, "0"
    total = int(number) + distance
    if not name:
        return str(total)
    return f"{name} + {total}" if total else name

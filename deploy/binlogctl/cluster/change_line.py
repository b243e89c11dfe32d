"""Change line: one changed row, or one schema change, as a line for people.

    2026-11-22 18:30:00.123  shop.orders  update  id=7  status: 'new' -> 'paid', price: 1.50 -> 2.00
    2026-11-22 18:30:00.123  shop.orders  insert  id=8  status: 'new', price: NULL
    2026-11-22 18:30:01.004  shop.orders  ddl     ALTER TABLE orders ADD COLUMN note TEXT

Holds  one line a row, whatever is in it: line breaks and all that steers a terminal are written out. Columns
       of the key stand under `key`; a row of a table without one shows all of its columns
       A text is quoted, NULL and numbers are not; bytes are 0x...; what is cut off is counted

Tests  tests/deploy/binlogctl/cluster/test_change_line.py
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from drainer.changes.model import Ddl, Row
from tidb_binlog import time_text
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe.printable import one_line, printable
from tidb_binlog.rowcodec.temporal import clock_text
from tidb_binlog.rowcodec.values import JsonText, PartialDate
from tidb_binlog.tso import Ts

VALUE_CHARS: Final = 60
"""Of a value on a terminal; elsewhere a line is as long as its row."""
ALIGNED_CHARS: Final = 32
"""A longer name or key moves what follows it, and nothing on other lines."""
_DDL: Final = "ddl"
_COLOURS: Final = {"insert": "32", "update": "33", "delete": "31", _DDL: "36"}
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


@dataclass(frozen=True, slots=True)
class LineStyle:
    """`value_chars`: longer values are cut, 0: none is. `zone`: of the times, None for this host's.
    `aligned`: names and keys stand below each other."""

    value_chars: int = 0
    colour: bool = False
    aligned: bool = False
    zone: datetime.tzinfo | None = None


def value_text(value: Any, chars_max: int = 0) -> str:
    """One value of a row."""
    if value is None:
        return "NULL"
    if isinstance(value, JsonText | PartialDate):
        text, left = _cut(value, chars_max)
        return one_line(text) + left
    if isinstance(value, str):
        text, left = _cut(value, chars_max)
        return "'" + printable(text.translate(_ESCAPES)) + "'" + left
    if isinstance(value, bytes):
        head = value[: chars_max // 2] if chars_max else value
        return f"0x{head.hex().upper()}" + _count(len(value) - len(head), "bytes")
    if isinstance(value, datetime.date | datetime.timedelta):
        return clock_text(value).removesuffix(".000000")
    if isinstance(value, Decimal):
        return f"{value:f}"
    return repr(value)


def _cut(text: str, chars_max: int) -> tuple[str, str]:
    if not chars_max or len(text) <= chars_max:
        return text, ""
    return text[:chars_max], _count(len(text) - chars_max, "chars")


def _count(left: int, unit: str) -> str:
    return f"...(+{left:,} {unit})" if left else ""


class ChangeLines:
    """Makes the lines of one stream."""

    def __init__(self, style: LineStyle) -> None:
        self._style = style
        self._widths = [0, 0]  # of tables and keys, on aligned lines

    def rows(self, commit_ts: Ts, rows: Iterable[Row]) -> Iterator[str]:
        """A line for each row of a transaction."""
        time = self._time(commit_ts)
        for row in rows:
            key, rest = self._columns(row)
            table = self._padded(0, one_line(str(row.table)))
            parts = [time, table, self._kind(row.kind), self._padded(1, key) if rest else key, rest]
            yield "  ".join(part for part in parts if part)

    def ddl(self, ddl: Ddl) -> str:
        """A line for a schema change: its statement, with the database that it ran in."""
        parts = [
            self._time(ddl.commit_ts),
            self._padded(0, one_line(ddl.schema)),
            self._kind(_DDL),
            one_line(ddl.query).rstrip("; "),
        ]
        return "  ".join(part for part in parts if part)

    def _time(self, commit_ts: Ts) -> str:
        return time_text.local(commit_ts, self._style.zone).rpartition(" ")[0]

    def _padded(self, column: int, text: str) -> str:
        if not self._style.aligned:
            return text
        self._widths[column] = width = max(self._widths[column], min(len(text), ALIGNED_CHARS))
        return text.ljust(width)

    def _kind(self, kind: str) -> str:
        padded = kind.ljust(6)
        return f"\x1b[{_COLOURS[kind]}m{padded}\x1b[0m" if self._style.colour else padded

    def _columns(self, row: Row) -> tuple[str, str]:
        """(key, the rest)."""
        table_key = row.table.key
        key = " ".join(
            f"{one_line(name)}={self._text(value)}"
            for name, value in zip(table_key, row.key_values, strict=True)
        )
        if row.before is None or row.after is None:
            image: Mapping[str, Any] = row.after or row.before or {}
            shown = (self._one(name, value) for name, value in image.items() if name not in table_key)
            return key, ", ".join(shown)
        changed = row.changed
        named = changed if table_key else tuple(row.after)
        return key, ", ".join(
            self._changed(name, row.before, row.after)
            if name in changed
            else self._one(name, row.after[name])
            for name in named
        )

    def _one(self, name: str, value: Any) -> str:
        return f"{one_line(name)}: {self._text(value)}"

    def _changed(self, name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
        return f"{one_line(name)}: {self._text(before[name])} -> {self._text(after[name])}"

    def _text(self, value: Any) -> str:
        return value_text(value, self._style.value_chars)

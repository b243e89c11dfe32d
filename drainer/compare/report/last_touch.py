"""Last touch: the transaction that changed a row last, by an archive.

Out    the same result; each listed row with the commit_ts of its last change up to the comparison's moment
Holds  a row is found by its key before or after a change, a row without key by all its values. The archive is
       read once, and of it only the tables with listed rows
Never  guesses: a row that the archive does not have stays without a timestamp
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from drainer.changes.model import Transaction
from drainer.changes.sql_literal import sql_literal
from drainer.compare.report.shown import name_text
from drainer.compare.verify.result import Name, RowDifference, TableResult, Values, Verification
from drainer.mysql.literal.literals import ENUM_ZERO
from tidb_binlog.tso import Ts

if TYPE_CHECKING:
    from drainer.reading.archive.archive import Archive

_ESCAPED: Final = re.compile(rb"\\(.)|''", re.DOTALL)
_ESCAPES: Final = {b"0": b"\0", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"Z": b"\x1a"}
_FRACTION: Final = re.compile(rb"(-?\d+[-:]\d+[-:][\d :]+)\.(\d*?)0*")


def with_last_touch(result: Verification, archive: Archive) -> Verification:
    """Raises `Corruption` for an archive that cannot be read, unless it was opened to report damage."""
    touches = [_Touches(table) for table in result.tables if table.differences]
    by_name: dict[Name, list[_Touches]] = {}
    for table in touches:
        for name in {table.result.downstream, *table.result.upstream}:
            by_name.setdefault(_lower(name), []).append(table)
    archived = {_lower((table.schema, table.name)) for table in archive.tables}
    names = [name for name in by_name if not archived or name in archived]
    if not names:
        return result
    # A Go Drainer's archive has no definitions, and says of no table that it is there.
    patterns = [name_text(name) for name in names] if archived else None
    for item in archive.read(tables=patterns, stop=result.ts):
        if isinstance(item, Transaction):
            for row in item.rows:
                for table in by_name.get(_lower((row.table.schema, row.table.name)), ()):
                    table.look(item.commit_ts, row.before, row.after)
    done = {table.result.downstream: table.touched() for table in touches}
    return replace(result, tables=tuple(done.get(table.downstream, table) for table in result.tables))


class _Touches:
    """The listed rows of one table."""

    def __init__(self, result: TableResult) -> None:
        self.result = result
        columns = result.row_columns
        chosen = [column for column in columns if column.is_key] or [
            column for column in columns if not column.is_generated
        ]
        self._names = [column.name.lower() for column in chosen]
        self._places = [columns.index(column) for column in chosen]
        self._last: dict[tuple[bytes, ...], int] = {
            key: 0 for difference in result.differences for key in self._keys(difference)
        }

    def look(self, ts: Ts, *images: Mapping[str, Any] | None) -> None:
        for image in images:
            if image is None:
                continue
            values = {name.lower(): value for name, value in image.items()}
            try:
                key = tuple([_of_archive(values[name]) for name in self._names])
            except KeyError:  # the table had other columns then
                continue
            if key in self._last:
                self._last[key] = max(self._last[key], ts)

    def touched(self) -> TableResult:
        rows = tuple(
            replace(difference, commit_ts=max((self._last[key] for key in self._keys(difference)), default=0))
            for difference in self.result.differences
        )
        return replace(self.result, differences=rows)

    def _keys(self, difference: RowDifference) -> Iterable[tuple[bytes, ...]]:
        for values in (difference.upstream, difference.downstream):
            if values is not None:
                yield self._key(values)

    def _key(self, values: Values) -> tuple[bytes, ...]:
        return tuple([comparable(values[place]) for place in self._places])


def _lower(name: Name) -> Name:
    return name[0].lower(), name[1].lower()


def _of_archive(value: Any) -> bytes:
    return comparable(sql_literal(value).encode("utf-8", "surrogateescape"))


def comparable(literal: bytes) -> bytes:
    """The same for literals of one value, however they are written: `1.50` and `1.5`, `x'41'` and `'A'`."""
    if literal == ENUM_ZERO:
        return b"'"
    text = literal.removeprefix(b"_binary")
    if text[:2] in (b"x'", b"X'"):
        return b"'" + bytes.fromhex(text[2:-1].decode())
    if text[:1] == b"'":
        content = _ESCAPED.sub(_unescaped, text[1:-1])
        time = _FRACTION.fullmatch(content)
        if time is not None:
            content = time[1] + (b"." + time[2] if time[2] else b"")
        return b"'" + content
    if text == b"NULL":
        return text
    return str(Decimal(text.decode()).normalize()).encode()


def _unescaped(match: re.Match[bytes]) -> bytes:
    char = match[1]
    return b"'" if char is None else _ESCAPES.get(char, char)

"""Selection: which part of an archive is wanted. What it leaves out is not read, or not decoded.

In     bounds in commit_ts, both inclusive; patterns of table names; kinds of changes
Out    yes or no for a commit_ts, a table, a kind of change
Holds  names are compared without regard to case, as the drainer's filters do

    shop.orders        this table                  shop.*, shop        every table of this database
    shop_?.log_[0-9]   wildcards of the drainer    ~^shop\\.(a|b)$      an expression for "database.table"
"""

from __future__ import annotations

import calendar
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from drainer.stream.rules.name_pattern import Source, expression
from drainer.txn import DELETE, INSERT, UPDATE
from tidb_binlog import tso
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts

OPERATIONS: Final = {"insert": INSERT, "update": UPDATE, "delete": DELETE}
_TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?(?:Z|\+00:00)?"
)
_TSO_DIGITS: Final = 19


def parse_bound(text: str, *, end: bool) -> int:
    """A commit_ts, from digits or from a time in UTC; 0 for "".

    A time means a millisecond: its first timestamp where a range begins, its last one where it ends.
    """
    text = text.strip()
    if not text:
        return 0
    if text.isascii() and text.isdecimal() and len(text) <= _TSO_DIGITS:
        return int(text)
    match = _TIME.fullmatch(text)
    fields = [int(part or 0) for part in match.groups()[:6]] if match else []
    if match is None or not _is_time(fields):
        raise ConfigError(
            f"{text!r} is neither a commit_ts nor a time",
            hint='write digits, or a time of UTC such as "2026-11-22 03:04:05.678"',
        )
    milliseconds = int((match[7] or "").ljust(3, "0")[:3])
    first_ms = calendar.timegm((*fields, 0, 0, 0)) * 1000 + milliseconds
    return tso.compose(first_ms, tso.LOGICAL_MAX if end else 0)


def _is_time(fields: Sequence[int]) -> bool:
    year, month, day, hour, minute, second = fields
    return (
        year >= 1970
        and 1 <= month <= 12
        and 1 <= day <= calendar.monthrange(year, month)[1]
        and hour < 24
        and minute < 60
        and second < 60
    )


@dataclass(frozen=True, slots=True)
class Selection:
    """`stop` 0: no upper bound; one before `start` selects nothing. `tables`: patterns, () for all. `ops`:
    numbers of `txn`, () for all. `continues`: who asks has read all before `start`, and knows that nothing
    lies between; files before it may be gone."""

    start: int = 0
    stop: int = 0
    tables: tuple[str, ...] = ()
    ops: tuple[int, ...] = ()
    continues: bool = False

    def __post_init__(self) -> None:
        _matcher(self.tables)

    @property
    def is_empty(self) -> bool:
        """Tell whether the bounds leave nothing."""
        return 0 < self.stop < self.start

    def asked(self) -> Selection:
        """The same, as somebody asked for it. Raises `ConfigError` for bounds that were exchanged."""
        if self.is_empty:
            raise ConfigError(
                f"the range ends at {self.stop}, before it begins at {self.start}",
                hint="exchange `start` and `stop`",
            )
        return self

    @classmethod
    def of(cls, start: str = "", stop: str = "", tables: str = "", ops: str = "") -> Selection:
        """From options: texts of `parse_bound`, names divided by commas. Raises `ConfigError`."""
        kinds = []
        for name in _parts(ops):
            kind = OPERATIONS.get(name.lower())
            if kind is None:
                raise ConfigError(
                    f"{name!r} is no kind of change", hint=f"choose from {', '.join(OPERATIONS)}"
                )
            kinds.append(kind)
        return cls(
            parse_bound(start, end=False),
            parse_bound(stop, end=True),
            tuple(_parts(tables)),
            tuple(sorted(set(kinds))),
        ).asked()

    def wants_ts(self, commit_ts: Ts) -> bool:
        """Tell whether a commit_ts lies in the range."""
        return self.start <= commit_ts and (not self.stop or commit_ts <= self.stop)

    def wants_table(self, schema: str, table: str) -> bool:
        """`table` "" asks for the database itself."""
        return _matcher(self.tables)(schema, table)

    def wants_ddl(self, names: Iterable[tuple[str, str]]) -> bool:
        """Whether a DDL touches something that is wanted. One whose tables are not known may."""
        named = list(names)
        return not named or any(self.wants_table(*name) for name in named)

    def wants_op(self, kind: int) -> bool:
        """Tell whether a kind of change is wanted."""
        return not self.ops or kind in self.ops

    @property
    def takes_all_rows(self) -> bool:
        """No row is left out for its table or its kind."""
        return not (self.tables or self.ops)


def _parts(text: str) -> list[str]:
    """Entries between commas. An expression may hold commas in braces or brackets: only those outside
    divide."""
    parts, depth, begin = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth <= 0:
            parts.append(text[begin:at])
            begin = at + 1
    parts.append(text[begin:])
    return [part for each in parts if (part := each.strip())]


_Match = Callable[[str, str], bool]


@functools.lru_cache(maxsize=64)
def _matcher(patterns: tuple[str, ...]) -> _Match:
    """Raises `ConfigError` for a pattern that cannot be read."""
    if not patterns:
        return lambda schema, table: True
    ones = [_pattern(text) for text in patterns]
    return functools.lru_cache(maxsize=10_000)(
        lambda schema, table: any(matches(schema, table) for matches in ones)
    )


def _pattern(text: str) -> _Match:
    try:
        if text.startswith("~"):
            compiled = expression(text[1:])
            return lambda schema, table: compiled.search(f"{schema}.{table}") is not None
        schema_text, _, table_text = text.partition(".")
        return Source.of(schema_text, table_text).matches
    except (ValueError, re.error) as error:
        raise ConfigError(
            f"the pattern of tables {text!r} cannot be read: {error}",
            hint='write "database.table", "database.*", or "~" and an expression for "database.table"',
        ) from None

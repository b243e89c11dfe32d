"""Column match: what a table's columns upstream are downstream, and what can be distinguished there.

In     a definition upstream, the table as it is downstream, the sync mode
Out    which columns are written, what rows that are born get in columns that upstream does not have, and
       whether a statement may replace whole rows
Holds  columns and tables are matched whatever the case of their names; a generated column is left out
       because the server says that it is generated, never because of how many columns there are
Why    a column that only the downstream has belongs to another program: rows keep its value
Never  leaves out a column of upstream silently, except one that the downstream computes itself

Sync modes: FULL refuses a table that lacks a column; PARTIAL leaves such a column out, and gives columns
that have neither a value nor a default the zero of their type, which is what a server without strict mode
would store (strict mode itself stays on: no value of upstream may be clipped for it).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.rows.dialect import Dialect
from tidb_binlog.errors import ConfigError, DownstreamError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.table_info import Column, TableInfo

FULL: Final = 1
PARTIAL: Final = 2

_ZERO_NUMBERS: Final = frozenset(
    {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "bit", "year", "set"}
)
_ZERO_TEXTS: Final = frozenset(
    {
        *("char", "varchar", "tinytext", "text", "mediumtext", "longtext"),
        *("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
    }
)
_ZEROS: Final = {
    **dict.fromkeys(_ZERO_NUMBERS, b"0"),
    **dict.fromkeys(_ZERO_TEXTS, b"''"),
    "enum": b"1",
    "json": b"'null'",
    "time": b"'00:00:00'",
    "date": b"'0000-00-00'",
    "datetime": b"'0000-00-00 00:00:00'",
    "timestamp": b"'0000-00-00 00:00:00'",
}


@dataclass(frozen=True, slots=True)
class KeyPart:
    """`column` is None for an expression; `length` is the prefix, None for the whole column."""

    column: str | None
    length: int | None = None


@dataclass(frozen=True, slots=True)
class UniqueKey:
    name: str
    parts: tuple[KeyPart, ...]

    @property
    def columns(self) -> frozenset[str | None]:
        """Names in lower case."""
        return frozenset(part.column.lower() if part.column else None for part in self.parts)


@dataclass(frozen=True, slots=True)
class DownstreamTable:
    """A table as the downstream describes it; names as they are written there.

    `may_have_triggers` and `referenced` (a foreign key refers to it) are also true where the account is not
    allowed to see that.
    """

    schema: str
    name: str
    columns: tuple[DownstreamColumn, ...]
    unique_keys: tuple[UniqueKey, ...]
    may_have_triggers: bool = False
    referenced: bool = False
    engine: str = "InnoDB"
    transactional: bool = True
    dialect: Dialect = Dialect.MARIADB

    @property
    def label(self) -> str:
        return f"{self.schema}.{self.name}"

    def column(self, name: str) -> DownstreamColumn | None:
        lowered = name.lower()
        return next((column for column in self.columns if column.name.lower() == lowered), None)


@dataclass(frozen=True, slots=True)
class Match:
    """`left_out` are ids of columns that no statement may name, `unwritten` those of columns that may be
    compared but not written (the downstream computes them). `fillers`: (column, literal) for born rows.

    `replaceable`: REPLACE destroys nothing that upstream does not know of.
    """

    left_out: frozenset[int] = frozenset()
    unwritten: frozenset[int] = frozenset()
    fillers: tuple[tuple[str, bytes], ...] = ()
    replaceable: bool = True


def absent(
    info: TableInfo, downstream: DownstreamTable, left_out: frozenset[int] = frozenset()
) -> tuple[str, ...]:
    """Names of the columns that rows have, and the table downstream has not."""
    writable = (column for column in info.columns if column.is_writable and column.id not in left_out)
    return tuple(column.name for column in writable if downstream.column(column.name) is None)


def match(
    info: TableInfo,
    downstream: DownstreamTable,
    sync_mode: int = FULL,
    left_out: frozenset[int] = frozenset(),
) -> Match:
    """How rows of `info` go into `downstream`; `left_out` are the columns that the configuration drops.

    Raises `DownstreamError` naming the table and its columns when they cannot.
    """
    writable = [column for column in info.columns if column.is_writable and column.id not in left_out]
    counterparts = {column.id: downstream.column(column.name) for column in writable}
    missing = [column for column in writable if counterparts[column.id] is None]
    if missing and sync_mode != PARTIAL:
        raise DownstreamError(
            f"table {downstream.label} has no column {_names(missing)} downstream",
            hint="add it there, or set syncer.to.sync-mode = 2 to leave such columns out",
        )
    computed = {
        column_id for column_id, theirs in counterparts.items() if theirs is not None and theirs.generated
    }
    if len(missing) + len(computed) == len(writable):
        raise DownstreamError(
            f"table {downstream.label} has no column downstream that upstream's {info.name} has",
            hint="compare the two tables",
        )
    names = {column.name.lower() for column in writable}
    extra = [column for column in downstream.columns if column.name.lower() not in names]
    ours = [column for column in extra if not column.generated]
    return Match(
        left_out=left_out | {column.id for column in missing},
        unwritten=frozenset(computed),
        fillers=_fillers(downstream, ours, sync_mode),
        replaceable=not ours and not downstream.may_have_triggers and not downstream.referenced,
    )


def _fillers(
    downstream: DownstreamTable, extra: Iterable[DownstreamColumn], sync_mode: int
) -> tuple[tuple[str, bytes], ...]:
    """Zeros for the columns that a born row would otherwise have no value for."""
    needed = [column for column in extra if not column.nullable and not column.has_default]
    if not needed:
        return ()
    unknown = [column for column in needed if column.type not in _ZEROS]
    if sync_mode != PARTIAL or unknown:
        hint = (
            "give it a default there"
            if unknown
            else "give it a default there, or set syncer.to.sync-mode = 2"
        )
        raise DownstreamError(
            f"table {downstream.label} has a column {_names(unknown or needed)} downstream that upstream "
            "does not have, NOT NULL and without a default",
            hint=hint,
        )
    return tuple((column.name, b"'null'" if column.checks_json else _ZEROS[column.type]) for column in needed)


def _names(columns: Iterable[Column | DownstreamColumn]) -> str:
    return ", ".join(column.name for column in columns)


def refuse_key_left_out(info: TableInfo, key: Iterable[Column], left_out: frozenset[int]) -> None:
    """`ConfigError` if the configuration drops a column that identifies a row."""
    dropped = [column for column in key if column.id in left_out]
    if dropped:
        raise ConfigError(
            f"column {_names(dropped)} of table {info.name} is part of its key and cannot be left out",
            hint="take it out of the list of columns",
        )

"""Model: changes as programs see them: transactions of rows, and DDL.

    for row in transaction.rows:
        print(row.table, row.kind, row.key_values, row.changed)

Values only. Names are those downstream, after routes. The values of a row are those of
`drainer.changes.values`. Generated columns are not in rows: who stores a row computes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Generic, Literal

from tidb_binlog import tso
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.rowcodec.temporal import clock_text
from tidb_binlog.tso import Ts

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # Python has defaults of these from 3.13 on

    R = TypeVar("R", default=dict[str, Any])
else:
    from typing import TypeVar

    R = TypeVar("R")
"""What an image of a row is: a dict, or a class of the program (`row_type`)."""

Kind = Literal["insert", "update", "delete"]
PythonType = type[Any]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(ts: Ts) -> datetime:
    """The time of a timestamp, in UTC, to the millisecond."""
    return _EPOCH + timedelta(milliseconds=tso.physical_ms(ts))


def json_value(value: object) -> str:
    """What JSON has no form for, as text: `json.dumps(row.after, default=drainer.json_value)`.

    DECIMAL has all its digits, dates and times are as MySQL writes them, bytes are hexadecimal digits. Texts
    are texts anyway, JSON columns among them.
    """
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return f"{value:f}"
    return clock_text(value) if isinstance(value, timedelta) else str(value)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    `type` is its type as SQL writes it ("bigint unsigned", "varchar(20)"), `python_type` the class of its
    values. `elements` are those of an ENUM or SET. `default` is the text of its default, None without one.
    `id` stays when a column is renamed; one of another type may have another.
    """

    name: str
    type: str
    nullable: bool
    python_type: PythonType
    charset: str = ""
    collation: str = ""
    elements: tuple[str, ...] = ()
    default: str | None = None
    id: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """One table as a row was written under it; the same object until a DDL changes the table.

    `key` names the columns that identify a row: the primary key, else the first unique key without nullable
    columns, else (). `version` is the upstream's schema version that made it; None for what a DDL found.
    """

    schema: str
    name: str
    columns: tuple[Column, ...] = field(repr=False)
    key: tuple[str, ...]
    id: int
    version: int | None

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


class Row(Generic[R]):
    """One changed row. `before` is None for an insert, `after` for a delete: both map names to values, or are
    objects of a class that the program has given."""

    __slots__ = ("after", "before", "kind", "table")

    def __init__(self, table: Table, kind: Kind, before: R | None, after: R | None) -> None:
        self.table = table
        self.kind = kind
        self.before = before
        self.after = after

    @property
    def changed(self) -> tuple[str, ...]:
        """Columns whose values differ; of an insert or delete all of them."""
        before: Any = self.before
        after: Any = self.after
        if before is None or after is None:
            return tuple(after or before or ())
        return tuple(name for name, value in after.items() if value != before[name])

    @property
    def key_values(self) -> tuple[Any, ...]:
        """Values of `table.key`: those after the change, of a delete those before it."""
        image: Any = self.before if self.after is None else self.after
        assert image is not None
        return tuple([image[name] for name in self.table.key])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        return (
            self.kind == other.kind
            and self.before == other.before
            and self.after == other.after
            and (self.table.schema, self.table.name) == (other.table.schema, other.table.name)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Row({self.table}, {self.kind}, before={self.before}, after={self.after})"


@dataclass(slots=True)  # not frozen: there is one for every few rows, freezing triples its cost
class Transaction(Generic[R]):
    """Rows of one upstream transaction, in execution order; none where all were filtered.

    `large`: the rows are read piece by piece while they are iterated, once. `snapshot`: "" but for rows that
    stood in the upstream at `commit_ts`, which come before the stream; then the position after them, to go on
    from with `start`.
    """

    commit_ts: Ts
    start_ts: Ts
    rows: Iterable[Row[R]]
    large: bool = False
    snapshot: str = ""

    @property
    def time(self) -> datetime:
        """When it was committed, by the upstream's clock."""
        return time_of(self.commit_ts)


@dataclass(frozen=True, slots=True)
class DdlEffect:
    """What a schema change does to rows, of which no row change tells.

    `moved`: tables that have another name now, as they were and as they are; their rows went along. All at
    once: `RENAME` may swap two. `emptied`: tables, as they were, that are gone or empty: no row is left under
    their name, unless another table moved there. `reread`: tables of which rows came or went, or got other
    values by a column's new type, nobody says which: what is kept of them is to be read from the upstream
    anew, as of this commit_ts. `everything`: that is so of every table: FLASHBACK CLUSTER.
    """

    moved: tuple[tuple[Table, Table], ...] = ()
    emptied: tuple[Table, ...] = ()
    reread: tuple[Table, ...] = ()
    everything: bool = False


@dataclass(frozen=True, slots=True)
class Ddl:
    """One schema change. `query` is its text as the upstream ran it, with `schema` as current database.

    `before` and `after` are the tables that it changed, where they existed. `statements` are to run in place
    of `query` where filters or routes leave a part of it or give it other names. `kind`: what it does, in
    words: "create", "alter", "drop", "truncate", "rename", "exchange", "recover", "restore", "rewind", and
    "create database", "alter database", "drop database", "recover database". `effect`: what it does to rows.
    """

    commit_ts: Ts
    query: str
    schema: str
    before: tuple[Table, ...] = ()
    after: tuple[Table, ...] = ()
    statements: tuple[str, ...] = ()
    kind: str = "alter"
    effect: DdlEffect = DdlEffect()

    @property
    def time(self) -> datetime:
        """When it was committed, by the upstream's clock."""
        return time_of(self.commit_ts)

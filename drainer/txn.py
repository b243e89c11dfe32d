"""What flows from the translator to the applier: transactions of row events, and DDL.

Values only. Row bytes stay encoded (`tidb_binlog.rowcodec`); keys, literals and values are read from them by
the plan compiled for the table version.

Tests  tests/drainer/stream/translate/test_translator.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.table_info import TableInfo
from tidb_binlog.tso import Ts

INSERT: Final = 0
UPDATE: Final = 1
DELETE: Final = 2


@dataclass(frozen=True, slots=True, eq=False)
class TableVersion:
    """One table as rows are to be read and written: definition plus where it is called what.

    Identity matters: the same object is handed out until a DDL changes the table, so compiled plans may be
    cached on it. `target` is the name downstream where it is another one; `left_out` are the ids of columns
    that are not written. `partial`: changes of it are withheld, so that rows may be downstream which upstream
    has no more. `ddl_filtered`: DDL of it may be left out, so that the downstream may lack columns.
    """

    info: TableInfo
    schema: str
    name: str
    version: int  # schema version of the DDL that made it
    target: tuple[str, str] | None = None
    left_out: frozenset[int] = frozenset()
    partial: bool = False
    ddl_filtered: bool = False

    @property
    def id(self) -> int:
        """TiDB's id of the table."""
        return self.info.id

    @property
    def downstream(self) -> tuple[str, str]:
        """(schema, name) downstream."""
        return self.target or (self.schema, self.name)


@dataclass(frozen=True, slots=True)
class Tracked:
    """A table's definition as the upstream writes it (TableInfo JSON), under its upstream names."""

    schema: str
    name: str
    document: dict[str, Any] = field(repr=False, hash=False)

    @property
    def id(self) -> int:
        """TiDB's id of the table."""
        return int(self.document["id"])


@dataclass(slots=True)  # not frozen: there is one for every few rows, freezing triples its cost
class TableEvents:
    """Row events of one table in one transaction, in execution order.

    `kinds[i]` (INSERT, UPDATE, DELETE) belongs to `rows[i]`. The event's ordinal in the transaction is
    `first_ordinal + i`: counted over all rows of the payload, filtered ones too, so that it does not depend
    on the configuration.
    """

    table: TableVersion
    kinds: tuple[int, ...] | list[int]
    rows: list[bytes]
    first_ordinal: int


@dataclass(slots=True)  # not frozen: there is one for every few rows, freezing triples its cost
class Transaction:
    """Rows of one upstream transaction. `tables` may be empty when everything was filtered.

    A large transaction comes in pieces, in order: `last` is False on all but the last one. `payload` is what
    the pump sent, where a whole transaction was made of it. `snapshot`: rows that stood in the upstream at
    `commit_ts`, and the position after them (`drainer.points.rows`). `schema_version`: of the definitions
    that the upstream wrote it by, 0 where that is not known.
    """

    start_ts: Ts
    commit_ts: Ts
    tables: tuple[TableEvents, ...]
    size_bytes: int
    last: bool = True
    payload: bytes = b""
    snapshot: str = ""
    schema_version: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class LargeTransaction:
    """A large transaction as a whole, for who reads it himself.

    `pieces` begins anew with each call, and blocks while it reads. It ends early by an error where the stream
    is to stop: what was read of it must not count then. `snapshot`: as that of its pieces.
    """

    start_ts: Ts
    commit_ts: Ts
    size_bytes: int
    pieces: Callable[[], Iterator[Transaction]]
    snapshot: str = ""


@dataclass(frozen=True, slots=True)
class Ddl:
    """One finished schema change that is to run downstream, or `skip` with the reason why not.

    `schema` is the database to be current while `query` runs (the old one of a rename), "" for none.
    `tables` are the (schema, table) names the statement touches, old and new; ("db", "") is a database.
    Names are those of the upstream, except in `instead`: statements to run in place of `query`, because
    filters or routes leave only a part of it or give it other names. `refused` says why it can neither run
    nor be passed over without the downstream losing rows: an operator has to decide. `before` and `after` are
    the tracked definitions of the tables that it changed, where they existed. `half_done`: not finished; it
    says that a column is not written any more. `targets` are the names of `tables` downstream, empty without
    routes; `shared` the other tables upstream that go to one of them, as they are then; `apart`: rows never
    move between those and this one. `unread`: names in
    `before` and `after` whose rows do not replicate. `early`: why rows before it may lack values.
    """

    commit_ts: Ts
    job_id: int
    action: int
    schema: str
    query: str
    tables: tuple[tuple[str, str], ...]
    schema_version: int
    skip: str = ""
    job: dict[str, Any] | None = None
    instead: tuple[str, ...] = ()
    refused: str = ""
    before: tuple[Tracked, ...] = field(default=(), repr=False)
    after: tuple[Tracked, ...] = field(default=(), repr=False)
    half_done: bool = False
    targets: tuple[tuple[str, str], ...] = ()
    unread: frozenset[tuple[str, str]] = frozenset()
    shared: tuple[Tracked, ...] = field(default=(), repr=False)
    apart: bool = False
    early: str = ""

    @property
    def statement(self) -> str:
        """For errors: what runs, and in which database."""
        return f"statement{f' in `{self.schema}`' if self.schema else ''}: {self.query}"

    @property
    def own_names(self) -> tuple[tuple[str, str], ...]:
        """What waits with it: all that goes to its tables downstream, in the order of the stream. Where rows
        never move between tables that share a target, those of the others go on."""
        return self.tables if self.shared and self.apart else self.names

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """Whatever it concerns, under the names upstream and downstream."""
        return (*self.tables, *self.targets)


Item = Transaction | Ddl

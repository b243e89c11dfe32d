"""What flows from the translator to the applier: transactions of row events, and DDL.

Values only. Row bytes stay encoded (`reference: rowcodec`); whoever needs a key, a literal or a value asks
the plan compiled for the table version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from common.table_info import TableInfo

INSERT: Final = 0
UPDATE: Final = 1
DELETE: Final = 2


@dataclass(frozen=True, slots=True, eq=False)
class TableVersion:
    """One table as rows are to be read and written: definition plus where it is called what.

    Identity matters: the tracker hands out the same object until a DDL changes the table, so compiled
    plans may be cached on it.
    """

    info: TableInfo
    schema: str
    name: str
    version: int  # schema version of the DDL that made it

    @property
    def id(self) -> int:
        return self.info.id


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Transaction:
    """Rows of one upstream transaction. `tables` may be empty when everything was filtered.

    A large transaction comes in pieces, in order: `last` is False on all but the last one.
    """

    start_ts: int
    commit_ts: int
    tables: tuple[TableEvents, ...]
    size_bytes: int
    last: bool = True


@dataclass(frozen=True, slots=True)
class Ddl:
    """One finished schema change that is to run downstream, or `skip` with the reason why not.

    `schema` is the database to be current while `query` runs (the old one of a rename), "" for none.
    `tables` are the (schema, table) names the statement touches, old and new; ("db", "") is a database.
    """

    commit_ts: int
    job_id: int
    action: int
    schema: str
    query: str
    tables: tuple[tuple[str, str], ...]
    schema_version: int
    skip: str = ""
    job: dict[str, Any] | None = None


Item = Transaction | Ddl

"""Entry: what the quarantine has durable of one DDL, or of refused rows, and of the tables that wait for it.

Values only. What is done with them: `waiting_tables`; how they are stored: `store`.

Tests  tests/drainer/ddl/quarantine/test_waiting_tables_model.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from drainer.ddl.rules import REWRITE, SKIP
from drainer.mysql.rows.change import Position
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.tso import Ts

RETRY: Final = "retry"
DECISIONS: Final = (RETRY, SKIP, REWRITE)

ROWS: Final = 10**12
"""From here on an entry's number is of refused rows, which wait for the downstream to be corrected; below it
is a DDL job's. Upstreams number jobs and tables together, and never come so far."""

LOADS: Final = 2 * ROWS
"""From here on it is of tables that join: their rows are loaded, and what comes meanwhile waits."""

SHARED: Final = "waits for other tables with the same target:"
"""How the reason of an entry begins that needs no decision once the others have the DDL."""

SAME_KEY: Final = "rows with the same one came before its end"
"""What the reason of an entry says whose rows are told apart by a key that the upstream has given up."""

Name: TypeAlias = tuple[str, str]
"""(schema, table) in lower case; ("db", "") is every table of the database."""


class Floor(NamedTuple):
    """The highest checkpoint allowed, with the schema version that belongs to it."""

    commit_ts: Ts
    schema_version: int


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with a waiting DDL: `text` is what to run instead, of a rewrite."""

    action: str
    text: str = ""
    number: int = 0  # in the list of all decisions


@dataclass(frozen=True, slots=True)
class Entry:
    """One waiting DDL: a row of `tidb_binlog.quarantine`. `position`: up to where its tables are applied.

    `before` is the shape of the tables when it was refused; `intent_ts` the DDL of this queue that is under
    way downstream (0: none), `intent` the shape before that one. `query` of tables that join: the flags that
    their load was asked with. An entry with the intent of a DDL that is to
    come stays, and its queue with it, until that DDL has come again and is over.
    """

    job_id: int
    commit_ts: Ts
    floor: Floor
    tables: Mapping[Name, int]
    position: Position
    query: str
    reason: str
    since_ms: int = 0
    decision: Decision | None = None
    before: Mapping[str, str | None] = field(default_factory=dict)
    intent_ts: Ts = 0
    intent: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def is_rows(self) -> bool:
        """No DDL: rows up to `commit_ts`, and what comes after them."""
        return ROWS <= self.job_id < LOADS

    @property
    def is_load(self) -> bool:
        """No DDL: what its tables have upstream is loaded at a timestamp of at least `commit_ts`. It is done
        once `position` is that one."""
        return self.job_id >= LOADS

    @property
    def rate_rows(self) -> int:
        """Rows a second that a load copies at most, 0: no limit."""
        _, _, rate = self.query.partition("-rate ")
        return int(rate) if self.is_load and rate else 0

    @property
    def waits_for_shards(self) -> bool:
        return self.reason.startswith(SHARED)

    @property
    def is_for_a_load(self) -> bool:
        """Its rows take each other's place where they are tried again."""
        return SAME_KEY in self.reason

    @property
    def done(self) -> bool:
        """Its own DDL is over; what is left are rows after it."""
        return self.is_rows or self.position.complete_ts >= self.commit_ts

    def decided(self, decision: Decision) -> Entry:
        return replace(self, decision=decision)


def name_of(schema: str, table: str) -> Name:
    return schema.lower(), table.lower()

"""Mark: the row that a drainer changes downstream in each transaction of rows, so that nothing loops.

Out    whether it changes rows, and what marks its transaction: one row of `retl._drainer_repl_mark`
Holds  a lane changes its own row only (id = lane number), so lanes never wait for each other here; each other
       session (DDL, load, repair) one above those of lanes. A row that is missing is written on the spot
Why    the other direction's drainer drops every transaction that has a row of this table with its channel.
       What a session of ours writes unmarked comes back, and overwrites what was written there since
       `Connection` marks, not who uses it: nobody who writes rows can forget it

Names, columns and texts are those of the Go drainer; both kinds may face each other.

Tests  tests/drainer/mysql/test_mark.py
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MARK_SCHEMA: Final = "retl"
MARK_TABLE: Final = "_drainer_repl_mark"
NAME: Final = f"{MARK_SCHEMA}.{MARK_TABLE}".encode()
_LANES_MAX: Final = 1 << 16
_SESSIONS: Final = 4093
"""So many ids are for sessions that are no lanes. Two of one id wait for each other, no more, since the mark
comes before all rows; after a SELECT ... FOR UPDATE, as a repair has, the server may have to choose one."""
# What stands in a comment that servers execute counts, so its opening is passed over alone. A word behind
# WITH may be one of a query: a mark that none needs does no harm.
_CHANGES_ROWS: Final = re.compile(
    rb"(?>\s|\*/|/\*(?:M?!\d*|T!(?:\[[^\]]*\])?)|/\*.*?\*/|(?:--\s|#)[^\n]*\n)*+"
    rb"(?:(?:WITH|SET\s+STATEMENT|(?:EXPLAIN\s+)?ANALYZE|EXECUTE\s+IMMEDIATE)\b.*?\b)?"
    rb"(?:INSERT|REPLACE|UPDATE|DELETE|LOAD|CALL)\b",
    re.IGNORECASE | re.DOTALL,
)


def is_mark_table(schema: str, table: str) -> bool:
    """Says whether a table holds the marks of two-way replication."""
    return schema.lower() == MARK_SCHEMA and table.lower() == MARK_TABLE


def changes_rows(statement: bytes | str) -> bool:
    """Says whether a statement is one of rows; DDL, queries and settings are not."""
    if isinstance(statement, str):
        statement = statement.encode("utf-8", "surrogateescape")
    return _CHANGES_ROWS.match(statement) is not None


class Mark(NamedTuple):
    """Of a channel. `lane` is None in a session that is not a lane's."""

    channel_id: int
    lane: int | None = None

    def of_lane(self, lane: int) -> Mark:
        return self._replace(lane=lane)

    def row_id(self, session_id: int) -> int:
        """Of the row that a session changes; `session_id` is the server's number of it."""
        return self.lane if self.lane is not None else _LANES_MAX + session_id % _SESSIONS

    def raise_row(self, row_id: int) -> bytes:
        """Matches no row where there is none yet."""
        return b"update %b set val=val+1 where id=%d and channel_id=%d limit 1;" % (
            NAME,
            row_id,
            self.channel_id,
        )

    def write_row(self, row_id: int) -> bytes:
        """Whether there is one or not."""
        return (
            b"INSERT INTO %b(id,channel_id,val,channel_info) VALUES (%d,%d,1,'')"
            b" ON DUPLICATE KEY UPDATE val=val+1" % (NAME, row_id, self.channel_id)
        )

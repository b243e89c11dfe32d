"""Table size: how large a table is, as the server estimates it, without reading it.

Out    rows and bytes; both from statistics, which may be old
Why    a dry run says how long a load will take, progress how much of it is done: neither may cost a scan
"""

from __future__ import annotations

from typing import Final

from drainer.mysql.connection import Connection
from drainer.mysql.literal.quoting import string_literal
from tidb_binlog.late_dataclass import dataclass

_SIZE: Final = (
    b"SELECT TABLE_ROWS,DATA_LENGTH FROM information_schema.TABLES WHERE TABLE_SCHEMA=%b AND TABLE_NAME=%b"
)


@dataclass(frozen=True, slots=True)
class TableSize:
    """Estimates; 0 where the server knows nothing."""

    rows: int
    size_bytes: int

    def chunks(self, rows_wanted: int) -> int:
        """How many chunks that will be about; one at least."""
        return max(1, -(-self.rows // rows_wanted))


def table_size(connection: Connection, schema: str, name: str) -> TableSize:
    """Raises `SessionError`."""
    if not connection.dialect.has_names(schema, name):
        return TableSize(0, 0)
    answer = connection.printed(_SIZE % (string_literal(schema), string_literal(name)))
    if not answer:
        return TableSize(0, 0)
    rows, size = answer[0]
    return TableSize(int(rows or 0), int(size or 0))

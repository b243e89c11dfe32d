"""The one error of the row codec: which column, what is wrong, where in the row.

Tests  tests/common/rowcodec/test_hostile.py
"""

from __future__ import annotations

from tidb_binlog.errors import Corruption


class RowError(Corruption):
    """An encoded row, or a definition it is to be read by, that cannot be right.

    `column` is the name of the column, or `id N` for one the definition does not know; empty when the fault
    is not inside a column. The text never holds row values.
    """

    def __init__(self, message: str, *, column: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.column = column


class UnsupportedTable(Corruption):
    """A table definition with a type that binlog rows cannot hold."""

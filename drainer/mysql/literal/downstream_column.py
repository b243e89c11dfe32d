"""Downstream column: one column of a table, as the server that rows are written to describes it.

Tests  tests/drainer/mysql/test_table_reader.py
"""

from __future__ import annotations

from tidb_binlog.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class DownstreamColumn:
    """`type` is the name without length; `length` in characters (bytes of binary strings), 0 for others.

    `digits` are those after the decimal point, of numbers or of seconds. `charset` and `collation` are "" for
    what is no text. `full_type` is the type as a definition has it, with the names of an ENUM. `fills_null`:
    the server stores another value where a NULL is given, and says nothing.
    """

    name: str
    type: str
    length: int = 0
    digits: int = 0
    nullable: bool = True
    has_default: bool = True  # also AUTO_INCREMENT
    generated: bool = False
    charset: str = ""
    collation: str = ""
    checks_json: bool = False
    full_type: str = ""
    fills_null: bool = False

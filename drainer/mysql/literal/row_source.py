"""Row literals as source: the statements with which a generated reader ends.

Out    statements that return `(1,'abc',NULL)`
Holds  a value with a quote or a backslash, bytes that are no text, and a NULL that the server would fill are
       left to an expression that escapes, or refuses
Why    most rows need no escaping: one template makes them. A row with a NULL does not fit it, and is
       joined of the literals of its values

Tests  tests/drainer/mysql/literal/test_plan.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from drainer.mysql.literal.literals import NULL, ColumnSql
from tidb_binlog.table_info import JSON

Entries = Sequence[tuple[str, ColumnSql]]
"""The local of each column that is written, and how it is."""


def _is_text(literal: bytes) -> bool:
    try:
        literal.decode()
    except UnicodeDecodeError:
        return False
    return True


ROW_NAMES: Final[Mapping[str, Any]] = {"is_text": _is_text, "NULL": NULL}
"""What the statements refer to, besides the names of the columns."""


def row_source(entries: Entries, escaped: str) -> list[str]:
    """`escaped` is the expression of the row literal that takes every value. Locals: `b`, `nulls`."""
    template = ",".join(entry.template for _, entry in entries)
    arguments = "".join(entry.argument.format(v=value) + ", " for value, entry in entries)
    literal = f'b"({template})" % ({arguments})' if arguments else 'b"()"'
    literals = "".join(_literal(value, entry) + ", " for value, entry in entries)
    quoted = [(value, entry) for value, entry in entries if entry.quoted]
    narrow = any(entry.charset is not None for _, entry in entries)
    fits = "r.isascii()" if narrow else "r.isascii() or is_text(r)"
    give = f"return r if {fits} else {escaped}" if quoted else "return r"
    filled = " or ".join(f"{value} is None" for value, entry in entries if entry.fills_null)
    refused = [f"if {filled}: return {escaped}"] if filled else []
    joined = [*refused, *_odd(quoted, escaped, nulls=True), f'r = b"(%b)" % b",".join(({literals}))', give]
    lines = ["if nulls:", *(f"    {line}" for line in joined)]
    return [*lines, *_odd(quoted, escaped, nulls=False), f"r = {literal}", give]


def _literal(value: str, entry: ColumnSql) -> str:
    """Of any column: one that is NOT NULL now may be absent from a row that is older."""
    argument = entry.argument.format(v=value)
    literal = argument if entry.template == "%b" else f'b"{entry.template}" % {argument}'
    return f"NULL if {value} is None else {literal}"


def _odd(quoted: Entries, escaped: str, *, nulls: bool) -> list[str]:
    """Statements that leave a row to `escaped` if a text of it has a quote or a backslash."""
    lines = []
    # What is a slice of the row needs no search if the row has no such byte; JSON text is made here.
    for is_json, condition in ((False, "(39 in b or 92 in b) and "), (True, "")):
        tests = []
        for value, entry in quoted:
            if (entry.column.type.tp == JSON) is is_json:
                test = f"39 in {value} or 92 in {value}"
                tests.append(f"{value} is not None and ({test})" if nulls else test)
        if tests:
            lines.append(f"if {condition}({' or '.join(tests)}): return {escaped}")
    return lines

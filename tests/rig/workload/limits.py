"""Limits: what MariaDB cannot hold although TiDB does: the documented list, each with its reason.

A row that differs only inside these limits is counted and named in the report instead of being a difference.
Anything that a Drainer could do better does not belong here.

Tests  tests/deploy/binlog_playground/check/test_verify.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from binlog_playground.check.verify import Canonical, ColumnForm, Limit, Raw, TableName

_CODECS: Final = {"latin1": "cp1252", "ascii": "ascii"}
_THREE_BYTES: Final = ("utf8", "utf8mb3")
_TINYTEXT, _TEXT = 255, 65535


def _outside_charset(column: ColumnForm, expected: Canonical, actual: Canonical) -> bool:
    """The column's character set does not have the text, and what is there is what is stored then."""
    if not _is_outside(column, expected):
        return False
    if isinstance(expected, str) and actual == _with_marks(column, expected):
        return True
    return actual == as_stored(column, expected)


def _is_outside(column: ColumnForm, expected: Canonical) -> bool:
    if column.charset in _THREE_BYTES:
        return isinstance(expected, str) and max(expected, default="") > "\uffff"
    codec = _CODECS.get(column.charset)
    if codec is None or expected is None:
        return False
    if isinstance(expected, Raw):
        return True
    try:
        expected.encode(codec)
    except UnicodeEncodeError:
        return True
    return False


def _with_marks(column: ColumnForm, text: str) -> str:
    if column.charset in _THREE_BYTES:
        return re.sub("[\U00010000-\U0010ffff]", "?", text)
    codec = _CODECS[column.charset]
    return text.encode(codec, "replace").decode(codec)


def as_stored(column: ColumnForm, expected: Canonical) -> Canonical:
    """A text that the column's character set does not have, as it stands there: its bytes where any byte is
    legal and they fit, each a character of latin1 as MySQL has it; else with question marks."""
    if not _is_outside(column, expected):
        return expected
    if isinstance(expected, Raw):
        raw = bytes.fromhex(expected.hex)
    else:
        text = str(expected)
        raw = text.encode()
        if column.charset != "latin1" or len(raw) > _length(column.type):
            return _with_marks(column, text)
    return "".join(_latin1(byte) for byte in raw)


def _length(column_type: str) -> int:
    """In characters of one byte."""
    match = re.search(r"\((\d+)\)", column_type)
    return int(match[1]) if match else _TINYTEXT if column_type.startswith("tinytext") else _TEXT


def _latin1(byte: int) -> str:
    try:
        return bytes([byte]).decode("cp1252")
    except UnicodeDecodeError:  # five bytes that the code page leaves out
        return chr(byte)


def _negative_zero(column: ColumnForm, expected: Canonical, actual: Canonical) -> bool:
    return column.repr == "double" and expected == "-0.0" and actual == "0.0"


MISPLACED: Final = "rows in the wrong partition"
MISPLACED_REASON: Final = (
    "TiDB took them there by EXCHANGE PARTITION ... WITHOUT VALIDATION; what changed them later left both"
    " images of a row, or wrote over another row, while the binlog has the change alone"
)
_UNCHECKED_EXCHANGE: Final = re.compile(
    r"alter\s+table\s+(?:`?(\w+)`?\.)?`?(\w+)`?\s+exchange\s+partition\b.*\bwithout\s+validation", re.I | re.S
)


def misplaced(statements: Iterable[tuple[str, str]]) -> dict[TableName, str]:
    """Tables into which rows were put without a check of their partition. `statements`: (schema, query)."""
    found = {}
    for schema, query in statements:
        match = _UNCHECKED_EXCHANGE.search(query)
        if match is not None:
            found[match[1] or schema, match[2]] = MISPLACED
    return found


MARIADB: Final[tuple[Limit, ...]] = (
    Limit(
        "text outside the character set",
        "TiDB stores any UTF-8 text in latin1, ascii and utf8 columns; MariaDB stores their characters, and "
        "of other text the bytes where they fit",
        _outside_charset,
        as_stored,
    ),
    Limit(
        "negative zero",
        "MariaDB shows the FLOAT or DOUBLE -0 as 0, whatever it was given",
        _negative_zero,
    ),
)

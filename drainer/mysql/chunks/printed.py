"""Printed column: what a server is asked for, so that a column's value comes without loss.

In     a column as the server describes it (not as a definition calls it: a publisher's database may have JSON
       as text)
Out    its family; the expression whose text is the value, the expression whose text is a literal
Holds  the session is one of `drainer.mysql.connection`: UTC, a backslash escapes. What depends on a
       default of the display is not asked for: FLOAT and DOUBLE(M,D) are shown rounded, so they come as the
       double that they are or widen to. A TiDB has texts that are no UTF-8: CONVERT would make "?" of them

    family       value                          literal
    integer      1                              1; ZEROFILL 0001
    year         2023                           2023; 0000 is the number 0, '0' would be 2000
    bit          CAST(c AS UNSIGNED)            the same
    floating     c*1e0, shortest exact text     '1.5' (`floating_text`): without quotes a DECIMAL of 30 digits
    decimal      1.50                           the same
    text         c, as the session shows it     QUOTE of CONVERT(c USING utf8mb4)
    binary       the bytes                      x'00ff'
    enum         CAST(c AS UNSIGNED), index     QUOTE of the name; 0/*enum*/ for no element
    set          CAST(c AS UNSIGNED), mask      the same; of many members its names (`is_named`)
    times        2023-02-28 01:02:03            with quotes
    json         CONVERT(c USING utf8mb4)       QUOTE of it

Tests  tests/drainer/mysql/chunks/test_both_ways.py
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.literal.literals import ENUM_ZERO
from drainer.mysql.literal.quoting import quote_name
from drainer.mysql.rows.dialect import Dialect


class Family(Enum):
    """Types that are printed and written alike."""

    INTEGER = "integer"
    YEAR = "year"
    BIT = "bit"
    FLOATING = "floating"
    DECIMAL = "decimal"
    TEXT = "text"
    BINARY = "binary"
    ENUM = "enum"
    SET = "set"
    DATE = "date"
    DATETIME = "datetime"
    TIMESTAMP = "timestamp"
    TIME = "time"
    JSON = "json"
    OTHER = "other"  # a type that upstream's definitions have no word for

    __hash__ = object.__hash__


_FAMILIES: Final = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), Family.INTEGER),
    **dict.fromkeys(("float", "double"), Family.FLOATING),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), Family.TEXT),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), Family.BINARY),
    **{family.value: family for family in Family if family.value not in ("integer", "floating", "other")},
}
TIMES: Final = frozenset({Family.DATE, Family.DATETIME, Family.TIMESTAMP, Family.TIME})
_VALUES: Final = {
    Family.BIT: b"CAST(%b AS UNSIGNED)",
    Family.FLOATING: b"%b*1e0",
    Family.ENUM: b"CAST(%b AS UNSIGNED)",
    Family.SET: b"CAST(%b AS UNSIGNED)",
    Family.JSON: b"CONVERT(%b USING utf8mb4)",  # CAST gives NULL for more than max_allowed_packet
    Family.OTHER: b"CAST(%b AS CHAR)",
}
_UTF8: Final = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii"})
_EXACT_BITS: Final = 53
_AS_UTF8: Final = b"CONVERT(%b USING utf8mb4)"


def family_of(column: DownstreamColumn) -> Family:
    return _FAMILIES.get(column.type, Family.OTHER)


def is_tidb_text(column: DownstreamColumn, dialect: Dialect) -> bool:
    """Text that a TiDB has in UTF-8, or as any octets, whatever the character set is called."""
    return dialect is Dialect.TIDB and column.charset != "gbk"


def is_named(column: DownstreamColumn) -> bool:
    """A SET whose names come: a TiDB computes its number as a double, which has not so many bits."""
    return family_of(column) is Family.SET and column.full_type.count("','") >= _EXACT_BITS


def value(column: DownstreamColumn) -> bytes:
    """Expression whose text, as the server prints it, is the value; NULL for NULL."""
    shown = b"%b" if is_named(column) else _VALUES.get(family_of(column), b"%b")
    return shown % quote_name(column.name)


def floating_text(full_type: str, name: bytes) -> bytes:
    """A FLOAT or DOUBLE as it stands in a longer text. MySQL rounds a computed number there, to what 22
    characters hold, sign and all; a column it writes as it is."""
    if full_type.startswith("double") and "(" not in full_type:
        return name
    return b"IF(%b<0,CONCAT('-',-%b*1e0),%b*1e0)" % (name, name, name)


def literal(column: DownstreamColumn, dialect: Dialect) -> bytes:
    """Expression whose text is a literal of the value, NULL for NULL."""
    family, name = family_of(column), quote_name(column.name)
    if family is Family.TEXT and (column.charset in _UTF8 or is_tidb_text(column, dialect)):
        return b"QUOTE(%b)" % name
    if family is Family.TEXT or is_named(column):
        return b"QUOTE(%b)" % (_AS_UTF8 % name)
    if family in (Family.JSON, Family.OTHER):
        return b"QUOTE(%b)" % value(column)
    if family is Family.ENUM:
        return b"IF(%b=0,'%b',QUOTE(CONVERT(%b USING utf8mb4)))" % (name, ENUM_ZERO, name)
    if family is Family.BINARY:
        shown = b"CONCAT('x''',HEX(%b),'''')" % name
    elif family is Family.FLOATING:
        shown = b"CONCAT('''',%b,'''')" % floating_text(column.full_type, name)
    elif family in TIMES:
        shown = b"CONCAT('''',%b,'''')" % value(column)
    else:
        shown = value(column)
    # Asked of the column itself: CONCAT is NULL as well where a text would be larger than max_allowed_packet.
    return b"IF(%b IS NULL,'NULL',%b)" % (name, shown) if column.nullable else shown

"""Key literals: how a value is written so that a list of keys finds what one comparison finds.

Out    the literal that stands for a value in a condition
Holds  a literal has the character set and the collation of the column that it is compared with, or is ASCII
       text that has the same bytes there
Why    a server sorts a list of rows `(a, b) IN ((..), ..)` once and searches it: with a text in another
       character set it sorts under one collation and searches under another. MariaDB and MySQL then miss most
       rows of the list, the ASCII ones too (and MySQL 5.6 may die). One column alone, utf8mb3 and utf8mb4
       are right as they are

The server converts: `CONVERT('é' USING latin1) COLLATE latin1_bin` has exactly the bytes that storing 'é'
gave, in every character set that it knows. Numbers in a column of text are compared as text: as numbers,
'9007199254740992' and '9007199254740993' would be one. BINARY(n) is filled up as the server stores it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.literal.literals import ColumnSql
from drainer.mysql.literal.quoting import binary_literal
from tidb_binlog.table_info import DECIMAL, INTEGER_TYPES

Literal = Callable[[Any], bytes]

# A literal of the connection is compared with these as it is.
_UNICODE: Final = frozenset({"utf8mb4", "utf8mb3", "utf8", "binary", ""})
# Every ASCII character is its own byte in these; not in ucs2, utf16, utf32, swe7, sjis and armscii8, nor in
# what a later server may bring.
_ASCII_IS_ASCII: Final = frozenset(
    {
        *("ascii", "big5", "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866"),
        *("cp932", "dec8", "eucjpms", "euckr", "gb18030", "gb2312", "gbk", "geostd8", "greek", "hebrew"),
        *("hp8", "keybcs2", "koi8r", "koi8u", "latin1", "latin2", "latin5", "latin7", "macce", "macroman"),
        *("tis620", "ujis"),
    }
)
_TEXTS: Final = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_NUMBERS: Final = INTEGER_TYPES | {DECIMAL}


def key_literal(entry: ColumnSql, downstream: DownstreamColumn) -> Literal:
    """The literal to compare with the column `downstream`; made once for a table version."""
    compare = entry.compare
    kind = entry.column.type
    if downstream.type in _TEXTS and kind.tp in _NUMBERS:
        compare = _as_text(entry.store)
    elif downstream.type == "binary" and kind.is_binary_string:
        compare = _filled(downstream.length)
    if downstream.type != "set" and (downstream.type not in _TEXTS or kind.is_binary_string):
        return compare
    return compare if downstream.charset in _UNICODE else _converted(compare, downstream)


def _as_text(store: Literal) -> Literal:
    return lambda value: b"'%b'" % store(value)


def _filled(length: int) -> Literal:
    return lambda raw: binary_literal(raw.ljust(length, b"\0"))


def _converted(compare: Literal, downstream: DownstreamColumn) -> Literal:
    tail = f" USING {downstream.charset}) COLLATE {downstream.collation}".encode()
    ascii_is_ascii = downstream.charset in _ASCII_IS_ASCII

    def literal(value: Any) -> bytes:
        plain = compare(value)
        # ASCII, too, are bytes that were given a character set of their own (`_latin1 x'..'`).
        if ascii_is_ascii and plain.isascii():
            return plain
        return b"CONVERT(%b%b" % (plain, tail)

    return literal

"""Column pairs: how a column is compared whose values two servers print, and where they print them alike.

Out    `ColumnPair`: the form of its values (`canonical`), the text that both servers make of equal values
       (checksums are of these texts), or why there is none; or why it cannot be compared at all
Holds  two values have one text only if they are one value: a checksum may take equal rows for different ones,
       and they are read then, but never different ones for equal ones

    integers, YEAR, BIT     digits on every server
    DECIMAL                 digits; of another scale downstream: read and compared as numbers
    FLOAT, DOUBLE           each kind of server prints a double in its own way; beside another kind it is read
    dates and times         text in UTC, zero dates too; of another precision downstream: read
    CHAR                    servers cut blanks at the end; beside a VARCHAR or TEXT it is read
    other text              bytes in UTF-8, whatever the charset on each side; the collation does not count
    BINARY(n)               beside another length, a VARBINARY or a BLOB: read, zero bytes at the end cut
    ENUM, SET               names; where '' is one of them, which a server shows for 0, too: numbers, or
                            nothing if these mean other names downstream
    JSON                    as text where both servers are of one kind; else read and compared as documents
    generated               as any other, where both sides compute it
    others (GEOMETRY, ...)  not compared, and said
"""

from __future__ import annotations

import re
from typing import Final

from drainer.changes import canonical
from drainer.mysql.chunks.printed import floating_text, is_tidb_text
from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.literal.quoting import quote_name
from drainer.mysql.rows.dialect import Dialect
from tidb_binlog.late_dataclass import dataclass

FORMS: Final = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "year"), canonical.INTEGER),
    "bit": canonical.UNSIGNED,
    **dict.fromkeys(("float", "double"), canonical.DOUBLES),
    "decimal": canonical.DECIMALS,
    **dict.fromkeys(("date", "datetime", "timestamp", "time"), canonical.TIMES),
    "char": canonical.CHAR,
    **dict.fromkeys(("varchar", "tinytext", "text", "mediumtext", "longtext"), canonical.TEXT),
    "binary": canonical.PADDED,
    **dict.fromkeys(("varbinary", "tinyblob", "blob", "mediumblob", "longblob"), canonical.BINARY),
    **dict.fromkeys(("enum", "set"), canonical.NAMES),
    "json": canonical.DOCUMENT,
}
"""Form of the values of a column, by its type as information_schema names it."""

_UTF8: Final = frozenset({"", "utf8mb4", "utf8", "utf8mb3", "ascii"})
_NUMBERS: Final = frozenset({canonical.INTEGER, canonical.UNSIGNED})
_TEXTS: Final = frozenset({canonical.CHAR, canonical.TEXT})
_BYTES: Final = frozenset({canonical.PADDED, canonical.BINARY})
_DAYS: Final = {"datetime": "datetime", "timestamp": "datetime"}
_SHORT_BYTES: Final = 100
"""Of a value that is no text, as a server prints it."""
_DOCUMENT_BYTES: Final = 1 << 30
_SIGNS_BYTES: Final = 24
"""What stands around a value in the text of a row."""
_EMPTY_NAME: Final = re.compile(r"[(,]''[,)]")
_AS_IS: Final = b"%b"
_AS_NUMBER: Final = b"CAST(%b AS UNSIGNED)"


@dataclass(frozen=True, slots=True)
class ColumnPair:
    """`names`, `texts` and `are_tidb_text` are of upstream and downstream. `texts` is None where they do not
    print equal values alike: `why` says what of it. `sized`: texts may hold any character. `longest`: bytes
    that its part in the text of a row has at most."""

    name: str
    names: tuple[bytes, bytes]
    form: str
    texts: tuple[bytes, bytes] | None
    why: str = ""
    sized: bool = False
    nullable: bool = True
    longest: int = 0
    is_generated: bool = False
    are_tidb_text: tuple[bool, bool] = (False, False)

    def shown(self, side: int) -> bytes:
        """SQL that prints the column, for `canonical.of_server`."""
        return canonical.expression(self.names[side], self.form, is_tidb_text=self.are_tidb_text[side])


@dataclass(frozen=True, slots=True)
class NotCompared:
    """A column downstream and why nothing is said of its values. `is_meant`: they need not be equal."""

    name: str
    why: str
    is_meant: bool = False


def form_of_column(column: DownstreamColumn) -> str | None:
    """None for a type whose values are not known."""
    return canonical.DOCUMENT if column.checks_json else FORMS.get(column.type)


def pair(
    upstream: DownstreamColumn, downstream: DownstreamColumn, dialects: tuple[Dialect, Dialect]
) -> ColumnPair | NotCompared:
    """How two columns of one name are compared."""
    name = downstream.name
    if upstream.generated and not downstream.generated:
        return NotCompared(name, "upstream computes it, downstream does not: nothing writes it there", True)
    form = _form(upstream, downstream)
    if form is None:
        what = upstream.type if upstream.type == downstream.type else f"{upstream.type} as {downstream.type}"
        return NotCompared(name, f"values of {what} are not compared")
    texts, why = _texts(upstream, downstream, form, dialects)
    names = quote_name(upstream.name), quote_name(downstream.name)
    return ColumnPair(
        name=name,
        names=names,
        form=form,
        texts=None
        if texts is None
        else (texts[0].replace(_AS_IS, names[0]), texts[1].replace(_AS_IS, names[1])),
        why=why,
        sized=form not in _NUMBERS and form not in (canonical.NUMBER, canonical.DECIMALS, canonical.TIMES),
        nullable=upstream.nullable or downstream.nullable,
        longest=max(map(_longest, (upstream, downstream))),
        is_generated=downstream.generated,
        are_tidb_text=(is_tidb_text(upstream, dialects[0]), is_tidb_text(downstream, dialects[1])),
    )


def _longest(column: DownstreamColumn) -> int:
    size = _DOCUMENT_BYTES if column.type == "json" else 4 * column.length  # characters, of a text
    return max(size, _SHORT_BYTES) + _SIGNS_BYTES


def _form(upstream: DownstreamColumn, downstream: DownstreamColumn) -> str | None:
    """In which form both sides can show it."""
    first, second = form_of_column(upstream), form_of_column(downstream)
    if first is None or second is None:
        return None
    if first == second:
        if first == canonical.NAMES:
            return _form_of_names(upstream, downstream)
        if first == canonical.TIMES and _day(upstream) != _day(downstream):
            return None
        return first
    both = {first, second}
    if both <= _NUMBERS:
        return canonical.INTEGER
    if both <= {*_NUMBERS, canonical.DECIMALS} and canonical.UNSIGNED not in both:
        return canonical.DECIMALS
    if both <= _TEXTS:
        return canonical.CHAR
    if both <= _BYTES:
        return canonical.PADDED
    if canonical.DOCUMENT in both and both & _TEXTS:
        return canonical.DOCUMENT
    if canonical.NAMES in both and both & _TEXTS:
        return canonical.TEXT  # a name has no blanks at its end
    return None


def _form_of_names(upstream: DownstreamColumn, downstream: DownstreamColumn) -> str | None:
    """Where '' may be a name it is shown as nothing is: then numbers are compared, if they mean the same."""
    is_same = upstream.full_type == downstream.full_type
    if any(_EMPTY_NAME.search(column.full_type) for column in (upstream, downstream)):
        return canonical.NUMBER if is_same else None
    return canonical.NAMES if is_same or upstream.type != "set" else canonical.ELEMENTS


def _day(column: DownstreamColumn) -> str:
    return _DAYS.get(column.type, column.type)


def _texts(
    upstream: DownstreamColumn, downstream: DownstreamColumn, form: str, dialects: tuple[Dialect, Dialect]
) -> tuple[tuple[bytes, bytes] | None, str]:
    """What both sides print alike, or why they do not."""
    if form in (canonical.INTEGER, canonical.DECIMALS):
        if form == canonical.DECIMALS and upstream.digits != downstream.digits:
            return None, "another scale downstream"
        return (_number(upstream), _number(downstream)), ""
    if form == canonical.ELEMENTS:
        return None, "other elements downstream, or in another order"
    if form in (canonical.UNSIGNED, canonical.NUMBER):
        return (_AS_NUMBER, _AS_NUMBER), ""
    if form == canonical.DOUBLES:
        if dialects[0] is not dialects[1]:
            return None, "the servers print doubles differently"
        if _fills(upstream) != _fills(downstream):
            return None, "zeros in front on one side"
        return (floating_text(upstream.full_type, _AS_IS), floating_text(downstream.full_type, _AS_IS)), ""
    if form == canonical.TIMES:
        same = upstream.digits == downstream.digits
        return ((_AS_IS, _AS_IS), "") if same else (None, "another precision downstream")
    if form == canonical.DOCUMENT:
        same = dialects[0] is dialects[1] and upstream.type == downstream.type
        return ((_AS_IS, _AS_IS), "") if same else (None, "the servers print documents differently")
    if form in _BYTES:
        same = form == canonical.BINARY or upstream.full_type == downstream.full_type
        return ((_AS_IS, _AS_IS), "") if same else (None, "another length downstream")
    if form == canonical.CHAR and not upstream.type == downstream.type == "char":
        return None, f"{downstream.type} downstream"
    return (_text(upstream, dialects[0]), _text(downstream, dialects[1])), ""


def _number(column: DownstreamColumn) -> bytes:
    return b"%b+0" if column.type == "bit" or _fills(column) else _AS_IS


def _fills(column: DownstreamColumn) -> bool:
    return "zerofill" in column.full_type.lower()


def _text(column: DownstreamColumn, dialect: Dialect) -> bytes:
    """Its text in UTF-8: of a TiDB every text is."""
    if column.charset in _UTF8 or is_tidb_text(column, dialect):
        return _AS_IS
    return b"CONVERT(%b USING utf8mb4)"

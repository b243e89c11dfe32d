"""Canonical form of a row: the same bytes from an archive's image and from a live database.

Holds  two values that the servers hold for equal data have equal bytes:

    integers, YEAR, BIT    digits; no zeros of ZEROFILL
    FLOAT, DOUBLE          Python's `repr` of the double that it is or widens to; no negative zero (MariaDB
                           shows none)
    DECIMAL                digits, without leading and trailing zeros: another scale is the same number
    dates, times           text; no zeros at the end of the fraction: another precision is the same time
    CHAR                   without blanks at the end, which servers cut; BINARY without zero bytes there
    other strings          bytes, text in UTF-8
    ENUM, SET              names; the number where the definition has no names (a Go drainer's archive); of a
                           SET whose elements stand in another order there, in the order of their names
    JSON                   sorted keys, no blanks, 1.0 as 1 (TiDB prints it so)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.table_info import STRING, ColumnKind, FieldType

Canonical = bytes | None

INTEGER: Final = "integer"
UNSIGNED: Final = "unsigned"
DOUBLES: Final = "double"
DECIMALS: Final = "decimal"
TIMES: Final = "time"
CHAR: Final = "char"
TEXT: Final = "text"
PADDED: Final = "padded binary"
BINARY: Final = "binary"
NAMES: Final = "names"
ELEMENTS: Final = "elements"  # of two SETs that have them in different orders
NUMBER: Final = "number"  # of an ENUM or SET
DOCUMENT: Final = "json"

_EXACT: Final = 1 << 53
# No CAST: it makes NULL of a text that is larger than max_allowed_packet.
_BYTES_OF_TEXT: Final = b"CONVERT(CONVERT(%b USING utf8mb4) USING binary)"
_INT64: Final = 1 << 63


_FORMS: Final = {
    ColumnKind.SIGNED: INTEGER,
    ColumnKind.UNSIGNED: UNSIGNED,
    ColumnKind.YEAR: UNSIGNED,
    ColumnKind.BIT: UNSIGNED,
    ColumnKind.FLOAT: DOUBLES,
    ColumnKind.DOUBLE: DOUBLES,
    ColumnKind.DECIMAL: DECIMALS,
    ColumnKind.TEXT: TEXT,
    ColumnKind.BINARY: BINARY,
    ColumnKind.ENUM: NAMES,
    ColumnKind.SET: NAMES,
    ColumnKind.DATE: TIMES,
    ColumnKind.DATETIME: TIMES,
    ColumnKind.TIMESTAMP: TIMES,
    ColumnKind.TIME: TIMES,
    ColumnKind.JSON: DOCUMENT,
}
_OF_FIXED_LENGTH: Final = {TEXT: CHAR, BINARY: PADDED}


def form_of(field_type: FieldType) -> str:
    """In which form values of a type are compared."""
    form = _FORMS[field_type.kind]
    if form == NAMES and not field_type.elems:
        return NUMBER
    return _OF_FIXED_LENGTH.get(form, form) if field_type.tp == STRING else form


# -- values ---------------------------------------------------------------------------------------------


def decimal(text: str) -> bytes:
    """The shortest text of the number."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    whole, _, fraction = digits.partition(".")
    whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
    number = f"{whole}.{fraction}" if fraction else whole
    return (number if number == "0" else sign + number).encode()


def time(text: str) -> bytes:
    """Cut zeros at the end of the fraction."""
    return (text.rstrip("0").rstrip(".") if "." in text else text).encode()


def double(value: float) -> bytes:
    """Write a double with all its digits, without a negative zero."""
    return repr(value + 0.0).encode()  # -0.0 + 0.0 is 0.0


def document(text: str) -> bytes:
    """Normal form of a JSON text; a text that is none stays as it is."""
    try:
        return _dump(json.loads(text)).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return text.encode("utf-8", "surrogatepass")


def _dump(value: Any) -> str:
    if isinstance(value, dict):
        inner = ",".join(f"{json.dumps(key)}:{_dump(value[key])}" for key in sorted(value))
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_dump, value))}]"
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, int) and -_INT64 <= value < 2 * _INT64:
        return str(value)
    number = float(value)
    return str(int(number)) if number.is_integer() and abs(number) < _EXACT else repr(number)


def _text(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")


OF_IMAGE: Final[dict[str, Callable[[Any], bytes]]] = {
    INTEGER: lambda value: b"%d" % value,
    UNSIGNED: lambda value: b"%d" % value,
    DOUBLES: double,
    DECIMALS: lambda value: decimal(str(value)),  # an integer, where the downstream has a DECIMAL for it
    TIMES: time,
    CHAR: lambda value: _text(value).rstrip(b" "),
    TEXT: _text,
    PADDED: lambda value: _text(value).rstrip(b"\0"),
    BINARY: _text,
    NAMES: _text,
    ELEMENTS: lambda value: b",".join(sorted(_text(value).split(b","))),
    NUMBER: lambda value: b"%d" % value.number,
    DOCUMENT: document,
}
"""Canonical bytes of a value as `TablePlan` gives it, by form."""


def of_server(value: str | bytes | None, form: str) -> Canonical:
    """Canonical bytes of what a server printed for `expression`."""
    if value is None:
        return None
    try:
        if form in (INTEGER, UNSIGNED, NUMBER):
            return b"%d" % int(value)
        if form == DOUBLES:
            return double(float(value))
    except ValueError:
        raise Corruption(f"the database shows {value!r:.80} for a column compared as {form}") from None
    if form in (DECIMALS, TIMES, DOCUMENT):
        text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
        return OF_IMAGE[form](text)
    return OF_IMAGE[form](value)


def expression(name: bytes, form: str, *, is_tidb_text: bool = False) -> bytes:
    """SQL that shows a column (its quoted name) without loss, for `of_server`. `is_tidb_text`: a TiDB has it
    in UTF-8, or any octets, of which CONVERT would make `?`."""
    if is_tidb_text and form in (CHAR, TEXT):
        return b"CONVERT(%b USING binary)" % name
    shown = {
        UNSIGNED: b"CAST(%b AS UNSIGNED)",
        NUMBER: b"CAST(%b AS UNSIGNED)",
        DOUBLES: b"%b*1e0",  # the double, without the rounding for display of FLOAT and DOUBLE(M,D)
        INTEGER: b"%b+0",  # a BIT is shown as bytes
        CHAR: _BYTES_OF_TEXT,
        TEXT: _BYTES_OF_TEXT,
        NAMES: _BYTES_OF_TEXT,
        ELEMENTS: _BYTES_OF_TEXT,
        DOCUMENT: _BYTES_OF_TEXT,
    }
    return shown.get(form, b"%b") % name


# -- rows -----------------------------------------------------------------------------------------------


def pack(values: Iterable[Canonical]) -> bytes:
    """One string of bytes for the values, which `unpack` takes apart; equal only for equal values."""
    return b"".join(b"-" if value is None else b"%d:%b" % (len(value), value) for value in values)


def unpack(row: bytes) -> list[Canonical]:
    """Take apart what `pack` made."""
    values: list[Canonical] = []
    at = 0
    while at < len(row):
        if row[at] == 45:
            values.append(None)
            at += 1
            continue
        colon = row.index(b":", at)
        end = colon + 1 + int(row[at:colon])
        values.append(row[colon + 1 : end])
        at = end
    return values


def show(value: Canonical) -> str:
    """A value for people."""
    if value is None:
        return "NULL"
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"x'{value.hex()}'"


@dataclass(frozen=True, slots=True)
class Difference:
    """A column in which two rows differ."""

    column: str
    expected: Canonical
    actual: Canonical


def differences(
    columns: Iterable[str],
    expected: Iterable[Canonical],
    actual: Iterable[Canonical],
    left_out: frozenset[int] = frozenset(),
) -> list[Difference]:
    """Columns that differ, without the places `left_out`."""
    rows = enumerate(zip(columns, expected, actual, strict=True))
    return [Difference(*row) for place, row in rows if row[1] != row[2] and place not in left_out]

"""Printing: changes of an archive as text, line by line as the Go tool prints them.

In     payloads of records in the form of a file archive
Out    bytes of lines
Holds  equal to the Go tool's lines, byte for byte, but for values that it shows as a list of numbers:

    TEXT                          its text; Go: [104 105]
    BLOB, BINARY, BIT as bytes    0x and digits; Go: [104 105], or the bytes as they are
    what is not UTF-8             0x and digits
    what steers a terminal        written out (\\x1b), line breaks too

Tests  tests/drainer/reparo/test_printing.py
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

from google.protobuf.message import DecodeError

from drainer.relay.table_definitions import BINARY_TYPES
from tidb_binlog.errors import Corruption
from tidb_binlog.observe.printable import printable
from tidb_binlog.rowcodec.codegen import UNEXPECTED
from tidb_binlog.rowcodec.datum import BYTES, FLOAT, NULL_DATUM, UVARINT, VARINT, bytes_span, read_double
from tidb_binlog.rowcodec.varint import svarint, uvarint
from tidb_binlog.wire import pb_binlog_pb2 as pb

_TYPES: Final = {pb.Insert: b"Insert", pb.Update: b"Update", pb.Delete: b"Delete"}
_NIL: Final = b"<nil>"
_LARGE: Final = 6
_SMALL: Final = -4
_BREAKS: Final = str.maketrans({"\n": "\\n", "\r": "\\r"})

Wants = Callable[[str, str, int], bool]


def lines_of_ddl(query: bytes) -> bytes:
    """`query` as the archive has it, with its `use`."""
    return b"DDL query: " + _text(query) + b"\n"


def lines_of_rows(payload: bytes, wants: Wants) -> tuple[bytes, int]:
    """Of one transaction, and how many rows they are. Raises `Corruption`."""
    try:
        message = pb.Binlog.FromString(payload)
        wanted = [
            event for event in message.dml_data.events if wants(event.schema_name, event.table_name, event.tp)
        ]
        return b"".join(part for event in wanted for part in _event(event)), len(wanted)
    except (DecodeError, *UNEXPECTED) as error:
        raise Corruption(f"a row of the archive cannot be read: {error}") from None


def _event(event: pb.Event) -> Iterator[bytes]:
    schema, table = printable(event.schema_name).encode(), printable(event.table_name).encode()
    yield b"schema: %b; table: %b; type: %b\n" % (schema, table, _TYPES[event.tp])
    for element in event.row:
        column = pb.Column.FromString(element)
        head = f"{printable(column.name)}({column.mysql_type}): ".encode()
        value = _value(column.value, column.mysql_type)
        if event.tp == pb.Update:
            value += b" => " + _value(column.changed_value, column.mysql_type)
        yield head + value + b"\n"


def _value(datum: bytes, mysql_type: str) -> bytes:
    if datum == NULL_DATUM:
        return _NIL
    flag = datum[0]
    if flag == BYTES:
        start, end = bytes_span(datum, 0)
        content = datum[start:end]
        return b"0x" + content.hex().encode() if mysql_type in BINARY_TYPES else _text(content)
    if flag == VARINT:
        return b"%d" % svarint(datum, 1)[0]
    if flag == UVARINT:
        return b"%d" % uvarint(datum, 1)[0]
    if flag == FLOAT:
        return shown_float(read_double(datum, 0)[0]).encode()
    raise Corruption(f"a value of the archive has flag {flag:#04x}")


def _text(content: bytes) -> bytes:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return b"0x" + content.hex().encode()
    return printable(text.translate(_BREAKS)).encode()


def shown_float(value: float) -> str:
    """The shortest digits that mean it, with an exponent where Go has one."""
    if math.isinf(value) or math.isnan(value):
        return {"inf": "+Inf", "-inf": "-Inf"}.get(repr(value), "NaN")
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    digits, exponent = _digits(abs(value))
    if value and not _SMALL <= exponent < _LARGE:
        rest = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{rest}e{exponent:+03d}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    fraction = digits[exponent + 1 :]
    return f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}"


def _digits(value: float) -> tuple[str, int]:
    """Shortest decimal digits and the exponent of the first one."""
    mantissa, _, exponent = f"{value!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    power = int(exponent or 0) + len(whole) - 1
    digits = whole + fraction
    stripped = digits.lstrip("0")
    if not stripped:
        return "0", 0
    power -= len(digits) - len(stripped)
    return stripped.rstrip("0") or "0", power

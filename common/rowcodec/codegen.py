"""Source text of readers: one straight pass over the bytes of a row, made for one table version.

A generated reader expects the writer's column order. It compares every column id and every datum flag it
finds, decodes the common short forms in place, and hands the row to the strict reader on anything else: it
accepts a subset of what the strict reader accepts, with the same values. It never raises for a bad row.

What a value becomes (a Python value, a piece of SQL) is the target's business: a `Conversion` per column.

Tests  tests/common/rowcodec/test_hostile.py
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from common.rowcodec.datum import BYTES, FLOAT, UVARINT, VARINT, skip
from common.rowcodec.layout import Field, Layout
from common.rowcodec.row_error import RowError
from common.rowcodec.strict import Reader
from common.rowcodec.varint import put_svarint, uvarint

# What a generated reader may find in a row that is not what it expects.
UNEXPECTED: Final = (IndexError, ValueError, KeyError, struct.error, OverflowError, RowError)
SIGNED_VALUE: Final = "(u >> 1) ^ -(u & 1)"
UNSIGNED_HANDLE: Final = "((u >> 1) ^ -(u & 1)) & 0xFFFFFFFFFFFFFFFF"


class Shape(Enum):
    """How the fast path reads a value; the strict reader takes every legal form."""

    SIGNED = "signed"  # one varint; the expression sees `u`, the zigzag form
    UNSIGNED = "unsigned"  # one varint; the expression sees `u`
    BYTES = "bytes"  # the expression sees `s`, the content
    TIME = "time"  # nine varint bytes found in `cache`, else the strict reader
    DOUBLE = "double"  # the expression sees `u`, the number
    CALL = "call"  # the strict reader


_FLAGS: Final = {
    Shape.SIGNED: VARINT,
    Shape.UNSIGNED: UVARINT,
    Shape.BYTES: BYTES,
    Shape.TIME: UVARINT,
    Shape.DOUBLE: FLOAT,
}


@dataclass(frozen=True, slots=True)
class Conversion:
    """From datum to value for one column.

    `expression` may use `u` or `s` and the keys of `names`; `read` is the strict reader; `cache` (shape TIME)
    maps nine raw bytes to the value and is filled by `read`. `raw` (integers and BYTES): the value is the
    datum as it stands in the row, flag included, and there is no expression. `null` is the source of NULL.
    """

    shape: Shape
    expression: str
    read: Reader
    names: Mapping[str, Any] = field(default_factory=dict)
    cache: Mapping[bytes, Any] | None = None
    raw: bool = False
    null: str = "None"


@dataclass(slots=True)
class Source:
    """A function under construction: its lines and the names they refer to."""

    name: str
    lines: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)

    def add(self, indent: int, *lines: str) -> None:
        self.lines.extend("    " * indent + line for line in lines)

    def compile(self) -> Callable[..., Any]:
        """The function; `__doc__` is its source, for people who debug."""
        text = "\n".join(self.lines) + "\n"
        exec(compile(text, f"<rowcodec {self.name}>", "exec"), self.names)
        function: Callable[..., Any] = self.names[self.name]
        function.__doc__ = text
        return function


def _at(base: str, distance: int) -> str:
    """`base + distance` as source: "3", "i" or "i + 3"."""
    name, _, number = base.rpartition(" + ") if " + " in base else ("", "", base)
    if not name and not number.isdecimal():
        name, number = base, "0"
    total = int(number) + distance
    if not name:
        return str(total)
    return f"{name} + {total}" if total else name


class ReaderSource:
    """Writes one reader. Locals: `b` the row, `n` its length, `i` the offset, `nulls` if a NULL was met.

    Values end up in locals: prefix and place of the column, `v3`. `bail` is the statement that gives up.
    """

    def __init__(self, layout: Layout, conversions: Sequence[Conversion], name: str, arguments: str) -> None:
        self.layout = layout
        self.conversions = conversions
        self.source = Source(name)
        self.bail = f"return slow({arguments})"
        self.source.names.update(
            uvarint=uvarint,
            skip=skip,
            UNEXPECTED=UNEXPECTED,
            unpack_double=struct.Struct(">d").unpack_from,
        )
        for index, conversion in enumerate(conversions):
            self.source.names.update(conversion.names)
            self.source.names[f"read{index}"] = conversion.read
            if conversion.cache is not None:
                self.source.names[f"cache{index}"] = conversion.cache.get
        self.source.add(0, f"def {name}({arguments}):")
        self.source.add(1, "nulls = False", "try:")
        self.source.add(2, "n = len(b)")

    def add(self, indent: int, *lines: str) -> None:
        self.source.add(indent, *lines)

    def finish(
        self, result: Sequence[str], slow: Callable[..., Any], extra: Mapping[str, Any]
    ) -> Callable[..., Any]:
        """`result` are the statements after a successful pass, `extra` the names they use.

        `slow` gets the arguments otherwise.
        """
        self.source.names.update(extra)
        self.add(1, "except UNEXPECTED:")
        self.add(2, self.bail)
        if any(line.endswith("nulls = True") for line in self.source.lines):
            self.add(1, *result)
        else:
            self.source.lines.remove("    nulls = False")
            self.add(1, *(line for line in result if not line.startswith("if nulls:")))
        self.source.names["slow"] = slow
        return self.source.compile()

    def handle(self, wanted: Collection[int]) -> str:
        """The datums in front of an INSERT body; returns the offset of the body as source."""
        info = self.layout.info
        base = "0"
        for part in self.layout.handle:
            keep = part.index in wanted and part.index >= 0
            if info.is_common_handle:
                if part.index < 0:
                    self.add(2, f"if b[{base}] == 0: {self.bail}", f"i = skip(b, {base})")
                else:
                    conversion = self.conversions[part.index]
                    self._flag_check(2, conversion, base)
                    self._value(2, conversion, part.index, base, f"h{part.index}" if keep else "")
            else:
                self.add(2, f"if b[{base}] != 8: {self.bail}")
                self._varint(2, _at(base, 1), keep=keep)
                if keep:
                    assert part.column is not None
                    unsigned, raw = part.column.type.unsigned, self.conversions[part.index].raw
                    value = UNSIGNED_HANDLE if unsigned else SIGNED_VALUE
                    if raw:  # the handle of an unsigned key is not its datum
                        value = f"put_unsigned({value})" if unsigned else f"b[{base}:i]"
                    self.add(2, f"v{part.index} = {value}")
            base = "i"
        return base

    def body(
        self, fields: Sequence[Field], wanted: Collection[int], prefix: str, base: str, *, whole: bool
    ) -> None:
        """One body from `base` on. Unless `whole`, stop after the last wanted column."""
        last = len(fields)
        if not whole:
            last = max((n + 1 for n, entry in enumerate(fields) if entry.index in wanted), default=0)
        if not last and not whole:
            return
        if all(entry.optional for entry in fields[:last]):
            # Possibly an empty body; its start is needed to distinguish it from no body at all.
            self.add(2, f"start = i = {base}")
            base = "i"
        for entry in fields[:last]:
            self._field(entry, prefix if entry.index in wanted and entry.index >= 0 else "", base)
            base = "i"
        if base != "i":
            self.add(2, f"i = {base}")

    def begins(self, fields: Sequence[Field]) -> None:
        """The first column's id must lie at `i`."""
        for distance, byte in enumerate(b"\x08" + put_svarint(fields[0].id) if fields else b""):
            self.add(2, f"if b[{_at('i', distance)}] != {byte}: {self.bail}")

    def end(self, fields: Sequence[Field]) -> None:
        """The body must end where the row ends."""
        if all(entry.optional for entry in fields):
            self.add(2, "if i == start:")
            self.add(3, f"if b[i] != 0: {self.bail}", "i += 1")
        self.add(2, f"if i != n: {self.bail}")

    def _field(self, entry: Field, prefix: str, base: str) -> None:
        id_bytes = b"\x08" + put_svarint(entry.id)
        local = f"{prefix}{entry.index}" if prefix else ""
        conversion = self.conversions[entry.index] if entry.index >= 0 else None
        flag = _at(base, len(id_bytes))
        nullable = entry.column is None or not entry.column.type.not_null
        simple = conversion is not None and conversion.shape in _FLAGS
        indent = 2
        if entry.optional:
            same = " and ".join(f"b[{_at(base, n)}] == {byte}" for n, byte in enumerate(id_bytes))
            self.add(2, f"if {base} < n and {same}:  # {entry.id}")
            indent = 3
        else:
            differs = " or ".join(f"b[{_at(base, n)}] != {byte}" for n, byte in enumerate(id_bytes))
            if simple and not nullable:
                assert conversion is not None
                differs += f" or b[{flag}] != {_FLAGS[conversion.shape]}"
            self.add(2, f"if {differs}: {self.bail}  # {entry.id}")
        if conversion is None:
            self.add(indent, f"i = skip(b, {flag})")
        elif nullable or not simple:
            self.add(indent, f"if b[{flag}] == 0:")
            self.add(indent + 1, f"i = {_at(flag, 1)}")
            if local:
                assert conversion is not None
                self.add(indent + 1, f"{local} = {conversion.null}", "nulls = True")
            self.add(indent, "else:")
            self._flag_check(indent + 1, conversion, flag)
            self._value(indent + 1, conversion, entry.index, flag, local)
        else:
            if entry.optional:
                self._flag_check(indent, conversion, flag)
            self._value(indent, conversion, entry.index, flag, local)
        if entry.optional:
            self._absent(entry, local, base)

    def _absent(self, entry: Field, local: str, base: str) -> None:
        in_handle = any(part.index == entry.index for part in self.layout.handle) and entry.index >= 0
        self.add(2, "else:")
        if base != "i":
            self.add(3, f"i = {base}")
        if not local:
            self.add(3, "pass")
        elif in_handle:
            self.add(3, f"{local} = h{entry.index}")
        else:
            self.add(3, f"{local} = {self.conversions[entry.index].null}", "nulls = True")

    def _flag_check(self, indent: int, conversion: Conversion, flag: str) -> None:
        if conversion.shape in _FLAGS:
            self.add(indent, f"if b[{flag}] != {_FLAGS[conversion.shape]}: {self.bail}")

    def _value(self, indent: int, conversion: Conversion, index: int, flag: str, local: str) -> None:
        """Decode (or, without `local`, skip) the datum whose flag byte is at `flag` and was checked."""
        shape, payload = conversion.shape, _at(flag, 1)
        if not local and shape in (Shape.TIME, Shape.CALL):
            self.add(indent, f"i = skip(b, {flag})")
            return
        if shape is Shape.CALL:
            self.add(indent, f"{local}, i = read{index}(b, {flag})")
            return
        if shape is Shape.TIME:
            self.add(indent, f"{local} = cache{index}(b[{payload}:{_at(payload, 9)}])")
            self.add(indent, f"if {local} is None: {local}, i = read{index}(b, {flag})")
            self.add(indent, f"else: i = {_at(payload, 9)}")
            return
        raw = conversion.raw and bool(local)
        if raw:
            self.add(indent, f"d = {flag}")
        if shape is Shape.DOUBLE:
            self.add(indent, f"if b[{payload}] > 127:")
            self.add(indent + 1, f"u = -unpack_double(b, {payload})[0]", f"i = {_at(payload, 8)}")
            self.add(indent + 1, f"if u - u: {self.bail}")
            self.add(indent, f"else: u, i = read{index}(b, {flag})")
        elif shape is Shape.BYTES:
            self._varint(indent, payload, keep=True, into="j")
            self.add(indent, f"if u & 1: {self.bail}", "i = j + (u >> 1)")
            if local and not raw:
                self.add(indent, "s = b[j:i]")
        else:
            self._varint(indent, payload, keep=bool(local) and not raw)
        if local:
            self.add(indent, f"{local} = " + ("b[d:i]" if raw else conversion.expression))

    def _varint(self, indent: int, at: str, *, keep: bool, into: str = "i") -> None:
        """`u` and the next offset; one and two bytes in place."""
        self.add(indent, f"u = b[{at}]", f"if u < 128: {into} = {_at(at, 1)}", "else:")
        self.add(indent + 1, f"w = b[{_at(at, 1)}]", "if w < 128:")
        self.add(indent + 2, *(["u += (w << 7) - 128"] if keep else []), f"{into} = {_at(at, 2)}")
        self.add(indent + 1, f"else: u, {into} = uvarint(b, {at})")

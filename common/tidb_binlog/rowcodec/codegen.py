"""Source text of readers: one straight pass over the bytes of a row, made for one table version.

A generated reader expects the writer's column order. It compares every column id and every datum flag it
finds, many columns in a row by one expression (`run`) and few in place, and hands the row to the strict
reader on anything else: it accepts a subset of what the strict reader accepts, with the same values. It never
raises for a bad row.

What a value becomes (a Python value, a piece of SQL) is the target's business: a `Conversion` per column.

Tests  tests/common/rowcodec/test_hostile.py
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final

from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.rowcodec.datum import BYTES, DECIMAL, FLOAT, NIL, UVARINT, VARINT, skip
from tidb_binlog.rowcodec.decimals import size_of
from tidb_binlog.rowcodec.layout import Field, Layout
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.rowcodec.run import Part, can_run, ends_run, matcher
from tidb_binlog.rowcodec.source import Source, offset, without_nulls
from tidb_binlog.rowcodec.strict import Reader
from tidb_binlog.rowcodec.varint import put_svarint, signed_of, unsigned_of, uvarint

# What a generated reader may find in a row that is not what it expects.
UNEXPECTED: Final = (IndexError, ValueError, KeyError, struct.error, OverflowError, RowError)
SIGNED_VALUE: Final = "(u >> 1) ^ -(u & 1)"
UNSIGNED_HANDLE: Final = "((u >> 1) ^ -(u & 1)) & 0xFFFFFFFFFFFFFFFF"
RUN_MIN: Final = 4
"""Fewer columns are read in place: a match costs as much as two or three of them (measured)."""
_RUN_MAX: Final = 12  # a matcher remembers all its groups wherever a column may be absent
_IN_PLACE: Final = 6  # bytes of a varint that are read without a call


class Shape(Enum):
    """How the fast path reads a value; the strict reader takes every legal form."""

    SIGNED = "signed"  # one varint; the expression sees `u`, the zigzag form
    UNSIGNED = "unsigned"  # one varint; the expression sees `u`
    BYTES = "bytes"  # the expression sees `s`, the content
    TIME = "time"  # a varint of nine bytes, in `cache` or by the expression; else the strict reader
    DECIMAL = "decimal"  # the expression sees `d`, the bytes after `header`; else the strict reader
    DOUBLE = "double"  # the expression sees `u`, the number
    CALL = "call"  # the strict reader, given the row or the datum alone
    PLACE = "place"  # the strict reader, given the row: the value tells where the datum stands


_FLAGS: Final = {
    Shape.SIGNED: VARINT,
    Shape.UNSIGNED: UVARINT,
    Shape.BYTES: BYTES,
    Shape.TIME: UVARINT,
    Shape.DOUBLE: FLOAT,
    Shape.DECIMAL: DECIMAL,
}


@dataclass(frozen=True, slots=True)
class Conversion:
    """From datum to value for one column.

    `expression` may use what its shape says and the keys of `names`; `read` is the strict reader. `raw`
    (integers and BYTES): the value is the datum as it stands in the row, flag included, and there is no
    expression. `null` is the source of NULL. `cache` (TIME) shows a time by its nine bytes; without it the
    expression does, which sees the first three as `q` and the others as `t`. Both are asked about any nine
    bytes and refuse with one of UNEXPECTED. `header` (DECIMAL): flag, precision and scale.
    """

    shape: Shape
    expression: str
    read: Reader
    names: Mapping[str, Any] = field(default_factory=dict)
    cache: Mapping[bytes, Any] | None = None
    raw: bool = False
    null: str = "None"
    header: bytes = b""


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
            unsigned_of=unsigned_of,
            signed_of=signed_of,
            skip=skip,
            UNEXPECTED=UNEXPECTED,
            unpack_double=struct.Struct(">d").unpack_from,
        )
        for index, conversion in enumerate(conversions):
            self.source.names.update(conversion.names)
            self.source.names[f"read{index}"] = conversion.read
            if conversion.cache is not None:
                self.source.names[f"cache{index}"] = conversion.cache
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
            self.add(1, *without_nulls(result))
        self.source.names["slow"] = slow
        return self.source.compile()

    def handle(self, places: Collection[int]) -> str:
        """The datums in front of an INSERT body; returns the offset of the body as source."""
        info = self.layout.info
        base = "0"
        for part in self.layout.handle:
            keep = part.index in places and part.index >= 0
            if info.is_common_handle:
                if part.index < 0:
                    self.add(2, f"if b[{base}] == 0: {self.bail}", f"i = skip(b, {base})")
                else:
                    conversion = self.conversions[part.index]
                    self._flag_check(2, conversion, base)
                    self._value(2, conversion, part.index, base, f"h{part.index}" if keep else "")
            else:
                self.add(2, f"if b[{base}] != 8: {self.bail}")
                self._varint(2, offset(base, 1), keep=keep)
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
        self, fields: Sequence[Field], places: Collection[int], prefix: str, base: str, *, whole: bool
    ) -> None:
        """One body from `base` on. Unless `whole`, stop after the last wanted column."""
        last = len(fields)
        if not whole:
            last = max((n + 1 for n, entry in enumerate(fields) if entry.index in places), default=0)
        if not last and not whole:
            return
        if all(entry.optional for entry in fields[:last]):
            # Possibly an empty body; its start is needed to distinguish it from no body at all.
            self.add(2, f"start = i = {base}")
            base = "i"
        for run in self._runs(fields[:last], places):
            if len(run) >= RUN_MIN:
                self._run(run, places, prefix, base)
            else:
                for entry in run:
                    self._field(entry, prefix if entry.index in places and entry.index >= 0 else "", base)
                    base = "i"
            base = "i"
        if base != "i":
            self.add(2, f"i = {base}")

    def begins(self, fields: Sequence[Field]) -> None:
        """The first column's id must lie at `i`."""
        for distance, byte in enumerate(b"\x08" + put_svarint(fields[0].id) if fields else b""):
            self.add(2, f"if b[{offset('i', distance)}] != {byte}: {self.bail}")

    def end(self, fields: Sequence[Field]) -> None:
        """The body must end where the row ends."""
        if all(entry.optional for entry in fields):
            self.add(2, "if i == start:")
            self.add(3, f"if b[i] != 0: {self.bail}", "i += 1")
        self.add(2, f"if i != n: {self.bail}")

    def _field(self, entry: Field, prefix: str, base: str) -> None:
        """One column in place. Id and flag are compared as one slice, which costs less than byte by byte."""
        id_bytes = b"\x08" + put_svarint(entry.id)
        local = f"{prefix}{entry.index}" if prefix else ""
        conversion = self.conversions[entry.index] if entry.index >= 0 else None
        flag = offset(base, len(id_bytes))
        nullable = entry.column is None or not entry.column.type.not_null
        same_id = f"b[{base}:{flag}] == {id_bytes!r}"
        if conversion is None or conversion.shape not in _FLAGS:
            self.add(2, f"if {same_id}:  # {entry.id}")
            self.add(3, f"if b[{flag}] == 0:")
            self._null(4, conversion, local, offset(flag, 1))
            self.add(3, "else:")
            if conversion is None:
                self.add(4, f"i = skip(b, {flag})")
            else:
                self._value(4, conversion, entry.index, flag, local)
        else:
            head = id_bytes + (conversion.header or bytes((_FLAGS[conversion.shape],)))
            self.add(2, f"if b[{base}:{offset(base, len(head))}] == {head!r}:  # {entry.id}")
            if conversion.shape is Shape.DECIMAL and local:
                self._decimal(3, conversion, flag, local)
            else:
                self._value(3, conversion, entry.index, flag, local)
            if nullable:
                self.add(2, f"elif b[{base}:{offset(flag, 1)}] == {id_bytes + bytes((NIL,))!r}:")
                self._null(3, conversion, local, offset(flag, 1))
            if entry.optional:
                self.add(2, f"elif {same_id}: {self.bail}")
        if entry.optional:
            self._absent(entry, local, base)
        else:
            self.add(2, f"else: {self.bail}")

    def _null(self, indent: int, conversion: Conversion | None, local: str, after: str) -> None:
        self.add(indent, f"i = {after}")
        if local:
            assert conversion is not None
            self.add(indent, f"{local} = {conversion.null}", "nulls = True")

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
        if conversion.shape in _FLAGS and conversion.shape is not Shape.DECIMAL:
            self.add(indent, f"if b[{flag}] != {_FLAGS[conversion.shape]}: {self.bail}")

    def _value(self, indent: int, conversion: Conversion, index: int, flag: str, local: str) -> None:
        """Decode (or, without `local`, skip) the datum whose flag byte is at `flag` and was checked."""
        shape, payload, expression = conversion.shape, offset(flag, 1), conversion.expression
        strict = f"{local}, i = read{index}(b, {flag})"
        if not local and shape not in (Shape.SIGNED, Shape.UNSIGNED, Shape.BYTES, Shape.TIME):
            self.add(indent, f"i = skip(b, {flag})")
        elif shape in (Shape.CALL, Shape.PLACE):
            self.add(indent, strict)
        elif shape is Shape.TIME and local:
            # Times of the first years have eight bytes, the zero one has one.
            self.add(indent, f"if b[{payload}] > 127 and b[{offset(payload, 7)}] > 127:")
            if conversion.cache is not None:
                self.add(indent + 1, f"{local} = cache{index}[b[{payload}:{offset(payload, 9)}]]")
            else:
                middle, end = offset(payload, 3), offset(payload, 9)
                self.add(indent + 1, f"q, t = b[{payload}:{middle}], b[{middle}:{end}]")
                self.add(indent + 1, f"{local} = {expression}")
            self.add(indent + 1, f"i = {offset(payload, 9)}")
            self.add(indent, f"else: {strict}")
        elif shape is Shape.DECIMAL:
            self.add(indent, f"if b[{flag}:{offset(flag, 3)}] == {conversion.header!r}:")
            self._decimal(indent + 1, conversion, flag, local)
            self.add(indent, f"else: {strict}")
        elif shape is Shape.DOUBLE:
            self.add(indent, f"if b[{payload}] > 127:")
            self.add(indent + 1, f"u = -unpack_double(b, {payload})[0]", f"i = {offset(payload, 8)}")
            self.add(indent + 1, f"if u - u: {self.bail}", f"{local} = {expression}")
            self.add(indent, f"else: {strict}")
        elif shape is Shape.BYTES:
            if conversion.raw and local:
                self.add(indent, f"d = {flag}")
            self._varint(indent, payload, keep=True, into="j", in_place=2)
            self.add(indent, f"if u & 1: {self.bail}", "i = j + (u >> 1)")
            self._string(indent, conversion, local)
        else:
            raw = conversion.raw and bool(local)
            if raw:
                self.add(indent, f"d = {flag}")
            self._varint(indent, payload, keep=bool(local) and not raw)
            if local:
                self.add(indent, f"{local} = " + ("b[d:i]" if raw else expression))

    def _decimal(self, indent: int, conversion: Conversion, flag: str, local: str) -> None:
        """Of a datum with the header that is expected."""
        end = offset(flag, 3 + size_of(*conversion.header[1:]))
        self.add(indent, f"d = b[{offset(flag, 3)}:{end}]", f"i = {end}")
        self.add(indent, f"{local} = {conversion.expression}")

    def _string(self, indent: int, conversion: Conversion, local: str) -> None:
        """The content from `j` to `i`; of a raw one the datum from `d` on."""
        if conversion.raw and local:
            self.add(indent, f"{local} = b[d:i]")
        elif local:
            self.add(indent, "s = b[j:i]", f"{local} = {conversion.expression}")

    def _varint(
        self, indent: int, at: str, *, keep: bool, into: str = "i", in_place: int = _IN_PLACE
    ) -> None:
        """`u` and the next offset; the first bytes in place."""
        if not keep:
            for size in range(1, in_place + 1):
                word = "if" if size == 1 else "elif"
                self.add(indent, f"{word} b[{offset(at, size - 1)}] < 128: {into} = {offset(at, size)}")
            self.add(indent, f"else: {into} = uvarint(b, {at})[1]")
            return
        self.add(indent, f"u = b[{at}]", f"if u < 128: {into} = {offset(at, 1)}", "else:")
        tops = 128  # the top bits of the bytes that are in `u`
        for size in range(2, in_place + 1):
            indent += 1
            shift = 7 * (size - 1)
            self.add(indent, f"w = b[{offset(at, size - 1)}]", "if w < 128:")
            self.add(indent + 1, f"u += (w << {shift}) - {tops}", f"{into} = {offset(at, size)}")
            self.add(indent, "else:")
            if size < in_place:
                self.add(indent + 1, f"u += w << {shift}")
                tops += 128 << shift
        self.add(indent + 1, f"u, {into} = uvarint(b, {at})")

    # -- runs --------------------------------------------------------------------------------------

    def _runs(self, fields: Sequence[Field], places: Collection[int]) -> Iterator[list[Field]]:
        """The fields, those together that one expression may match."""
        in_handle = self.layout.key_indexes if self.layout.info.is_common_handle else ()
        run: list[Field] = []
        for entry in fields:
            placed = entry.index in places and self.conversions[entry.index].shape is Shape.PLACE
            if not can_run(entry) or placed or (entry.optional and entry.index in in_handle):
                yield from (run, [entry]) if run else ([entry],)
                run = []
                continue
            run.append(entry)
            if ends_run(entry) or len(run) == _RUN_MAX:
                yield run
                run = []
        if run:
            yield run

    def _run(self, run: Sequence[Field], places: Collection[int], prefix: str, base: str) -> None:
        """Match all the datums at once, then make the values of the groups."""
        parts = []
        for entry in run:
            grouped = entry.index in places and entry.index >= 0
            conversion = self.conversions[entry.index] if grouped else None
            whole = conversion is not None and (conversion.raw or conversion.shape is Shape.CALL)
            halves = conversion is not None and conversion.shape is Shape.TIME and conversion.cache is None
            parts.append(Part(entry, grouped, whole, halves))
        names = self.source.names
        match = f"match{sum(name.startswith('match') for name in names)}"
        names[match] = matcher(parts)
        if all(entry.optional for entry in run) and base == "i":
            # A string may have ended behind the row: the matcher would begin at the row's end, and match.
            self.add(2, f"if i > n: {self.bail}")
        self.add(2, f"m = {match}(b, {base})  # {', '.join(str(entry.id) for entry in run)}")
        self.add(2, f"if m is None: {self.bail}", "i = m.end()")
        groups = [f"g{number}" for number in range(sum(part.groups for part in parts))]
        if groups:
            self.add(2, f"{', '.join(groups)}, = m.groups()")
        names_left = iter(groups)
        for part in parts:
            local = f"{prefix}{part.field.index}" if part.grouped else ""
            if part.halves:
                self._halves(part, next(names_left), next(names_left), next(names_left), local)
            elif part.groups:
                self._grouped(part, next(names_left), local)

    def _grouped(self, part: Part, group: str, local: str) -> None:
        """The value of a group; of a string the step over its content, too."""
        entry = part.field
        conversion = self.conversions[entry.index]
        indent = 2
        if part.may_be_null:
            if local:
                self.add(2, f"if {group} is None:", f"    {local} = {conversion.null}", "    nulls = True")
                self.add(2, "else:")
            else:
                self.add(2, f"if {group} is not None:")
            indent = 3
        if part.is_string:
            if conversion.raw and local:
                self.add(indent, f"d = i - len({group}) - 1")
            self._number_of(indent, group)
            self.add(indent, "j = i", "i += u >> 1", f"if i > n: {self.bail}")
            self._string(indent, conversion, local)
            return
        strict = f"{local} = read{entry.index}({group}, 0)[0]"
        flag = bytes((_FLAGS.get(conversion.shape, 0),))
        again = f"{local} = read{entry.index}({flag!r} + {group}, 0)[0]"
        expression = f"{local} = {conversion.expression}"
        if conversion.raw:
            self.add(indent, f"{local} = {group}")
        elif conversion.shape is Shape.CALL:
            self.add(indent, strict)
        elif conversion.shape is Shape.TIME:
            self.add(indent, f"if len({group}) == 9: {local} = cache{entry.index}[{group}]")
            self.add(indent, f"else: {again}")
        elif conversion.shape is Shape.DECIMAL:
            self.add(indent, f"d = {group}", expression)
        elif conversion.shape is Shape.DOUBLE:
            self.add(indent, f"if {group}[0] > 127:", f"    u = -unpack_double({group})[0]")
            self.add(indent + 1, f"if u - u: {self.bail}", expression)
            self.add(indent, f"else: {again}")
        elif conversion.expression == SIGNED_VALUE:
            self.add(indent, f"{local} = signed_of({group})")
        else:
            self._number_of(indent, group)
            self.add(indent, expression)

    def _halves(self, part: Part, first: str, second: str, other: str, local: str) -> None:
        """A time by two groups, or the strict reader's by the third."""
        index = part.field.index
        conversion = self.conversions[index]
        self.add(2, f"if {first} is not None:", f"    q, t = {first}, {second}")
        self.add(3, f"{local} = {conversion.expression}")
        self.add(2, f"elif {other} is not None: {local} = read{index}({bytes((UVARINT,))!r} + {other}, 0)[0]")
        if part.may_be_null:
            self.add(2, "else:", f"    {local} = {conversion.null}", "    nulls = True")

    def _number_of(self, indent: int, group: str) -> None:
        self.add(indent, f"u = {group}[0] if len({group}) == 1 else unsigned_of({group})")

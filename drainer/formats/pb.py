"""pb: encoded rows become the messages of an archive of `db-type = "file"` ("pb_binlog", proto2).

Out    bytes of an `Event` field for each row, of the whole `Binlog`; how many rows of which table there are
Why    a walk made for the table version goes from row bytes to message bytes: most values are the same
       datum here and there, so that one costs two slices and a lookup
Holds  byte for byte what the Go drainer writes, except where that is wrong:

    TIMESTAMP                    in UTC, which the index beside the file says; Go writes local time
    a table's name               as it was when the rows were written; Go takes stale names after a RENAME of
                                 several tables
    rows between the steps of    read by the definition that they were written under; Go writes defaults or
    an ALTER                     stops

An INSERT lists all columns, a DELETE those that its row has, an UPDATE those that a statement may name.

    type                                     datum
    integers, YEAR                           8 zigzag varint, 9 varint: as it stands in the row
    ENUM, SET, BIT                           9 varint: as it stands in the row
    strings                                  2 and the bytes: as it stands in the row
    FLOAT, DOUBLE                            5, comparable
    DECIMAL, JSON, dates and times           2 and the text; TIMESTAMP in UTC
    NULL                                     0

Source: the Go drainer's file sink; its value codec is TiDB's, not comparable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from drainer.changes.values import DATUM_NAMES, DATUMS, shown, shown_conversion
from drainer.formats.obinlog.column import CONTINUED, VARINTS, ByNumber, KeptByNumber, delimited, varint
from drainer.formats.obinlog.writer import type_name
from drainer.txn import DELETE, INSERT, UPDATE, Ddl, TableVersion, Transaction
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.rowcodec.codegen import Conversion, Shape
from tidb_binlog.rowcodec.datum import (
    NULL_DATUM,
    put_double,
    read_double,
)
from tidb_binlog.rowcodec.plan import RowReaders
from tidb_binlog.rowcodec.put import put_bytes, put_int
from tidb_binlog.table_info import JSON, Column, ColumnKind, FieldType, SchemaState, TableInfo
from tidb_binlog.tso import Ts

_HEADS_MAX: Final = 1 << 10
_PAIR: Final = 32
_INTEGER_MAX: Final = 11  # flag and 64 bits as a varint
NIL: Final = NULL_DATUM


CHANGED_HEADS: Final = ByNumber(lambda size: b"\x2a" + varint(size))
"""What stands before `changed_value`, by its length."""


@dataclass(frozen=True, slots=True)
class PbColumn:
    """How one column is read and written. `prefix`: name, type code and type name."""

    conversion: Conversion
    prefix: bytes
    single: KeptByNumber = field(init=False, repr=False)
    two: KeptByNumber = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "single", KeptByNumber(self._one_head, _HEADS_MAX))
        object.__setattr__(self, "two", KeptByNumber(self._two_head, _HEADS_MAX))

    def _one_head(self, size: int) -> bytes:
        """What stands before a value of a length: tags and lengths of row element and value."""
        head = self.prefix + b"\x22" + varint(size)
        return b"\x22" + varint(len(head) + size) + head

    def _two_head(self, sizes: int) -> bytes:
        """The same with a changed value after it."""
        old, new = sizes >> _PAIR, sizes & ((1 << _PAIR) - 1)
        head = self.prefix + b"\x22" + varint(old)
        return b"\x22" + varint(len(head) + old + len(CHANGED_HEADS[new]) + new) + head

    def heads(self) -> Sequence[bytes] | KeptByNumber:
        """What stands before a value, by its length; of integers all that there can be."""
        if self.conversion.shape in (Shape.SIGNED, Shape.UNSIGNED):
            return tuple(self._one_head(size) for size in range(_INTEGER_MAX + 1))
        return self.single

    def element(self, datum: bytes) -> bytes:
        """A `row` field of an INSERT or DELETE."""
        return self.single[len(datum)] + datum

    def pair(self, old: bytes, new: bytes) -> bytes:
        """A `row` field of an UPDATE."""
        return self.two[len(old) << _PAIR | len(new)] + old + CHANGED_HEADS[len(new)] + new

    @staticmethod
    def element_source(place: int) -> str:
        """Write `element` in source."""
        return f"ONE{place}[len(v{place})], v{place}"

    @staticmethod
    def pair_source(place: int) -> str:
        """Write `pair` in source."""
        old, new = f"o{place}", f"v{place}"
        return f"TWO{place}[len({old}) << {_PAIR} | len({new})], {old}, CHANGED[len({new})], {new}"

    def datum(self, value: Any) -> bytes:
        """A strict reader's value: a datum already, NULL, or an integer handle."""
        if value is None:
            return NIL
        if isinstance(value, int):
            return put_int(value, unsigned=value >= 0 and self.conversion.shape is Shape.UNSIGNED)
        assert isinstance(value, bytes)
        return value


def _text(text: str) -> bytes:
    return put_bytes(text.encode())


def _put(put: Callable[[Any], bytes]) -> Callable[[FieldType], Conversion]:
    """A kind whose datum in the event is another one."""
    return lambda field_type: shown_conversion(field_type, put, DATUM_NAMES, "NIL")


def _double(field_type: FieldType) -> Conversion:
    return Conversion(Shape.CALL, "", shown(read_double, put_double), DATUM_NAMES, null="NIL")


_TEXT: Final = _put(_text)
_CONVERSIONS: Final[dict[ColumnKind, Callable[[FieldType], Conversion]]] = {
    ColumnKind.FLOAT: _double,
    ColumnKind.DOUBLE: _double,
    ColumnKind.DECIMAL: _TEXT,
    ColumnKind.DATE: _TEXT,
    ColumnKind.DATETIME: _TEXT,
    ColumnKind.TIMESTAMP: _TEXT,
    ColumnKind.TIME: _TEXT,
    ColumnKind.JSON: _put(put_bytes),
}
"""Kinds whose datum in an event is another one than in a row."""


def pb_column(column: Column) -> PbColumn:
    """Choose how a column is read and written."""
    field_type = column.type
    tp, name = (JSON, "json") if field_type.array else (field_type.tp, type_name(field_type))
    prefix = (
        delimited(b"\n", column.name.encode())
        + delimited(b"\x12", bytes((tp,)))
        + delimited(b"\x1a", name.encode())
    )
    return PbColumn(DATUMS.get(field_type.kind) or _CONVERSIONS[field_type.kind](field_type), prefix)


_PLANS_MAX: Final = 10_000
_DML_HEAD: Final = b"\x08\x00\x10"
_DDL_HEAD: Final = b"\x08\x01\x10"
_KINDS: Final = (INSERT, UPDATE, DELETE)
Maker = Callable[[bytes], bytes]


def all_columns(info: TableInfo) -> TableInfo:
    """The same table with every column as one that rows hold and a statement may name."""
    columns = tuple(
        replace(column, generated="", generated_stored=False, hidden=False, state=SchemaState.PUBLIC)
        for column in info.columns
    )
    return replace(info, columns=columns)


class _Half:
    """Readers of a definition and the form of its columns."""

    def __init__(self, info: TableInfo, left_out: frozenset[int]) -> None:
        self.forms: list[PbColumn] = []
        self.readers = RowReaders(info, self._convert)
        self.places = [
            place for place, column in enumerate(self.readers.layout.columns) if column.id not in left_out
        ]
        self.names: dict[str, Any] = {"join": b"".join, "VARINTS": VARINTS, "CHANGED": CHANGED_HEADS}
        for place, form in enumerate(self.forms):
            self.names |= {f"ONE{place}": form.heads(), f"TWO{place}": form.two}

    def _convert(self, column: Column, place: int) -> Conversion:
        self.forms.append(pb_column(column))
        return self.forms[-1].conversion

    def result(self, head: bytes, source: Callable[[int], str]) -> list[str]:
        """Statements that return the whole event."""
        pieces = "".join(f"{source(place)}, " for place in self.places)
        return [f"r = join(({pieces}))", f"return b'\\n%b%b%b' % (VARINTS[len(r) + {len(head)}], HEAD, r)"]

    def elements(self, values: dict[int, Any]) -> bytes:
        """Write the columns that have values."""
        forms = self.forms
        return b"".join(
            forms[place].element(forms[place].datum(values[place]))
            for place in self.places
            if place in values
        )


def _event(head: bytes, row: bytes) -> bytes:
    return b"\n%b%b%b" % (VARINTS[len(head) + len(row)], head, row)


class PbPlan:
    """Writes rows of one table version: `insert`, `update` and `delete` make a whole `events` field of a row.

    They raise `RowError` for a row that cannot be right.
    """

    insert: Maker
    update: Maker
    delete: Maker

    def __init__(self, version: TableVersion) -> None:
        info = version.info
        schema, name = version.downstream
        names = delimited(b"\n", schema.encode()) + delimited(b"\x12", name.encode())
        heads = [names + bytes((0x18, kind)) for kind in _KINDS]
        whole, writable = _Half(all_columns(info), version.left_out), _Half(info, version.left_out)
        self.insert = self._of_insert(whole, heads[INSERT])
        self.delete = self._of_delete(whole, heads[DELETE])
        self.update = self._of_update(writable, heads[UPDATE])

    @staticmethod
    def _of_insert(half: _Half, head: bytes) -> Maker:
        strict = half.readers.strict

        def slow(row: bytes) -> bytes:
            return _event(head, half.elements(dict(enumerate(strict.insert(row)))))

        return half.readers.of_insert(
            half.places, half.result(head, PbColumn.element_source), slow, extra=half.names | {"HEAD": head}
        )

    @staticmethod
    def _of_delete(half: _Half, head: bytes) -> Maker:
        strict = half.readers.strict

        def slow(row: bytes) -> bytes:
            return _event(head, half.elements(strict.present(row)))

        return half.readers.of_delete(
            half.places, half.result(head, PbColumn.element_source), slow, extra=half.names | {"HEAD": head}
        )

    @staticmethod
    def _of_update(half: _Half, head: bytes) -> Maker:
        strict, forms = half.readers.strict, half.forms

        def slow(row: bytes) -> bytes:
            before, after, _ = strict.update(row)
            return _event(
                head,
                b"".join(
                    form.pair(form.datum(before[place]), form.datum(after[place]))
                    for place in half.places
                    for form in (forms[place],)
                ),
            )

        return half.readers.of_update(
            half.places,
            half.places,
            half.result(head, PbColumn.pair_source),
            slow,
            extra=half.names | {"HEAD": head},
        )


# Makers by row kind, rows by row kind since they were taken.
_Ready = tuple[tuple[Maker, Maker, Maker], list[int]]


class PbEncoder:
    """Payloads of the records of an archive."""

    def __init__(self, plans: dict[TableVersion, PbPlan] | None = None) -> None:
        """`plans`: what several share."""
        self._plans = {} if plans is None else plans
        self._ready: dict[TableVersion, _Ready] = {}
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._met: set[TableVersion] = set()  # in this file
        self.fresh: list[TableVersion] = []
        """Table versions of which the file had no row before; taking them empties the list."""
        self._high = (-1, b"")  # the upper part of a commit_ts as a varint: it stays for minutes

    def begin_file(self) -> None:
        """What follows goes into another file."""
        self._met.clear()

    def take_counts(self) -> dict[tuple[str, str], list[int]]:
        """Rows by table (as archived) and kind since the last call."""
        counts, self._counts = self._counts, {}
        self._ready.clear()
        return counts

    def transaction(self, transaction: Transaction) -> bytes:
        """Payload of a whole transaction."""
        events = self.tables(transaction)
        ts = self._ts(transaction.commit_ts)
        return b"".join((_DML_HEAD, ts, b"\x1a", VARINTS[len(events)], events))

    def beginning(self, commit_ts: Ts) -> bytes:
        """What stands before the length of `dml_data`, with its tag."""
        return _DML_HEAD + self._ts(commit_ts) + b"\x1a"

    def tables(self, transaction: Transaction) -> bytes:
        """The contents of `dml_data`, or of a part of it."""
        parts: list[bytes] = []
        for events in transaction.tables:
            makers, counts = self._ready.get(events.table) or self._prepare(events.table)
            rows = events.rows
            if len(rows) == 1:
                kind = events.kinds[0]
                parts.append(makers[kind](rows[0]))
                counts[kind] += 1
                continue
            for kind, row in zip(events.kinds, rows, strict=True):
                parts.append(makers[kind](row))
                counts[kind] += 1
        return b"".join(parts)

    def _prepare(self, version: TableVersion) -> _Ready:
        plan = self._plans.get(version)
        if plan is None:
            if len(self._plans) >= _PLANS_MAX:
                self._plans.clear()
                self._ready.clear()
            plan = self._plans[version] = PbPlan(version)
        if version not in self._met:
            self._met.add(version)
            self.fresh.append(version)
        counts = self._counts.setdefault(version.downstream, [0, 0, 0])
        ready = self._ready[version] = (plan.insert, plan.update, plan.delete), counts
        return ready

    def ending(self) -> bytes:
        """What stands after `dml_data`."""
        return b""

    def ddl(self, ddl: Ddl, text: str) -> bytes:
        """Payload of a DDL that is written as `text`."""
        query = text.encode("utf-8", "surrogateescape")
        return _DDL_HEAD + self._ts(ddl.commit_ts) + delimited(b"\x22", query)

    def _ts(self, commit_ts: Ts) -> bytes:
        high = commit_ts >> 28
        if high != self._high[0]:
            self._high = (high, varint(high))
        if not high:
            return varint(commit_ts)
        return CONTINUED[commit_ts & 16383] + CONTINUED[commit_ts >> 14 & 16383] + self._high[1]

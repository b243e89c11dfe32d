"""Writer of obinlog: encoded rows become the messages of relay log and Kafka ("slave.binlog", proto2).

Out    bytes of a `TableMutation` field for each row, of a `Table` around them, of the whole `Binlog`
Why    a walk made for the table version goes straight from row bytes to message bytes: a value costs one
       lookup and a slice, and the description of the columns, which every record repeats, is made once
Holds  byte for byte what the Go drainer writes, except where that is wrong:

    TIMESTAMP                    in UTC, and `time_zone` says so; Go writes local time and no zone
    generated, hidden and        left out, in every image; Go lists them and writes NULL or a default for
    non-public columns           values that the row has, or that only the server can compute
    absent NOT NULL ENUM         the first element; Go writes 0
    a table's name               as it was when the rows were written; Go takes stale names after a RENAME of
                                 several tables
    rows between the steps of    read by the definition that they were written under; Go writes defaults or
    an ALTER                     stops
    columns that a rule leaves   left out of messages; a relay log has them, and says so
    out
    keys of a column that is     not among a message's keys; Go lists generated columns, and so their keys
    left out

A column's value lies in the field that its type asks for (`reference: obinlog`): integers in int64 or uint64,
FLOAT and DOUBLE in double, strings, DECIMAL, YEAR and times in string, binary strings, BIT and JSON in bytes,
ENUM and SET as numbers in uint64.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from typing import Any, Final

from drainer.formats.obinlog.column import (
    CONTINUED,
    NULL,
    VARINTS,
    ByNumber,
    ColumnForm,
    column_form,
    delimited,
    varint,
)
from drainer.txn import Ddl, TableVersion, Transaction
from tidb_binlog import table_info as ti
from tidb_binlog.errors import Corruption
from tidb_binlog.rowcodec.codegen import Conversion
from tidb_binlog.rowcodec.plan import RowReaders
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.rowcodec.varint import uvarint
from tidb_binlog.table_info import Column, FieldType, TableInfo
from tidb_binlog.tso import Ts

TIME_ZONE: Final = "UTC"
_PLANS_MAX: Final = 10_000
_DML_HEAD: Final = b"\x08\x00\x10"
_DDL_HEAD: Final = b"\x08\x01\x10"
_ZONE: Final = delimited(b"\x2a", TIME_ZONE.encode())
# Tags of the fields 1001 and 1002.
_OWN_BYTES: Final = b"\xca\x3e"
_OWN_NUMBER: Final = b"\xc8\x3e"
_OWN_SECOND: Final = b"\xd0\x3e"

TYPE_NAMES: Final = {
    ti.TINY: "tinyint",
    ti.SHORT: "smallint",
    ti.INT24: "mediumint",
    ti.LONG: "int",
    ti.LONGLONG: "bigint",
    ti.FLOAT: "float",
    ti.DOUBLE: "double",
    ti.DECIMAL: "decimal",
    ti.BIT: "bit",
    ti.DATE: "date",
    ti.NEWDATE: "date",
    ti.DATETIME: "datetime",
    ti.TIMESTAMP: "timestamp",
    ti.TIME: "time",
    ti.YEAR: "year",
    ti.ENUM: "enum",
    ti.SET: "set",
    ti.JSON: "json",
    ti.STRING: "char",
    ti.VARCHAR: "varchar",
    ti.VAR_STRING: "var_string",
    ti.TINY_BLOB: "tinytext",
    ti.BLOB: "text",
    ti.MEDIUM_BLOB: "mediumtext",
    ti.LONG_BLOB: "longtext",
}
BINARY_NAMES: Final = {
    "char": "binary",
    "varchar": "varbinary",
    "tinytext": "tinyblob",
    "text": "blob",
    "mediumtext": "mediumblob",
    "longtext": "longblob",
}


# -- tables -------------------------------------------------------------------------------------------


def type_name(kind: FieldType) -> str:
    """`mysql_type` of a column; "text" for a type without a name."""
    name = TYPE_NAMES.get(kind.tp, "text")
    return BINARY_NAMES.get(name, name) if kind.is_binary_string else name


def _int32(value: int) -> int:
    """As the field holds it: the length of a LONGTEXT or JSON does not fit and becomes -1."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def _column_info(column: Column) -> bytes:
    kind = column.type
    content = (
        delimited(b"\n", column.name.encode())
        + delimited(b"\x12", type_name(kind).encode())
        + (b"\x18\x01" if kind.flag & ti.FLAG_PRIMARY else b"\x18\x00")
        + b"\x20"
        + varint(_int32(kind.flen))
        + b"\x28"
        + varint(_int32(kind.decimal))
    )
    return delimited(b"\x1a", content)


def _unique_keys(info: TableInfo, names: Collection[str]) -> bytes:
    """The integer handle as PRIMARY, then every unique or primary index in the order of the definition that
    has no other columns than `names`."""
    keys: list[tuple[str, Collection[str]]] = []
    if info.handle_column is not None:
        keys.append(("PRIMARY", [info.handle_column.name]))
    keys += [
        (index.name, [part.name for part in index.columns])
        for index in info.indexes
        if index.unique or index.primary
    ]
    return b"".join(
        delimited(
            b"\x2a",
            delimited(b"\n", name.encode())
            + b"".join(delimited(b"\x12", column.encode()) for column in columns),
        )
        for name, columns in keys
        if all(column in names for column in columns)
    )


def _insert_head(size: int) -> bytes:
    return _mutation_head(0, size)


def _delete_head(size: int) -> bytes:
    return _mutation_head(2, size)


def _mutation_head(kind: int, size: int) -> bytes:
    row = b"\x12" + varint(size)
    return b'"' + varint(2 + len(row) + size) + bytes((8, kind)) + row


_INSERT_HEADS: Final = ByNumber(_insert_head)
_DELETE_HEADS: Final = ByNumber(_delete_head)
_OLD_HEADS: Final = ByNumber(lambda size: b"\x1a" + varint(size))


def _update(new: bytes, old: bytes) -> bytes:
    """An update of two rows."""
    size, tail = VARINTS[len(new)], _OLD_HEADS[len(old)]
    length = VARINTS[3 + len(size) + len(new) + len(tail) + len(old)]
    return b'"%b\x08\x01\x12%b%b%b%b' % (length, size, new, tail, old)


class ObinlogPlan:
    """Writes rows of one table version. `bare`: without what is left out of it, and its keys.

    `insert`, `update` and `delete` make a whole `mutations` field of a row; `RowError` if it cannot be right.
    """

    insert: Callable[[bytes], bytes]
    update: Callable[[bytes], bytes]
    delete: Callable[[bytes], bytes]

    def __init__(self, version: TableVersion, *, bare: bool) -> None:
        forms: list[ColumnForm] = []

        def convert(column: Column, place: int) -> Conversion:
            forms.append(column_form(column))
            return forms[-1].conversion

        info = version.info
        readers = RowReaders(info, convert)
        self._forms = tuple(forms)
        left_out = version.left_out if bare else ()
        columns = readers.layout.columns
        self._places = [place for place, column in enumerate(columns) if column.id not in left_out]
        shown = [columns[place] for place in self._places]
        self._make(readers)
        keyed = shown if bare else info.columns
        schema, name = version.downstream
        self.head: bytes = (
            delimited(b"\n", schema.encode())
            + delimited(b"\x12", name.encode())
            + b"".join(_column_info(column) for column in shown)
        )
        self.tail: bytes = _unique_keys(info, {column.name for column in keyed})

    def _make(self, readers: RowReaders) -> None:
        places = self._places
        names: dict[str, Any] = {"join": b"".join, "NULL": NULL, "update": _update}
        names |= {"INSERT_HEADS": _INSERT_HEADS, "DELETE_HEADS": _DELETE_HEADS}
        for form in self._forms:
            names |= form.names
        new, old = (self._joined(prefix, places) for prefix in "vo")
        strict = readers.strict
        self.insert = readers.of_insert(
            places,
            [f"r = {new}", "return INSERT_HEADS[len(r)] + r"],
            lambda row: _with_head(_INSERT_HEADS, self._row(strict.insert(row))),
            extra=names,
        )
        self.delete = readers.of_delete(
            places,
            [f"r = {new}", "return DELETE_HEADS[len(r)] + r"],
            lambda row: _with_head(_DELETE_HEADS, self._row(strict.delete(row))),
            extra=names,
        )

        def slow_update(row: bytes) -> bytes:
            before, after, _ = strict.update(row)
            return _update(self._row(after), self._row(before))

        self.update = readers.of_update(
            places, places, [f"return update({new}, {old})"], slow_update, extra=names
        )

    def _joined(self, prefix: str, places: Sequence[int]) -> str:
        pieces = "".join(f"{self._forms[place].expression(f'{prefix}{place}')}, " for place in places)
        return f"join(({pieces}))"

    def _row(self, values: Sequence[Any]) -> bytes:
        return b"".join(
            NULL if values[place] is None else self._forms[place].write(values[place])
            for place in self._places
        )


def _with_head(heads: ByNumber, row: bytes) -> bytes:
    return heads[len(row)] + row


def definition_document(version: TableVersion) -> dict[str, Any]:
    """All that a `TableVersion` is."""
    info = version.info.to_json()
    if version.info.has_foreign_keys:
        info["fk_info"] = [{}]
    return {
        "info": info,
        "schema": version.schema,
        "name": version.name,
        "version": version.version,
        "target": version.target,
        "left_out": sorted(version.left_out),
    }


def definition_json(version: TableVersion) -> bytes:
    """Write all that a `TableVersion` is as JSON."""
    return json.dumps(definition_document(version), separators=(",", ":")).encode()


_Maker = Callable[[bytes], bytes]
# Makers by row kind, what stands before and after the mutations of a table, the length of both.
_Ready = tuple[tuple[_Maker, _Maker, _Maker], bytes, bytes, int]


class ObinlogWriter:
    """Payloads of the records of a file. A table's definition goes with the first record that needs it.

    `bare`: without what Go drainers do not write (`time_zone` and fields from 1001 on).
    """

    def __init__(self, *, bare: bool = False) -> None:
        self._bare = bare
        self._plans: dict[TableVersion, ObinlogPlan] = {}
        self._ready: dict[TableVersion, _Ready] = {}  # of this file
        self._numbers: dict[TableVersion, int] = {}  # of definitions that are not written yet
        self._high = (-1, b"")  # the upper part of a commit_ts as a varint: it stays for minutes

    def begin_file(self) -> None:
        """What follows goes into another file."""
        self._ready.clear()

    def transaction(self, transaction: Transaction) -> bytes:
        """Payload of a whole transaction."""
        tables = self.tables(transaction)
        ending = _ZONE if not self._numbers and not self._bare else self.ending()
        ts = self._ts(transaction.commit_ts)
        return b"".join((_DML_HEAD, ts, b"\x1a", VARINTS[len(tables)], tables, ending))

    def beginning(self, commit_ts: Ts) -> bytes:
        """What stands before the length of `dml_data`, with its tag."""
        return _DML_HEAD + self._ts(commit_ts) + b"\x1a"

    def tables(self, transaction: Transaction) -> bytes:
        """The contents of `dml_data`, or of a part of it."""
        parts: list[bytes] = []
        for events in transaction.tables:
            makers, head, tail, fixed = self._ready.get(events.table) or self._prepare(events.table)
            rows = events.rows
            if len(rows) == 1:
                mutations = makers[events.kinds[0]](rows[0])
            else:
                mutations = b"".join(
                    [makers[kind](row) for kind, row in zip(events.kinds, rows, strict=True)]
                )
            if events.first_ordinal and not self._bare:
                tail += _OWN_SECOND + VARINTS[events.first_ordinal]
                fixed = len(head) + len(tail)
            parts += (b"\n", VARINTS[fixed + len(mutations)], head, mutations, tail)
        return b"".join(parts)

    def _prepare(self, version: TableVersion) -> _Ready:
        plan = self._plans.get(version)
        if plan is None:
            if len(self._plans) >= _PLANS_MAX:
                self._plans.clear()
            plan = self._plans[version] = ObinlogPlan(version, bare=self._bare)
        tail = plan.tail
        if not self._bare:
            number = self._numbers[version] = len(self._ready) + 1
            tail += _OWN_NUMBER + VARINTS[number]
        ready = (plan.insert, plan.update, plan.delete), plan.head, tail, len(plan.head) + len(tail)
        self._ready[version] = ready
        return ready

    def ending(self) -> bytes:
        """What stands after `dml_data`: the zone, and definitions that the file does not have yet."""
        if self._bare:
            return b""
        fresh, self._numbers = self._numbers, {}
        return _ZONE + b"".join(
            delimited(
                _OWN_BYTES,
                b"\x08" + varint(number) + delimited(b"\x12", definition_json(version)),
            )
            for version, number in fresh.items()
        )

    def ddl(self, ddl: Ddl, text: str) -> bytes:
        """Payload of a DDL; `text` is what a reader that knows no more is to run."""
        first_schema, table = ddl.tables[0] if ddl.tables else ("", "")
        schema = ddl.schema or first_schema
        data = (
            delimited(b"\n", schema.encode())
            + delimited(b"\x12", table.encode())
            + delimited(b"\x1a", text.encode("utf-8", "surrogateescape"))
        )
        if self._bare:
            return _DDL_HEAD + self._ts(ddl.commit_ts) + delimited(b'"', data)
        data += delimited(_OWN_BYTES, json.dumps(ddl_document(ddl), separators=(",", ":")).encode())
        return _DDL_HEAD + self._ts(ddl.commit_ts) + delimited(b'"', data) + _ZONE

    def _ts(self, commit_ts: Ts) -> bytes:
        high = commit_ts >> 28
        if high != self._high[0]:
            self._high = (high, varint(high))
        if not high:
            return varint(commit_ts)
        return CONTINUED[commit_ts & 16383] + CONTINUED[commit_ts >> 14 & 16383] + self._high[1]


def ddl_document(ddl: Ddl) -> dict[str, Any]:
    """All that a `Ddl` is."""
    document = {**asdict(ddl), "unread": sorted(ddl.unread)}
    for key in ("targets", "shared", "apart", "unread", "early"):
        if not document[key]:  # a reader of before such were logged knows no such key
            del document[key]
    return document


def commit_ts_of(head: bytes) -> int:
    """commit_ts of a payload, from its first bytes; `Corruption` if it does not begin as all do."""
    try:
        if head[:1] == b"\x08":
            _, at = uvarint(head, 1)
            if head[at] == 0x10:
                return uvarint(head, at + 1)[0]
    except (IndexError, RowError):
        pass
    raise Corruption("a record of the relay log is no obinlog", hint="move the file away; see its offset 0")

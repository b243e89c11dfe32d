"""Canal JSON: messages as TiCDC writes them in the form of Alibaba's Canal.

Out    one JSON object a row (or for rows of one kind that follow each other in a table of a transaction)
Why    `es` and `ts` are both the commit's time, so that a message that is written again is the same bytes
Source the field lists of TiCDC's documentation of Canal-JSON; `seq` in `_tidb` is this project's own

    value                              JSON
    integers, YEAR, FLOAT, DOUBLE      string of digits
    DECIMAL                            string of digits with the column's scale
    dates and times                    string; TIMESTAMP in UTC
    text                               string; U+FFFD for what is not UTF-8
    BINARY, VARBINARY, BLOB            string: a character of ISO 8859-1 for each byte
    ENUM, SET, BIT                     string of digits: index, mask, number; texts with `names`
    JSON                               string that has the document
    NULL                               null
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from drainer.changes.row_reader import RowReader
from drainer.changes.values import element_text
from drainer.formats.messages.json_rows import (
    COLUMNS,
    NULL,
    QUOTED,
    JsonColumn,
    JsonRows,
    ToColumn,
    Values,
    binary32_text,
    column_by_type,
    constant,
    integer_column,
    json_string,
    quoted,
    shown_column,
    unsigned_column,
)
from drainer.formats.messages.message import KINDS, ROWS_MAX, FormatOptions, Message
from drainer.formats.messages.told_effect import told_effect
from drainer.txn import DELETE, INSERT, UPDATE, Ddl, TableEvents, TableVersion, Transaction
from tidb_binlog import table_info as ti
from tidb_binlog import tso
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.rowcodec.codegen import Shape
from tidb_binlog.table_info import Column, ColumnKind, FieldType
from tidb_binlog.tso import Ts
from tidb_binlog.type_text import type_text

# java.sql.Types
_JAVA_TYPES: Final = {
    ti.TINY: -6,
    ti.SHORT: 5,
    ti.INT24: 4,
    ti.LONG: 4,
    ti.LONGLONG: -5,
    ti.FLOAT: 7,
    ti.DOUBLE: 8,
    ti.DECIMAL: 3,
    ti.STRING: 1,
    ti.VARCHAR: 12,
    ti.VAR_STRING: 12,
    ti.DATE: 91,
    ti.NEWDATE: 91,
    ti.DATETIME: 93,
    ti.TIMESTAMP: 93,
    ti.TIME: 92,
    ti.YEAR: 12,
    ti.ENUM: 4,
    ti.SET: -7,
    ti.BIT: -7,
    ti.JSON: 12,
}
_CLOB: Final = 2005
_BLOB: Final = 2004
# From which value on an unsigned integer has the next larger type, and that type.
_JAVA_WIDER: Final = {
    ti.TINY: (1 << 7, 5),
    ti.SHORT: (1 << 15, 4),
    ti.LONG: (1 << 31, -5),
    ti.LONGLONG: (1 << 63, 3),
}


def java_type(kind: FieldType) -> int:
    """The JDBC type of a column, of unsigned ones that of small values."""
    if kind.kind is ColumnKind.BINARY:
        return _BLOB
    return _JAVA_TYPES.get(kind.tp, _CLOB)


def wider_type(kind: FieldType) -> tuple[int, int] | None:
    """Of an unsigned integer: from which value on it has a larger type, and which."""
    return _JAVA_WIDER.get(kind.tp) if kind.kind is ColumnKind.UNSIGNED else None


def plain_type(kind: FieldType) -> str:
    """The type without length, digits or elements: "varchar", "decimal unsigned"."""
    name, bracket, rest = type_text(kind).partition("(")
    return name + rest.rpartition(")")[2] if bracket else name


_INTEGER: Final = integer_column(quoted, '"')
_NUMBER: Final = shown_column(quoted, Shape.UNSIGNED, "f'\"{u}\"'")
_COLUMNS: Final[dict[ColumnKind, ToColumn]] = {
    **COLUMNS,
    ColumnKind.SIGNED: _INTEGER,
    ColumnKind.YEAR: _INTEGER,
    # The JDBC type depends on the number.
    ColumnKind.UNSIGNED: lambda column: unsigned_column(column, quoted, "quoted"),
    ColumnKind.BIT: _NUMBER,
    ColumnKind.ENUM: _NUMBER,
    ColumnKind.SET: _NUMBER,
    ColumnKind.FLOAT: shown_column(lambda value: quoted(binary32_text(value))),
    ColumnKind.DOUBLE: QUOTED,
    ColumnKind.BINARY: shown_column(
        lambda raw: json_string(raw.decode("latin-1")), Shape.BYTES, "json_string(s.decode('latin-1'))"
    ),
}


def _named(field_type: FieldType) -> Callable[[int], str]:
    """ENUM and SET by their texts; a number stays where there is none."""

    def show(number: int) -> str:
        text = element_text(field_type, number)
        return quoted(number) if text is None else json_string(text)

    return show


_NAMED: Final = column_by_type(_named)


def canal_columns(names: bool) -> Callable[[Column, int], JsonColumn]:
    """What a column is written as; `names`: ENUM and SET by their texts."""

    def convert(column: Column, place: int) -> JsonColumn:
        if names and column.type.kind in (ColumnKind.ENUM, ColumnKind.SET):
            return _NAMED(column)
        return _COLUMNS[column.type.kind](column)

    return convert


_PLANS_MAX: Final = 10_000
_TYPES: Final = {INSERT: "INSERT", UPDATE: "UPDATE", DELETE: "DELETE"}

_DDL_TYPES: Final[dict[int, str]] = {
    ActionType.CREATE_TABLE: "CREATE",
    ActionType.CREATE_TABLES: "CREATE",
    ActionType.RECOVER_TABLE: "QUERY",
    ActionType.MULTI_SCHEMA_CHANGE: "ALTER",
    ActionType.RENAME_TABLE: "RENAME",
    ActionType.RENAME_TABLES: "RENAME",
    ActionType.ADD_INDEX: "CINDEX",
    ActionType.DROP_INDEX: "DINDEX",
    ActionType.DROP_TABLE: "ERASE",
    ActionType.TRUNCATE_TABLE: "TRUNCATE",
}
_ALTERING: Final = frozenset({"column", "index", "foreign key", "partition", "check", "auto id", "table"})


# (sqlType, row, row before the change as a JSON object or null, key); None: the key changed
_Parts = tuple[str, str, str, str]
# parts, and the event and the row that they were made of
_Change = tuple[_Parts, int, bytes]


class _CanalTable:
    """Messages of one table version: what all have in common, and a function for each kind."""

    def __init__(self, version: TableVersion, options: FormatOptions) -> None:
        self.version = version
        self.schema, self.table = version.downstream
        self.rows = rows = JsonRows(version, canal_columns(options.names))
        self._only_changed = options.only_changed
        self._full_types = options.full_types
        self.keyed = bool(rows.key)
        self.heads = {kind: self._head(name) for kind, name in _TYPES.items()}
        self.middle, self.key_middle = self._middle(rows.places), self._middle(rows.key)
        self.make = self._functions()

    def _head(self, name: str) -> str:
        keys = [self.rows.name(place) for place in self.rows.key]
        names = json.dumps(keys, ensure_ascii=False) if keys else NULL
        return (
            f'{{"id":0,"database":{json_string(self.schema)},"table":{json_string(self.table)},'
            f'"pkNames":{names},"isDdl":false,"type":"{name}","es":'
        )

    def _middle(self, places: Sequence[int]) -> str:
        """What stands between the JDBC types and the rows."""
        show = type_text if self._full_types else plain_type
        types = ",".join(
            f"{self.rows.heads[place]}{json_string(show(self.rows.type(place)))}" for place in places
        )
        return f'}},"mysqlType":{{{types}}},"data":['

    def _types(self, values: Values, places: Sequence[int]) -> str:
        return ",".join(f"{self.rows.heads[place]}{self._type(values[place], place)}" for place in places)

    def _type(self, value: Any, place: int) -> int:
        kind = self.rows.type(place)
        wider = wider_type(kind)
        return wider[1] if wider and value is not None and value >= wider[0] else java_type(kind)

    def _functions(self) -> tuple[Callable[[bytes], Any], ...]:
        rows, readers = self.rows, self.rows.readers
        places, names = rows.places, rows.names
        data, key = rows.source("v", places), rows.source("v", rows.key)
        plain = f"return f'{self._types_source('v')}', f'{{{{{data}}}}}', NULL, f'{{{{{key}}}}}'"
        update = [f"if {rows.key_changed()}: return None"] if rows.key else []
        update += self._old_source()
        update.append(f"return f'{self._types_source('v')}', f'{{{{{data}}}}}', old, f'{{{{{key}}}}}'")
        return (
            readers.of_insert(places, [plain], lambda row: self.parts(INSERT, row), extra=names),
            readers.of_update(places, places, update, lambda row: self.parts(UPDATE, row), extra=names),
            readers.of_delete(places, [plain], lambda row: self.parts(DELETE, row), extra=names),
        )

    def _types_source(self, prefix: str) -> str:
        rows, pieces = self.rows, []
        for place in rows.places:
            kind = rows.type(place)
            text, wider = str(java_type(kind)), wider_type(kind)
            if wider:
                local = f"{prefix}{place}"
                guard = "" if kind.not_null else f"{local} is not None and "
                text = f"{{{wider[1]} if {guard}{local} >= {wider[0]} else {text}}}"
            pieces.append(constant(rows.heads[place]) + text)
        return ",".join(pieces)

    def _old_source(self) -> list[str]:
        """Statements that make `old`."""
        rows = self.rows
        if not self._only_changed:
            return [f"old = f'{{{{{rows.source('o', rows.places)}}}}}'"]
        lines = ["found = []"]
        lines += [
            f"if o{place} != v{place}: found.append(f'{rows.source('o', [place])}')" for place in rows.places
        ]
        return [*lines, "old = '{' + ','.join(found) + '}'"]

    def parts(self, kind: int, row: bytes) -> _Parts | None:
        """The same from any row, by the strict reader."""
        before, after = self.rows.images(kind, row)
        if before is not None and after is not None:
            if self.rows.key_of(before) != self.rows.key_of(after):
                return None
            return self._image(after, self._old(before, after))
        image = before if after is None else after
        assert image is not None
        return self._image(image, NULL)

    def _old(self, before: Values, after: Values) -> str:
        places = self.rows.places
        if self._only_changed:
            places = [place for place in places if before[place] != after[place]]
        return f"{{{self.rows.text(before, places)}}}"

    def _image(self, values: Values, old: str) -> _Parts:
        rows = self.rows
        return (
            self._types(values, rows.places),
            f"{{{rows.text(values, rows.places)}}}",
            old,
            f"{{{rows.text(values, rows.key)}}}",
        )

    def halves(self, row: bytes) -> tuple[tuple[int, _Parts], tuple[int, _Parts]]:
        """An update that changes the key, as a delete and an insert."""
        before, after = self.rows.images(UPDATE, row)
        assert before is not None
        assert after is not None
        return (DELETE, self._image(before, NULL)), (INSERT, self._image(after, NULL))

    def key_parts(self, event: int, kind: int, row: bytes) -> _Parts:
        """The parts of a change of `kind` that was made of an `event`, with the key's columns alone."""
        rows = self.rows
        before, after = rows.images(event, row)
        image = before if kind == DELETE else after
        assert image is not None
        data = f"{{{rows.text(image, rows.key)}}}"
        old = f"{{{rows.text(before, rows.key)}}}" if kind == UPDATE and before is not None else NULL
        return self._types(image, rows.key), data, old, data


class CanalJson:
    """The format. Plans of table versions are found by identity."""

    def __init__(self, options: FormatOptions) -> None:
        self._options = options
        self._reader = RowReader()
        self._tables: dict[TableVersion, _CanalTable] = {}

    def rows(self, transaction: Transaction) -> Iterator[Message]:
        """One message a row; see `FormatOptions.whole_transactions`."""
        if self._options.whole_transactions:
            return self._joined(transaction)
        return self._single(transaction)

    def _single(self, transaction: Transaction) -> Iterator[Message]:
        commit_ts = transaction.commit_ts
        when, tail = self._when(commit_ts), self._tail(transaction)
        for events in transaction.tables:
            table = self._tables.get(events.table) or self._table(events.table)
            make, heads, middle = table.make, table.heads, table.middle
            schema, name, keyed, fold = table.schema, table.table, table.keyed, table.rows.fold
            seq = events.first_ordinal
            for event, row in zip(events.kinds, events.rows, strict=True):
                parts = make[event](row)
                halves = ((event, parts),) if parts is not None else table.halves(row)
                for kind, (types, data, old, key) in halves:
                    if old != NULL:
                        old = f"[{old}]"
                    value = f'{heads[kind]}{when}{types}{middle}{data}],"old":{old}{tail}{seq}}}}}'
                    row_key = key.encode() if keyed else None
                    yield Message(
                        schema,
                        name,
                        row_key,
                        value.encode(),
                        commit_ts,
                        seq,
                        KINDS[kind],
                        row_key and fold(row_key),
                    )
                seq += 1

    def _joined(self, transaction: Transaction) -> Iterator[Message]:
        for events in transaction.tables:
            table = self._tables.get(events.table) or self._table(events.table)
            for kind, seq, run in self._runs(table, events):
                yield self._run(transaction, table, kind, seq, [change[0] for change in run])

    def _runs(self, table: _CanalTable, events: TableEvents) -> Iterator[tuple[int, int, list[_Change]]]:
        """(kind, seq of the first, changes) of each message."""
        rows_max = ROWS_MAX if self._options.whole_transactions else 1
        run: list[_Change] = []
        run_kind, run_seq = INSERT, events.first_ordinal
        for seq, event in enumerate(events.kinds, events.first_ordinal):
            row = events.rows[seq - events.first_ordinal]
            parts = table.make[event](row)
            for kind, half in ((event, parts),) if parts is not None else table.halves(row):
                if run and (kind != run_kind or len(run) == rows_max):
                    yield run_kind, run_seq, run
                    run = []
                if not run:
                    run_kind, run_seq = kind, seq
                run.append((half, event, row))
        if run:
            yield run_kind, run_seq, run

    def _run(
        self, transaction: Transaction, table: _CanalTable, kind: int, seq: int, run: list[_Parts]
    ) -> Message:
        commit_ts = transaction.commit_ts
        data = ",".join(parts[1] for parts in run)
        old = f"[{','.join(parts[2] for parts in run)}]" if kind == UPDATE else NULL
        value = (
            f"{table.heads[kind]}{self._when(commit_ts)}{run[0][0]}{table.middle}{data}],"
            f'"old":{old}{self._tail(transaction)}{seq}}}}}'
        )
        key = run[0][3].encode() if table.keyed and len(run) == 1 else None
        spread = key and table.rows.fold(key)
        return Message(table.schema, table.table, key, value.encode(), commit_ts, seq, KINDS[kind], spread)

    def ddl(self, ddl: Ddl, text: str) -> Message:
        """`type` is Canal's event type, QUERY for what it has none for."""
        schema, table = (ddl.targets or ddl.tables or ((ddl.schema, ""),))[-1]
        fields = self._fields(schema, table, ddl.commit_ts, _ddl_type(ddl.action), text)
        fields["_tidb"] = {"commitTs": ddl.commit_ts, "ddl": told_effect(self._reader.ddl(ddl))}
        return Message(schema, table, None, _dumped(fields), ddl.commit_ts, 0, "ddl")

    def watermark(self, ts: Ts) -> Message:
        """Plain Canal has no such message."""
        fields = self._fields("", "", ts, "TIDB_WATERMARK", "")
        value = _dumped({**fields, "_tidb": {"watermarkTs": ts}})
        return Message("", "", None, value, ts, 0, "watermark")

    def handle_key(self, transaction: Transaction, message: Message, location: str = "") -> Message | None:
        """`_tidb` has `onlyHandleKey` or `claimCheckLocation`."""
        for events in transaction.tables:
            if events.table.downstream != (message.schema, message.table):
                continue
            table = self._tables.get(events.table) or self._table(events.table)
            for kind, seq, run in self._runs(table, events):
                if (seq, KINDS[kind]) == (message.seq, message.kind):
                    if not (table.keyed or location):
                        return None
                    return message._replace(value=self._small(transaction, table, kind, seq, run, location))
        raise ValueError(
            f"transaction {transaction.commit_ts} has no {message.kind} {message.seq} of {message.table}"
        )

    def _small(
        self,
        transaction: Transaction,
        table: _CanalTable,
        kind: int,
        seq: int,
        run: list[_Change],
        location: str,
    ) -> bytes:
        parts = [table.key_parts(event, kind, row) for _, event, row in run]
        data = ",".join(each[1] for each in parts)
        old = f"[{','.join(each[2] for each in parts)}]" if kind == UPDATE else NULL
        mark = f',"claimCheckLocation":{json_string(location)}' if location else ',"onlyHandleKey":true'
        ts = transaction.commit_ts
        return (
            f'{table.heads[kind]}{self._when(ts)}{parts[0][0]}{table.key_middle}{data}],"old":{old}'
            f',"_tidb":{{"commitTs":{ts},"seq":{seq}{mark}}}}}'
        ).encode()

    @staticmethod
    def _when(commit_ts: Ts) -> str:
        ms = tso.physical_ms(commit_ts)
        return f'{ms},"ts":{ms},"sql":"","sqlType":{{'

    def _tail(self, transaction: Transaction) -> str:
        """What stands between `old` and the row's number."""
        mark = '"snapshot":true,' if transaction.snapshot else ""
        return f',"_tidb":{{"commitTs":{transaction.commit_ts},{mark}"seq":'

    @staticmethod
    def _fields(schema: str, table: str, ts: Ts, kind: str, sql: str) -> dict[str, Any]:
        ms = tso.physical_ms(ts)
        return {
            "id": 0,
            "database": schema,
            "table": table,
            "pkNames": None,
            "isDdl": kind != "TIDB_WATERMARK",
            "type": kind,
            "es": ms,
            "ts": ms,
            "sql": sql,
            "sqlType": None,
            "mysqlType": None,
            "data": None,
            "old": None,
        }

    def _table(self, version: TableVersion) -> _CanalTable:
        if len(self._tables) >= _PLANS_MAX:
            self._tables.clear()
        table = self._tables[version] = _CanalTable(version, self._options)
        return table


def _ddl_type(action: int) -> str:
    name = _DDL_TYPES.get(action)
    if name is not None:
        return name
    try:
        groups = ActionType(action).groups
    except ValueError:
        return "QUERY"
    return "ALTER" if _ALTERING & set(groups) else "QUERY"


def _dumped(document: dict[str, Any]) -> bytes:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogateescape")

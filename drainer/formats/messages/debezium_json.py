"""debezium-json: messages in the envelope of Debezium, as its JSON converter writes it.

In     transactions of encoded rows, DDL, watermarks
Out    `before`, `after`, `source`, `op`, `ts_ms`, with or without the schema; a key with the key's columns
Why    an update that changes the key is a delete and an insert, as Debezium's MySQL connector has it
Source Debezium's documentation of its MySQL connector; `commit_ts`, `cluster_id` in `source` and watermarks
       (op `m`) as TiCDC has them. `source.row` is the row's number in its transaction
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from drainer.formats.messages.debezium_columns import DebeziumColumns
from drainer.formats.messages.debezium_ddl import schema_change
from drainer.formats.messages.debezium_schema import (
    WATERMARK_KEY,
    envelope_schema,
    struct,
    watermark_schema,
)
from drainer.formats.messages.json_rows import NULL, JsonRows, Values, json_string
from drainer.formats.messages.message import KINDS, FormatOptions, Message
from drainer.txn import DELETE, INSERT, UPDATE, Ddl, TableVersion, Transaction
from tidb_binlog import tso
from tidb_binlog.version import DISTRIBUTION, release

_PLANS_MAX: Final = 10_000
_OPS: Final = {INSERT: "c", UPDATE: "u", DELETE: "d"}

# (row before, row after, key) as JSON; None: the key changed
_Parts = tuple[str, str, str]


def dumped(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


class _DebeziumTable:
    """Messages of one table version."""

    def __init__(self, version: TableVersion, columns: DebeziumColumns, options: FormatOptions) -> None:
        self.schema, self.table = version.downstream
        self.rows = rows = JsonRows(version, columns.convert)
        self.keyed = bool(rows.key)
        self.source = f'"db":{json_string(self.schema)},"table":{json_string(self.table)}'
        name = f"{options.cluster}.{self.schema}.{self.table}"
        fields = {place: columns.field(rows.columns[place].column) for place in rows.places}
        self.start = self.end = self.key_start = self.key_end = ""
        if options.with_schema:
            key = struct(f"{name}.Key", [fields[place] for place in rows.key])
            self.key_start, self.key_end = f'{{"schema":{dumped(key)},"payload":', "}"
            schema = envelope_schema(name, list(fields.values()))
            self.start, self.end = f'{{"schema":{dumped(schema)},"payload":', "}"
        self.make = self._functions()

    def _functions(self) -> tuple[Callable[[bytes], Any], ...]:
        rows, readers = self.rows, self.rows.readers
        places, names = rows.places, rows.names
        new, old, key = (rows.source(*each) for each in (("v", places), ("o", places), ("v", rows.key)))
        update = [f"if {rows.key_changed()}: return None"] if rows.key else []
        update.append(f"return f'{{{{{old}}}}}', f'{{{{{new}}}}}', f'{{{{{key}}}}}'")
        return (
            readers.of_insert(
                places,
                [f"return NULL, f'{{{{{new}}}}}', f'{{{{{key}}}}}'"],
                lambda row: self._parts(INSERT, row),
                extra=names,
            ),
            readers.of_update(places, places, update, lambda row: self._parts(UPDATE, row), extra=names),
            readers.of_delete(
                places,
                [f"return f'{{{{{new}}}}}', NULL, f'{{{{{key}}}}}'"],
                lambda row: self._parts(DELETE, row),
                extra=names,
            ),
        )

    def _parts(self, kind: int, row: bytes) -> _Parts | None:
        """The same from any row, by the strict reader."""
        before, after = self.rows.images(kind, row)
        if before is not None and after is not None and self.rows.key_of(before) != self.rows.key_of(after):
            return None
        return self._image(before, after)

    def _image(self, before: Values | None, after: Values | None) -> _Parts:
        rows = self.rows
        key = before if after is None else after
        assert key is not None
        old, new = (
            NULL if image is None else f"{{{rows.text(image, rows.places)}}}" for image in (before, after)
        )
        return old, new, f"{{{rows.text(key, rows.key)}}}"

    def halves(self, row: bytes) -> tuple[tuple[int, _Parts], tuple[int, _Parts]]:
        """An update that changes the key, as a delete and an insert."""
        before, after = self.rows.images(UPDATE, row)
        return (DELETE, self._image(before, None)), (INSERT, self._image(None, after))


class DebeziumJson:
    """The format. Plans of table versions are found by identity."""

    def __init__(self, options: FormatOptions) -> None:
        self._options = options
        self._columns = DebeziumColumns(options)
        self._tables: dict[TableVersion, _DebeziumTable] = {}
        cluster = json_string(options.cluster)
        self._source = (
            f'{{"version":{json_string(release())},"connector":{json_string(DISTRIBUTION)},"name":{cluster},'
            '"ts_ms":'
        )
        self._cluster_id = f'"cluster_id":{cluster}}}'

    def rows(self, transaction: Transaction) -> Iterator[Message]:
        """One message a row; an update that changes the key is two."""
        commit_ts = transaction.commit_ts
        ms = tso.physical_ms(commit_ts)
        for events in transaction.tables:
            table = self._tables.get(events.table) or self._table(events.table)
            make, start, end, keyed = table.make, table.start, table.end, table.keyed
            fold = table.rows.fold
            head = self._source_head(ms, table.source)
            tail, when = self._source_tail(commit_ts), f',"ts_ms":{ms},"transaction":null}}{end}'
            seq = events.first_ordinal
            for event, row in zip(events.kinds, events.rows, strict=True):
                parts = make[event](row)
                for kind, (before, after, key) in (
                    ((event, parts),) if parts is not None else table.halves(row)
                ):
                    value = (
                        f'{start}{{"before":{before},"after":{after},"source":{head}{seq}{tail},'
                        f'"op":"{_OPS[kind]}"{when}'
                    )
                    row_key = f"{table.key_start}{key}{table.key_end}".encode() if keyed else None
                    yield Message(
                        table.schema,
                        table.table,
                        row_key,
                        value.encode(),
                        commit_ts,
                        seq,
                        KINDS[kind],
                        row_key and fold(row_key),
                    )
                seq += 1

    def ddl(self, ddl: Ddl, text: str) -> Message:
        """A schema change with the tables as they are after it."""
        schema, table = (ddl.targets or ddl.tables or ((ddl.schema, ""),))[-1]
        source = json.loads(self._source_of(ddl.commit_ts, schema, table))
        ms = tso.physical_ms(ddl.commit_ts)
        key, value = schema_change(ddl, text, schema, source, ms, with_schema=self._options.with_schema)
        key_bytes, value_bytes = (dumped(each).encode("utf-8", "surrogateescape") for each in (key, value))
        return Message(schema, table, key_bytes, value_bytes, ddl.commit_ts, 0, "ddl")

    def watermark(self, ts: int) -> Message | None:
        """Only with `tidb_extension`: Debezium has no such message."""
        if not self._options.tidb_extension:
            return None
        payload: Any = {
            "source": json.loads(self._source_of(ts, "", "")),
            "op": "m",
            "ts_ms": tso.physical_ms(ts),
            "transaction": None,
        }
        key: Any = {}
        if self._options.with_schema:
            cluster = self._options.cluster
            payload = {"schema": watermark_schema(cluster), "payload": payload}
            key = {"schema": struct(f"{cluster}.{WATERMARK_KEY}", []), "payload": {}}
        return Message("", "", dumped(key).encode(), dumped(payload).encode(), ts, 0, "watermark")

    def handle_key(self, transaction: Transaction, message: Message, location: str = "") -> None:
        """Debezium's envelope has no such form."""
        return

    def _source_head(self, ms: int, source: str) -> str:
        place = '"server_id":0,"gtid":null,"file":"","pos":0,"row":'
        return f'{self._source}{ms},"snapshot":"false",{source},{place}'

    def _source_tail(self, ts: int) -> str:
        return f',"thread":0,"query":null,"commit_ts":{ts},{self._cluster_id}'

    def _source_of(self, ts: int, schema: str, table: str) -> str:
        names = f'"db":{json_string(schema)},"table":{json_string(table)}'
        return f"{self._source_head(tso.physical_ms(ts), names)}0{self._source_tail(ts)}"

    def _table(self, version: TableVersion) -> _DebeziumTable:
        if len(self._tables) >= _PLANS_MAX:
            self._tables.clear()
        table = self._tables[version] = _DebeziumTable(version, self._columns, self._options)
        return table

"""A TiDB of definitions and encoded rows: what a column that came later holds is read from its definition.

Why    nothing here asks the code that translates DDL: rows are decoded with the definition after it
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any, Final

from drainer.stream.pull.merged import Merged
from tests.drainer.support import conversions
from tests.drainer.support.apply_life import Recording
from tests.drainer.support.table_maker import NO_DEFAULT, NOT_NULL, kind, name
from tidb_binlog import binlog, tso
from tidb_binlog import table_info as ti
from tidb_binlog.ddl_job import ActionType, DdlJob, database_info
from tidb_binlog.rowcodec.encoder import RowEncoder, prewrite_value
from tidb_binlog.rowcodec.plan import compile_table
from tidb_binlog.table_info import TableInfo

SCHEMA: Final = "m"
NOON: Final = tso.from_wall_s(conversions.DAY.replace(tzinfo=UTC).timestamp() + 12 * 3600)
"""Jobs are of the day on which conversions were recorded, in each zone."""
Document = dict[str, Any]
Row = dict[str, Any]


def column(called: str, type_: Document, flag: int = 0, default: str | None = None, **more: Any) -> Document:
    if flag & NOT_NULL and default is None:
        flag |= NO_DEFAULT
    found = {"name": name(called), "type": {**type_, "Flag": type_["Flag"] | flag}, "state": 5, "version": 2}
    return {**found, "default": default, "comment": "", "generated_expr_string": "", **more}


TRICKY: Final = "é'\"\\ %s `b` -- \n\\n"
UTF8MB4: Final = {"Charset": "utf8mb4", "Collate": "utf8mb4_bin"}
ID: Final = column("id", kind(ti.LONG, 11), NOT_NULL | 2)
OTHERS: Final = (
    column("w", kind(ti.LONG, 11)),
    column("at", kind(ti.TIMESTAMP, 19, 0)),
    column("since", kind(ti.TIMESTAMP, 19, 0), NOT_NULL),
    column("day", kind(ti.DATE, 10), NOT_NULL),
    column("local", kind(ti.DATETIME, 23, 3), 0, "0000-00-00 00:00:00.000"),
    column("words", kind(ti.VARCHAR, 40, **UTF8MB4), NOT_NULL, TRICKY[:9], comment=TRICKY),
    column("of", kind(ti.ENUM, 1, **UTF8MB4, Elems=["a'b", 'c"d', "e\\f"])),
    column("padded", kind(ti.STRING, 9, **UTF8MB4)),
)
"""What no DDL may touch: instants, zeros, invalid dates, quotes, an ENUM's empty value, blanks."""


def row(number: int, **values: Any) -> Row:
    found = {"id": number, "w": number, "words": TRICKY + str(number), "of": number % 4, "padded": "a b"}
    found |= {"at": "2020-03-29 01:30:00" if number % 2 else None, "since": "0000-00-00 00:00:00"}
    found |= {"day": "2021-02-31" if number % 2 else "0000-00-00", "local": "2020-10-25 02:30:00.123"}
    return {**found, **values}


@dataclass
class Table:
    """`rows` by id as TiDB stores them; `answers` of queries. `may`: what it may come to besides `equal`."""

    label: str
    document: Document
    may: tuple[str, ...] = ()
    rows: dict[int, bytes] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)

    @property
    def info(self) -> TableInfo:
        return TableInfo.from_json(self.document)

    @property
    def name(self) -> str:
        return str(self.document["name"]["O"])

    def values(self) -> dict[int, Row]:
        """Rows by id, decoded with the definition of now."""
        plan = compile_table(self.info)
        names = [one.name for one in plan.columns]
        return {n: dict(zip(names, plan.decode_insert(data), strict=True)) for n, data in self.rows.items()}

    def default(self, called: str) -> Any:
        """What a row gets that leaves the column out; `...` where it must be named, or is computed."""
        document = copy.deepcopy(self.document)
        key, one = document["cols"][0], next(one for one in document["cols"] if one["name"]["O"] == called)
        is_computed = one.get("default_is_expr") or str(one["default"]).startswith("CURRENT")
        if is_computed or (one["type"]["Flag"] & NOT_NULL and one["default"] is None):
            return ...
        one["origin_default"], one["origin_default_bit"] = one["default"], one.get("default_bit")
        key["type"]["Flag"] |= ti.FLAG_PRIMARY
        alone = {**document, "cols": [key], "index_info": [], "pk_is_handle": True}
        data = RowEncoder(TableInfo.from_json(alone)).insert((1,))
        return compile_table(TableInfo.from_json({**alone, "cols": [key, one]})).decode_insert(data)[1]


class Upstream:
    """`session` is that of jobs which say in which session they ran."""

    def __init__(self, session: Document, charset: str, collate: str) -> None:
        self.tables: list[Table] = []
        self.jobs: list[bytes] = []
        self._entries: list[Merged] = []
        self._session = session
        self._ids, self._ts = 100, NOON
        database = {**database_info(5, SCHEMA), "charset": charset, "collate": collate}
        self._of_database = {"charset": charset, "collate": collate}
        self.run(ActionType.CREATE_SCHEMA, None, DBInfo=database)

    def next_id(self) -> int:
        self._ids += 1
        return self._ids

    def recording(self) -> Recording:
        return Recording(4713, self.jobs, self._entries)

    def create(self, label: str, *columns: Document, may: Sequence[str] = (), **more: Any) -> Table:
        """A table with a key, the columns that nothing may touch, and others."""
        cols = [{**copy.deepcopy(one), "id": at} for at, one in enumerate((ID, *OTHERS, *columns), 1)]
        document = {"id": self.next_id(), "name": name(f"t{len(self.tables)}"), "comment": "", "state": 5}
        document |= {"index_info": [], "pk_is_handle": True, "cols": cols, **self._of_database, **more}
        self.tables.append(Table(label, document, tuple(may)))
        self.run(ActionType.CREATE_TABLE, self.tables[-1])
        return self.tables[-1]

    def alter(self, table: Table, action: int, change: Callable[[Document], object], **job: Any) -> None:
        """`change` edits the definition; rows are what they decode to from then on."""
        table.document = copy.deepcopy(table.document)
        change(table.document)
        self.run(action, table, **job)

    def run(self, action: int, table: Table | None, query: str = "..", **job: Any) -> None:
        for at, one in enumerate(table.document["cols"] if table else ()):
            one["offset"] = at
        number, document = len(self.jobs) + 1, copy.deepcopy(table.document) if table else None
        history = {"SchemaVersion": number, "DBInfo": job.pop("DBInfo", None), "FinishedTS": self._ts + 1}
        whole: Document = DdlJob(number, action, schema_id=5, schema_name=SCHEMA).to_document()
        whole |= {"query": query, "binlog": {**history, "TableInfo": document}, "start_ts": self._ts - 1}
        whole |= {"table_id": document["id"] if document else 0, **self._session, **job}
        self.jobs.append(json.dumps(whole).encode())
        self._commit(binlog.prewrite_ddl(self._ts, b"k", query, job_id=number), whole)

    # -- rows -----------------------------------------------------------------------------------------

    def insert(self, table: Table, rows: Iterable[Row]) -> None:
        encoder = RowEncoder(table.info)
        new = {one["id"]: encoder.insert(one, one["id"]) for one in rows}
        table.rows |= new
        self._write(table, 0, *new.values())

    def go_on(self, table: Table, *rows: Row) -> None:
        """What TiDB writes once a DDL is done, with all columns: one is updated, the last goes, some come."""
        encoder, values = RowEncoder(table.info), table.values()
        first, last = min(table.rows), max(table.rows)
        new = {**values[first], "w": 77}
        table.rows[first] = encoder.insert(new, first)
        self._write(table, 1, encoder.update(values[first], new, first))
        if last != first:
            del table.rows[last]
            self._write(table, 2, encoder.delete(values[last], last))
        if rows:
            self.insert(table, rows)

    def convert(self, table: Table, values: dict[int, Row]) -> None:
        """Rows hold other values since a DDL."""
        table.rows = {number: RowEncoder(table.info).insert(one) for number, one in values.items()}

    def _write(self, table: Table, what: int, *rows: bytes) -> None:
        value = prewrite_value(len(self.jobs), [(table.document["id"], [what] * len(rows), rows)])
        self._commit(binlog.prewrite(self._ts, b"k", value), None)

    def _commit(self, prewrite: bytes, job: Document | None) -> None:
        payload = binlog.join(prewrite, binlog.commit(self._ts, self._ts + 1, b"k"))
        self._entries.append(Merged(self._ts + 1, payload, job))
        self._ts += 10

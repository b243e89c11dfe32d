"""Catalog: databases and tables by id and by name, each table with what its late rows may still need.

The schema tracker's memory, without any knowledge of DDL jobs. Definitions stay JSON documents until
the table is asked for: a long history is read at every start and few of its tables ever get rows.

Rows are decoded with the newest definition. A row that was written under an older schema version takes the
defaults of columns that it lacks from the definition that was current then; the table version handed out
for such rows differs from the newest one in nothing else. So of older definitions only those defaults are
kept that have changed since, however many definitions ago that was.

`changed` collects what differs from the last `rows()`, so that a stored copy can follow at little cost. What
is read in bulk (`put_text`, `drop`) is not noted there: all of it is stored afterwards.
Tests  tests/drainer/stream/schema/test_tracker.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from drainer.txn import TableVersion, Tracked
from tidb_binlog.errors import Corruption
from tidb_binlog.foreign_document import UNREADABLE
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.table_info import Column, TableInfo

Row = dict[str, Any]
"""`{"key": "table/12", "value": {...}}`; a value of None: it is gone."""

GONE_KEPT: Final = 4096
"""Ids of dropped tables that are remembered; of an older one an error can only say that it is not known."""
TABLE_ID_MAX: Final = (1 << 48) - 1 - 1000
"""Ids above it are tables that TiDB keeps for itself."""
_HEAD: Final = re.compile(rb'\{"id":(\d+),"name":\{"O":"([^"\\]*)"')
"""How TiDB begins a table's definition."""
_DEFAULT: Final = b'"origin_default'
_NO_DEFAULTS: Final = b'"origin_default":null,"origin_default_bit":null'


@dataclass(frozen=True, slots=True)
class Database:
    name: str
    charset: str = ""
    collate: str = ""


@dataclass(slots=True)
class Definition:
    """One definition of a table, parsed when first asked for: `source` may still be JSON text."""

    source: dict[str, Any] | str | bytes
    schema: str
    name: str
    version: int
    parsed: TableVersion | None = None

    @property
    def document(self) -> dict[str, Any]:
        """Reads the text when it is first asked for."""
        if not isinstance(self.source, dict):
            self.source = json.loads(self.source)
        assert isinstance(self.source, dict)
        return self.source

    @property
    def has_defaults(self) -> bool:
        """Whether a column may have an original default; cheap, where it is text."""
        return not isinstance(self.source, bytes) or has_defaults(self.source)

    def table(self) -> TableVersion:
        """Raises `Corruption` for a document that is no table definition."""
        if self.parsed is None:
            info = TableInfo.from_json(self.document)
            self.parsed = TableVersion(info, self.schema, self.name, self.version)
        return self.parsed

    def tracked(self) -> Tracked:
        """Gives the definition as items of the stream have it."""
        return Tracked(self.schema, self.name, self.document)


@dataclass(frozen=True, slots=True)
class OldDefault:
    """What a column's original default was, up to the definition of schema version `until`."""

    until: int
    origin_default: str | None
    origin_default_bit: str | None  # base64, as in the definition
    tp: int

    def same_as(self, other: OldDefault) -> bool:
        """Says whether rows without the column read the same."""
        ours = (self.origin_default, self.origin_default_bit)
        return ours == (other.origin_default, other.origin_default_bit)


def _default_of(column: dict[str, Any], until: int) -> OldDefault:
    origin = column.get("origin_default")
    return OldDefault(
        until,
        None if origin is None else str(origin),
        column.get("origin_default_bit"),
        int((column.get("type") or {}).get("Tp") or 0),
    )


@dataclass(slots=True, eq=False)
class Table:
    """A table under one id. `old_defaults` by column id, oldest first; most tables have none."""

    id: int
    schema_id: int
    current: Definition
    old_defaults: dict[int, list[OldDefault]] = field(default_factory=dict)
    with_defaults: dict[int, TableVersion] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """(schema, name) as spelled upstream."""
        return self.current.schema, self.current.name

    def replace(self, definition: Definition) -> None:
        """Put a newer definition in force, and keep the defaults of older ones."""
        if self.current.version < definition.version and (
            definition.has_defaults or self.current.has_defaults or self.old_defaults
        ):
            self._keep_defaults(definition)
        self.current = definition
        self.with_defaults.clear()

    def _keep_defaults(self, newer: Definition) -> None:
        after = {column.get("id"): column for column in newer.document.get("cols") or ()}
        until = self.current.version
        for column in self.current.document.get("cols") or ():
            column_id = column.get("id")
            now = after.get(column_id)
            if now is None:
                self.old_defaults.pop(column_id, None)
                continue
            old = _default_of(column, until)
            if not _default_of(now, until).same_as(old):
                self.old_defaults.setdefault(column_id, []).append(old)

    def for_rows_of(self, schema_version: int) -> TableVersion:
        """The newest layout, with the defaults that rows of that schema version need."""
        newest = self.current.table()
        if schema_version >= newest.version or not self.old_defaults:
            return newest
        steps = sorted({old.until for kept in self.old_defaults.values() for old in kept})
        until = next((step for step in steps if step >= schema_version), None)
        if until is None:
            return newest
        table = self.with_defaults.get(until)
        if table is None:
            table = self.with_defaults[until] = self._with_defaults(until, newest)
        return table

    def _with_defaults(self, until: int, newest: TableVersion) -> TableVersion:
        columns = []
        for column in newest.info.columns:
            old = next((old for old in self.old_defaults.get(column.id, ()) if old.until >= until), None)
            columns.append(column if old is None or old.tp != column.type.tp else _older(column, old))
        if tuple(columns) == newest.info.columns:
            return newest
        return replace(newest, info=replace(newest.info, columns=tuple(columns)))


def _older(column: Column, old: OldDefault) -> Column:
    document = {
        **column.to_json(),
        "origin_default": old.origin_default,
        "origin_default_bit": old.origin_default_bit,
    }
    restored = Column.from_json(document)
    return replace(
        column, origin_default=restored.origin_default, origin_default_bit=restored.origin_default_bit
    )


def name_in(document: dict[str, Any], key: str = "name") -> str:
    """The name as spelled upstream in a table's or (`db_name`) a database's definition."""
    try:
        return str(document[key]["O"])
    except (KeyError, TypeError):
        raise Corruption(
            f"DDL job has a definition without {key}: it has {', '.join(sorted(document)[:8])}",
            hint="compare the job with `ADMIN SHOW DDL JOBS` of the upstream",
        ) from None


def has_defaults(text: bytes) -> bool:
    """Whether in a definition, as text, a column may have an original default."""
    return text.count(_DEFAULT) != 2 * text.count(_NO_DEFAULTS)


def id_and_name(text: bytes) -> tuple[int, str]:
    """Of a table's definition; cheap for one as TiDB writes it. Raises `Corruption`."""
    match = _HEAD.match(text)
    if match is not None:
        return int(match[1]), match[2].decode("utf-8", "replace")
    try:
        document = json.loads(text)
        return int(document["id"]), name_in(document)
    except UNREADABLE as error:
        raise Corruption(f"a table definition of {len(text)} bytes cannot be read: {error!r}") from None


class Catalog:
    """Databases and tables at one place of the stream.

    `touched` maps the ids of tables changed since `watch` to what they were before (None: not there).
    """

    def __init__(self) -> None:
        self.databases: dict[int, Database] = {1: Database("mysql")}  # made without a DDL since TiDB 6.2
        self.tables: dict[int, Table] = {}
        self.truncated: set[int] = set()
        self.dropped: dict[int, int] = {}  # table id -> schema version that dropped it
        self.touched: dict[int, Definition | None] = {}
        self.changed: set[str] = set()
        self._by_name: dict[tuple[str, str], int] = {}

    # -- databases ------------------------------------------------------------------------------------

    def put_database(self, document: dict[str, Any]) -> str:
        """Add or replace a database; its name."""
        name = name_in(document, "db_name")
        charset, collate = document.get("charset") or "", document.get("collate") or ""
        self.databases[int(document["id"])] = Database(name, str(charset), str(collate))
        self.changed.add(f"database/{document['id']}")
        return name

    def database_named(self, name: str) -> tuple[int, Database] | None:
        """Finds a database; upper and lower case are one."""
        for schema_id, database in self.databases.items():
            if database.name.lower() == name.lower():
                return schema_id, database
        return None

    def drop_database(self, schema_id: int, version: int) -> str | None:
        """Remove a database and its tables; its name, None if it was not known."""
        for table in [table for table in self.tables.values() if table.schema_id == schema_id]:
            self.remove(table.id, version)
        database = self.databases.pop(schema_id, None)
        self.changed.add(f"database/{schema_id}")
        return database.name if database else None

    # -- tables ---------------------------------------------------------------------------------------

    def table_named(self, schema: str, name: str) -> Table | None:
        """Finds a table; upper and lower case are one."""
        table_id = self._by_name.get((schema.lower(), name.lower()))
        return None if table_id is None else self.tables[table_id]

    def put(self, document: dict[str, Any], schema_id: int, schema: str, version: int) -> None:
        """A new table, or a new definition (and name) of a known one."""
        table_id = int(document["id"])
        self._note(table_id, self.tables.get(table_id))
        self._place(table_id, schema_id, Definition(document, schema, name_in(document), version))
        self._is_there(table_id)

    def put_text(self, text: bytes, table_id: int, name: str, schema_id: int, version: int) -> None:
        """As `put`, from JSON text, into a database that is there; nothing if something newer is known."""
        table = self.tables.get(table_id)
        newest = self.dropped.get(table_id, 0) if table is None else table.current.version
        if newest <= version:
            self._place(table_id, schema_id, Definition(text, self.databases[schema_id].name, name, version))
            if table is None and self.dropped.pop(table_id, None) is not None:
                self.truncated.discard(table_id)

    def drop(self, table_id: int, version: int, *, truncated: bool = False) -> None:
        """As `remove`; nothing if something newer is known. Of too many ids some more are kept for now."""
        table = self.tables.get(table_id)
        if table is not None and table.current.version <= version:
            del self.tables[table_id]
            self._forget_name(table)
        elif table is not None or not truncated:
            return
        self.gone(table_id, version, truncated=truncated)

    def gone(self, table_id: int, version: int, *, truncated: bool = False) -> None:
        """There is no such table since `version`."""
        self.dropped[table_id] = version
        (self.truncated.add if truncated else self.truncated.discard)(table_id)
        if len(self.dropped) > 2 * GONE_KEPT:
            self.trim()

    def trim(self) -> None:
        """Forget the oldest of too many dropped ids."""
        for table_id in list(self.dropped)[:-GONE_KEPT]:
            del self.dropped[table_id]
            self.truncated.discard(table_id)

    def _place(self, table_id: int, schema_id: int, definition: Definition) -> None:
        table = self.tables.get(table_id)
        if table is None:
            self.tables[table_id] = Table(table_id, schema_id, definition)
        else:
            self._forget_name(table)
            table.schema_id = schema_id
            table.replace(definition)
        self._by_name[(definition.schema.lower(), definition.name.lower())] = table_id

    def remove(self, table_id: int, version: int, *, truncated: bool = False) -> Table | None:
        """Forget a table that was dropped; late rows of a truncated one are to be left out."""
        table = self.tables.pop(table_id, None)
        self._note(table_id, table)
        if table is not None:
            self._forget_name(table)
        if table is not None or truncated:
            self.dropped[table_id] = version
            if truncated:
                self.truncated.add(table_id)
            if len(self.dropped) > GONE_KEPT:
                oldest = next(iter(self.dropped))
                self._is_there(oldest)
                self.changed.add(f"gone/{oldest}")
            self.changed.add(f"gone/{table_id}")
        return table

    def move(self, table: Table, new_id: int, version: int) -> None:
        """The table gets another id and keeps everything else."""
        current = table.current
        self._note(table.id, table)
        self._note(new_id, self.tables.get(new_id))
        del self.tables[table.id]
        self._forget_name(table)
        self.dropped[table.id] = version
        self.changed.add(f"gone/{table.id}")
        table.id = new_id
        table.replace(Definition({**current.document, "id": new_id}, current.schema, current.name, version))
        self.tables[new_id] = table
        self._is_there(new_id)
        self._by_name[(current.schema.lower(), current.name.lower())] = new_id

    def _is_there(self, table_id: int) -> None:
        if self.dropped.pop(table_id, None) is not None:
            self.changed.add(f"gone/{table_id}")
        self.truncated.discard(table_id)

    def _forget_name(self, table: Table) -> None:
        key = (table.current.schema.lower(), table.current.name.lower())
        if self._by_name.get(key) == table.id:
            del self._by_name[key]

    def _note(self, table_id: int, table: Table | None) -> None:
        self.changed.add(f"table/{table_id}")
        self.touched.setdefault(table_id, table.current if table else None)

    # -- what a job changed -----------------------------------------------------------------------------

    def watch(self) -> None:
        """Note from now on what changes."""
        self.touched = {}

    def seen(self) -> tuple[tuple[Tracked, ...], tuple[Tracked, ...]]:
        """Tables changed since `watch`: as they were before, and as they are now."""
        before = tuple(old.tracked() for old in self.touched.values() if old is not None)
        now = (self.tables.get(table_id) for table_id in self.touched)
        return before, tuple(table.current.tracked() for table in now if table is not None)

    # -- a stored copy ------------------------------------------------------------------------------------

    def rows(self, keys: Iterable[str] | None = None) -> list[Row]:
        """The contents as rows, or those under some keys; a row of an absent thing has the value None."""
        if keys is None:
            keys = [
                *(f"database/{number}" for number in self.databases),
                *(f"table/{number}" for number in self.tables),
                *(f"gone/{number}" for number in self.dropped),
            ]
        return [{"key": key, "value": self._value(key)} for key in keys]

    def _value(self, key: str) -> dict[str, Any] | None:
        kind, _, number = key.partition("/")
        if kind == "database":
            database = self.databases.get(int(number))
            return (
                None
                if database is None
                else {
                    "name": database.name,
                    "charset": database.charset,
                    "collate": database.collate,
                }
            )
        if kind == "gone":
            version = self.dropped.get(int(number))
            if version is None:
                return None
            return {"version": version, "truncated": int(number) in self.truncated}
        table = self.tables.get(int(number))
        return (
            None
            if table is None
            else {
                "schema_id": table.schema_id,
                "schema": table.current.schema,
                "name": table.current.name,
                "version": table.current.version,
                "document": table.current.document,
                "old_defaults": [
                    [column_id, old.until, old.origin_default, old.origin_default_bit, old.tp]
                    for column_id, kept in table.old_defaults.items()
                    for old in kept
                ],
            }
        )

    def load(self, row: Row) -> None:
        """Take over one row of `rows`; raises `Corruption` for one that cannot be read."""
        try:
            kind, _, text = row["key"].partition("/")
            number, value = int(text), row["value"]
            if kind == "database":
                self.databases.pop(number, None)
                if value is not None:
                    self.databases[number] = Database(**value)
            elif kind == "gone":
                self._is_there(number)
                if value is not None:
                    self.dropped[number] = value["version"]
                    if value["truncated"]:
                        self.truncated.add(number)
            elif kind == "table":
                self._load_table(number, value)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Corruption(
                f"stored schema has a row that cannot be read: {str(row.get('key'))[:80]}: {error}",
                hint="delete the stored schema: the next start reads the DDL history instead",
            ) from None

    def _load_table(self, table_id: int, value: dict[str, Any] | None) -> None:
        earlier = self.tables.pop(table_id, None)
        if earlier is not None:
            self._forget_name(earlier)
        if value is None:
            return
        current = Definition(value["document"], value["schema"], value["name"], value["version"])
        table = self.tables[table_id] = Table(table_id, value["schema_id"], current)
        for column_id, until, default, bits, tp in value["old_defaults"]:
            table.old_defaults.setdefault(column_id, []).append(OldDefault(until, default, bits, tp))
        self._by_name[(current.schema.lower(), current.name.lower())] = table_id

"""Catalog: databases and tables by id and by name, each table with its last few definitions.

The schema tracker's memory, without any knowledge of DDL jobs. Definitions stay JSON documents until
somebody asks for the table: a long history is read at every start and few of its tables ever get rows.

Rows are decoded with the newest definition. A row that was written under an older schema version takes the
defaults of columns that it lacks from the definition that was current then; the table version handed out
for such rows differs from the newest one in nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from common.errors import Corruption
from common.table_info import Column, TableInfo
from drainer.txn import TableVersion

_VERSIONS_KEPT: Final = 8


@dataclass(frozen=True, slots=True)
class Database:
    name: str
    charset: str = ""
    collate: str = ""


@dataclass(slots=True)
class Definition:
    """One definition of a table, parsed when first asked for."""

    document: dict[str, Any]
    schema: str
    name: str
    version: int
    parsed: TableVersion | None = None

    def table(self) -> TableVersion:
        """Raises `Corruption` for a document that is no table definition."""
        if self.parsed is None:
            info = TableInfo.from_json(self.document)
            self.parsed = TableVersion(info, self.schema, self.name, self.version)
        return self.parsed


@dataclass(slots=True, eq=False)
class Table:
    """A table under one id. `definitions` is never empty, oldest first."""

    id: int
    schema_id: int
    definitions: list[Definition]
    with_defaults: dict[int, TableVersion] = field(default_factory=dict)

    @property
    def current(self) -> Definition:
        return self.definitions[-1]

    @property
    def key(self) -> tuple[str, str]:
        """(schema, name) as spelled upstream."""
        return self.current.schema, self.current.name

    def add(self, definition: Definition) -> None:
        if self.definitions[-1].version == definition.version:
            self.definitions.pop()
        self.definitions.append(definition)
        del self.definitions[:-_VERSIONS_KEPT]
        self.with_defaults.clear()

    def at(self, schema_version: int) -> int:
        """Index of the definition whose defaults count for rows of a schema version."""
        for index, definition in enumerate(self.definitions):
            if definition.version >= schema_version:
                return index
        return len(self.definitions) - 1

    def for_rows_of(self, schema_version: int) -> TableVersion:
        """The newest layout, with the defaults that rows of that schema version need."""
        newest = self.current.table()
        if schema_version >= newest.version or len(self.definitions) == 1:
            return newest
        index = self.at(schema_version)
        known = self.with_defaults.get(index)
        if known is None:
            known = self.with_defaults[index] = self._merge_defaults(index, newest)
        return known

    def _merge_defaults(self, index: int, newest: TableVersion) -> TableVersion:
        first: dict[int, Column] = {}
        for definition in self.definitions[index:]:
            for column in definition.table().info.columns:
                first.setdefault(column.id, column)
        columns = tuple(_with_origin_default(column, first[column.id]) for column in newest.info.columns)
        if columns == newest.info.columns:
            return newest
        return replace(newest, info=replace(newest.info, columns=columns))


def _with_origin_default(column: Column, older: Column) -> Column:
    if older.type.tp != column.type.tp:
        return column
    return replace(column, origin_default=older.origin_default, origin_default_bit=older.origin_default_bit)


def name_in(document: dict[str, Any], key: str = "name") -> str:
    """The name as spelled upstream in a table's or (`db_name`) a database's definition."""
    try:
        return str(document[key]["O"])
    except (KeyError, TypeError):
        raise Corruption(
            f"DDL job has a definition without {key}: it has {', '.join(sorted(document)[:8])}",
            hint="compare the job with `ADMIN SHOW DDL JOBS` of the upstream",
        ) from None


class Catalog:
    """Databases and tables at one place of the stream."""

    def __init__(self) -> None:
        self.databases: dict[int, Database] = {1: Database("mysql")}  # made without a DDL since TiDB 6.2
        self.tables: dict[int, Table] = {}
        self.truncated: set[int] = set()
        self.dropped: dict[int, int] = {}  # table id -> schema version that dropped it
        self._by_name: dict[tuple[str, str], int] = {}

    # -- databases ------------------------------------------------------------------------------------

    def put_database(self, document: dict[str, Any]) -> str:
        """Add or replace a database; its name."""
        name = name_in(document, "db_name")
        charset, collate = document.get("charset") or "", document.get("collate") or ""
        self.databases[int(document["id"])] = Database(name, str(charset), str(collate))
        return name

    def database_named(self, name: str) -> tuple[int, Database] | None:
        for schema_id, database in self.databases.items():
            if database.name.lower() == name.lower():
                return schema_id, database
        return None

    def drop_database(self, schema_id: int, version: int) -> str | None:
        """Remove a database and its tables; its name, None if it was not known."""
        for table in [table for table in self.tables.values() if table.schema_id == schema_id]:
            self.remove(table.id, version)
        database = self.databases.pop(schema_id, None)
        return database.name if database else None

    # -- tables ---------------------------------------------------------------------------------------

    def table_named(self, schema: str, name: str) -> Table | None:
        table_id = self._by_name.get((schema.lower(), name.lower()))
        return None if table_id is None else self.tables[table_id]

    def put(self, document: dict[str, Any], schema_id: int, schema: str, version: int) -> None:
        """A new table, or a new definition (and name) of a known one."""
        table_id = int(document["id"])
        made = Definition(document, schema, name_in(document), version)
        known = self.tables.get(table_id)
        if known is None:
            self.tables[table_id] = Table(table_id, schema_id, [made])
        else:
            self._forget_name(known)
            known.schema_id = schema_id
            known.add(made)
        self.truncated.discard(table_id)
        self.dropped.pop(table_id, None)
        self._by_name[(schema.lower(), made.name.lower())] = table_id

    def remove(self, table_id: int, version: int) -> Table | None:
        table = self.tables.pop(table_id, None)
        if table is not None:
            self._forget_name(table)
            self.dropped[table_id] = version
        return table

    def move(self, table: Table, new_id: int, version: int) -> None:
        """The table gets another id and keeps everything else."""
        current = table.current
        del self.tables[table.id]
        self._forget_name(table)
        self.dropped[table.id] = version
        table.id = new_id
        table.add(Definition({**current.document, "id": new_id}, current.schema, current.name, version))
        self.tables[new_id] = table
        self.dropped.pop(new_id, None)
        self._by_name[(current.schema.lower(), current.name.lower())] = new_id

    def _forget_name(self, table: Table) -> None:
        key = (table.current.schema.lower(), table.current.name.lower())
        if self._by_name.get(key) == table.id:
            del self._by_name[key]

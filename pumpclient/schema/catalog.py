"""Catalogue: the databases and tables of a cluster whose DDL programs publish, and what a change makes of it.

Out    `Catalog` (immutable); `DdlChange`: the statement, its job and the definitions to store
Holds  ids and schema versions ascend over all publishers: the head that gives them out is part of each change
Never  touches etcd; `publish.publisher` stores a plan on the head it was made from, or makes it anew
Tests  tests/pumpclient/publish/test_publisher_schema_publishing.py
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final
from urllib.parse import quote, unquote

from pumpclient.errors import InvalidDefinition
from pumpclient.schema import table_definition
from pumpclient.schema.table_definition import ColumnDefinition, quoted
from tidb_binlog.ddl_job import ActionType, DdlJob, database_info
from tidb_binlog.foreign_document import reading
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import TableInfo

_SPOILED: Final = "another program writes to the keys of the standalone upstream: restore etcd from a backup"


@dataclass(frozen=True)
class Table:
    """A table as it is now. Ids of columns and indexes up to the two numbers are used up."""

    schema: str
    schema_id: int
    info: TableInfo
    columns_made: int
    indexes_made: int

    @property
    def name(self) -> str:
        """As SQL has it: database.table."""
        return f"{self.schema}.{self.info.name}"

    @cached_property
    def encoder(self) -> RowEncoder:
        """Writes its rows."""
        return RowEncoder(self.info)

    def stored(self) -> bytes:
        """Its value in the catalogue."""
        document = {
            "schema_id": self.schema_id,
            "columns_made": self.columns_made,
            "indexes_made": self.indexes_made,
            "table": self.info.to_json(),
        }
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True)
class Catalog:
    """Everything at one revision of the head. Names are compared without regard to case."""

    revision: int
    version: int = 0
    last_id: int = 0
    databases: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    tables: Mapping[tuple[str, str], Table] = field(default_factory=dict)

    def table(self, name: str) -> Table:
        """By "database.table". Raises `InvalidDefinition`."""
        schema, dot, table = name.partition(".")
        entry = self.tables.get((schema.lower(), table.lower()))
        if entry is None:
            hint = "publish it with create_table" if dot else 'name it "database.table"'
            raise InvalidDefinition(f"there is no table {name}", hint=hint)
        return entry

    def head(self) -> bytes:
        """The value that every change of the catalogue replaces."""
        return json.dumps({"version": self.version, "last_id": self.last_id}).encode()


class Fence:
    """The tables that a transaction's rows are encoded for, and a revision at which they were seen so.

    A step of the transaction names that revision, not the newest one: what moved since was not checked.
    """

    def __init__(self) -> None:
        self.revision = 0
        self._tables: dict[int, Table] = {}

    def __bool__(self) -> bool:
        """Whether there is anything to be fenced."""
        return bool(self._tables)

    def add(self, table: Table, seen_in: Catalog) -> None:
        """A row of this table is encoded as it is in `seen_in`, the same for all of them."""
        self._tables[table.info.id] = table
        self.revision = seen_in.revision

    def altered(self, now: Catalog) -> Table | None:
        """A table that is another one now; without one, `revision` is that of `now`."""
        for table in self._tables.values():
            current = now.tables.get((table.schema.lower(), table.info.name.lower()))
            if current is None or current.info != table.info:
                return table
        self.revision = now.revision
        return None


def read(revision: int, head: bytes, named: Mapping[str, bytes]) -> Catalog:
    """From what is stored. Raises `Corruption` naming the definition."""
    databases: dict[str, tuple[str, int]] = {}
    tables: dict[tuple[str, str], Table] = {}
    with reading("the head of the schema in etcd", hint=_SPOILED):
        numbers = json.loads(head)
        version, last_id = int(numbers["version"]), int(numbers["last_id"])
    for name, value in named.items():
        schema, _, table = name.partition("/")
        with reading(f"the definition {name} in etcd", hint=_SPOILED):
            document = json.loads(value)
            if not table:
                databases[unquote(schema)] = (str(document["name"]), int(document["id"]))
                continue
            owner = json.loads(named[schema])["name"]
            info = TableInfo.from_json(document["table"])
            counts = (document["columns_made"], document["indexes_made"])
            tables[unquote(schema), unquote(table)] = Table(owner, document["schema_id"], info, *counts)
    return Catalog(revision, version, last_id, databases, tables)


@dataclass(frozen=True)
class DdlChange:
    """On top of one catalogue. `puts`: what to store by name, None to remove."""

    query: str
    job: DdlJob
    head: bytes
    puts: Mapping[str, bytes | None]


Planner = Callable[[Catalog], DdlChange | None]
"""None: nothing is to be done, what is wanted is there."""


def _database_key(schema: str) -> str:
    return quote(schema.lower(), safe="")


def _table_key(schema: str, table: str) -> str:
    return f"{_database_key(schema)}/{quote(table.lower(), safe='')}"


def _change(
    catalog: Catalog, last_id: int, query: str, job: DdlJob, puts: Mapping[str, bytes | None]
) -> DdlChange:
    """Give the job its id and version, and count both in the head."""
    job = replace(job, id=last_id + 1, schema_version=catalog.version + 1, query=query + ";")
    head = replace(catalog, version=catalog.version + 1, last_id=last_id + 1).head()
    return DdlChange(query + ";", job, head, puts)


def _name(name: str) -> str:
    if not name or len(name) > 64 or name.strip() != name or "." in name or "\0" in name:
        raise InvalidDefinition(
            f"{name!r} cannot be a name", hint="a name has no dot, and 64 characters at most"
        )
    return name


def _table_name(name: str) -> tuple[str, str]:
    schema, _, table = name.partition(".")
    return _name(schema), _name(table)


# Statements ------------------------------------------------------------------------------------------------


def create_database(catalog: Catalog, name: str, *, if_not_exists: bool = False) -> DdlChange | None:
    if _name(name).lower() in catalog.databases:
        if if_not_exists:
            return None
        raise InvalidDefinition(f"database {name} exists already")
    number = catalog.last_id + 1
    stored = json.dumps({"id": number, "name": name}, ensure_ascii=False).encode()
    job = _database_job(ActionType.CREATE_SCHEMA, number, name)
    return _change(catalog, number, f"CREATE DATABASE {quoted(name)}", job, {_database_key(name): stored})


def drop_database(catalog: Catalog, name: str) -> DdlChange:
    schema, number = _database(catalog, name)
    puts: dict[str, bytes | None] = {_database_key(name): None}
    puts.update({_table_key(*key): None for key in catalog.tables if key[0] == name.lower()})
    job = _database_job(ActionType.DROP_SCHEMA, number, schema)
    return _change(catalog, catalog.last_id, f"DROP DATABASE {quoted(schema)}", job, puts)


def _database(catalog: Catalog, name: str) -> tuple[str, int]:
    database = catalog.databases.get(name.lower())
    if database is None:
        raise InvalidDefinition(f"there is no database {name}", hint="publish it with create_database")
    return database


def create_table(
    catalog: Catalog,
    name: str,
    columns: Sequence[ColumnDefinition],
    primary_key: Sequence[str],
    unique: Sequence[Sequence[str]],
    *,
    if_not_exists: bool = False,
) -> DdlChange | None:
    schema, table = _table_name(name)
    schema, schema_id = _database(catalog, schema)
    info = table_definition.table(table, columns, primary_key, unique)
    existing = catalog.tables.get((schema.lower(), table.lower()))
    if existing is not None:
        if not if_not_exists:
            raise InvalidDefinition(f"table {name} exists already")
        if _shape(existing.info) != _shape(info):
            raise InvalidDefinition(
                f"table {name} exists with another definition", hint="publish the difference: add_column, ..."
            )
        return None
    info = replace(info, id=catalog.last_id + 1)
    new_table = Table(schema, schema_id, info, len(info.columns), len(info.indexes))
    query = table_definition.create_text(info, columns, primary_key)
    return _change(catalog, info.id, query, _job(ActionType.CREATE_TABLE, new_table), _stored(new_table))


def _shape(info: TableInfo) -> object:
    """What two definitions of one table have in common whichever way it was reached."""
    columns = {column.name.lower(): (column.type, column.default) for column in info.columns}
    indexes = {tuple(part.name.lower() for part in index.columns) for index in info.indexes if index.unique}
    return columns, indexes


def drop_table(catalog: Catalog, name: str) -> DdlChange:
    table = catalog.table(name)
    puts: dict[str, bytes | None] = {_table_key(table.schema, table.info.name): None}
    job = _job(ActionType.DROP_TABLE, table)
    return _change(catalog, catalog.last_id, f"DROP TABLE {quoted(table.info.name)}", job, puts)


def truncate_table(catalog: Catalog, name: str) -> DdlChange:
    table = catalog.table(name)
    emptied = replace(table, info=replace(table.info, id=catalog.last_id + 1))
    job = replace(_job(ActionType.TRUNCATE_TABLE, emptied), table_id=table.info.id)
    query = f"TRUNCATE TABLE {quoted(table.info.name)}"
    return _change(catalog, emptied.info.id, query, job, _stored(emptied))


def rename_table(catalog: Catalog, name: str, to: str) -> DdlChange:
    table = catalog.table(name)
    if (table.schema.lower(), _name(to).lower()) in catalog.tables:
        raise InvalidDefinition(f"table {table.schema}.{to} exists already")
    renamed = replace(table, info=replace(table.info, name=to))
    puts = {_table_key(table.schema, table.info.name): None, **_stored(renamed)}
    query = f"RENAME TABLE {quoted(table.info.name)} TO {quoted(to)}"
    return _change(catalog, catalog.last_id, query, _job(ActionType.RENAME_TABLE, renamed), puts)


def add_column(catalog: Catalog, name: str, column: ColumnDefinition) -> DdlChange:
    table = catalog.table(name)
    if not column.nullable and column.default is None:
        raise InvalidDefinition(
            f"column {column.name} would be NOT NULL without a default: what are the rows to hold?"
        )
    info = table_definition.with_column(table.info, column, table.columns_made + 1)
    changed = replace(table, info=info, columns_made=table.columns_made + 1)
    return _alter(catalog, ActionType.ADD_COLUMN, changed, f"ADD COLUMN {column.text()}")


def drop_column(catalog: Catalog, name: str, column: str) -> DdlChange:
    table = catalog.table(name)
    changed = replace(table, info=table_definition.without_column(table.info, column))
    return _alter(catalog, ActionType.DROP_COLUMN, changed, f"DROP COLUMN {quoted(column)}")


def add_index(catalog: Catalog, name: str, index: str, columns: Sequence[str], *, unique: bool) -> DdlChange:
    table, number = catalog.table(name), catalog.table(name).indexes_made + 1
    info = table_definition.with_index(table.info, _name(index), columns, number, unique=unique)
    changed = replace(table, info=info, indexes_made=number)
    words = table_definition.index_text(info.indexes[-1])
    return _alter(catalog, ActionType.ADD_INDEX, changed, f"ADD {words}")


def drop_index(catalog: Catalog, name: str, index: str) -> DdlChange:
    table = catalog.table(name)
    changed = replace(table, info=table_definition.without_index(table.info, index))
    return _alter(catalog, ActionType.DROP_INDEX, changed, f"DROP INDEX {quoted(index)}")


def _alter(catalog: Catalog, kind: int, changed: Table, words: str) -> DdlChange:
    query = f"ALTER TABLE {quoted(changed.info.name)} {words}"
    return _change(catalog, catalog.last_id, query, _job(kind, changed), _stored(changed))


def _stored(table: Table) -> dict[str, bytes | None]:
    return {_table_key(table.schema, table.info.name): table.stored()}


def _database_job(kind: int, number: int, name: str) -> DdlJob:
    return DdlJob(0, kind, schema_id=number, schema_name=name, db_info=database_info(number, name))


def _job(kind: int, table: Table) -> DdlJob:
    document: dict[str, Any] = table.info.to_json()
    return DdlJob(
        0,
        kind,
        schema_id=table.schema_id,
        table_id=table.info.id,
        schema_name=table.schema,
        table_name=table.info.name,
        table_info=document,
    )

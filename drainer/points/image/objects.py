"""Objects: what an image says of databases, tables, views and sequences beside the rows.

Out    `schema.json`; for an image that has none, what its manifest says of tables
Why    the manifest has what rows are read by. To make a table again takes more: partitions, foreign keys,
       comments; and views and sequences have no rows
Tests  tests/drainer/points/image/test_objects.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from drainer.places.place import Place
from drainer.points.image.manifest import Manifest
from drainer.stream.schema.tracker import SchemaTracker, is_system_schema
from drainer.txn import Tracked
from tidb_binlog import checked
from tidb_binlog.errors import Corruption
from tidb_binlog.foreign_document import UNREADABLE
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.table_info import TableInfo

FILE: Final = "schema.json"
FORMAT: Final = 1
Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class DatabaseObject:
    """`name`: in the image. Without a character set the server's is taken."""

    name: str
    charset: str = ""
    collate: str = ""


@dataclass(frozen=True, slots=True)
class TableObject:
    """A table, view or sequence: where the image has it, and its definition under its upstream names."""

    name: Name
    tracked: Tracked

    @property
    def is_view(self) -> bool:
        return self.tracked.document.get("view") is not None

    @property
    def is_sequence(self) -> bool:
        return self.tracked.document.get("sequence") is not None


@dataclass(frozen=True, slots=True)
class Objects:
    databases: tuple[DatabaseObject, ...]
    tables: tuple[TableObject, ...]
    _places: Mapping[Name, Name] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        places = {(table.tracked.schema, table.tracked.name): table.name for table in self.tables}
        object.__setattr__(self, "_places", places)

    def place(self, schema: str, table: str) -> Name:
        """Where the image has what is called so upstream. A database without tables in it keeps its name."""
        if table:
            return self._places.get((schema, table), (schema, table))
        moved = {name[0] for upstream, name in self._places.items() if upstream[0] == schema}
        return (moved.pop() if len(moved) == 1 else schema), ""

    def store(self, directory: str) -> None:
        document = {
            "format": FORMAT,
            "databases": [[database.name, database.charset, database.collate] for database in self.databases],
            "tables": [
                [*table.name, table.tracked.schema, table.tracked.name, table.tracked.document]
                for table in self.tables
            ],
        }
        Place(directory).put(FILE, checked.document(document))

    @classmethod
    def load(cls, directory: str, manifest: Manifest) -> Objects:
        """Raises `Corruption`."""
        place = Place(directory)
        text = place.content(FILE)
        if text is None and not manifest.objects:
            return _of_manifest(manifest)
        try:
            if text is None:
                raise FileNotFoundError("No such file")
            document: dict[str, Any] = checked.read_document(text)
            if document["format"] != FORMAT:
                raise ValueError("of another format")
            databases = tuple(DatabaseObject(*entry) for entry in document["databases"])
            tables = tuple(
                TableObject((schema, name), Tracked(upstream, called, definition))
                for schema, name, upstream, called, definition in document["tables"]
            )
            for table in tables:
                TableInfo.from_json(table.tracked.document)
            return cls(databases, tables)
        except (OSError, *UNREADABLE) as error:
            raise Corruption(
                f"{place.path_of(FILE)} cannot be read: {error}", hint="make the image anew"
            ) from None


def _of_manifest(manifest: Manifest) -> Objects:
    tables = []
    for image in manifest.tables:
        name = image.schema, image.table
        tables.append(TableObject(name, Tracked(*name, image.version.info.to_json())))
    return Objects(tuple(_databases(image.schema for image in manifest.tables)), tuple(tables))


def _databases(names: Iterable[str]) -> Iterable[DatabaseObject]:
    return (DatabaseObject(name) for name in dict.fromkeys(names))


def objects_of(tracker: SchemaTracker, place: Callable[[str, str], Name | None]) -> Objects:
    """What the upstream has. `place`: where the image has a table, view or sequence, None: it has not."""
    databases: dict[str, DatabaseObject] = {}
    tables, homes = [], {}
    for row in tracker.dump():
        kind, value = row["key"].partition("/")[0], row["value"]
        if kind == "database":
            homes[value["name"]] = DatabaseObject(value["name"], value["charset"], value["collate"])
        elif kind == "table" and not is_system_schema(value["schema"]):
            name = place(value["schema"], value["name"])
            if name is not None:
                tracked = Tracked(value["schema"], value["name"], value["document"])
                tables.append(TableObject(name, tracked))
    for table in tables:
        home = homes.get(table.tracked.schema, DatabaseObject(""))
        databases.setdefault(table.name[0], DatabaseObject(table.name[0], home.charset, home.collate))
    ordered = sorted(tables, key=lambda table: table.name)
    return Objects(tuple(databases[name] for name in sorted(databases)), tuple(ordered))

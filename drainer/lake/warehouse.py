"""Warehouse: what a configuration says of the place of a lake: its tables, and where a stream to it is.

Owns    files in the warehouse for each name and mode: the position, which mirrors there are, how far a first
        copy is, what is told of early rows. The one reader of those that are named beside them that lives
        writes them
Tests   tests/spark/live/test_lake_stream.py, tests/drainer/compare/verify/test_mirror_comparison.py
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from drainer.checkpoint import savepoint
from drainer.checkpoint.value import Checkpoint
from drainer.config.lake_options import ICEBERG
from drainer.config.options import DrainerConfig
from drainer.lake.delta import DeltaLake
from drainer.lake.iceberg import IcebergLake
from drainer.lake.lake_table import Lake, Name, plain_name
from drainer.places.place import Place
from tidb_binlog import checked
from tidb_binlog.errors import ConfigError, Conflict, Corruption
from tidb_binlog.foreign_document import json_object
from tidb_binlog.tso import Ts

DIRECTORY: Final = "_tidb-binlog"
MIRROR: Final = "mirror"


def lake_of(settings: DrainerConfig, cluster_id: int) -> DeltaLake | IcebergLake:
    """Raises `ConfigError` where a package is missing."""
    place, app = Place(settings.warehouse), app_of(settings, cluster_id)
    if settings.db_type == ICEBERG:
        return IcebergLake(place, app, settings.catalog_properties)
    return DeltaLake(place, app)


def app_of(settings: DrainerConfig, cluster_id: int) -> str:
    """The name under which positions are stored in tables."""
    return f"tidb-binlog-{cluster_id}-{settings.name}"


def check_begin(lake: Lake, names: Iterable[Name], begin_ts: Ts) -> None:
    """Whether nothing is lost where a writer begins there that knows of no position. `names`: of the tables
    that there may be. Raises `Conflict` where rows are older: what came after them is in no table."""
    with contextlib.closing(lake):
        lake.open()
        tables = {name: table for name in map(plain_name, names) if (table := lake.load(name)) is not None}
    older = {name: table.position for name, table in tables.items() if 0 < table.position <= begin_ts}
    if older:
        name = max(older, key=lambda name: older[name])
        raise Conflict(
            f"{'.'.join(name)} in the warehouse has rows up to {older[name]}, but where their writer was is"
            f" not known any more: to begin at {begin_ts} would leave out what came between",
            hint=f"restore {DIRECTORY} in the warehouse (a Drainer's data-dir); or begin at or below"
            f" {min(older.values())} (initial-commit-ts, of a stream its start), or in another warehouse",
        )


def named_by_its_mirror(settings: DrainerConfig, cluster_id: int) -> DrainerConfig:
    """The configuration under the name of the stream whose mirror is in the warehouse. Raises `ConfigError`
    unless there is just one."""
    place = Place(settings.warehouse)
    name = re.compile(rf"tidb-binlog-{cluster_id}-(.+)\.{MIRROR}")
    files = (name.fullmatch(entry.name) for entry in place.under(DIRECTORY).list(missing_ok=True))
    names = [match[1] for match in files if match]
    if len(names) != 1:
        raise ConfigError(
            f"{place.shown} has {'mirrors of ' + ', '.join(names) if names else 'no mirror'} of the upstream"
            f" with the cluster id {cluster_id}",
            hint="name the place that one stream in mode mirror writes to, and the file of its upstream",
        )
    return replace(settings, node_id=names[0])


class LakePosition:
    """Where a stream is, beside the tables of its warehouse: a file for each name."""

    def __init__(self, settings: DrainerConfig, cluster_id: int, mode: str) -> None:
        self.warehouse = Place(settings.warehouse)
        self._name = f"{DIRECTORY}/{app_of(settings, cluster_id)}.{mode}"

    def load(self) -> Checkpoint:
        """At 0, if there is none. Raises `Corruption`, `Unavailable`."""
        content = self.warehouse.content(self._name)
        return (
            Checkpoint(0, True, 0) if content is None else savepoint.parse(content.decode(errors="replace"))
        )

    def store(self, checkpoint: Checkpoint) -> None:
        """Raises `Unavailable`."""
        self.warehouse.put(self._name, savepoint.render(checkpoint).encode())

    def readers(self) -> list[str]:
        """Names of the readers that are to write them, or did. Raises `Unavailable`."""
        entries = self.warehouse.under(f"{self._name}.readers").list(missing_ok=True)
        return [entry.name for entry in entries if self._has_reader(entry.name)]

    def _has_reader(self, name: str) -> bool:
        """Not for a file that is being written under another name."""
        return self.warehouse.content(self._reader(name)) == name.encode()

    def _reader(self, name: str) -> str:
        return f"{self._name}.readers/{name}"

    def add_reader(self, name: str) -> None:
        """Nothing is written where it is there. Raises `Unavailable`."""
        if not self._has_reader(name):
            self.warehouse.put(self._reader(name), name.encode())

    def remove_reader(self, name: str) -> None:
        """Raises `Unavailable`."""
        self.warehouse.delete(self._reader(name))

    def load_copy(self) -> dict[str, Any]:
        """How far a first copy is; empty for none. Raises `Corruption`, `Unavailable`."""
        content = self.warehouse.content(f"{self._name}.copy")
        try:
            document: dict[str, Any] = checked.read_document(content) if content else {}
        except ValueError as error:
            shown = self.warehouse.path_of(f"{self._name}.copy")
            raise Corruption(f"{shown} cannot be read: {error}", hint="remove it, and copy anew") from None
        return document

    def store_copy(self, document: Mapping[str, Any]) -> None:
        """Raises `Unavailable`."""
        self.warehouse.put(f"{self._name}.copy", checked.document(document))

    def load_findings(self) -> dict[str, Any] | None:
        """What was stored last; one that is damaged is as good as none. Raises `Unavailable`."""
        return json_object(self.warehouse.content(f"{self._name}.findings") or b"")

    def store_findings(self, document: bytes) -> None:
        """Raises `Unavailable`."""
        self.warehouse.put(f"{self._name}.findings", document)

    def forget(self) -> None:
        """Where stream and first copy are, and the mirrors: another copy takes their place. Raises
        `Unavailable`."""
        self.warehouse.delete(self._name, f"{self._name}.tables", f"{self._name}.copy")

    def load_tables(self) -> frozenset[Name]:
        """Those that were noted last. Raises `Unavailable`."""
        content = self.warehouse.content(f"{self._name}.tables")
        return frozenset((schema, table) for schema, table in json.loads(content or b"[]"))

    def store_tables(self, names: frozenset[Name]) -> None:
        """Note which tables there are. Raises `Unavailable`."""
        self.warehouse.put(f"{self._name}.tables", json.dumps(sorted(names)).encode())

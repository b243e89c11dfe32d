"""Iceberg: changelogs as Iceberg tables of a catalog, SQLite in the warehouse if none is named.

Drives  pyiceberg, without Java
Holds   rows and the position are one commit. The position is a property of the snapshot's summary, of this
        Drainer alone by cluster and node; the table has it too, for the time when no snapshot of this Drainer
        is kept any more
Tests   tests/drainer/lake/test_lake_sink.py, tests/spark/live/test_mirror_overtaken.py
"""

from __future__ import annotations

import contextlib
import datetime
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from drainer.lake.changelog import schema_of
from drainer.lake.data_files import DataFile
from drainer.lake.lake_table import IDS, Lake, LakeTable, Name, plain
from drainer.places.place import Place
from tidb_binlog.errors import ConfigError, Conflict, DownstreamError, Unavailable
from tidb_binlog.observe.printable import one_line

EXTRA_HINT: Final = "pip install 'tidb-binlog[iceberg]'"
WRITE_HINT: Final = "check catalog, warehouse, network and credentials; it is tried again"
CATALOG: Final = "lake"
CATALOG_FILE: Final = "catalog.db"
_PROPERTIES: Final = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
"""For tables with many small commits."""


def require() -> Any:
    """The library. Raises `ConfigError` where it is missing."""
    try:
        import pyiceberg.catalog
        import pyiceberg.exceptions
        import sqlalchemy.exc
    except ModuleNotFoundError as error:
        raise ConfigError(f'db-type = "iceberg" needs {error.name}', hint=EXTRA_HINT) from error
    return pyiceberg, sqlalchemy.exc


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    library, sql = require()
    errors = library.exceptions
    passing = (
        *(errors.CommitFailedException, errors.CommitStateUnknownException, errors.RESTError),
        *(sql.SQLAlchemyError, OSError, pa.ArrowException),
    )
    try:
        yield
    except (errors.NoSuchTableError, FileNotFoundError):
        raise Conflict(
            f"{what} is gone: another program has removed it",
            hint="start the drainer again: it goes on with an empty table; or register the table anew first",
        ) from None
    except (errors.UnauthorizedError, errors.ForbiddenError, *passing) as error:
        # SQL's statements and parameters are not for a log
        words = str(getattr(error, "orig", None) or error)
        raise Unavailable(
            f"{what} cannot be reached or written: {one_line(words)}", hint=WRITE_HINT
        ) from None
    except (ValueError, errors.ValidationError) as error:
        raise DownstreamError(
            f"{what} does not take the rows: {one_line(str(error))}",
            hint="another program has changed its columns: undo that, or move the table away",
        ) from None


class IcebergLake(Lake):
    """`app`: of this Drainer alone. `properties`: of the catalog."""

    can_widen = True

    def __init__(self, warehouse: Place, app: str, properties: Mapping[str, str]) -> None:
        self._warehouse = warehouse
        self._app = app
        self._properties = dict(properties)
        self._catalog: Any = None
        require()

    def open(self) -> None:
        """Connect to the catalog."""
        self._warehouse.make()
        library, _ = require()
        properties = {"warehouse": self._root(), **self._properties}
        if not self._properties:
            assert self._warehouse.local is not None
            path = os.path.join(os.path.abspath(self._warehouse.local), CATALOG_FILE)
            properties |= {"type": "sql", "uri": f"sqlite:///{path}"}
        with _told("the catalog"):
            self._catalog = library.catalog.load_catalog(properties.pop("name", CATALOG), **properties)

    def _root(self) -> str:
        local = self._warehouse.local  # the library takes a URI as it stands, and decodes nothing
        return self._warehouse.uri.rstrip("/") if local is None else f"file://{os.path.abspath(local)}"

    def load(self, name: Name) -> IcebergChangelog | None:
        """Load a table, None if there is none."""
        library, _ = require()
        with _told(_shown(name)):
            try:
                table = self._catalog.load_table(name)
            except library.exceptions.NoSuchTableError:
                return None
            return IcebergChangelog(table, _shown(name), self._app)

    def create(self, name: Name, schema: pa.Schema, ids: str) -> IcebergChangelog:
        """Make a table, and its namespace."""
        with _told(_shown(name)):
            self._catalog.create_namespace_if_not_exists(name[0])
            location = f"{self._root()}/{'/'.join(name)}"
            properties = {**_PROPERTIES, IDS: ids}
            table = self._catalog.create_table(name, schema, location=location, properties=properties)
            return IcebergChangelog(table, _shown(name), self._app)

    def close(self) -> None:
        """Let go of the catalog."""
        catalog, self._catalog = self._catalog, None
        if catalog is not None:
            catalog.close()

    # -- of mirrors ------------------------------------------------------------------------------------

    @property
    def shown(self) -> str:
        """How it is called in messages."""
        return self._warehouse.shown

    def remove(self, name: Name) -> None:
        """Remove a table, if there is one."""
        library, _ = require()
        with _told(_shown(name)), contextlib.suppress(library.exceptions.NoSuchTableError):
            self._catalog.purge_table(name)

    def sql_name(self, name: Name) -> str:
        """How Spark calls a table."""
        return f"{CATALOG}.`{name[0]}`.`{name[1]}`"

    @contextlib.contextmanager
    def replacing(
        self, name: Name, table: IcebergChangelog | None, position: int
    ) -> Iterator[tuple[str, dict[str, str]]]:
        """The head of a statement that makes a table of rows and a position, and Spark's settings for it.
        `table`: as it was loaded, whose place it takes at the end of this, and only where nothing was
        committed in between: Iceberg's own REPLACE looks at nothing. Raises `Unavailable` where something
        was."""
        location = f"{self._root()}/{'/'.join(name)}"
        anew = name if table is None else (name[0], f"{name[1]}{_ANEW}")
        mark = uuid.uuid4().hex
        stored = f"'format-version' = '2', '{self._app}' = '{position}', '{_MARK}' = '{mark}'"
        head = f"CREATE {'' if table is None else 'OR REPLACE '}TABLE {self.sql_name(anew)} USING iceberg"
        yield f"{head} LOCATION '{location}' TBLPROPERTIES ({stored}) AS", _settings(self._app, position)
        if table is not None and (written := self.load(anew)) is not None:
            table.become(written, mark, position)
            with _told(_shown(anew)):
                self._catalog.drop_table(anew)


def sqlite_for_java(warehouse: str) -> dict[str, str]:
    """Properties of a catalog of Iceberg's Java library over the file that is the default here."""
    root = os.path.abspath(Place(warehouse).local or "")
    return {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{os.path.join(root, CATALOG_FILE)}",
        "jdbc.schema-version": "V1",
        "warehouse": f"file://{root}",
    }


def _shown(name: Name) -> str:
    return f"the Iceberg table {'.'.join(name)}"


def _settings(app: str, position: int) -> dict[str, str]:
    return {f"spark.sql.iceberg.snapshot-property.{app}": str(position)}


_STAGED: Final = "spark.wap.id"
_MARK: Final = "wap.id"
"""Of a snapshot's summary: what the setting said."""
_MAY_STAGE: Final = "write.wap.enabled"
_ANEW: Final = "~anew"
"""What a table is called that is to take the place of another: no table upstream is (`plain_name`)."""


class _Moved(Exception):
    """Somebody with our name has written meanwhile: another life, or an earlier try of ours."""


class IcebergChangelog(LakeTable):
    """One table."""

    def __init__(self, table: Any, shown: str, app: str) -> None:
        self._table = table
        self._shown = shown
        self._app = app

    @property
    def columns(self) -> dict[str, pa.DataType]:
        return plain(self._table.schema().as_arrow())

    @property
    def position(self) -> int:
        metadata, snapshot = self._table.metadata, self._table.current_snapshot()
        while snapshot is not None:
            if snapshot.summary is not None and (position := snapshot.summary.get(self._app)):
                return int(position)
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else metadata.snapshot_by_id(parent)
        return int(self._table.properties.get(self._app, 0))

    @property
    def ids(self) -> str:
        return str(self._table.properties.get(IDS, ""))

    def refresh(self) -> None:
        with _told(self._shown):
            self._table.refresh()

    def remember(self, ids: str) -> None:
        with _told(self._shown), self._table.transaction() as transaction:
            transaction.set_properties({IDS: ids})

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return self._table.schema().as_arrow()

    def add_columns(self, schema: pa.Schema) -> None:
        """Those that are lacking, and wider types."""
        with _told(self._shown), self._table.update_schema() as update:
            update.union_by_name(schema)

    def evolve(self, added: Mapping[str, pa.DataType], widened: Mapping[str, pa.DataType]) -> None:
        self.add_columns(schema_of(self.columns | dict(added) | dict(widened)))

    @contextlib.contextmanager
    def merging(self, position: int) -> Iterator[dict[str, str]]:
        """Spark's settings for a MERGE into the table as it was loaded. Nobody sees what that commits before
        the end of this, and only where nothing was committed in between: Iceberg lets one that was planned
        long ago pass if no file was added since. Raises `Unavailable` where something was."""
        if self._table.properties.get(_MAY_STAGE) != "true":
            with _told(self._shown), self._table.transaction() as transaction:
                transaction.set_properties({_MAY_STAGE: "true"})
        mark = uuid.uuid4().hex
        yield {**_settings(self._app, position), _STAGED: mark}
        self._publish(mark)

    def _publish(self, mark: str) -> None:
        """The library refuses what does not follow the snapshot that it knows."""
        loaded, table = self._table.current_snapshot(), self._table
        before = None if loaded is None else loaded.snapshot_id
        self.refresh()
        staged = [each for each in table.snapshots() if each.summary and each.summary.get(_MARK) == mark]
        now = table.current_snapshot()
        if any(each.parent_snapshot_id != before for each in staged) or now != loaded:
            raise Unavailable(
                f"{self._shown} was changed by another program while rows were merged into it",
                hint="it is tried again; of streams into one warehouse each needs a name of its own",
            )
        with _told(self._shown):
            for each in staged:
                table.manage_snapshots().set_current_snapshot(each.snapshot_id).commit()

    def become(self, anew: IcebergChangelog, mark: str, position: int) -> None:
        """Have the columns and rows of another table, in one commit: files stay where they are. `mark`: of
        that one. Raises `Unavailable` where either was changed meanwhile."""
        from pyiceberg.table import update

        table, written = self._table, anew._table
        metadata, snapshot = table.metadata, written.current_snapshot()
        if snapshot is None or written.properties.get(_MARK) != mark:
            raise Unavailable(f"{self._shown}: another program makes it anew, too", hint="it is tried again")
        loaded, schema_id = table.current_snapshot(), max(each.schema_id for each in metadata.schemas) + 1
        before = None if loaded is None else loaded.snapshot_id
        following = {
            "parent_snapshot_id": before,
            "sequence_number": metadata.last_sequence_number + 1,
            "schema_id": schema_id,
        }
        changes = (
            update.AddSchemaUpdate(schema=written.schema().model_copy(update={"schema_id": schema_id})),
            update.SetCurrentSchemaUpdate(schema_id=-1),
            update.AddSnapshotUpdate(snapshot=snapshot.model_copy(update=following)),
            update.SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot.snapshot_id),
            update.SetPropertiesUpdate(updates={self._app: str(position)}),
        )
        as_loaded = (
            update.AssertTableUUID(uuid=metadata.table_uuid),
            update.AssertRefSnapshotId(ref="main", snapshot_id=before),
            update.AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
        )
        with _told(self._shown):
            table.catalog.commit_table(table, as_loaded, changes)

    def append(self, rows: pa.RecordBatchReader, position: int) -> None:
        self._commit(position, lambda on, mark: on.append(rows, snapshot_properties=mark))

    def add(self, files: Sequence[DataFile], position: int) -> None:
        """Readers find columns in them by their names, as the table says."""
        root = self._table.location()
        paths = [f"{root}/{file.path}" for file in files]
        self._commit(
            position,
            lambda on, mark: on.add_files(paths, snapshot_properties=mark, check_duplicate_files=False),
        )

    def _commit(self, position: int, change: Callable[[Any, dict[str, str]], None]) -> None:
        """The library commits again, on what it finds then, after another program's commit: rows that came
        with that are not to come twice."""
        mark, table, before = {self._app: str(position)}, self._table, self.position

        def refresh() -> Any:
            refreshed = type(table).refresh(table)
            if self.position != before:
                raise _Moved
            return refreshed

        table.refresh = refresh
        try:
            with _told(self._shown), table.transaction() as transaction:
                transaction.set_properties(mark)
                change(transaction, mark)
        except _Moved:
            if self.position < position:
                raise Conflict(
                    f"{self._shown}: another drainer of this name wrote up to {self.position}",
                    hint="end the other one; give each Drainer a node-id of its own",
                ) from None
        finally:
            del table.refresh

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, those of one file at a time: of several the library reads ahead without a bound."""
        from pyiceberg.io.pyarrow import ArrowScan

        with _told(self._shown):
            scan = self._table.scan()
            reader = ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter)
            for task in scan.plan_files():
                yield from reader.to_record_batches([task])

    def compact(self, target_bytes: int) -> None:
        """The library cannot: other programs do it."""
        return

    def expire(self, age: datetime.timedelta) -> None:
        before = datetime.datetime.now(datetime.UTC) - age  # the library takes one without a zone for UTC
        with _told(self._shown):
            self._table.maintenance.expire_snapshots().older_than(before).commit()

"""Delta: changelogs as Delta tables, a directory each: WAREHOUSE/DATABASE/TABLE.

Drives  deltalake (delta-rs), without Java
Holds   rows, columns and the position are one commit. The position is the table's application transaction
        (`txn`) of this Drainer: app id is cluster and node, its version the commit_ts
Tests   tests/drainer/lake/test_lake_sink.py, tests/contract/test_lake_sinks.py
"""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from drainer.lake.changelog import schema_of
from drainer.lake.data_files import DataFile
from drainer.lake.lake_table import IDS, IMAGES, Lake, LakeTable, Name, plain
from drainer.places.place import Place
from tidb_binlog.errors import ConfigError, Conflict, DownstreamError, Unavailable
from tidb_binlog.observe.printable import one_line

_BATCH_ROWS: Final = 10_000
EXTRA_HINT: Final = "pip install 'tidb-binlog[delta]'"
WRITE_HINT: Final = "check the place, the network and the credentials in the environment; it is tried again"


def require() -> Any:
    """The library. Raises `ConfigError` where it is missing."""
    try:
        import deltalake
        import deltalake.exceptions
        import deltalake.transaction
    except ModuleNotFoundError as error:
        raise ConfigError('db-type = "delta" needs deltalake', hint=EXTRA_HINT) from error
    return deltalake


@contextlib.contextmanager
def _told(where: str) -> Iterator[None]:
    errors = require().exceptions
    try:
        yield
    except errors.TableNotFoundError:
        raise Conflict(
            f"the Delta table {where} is gone: another program has removed it",
            hint="start the drainer again: it goes on with an empty table; or restore the directory first",
        ) from None
    except (errors.SchemaMismatchError, errors.DeltaProtocolError) as error:
        raise DownstreamError(
            f"the Delta table {where} does not take the rows: {one_line(str(error))}",
            hint="another program has changed its columns or its protocol: undo that, or move the table away",
        ) from None
    except (errors.DeltaError, OSError, pa.ArrowException) as error:
        raise Unavailable(
            f"the Delta table {where} cannot be read or written: {one_line(str(error))}", hint=WRITE_HINT
        ) from None


class DeltaLake(Lake):
    """`app`: of this Drainer alone."""

    can_widen = False  # the library casts to the type that is there instead

    def __init__(self, warehouse: Place, app: str) -> None:
        self._warehouse = warehouse
        self._app = app
        require()

    def open(self) -> None:
        """See that there is a directory."""
        self._warehouse.make()

    def load(self, name: Name) -> DeltaChangelog | None:
        """Load a table, None if there is none."""
        uri = self._uri(name)
        with _told(uri):
            library = require()
            if not library.DeltaTable.is_deltatable(uri):
                return None
            return DeltaChangelog(library.DeltaTable(uri), uri, self._app)

    def create(self, name: Name, schema: pa.Schema, ids: str) -> DeltaChangelog:
        """Make a table."""
        uri = self._uri(name)
        with _told(uri):
            table = DeltaChangelog(require().DeltaTable.create(uri, schema), uri, self._app)
            table.remember(ids)
        return table

    def _uri(self, name: Name) -> str:
        place = self._warehouse.under(name[0]).under(name[1])
        return place.local or place.uri

    def close(self) -> None:
        """Nothing is held open."""
        return

    # -- of mirrors ------------------------------------------------------------------------------------

    @property
    def shown(self) -> str:
        """How it is called in messages."""
        return self._warehouse.shown

    def remove(self, name: Name) -> None:
        """Remove a table, if there is one."""
        self._warehouse.under(name[0]).under(name[1]).clear()

    def sql_name(self, name: Name) -> str:
        """How Spark calls a table."""
        return f"delta.`{self._uri(name)}`"

    @contextlib.contextmanager
    def replacing(
        self, name: Name, _table: DeltaChangelog | None, position: int
    ) -> Iterator[tuple[str, dict[str, str]]]:
        """The head of a statement that makes a table of rows and a position, and Spark's settings for it.
        Delta commits nothing where another one has changed the table meanwhile."""
        stored = f"'{self._app}' = '{position}'"
        head = f"CREATE OR REPLACE TABLE {self.sql_name(name)} USING delta TBLPROPERTIES ({stored}) AS"
        yield head, _settings(self._app, position)


def _settings(app: str, position: int) -> dict[str, str]:
    prefix = "spark.databricks.delta.write"
    return {f"{prefix}.txnAppId": app, f"{prefix}.txnVersion": str(position)}


class DeltaChangelog(LakeTable):
    """One table."""

    def __init__(self, table: Any, uri: str, app: str) -> None:
        self._table = table
        self._uri = uri
        self._app = app
        self._columns: dict[str, pa.DataType] = {}
        self._loaded()

    def _loaded(self) -> None:
        self._columns = plain(self.schema)

    @property
    def columns(self) -> dict[str, pa.DataType]:
        return self._columns

    @property
    def position(self) -> int:
        stored = self._table.metadata().configuration.get(self._app, 0)  # by `replacing`
        return max(int(self._table.transaction_version(self._app) or 0), int(stored))

    @property
    def ids(self) -> str:
        return str(self._table.metadata().configuration.get(IDS, ""))

    def refresh(self) -> None:
        with _told(self._uri):
            self._table = require().DeltaTable(self._uri)
            self._loaded()

    def remember(self, ids: str) -> None:
        with _told(self._uri):
            self._table.alter.set_table_properties({IDS: ids}, raise_if_not_exists=False)

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return pa.schema(self._table.schema().to_arrow())

    def add_columns(self, schema: pa.Schema) -> None:
        """Those that are lacking, also in structs."""
        fields = require().Schema.from_arrow(schema).fields
        with _told(self._uri):
            self._table.alter.add_columns(list(fields))

    @contextlib.contextmanager
    def merging(self, position: int) -> Iterator[dict[str, str]]:
        """Spark's settings for a MERGE into the table. Delta commits nothing where another one of this name
        has stored a position since it was planned."""
        yield _settings(self._app, position)

    def evolve(self, added: Mapping[str, pa.DataType], widened: Mapping[str, pa.DataType]) -> None:
        assert not widened
        self._columns = self._columns | dict(added)  # in the table with the rows, by `schema_mode`

    def _with(self, position: int) -> Any:
        library = require()
        return library.CommitProperties(app_transactions=[library.Transaction(self._app, position)])

    def append(self, rows: pa.RecordBatchReader, position: int) -> None:
        assert rows.schema == schema_of(self._columns)
        with _told(self._uri):
            require().write_deltalake(
                self._table, rows, mode="append", schema_mode="merge", commit_properties=self._with(position)
            )

    def add(self, files: Sequence[DataFile], position: int) -> None:
        """The library refuses what was committed under the same name since the table was loaded."""
        columns = schema_of(self._columns) if self._columns else self.schema  # of a mirror
        schema = require().Schema.from_arrow(columns)
        actions = [_addition(file) for file in files]
        with _told(self._uri):
            if plain(self.schema) != self._columns:
                images = [schema_of(self._columns).field(name) for name in IMAGES]
                self.add_columns(pa.schema(images))
            self._table.create_write_transaction(
                actions, "append", schema, commit_properties=self._with(position)
            )
            self._table.update_incremental()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, a few of them at a time."""
        with _told(self._uri):
            rows = self._table.to_pyarrow_dataset()
            yield from rows.to_batches(batch_size=_BATCH_ROWS, batch_readahead=1, fragment_readahead=1)

    def compact(self, target_bytes: int) -> None:
        with _told(self._uri):
            self._table.optimize.compact(target_size=target_bytes)

    def expire(self, age: datetime.timedelta) -> None:
        hours = int(age.total_seconds() // 3600)
        with _told(self._uri):
            self._table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)


def _addition(file: DataFile) -> Any:
    statistics: dict[str, Any] = {"numRecords": file.rows}
    if file.first_ts:
        statistics |= {
            "minValues": {"_commit_ts": file.first_ts},
            "maxValues": {"_commit_ts": file.last_ts},
            "nullCount": {"_commit_ts": 0},
        }
    written_ms = int(datetime.datetime.now().timestamp() * 1000)
    action = require().transaction.AddAction
    return action(file.path, file.size, {}, written_ms, True, json.dumps(statistics))

"""A database whose programs publish, and a downstream beside it on the same server; an upstream in memory."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace
from types import MappingProxyType, SimpleNamespace
from typing import Any

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.config.options import ENV_PREFIX, DrainerConfig
from drainer.mysql.connection import Connection, Target, connect
from drainer.points.load.counters import Counters
from drainer.points.load.load import Load, Loaded
from drainer.points.load.reconcile import Mode
from pumpclient import OutcomeTable
from pumpclient.schema import table_definition
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import ClusterView, NodeEntry
from tidb_binlog.config import loading
from tidb_binlog.ddl_job import ActionType, DdlJob, database_info
from tidb_binlog.table_info import TableInfo
from tidb_binlog.tso import Ts

SCHEMA, COPY, OUTCOMES = "load_app", "load_copy", "load_app.binlog_outcome"
CLUSTER = 7710435644538274662


class MemoryHistory:
    """Jobs as they are appended."""

    def __init__(self) -> None:
        self.jobs: list[bytes] = []

    async def pages(self, after_id: int = 0) -> AsyncIterator[list[bytes]]:
        yield [job for job in self.jobs if json.loads(job)["id"] > after_id]

    async def schema_at(self, ts: int) -> None:
        return None

    async def job(self, job_id: int) -> bytes | None:
        return next((job for job in self.jobs if json.loads(job)["id"] == job_id), None)


class NothingUnderWay:
    """A catalogue that nobody changes just now."""

    async def fence(self) -> None:
        pass


class MemoryOracle:
    def __init__(self) -> None:
        self._numbers = itertools.count(408012454863044609, 1 << 18)

    async def timestamp(self) -> Ts:
        return Ts(next(self._numbers))


class MemoryNodes:
    """A registry of drainers."""

    def __init__(self) -> None:
        self.drainers: dict[str, NodeEntry] = {}

    async def view(self) -> ClusterView:
        return ClusterView(1, MappingProxyType({}), MappingProxyType(dict(self.drainers)))

    async def put(self, kind: str, status: NodeStatus, expected: int | None) -> int:
        self.drainers[status.node_id] = NodeEntry(status, (expected or 0) + 1, None)
        return (expected or 0) + 1


@dataclass
class Bed:
    """`publish` is what a program says; what it does to its database is `run`."""

    server: MariaDbServer
    history: MemoryHistory = field(default_factory=MemoryHistory)
    oracle: MemoryOracle = field(default_factory=MemoryOracle)
    nodes: Any = field(default_factory=MemoryNodes)
    options: dict[str, Any] = field(default_factory=dict)
    cluster_id: int = CLUSTER
    _ids: Any = field(default_factory=lambda: itertools.count(100))
    _version: int = 0

    def __post_init__(self) -> None:
        self.clean()
        self.run(f"CREATE DATABASE {SCHEMA}")
        OutcomeTable(lambda: _Session(self.connect()), OUTCOMES).create()
        self.schema_id = next(self._ids)
        database = database_info(self.schema_id, SCHEMA)
        self.job(ActionType.CREATE_SCHEMA, db_info=database)

    @property
    def target(self) -> Target:
        return Target(self.server.host, self.server.port, self.server.user, self.server.password)

    @property
    def upstream(self) -> Any:
        return SimpleNamespace(
            cluster_id=self.cluster_id,
            oracle=self.oracle,
            history=self.history,
            garbage=None,
            catalog=NothingUnderWay(),
        )

    def connect(self) -> Connection:
        return connect(self.target)

    def run(self, *statements: str) -> None:
        connection = self.connect()
        connection.run(b"USE mysql")  # sequences of numbers want some database
        for statement in statements:
            connection.run(statement.encode())
        connection.commit()
        connection.close()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        connection = self.connect()
        try:
            return connection.rows(query.encode())
        finally:
            connection.close()

    def clean(self) -> None:
        self.run(*(f"DROP DATABASE IF EXISTS {name}" for name in (SCHEMA, COPY, "tidb_binlog")))

    def job(self, action: ActionType, **more: Any) -> None:
        """One DDL in the history."""
        self._version += 1
        job = DdlJob(
            next(self._ids),
            action,
            schema_id=self.schema_id,
            schema_version=self._version,
            **{"schema_name": SCHEMA, **more},
        )
        finished_ts = next(self.oracle._numbers)
        self.history.jobs.append(job.to_json(finished_ts))

    def publish(
        self,
        name: str,
        columns: Iterable[tuple[str, str]],
        primary_key: tuple[str, ...] = (),
        schema: str = SCHEMA,
    ) -> TableInfo:
        """CREATE TABLE, in the stream alone."""
        table_id = next(self._ids)
        made = [table_definition.column(column, kind) for column, kind in columns]
        table = replace(table_definition.table(name, made, primary_key), id=table_id)
        self.job(
            ActionType.CREATE_TABLE,
            table_id=table_id,
            schema_name=schema,
            table_name=name,
            table_info=table.to_json(),
        )
        return table

    def alter(
        self, action: ActionType, name: str, columns: Iterable[tuple[str, str]], *, key: bool = True
    ) -> None:
        """What became of a table with the key `id`, in the stream alone."""
        known = next(job for job in map(json.loads, self.history.jobs) if job["table_name"] == name)
        new_id = next(self._ids) if action == ActionType.TRUNCATE_TABLE else known["table_id"]
        new_name = f"{name}_2" if action == ActionType.RENAME_TABLE else name
        made = [table_definition.column(column, kind) for column, kind in columns]
        table = replace(table_definition.table(new_name, made, ("id",) if key else ()), id=new_id)
        self.job(
            action,
            table_id=known["table_id"],
            table_name=new_name,
            table_info=table.to_json(),
            query=f"RENAME TABLE {name} TO {new_name}",
        )

    def settings(self) -> DrainerConfig:
        """With a route: both sides are on one server."""
        server = self.server
        settings = loading.load(DrainerConfig, [], {}, program="drainer", env_prefix=ENV_PREFIX)
        route = {"source": {"schema": SCHEMA}, "target": {"schema": COPY}}
        given = {
            **{f"{side}_{key}": getattr(server, key) for side in ("from", "to") for key in _ACCOUNT},
            "from_outcome_table": OUTCOMES,
            "node_id": "load-test",
            "worker_count": 2,
            "table_migrate_rule": (route,),
            **self.options,
        }
        for name, value in given.items():
            object.__setattr__(settings, name, value)
        return settings

    async def load(self, mode: Mode = Mode.NEW, counters: Counters | None = None, **more: Any) -> Loaded:
        load = Load(self.settings(), self.upstream, self.nodes, mode=mode, counters=counters, **more)
        return await load.run()

    def contents(self, schema: str, table: str) -> list[tuple[Any, ...]]:
        return sorted(self.rows(f"SELECT * FROM {schema}.`{table}`"), key=repr)

    def is_equal(self, *tables: str) -> bool:
        return all(self.contents(SCHEMA, table) == self.contents(COPY, table) for table in tables)


_ACCOUNT = ("host", "port", "user", "password")


class _Session:
    """A connection as DB-API modules have them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.IntegrityError = Exception

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

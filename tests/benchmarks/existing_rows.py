"""Existing rows: sysbench's tables in a program's database, published without their rows; a downstream
that is empty.

Rows are made by the server itself, the same for the same numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from binlog_playground.cluster.cluster import Cluster, Node
from binlog_playground.cluster.mariadb import MariaDbServer
from pumpclient import column
from pumpclient.publish.publisher import open_publisher
from tests.benchmarks.settings import private_cluster
from tests.rig.cluster import start_application
from tests.rig.workload.application import Application

SCHEMA: Final = "sbtest"
DRAINER: Final = "drainer"
COLUMNS: Final = (
    ("id", "int", False),
    ("k", "int", False),
    ("c", "char(120)", False),
    ("pad", "char(60)", False),
)
CREATE: Final = (
    "CREATE TABLE {name} (id INT NOT NULL, k INT NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL,"
    " PRIMARY KEY (id), KEY k (k))"
)


def _digits(table: str, groups: int) -> str:
    """Groups of eleven digits, as sysbench writes them."""
    one = "LPAD(CRC32(CONCAT(seq, '-{1}-', {0})) * 23 % 100000000000, 11, '0')"
    return f"CONCAT_WS('-', {', '.join(one.format(number, table) for number in range(groups))})"


@dataclass(frozen=True, slots=True)
class Existing:
    """`tables` of `rows` each, in both of which nothing changes."""

    cluster: Cluster
    upstream: MariaDbServer
    tables: tuple[str, ...]
    rows: int
    drainer: Node
    """Of `config`, not started."""

    @property
    def downstream(self) -> MariaDbServer:
        return self.cluster.mariadb

    @property
    def config(self) -> Path:
        """A Drainer's, that would go on from there."""
        return self.cluster.config_of(DRAINER)

    def run(self, server: MariaDbServer, *statements: str) -> list[tuple[object, ...]]:
        """Rows of the last statement."""
        connection = server.open()
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def empty(self) -> None:
        """Downstream has nothing, and knows of nothing."""
        names = (SCHEMA, "tidb_binlog")
        self.run(self.downstream, *(f"DROP DATABASE IF EXISTS {name}" for name in names))

    def checksums(self, server: MariaDbServer) -> list[tuple[object, ...]]:
        """Of all tables, by the server."""
        names = ", ".join(f"{SCHEMA}.{name}" for name in self.tables)
        return self.run(server, f"CHECKSUM TABLE {names}")


@asynccontextmanager
async def existing(tables: int, rows: int) -> AsyncIterator[Existing]:
    """Everything is gone afterwards."""
    async with private_cluster() as cluster:
        await cluster.start_base(None)
        server = await start_application(cluster)
        await cluster.start_pumps(1)
        application = Application(server, SCHEMA)
        await asyncio.to_thread(application.create)
        names = tuple(f"sbtest{number}" for number in range(1, tables + 1))
        source = (
            f'[syncer.from]\nhost = "{server.host}"\nport = {server.port}\nuser = "{server.user}"\n'
            f'password = "{server.password}"\noutcome-table = "{application.outcome_table}"\n'
        )
        drainer = cluster.prepare_drainer(DRAINER, sections=source)
        made = Existing(cluster, server, names, rows, drainer)
        try:
            async with await open_publisher(
                cluster.etcd_endpoint, outcomes=application.outcomes
            ) as publisher:
                await publisher.create_database(SCHEMA)
                for name in names:
                    columns = [column(one, text, nullable=nullable) for one, text, nullable in COLUMNS]
                    await publisher.create_table(f"{SCHEMA}.{name}", columns, primary_key=["id"])
                    await publisher.add_index(f"{SCHEMA}.{name}", "k", ["k"])
                    await asyncio.to_thread(_fill, made, name)
        finally:
            application.close()
        yield made


def _fill(made: Existing, name: str) -> None:
    table = f"{SCHEMA}.{name}"
    made.run(
        made.upstream,
        CREATE.format(name=table),
        f"INSERT INTO {table} SELECT seq, CRC32(seq) % {made.rows}, {_digits(name, 10)}, {_digits(name, 5)}"
        f" FROM {SCHEMA}.seq_1_to_{made.rows}",
        f"ANALYZE TABLE {table}",
    )

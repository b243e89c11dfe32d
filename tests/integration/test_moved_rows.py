"""Two tables that are routed to one: rows that transactions move between them are downstream, once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from tests.integration.support import waiting_table
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import FLAG_NOT_NULL, FLAG_PRIMARY, LONG, Column, FieldType, TableInfo

pytestmark = pytest.mark.integration

COLUMNS = (
    Column(1, "id", 0, FieldType(LONG, FLAG_NOT_NULL | FLAG_PRIMARY)),
    Column(2, "v", 1, FieldType(LONG)),
)
TABLES = [TableInfo(101 + number, f"orders_{number}", COLUMNS, pk_is_handle=True) for number in range(2)]
ROUTE = (
    '[[syncer.table-migrate-rule]]\nsource = { schema = "quarantined", table = "orders_*" }\n'
    'target = { schema = "quarantined", table = "orders" }\n'
)
ROWS = 20


@pytest.mark.parametrize("further", ["", ", UNIQUE KEY u (v)"])
async def test_a_row_that_moves_is_there(
    etcd_clean: str, mariadb: MariaDbServer, free_port: Callable[[], int], tmp_path: Path, further: str
) -> None:
    """The table that it comes to is told first in half of the transactions."""
    old, new = (RowEncoder(table) for table in TABLES)
    async with waiting_table.cluster(etcd_clean, mariadb, free_port, tmp_path, ROUTE) as cluster:
        text = "(`id` INT PRIMARY KEY, `v` INT)"
        await cluster.create(*((table, f"CREATE TABLE `{table.name}` {text}") for table in TABLES))
        cluster.connection.run(b"CREATE DATABASE IF NOT EXISTS quarantined")
        cluster.connection.run(
            f"CREATE TABLE quarantined.orders (id INT PRIMARY KEY, v INT{further})".encode()
        )
        cluster.life.start()
        for number in range(ROWS):
            row = {"id": number, "v": number}
            async with cluster.publisher.transaction(ttl_s=300.0) as transaction:
                transaction.insert(TABLES[0].id, old.insert(row))
        for number in range(ROWS):
            row = {"id": number, "v": number}
            async with cluster.publisher.transaction(ttl_s=300.0) as transaction:
                if number % 2:
                    transaction.insert(TABLES[1].id, new.insert(row))
                transaction.delete(TABLES[0].id, old.delete(row))
                if not number % 2:
                    transaction.insert(TABLES[1].id, new.insert(row))
        async with cluster.publisher.transaction(ttl_s=300.0) as transaction:
            transaction.insert(TABLES[0].id, old.insert({"id": ROWS, "v": ROWS}))
        here, there = {"id": ROWS, "v": ROWS}, {"id": 0, "v": 0}
        async with cluster.publisher.transaction(ttl_s=300.0) as transaction:  # in both directions
            transaction.insert(TABLES[0].id, old.insert(there))
            transaction.delete(TABLES[0].id, old.delete(here))
            transaction.insert(TABLES[1].id, new.insert(here))
            transaction.delete(TABLES[1].id, new.delete(there))
            last = transaction
        await cluster.life.until(
            lambda: cluster.life.ask("/status")["LastTS"] >= last.commit_ts, "all is downstream"
        )
        rows = cluster.connection.rows(b"SELECT id, v FROM quarantined.orders ORDER BY id")
    assert [(int(key), int(value)) for key, value in rows] == [(n, n) for n in range(ROWS + 1)]

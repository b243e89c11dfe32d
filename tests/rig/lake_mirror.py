"""Lake mirror: a shop that a stream of Spark mirrors in a lake, and what DuckDB finds there.

Drives  a publisher: inserts, updates, deletes and a column that is added; then DuckDB over the Delta tables
Holds   what must be there is the model of what was written, which knows nothing of binlogs
Tests   tests/rig/test_lake_mirror.py, tests/spark/test_demo_of_spark.py
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, Final

import duckdb
from deltalake import DeltaTable

from pumpclient import Publisher, column
from tidb_binlog.tso import Ts

SCHEMA: Final = "shop"
COLUMNS: Final = {
    "customers": [column("id", "int"), column("name", "varchar(40)")],
    "orders": [column("id", "int"), column("customer", "int"), column("amount", "decimal(8,2)")],
}
KEYS: Final = range(1000)
TRANSACTIONS: Final = 200  # before orders get another column, and after it
ROWS: Final = 10  # of each table in a transaction
CHANGES: Final = 2 * TRANSACTIONS * len(COLUMNS) * ROWS
QUERY: Final = """\
SELECT state, count(*) AS orders, count(DISTINCT name) AS customers, sum(amount) AS amount
FROM orders JOIN customers ON customers.id = customer GROUP BY state ORDER BY state"""
Rows = dict[str, dict[int, dict[str, Any]]]  # of each table by key, as they are upstream


async def write(publisher: Publisher, seed: int) -> tuple[Ts, Rows]:
    """The whole history: the commit_ts that it begins with, and the rows at its end."""
    random, tables = Random(seed), Rows({table: {} for table in COLUMNS})
    begin_ts = await publisher.create_database(SCHEMA)
    for table, columns in COLUMNS.items():
        await publisher.create_table(f"{SCHEMA}.{table}", columns, primary_key=["id"])
    await _write_rows(publisher, random, tables)
    await publisher.add_column(f"{SCHEMA}.orders", column("state", "varchar(10)", default="open"))
    tables["orders"] = {key: row | {"state": "open"} for key, row in tables["orders"].items()}
    await _write_rows(publisher, random, tables, "open", "paid", None)
    return begin_ts, tables


async def _write_rows(publisher: Publisher, random: Random, tables: Rows, *states: str | None) -> None:
    for _ in range(TRANSACTIONS):
        async with publisher.transaction() as txn:
            for table, rows in tables.items():
                for key in random.sample(KEYS, ROWS):
                    before, number = rows.pop(key, None), random.randrange(1_000_000)
                    if before is not None and number % 3 == 0:
                        txn.delete(f"{SCHEMA}.{table}", before)
                        continue
                    order = {"customer": number % len(KEYS), "amount": Decimal(number).scaleb(-2)}
                    order |= {"state": random.choice(states)} if states else {}
                    rows[key] = {"id": key} | (order if table == "orders" else {"name": f"customer {number}"})
                    if before is None:
                        txn.insert(f"{SCHEMA}.{table}", rows[key])
                    else:
                        txn.update(f"{SCHEMA}.{table}", before, rows[key])


def differing(tables: Rows, warehouse: Path) -> tuple[str, list[str]]:
    """What DuckDB answers over the mirrors, and what it sees otherwise there, row by row."""
    differences = []
    with duckdb.connect() as lake:
        for table, rows in tables.items():
            lake.register(table, DeltaTable(str(warehouse / SCHEMA / table)).to_pyarrow_table())
            seen = Counter(lake.sql(f"FROM {table}").fetchall())
            must = Counter((*row.values(), None) for row in rows.values())  # None: all values have fit
            differences += [f"{table} lacks {row}" for row in must - seen]
            differences += [f"{table} has {row}" for row in seen - must]
        return str(lake.sql(QUERY)), differences

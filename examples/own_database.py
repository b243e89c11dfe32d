"""Exactly once into a database of one's own: sums by a column, wrong if one row were counted twice.

    .venv/bin/python examples/own_database.py --etcd 127.0.0.1:2379 --database sums.db shop.orders item price

The position is written in the transaction of the rows, and the stream begins there: a kill at any place loses
nothing and repeats nothing. The stream's own position (`done`) tells the pumps what they need not keep any
longer. SQLite here; any database with transactions does.
"""

from __future__ import annotations

import argparse
import sqlite3

import drainer

SCHEMA = """
CREATE TABLE IF NOT EXISTS total (category TEXT PRIMARY KEY, rows INTEGER NOT NULL, amount REAL NOT NULL);
CREATE TABLE IF NOT EXISTS position (commit_ts INTEGER NOT NULL);
"""
ADD = (
    "INSERT INTO total VALUES (?, ?, ?) ON CONFLICT (category)"
    " DO UPDATE SET rows = rows + excluded.rows, amount = amount + excluded.amount"
)


def apply(database: sqlite3.Connection, txn: drainer.Transaction, category: str, amount: str) -> None:
    """The rows of a transaction and its position, both or neither."""
    with database:
        for row in txn.rows:
            if row.before is not None:
                database.execute(ADD, (row.before[category], -1, -float(row.before[amount])))
            if row.after is not None:
                database.execute(ADD, (row.after[category], 1, float(row.after[amount])))
        database.execute("DELETE FROM position")
        database.execute("INSERT INTO position VALUES (?)", (txn.commit_ts,))


def apply_ddl(database: sqlite3.Connection, ddl: drainer.Ddl) -> None:
    """What a schema change does to the sums, and its position. Ends the program where rows came, went or got
    other values that the stream does not give: a sum would be wrong."""
    effect = ddl.effect
    if effect.reread or effect.everything:
        raise SystemExit(
            f"sums cannot go on: rows became others without row changes, by {ddl.query!r}: read them from the"
            f" upstream as of {ddl.commit_ts}, write that into `position`, and start again"
        )
    with database:
        if effect.emptied:  # the one table that is read has no row left
            database.execute("DELETE FROM total")
        database.execute("DELETE FROM position")
        database.execute("INSERT INTO position VALUES (?)", (ddl.commit_ts,))


def follow(etcd: str, path: str, table: str, category: str, amount: str) -> None:
    """Until the process ends."""
    database = sqlite3.connect(path)
    database.executescript(SCHEMA)
    (position,) = database.execute("SELECT max(commit_ts) FROM position").fetchone()
    with drainer.subscribe_sync(
        etcd, tables=[table], start=position or "oldest", name="totals", missing_ok=position is not None
    ) as stream:
        for item in stream:
            if isinstance(item, drainer.Transaction):
                apply(database, item, category, amount)
            else:
                apply_ddl(database, item)
            stream.done(item)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--etcd", default="127.0.0.1:2379")
    parser.add_argument("--database", default="totals.db")
    parser.add_argument("table")
    parser.add_argument("category")
    parser.add_argument("amount")
    options = parser.parse_args()
    follow(options.etcd, options.database, options.table, options.category, options.amount)


if __name__ == "__main__":
    main()

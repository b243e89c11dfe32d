"""Money moves between two accounts: rows change in the application's MariaDB and arrive downstream, with no
outbox table, no second writer and no polling.

    .venv/bin/python examples/transfer.py --etcd 127.0.0.1:2379 --user root --password ... 1 2 30

What it needs: an etcd with a pump (and a drainer that applies to another server, or to another database of
the same one), and a MariaDB or MySQL in which it may create the database `app_bank`.
"""

from __future__ import annotations

import argparse
from typing import Any

import pymysql
from pymysql.cursors import DictCursor

import pumpclient
from pumpclient import OutcomeTable, SyncPublisher, column

CREATE = (
    "CREATE DATABASE IF NOT EXISTS app_bank",
    "CREATE TABLE IF NOT EXISTS app_bank.account"
    " (id BIGINT PRIMARY KEY, owner VARCHAR(40) NOT NULL, balance DECIMAL(12,2) NOT NULL)",
)


def transfer(connection: Any, publisher: SyncPublisher, source: int, target: int, amount: int) -> int:
    """Move `amount` from one account to another; the commit_ts, which the drainer's checkpoint will pass.

    Whatever dies, and whenever: downstream has the change exactly if `connection`'s database has it.
    """
    try:
        with publisher.transaction() as txn, connection.cursor(DictCursor) as cursor:
            cursor.execute("SELECT * FROM account WHERE id IN (%s, %s) FOR UPDATE", (source, target))
            before = {row["id"]: row for row in cursor.fetchall()}
            if before[source]["balance"] < amount:
                raise ValueError(f"account {source} has less than {amount}")
            for account, change in ((source, -amount), (target, amount)):
                after = {**before[account], "balance": before[account]["balance"] + change}
                cursor.execute("UPDATE account SET balance = %s WHERE id = %s", (after["balance"], account))
                txn.update("bank.account", before[account], after)
            return txn.commit_in(connection)
    except BaseException:
        connection.rollback()
        raise


def open_account(connection: Any, publisher: SyncPublisher, number: int, owner: str, balance: int) -> int:
    """A new account; the commit_ts."""
    try:
        with publisher.transaction() as txn, connection.cursor() as cursor:
            cursor.execute("INSERT INTO account VALUES (%s, %s, %s)", (number, owner, balance))
            txn.insert("bank.account", {"id": number, "owner": owner, "balance": balance})
            return txn.commit_in(connection)
    except BaseException:
        connection.rollback()
        raise


def create(account: dict[str, Any], outcomes: OutcomeTable) -> None:
    """The tables of the application, where they are not there."""
    connection = pymysql.connect(**{**account, "database": None})
    with connection, connection.cursor() as cursor:
        for statement in CREATE:
            cursor.execute(statement)
    outcomes.create()


def publish_schema(publisher: SyncPublisher) -> None:
    """The same tables for the stream; nothing happens where they are published already."""
    publisher.create_database("bank", if_not_exists=True)
    publisher.create_table(
        "bank.account",
        [
            column("id", "bigint", nullable=False),
            column("owner", "varchar(40)", nullable=False),
            column("balance", "decimal(12,2)", nullable=False),
        ],
        primary_key=["id"],
        if_not_exists=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--etcd", default="127.0.0.1:2379")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=3306)
    parser.add_argument("--user", default="root")
    parser.add_argument("--password", default="")
    parser.add_argument("source", type=int)
    parser.add_argument("target", type=int)
    parser.add_argument("amount", type=int)
    options = parser.parse_args()
    account = {
        "host": options.host,
        "port": options.port,
        "user": options.user,
        "password": options.password,
        "database": "app_bank",
    }
    outcomes = OutcomeTable(lambda: pymysql.connect(**account))
    create(account, outcomes)
    with (
        pumpclient.open_publisher_sync(options.etcd, outcomes=outcomes) as publisher,
        pymysql.connect(**account) as connection,
    ):
        publish_schema(publisher)
        with connection.cursor() as cursor:
            cursor.execute("SELECT id FROM account WHERE id IN (%s, %s)", (options.source, options.target))
            known = {row[0] for row in cursor.fetchall()}
        connection.rollback()
        for number in sorted({options.source, options.target} - known):
            open_account(connection, publisher, number, f"owner {number}", 100)
        commit_ts = transfer(connection, publisher, options.source, options.target, options.amount)
        print("committed at", commit_ts)


if __name__ == "__main__":
    main()

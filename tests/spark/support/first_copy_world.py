"""A database to copy, as a TiDB has it, and what a program publishes of it."""

from __future__ import annotations

from drainer.mysql.connection import Connection
from pumpclient import Publisher, column
from tests.fakes.tidb_sql import ROWID

VERSIONED = "WITH SYSTEM VERSIONING"


async def app(publisher: Publisher, connection: Connection, rows: int = 50_000) -> None:
    """A database of three tables, in the stream and upstream."""
    connection.run(b"CREATE DATABASE m_app")
    await publisher.create_database("m_app")
    texts = [column("id", "int", nullable=False), column("v", "varchar(60)")]
    await publisher.create_table("m_app.keyed", texts, primary_key=["id"])
    await publisher.create_table("m_app.plain", texts, primary_key=[])
    named = [column("code", "varchar(20)", nullable=False), column("v", "varchar(60)")]
    await publisher.create_table("m_app.named", named, primary_key=["code"])
    for statement in (
        f"CREATE TABLE m_app.keyed (id INT PRIMARY KEY, v VARCHAR(60)) {VERSIONED}",
        f"CREATE TABLE m_app.plain (id INT NOT NULL, v VARCHAR(60), {ROWID}) {VERSIONED}",
        f"CREATE TABLE m_app.named (code VARCHAR(20) PRIMARY KEY, v VARCHAR(60)) {VERSIONED}",
        f"INSERT INTO m_app.keyed SELECT seq, REPEAT('x', 50) FROM m.seq_1_to_{rows}",
        f"INSERT INTO m_app.plain (id, v) SELECT seq DIV 2, REPEAT('x', 50) FROM m.seq_1_to_{rows}",
        "INSERT INTO m_app.named SELECT CONCAT('c', seq), 'x' FROM m.seq_1_to_500",
    ):
        connection.run(statement.encode())


async def change(publisher: Publisher, connection: Connection, number: int) -> None:
    """Rows come, change and go, in the stream and upstream."""
    old, new = {"id": number, "v": "x" * 50}, {"id": number, "v": "changed"}
    async with publisher.transaction() as txn:
        txn.update("m_app.keyed", old, new)
        txn.insert("m_app.keyed", {"id": 70_000 + number, "v": "new"})
        txn.insert("m_app.plain", {"id": number, "v": "new"}, rowid=70_000 + number)
        txn.delete("m_app.named", {"code": f"c{number}", "v": "x"})
    for statement in (
        f"UPDATE m_app.keyed SET v = 'changed' WHERE id = {number}",
        f"INSERT INTO m_app.keyed VALUES ({70_000 + number}, 'new')",
        f"INSERT INTO m_app.plain (id, v) VALUES ({number}, 'new')",
        f"DELETE FROM m_app.named WHERE code = 'c{number}'",
    ):
        connection.run(statement.encode())

"""A shop that is loaded into a downstream before its changes are applied."""

from __future__ import annotations

import asyncio
import time
import urllib.error
import urllib.request

import pumpclient
from drainer.mysql.connection import Connection
from tests.forked import Forked
from tests.rig.workload.application import Application
from tests.waiting import PATIENCE_S

SCHEMA, COPY = "first_app", "first_copy"


ROWS = 3_000


class Shop:
    """A program with rows of before it published; what it commits from now on is in the stream."""

    def __init__(self, application: Application, publisher: pumpclient.Publisher, rows: int = ROWS) -> None:
        self._application = application
        self._publisher = publisher
        self._rows = rows
        self._next = rows + 1

    async def begin(self) -> None:
        with self._application.session() as session:
            session.run(b"USE mysql")
            for name, key in ((b"keyed", b", PRIMARY KEY (id)"), (b"plain", b"")):
                table = SCHEMA.encode() + b"." + name
                session.run(b"CREATE TABLE %b (id INT NOT NULL, v VARCHAR(60)%b)" % (table, key))
                session.run(
                    b"INSERT INTO %b SELECT seq, REPEAT('x', 50) FROM seq_1_to_%d" % (table, self._rows)
                )
            session.commit()
        await self._publisher.create_database(SCHEMA)
        columns = [pumpclient.column("id", "int", nullable=False), pumpclient.column("v", "varchar(60)")]
        await self._publisher.create_table(f"{SCHEMA}.keyed", columns, primary_key=["id"])
        await self._publisher.create_table(f"{SCHEMA}.plain", columns)

    async def write(self) -> None:
        """One transaction: a row in each table."""
        number, self._next = self._next, self._next + 1
        session = self._application.take()
        async with self._publisher.transaction() as transaction:
            for table in ("keyed", "plain"):
                session.run(f"INSERT INTO {SCHEMA}.{table} VALUES ({number}, 'new')".encode())
                rowid = {} if table == "keyed" else {"rowid": number}
                transaction.insert(f"{SCHEMA}.{table}", {"id": number, "v": "new"}, **rowid)
            # A snapshot of the database makes marks wait, and may be taken by this process.
            await asyncio.to_thread(self._application.outcomes.mark, session, transaction.start_ts)
            await transaction.prepare()
            await asyncio.to_thread(session.commit)
            await transaction.commit()
        self._application.give(session)


async def equal(connection: Connection, drainer: Forked) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        connection.rollback()
        found = [
            connection.rows_if_there(f"SELECT * FROM {schema}.{table} ORDER BY id".encode())
            for schema in (SCHEMA, COPY)
            for table in ("keyed", "plain")
        ]
        if found[:2] == found[2:]:
            return
        assert drainer.poll() is None, f"drainer ended with {drainer.returncode}"
        assert time.monotonic() < end, "the downstream does not become equal"
        await asyncio.sleep(0.1)


async def answers(url: str, process: Forked) -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        assert process.poll() is None, f"ended with {process.returncode}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S):
                return
        except OSError:
            await asyncio.sleep(0.1)
    raise AssertionError(f"{url} does not answer")

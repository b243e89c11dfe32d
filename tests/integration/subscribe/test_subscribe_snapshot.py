"""`subscribe(snapshot=...)`: rows of a program's MariaDB at one moment, then the stream, each change once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import drainer
import pumpclient
from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Connection, Target, connect
from drainer.points.load import table_copy
from pumpclient import column
from pumpclient.schema.table_definition import create_text, table
from tests.drainer.mysql.chunks.column_values import JSONS, VALUES
from tests.integration.support.copied_shop import SCHEMA, Shop
from tests.pump.conftest import pump as pump
from tests.pump.support.process import PumpProcess, Start
from tests.rig.workload.application import Application
from tests.waiting import PATIENCE_S
from tidb_binlog.errors import ConfigError
from tidb_binlog.etcd.registry import connect_registry

pytestmark = pytest.mark.integration
TABLES = [f"{SCHEMA}.keyed", f"{SCHEMA}.plain"]
ROWS = 3000
PROGRAM = """
import json, os, signal, sqlite3, sys
import drainer
from drainer.points.load import table_copy

endpoint, path, snapshot, tables, after = *sys.argv[1:3], *map(json.loads, sys.argv[3:])
table_copy.CHUNK_ROWS_MAX = 400
store = sqlite3.connect(path, isolation_level=None)
store.execute("CREATE TABLE IF NOT EXISTS rows (name, id, v)")
store.execute("CREATE TABLE IF NOT EXISTS kept (position)")


def position():
    found = store.execute("SELECT position FROM kept").fetchone()
    return found[0] if found else 0


def run():
    global after
    options = {"tables": tables, "snapshot": snapshot, "start": position()}
    with drainer.subscribe_sync(endpoint, stop=None if after > 0 else "now", **options) as stream:
        for change in stream:
            if isinstance(change, drainer.Ddl):
                continue
            store.execute("BEGIN")
            for row in change.rows:
                assert row.kind == "insert", row
                values = (row.table.name, row.after["id"], row.after["v"])
                store.execute("INSERT INTO rows VALUES (?, ?, ?)", values)
            store.execute("DELETE FROM kept")
            store.execute("INSERT INTO kept VALUES (?)", (change.snapshot or change.commit_ts,))
            store.execute("COMMIT")
            after -= 1
            if after == 0:
                os.kill(os.getpid(), signal.SIGKILL)


try:
    run()
except drainer.SnapshotLost as error:
    print("lost", error.hint, flush=True)
    store.execute("DELETE FROM rows")
    store.execute("DELETE FROM kept")
    run()
"""


class World:
    """A shop that writes all the time."""

    def __init__(self, mariadb: MariaDbServer, endpoint: str) -> None:
        self.endpoint = endpoint
        self.account = {
            "host": mariadb.host,
            "port": mariadb.port,
            "user": mariadb.user,
            "password": mariadb.password,
            "outcome-table": f"{SCHEMA}.binlog_outcome",
        }
        self.connection = connect(Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password))
        self._is_to_stop = False
        self.shop: Shop
        self.publisher: pumpclient.Publisher

    async def write(self) -> None:
        while not self._is_to_stop:
            await self.shop.write()

    async def stop(self, writing: asyncio.Task[None]) -> None:
        """Between two transactions: the next snapshot would wait for the locks of one cut off."""
        self._is_to_stop = True
        await writing
        await self.shop.write()
        await self.publisher.flush()

    def subscribe(self, **more: Any) -> drainer.Subscription:
        return drainer.subscribe(self.endpoint, tables=TABLES, snapshot=self.account, **more)

    def contents(self) -> Counter[tuple[str, int, str]]:
        self.connection.rollback()
        return Counter(
            (name, number, text)
            for name in ("keyed", "plain")
            for number, text in self.connection.rows(f"SELECT id, v FROM {SCHEMA}.{name}".encode())
        )


@pytest.fixture
async def one_pump(pump: Start) -> PumpProcess:
    process = pump("-node-id=p1", "-heartbeat-interval=200ms")
    await process.start_and_wait()
    return process


@pytest.fixture
async def world(
    one_pump: PumpProcess, mariadb: MariaDbServer, etcd_clean: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    monkeypatch.setattr(table_copy, "CHUNK_ROWS_MAX", 400)
    made = World(mariadb, etcd_clean)
    application = Application(mariadb, SCHEMA)
    application.create()
    try:
        async with pumpclient.open_publisher(etcd_clean, outcomes=application.outcomes) as publisher:
            made.publisher, made.shop = publisher, Shop(application, publisher, ROWS)
            await made.shop.begin()
            yield made
    finally:
        made.connection.rollback()
        made.connection.run(f"DROP DATABASE IF EXISTS {SCHEMA}".encode())
        made.connection.close()
        application.close()


def rows_of(change: drainer.Transaction | drainer.Ddl) -> list[tuple[str, int, str]]:
    assert isinstance(change, drainer.Transaction)
    return [(row.table.name, *row.after.values()) for row in change.rows if row.after]


async def test_each_row_and_each_change_comes_once_while_a_program_writes(world: World) -> None:
    writing = asyncio.create_task(world.write())
    found: Counter[tuple[str, int, str]] = Counter()
    moments = []
    async with world.subscribe() as stream:
        async for change in stream:
            found.update(rows_of(change))
            moments.append((change.commit_ts, bool(change.snapshot)))  # type: ignore[union-attr]
            if not moments[-1][1] and writing.done():
                if found.total() == world.contents().total():
                    break
            elif not moments[-1][1] and moments[-1][0] > moments[0][0]:
                await world.stop(writing)
            else:
                assert stream.position in (0, change.commit_ts)
    at = moments.index(next(one for one in moments if not one[1]))
    assert at > 5
    assert len({ts for ts, _ in moments[:at]}) == 1
    assert not any(of_snapshot for _, of_snapshot in moments[at:])
    assert [ts for ts, _ in moments[at - 1 :]] == sorted({ts for ts, _ in moments[at - 1 :]})
    assert found == world.contents()


async def test_a_program_that_is_killed_anywhere_ends_with_the_same_rows(
    world: World, tmp_path: Path
) -> None:
    """A MariaDB shows T to one process: the program forgets and begins anew. Later it only goes on."""
    path = tmp_path / "rows.db"
    writing = asyncio.create_task(world.write())
    printed = []
    for after in (2, 4, 30, 40, -1):
        if after < 0:
            await world.stop(writing)
        printed.append(await lived(world, path, after))
    assert ["lost" in text for text in printed] == [False, True, True, False, False]
    found = Counter(sqlite3.connect(path).execute("SELECT * FROM rows").fetchall())
    assert found == world.contents()


async def lived(world: World, path: Path, after: int) -> str:
    """What a life printed: killed after so many transactions, to the end with -1."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, world.endpoint.removeprefix("http://"), str(path)),
        *map(json.dumps, (world.account, TABLES, after)),
        stdout=asyncio.subprocess.PIPE,
    )
    text, _ = await process.communicate()
    assert process.returncode == (0 if after < 0 else -signal.SIGKILL)
    return text.decode()


async def test_pumps_keep_what_follows_for_a_reader_with_a_name(world: World) -> None:
    registry = await connect_registry(world.endpoint)

    async def entry() -> Any:
        return (await registry.view()).drainers["search"].status

    async with world.subscribe(name="search") as stream:
        first = await anext(stream)
        assert isinstance(first, drainer.Transaction)
        await stream.done(first, stored=True)
        assert (await entry()).max_commit_ts == first.commit_ts - 1
        assert (await entry()).labels["snapshot"] == first.snapshot
        assert stream.position == 0
    with pytest.raises(ConfigError, match="lies in a snapshot"):
        async with drainer.subscribe(world.endpoint, tables=TABLES, name="search"):
            pass
    with pytest.raises(drainer.SnapshotLost, match="does not show") as lost:
        async with world.subscribe(name="search"):
            pass
    assert "start=0" in lost.value.hint
    found: Counter[tuple[str, int, str]] = Counter()
    async with world.subscribe(name="search", start=0) as stream:
        while stream.position == 0:
            change = await anext(stream)
            found.update(rows_of(change))
            await stream.done(change)
        assert change.commit_ts == stream.position > first.commit_ts
        assert found == world.contents()
        with pytest.raises(drainer.NotGiven):
            await stream.done(drainer.Transaction(change.commit_ts + 1, 0, []))
    assert (await entry()).max_commit_ts >= change.commit_ts
    assert "snapshot" not in (await entry()).labels
    await world.shop.write()
    async with world.subscribe(name="search") as stream, asyncio.timeout(PATIENCE_S):
        following = await anext(stream)
        assert isinstance(following, drainer.Transaction)
        assert not following.snapshot
        found.update(rows_of(following))
    assert found == world.contents()
    await registry.close()


async def test_arguments_that_contradict_each_other(world: World) -> None:
    with pytest.raises(ConfigError, match="the stream is to follow a snapshot"):
        async with world.subscribe(start="-10m"):
            pass
    with pytest.raises(ConfigError, match="no key of"):
        drainer.subscribe(world.endpoint, snapshot={"hosts": "a"})
    with pytest.raises(ConfigError, match="no position of a snapshot"):
        async with world.subscribe(start="snapshot:7"):
            pass
    async with world.subscribe(stop="now") as stream:
        changes = [change async for change in stream]
    assert [row for change in changes for row in rows_of(change)]


async def test_rules_see_the_rows(world: World) -> None:
    rules = {
        "table-migrate-rule": [
            {
                "source": {"schema": SCHEMA, "table": "keyed"},
                "target": {"schema": SCHEMA, "table": "all"},
            }
        ],
        "row-rule": [{"db-name": SCHEMA, "tbl-name": "keyed", "where": "id <= 10"}],
    }
    async with drainer.subscribe(
        world.endpoint, tables=[f"{SCHEMA}.keyed"], rules=rules, snapshot=world.account, stop="now"
    ) as stream:
        found = [row async for change in stream for row in rows_of(change)]
    assert sorted(found) == [("all", number, "x" * 50) for number in range(1, 11)]


async def test_a_column_has_the_same_values_in_a_snapshot_and_in_the_stream(world: World) -> None:
    values = {**VALUES, "json": JSONS}
    columns = [column("id", "int", nullable=False)]
    columns += [column(f"c{number}", kind) for number, kind in enumerate(values)]
    info = table("types", columns, ("id",))
    await asyncio.to_thread(fill, world.connection, create_text(info, columns, ("id",)), values)
    await world.publisher.create_table(f"{SCHEMA}.types", columns, primary_key=["id"])
    async with drainer.subscribe(
        world.endpoint, tables=[f"{SCHEMA}.types"], snapshot=world.account
    ) as stream:
        stood = []
        while stream.position == 0:
            change = await anext(stream)
            assert isinstance(change, drainer.Transaction)
            stood += change.rows
        async with world.publisher.transaction() as transaction:
            for row in stood:
                assert row.after is not None
                transaction.delete(f"{SCHEMA}.types", row.after)  # also what no insert may have
        async with asyncio.timeout(PATIENCE_S):
            following = await anext(stream)
    assert isinstance(following, drainer.Transaction)
    came = list(following.rows)
    assert len(came) == len(stood) == max(map(len, values.values()))
    for one, other in zip(stood, came, strict=True):
        assert one.after is not None
        assert other.before is not None
        assert one.after == other.before
        kinds = {name: type(value) for name, value in one.after.items()}
        assert kinds == {name: type(value) for name, value in other.before.items()}


def fill(connection: Connection, create: str, values: dict[str, list[str]]) -> None:
    """Each value of each type once at least."""
    connection.select_db(SCHEMA)
    with contextlib.suppress(Exception):
        connection.run(b"SET SESSION sql_mode = ''")
    connection.run(create.encode())
    for number in range(max(map(len, values.values()))):
        shown = ",".join(some[number % len(some)] for some in values.values())
        connection.run(f"INSERT INTO types VALUES ({number},{shown})".encode())
    connection.commit()

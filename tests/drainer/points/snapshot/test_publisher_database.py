"""Every transaction is in exactly one of both: the snapshot of its database, and the stream above T."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import closing

import pymysql
import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.config.downstream import upstream_target_of
from drainer.config.options import ENV_PREFIX, DrainerConfig
from drainer.mysql.connection import Connection, Target
from drainer.mysql.errors import ConnectionLost
from drainer.points.snapshot.moment import open_upstream_snapshot
from drainer.points.snapshot.publisher_database import Patience, open_publisher_snapshot
from drainer.points.snapshot.sessions import SnapshotLost, UpstreamSnapshot
from pumpclient import OutcomeTable, Publisher
from pumpclient.testing import MemoryCluster
from tidb_binlog.config import loading
from tidb_binlog.errors import ConfigError, Rejected, Unavailable
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.standalone import NothingCollected
from tidb_binlog.upstream_port import Upstream

pytestmark = pytest.mark.integration

TABLE = "snapshot_app.binlog_outcome"
WRITERS, SNAPSHOTS, SESSIONS = 5, 12, 3


class Database:
    """The application's; as a program would reach it."""

    def __init__(self, server: MariaDbServer) -> None:
        self.server = server
        self.outcomes = OutcomeTable(self.connect, TABLE)
        self.run("DROP DATABASE IF EXISTS snapshot_app", "CREATE DATABASE snapshot_app")
        self.run("CREATE TABLE snapshot_app.a (id BIGINT PRIMARY KEY)")
        self.run("CREATE TABLE snapshot_app.b (id BIGINT PRIMARY KEY)")
        self.outcomes.create()

    def connect(self, **options: object) -> pymysql.Connection[pymysql.cursors.Cursor]:
        server = self.server
        return pymysql.connect(
            host=server.host,
            port=server.port,
            user=server.user,
            password=server.password,
            ssl_disabled=True,
            **options,  # type: ignore[arg-type]
        )

    def run(self, *statements: str) -> None:
        with closing(self.connect(autocommit=True)) as connection:
            for statement in statements:
                connection.cursor().execute(statement)

    def settings(self, **more: str) -> DrainerConfig:
        server = self.server
        given = {"host": server.host, "user": server.user, "password": server.password} | more
        settings = loading.load(DrainerConfig, [], {}, program="drainer", env_prefix=ENV_PREFIX)
        for name, value in {"port": server.port, "outcome_table": TABLE, **given}.items():
            object.__setattr__(settings, f"from_{name}", value)
        return settings


@pytest.fixture(scope="module")
def database(mariadb: MariaDbServer) -> Iterator[Database]:
    made = Database(mariadb)
    yield made
    made.run("DROP DATABASE snapshot_app")


@pytest.fixture
def memory(database: Database) -> MemoryCluster:
    """One that has given no timestamp, so the database is emptied too."""
    database.run(
        f"DELETE FROM {TABLE} WHERE start_ts > 0", "DELETE FROM snapshot_app.a", "DELETE FROM snapshot_app.b"
    )
    return MemoryCluster(["pump"])


@pytest.fixture
async def publisher(database: Database, memory: MemoryCluster) -> AsyncIterator[Publisher]:
    made = await memory.publisher(database.outcomes)
    yield made
    await made.close(drain_s=0.0)


async def open_now(database: Database, memory: MemoryCluster, sessions: int = 1) -> UpstreamSnapshot:
    return await open_upstream_snapshot(database.settings(), upstream_of(memory), sessions)


def upstream_of(memory: MemoryCluster) -> Upstream:
    """Timestamps are all that is asked of it."""
    return memory.upstream  # type: ignore[return-value]


def target_of(database: Database) -> Target:
    return upstream_target_of(database.settings())


def sessions_of(database: Database) -> set[int]:
    with closing(database.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT ID FROM information_schema.PROCESSLIST WHERE ID != CONNECTION_ID()")
        return {int(number) for (number,) in cursor.fetchall()}


def ids(snapshot: UpstreamSnapshot) -> list[int]:
    with snapshot.session() as session:
        return ids_in(session)


def ids_in(session: Connection) -> list[int]:
    queries = [b"SELECT id FROM snapshot_app.%b" % table for table in (b"a", b"b")]
    both = [{int(row[0]) for row in session.rows(query)} for query in queries]
    assert both[0] == both[1], "half of a transaction"
    return sorted(both[0])


class Writers:
    """Programs that write two rows a transaction; some roll back at the last moment."""

    def __init__(self, database: Database, publisher: Publisher) -> None:
        self.committed: dict[int, int] = {}
        self._database = database
        self._publisher = publisher
        self._numbers = itertools.count(1)
        self._stop = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._write(random.Random(seed))) for seed in range(WRITERS)]

    async def stop(self) -> None:
        self._stop = True
        await asyncio.gather(*self._tasks)

    async def _write(self, chance: random.Random) -> None:
        connection = await asyncio.to_thread(self._database.connect)
        while not self._stop:
            await self._transaction(connection, next(self._numbers), chance.random())
        connection.close()

    async def _transaction(self, connection: pymysql.Connection[object], row: int, chance: float) -> None:
        transaction = self._publisher.transaction()
        await transaction.begin()
        cursor = connection.cursor()
        for statement in (
            f"INSERT INTO snapshot_app.a VALUES ({row})",
            f"INSERT INTO snapshot_app.b VALUES ({row})",
            self._database.outcomes.statement(transaction.start_ts),
        ):
            await asyncio.to_thread(cursor.execute, statement)
        transaction.add(1, 0, b"row")  # type: ignore[arg-type]
        commit_ts = await transaction.prepare()
        if chance < 0.2:
            await asyncio.to_thread(connection.rollback)
            await transaction.roll_back()
            return
        await asyncio.to_thread(connection.commit)
        self.committed[row] = commit_ts
        await transaction.commit()


async def test_a_transaction_is_in_the_snapshot_or_above_t(
    database: Database, memory: MemoryCluster, publisher: Publisher
) -> None:
    writers = Writers(database, publisher)
    writers.start()
    found: list[tuple[int, list[int]]] = []
    for _ in range(SNAPSHOTS):
        had = len(writers.committed)
        snapshot = await open_now(database, memory, SESSIONS)
        while len(writers.committed) < had + WRITERS:  # what comes after T is not seen
            await asyncio.sleep(0)
        seen = [await asyncio.to_thread(ids, snapshot) for _ in range(SESSIONS * 2)]
        assert seen == seen[:1] * len(seen), "two sessions see two moments"
        found.append((snapshot.ts, seen[0]))
        assert not snapshot.reopens
        await snapshot.close()
    await writers.stop()
    for ts, seen_at_ts in found:
        assert seen_at_ts == sorted(row for row, commit_ts in writers.committed.items() if commit_ts <= ts)
    assert len({len(seen_at_ts) for _, seen_at_ts in found}) > SNAPSHOTS // 2


async def test_a_transaction_that_has_marked_is_waited_for(
    database: Database, memory: MemoryCluster, publisher: Publisher
) -> None:
    transaction = publisher.transaction()
    await transaction.begin()
    transaction.add(1, 0, b"row")  # type: ignore[arg-type]
    with closing(database.connect()) as connection:
        connection.cursor().execute("INSERT INTO snapshot_app.a VALUES (-1)")
        connection.cursor().execute("INSERT INTO snapshot_app.b VALUES (-1)")
        database.outcomes.mark(connection, transaction.start_ts)
        commit_ts = await transaction.prepare()
        opening = asyncio.create_task(open_now(database, memory))
        while not await asyncio.to_thread(_waits, database):
            await asyncio.sleep(0)
        assert not opening.done()
        await asyncio.to_thread(connection.commit)
    await transaction.commit()
    snapshot = await opening
    assert -1 in await asyncio.to_thread(ids, snapshot)
    assert commit_ts < snapshot.ts
    await snapshot.close()


def _waits(database: Database) -> bool:
    with closing(database.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT STATE FROM information_schema.PROCESSLIST WHERE INFO LIKE 'LOCK TABLES%'")
        return any("metadata lock" in str(state) for (state,) in cursor.fetchall())


async def test_a_transaction_that_stays_open_is_not_waited_for_for_ever(
    database: Database, memory: MemoryCluster
) -> None:
    with closing(database.connect()) as connection:
        database.outcomes.mark(connection, 10**9)
        with pytest.raises(Unavailable, match="cannot be locked: some transaction") as raised:
            await open_publisher_snapshot(
                target_of(database), TABLE, memory.upstream, 1, Patience(wait_s=0, tries=2, pause_s=0)
            )
        connection.rollback()
    assert "PROCESSLIST" in raised.value.hint
    with closing(database.connect()) as connection:
        database.outcomes.mark(connection, 10**9 + 1)  # nothing is left of the attempt
        connection.rollback()


async def test_two_snapshots_are_not_opened_at_once(database: Database, memory: MemoryCluster) -> None:
    """Their waits would take turns, and marks never have theirs."""
    with closing(database.connect()) as other:
        other.cursor().execute("SELECT GET_LOCK('binlog-snapshot', 0)")
        with pytest.raises(Unavailable, match="another snapshot of upstream"):
            await open_publisher_snapshot(target_of(database), TABLE, memory.upstream, 1)
    for _ in range(2):  # who has opened one does not keep it
        await (await open_publisher_snapshot(target_of(database), TABLE, memory.upstream, 1)).close()


async def test_a_lock_that_was_lost_before_t_was_drawn_makes_no_snapshot(database: Database) -> None:
    before = sessions_of(database)

    class Killing:
        async def timestamp(self) -> Ts:
            database.run(*(f"KILL {number}" for number in sessions_of(database) - before))
            return Ts(1)

    with pytest.raises(SnapshotLost, match="ended a session while the snapshot was taken"):
        await open_publisher_snapshot(target_of(database), TABLE, Killing(), 1)


async def test_without_a_timestamp_the_lock_is_given_back(database: Database) -> None:
    class Silent:
        async def timestamp(self) -> Ts:
            raise Unavailable("etcd does not answer")

    with pytest.raises(Unavailable, match="etcd"):
        await open_publisher_snapshot(target_of(database), TABLE, Silent(), 1)
    with closing(database.connect()) as connection:
        database.outcomes.mark(connection, 10**9)
        connection.rollback()


async def test_an_alter_waits_for_a_block_only_and_ends_what_can_be_read(
    database: Database, memory: MemoryCluster
) -> None:
    database.run(
        "CREATE TABLE snapshot_app.c (id INT PRIMARY KEY, x INT)", "INSERT INTO snapshot_app.c VALUES (1, 2)"
    )
    snapshot = await open_now(database, memory)
    with snapshot.session() as session:
        assert session.rows(b"SELECT * FROM snapshot_app.c") == [(1, 2)]
    database.run("ALTER TABLE snapshot_app.c FORCE")  # would wait for ever if the definition were locked
    with pytest.raises(SnapshotLost, match="altered after that moment"), snapshot.session() as session:
        session.rows(b"SELECT * FROM snapshot_app.c")
    with snapshot.session() as session:
        assert session.rows(b"SELECT COUNT(*) FROM snapshot_app.a") is not None
    await snapshot.close()
    database.run("DROP TABLE snapshot_app.c")


async def test_one_session_that_dies_leaves_the_others_at_t(
    database: Database, memory: MemoryCluster
) -> None:
    before = sessions_of(database)
    snapshot = await open_now(database, memory, 2)
    database.run("INSERT INTO snapshot_app.a VALUES (-7)", "INSERT INTO snapshot_app.b VALUES (-7)")
    with pytest.raises(ConnectionLost):
        _use_and_kill(database, snapshot)
    assert -7 not in ids(snapshot)
    with pytest.raises(ConnectionLost):
        _use_and_kill(database, snapshot)
    with pytest.raises(SnapshotLost, match="run the same command again"), snapshot.session():
        pytest.fail("no session is left")
    await snapshot.close()
    assert sessions_of(database) <= before


def _use_and_kill(database: Database, snapshot: UpstreamSnapshot) -> None:
    with snapshot.session() as session:
        database.run(f"KILL {session.session_id}")
        ids_in(session)


async def test_no_past(database: Database, memory: MemoryCluster) -> None:
    with pytest.raises(SnapshotLost, match="does not show 5 again"):
        await open_upstream_snapshot(database.settings(), upstream_of(memory), 1, at_ts=5)


async def test_what_is_not_there_or_not_allowed(database: Database, memory: MemoryCluster) -> None:
    missing = database.settings(outcome_table="snapshot_app.nothing")
    with pytest.raises(Rejected, match=r"has no table snapshot_app\.nothing") as raised:
        await open_upstream_snapshot(missing, upstream_of(memory), 1)
    assert "[syncer.from]" in raised.value.hint
    database.run(
        "CREATE USER snapshot_reader IDENTIFIED BY 'r'", "GRANT SELECT ON snapshot_app.* TO snapshot_reader"
    )
    try:
        reader = database.settings(user="snapshot_reader", password="r")
        with pytest.raises(Rejected, match="does not lock") as raised:
            await open_upstream_snapshot(reader, upstream_of(memory), 1)
        assert "GRANT LOCK TABLES" in raised.value.hint
        database.run("GRANT LOCK TABLES ON snapshot_app.* TO snapshot_reader")
        await (await open_upstream_snapshot(reader, upstream_of(memory), 1)).close()
    finally:
        database.run("DROP USER snapshot_reader")


async def test_a_replica_is_refused(database: Database, memory: MemoryCluster) -> None:
    database.run("SET GLOBAL read_only = 1")
    try:
        with pytest.raises(Rejected, match="is read-only") as raised:
            await open_now(database, memory)
    finally:
        database.run("SET GLOBAL read_only = 0")
    assert "programs write to" in raised.value.hint


async def test_a_publishers_database_is_not_read_as_a_tidb(
    database: Database, memory: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(memory.upstream), "garbage", NothingCollected())
    with pytest.raises(ConfigError, match="is no TiDB") as raised:
        await open_upstream_snapshot(database.settings(outcome_table=""), upstream_of(memory), 1)
    assert "outcome-table" in raised.value.hint

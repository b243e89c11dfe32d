"""Who does not know what its database did asks it: whatever the program does with an error, or forgets to do.

The database is SQLite in a file, with a constraint that fails in COMMIT; everything else is in memory.
"""

from __future__ import annotations

import gc
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pumpclient import OutcomeTable, Publisher, SyncPublisher, SyncTransaction, TransactionState
from pumpclient.publish.settlement import QUESTIONS_MAX
from pumpclient.testing import MemoryCluster, settle
from tests.waiting import until
from tidb_binlog import binlog
from tidb_binlog.upstream_port import Committed, RolledBack


class Shop:
    """A database in which a row without its owner is refused by COMMIT."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.outcomes = OutcomeTable(self.connect)
        self.outcomes.create()
        with closing(self.connect()) as connection:
            connection.execute("CREATE TABLE owner (id INTEGER PRIMARY KEY)")
            connection.execute(
                "CREATE TABLE pen (id INTEGER PRIMARY KEY, owner INTEGER"
                " REFERENCES owner (id) DEFERRABLE INITIALLY DEFERRED)"
            )

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=2.0, check_same_thread=False)
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def pens(self) -> int:
        with closing(self.connect()) as connection:
            return int(connection.execute("SELECT COUNT(*) FROM pen").fetchone()[0])


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "shop")


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(["a"])


@pytest.fixture
def publisher(shop: Shop, cluster: MemoryCluster) -> Iterator[SyncPublisher]:
    with SyncPublisher(lambda: cluster.publisher(shop.outcomes)) as opened:
        yield opened


def told(cluster: MemoryCluster) -> list[int]:
    """The ends that the pump was told."""
    return [tp for tp, _, _ in cluster.pumps["a"].transactions() if tp != binlog.PREWRITE]


def insert_orphan(connection: sqlite3.Connection, txn: SyncTransaction) -> None:
    connection.execute("INSERT INTO pen VALUES (1, 7)")
    txn.insert(5, b"pen 1")


def test_a_failed_commit_that_the_program_handles_is_not_published(
    shop: Shop, cluster: MemoryCluster, publisher: SyncPublisher
) -> None:
    with closing(shop.connect()) as connection:
        with publisher.transaction() as txn:
            insert_orphan(connection, txn)
            with pytest.raises(sqlite3.IntegrityError):
                txn.commit_in(connection)
            assert txn.state is TransactionState.UNKNOWN
            connection.rollback()
        cluster.time.advance(10.0)
        publisher.settle()
        publisher.flush(5.0)
    assert shop.pens() == 0
    assert shop.outcomes.committed(txn.start_ts) is False
    assert binlog.COMMIT not in told(cluster)


def test_an_answer_that_is_lost_in_commit_leaves_what_the_database_did(
    shop: Shop, cluster: MemoryCluster, publisher: SyncPublisher
) -> None:
    """The other way round: COMMIT took place, the driver raises, the program gives up."""

    class Breaking:
        def __init__(self, connection: sqlite3.Connection) -> None:
            self._connection = connection

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

        def commit(self) -> None:
            self._connection.commit()
            raise ConnectionResetError

    with closing(shop.connect()) as connection:
        with publisher.transaction() as txn:
            connection.execute("INSERT INTO pen VALUES (1, NULL)")
            txn.insert(5, b"pen 1")
            with pytest.raises(ConnectionResetError):
                txn.commit_in(Breaking(connection))
        settled = publisher.settle()
    assert shop.pens() == 1
    assert settled.waiting == ()
    assert cluster.upstream.entries[txn.start_ts] == Committed(txn.commit_ts)


def test_a_failed_commit_without_a_with_holds_nothing_up(
    shop: Shop, cluster: MemoryCluster, publisher: SyncPublisher
) -> None:
    txn = publisher.transaction()
    txn.begin()
    with closing(shop.connect()) as connection:
        insert_orphan(connection, txn)
        with pytest.raises(sqlite3.IntegrityError):
            txn.commit_in(connection)
        connection.rollback()
    assert publisher.settle().waiting == ()
    assert shop.outcomes.committed(txn.start_ts) is False


@pytest.mark.parametrize("prepared", [False, True])
def test_a_dropped_transaction_holds_nothing_up(
    shop: Shop, cluster: MemoryCluster, publisher: SyncPublisher, prepared: bool
) -> None:
    txn = publisher.transaction()
    txn.begin()
    start_ts = txn.start_ts
    txn.insert(5, b"pen 1")
    if prepared:
        txn.prepare()
    del txn
    gc.collect()
    publisher.flush(1.0)  # the drop is known to the thread of the publisher
    until_s = cluster.upstream.deadlines.get(start_ts)
    cluster.time.advance(2.0)
    with publisher.transaction():  # with each that begins, what is due is renewed
        for _ in range(20):
            publisher.flush(1.0)
    assert cluster.upstream.deadlines.get(start_ts) == until_s, "its lease is not renewed"
    cluster.time.advance(10.0)
    assert publisher.settle().waiting == ()
    assert shop.outcomes.committed(start_ts) is False


@pytest.mark.parametrize("committed", [False, True])
async def test_leaving_a_block_prepared_asks_the_database(
    shop: Shop, cluster: MemoryCluster, committed: bool
) -> None:
    """As after `return` behind a handled error: no exception passes, and nobody has said what happened."""
    publisher = await cluster.publisher(shop.outcomes)
    with closing(shop.connect()) as connection:
        async with publisher.transaction() as txn:
            connection.execute("INSERT INTO pen VALUES (1, NULL)")
            txn.insert(5, b"pen 1")
            shop.outcomes.mark(connection, txn.start_ts)
            await txn.prepare()
            connection.commit() if committed else connection.rollback()
        assert txn.state is TransactionState.UNKNOWN
        settled = await publisher.settle()
    assert settled.waiting == ()
    assert committed is (shop.pens() == 1)
    outcome = cluster.upstream.entries[txn.start_ts]
    assert outcome == (Committed(txn.commit_ts) if committed else RolledBack())
    await publisher.close()


class Slow:
    """A database that answers about each transaction when it is let."""

    def __init__(self) -> None:
        self.let: dict[int, threading.Event] = {}
        self.asked: list[int] = []

    def name(self) -> str:
        return "slow"

    def committed(self, start_ts: int) -> bool:
        self.asked.append(start_ts)
        self.let.setdefault(start_ts, threading.Event()).wait()
        return True

    def purge(self, below_ts: int) -> None:
        pass


async def _in_doubt(publisher: Publisher, count: int) -> list[int]:
    found = []
    for _ in range(count):
        txn = publisher.transaction()
        await txn.begin()
        txn.insert(5, b"row")
        await txn.prepare()
        txn.doubt()
        found.append(txn.start_ts)
    return found


async def test_one_that_waits_for_a_lock_keeps_no_other_waiting(cluster: MemoryCluster) -> None:
    database = Slow()
    publisher = await cluster.publisher(database)
    stuck, *others = await _in_doubt(publisher, 6)
    for start_ts in others:
        database.let.setdefault(start_ts, threading.Event()).set()
    await until(lambda: sorted(database.asked) == [stuck, *others])
    entries = cluster.upstream.entries
    await until(lambda: all(hasattr(entries[start_ts], "commit_ts") for start_ts in others))
    later = await _in_doubt(publisher, 1)
    await until(lambda: database.asked[-1] == later[0])  # and no later one
    assert database.asked.count(stuck) == 1
    for event in database.let.values():
        event.set()
    assert (await publisher.settle()).waiting == ()
    await publisher.close()


async def test_so_many_questions_at_once_and_no_more(cluster: MemoryCluster) -> None:
    database = Slow()
    publisher = await cluster.publisher(database)
    await _in_doubt(publisher, QUESTIONS_MAX + 3)
    await until(lambda: len(database.asked) == QUESTIONS_MAX)
    await settle()
    assert len(database.asked) == QUESTIONS_MAX

    def all_are_answered() -> bool:
        for event in list(database.let.values()):
            event.set()
        return len(database.asked) == QUESTIONS_MAX + 3

    await until(all_are_answered)
    assert (await publisher.settle()).waiting == ()
    await publisher.close()


async def test_a_database_that_hangs_keeps_no_program_from_ending(cluster: MemoryCluster) -> None:
    """Neither `close` nor the interpreter waits for it: no thread of an executor, all are daemons."""
    before = set(threading.enumerate())
    database = Slow()
    publisher = await cluster.publisher(database)
    await _in_doubt(publisher, 2)
    await until(lambda: len(database.asked) == 2)
    await publisher.close(drain_s=0.0)

    def hangs() -> set[threading.Thread]:
        return set(threading.enumerate()) - before

    await until(lambda: len(hangs()) == 2)  # one that purged may be about to end
    hanging = hangs()
    assert all(thread.daemon for thread in hanging)
    for event in database.let.values():
        event.set()
    for thread in hanging:
        thread.join()

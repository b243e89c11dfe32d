"""A publisher with a database of its own, stopped at every step and disturbed at every step; on a real etcd.

The application's database is SQLite, the pump is in memory and asks the upstream as a pump does. What counts
at the end: a transaction's rows are in the stream exactly if the database committed it, whoever died when.
"""

from __future__ import annotations

import itertools
import sqlite3
import weakref
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from typing import Any

import pytest

from pumpclient import (
    Failure,
    OutcomeUnknown,
    Publisher,
    Settled,
    Transaction,
    TransactionState,
)
from tests.pumpclient.support.publisher_world import Database, World, commit_or_ddl
from tests.pumpclient.support.publisher_world import world as world
from tidb_binlog import binlog
from tidb_binlog.errors import BinlogError, Unavailable
from tidb_binlog.upstream.standalone import GRACE_S
from tidb_binlog.upstream.standalone.layout import entries
from tidb_binlog.upstream_port import Committed, RolledBack, Undecided

pytestmark = pytest.mark.integration

STEPS = ("begin", "statements", "prewrite", "prepare", "database", "commit")


class Application:
    """A process that moves money; `steps` are its steps, one after the other."""

    def __init__(self, publisher: Publisher, database: Database, row: int) -> None:
        self.transaction: Transaction = publisher.transaction(ttl_s=3.0)
        self.database = database
        self.connection = database.connect()
        weakref.finalize(self, self.connection.close)  # of a process that was killed
        self.row = row

    async def run(self, name: str) -> None:
        step: Callable[[], Awaitable[None]] = getattr(self, name)
        await step()

    async def begin(self) -> None:
        await self.transaction.begin()

    async def statements(self) -> None:
        self.connection.execute("INSERT INTO account VALUES (?, 100)", (self.row,))
        self.transaction.add(5, 0, b"row %d" % self.row)  # type: ignore[arg-type]
        self.database.outcomes.mark(self.connection, self.transaction.start_ts)

    async def prewrite(self) -> None:
        await self.transaction.prewrite()

    async def prepare(self) -> None:
        await self.transaction.prepare()

    async def database_commit(self) -> None:
        self.connection.commit()

    async def commit(self) -> None:
        await self.transaction.commit()

    def die(self) -> None:
        """The process is gone: the database ends its connection, nothing of the publisher runs any more."""
        self.connection.rollback()
        self.connection.close()
        self.transaction._steps.release(self.transaction.start_ts)
        self.transaction.state = TransactionState.ABANDONED


def committed_in(database: Database, row: int) -> bool:
    return row in dict(database.rows())


async def step(application: Application, name: str) -> None:
    await application.run("database_commit" if name == "database" else name)


@pytest.mark.parametrize("steps", range(len(STEPS) + 1))
@pytest.mark.parametrize("delivered", [True, False])
async def test_a_process_that_dies_after_any_step(world: World, steps: int, delivered: bool) -> None:
    """Whether the end that it sends at last reaches the pump or not."""
    database = Database(world.path / "app")
    publisher, _ = await world.publisher(database)
    application = Application(publisher, database, row=1)
    for name in STEPS[:steps]:
        if name == "commit" and not delivered:
            world.memory.pumps["pump"].hanging = True
        await step(application, name)
    await publisher.flush(0.02 if not delivered else 1.0)
    application.die()
    await publisher.close(drain_s=0.0)
    world.memory.pumps["pump"].hanging = False

    pump = await world.upstream()
    survivor, _ = await world.publisher(database)
    await survivor.settle()  # too early: it may be alive
    world.clock.advance(3.1)
    await world.ask(pump, application.transaction.start_ts or 1)
    settled = await survivor.settle()
    assert settled.waiting == ()
    stream = await world.stream(pump)
    assert (application.transaction.start_ts in stream) is committed_in(database, 1)
    assert committed_in(database, 1) is (steps >= 5)
    await survivor.settle()  # nothing is left to settle
    assert await world.stream(pump) == stream


DISTURBANCES = ("pump asks", "somebody settles", "both")


@pytest.mark.parametrize("disturbed", DISTURBANCES)
@pytest.mark.parametrize("before", range(len(STEPS)))
async def test_a_process_that_sleeps_past_its_lease_before_any_step(
    world: World, before: int, disturbed: str
) -> None:
    """It wakes up and goes on as if nothing had been: it fails, or what it did stands."""
    database = Database(world.path / "app")
    publisher, _ = await world.publisher(database)
    survivor, _ = await world.publisher(database)
    pump = await world.upstream()
    application = Application(publisher, database, row=1)
    failed: BaseException | None = None
    try:
        for number, name in enumerate(STEPS):
            if number == before:
                world.clock.advance(100.0)
                if disturbed != "somebody settles":
                    await world.ask(pump, application.transaction.start_ts or 1)
                    world.clock.advance(100.0)
                if disturbed != "pump asks":
                    settled = await survivor.settle()
                    # The database was asked, and while the application holds its lock it does not answer.
                    assert bool(settled.waiting) is (name == "database")
            await step(application, name)
    except BinlogError as error:
        failed = error
        application.connection.rollback()
    await publisher.flush(1.0)
    world.clock.advance(100.0)
    settled = await survivor.settle()
    assert settled.waiting == ()
    assert committed_in(database, 1) is (failed is None)
    assert (application.transaction.start_ts in await world.stream(pump)) is (failed is None)


LOST = tuple(itertools.product(("begin", "prepare", "decide", "roll_back", "forget"), (True, False)))


@pytest.mark.parametrize(("request_name", "takes_place"), LOST)
@pytest.mark.parametrize("fails", [False, True])
async def test_etcd_answers_no_request_or_its_answer_is_lost(
    world: World, request_name: str, takes_place: bool, fails: bool
) -> None:
    """Each kind of request once; with an application that commits, and with one that fails before COMMIT."""
    database = Database(world.path / "app")
    publisher, losing = await world.publisher(database)
    pump = await world.upstream()
    losing.lose = (request_name, takes_place)
    application = Application(publisher, database, row=1)
    committed = False
    with suppress(BinlogError, RuntimeError):
        async with application.transaction:
            await application.statements()
            await application.prepare()
            if fails:
                application.connection.rollback()
                raise RuntimeError("the application does not want to")
            await application.database_commit()
            committed = True
    application.connection.rollback()
    await publisher.flush(1.0)
    with suppress(Unavailable):
        await publisher.settle()
    world.clock.advance(3.1)
    await publisher.settle()
    assert committed_in(database, 1) is committed
    assert (application.transaction.start_ts in await world.stream(pump)) is committed
    assert committed or fails or request_name == "begin"


async def test_etcd_is_away_from_the_commit_on(world: World) -> None:
    """The pump is told all the same; nobody waits, and nothing is in doubt."""
    database = Database(world.path / "app")
    publisher, losing = await world.publisher(database)
    application = Application(publisher, database, row=1)
    for name in STEPS[:-1]:
        await step(application, name)

    async def away(*_: Any, **__: Any) -> None:
        raise Unavailable("etcd is away")

    losing.decide = away  # type: ignore[attr-defined]
    commit_ts = await application.transaction.commit()
    assert await publisher.flush(2.0)
    assert world.memory.pumps["pump"].transactions()[-1] == (
        binlog.COMMIT,
        application.transaction.start_ts,
        commit_ts,
    )


async def test_etcd_is_away_before_the_commit(world: World) -> None:
    """The application learns it in time, and rolls back; so does the stream when etcd is there again."""
    database = Database(world.path / "app")
    publisher, losing = await world.publisher(database)
    pump = await world.upstream()
    application = Application(publisher, database, row=1)
    real = losing.real

    class Away:
        def __getattr__(self, name: str) -> Any:
            async def away(*_: Any, **__: Any) -> None:
                raise Unavailable("etcd is away")

            return away

    for name in STEPS[:3]:
        await step(application, name)
    losing.real = Away()
    with pytest.raises(Unavailable):
        await application.prepare()
    application.connection.rollback()
    losing.real = real
    await world.ask(pump, application.transaction.start_ts)
    world.clock.advance(3.1)
    assert await world.stream(pump) == {}
    assert database.rows() == []


@pytest.mark.parametrize("what", ["commit", "ddl"])
async def test_a_sweep_leaves_the_end_of_who_may_still_ask(world: World, what: str) -> None:
    """The commit took place, its answer is lost; every pump has passed it, and somebody sweeps."""
    publisher, losing = await world.publisher(Database(world.path / "app"))
    other = await world.upstream()

    async def sweep() -> None:
        await other.transactions.sweep(await other.oracle.timestamp())
        await other.transactions.drop_forgotten()

    world.interloper = sweep
    losing.lose = ("commit", True)
    assert await commit_or_ddl(publisher, what) > 0


@pytest.mark.parametrize("what", ["commit", "ddl"])
@pytest.mark.parametrize("judged", [False, True])
async def test_an_end_that_is_gone_is_unknown_and_not_lost(world: World, what: str, judged: bool) -> None:
    """As after a machine that slept for longer than ends are kept. Nobody is told a rollback."""
    publisher, losing = await world.publisher(Database(world.path / "app"))
    other = await world.upstream()

    async def drop() -> None:
        async for start_ts, _, _ in entries(world.etcd):
            await other.transactions.forget(start_ts)
            await other.transactions.drop_forgotten()
            if judged:
                await world.ask(other, start_ts)
                world.clock.advance(GRACE_S)
                assert await world.ask(other, start_ts) == RolledBack()

    world.interloper = drop
    losing.lose = ("commit", True)
    with pytest.raises(OutcomeUnknown):
        await commit_or_ddl(publisher, what)
    await publisher.flush(1.0)
    assert {tp for tp, _, _ in world.memory.pumps["pump"].transactions()} == {binlog.PREWRITE}


async def test_the_database_hangs_in_commit_while_the_lease_runs_out(world: World) -> None:
    """Nobody decides before the database has."""
    database = Database(world.path / "app")
    publisher, _ = await world.publisher(database)
    survivor, _ = await world.publisher(database)
    pump = await world.upstream()
    application = Application(publisher, database, row=1)
    for name in STEPS[:4]:
        await step(application, name)
    start_ts = application.transaction.start_ts
    for _ in range(3):
        world.clock.advance(1000.0)
        assert isinstance(await world.ask(pump, start_ts), Undecided)
        assert (await survivor.settle()).waiting == (start_ts,)
    application.connection.commit()
    assert (await survivor.settle()).committed == (start_ts,)
    assert await world.ask(pump, start_ts) == Committed(application.transaction.commit_ts)
    await application.transaction.commit()  # it wakes up at last
    await publisher.flush(1.0)
    assert await world.stream(pump) == {start_ts: application.transaction.commit_ts}


async def test_a_lost_connection_in_commit_is_asked_of_the_database(world: World) -> None:
    """Both ways: the COMMIT had arrived, or not."""
    database = Database(world.path / "app")
    publisher, _ = await world.publisher(database)
    pump = await world.upstream()
    for row, arrived in ((1, True), (2, False)):
        application = Application(publisher, database, row)
        with suppress(ConnectionError):
            async with application.transaction:
                await application.statements()
                await application.prepare()
                if arrived:
                    application.connection.commit()
                else:
                    application.connection.rollback()
                raise ConnectionError("lost in COMMIT")
        assert application.transaction.state is TransactionState.UNKNOWN
        start_ts = application.transaction.start_ts
        settled = await publisher.settle()
        assert (settled.committed, settled.rolled_back) == (
            ((start_ts,), ()) if arrived else ((), (start_ts,))
        )
        assert (start_ts in await world.stream(pump)) is arrived


async def test_commit_ts_have_the_order_of_the_database(world: World) -> None:
    """The second transaction gets the lock when the first has committed; the first is then slow to report."""
    database = Database(world.path / "app")
    publisher, _ = await world.publisher(database)
    first, second = Application(publisher, database, 1), Application(publisher, database, 2)
    for name in STEPS[:5]:
        await step(first, name)
    for name in STEPS:
        await step(second, name)
    await first.commit()
    assert first.transaction.commit_ts < second.transaction.commit_ts


async def test_two_databases_of_one_cluster_are_asked_each_about_its_own(world: World) -> None:
    one, other = Database(world.path / "one"), Database(world.path / "other")
    publisher, _ = await world.publisher(one)
    application = Application(publisher, one, row=1)
    for name in STEPS[:5]:
        await step(application, name)
    application.die()
    await publisher.close(drain_s=0.0)
    stranger, _ = await world.publisher(other)
    world.clock.advance(100.0)
    settled = await stranger.settle()
    assert settled.rolled_back == settled.waiting == ()
    assert (await stranger.settle(one.outcomes)).committed == (application.transaction.start_ts,)


async def test_a_fence_keeps_a_late_transaction_out(world: World) -> None:
    """Asked before it wrote its mark, the database answers no, and keeps its word."""
    database = Database(world.path / "app")
    assert database.outcomes.committed(77) is False
    database.outcomes.purge(1000)
    with closing(database.connect()) as connection, pytest.raises(sqlite3.IntegrityError):
        database.outcomes.mark(connection, 77)
    assert database.outcomes.committed(77) is False


async def test_the_database_forgets_what_is_settled(world: World) -> None:
    database = Database(world.path / "app")
    publisher, _ = await world.publisher(database)
    for row in (1, 2, 3):
        application = Application(publisher, database, row)
        for name in STEPS[: 6 if row < 3 else 5]:
            await step(application, name)
        await publisher.flush(1.0)
    await publisher.settle()
    with closing(database.connect()) as connection:
        left = connection.execute("SELECT start_ts FROM binlog_outcome WHERE start_ts > 0").fetchall()
    assert left == [(application.transaction.start_ts,)]  # prepared still: somebody may ask


async def test_a_commit_that_no_pump_took_stays_written_down(world: World) -> None:
    database = Database(world.path / "app")
    publisher, _ = await world.publisher(database)
    application = Application(publisher, database, row=1)
    for name in STEPS[:5]:
        await step(application, name)
    world.memory.pumps["pump"].broken = Failure.UNREACHABLE
    await application.transaction.commit()
    await world.memory.time.run(700.0)  # the client gives the delivery up
    assert await publisher.flush(10.0)
    await publisher.close()  # writes down what else there is
    outcome = await world.ask(await world.upstream(), application.transaction.start_ts)
    assert outcome == Committed(application.transaction.commit_ts)


async def test_a_rollback_that_cannot_be_written_down_is_not_left_to_the_lease(world: World) -> None:
    """The application knows that its database rolled back; etcd is away for a moment."""
    database = Database(world.path / "app")
    publisher, losing = await world.publisher(database)
    application = Application(publisher, database, row=1)
    for name in STEPS[:4]:
        await step(application, name)
    application.connection.rollback()
    losing.lose = ("roll_back", False)
    with pytest.raises(Unavailable):
        await application.transaction.roll_back()
    assert (await publisher.settle()).rolled_back == (application.transaction.start_ts,)


@pytest.mark.parametrize("forgotten", [True, False])
async def test_who_settles_too_late_does_not_say_the_opposite(world: World, forgotten: bool) -> None:
    """Others settled it between the list and the question, and the database has forgotten since."""
    database = Database(world.path / "app")
    publisher, owners = await world.publisher(database)
    late, losing = await world.publisher(database)
    application = Application(publisher, database, row=1)
    for name in STEPS[:5]:
        await step(application, name)
    start_ts = application.transaction.start_ts
    world.clock.advance(3.1)
    listed = await losing.in_doubt(database.outcomes.name())
    assert (await publisher.settle()).committed == (start_ts,)
    database.outcomes.purge(start_ts + 1)
    if forgotten:
        await application.transaction.commit()
        await publisher.flush(1.0)
        await owners.real.drop_forgotten()

    async def as_listed(_: str) -> Any:
        return listed

    losing.in_doubt = as_listed  # type: ignore[attr-defined]
    assert await late.settle() == Settled()

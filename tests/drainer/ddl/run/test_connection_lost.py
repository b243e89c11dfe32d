"""DDL and a downstream that goes away: the connection lost before, during or after a statement."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.checkpoint.value import Intent
from drainer.ddl.run.execution import Ran
from drainer.ddl.run.runner import DdlRunner
from drainer.mysql.connection import Connection, Target
from drainer.mysql.errors import TransientError
from drainer.txn import Ddl, Tracked
from tests.waiting import PATIENCE_S, until_here
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.errors import Unavailable
from tidb_binlog.table_info import LONG, Column, FieldType, TableInfo

pytestmark = pytest.mark.integration


class Schema:
    def database_collation(self, schema: str) -> tuple[str, str] | None:
        return ("utf8mb4", "utf8mb4_bin")


def table(called: str, table_id: int, *columns: str, **more: Any) -> Tracked:
    made = tuple(Column(at + 1, one, at, FieldType(LONG)) for at, one in enumerate(columns or ("id",)))
    return Tracked("d", called, {**TableInfo(table_id, called, made).to_json(), **more})


SWAP = Ddl(
    100,
    7,
    ActionType.RENAME_TABLES,
    "d",
    "RENAME TABLE `a` TO `tmp`, `b` TO `a`, `tmp` TO `b`",
    (("d", "a"), ("d", "tmp"), ("d", "b")),
    5,
    before=(table("a", 1), table("b", 2)),
    after=(table("b", 1), table("a", 2)),
)
ADD = Ddl(
    100, 7, 5, "d", "ALTER TABLE `a` ADD COLUMN `c` INT", (("d", "a"),), 5,
    before=(table("a", 1),), after=(table("a", 1, "id", "c"),),
)  # fmt: skip


@pytest.fixture
def connection(mariadb: MariaDbServer) -> Iterator[Connection]:
    """Tables `a` and `b` with equal definitions; rows tell them apart."""
    connection = mariadb.connect()
    for text in (
        "CREATE DATABASE d",
        "CREATE TABLE d.a (id INT)",
        "CREATE TABLE d.b (id INT)",
        "INSERT INTO d.a VALUES (1)",
        "INSERT INTO d.b VALUES (2)",
    ):
        connection.run(text.encode())
    yield connection
    connection.run(b"DROP DATABASE d")
    connection.close()


@pytest.fixture
def runner(mariadb: MariaDbServer) -> Iterator[DdlRunner]:
    runner = DdlRunner(Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password), Schema())
    yield runner
    runner.close()


def in_a(connection: Connection) -> int:
    ((number,),) = connection.rows(b"SELECT id FROM d.a")
    return int(number)


DERIVED = {
    ADD.query: "ALTER TABLE `d`.`a` ADD COLUMN `c` int NULL",
    SWAP.query: "RENAME TABLE `d`.`a` TO `d`.`tidb_binlog_aside_0`, `d`.`b` TO `d`.`a`,"
    " `d`.`tidb_binlog_aside_0` TO `d`.`b`",
}


class Held:
    """A lock on table `a` that makes DDL wait, and a DDL that waits for it on a thread."""

    def __init__(self, mariadb: MariaDbServer, runner: DdlRunner, ddl: Ddl) -> None:
        self._lock = mariadb.connect()
        self._lock.run(b"LOCK TABLES d.a READ")
        self._look = mariadb.connect()
        self._pool = ThreadPoolExecutor(1)
        self.runner, self.ddl = runner, ddl
        self.ran = self.begin()
        until_here(lambda: self.waits() == 1)

    def begin(self) -> Future[Ran]:
        return self._pool.submit(self.runner.run, self.ddl)

    def waits(self) -> int:
        query = b"SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE '%metadata lock%'"
        ((count,),) = self._look.rows(query)
        return int(count)

    def look(self, query: bytes) -> list[tuple[Any, ...]]:
        return self._look.rows(query)

    def release(self) -> None:
        self._lock.run(b"UNLOCK TABLES")

    def close(self) -> None:
        self._lock.close()
        self._look.close()
        self._pool.shutdown()


@pytest.fixture
def held(mariadb: MariaDbServer, runner: DdlRunner) -> Iterator[Callable[[Ddl], Held]]:
    made: list[Held] = []

    def make(ddl: Ddl) -> Held:
        made.append(Held(mariadb, runner, ddl))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_statement_that_waits_says_so(connection: Any, held: Callable[[Ddl], Held]) -> None:
    waiting = held(ADD)
    assert "Waiting for table metadata lock for" in waiting.runner.progress(ADD)
    waiting.release()
    assert waiting.ran.result(PATIENCE_S).statements == (DERIVED[ADD.query],)
    assert waiting.runner.progress(ADD) == "", "nothing is under way any more"


@pytest.mark.parametrize("ddl", [SWAP, ADD], ids=["swap", "add"])
def test_a_statement_that_was_killed_is_run_again(
    connection: Any, held: Callable[[Ddl], Held], ddl: Ddl
) -> None:
    waiting = held(ddl)
    connection.run(b"KILL %d" % waiting.runner._session.thread_id)
    with pytest.raises(TransientError):
        waiting.ran.result(PATIENCE_S)
    until_here(lambda: waiting.waits() == 0)  # or it still gets the lock, and has run
    waiting.release()
    assert waiting.begin().result(PATIENCE_S).statements == (DERIVED[ddl.query],)
    assert in_a(connection) == 2 if ddl is SWAP else waiting.look(b"SELECT c FROM d.a") == [(None,)]


@pytest.mark.parametrize("ddl", [SWAP, ADD], ids=["swap", "add"])
def test_a_statement_that_goes_on_without_its_connection_is_waited_for(
    connection: Any, held: Callable[[Ddl], Held], ddl: Ddl
) -> None:
    """The network is cut; the server does not know and ends the statement. It must not run twice."""
    waiting = held(ddl)
    cut = waiting.runner._session._session.current
    assert cut is not None
    cut._sock.shutdown(socket.SHUT_RDWR)  # type: ignore[attr-defined]
    assert waiting.ran.exception(20) is not None
    again = waiting.begin()
    asks = b"SELECT 1 FROM information_schema.PROCESSLIST WHERE INFO LIKE 'SELECT SLEEP%'"
    until_here(lambda: bool(waiting.look(asks)))
    assert waiting.waits() == 1, "only the first attempt is there"
    waiting.release()
    assert again.result(PATIENCE_S).statements == ()
    assert in_a(connection) == 2 if ddl is SWAP else waiting.look(b"SELECT c FROM d.a") == [(None,)]


def test_a_server_that_is_away_is_tried_again_without_harm(mariadb: MariaDbServer) -> None:
    gone = DdlRunner(Target(mariadb.host, 1, mariadb.user, mariadb.password), Schema())
    for _ in range(2):
        with pytest.raises(Unavailable):
            gone.run(SWAP)


def crashes(mariadb: MariaDbServer, target: Target, ddl: Ddl) -> Iterator[DdlRunner]:
    """Runners of the lives of a drainer: killed after the intent, killed after the statement."""
    first = DdlRunner(target, Schema())
    intent = Intent(ddl.commit_ts, ddl.job_id, ddl.query, first.before(ddl))
    first.close()
    second = DdlRunner(target, Schema())
    assert not second.had_run(intent, ddl, None)
    second.run(ddl)
    second.close()
    third = DdlRunner(target, Schema())
    assert third.had_run(intent, ddl, None)
    third.close()
    yield third


@pytest.fixture
def unprivileged(mariadb: MariaDbServer, connection: Any) -> Iterator[Target]:
    """A user who may not see the numbers by which the server knows its tables."""
    connection.run(b"CREATE USER few IDENTIFIED BY 'few'")
    connection.run(b"GRANT ALL ON d.* TO few")
    yield Target(mariadb.host, mariadb.port, "few", "few")
    connection.run(b"DROP USER few")


@pytest.mark.parametrize("privileged", [True, False])
def test_a_swap_of_equal_tables_is_done_once_over_crashes(
    mariadb: MariaDbServer, connection: Any, unprivileged: Target, privileged: bool
) -> None:
    """Definitions are the same before and after: numbers of tables, or their contents, tell."""
    everything = Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password)
    for _ in crashes(mariadb, everything if privileged else unprivileged, SWAP):
        assert in_a(connection) == 2


def parted(*ids: int) -> dict[str, Any]:
    limits = zip(ids, ("p0", "p1"), ("10", "20"), strict=True)
    definitions = [
        {"id": number, "name": {"O": called, "L": called}, "less_than": [limit]}
        for number, called, limit in limits
    ]
    return {"partition": {"type": 1, "expr": "`id`", "enable": True, "definitions": definitions}}


@pytest.mark.parametrize("privileged", [True, False])
@pytest.mark.parametrize("with_partitions", [True, False])
def test_an_exchange_is_done_once_over_crashes(
    mariadb: MariaDbServer,
    connection: Any,
    unprivileged: Target,
    privileged: bool,
    with_partitions: bool,
) -> None:
    clause = (
        b" PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"
    )
    connection.run(b"CREATE TABLE d.p (id INT)" + (clause if with_partitions else b""))
    connection.run(b"INSERT INTO d.p VALUES (5), (15)")
    ddl = Ddl(
        100,
        7,
        ActionType.EXCHANGE_TABLE_PARTITION,
        "d",
        "ALTER TABLE `p` EXCHANGE PARTITION `p0` WITH TABLE `a`",
        (("d", "p"), ("d", "a")),
        5,
        before=(table("p", 10, **parted(11, 12)), table("a", 1)),
        after=(table("p", 10, **parted(1, 12)), table("a", 11)),
    )
    everything = Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password)
    for _ in crashes(mariadb, everything if privileged else unprivileged, ddl):
        assert in_a(connection) == 5
        assert connection.rows(b"SELECT id FROM d.p ORDER BY id") == [(1,), (15,)]

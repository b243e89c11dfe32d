"""The examples, on processes: what the application's database has is what arrives downstream, whoever dies.

Application and downstream are two databases of one MariaDB: `app_...`, and the published name without it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pymysql
import pytest
from sqlalchemy import ForeignKey, String, create_engine, delete, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship, sessionmaker

import pumpclient
from binlog_playground.cluster.cluster import Cluster
from drainer.mysql.errors import NoSuchTable, SessionError
from examples import json_lines_sink, sqlalchemy_hook, transfer
from pumpclient import OutcomeTable, SyncPublisher, column
from tests.waiting import PATIENCE_S
from tidb_binlog.clock import SystemClock

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster(SystemClock())

    async def start() -> None:
        await made.start_base(None)
        await made.start_pumps(1)
        await made.start_drainer()
        await made.close()

    try:
        asyncio.run(start())
        yield made
    finally:
        made.stop(at_once=True)
        made.remove()


def account(cluster: Cluster, database: str | None) -> dict[str, Any]:
    server = cluster.mariadb
    return {
        "host": server.host,
        "port": server.port,
        "user": server.user,
        "password": server.password,
        "database": database,
        "charset": "utf8mb4",
        "ssl_disabled": True,
    }


def query(cluster: Cluster, statement: str) -> list[tuple[Any, ...]]:
    with cluster.mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def until_equal(cluster: Cluster, left: str, right: str) -> list[tuple[Any, ...]]:
    """Wait until both SELECTs give the same rows; the rows."""
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        try:
            wanted, found = query(cluster, left), query(cluster, right)
        except NoSuchTable:  # it is on its way
            wanted, found = [], [()]
        if wanted == found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{wanted} != {found}")


def endpoint(cluster: Cluster) -> str:
    return cluster.etcd_endpoint.removeprefix("http://")


@pytest.fixture(scope="module")
def bank(cluster: Cluster) -> Iterator[tuple[SyncPublisher, OutcomeTable]]:
    outcomes = OutcomeTable(lambda: pymysql.connect(**account(cluster, "app_bank")))
    transfer.create(account(cluster, "app_bank"), outcomes)
    with pumpclient.open_publisher_sync(endpoint(cluster), outcomes=outcomes) as publisher:
        transfer.publish_schema(publisher)
        transfer.publish_schema(publisher)
        with pymysql.connect(**account(cluster, "app_bank")) as connection:
            for number in range(1, 7):
                transfer.open_account(connection, publisher, number, f"owner {number}", 100)
        yield publisher, outcomes


def bank_is_equal(cluster: Cluster) -> dict[int, int]:
    rows = until_equal(
        cluster, "SELECT * FROM app_bank.account ORDER BY id", "SELECT * FROM bank.account ORDER BY id"
    )
    return {number: int(balance) for number, _, balance in rows}


def test_transfer_command(cluster: Cluster, bank: Any) -> None:
    server = cluster.mariadb
    told = subprocess.run(
        [
            *(
                sys.executable,
                "examples/transfer.py",
                "--etcd",
                endpoint(cluster),
                "--port",
                str(server.port),
            ),
            *("--user", server.user, "--password", server.password, "1", "2", "30"),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("committed at 4")
    balances = bank_is_equal(cluster)
    assert (balances[1], balances[2]) == (70, 130)


def test_a_transfer_that_the_application_refuses(cluster: Cluster, bank: Any) -> None:
    publisher, _ = bank
    with pymysql.connect(**account(cluster, "app_bank")) as connection:
        with pytest.raises(ValueError, match="has less"):
            transfer.transfer(connection, publisher, 1, 2, 1000)
        transfer.transfer(connection, publisher, 2, 1, 5)
    balances = bank_is_equal(cluster)
    assert balances[1] + balances[2] == 200


KILLED = """
import json, os, signal, sys
import pymysql, pumpclient
from examples import transfer
where, etcd, account = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

class Connection(pymysql.connections.Connection):
    def commit(self):
        if where == "before COMMIT":
            die()
        super().commit()
        if where == "after COMMIT":
            die()

outcomes = pumpclient.OutcomeTable(lambda: pymysql.connect(**account))
with pumpclient.open_publisher_sync(etcd, outcomes=outcomes) as publisher:
    if where == "after the prewrite":
        publisher._inner._upstream.transactions.prepare = die
    transfer.transfer(Connection(**account), publisher, int(sys.argv[4]), int(sys.argv[5]), 10)
"""


KILLS = {"after the prewrite": (3, 4, 0), "before COMMIT": (4, 3, 0), "after COMMIT": (5, 6, 10)}
"""Where, between which accounts, and how much arrives."""


def test_processes_killed_in_a_transfer(cluster: Cluster, bank: Any) -> None:
    """Another process of the application asks the database; what comes later waits for the answer."""
    publisher, _ = bank
    before = bank_is_equal(cluster)
    killed = [
        subprocess.Popen(
            [
                *(sys.executable, "-c", KILLED, where, endpoint(cluster)),
                *(json.dumps(account(cluster, "app_bank")), str(source), str(target)),
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for where, (source, target, _) in KILLS.items()
    ]
    assert [process.wait(PATIENCE_S) for process in killed] == [-signal.SIGKILL] * 3
    with pymysql.connect(**account(cluster, "app_bank")) as connection:
        transfer.transfer(connection, publisher, 1, 2, 1)  # behind them in the stream
    expected = dict(before)
    for source, target, arrives in (*KILLS.values(), (1, 2, 1)):
        expected[source] -= arrives
        expected[target] += arrives
    assert bank_is_equal(cluster) == expected


class Base(DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "customer"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(40))
    orders: Mapped[list[Order]] = relationship(back_populates="customer")


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str] = mapped_column(String(40))
    price: Mapped[Decimal | None]
    paid: Mapped[bool] = mapped_column(default=False)
    customer_id: Mapped[int | None] = mapped_column(ForeignKey("customer.id"))
    customer: Mapped[Customer | None] = relationship(back_populates="orders")


def test_sqlalchemy_sessions(cluster: Cluster) -> None:
    query(cluster, "CREATE DATABASE app_shop")
    engine = create_engine(
        "mysql+pymysql://", creator=lambda: pymysql.connect(**account(cluster, "app_shop"))
    )
    Base.metadata.create_all(engine)
    outcomes = OutcomeTable(engine.raw_connection)
    outcomes.create()
    sessions = sessionmaker(engine)
    with pumpclient.open_publisher_sync(endpoint(cluster), outcomes=outcomes) as publisher:
        sqlalchemy_hook.publish_tables(publisher, Base, "shop")
        sqlalchemy_hook.publish_sessions(sessions, Base, publisher, outcomes, "shop")
        with sessions.begin() as session:
            ann = Customer(name="Ann", orders=[Order(item="pen", price=Decimal("1.50")), Order(item="ink")])
            session.add(ann)
            session.flush()
            ann.name = "Anne"
        with sessions.begin() as session:
            pen, ink = session.scalars(select(Order).order_by(Order.id)).all()
            pen.paid, pen.id = True, 77
            ink.item = "blue ink"
            session.add(Order(item="paper"))
        with pytest.raises(RuntimeError), sessions.begin() as session:  # noqa: PT012
            session.delete(session.scalars(select(Order).where(Order.item == "paper")).one())
            session.flush()
            raise RuntimeError("changed its mind")
        session = sessions()
        session.add(Order(item="forgotten"))
        session.flush()
        session.close()  # never committed
        with sessions.begin() as session:
            session.delete(session.scalars(select(Customer)).one())  # their orders lose their customer
        with pytest.raises(NotImplementedError), sessions.begin() as session:
            session.execute(delete(Order))
        with pytest.raises(NotImplementedError), sessions.begin() as session, session.begin_nested():
            session.add(Order(item="undone"))
        with sessions() as session:
            assert session.scalar(select(func.count()).select_from(Order)) == 3
        publisher.flush(10.0)
    for table in ("customer", "orders"):
        rows = until_equal(
            cluster, f"SELECT * FROM app_shop.{table} ORDER BY id", f"SELECT * FROM shop.{table} ORDER BY id"
        )
    assert sorted((row[1], row[3], row[4]) for row in rows) == [
        ("blue ink", 0, None),
        ("paper", 0, None),
        ("pen", 1, None),
    ]
    engine.dispose()


ROW: dict[str, Any] = {
    "id": 1,
    "name": "a",
    "at": "2024-02-29 12:00:00.250",
    "kind": "big",
    "data": {"a": [1]},
}


def test_every_schema_statement_arrives(cluster: Cluster) -> None:
    """The stream alone, without a database of the application; rows before and after each statement."""
    with pumpclient.open_publisher_sync(endpoint(cluster)) as publisher:

        def insert(table: str, **row: Any) -> None:
            with publisher.transaction() as txn:
                txn.insert(table, row)

        def arrived(table: str, names: str) -> Callable[[list[tuple[Any, ...]]], None]:
            def check(wanted: list[tuple[Any, ...]]) -> None:
                end_s = time.monotonic() + PATIENCE_S
                while time.monotonic() < end_s:
                    try:
                        found = query(cluster, f"SELECT {names} FROM {table} ORDER BY 1")
                    except SessionError as error:
                        found = [(str(error),)]
                    if found == wanted:
                        return
                    time.sleep(0.05)
                raise AssertionError(f"{found} != {wanted}")

            return check

        publisher.create_database("notes")
        publisher.create_table(
            "notes.entry",
            [
                column("id", "bigint unsigned", nullable=False),
                column("name", "varchar(20)"),
                column("at", "datetime(3)"),
                column("kind", "enum('small','big')", default="small"),
                column("data", "json"),
            ],
            primary_key=["id"],
            unique=[["name"]],
        )
        insert("notes.entry", **ROW)
        publisher.add_column("notes.entry", column("size", "int", nullable=False, default="7"))
        insert("notes.entry", id=2, name="b")
        publisher.drop_column("notes.entry", "at")
        publisher.add_index("notes.entry", "by_size", ["size", "name"])
        insert("notes.entry", id=3, name="c", size=9)
        arrived("notes.entry", "*")(
            [(1, "a", "big", '{"a": [1]}', 7), (2, "b", "small", None, 7), (3, "c", "small", None, 9)]
        )
        publisher.drop_index("notes.entry", "by_size")
        publisher.rename_table("notes.entry", "item")
        publisher.truncate_table("notes.item")
        insert("notes.item", id=4, name="d")
        arrived("notes.item", "id, name")([(4, "d")])
        publisher.create_table(
            "notes.pair",
            [
                column("a", "varchar(10)", nullable=False),
                column("b", "date", nullable=False),
                column("c", "text"),
            ],
            primary_key=["a", "b"],
        )
        insert("notes.pair", a="x", b="2024-01-02", c="long")
        arrived("notes.pair", "a, c")([("x", "long")])
        publisher.drop_table("notes.pair")
        publisher.drop_database("notes")
        end_s = time.monotonic() + PATIENCE_S
        while query(cluster, "SHOW DATABASES LIKE 'notes'") and time.monotonic() < end_s:
            time.sleep(0.05)
        assert not query(cluster, "SHOW DATABASES LIKE 'notes'")


@pytest.mark.parametrize(
    "left",
    [
        b"",
        b'{"posi',
        b'{"position": 8',
        b'{"commit_ts": 8, "after": {"position": 5}}\n',
        b'{"commit_ts": 8, "after": {"position": 5}}\n{"position": 8',
    ],
)
def test_what_a_crash_left_of_a_batch_of_lines_goes_and_no_more(tmp_path: Path, left: bytes) -> None:
    options = {"directory": str(tmp_path)}
    sink = json_lines_sink.JsonLines(options)
    assert sink.open() == 0
    sink.write([], 7)
    sink.close()
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole + left)
    sink = json_lines_sink.JsonLines(options)
    assert sink.open() == 7
    sink.write([], 9)
    sink.close()
    assert path.read_bytes() == whole + b'{"position": 9}\n'

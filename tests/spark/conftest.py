"""One Spark session for all tests: start-up costs seconds, a second session gives nothing."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Connection, Target, connect
from drainer.spark import jvm
from drainer.spark.session import session
from tests.object_store import ObjectStore
from tests.spark.support import spark_home
from tidb_binlog import clock

ROOM = Path(__file__).parent


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool, bool]:
    """Tests with a JVM, and they alone, wait here for what a checkout makes once, not within their time."""
    if ROOM in item.path.parents and (
        item.get_closest_marker("integration") or "started" in item.fixturenames
    ):
        _quick_start()
    return (yield)


@cache
def _quick_start() -> None:
    """Of the JVMs of this process, and of those of its children."""
    os.environ.update(spark_home.environ())


@dataclass(frozen=True)
class Started:
    """A session, and what was on standard error when it was made."""

    session: SparkSession
    said: str


@pytest.fixture(scope="session")
def started(_s3_port: int) -> Iterator[Started]:
    """Two slots, one GiB, two shuffle partitions: keep data and jobs small. Its tasks reach `s3`."""
    clock.use_utc()
    interrupt = signal.getsignal(signal.SIGINT)
    settings = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    with tempfile.TemporaryFile() as file:
        stderr = os.dup(jvm.STDERR)
        os.dup2(file.fileno(), jvm.STDERR)
        try:
            with pytest.MonkeyPatch.context() as patch:
                for name, value in ObjectStore(_s3_port, "").environ.items():
                    patch.setenv(name, value)
                made = session("tests", "local[2]", settings)
        finally:
            os.dup2(stderr, jvm.STDERR)
            os.close(stderr)
            file.seek(0)
            said = file.read().decode()
            os.write(jvm.STDERR, said.encode())
    signal.signal(signal.SIGINT, interrupt)  # Spark's own asks the JVM first, in whichever test it comes
    yield Started(made, said)
    made.stop()


@pytest.fixture(scope="session")
def spark(started: Started) -> SparkSession:
    return started.session


@pytest.fixture
def target(mariadb: MariaDbServer) -> Iterator[Target]:
    """A database server with an empty database m."""
    found = Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password, mariadb.socket)
    opened = connect(found)
    for statement in (
        b"DROP DATABASE IF EXISTS tidb_binlog",
        b"DROP DATABASE IF EXISTS m",
        b"CREATE DATABASE m",
    ):
        opened.run(statement)
    yield found
    for statement in (b"DROP DATABASE m", b"DROP DATABASE IF EXISTS tidb_binlog"):
        opened.run(statement)
    opened.close()


@pytest.fixture
def connection(target: Target) -> Iterator[Connection]:
    """To `target`; every statement commits."""
    opened = connect(target)
    opened.autocommit(True)
    yield opened
    opened.close()

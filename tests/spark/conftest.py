"""One Spark session for all tests: start-up costs seconds, a second session gives nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any, Final

import pymysql
import pytest
from pyspark.sql import SparkSession

from common import clock
from deploy.playground.cluster.mariadb import MariaDbServer
from drainer.sink.mysql import connection as mysql
from drainer.spark.session import session

_QUICK_START: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # jobs of seconds


@pytest.fixture(scope="session", autouse=True)
def _quick_start() -> Iterator[None]:
    """For the JVMs of commands and clusters."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
            patch.setenv(name, _QUICK_START)
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two slots, one GiB, two shuffle partitions: keep data and jobs small."""
    clock.use_utc()
    interrupt = signal.getsignal(signal.SIGINT)
    made = session(
        "tests",
        "local[2]",
        {
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
        },
    )
    signal.signal(signal.SIGINT, interrupt)  # Spark's own asks the JVM first, in whichever test it comes
    yield made
    made.stop()


@pytest.fixture
def target(mariadb: MariaDbServer) -> Iterator[mysql.Target]:
    """A database server with an empty database m."""
    found = mysql.Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password, mariadb.socket)
    opened = mysql.connect(found)
    for statement in (
        b"DROP DATABASE IF EXISTS tidb_binlog",
        b"DROP DATABASE IF EXISTS m",
        b"CREATE DATABASE m",
    ):
        mysql.run(opened, statement)
    yield found
    for statement in (b"DROP DATABASE m", b"DROP DATABASE IF EXISTS tidb_binlog"):
        mysql.run(opened, statement)
    opened.close()


@pytest.fixture
def connection(target: mysql.Target) -> Iterator[pymysql.Connection[Any]]:
    """To `target`; every statement commits."""
    opened = mysql.connect(target)
    opened.autocommit(True)
    yield opened
    opened.close()

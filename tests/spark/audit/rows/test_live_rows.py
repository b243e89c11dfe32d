"""The database that an archive is audited with, as an account sees it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Target, connect
from drainer.spark.audit.checks.reference_side import Database
from tidb_binlog.errors import DownstreamError

pytestmark = pytest.mark.integration


def test_a_table_that_is_not_shown_is_not_missing(mariadb: MariaDbServer) -> None:
    target = Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password)
    with closing(connect(target)) as connection:
        for statement in (
            "CREATE OR REPLACE DATABASE audited",
            "CREATE TABLE audited.shown (id INT PRIMARY KEY)",
            "CREATE TABLE audited.hidden (id INT PRIMARY KEY)",
            "CREATE OR REPLACE USER auditor@'%' IDENTIFIED BY 'x'",
            "GRANT SELECT ON audited.shown TO auditor@'%'",
        ):
            connection.run(statement.encode())
        try:
            with closing(Database(target, 0)) as side:
                assert side.describe(("audited", "gone")) is None
                assert side.should_have(("audited", "gone"))
            with closing(Database(replace(target, user="auditor", password="x"), 0)) as side:
                assert side.describe(("audited", "shown")) is not None
                assert side.describe(("audited", "hidden")) is None
                with pytest.raises(DownstreamError, match=r"does not show audited\.hidden"):
                    side.should_have(("audited", "hidden"))
        finally:
            connection.run(b"DROP USER auditor@'%'")
            connection.run(b"DROP DATABASE audited")

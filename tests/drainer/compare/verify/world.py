"""Two databases of one server, one as upstream, one as downstream."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.compare.verify.result import RowDifference, TableResult, Verification
from drainer.compare.verify.row_source import Sides, sides_at_rest
from drainer.compare.verify.table_work import Request
from drainer.compare.verify.verifying import Pace, Progress, Verifying
from drainer.mysql.connection import Connection, Target, connect
from tests.waiting import PATIENCE_S

UPSTREAM, DOWNSTREAM = "verify_up", "verify_down"
QUICK = Pace(workers=2, retries=0, retry_pause_s=0.0, chunk_rows=20)


@dataclass
class World:
    """`moments`: those that were opened. `told`: differences that were confirmed."""

    target: Target
    connection: Connection
    moments: list[Sides] = field(default_factory=list)
    told: list[RowDifference] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.connection.run(statement.encode())
        self.connection.commit()

    def make(self, name: str, definition: str, rows: str = "") -> None:
        """A table on both sides; `rows`: what an INSERT says after the name."""
        for schema in (UPSTREAM, DOWNSTREAM):
            self.run(f"CREATE OR REPLACE TABLE {schema}.{name} ({definition})")
            if rows:
                self.run(f"INSERT INTO {schema}.{name} {rows}")

    def client(self, script: Path) -> subprocess.CompletedProcess[bytes]:
        """The server's own client runs a file."""
        program = shutil.which("mariadb") or shutil.which("mysql")
        assert program, "the tests need MariaDB's client"
        target = self.target
        at = [f"-h{target.host}", f"-P{target.port}", f"-u{target.user}", "--protocol=tcp"]
        with script.open("rb") as file:
            return subprocess.run(
                [program, "--no-defaults", *at],
                stdin=file,
                capture_output=True,
                env={**os.environ, "MYSQL_PWD": target.password},
                timeout=PATIENCE_S,
                check=False,
            )

    def moment(self) -> Sides:
        sides = sides_at_rest(100 + len(self.moments), self.target, self.target, sessions=2)
        self.moments.append(sides)
        return sides

    def verifying(self, *names: str, pace: Pace = QUICK, **more: Any) -> Verifying:
        wanted = [Request(((UPSTREAM, name),), (DOWNSTREAM, name)) for name in names]
        return self.of(wanted, pace, **more)

    def of(self, wanted: Sequence[Request], pace: Pace = QUICK, **more: Any) -> Verifying:
        more = {"open_moment": self.moment, **more}
        return Verifying(
            listing=lambda _: wanted,
            pace=pace,
            on_difference=lambda _, one: self.told.append(one),
            on_progress=self.progress.append,
            **more,
        )

    def verify(self, *names: str, pace: Pace = QUICK) -> Verification:
        return self.verifying(*names, pace=pace).run()

    def table(self, name: str, **pace: Any) -> TableResult:
        (found,) = self.verify(name, pace=replace(QUICK, **pace)).tables
        return found


@contextmanager
def world(mariadb: MariaDbServer) -> Iterator[World]:
    target = Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password)
    connection = connect(target)
    for schema in (UPSTREAM, DOWNSTREAM):
        connection.run(f"CREATE DATABASE {schema}".encode())
    try:
        yield World(target, connection)
    finally:
        connection.rollback()
        for schema in (UPSTREAM, DOWNSTREAM):
            connection.run(f"DROP DATABASE {schema}".encode())
        connection.close()

"""`verify.equal`: tables of sysbench on two servers, which are equal, compared by `Verifying`.

A rate is rows of one side by the time from the opened moment to the result. Its limit is measured in the
same run: both servers sum up the same tables at the same time, on one bare connection each.
CPU is that of this process; the servers' own is in the note.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from typing import Final

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.compare.verify.checksum import sum_queries
from drainer.compare.verify.compared_table import ComparedTable, compared_table
from drainer.compare.verify.result import State
from drainer.compare.verify.row_source import sides_at_rest
from drainer.compare.verify.table_work import Request
from drainer.compare.verify.verifying import Pace, Verifying
from drainer.mysql.connection import Target, connect
from drainer.mysql.table_reader import read_table
from tests.benchmarks.measure import cpu_s
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tidb_binlog.errors import BinlogError

TABLES: Final = 4
ROWS: Final = 200_000
ROUNDS: Final = 5
WORKERS: Final = 4
WANTED_S: Final = 400_000
SCHEMA: Final = "sbtest"
_MAKE: Final = (
    "CREATE TABLE sbtest.{name} (id INT PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL,"
    " pad CHAR(60) NOT NULL, KEY k (k))"
)
_FILL: Final = (
    "INSERT INTO sbtest.{name} SELECT seq, seq * 7919 % {rows},"
    " CONCAT_WS('-', MD5(seq), MD5(-seq), MD5(seq + 1), LEFT(MD5(seq), 20)),"
    " CONCAT(MD5(-seq), LEFT(MD5(seq), 27))"
    " FROM mysql.seq_1_to_{rows}"
)


def run(settings: Settings) -> Result:
    with tempfile.TemporaryDirectory() as directory, ExitStack() as ends:
        servers = [_server(Path(directory) / name, ends) for name in ("up", "down")]
        targets = [_filled(server) for server in servers]
        tables = [_table(targets, f"t{number}") for number in range(TABLES)]
        _bare(targets, tables)  # what is read is in memory from here on
        pids = [server.process.pid for server in servers if server.process is not None]
        before = sum(map(cpu_s, pids)), cpu_s(os.getpid())
        ours = [_timed(lambda: _verified(targets)) for _ in range(ROUNDS)]
        after = sum(map(cpu_s, pids)), cpu_s(os.getpid())
        theirs = [_timed(lambda: _bare(targets, tables)) for _ in range(ROUNDS)]
    rows = TABLES * ROWS
    rate, limit = rows / median(ours), rows / median(theirs)
    servers_us, client_us = (
        (late - early) * 1e6 / (rows * ROUNDS) for early, late in zip(before, after, strict=True)
    )
    return Result(
        name="verify.equal",
        value=rate,
        unit="rows/s",
        cpu_us_per_unit=client_us,
        compared_to=f"the servers alone, {limit:,.0f}/s",
        ratio=rate / limit,
        note=(
            f"{rows:,} rows on each of two MariaDB, {ROUNDS} rounds; both servers {servers_us:.1f} us a row;"
            f" wanted {WANTED_S:,}/s"
        ),
    )


def _server(directory: Path, ends: ExitStack) -> MariaDbServer:
    server = MariaDbServer()
    server.start(directory)
    ends.callback(server.stop)
    return server


def _filled(server: MariaDbServer) -> Target:
    target = Target(
        server.host, server.port, server.user, server.password, server.socket, read_timeout_s=None
    )
    with closing(connect(target)) as connection:
        connection.run(b"CREATE DATABASE sbtest")
        for number in range(TABLES):
            name = f"t{number}"
            connection.run(_MAKE.format(name=name).encode())
            connection.run(_FILL.format(name=name, rows=ROWS).encode())
            connection.commit()
            connection.rows(f"ANALYZE TABLE sbtest.{name}".encode())
    return target


def _table(targets: list[Target], name: str) -> ComparedTable:
    described = []
    for target in targets:
        with closing(connect(target)) as connection:
            described.append(read_table(connection, SCHEMA, name))
    upstream, downstream = described
    assert upstream is not None
    assert downstream is not None
    found = compared_table([upstream], downstream)
    assert isinstance(found, ComparedTable), found
    return found


def _timed(work: Callable[[], None]) -> float:
    began_s = time.monotonic()
    work()
    return time.monotonic() - began_s


def _verified(targets: list[Target]) -> None:
    """Raises `BinlogError` where they are not found equal."""
    names = [(SCHEMA, f"t{number}") for number in range(TABLES)]
    found = Verifying(
        lambda: sides_at_rest(1, *targets, sessions=WORKERS + 1),
        lambda _: [Request((name,), name) for name in names],
        Pace(workers=WORKERS),
    ).run()
    if found.state is not State.EQUAL or found.rows != TABLES * ROWS:
        raise BinlogError(f"{found.rows} rows are {found.state}")


def _bare(targets: list[Target], tables: list[ComparedTable]) -> None:
    def work(side: int) -> None:
        with closing(connect(targets[side])) as connection:
            for table in tables:
                for query in sum_queries(table, side, b""):
                    connection.rows(query)

    with ThreadPoolExecutor(2) as both:
        list(both.map(work, range(2)))

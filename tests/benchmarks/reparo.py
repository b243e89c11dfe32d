"""`reparo.sysbench`: an archive of known rows into a MariaDB, by the command as a user calls it.

A rate is row changes by the time from exec to exit. It is compared with the replay of `binlog-spark` without
Spark's tasks, which folds a range before it writes, of the same archive into the same server in the same run,
in turns, and so with Go's command. The tables are compared with what they must be after every round.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Target, connect
from drainer.spark.replay.entry import replay
from drainer.spark.replay.plan import ReplayOptions
from tests.benchmarks.peer.programs import REPARO, program
from tests.benchmarks.report import Result, Theirs
from tests.benchmarks.settings import Settings
from tests.benchmarks.spark.replay import cpu_below
from tests.benchmarks.spark.rows import WORKLOADS, Rows, write
from tidb_binlog.errors import DownstreamError

ROWS: Final = 100_000
ROUNDS: Final = 3
OURS: Final = [sys.executable, "-m", "drainer.reparo"]


@dataclass(frozen=True, slots=True)
class Round:
    seconds: float
    client_us: float
    server_us: float


def run(settings: Settings) -> Result:
    with tempfile.TemporaryDirectory() as name:
        directory, server, rows = Path(name), MariaDbServer(), Rows()
        archive = directory / "archive"
        write(archive, rows, WORKLOADS["oltp"](rows, ROWS))
        server.start(directory / "db")
        try:
            target = Target(server.host, server.port, server.user, server.password, server.socket)
            arguments = _arguments(directory, archive, target)
            go = program(settings.peer, REPARO)
            ours, replays, peers = [], [], []
            for _ in range(ROUNDS):
                ours.append(_measured(rows, target, lambda: _reparo(OURS, arguments)))
                replays.append(_measured(rows, target, lambda: _replay(archive, target)))
                if go:
                    peers.append(_measured(rows, target, lambda: _reparo([str(go)], arguments)))
        finally:
            server.stop()
    rate, other = (rows.changes / median(one.seconds for one in rounds) for rounds in (ours, replays))
    client, server_cpu = (median(getattr(one, name) for one in ours) for name in ("client_us", "server_us"))
    other_cpu = median(one.client_us for one in replays)
    return Result(
        name="reparo.sysbench",
        value=rate,
        unit="changes/s",
        cpu_us_per_unit=client,
        compared_to=f"replay without Spark, {other:,.0f}/s, {other_cpu:.1f} us",
        ratio=rate / other,
        note=(
            f"{rows.changes:,} row changes, from exec to exit in"
            f" {', '.join(f'{one.seconds:.1f} s' for one in ours)};"
            f" MariaDB {server_cpu:.1f} us a change; contents verified"
        ),
        theirs=Theirs.of([rows.changes / one.seconds for one in peers], [one.client_us for one in peers]),
    )


def _arguments(directory: Path, archive: Path, target: Target) -> list[str]:
    file = directory / "reparo.toml"
    file.write_text(
        f'data-dir = "{archive}"\ndest-type = "mysql"\n[dest-db]\nhost = "{target.host}"\n'
        f'port = {target.port}\nuser = "{target.user}"\npassword = "{target.password}"\n'
    )
    return ["-config", str(file), "-L", "error"]


def _reparo(program: list[str], arguments: list[str]) -> None:
    command = [*program, *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _replay(archive: Path, target: Target) -> None:
    replay(None, str(archive), target, options=ReplayOptions())


def _measured(rows: Rows, target: Target, work: Callable[[], None]) -> Round:
    """Raises `DownstreamError` if the tables are not right then."""
    connection = connect(target)
    for schema in ("sbtest", "tidb_binlog", "tidb_binlog_reparo"):
        connection.run(f"DROP DATABASE IF EXISTS {schema}".encode())
    connection.close()
    rows.create(target)
    before, began_s = cpu_below(os.getpid()), time.monotonic()
    work()
    seconds = time.monotonic() - began_s
    after = cpu_below(os.getpid())
    wrong = rows.differing(target)
    if wrong:
        raise DownstreamError("; ".join(wrong))
    used = {name: (after[name] - before.get(name, 0.0)) * 1e6 / rows.changes for name in after}
    server = sum(us for name, us in used.items() if name.startswith(("mariadb", "mysqld")))
    return Round(seconds, sum(used.values()) - server, server)

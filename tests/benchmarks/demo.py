"""`demo.first_row`: how long a newcomer waits for the first replicated row of the demo.

Compared with a MariaDB alone: made, started, one row inserted and read. The rest is ours.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from binlog_playground.cluster.mariadb import MariaDbServer
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tests.rig import ROOT
from tidb_binlog.errors import BinlogError

DEADLINE_S: Final = 120.0


def first_row_s() -> float:
    """What the demo says of itself. Raises `BinlogError` when it did not verify."""
    command = [sys.executable, "-m", "binlog_playground", "--seconds", "3", "--json"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if ended.returncode != 0:
        raise BinlogError(f"the demo ended with {ended.returncode}: {ended.stderr.strip()[-300:]}")
    return float(json.loads(ended.stdout)["first_row_s"])


def server_alone_s() -> float:
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        server = MariaDbServer()
        began_s = time.monotonic()
        try:
            server.start(Path(directory) / "mariadb")
            connection = server.open()
            with connection.cursor() as cursor:
                cursor.execute("CREATE DATABASE d")
                cursor.execute("CREATE TABLE d.t (a INT PRIMARY KEY)")
                cursor.execute("INSERT INTO d.t VALUES (1)")
                cursor.execute("SELECT a FROM d.t")
            took_s = time.monotonic() - began_s
            connection.close()
        finally:
            server.kill()
    return took_s


def run(settings: Settings) -> Result:
    alone_s = server_alone_s()
    first_s = first_row_s()
    return Result(
        name="demo.first_row",
        value=first_s,
        unit="s",
        compared_to=f"a MariaDB alone, made and started, {alone_s:.1f} s",
        ratio=first_s / alone_s,
        note="from the first process to the first replicated row; the demo verified its tables",
    )

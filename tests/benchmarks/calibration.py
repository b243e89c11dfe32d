"""What this machine does at the moment: three fixed pieces of work, timed before each benchmark.

A figure of one day may be compared with one of another day only as far as these are alike.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from binlog_playground.cluster.mariadb import MariaDbServer
from tests.benchmarks.measure import percentile
from tests.benchmarks.report import Calibration

TIMES: Final = 9
LOOP: Final = 100_000
ROWS: Final = 2000
SYNCED_BYTES: Final = 4096


@contextmanager
def calibrator() -> Iterator[Callable[[], Calibration]]:
    """Times the three each time it is called; a MariaDB of its own stands by until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="binlog-bench-") as name:
        server = MariaDbServer()
        server.start(Path(name) / "db")
        connection = server.open()
        file = os.open(Path(name) / "synced", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        try:
            cursor = connection.cursor()
            cursor.execute("CREATE DATABASE calibration")
            cursor.execute("USE calibration")  # what is called seq_... is of a database too
            cursor.execute("CREATE TABLE made (id BIGINT PRIMARY KEY, note VARCHAR(64))")
            statement = f"REPLACE INTO made SELECT seq, MD5(seq) FROM seq_1_to_{ROWS}"

            def sync() -> None:
                os.write(file, bytes(SYNCED_BYTES))
                os.fdatasync(file)

            yield lambda: Calibration(_ms(_loop), _ms(lambda: cursor.execute(statement)), _ms(sync))
        finally:
            os.close(file)
            connection.close()
            server.stop()


def _loop() -> None:
    total = 0
    for number in range(LOOP):
        total ^= number * number


def _ms(work: Callable[[], object]) -> float:
    """Median of a few times."""
    took = []
    for _ in range(TIMES):
        began_s = time.perf_counter()
        work()
        took.append((time.perf_counter() - began_s) * 1000)
    return percentile(took, 0.5)

"""Replays that are killed at random times, until one comes through; then the tables must be right.

    python -m tests.spark.support.kills [NUMBER]

does so NUMBER times (20) through Spark, whole process groups with SIGKILL: driver, JVM and workers at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Final

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Target
from drainer.spark.replay.entry import replay
from drainer.spark.replay.plan import ReplayOptions
from tests.drainer.support.apply_life import clean
from tests.drainer.support.relay_world import target_of
from tests.spark.support.growing import ArchiveWriter
from tests.spark.support.mixed_history import MixedHistory

ROOT: Final = Path(__file__).resolve().parents[3]
DONE_S: Final = 300.0


def child(archive: str, socket: str, user: str, spark: bool) -> None:
    """The process that is killed. The password comes by the environment."""
    target = Target("localhost", 0, user, os.environ["BINLOG_SPARK_PASSWORD"], socket)
    session = None
    if spark:
        from drainer.spark.session import session as session_of

        session = session_of("kills", "local[2]", {"spark.driver.memory": "1g"})
    print("begins", flush=True)
    replay(session, archive, target, options=ReplayOptions(small_bytes=0, chunk_rows=10))


def one(server: MariaDbServer, directory: Path, seed: int, *, spark: bool, within_s: float) -> int:
    """How often it was killed before it came through. Raises `AssertionError` if tables differ then."""
    pick, target, history = Random(seed), target_of(server), MixedHistory(seed)
    clean(target)
    history.create(target)
    writer = ArchiveWriter(directory / "archive", 60_000)
    writer.write(history.items(600, 300))
    writer.close()
    kills = 0
    while not _life(server, str(directory / "archive"), spark=spark, seconds=pick.random() * within_s):
        kills += 1
        within_s *= 2  # so that it comes through in the end
    assert history.downstream(target) == history.rows, f"seed {seed}, {kills} kills"
    return kills


def _life(server: MariaDbServer, archive: str, *, spark: bool, seconds: float) -> bool:
    """Whether it came through in that time from when it began."""
    command = [sys.executable, "-m", __spec__.name, "--child", archive, server.socket, server.user]
    process = subprocess.Popen(
        [*command, "spark" if spark else ""],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "BINLOG_SPARK_PASSWORD": server.password},
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"begins\n"
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        assert code == 0
        return True
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:5], spark=bool(sys.argv[5]))
        return
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    server = MariaDbServer()
    with tempfile.TemporaryDirectory() as directory:
        server.start(Path(directory, "db"))
        try:
            kills = seed = 0
            while kills < number:
                path = Path(directory, str(seed))
                path.mkdir()
                kills += one(server, path, seed, spark=True, within_s=10.0)
                seed += 1
                print(f"{kills} kills, {seed} replays, all equal", flush=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main()

"""Reparo is killed at random places again and again: what the archive has is there in the end, once."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Target
from tests.drainer.support.apply_life import clean
from tests.drainer.support.relay_world import target_of
from tests.forked import Forked
from tests.spark.support.growing import ArchiveWriter, RelayLogWriter
from tests.spark.support.mixed_history import TRUNCATE, MixedHistory
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.integration

KILLS = 8
WITHIN_S = 0.6
"""From the start of a process: some die before they have begun."""


@pytest.fixture
def target(mariadb: MariaDbServer) -> Iterator[Target]:
    found = target_of(mariadb)
    clean(found)
    yield found
    clean(found)


def configured(directory: Path, target: Target, archive: Path) -> list[str]:
    """The file is one that the Go tool would take, but for the socket."""
    file = directory / "reparo.toml"
    file.write_text(
        f'data-dir = "{archive}"\ndest-type = "mysql"\ntxn-batch = 30\nworker-count = 4\n'
        f'[dest-db]\nuser = "{target.user}"\npassword = "{target.password}"\nsocket = "{target.socket}"\n'
    )
    return ["-config", str(file)]


def until_it_applies(process: Forked, log: Path) -> None:
    """Before that a signal ends it at once."""
    end_s = time.monotonic() + PATIENCE_S
    while "after_ts=" not in (log.read_text() if log.exists() else ""):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end_s
        time.sleep(0.05)


@pytest.mark.parametrize(("seed", "relay"), [(1, False), (3, True)])
def test_killed_at_random_it_ends_as_if_it_had_not_been(
    target: Target, tmp_path: Path, seed: int, *, relay: bool
) -> None:
    pick, history, archive = Random(seed), MixedHistory(seed), tmp_path / "archive"
    history.create(target)
    writer = (RelayLogWriter if relay else ArchiveWriter)(archive, 60_000)
    writer.write(history.items(1500, 700, TRUNCATE))
    writer.close()
    arguments, log = configured(tmp_path, target, archive), tmp_path / "log"
    done = 0
    for _ in range(KILLS):
        # Slow enough that it cannot come through: what it does until it is killed has to be gone on with.
        process = Forked("drainer.reparo", [*arguments, "-speed", "1500"], log)
        try:
            done += process.wait(pick.random() * WITHIN_S + 0.1) == 0
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
    last = Forked("drainer.reparo", arguments, log)
    assert last.wait(PATIENCE_S) == 0, log.read_text()[-2000:]
    assert history.downstream(target) == history.rows
    assert done < KILLS


def test_a_signal_ends_it_between_two_commits_and_the_same_command_goes_on(
    target: Target, tmp_path: Path
) -> None:
    history, archive = MixedHistory(9), tmp_path / "archive"
    history.create(target)
    writer = ArchiveWriter(archive, 60_000)
    writer.write(history.items(800))
    writer.close()
    arguments, log = configured(tmp_path, target, archive), tmp_path / "log"
    slow = Forked("drainer.reparo", [*arguments, "-speed", "30"], log)
    until_it_applies(slow, log)
    slow.send_signal(signal.SIGTERM)
    assert slow.wait(PATIENCE_S) == 0
    assert "stopped before the end: the same command goes on from here" in log.read_text()
    assert history.downstream(target) != history.rows
    assert Forked("drainer.reparo", arguments, log).wait(PATIENCE_S) == 0
    assert history.downstream(target) == history.rows

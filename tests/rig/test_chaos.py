"""Faults meet processes that have just died by themselves."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from binlog_playground.check.statistics import Statistics
from binlog_playground.cluster.supervisor import Process
from tests.rig import chaos
from tests.rig.chaos import Chaos
from tests.spark.support import spark_command
from tidb_binlog.clock import SystemClock


async def test_a_driver_that_is_gone_is_not_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was left behind as process 0, with whose session others were killed."""
    left = []
    process = Process("drainer", ["true"], tmp_path / "log")
    cluster: Any = SimpleNamespace(
        drainer=SimpleNamespace(process=process),
        mariadb=SimpleNamespace(process=process),
        nodes=[],
        subscriber=None,
        small_disk=None,
        streams=True,
        leave_behind=lambda: left.append(process.pid),
    )
    writer: Any = SimpleNamespace(model=SimpleNamespace(schema="shop"))
    statistics = Statistics()
    faults = Chaos(cluster, writer, Random(1), statistics)
    monkeypatch.setattr(faults, "_faults", [(1, faults._driver_killed)])
    monkeypatch.setattr(chaos, "PAUSE_S", (0.0, 0.0))
    clock = SystemClock()
    await faults.run(clock.monotonic_s() + chaos.FROZEN_S[1] + 0.05, clock)
    assert (left, process.starts, statistics.kills) == ([], 0, 0)


def test_nothing_is_killed_with_process_0(monkeypatch: pytest.MonkeyPatch) -> None:
    killed = list[int]()
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(pid))
    spark_command.kill_session(0)
    assert killed == []

"""Faults meet processes that have just died by themselves."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from binlog_playground.cluster.supervisor import Process
from tests.rig import chaos
from tests.rig.chaos import Chaos
from tests.rig.workload.statistics import RigStatistics
from tests.spark.support import spark_command
from tidb_binlog.clock import SystemClock


def faults_of(process: Process, **cluster: Callable[[], Any]) -> tuple[Chaos, RigStatistics]:
    """Of a cluster with a stream of Spark that can do no more than this."""
    nodes = {name: SimpleNamespace(process=process) for name in ("drainer", "mariadb")}
    rest = {"nodes": [], "subscriber": None, "small_disk": None, "streams": True, "has_executors": True}
    whole: Any = SimpleNamespace(**rest, **nodes, **cluster)
    writer: Any = SimpleNamespace(model=SimpleNamespace(schema="shop"))
    statistics = RigStatistics()
    return Chaos(whole, writer, Random(1), statistics), statistics


async def test_a_driver_that_is_gone_is_not_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was left behind as process 0, with whose session others were killed."""
    left = []
    process = Process("drainer", ["true"], tmp_path / "log")
    faults, statistics = faults_of(process, leave_behind=lambda: left.append(process.pid))
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


async def test_an_executor_that_is_yet_to_come_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A campaign of nine runs had killed none."""
    looks = iter([([], []), ([], [1]), ([7, 8], [1])])
    monkeypatch.setattr(chaos, "WATCH_S", 0.0)
    monkeypatch.setattr(chaos, "DRIVERS_SHARE", 0.0)
    monkeypatch.setattr(os, "kill", lambda pid, number: None)
    faults, statistics = faults_of(Process("drainer", ["true"], tmp_path / "log"), jvms=lambda: next(looks))
    await faults._jvm_killed()
    assert statistics.faults == {"kill -9 of executor": 1}
    assert next(looks, None) is None

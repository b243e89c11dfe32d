"""Every benchmark runs to its end, for an instant and in one round: what is broken is seen here, no figure is
looked at.

A new one is run here unless it is named below: this file takes less than a minute of CPU.
"""

from __future__ import annotations

import ast
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Final

import pytest

from tests.benchmarks.calibration import calibrator
from tests.benchmarks.catalog import BENCHMARKS
from tests.benchmarks.report import Result, to_json
from tests.benchmarks.settings import Settings

LEFT_OUT: Final[dict[str, set[str]]] = {
    "starts Spark": {
        "spark.read.changes",
        "spark.count",
        "spark.scaling",
        "spark.executors",
        "spark.memory",
        "spark.replay",
        "spark.fold10",
        "spark.live",
        "spark.live.memory",
        "spark.mirror",
    },
    "stores or moves a million records or gigabytes first, whatever the time": {
        "pump.start.clean",
        "pump.start.killed",
        "pump.pull.batch",
        "pump.pull.compressed",
        "pump.memory.open",
        "pump.index.catchup",
        "door.message.1gib",
        "door.idle.1000",
        "door.hostile",
        "upstream.history.1m",
        "load.sysbench",
        "verify.equal",
        "drain.memory",
        "drain.large",
        "lag.verify",
    },
    "makes and drains a whole workload: 15 s of CPU and more": {
        "drain.sysbench",
        "drain.inserts",
        "drain.durable",
        "drain.keyless",
        "drain.rules",
        "drain.hot",
        "drain.wide",
        "drain.collation",
        "drain.relay",
        "drain.ddl",
        "drain.start",
        "file.sysbench",
        "file.inserts",
        "file.s3",
        "kafka.obinlog",
        "kafka.canal-json",
        "archive.arrow",
        "reparo.sysbench",
        "subscribe.rows",
        "verify.hold",
        "demo.first_row",
    },
    "the same code as one that is run": {
        "pump.write.batch",
        "pumpclient.write.64",
        "pumpclient.failover",
        "lag.idle.2",
        "lag.load",
        "subscribe.lag",
        "tail.start",
        "door.empty.unary.64",
        "door.write.unary.1",
        "door.write.unary.64",
        "door.write.unary.256",
        "door.write.tls.64",
        "door.write.pullers.50",
    },
    "waits half a minute until a stream is quiet": {"pump.idle", "drainer.idle"},
}
RUN: Final = [name for name in BENCHMARKS if not any(name in names for names in LEFT_OUT.values())]


def test_what_is_left_out_exists() -> None:
    assert set().union(*LEFT_OUT.values()) < set(BENCHMARKS)


def test_a_result_can_be_made() -> None:
    """Also at the end of a benchmark that is not run here: its fields have names."""
    paths = Path(__file__).parent.rglob("*.py")
    calls = [
        (path.name, node.lineno, node.args)
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Result"
    ]
    assert len(calls) > 30
    assert not [f"{name}:{line}" for name, line, args in calls if args]


@pytest.mark.integration
def test_the_machine_is_timed() -> None:
    with calibrator() as calibrate:
        taken = [calibrate(), calibrate()]
    assert all(one > 0 for each in taken for one in asdict(each).values())


@pytest.fixture
def _in_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round starts its processes anew."""
    for name, module in list(sys.modules.items()):
        for rounds in ("ROUNDS", "ROUNDS_MIN", "TURNS"):
            if name.startswith("tests.benchmarks.") and hasattr(module, rounds):
                monkeypatch.setattr(module, rounds, 1)


@pytest.mark.integration
@pytest.mark.usefixtures("_in_one_round")
@pytest.mark.parametrize("name", RUN)
def test_a_benchmark_runs(name: str) -> None:
    found = BENCHMARKS[name](Settings(seconds=0.2, backlog_bytes=1 << 20))
    results = [found] if isinstance(found, Result) else found
    assert results
    assert to_json(results)
    for result in results:
        assert result.name == name or result.name.startswith(f"{name}.")
        assert result.value > 0
        assert 0 < result.ratio < math.inf

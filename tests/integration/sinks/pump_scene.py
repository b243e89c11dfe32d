"""A pump that holds a recorded workload, and drainers of it that come and go, as processes."""

from __future__ import annotations

import json
import random
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from binlog_playground.replay import Replay
from binlog_playground.scenario import Scenario
from tests.benchmarks.drainer.stored import fill
from tests.forked import Forked
from tests.waiting import PATIENCE_S, until_here
from tidb_binlog.upstream.standalone import StandaloneUpstream


class PumpScene:
    """Processes are killed by `end`."""

    def __init__(self, endpoint: str, directory: Path, free_port: Callable[[], int]) -> None:
        self._endpoint = endpoint
        self.directory = directory
        self._free_port = free_port
        self.processes: list[Forked | subprocess.Popen[bytes]] = []

    def start(self, program: str, *arguments: str) -> tuple[Forked, str]:
        address = f"127.0.0.1:{self._free_port()}"
        common = [f"--addr={address}", f"--pd-urls={self._endpoint}", f"--log-file={self.directory / 'log'}"]
        process = Forked(program, [*common, *arguments])
        self.processes.append(process)
        return process, f"http://{address}/status"

    def start_pump(self) -> None:
        _, url = self.start("pump", f"--data-dir={self.directory / 'pump'}", "--node-id=p")
        until_here(lambda: status(url))

    def start_sink(self, syncer: str, *arguments: str) -> tuple[Forked, str]:
        """A drainer, from the beginning; `syncer` is what its file says from [syncer] on."""
        config = self.directory / "drainer.toml"
        config.write_text(f'initial-commit-ts = 0\n[syncer]\ncheckpoint-interval = "20ms"\n{syncer}')
        own = [f"--config={config}", f"--data-dir={self.directory / 'drainer'}", "--node-id=a"]
        return self.start("drainer", *own, *arguments)

    def end(self) -> None:
        for one in self.processes:
            one.kill()
            one.wait()


def killed(process: Forked, rng: random.Random) -> None:
    time.sleep(rng.uniform(0, 0.05))
    process.kill()
    process.wait()


def status(url: str) -> dict[str, Any] | None:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as reply:
            document: dict[str, Any] = json.load(reply)
            return document
    except OSError:
        return None


def through(url: str, scenario: Scenario) -> Callable[[], bool]:
    """Whether a Drainer has applied all."""
    return lambda: int((status(url) or {}).get("AppliedTS", 0)) >= scenario.last_commit_ts


def on(size: Callable[[], Any], url: str, scenario: Scenario) -> Callable[[], bool]:
    """Whether a Drainer has written more than there is now, by `size`; or all: a fast one may have written
    its last row before anyone looked."""
    before, is_through = size(), through(url, scenario)
    return lambda: bool(size() > before) or is_through()


async def stored(endpoint: str, directory: Path, scenario: Scenario) -> Scenario:
    upstream = await StandaloneUpstream.connect(endpoint, cluster_id=scenario.cluster_id)
    await Replay.prepare(scenario, upstream)
    (records,) = scenario.files
    await fill(directory / "pump", "p", scenario.cluster_id, records)
    await upstream.oracle.pin(scenario.last_commit_ts + 1)
    await upstream.close()
    return scenario

"""`db-type = "file"` as a process that also compresses: killed, and succeeded by a standby; no record is lost
or there twice."""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from common.record import decode_file
from common.upstream.standalone import StandaloneUpstream
from deploy.playground.replay import Replay
from deploy.playground.scenario import Scenario
from drainer.formats import binlog_file
from drainer.formats.obinlog.writer import commit_ts_of
from drainer.sink.file.segments import ArchiveSegments
from tests.benchmarks.drainer import workloads
from tests.benchmarks.drainer.file_sink import replayed, segments, verify
from tests.benchmarks.drainer.stored import fill

pytestmark = pytest.mark.integration
DEADLINE_S = 60.0
TRANSACTIONS = 6000


class Scene:
    """A pump that holds a workload; drainers come and go."""

    def __init__(self, endpoint: str, directory: Path, free_port: Callable[[], int]) -> None:
        self._endpoint = endpoint
        self._directory = directory
        self._free_port = free_port
        self.archive = directory / "archive"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, module: str, *arguments: str) -> tuple[subprocess.Popen[bytes], str]:
        address = f"127.0.0.1:{self._free_port()}"
        common = [f"--addr={address}", f"--pd-urls={self._endpoint}", f"--log-file={self._directory / 'log'}"]
        process = subprocess.Popen([sys.executable, "-m", module, *common, *arguments])
        self.processes.append(process)
        return process, f"http://{address}/status"

    def start_drainer(self, *arguments: str) -> tuple[subprocess.Popen[bytes], str]:
        config = self._directory / "drainer.toml"
        config.write_text(
            f'initial-commit-ts = 0\n[syncer]\ndb-type = "pb"\ncheckpoint-interval = "20ms"\n'
            f'[syncer.to]\ndir = "{self.archive}"\nfile-size = "1 MiB"\ncompression = "zstd"\n'
        )
        own = [f"--config={config}", f"--data-dir={self._directory / 'drainer'}", "--node-id=a"]
        return self.start("drainer", *own, *arguments)

    def grows(self) -> Callable[[], bool]:
        """Whether the archive has more than it has now."""
        before = self._end()
        return lambda: self._end() > before

    def _end(self) -> tuple[str, int]:
        """Of the newest segment, which is never compressed."""
        newest = max(segments(self.archive), default=None)
        return (newest.name, newest.stat().st_size) if newest else ("", 0)

    def unpacked(self) -> int:
        """Unpack what is compressed; how many segments."""
        found = list(self.archive.glob("binlog-*.zst"))
        for path in found:
            data = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
            (self.archive / binlog_file.plain_name(path.name)).write_bytes(data)
            path.unlink()
        return len(found)


def killed(process: subprocess.Popen[bytes], rng: random.Random) -> None:
    time.sleep(rng.uniform(0, 0.05))
    process.kill()
    process.wait()


def status(url: str) -> dict[str, Any] | None:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            document: dict[str, Any] = json.load(reply)
            return document
    except OSError:
        return None


def until(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.005)


def timestamps(directory: Path) -> Iterator[int]:
    for path in segments(directory):
        data, at = path.read_bytes(), 0
        while at < len(data):
            payload, at = decode_file(data, at)
            yield commit_ts_of(payload[:32])


async def stored(scene: Scene, endpoint: str, directory: Path) -> Scenario:
    scenario = workloads.hot(TRANSACTIONS)
    upstream = await StandaloneUpstream.connect(endpoint, cluster_id=scenario.cluster_id)
    await Replay.prepare(scenario, upstream)
    (records,) = scenario.files
    await fill(directory / "pump", "p", scenario.cluster_id, records)
    await upstream.oracle.pin(scenario.last_commit_ts + 1)
    await upstream.close()
    return scenario


async def test_kills_and_a_successor(etcd_clean: str, free_port: Callable[[], int], tmp_path: Path) -> None:
    scene = Scene(etcd_clean, tmp_path, free_port)
    scenario = await stored(scene, etcd_clean, tmp_path)
    rng = random.Random(11)
    try:
        _, pump = scene.start("pump", f"--data-dir={tmp_path / 'pump'}", "--node-id=p")
        until(lambda: status(pump))
        process, _ = scene.start_drainer()
        until(scene.grows())
        killed(process, rng)
        process, _ = scene.start_drainer()
        until(scene.grows())
        successor, url = scene.start_drainer("--standby")
        until(lambda: (status(url) or {}).get("State") == "standby")
        killed(process, rng)
        process = successor
        until(lambda: (status(url) or {}).get("AppliedTS", 0) >= scenario.last_commit_ts)
        until(lambda: list(scene.archive.glob("binlog-*.zst")))
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    finally:
        for one in scene.processes:
            one.kill()
            one.wait()
    assert scene.unpacked()
    found = list(timestamps(scene.archive))
    assert all(a < b for a, b in itertools.pairwise(found))
    tables, _ = replayed(scene.archive)
    verify(tables, scenario.checksums)
    savepoint = tomllib.loads((tmp_path / "drainer" / "savepoint").read_text())
    assert savepoint["consistent"] is True
    assert savepoint["commitTS"] >= found[-1]
    described = ArchiveSegments(str(scene.archive))
    indexes = [described.index_of(name) for _, name in described.in_order()]
    assert sum(one.transactions + one.ddl for one in indexes if one is not None) == len(found)

"""`db-type = "file"` into an object store, as a process: killed again and again, then succeeded by a standby;
no record is lost or there twice."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.benchmarks.drainer import workloads
from tests.integration.sinks.pump_scene import killed, on, status, stored, through
from tests.integration.sinks.s3_scene import S3Scene, check, size_of
from tests.object_store import ObjectStore
from tests.waiting import PATIENCE_S, until_here

pytestmark = pytest.mark.integration
TRANSACTIONS = 6000
KILLS = 4


async def test_kills_and_a_successor(
    etcd_clean: str, s3: ObjectStore, free_port: Callable[[], int], tmp_path: Path
) -> None:
    scene = S3Scene(etcd_clean, tmp_path, free_port)
    scene.uri = s3.uri("archive")
    scenario = await stored(etcd_clean, tmp_path, workloads.hot(TRANSACTIONS))
    rng = random.Random(11)
    try:
        scene.start_pump()
        for _ in range(KILLS):
            process, url = scene.start_drainer()
            until_here(on(lambda: size_of(s3), url, scenario))
            killed(process, rng)
        process, _ = scene.start_drainer()
        successor, url = scene.start_drainer("--standby")
        until_here(lambda: (status(url) or {}).get("State") == "standby")
        killed(process, rng)
        process = successor
        until_here(through(url, scenario))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        scene.end()
    check(s3, scene, scenario)

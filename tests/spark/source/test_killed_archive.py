"""An archive in S3 that killed Drainers wrote is what their Pump has, for every reader: a sample of
`tests.crash.archive_in_s3`."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.benchmarks.drainer import workloads
from tests.crash.archive_in_s3 import archived, check_readers
from tests.integration.sinks.pump_scene import stored
from tests.integration.sinks.s3_scene import S3Scene, check
from tests.object_store import ObjectStore

pytestmark = pytest.mark.integration
TRANSACTIONS = 2000


async def test_readers_find_each_change_once(
    etcd_clean: str, s3: ObjectStore, free_port: Callable[[], int], tmp_path: Path, spark: SparkSession
) -> None:
    scene = S3Scene(etcd_clean, tmp_path, free_port)
    scenario = await stored(etcd_clean, tmp_path, workloads.hot(TRANSACTIONS))
    try:
        scene.start_pump()
        archived(scene, s3, scenario, "archive", 2, random.Random(5))
    finally:
        scene.end()
    check(s3, scene, scenario)
    assert check_readers(s3, scenario, spark, "archive") == 2 * TRANSACTIONS + 1

"""`db-type = "file"` into an object store, as a process: killed again and again, then succeeded by a standby;
no record is lost or there twice."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from drainer.formats.obinlog.writer import commit_ts_of
from drainer.reading.archive.archive import open_archive
from tests.benchmarks.drainer import workloads
from tests.benchmarks.drainer.file_sink import replayed, verify
from tests.integration.sinks.pump_scene import DEADLINE_S, PumpScene, killed, status, stored
from tests.object_store import ObjectStore
from tests.waiting import until_here
from tidb_binlog.record import decode_file

pytestmark = pytest.mark.integration
TRANSACTIONS = 6000
KILLS = 4


class Scene(PumpScene):
    """Drainers that archive into a bucket."""

    uri = ""

    def start_drainer(self, *arguments: str) -> tuple[subprocess.Popen[bytes], str]:
        return self.start_sink(
            f'db-type = "file"\n[syncer.to]\ndir = "{self.uri}"\nfile-size = "1 MiB"\n'
            'upload-interval = "200ms"\n',
            *arguments,
        )


def grows(s3: ObjectStore) -> Callable[[], bool]:
    """Whether the archive has more than it has now."""

    def size() -> int:
        listed = s3.client().list_objects_v2(Bucket=s3.bucket, Prefix="archive/binlog-")
        return sum(entry["Size"] for entry in listed.get("Contents", []))

    before = size()
    return lambda: size() > before


async def test_kills_and_a_successor(
    etcd_clean: str, s3: ObjectStore, free_port: Callable[[], int], tmp_path: Path
) -> None:
    scene = Scene(etcd_clean, tmp_path, free_port)
    scene.uri = s3.uri("archive")
    scenario = await stored(etcd_clean, tmp_path, workloads.hot(TRANSACTIONS))
    rng = random.Random(11)
    try:
        scene.start_pump()
        for _ in range(KILLS):
            process, url = scene.start_drainer()
            until_here(grows(s3))
            killed(process, rng)
        process, _ = scene.start_drainer()
        successor, url = scene.start_drainer("--standby")
        until_here(lambda: (status(url) or {}).get("State") == "standby")
        killed(process, rng)
        process = successor
        until_here(lambda: (status(url) or {}).get("AppliedTS", 0) >= scenario.last_commit_ts)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    finally:
        scene.end()
    directory = tmp_path / "archive"
    timestamps = []
    for name, data in sorted(s3.objects().items()):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        at = 0
        while path.name.startswith("binlog-") and path.parent == directory and at < len(data):
            payload, at = decode_file(data, at)
            timestamps.append(commit_ts_of(payload[:32]))
    assert all(a < b for a, b in itertools.pairwise(timestamps))
    tables, _ = replayed(directory)
    verify(tables, scenario.checksums)
    savepoint = tomllib.loads((tmp_path / "drainer" / "savepoint").read_text())
    assert savepoint["consistent"] is True
    assert savepoint["commitTS"] >= timestamps[-1]
    changes = [change.commit_ts for change in open_archive(s3.uri("archive"))]
    assert changes == [change.commit_ts for change in open_archive(str(directory))]
    assert {*changes} <= {*timestamps}

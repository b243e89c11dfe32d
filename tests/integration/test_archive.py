"""`db-type = "file"` as a process that also compresses: killed, and succeeded by a standby; no record is lost
or there twice."""

from __future__ import annotations

import itertools
import random
import signal
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drainer.formats import binlog_file
from drainer.formats.obinlog.writer import commit_ts_of
from drainer.sink.file.segments import ArchiveSegments
from tests.benchmarks.drainer import workloads
from tests.benchmarks.drainer.file_sink import replayed, segments, verify
from tests.forked import Forked
from tests.integration.sinks.pump_scene import PumpScene, killed, on, status, stored, through
from tests.waiting import PATIENCE_S, until_here
from tidb_binlog.compression import zstd
from tidb_binlog.record import decode_file

pytestmark = pytest.mark.integration
TRANSACTIONS = 6000


class Scene(PumpScene):
    """Drainers that archive."""

    @property
    def archive(self) -> Path:
        return self.directory / "archive"

    def start_drainer(self, *arguments: str) -> tuple[Forked, str]:
        return self.start_sink(
            f'db-type = "pb"\n[syncer.to]\ndir = "{self.archive}"\n'
            'file-size = "1 MiB"\ncompression = "zstd"\n',
            *arguments,
        )

    def end_of_archive(self) -> tuple[str, int]:
        """Of the newest segment, which is never compressed."""
        newest = max(segments(self.archive), default=None)
        return (newest.name, newest.stat().st_size) if newest else ("", 0)

    def unpacked(self) -> int:
        """Unpack what is compressed; how many segments."""
        found = list(self.archive.glob("binlog-*.zst"))
        for path in found:
            data = zstd.unpacker().decompress(path.read_bytes())
            (self.archive / binlog_file.plain_name(path.name)).write_bytes(data)
            path.unlink()
        return len(found)


def timestamps(directory: Path) -> Iterator[int]:
    for path in segments(directory):
        data, at = path.read_bytes(), 0
        while at < len(data):
            payload, at = decode_file(data, at)
            yield commit_ts_of(payload[:32])


async def test_kills_and_a_successor(etcd_clean: str, free_port: Callable[[], int], tmp_path: Path) -> None:
    scene = Scene(etcd_clean, tmp_path, free_port)
    scenario = await stored(etcd_clean, tmp_path, workloads.hot(TRANSACTIONS))
    rng = random.Random(11)
    try:
        scene.start_pump()
        process, url = scene.start_drainer()
        until_here(on(scene.end_of_archive, url, scenario))
        killed(process, rng)
        process, url = scene.start_drainer()
        until_here(on(scene.end_of_archive, url, scenario))
        successor, url = scene.start_drainer("--standby")
        until_here(lambda: (status(url) or {}).get("State") == "standby")
        killed(process, rng)
        process = successor
        until_here(through(url, scenario))
        until_here(lambda: list(scene.archive.glob("binlog-*.zst")))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        scene.end()
    assert scene.unpacked()
    found = list(timestamps(scene.archive))
    assert all(a < b for a, b in itertools.pairwise(found))
    tables, _ = replayed(scene.archive)
    verify(tables, scenario.checksums)
    savepoint = tomllib.loads((tmp_path / "drainer" / "savepoint").read_text())
    assert savepoint["consistent"] is True
    assert savepoint["commitTS"] >= found[-1]
    described = ArchiveSegments(str(scene.archive))
    # Stored ones may end early where a kill came between records and their index: readers go on from there.
    indexes = [described.described(index, name) for index, name in described.in_order()]
    assert sum(one.transactions + one.ddl for one in indexes) == len(found)

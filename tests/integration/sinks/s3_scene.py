"""Drainers that archive into S3, and whether an archive there is what their Pump has."""

from __future__ import annotations

import itertools
import tomllib

from binlog_playground.scenario import Scenario
from drainer.formats.obinlog.writer import commit_ts_of
from drainer.reading.archive.archive import open_archive
from tests.benchmarks.drainer.file_sink import replayed, verify
from tests.forked import Forked
from tests.integration.sinks.pump_scene import PumpScene
from tests.object_store import ObjectStore
from tidb_binlog.record import decode_file


class S3Scene(PumpScene):
    """Drainers that archive into a bucket."""

    uri = ""

    def start_drainer(self, *arguments: str) -> tuple[Forked, str]:
        return self.start_sink(
            f'db-type = "file"\n[syncer.to]\ndir = "{self.uri}"\nfile-size = "1 MiB"\n'
            'upload-interval = "200ms"\n',
            *arguments,
        )


def size_of(s3: ObjectStore, place: str = "archive") -> int:
    """Octets in the archive's segments."""
    listed = s3.client().list_objects_v2(Bucket=s3.bucket, Prefix=f"{place}/binlog-")
    return sum(entry["Size"] for entry in listed.get("Contents", []))


def check(s3: ObjectStore, scene: S3Scene, scenario: Scenario, place: str = "archive") -> list[int]:
    """The commit_ts of all records of an archive that a Drainer has left in order."""
    timestamps = []
    directory = scene.directory / "objects" / place
    directory.mkdir(parents=True)
    for name, data in sorted(s3.objects().items()):
        if not name.startswith(f"{place}/binlog-") or name.count("/") > 1:
            continue
        (directory / name.rpartition("/")[2]).write_bytes(data)
        at = 0
        while at < len(data):
            payload, at = decode_file(data, at)
            timestamps.append(commit_ts_of(payload[:32]))
    assert all(a < b for a, b in itertools.pairwise(timestamps))
    tables, _ = replayed(directory)
    verify(tables, scenario.checksums)
    savepoint = tomllib.loads((scene.directory / "drainer" / "savepoint").read_text())
    assert savepoint["consistent"] is True
    assert savepoint["commitTS"] >= timestamps[-1]
    changes = [change.commit_ts for change in open_archive(s3.uri(place))]
    assert changes == [change.commit_ts for change in open_archive(str(directory))]
    assert {*changes} <= {*timestamps}
    return timestamps

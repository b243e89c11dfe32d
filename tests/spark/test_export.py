"""Export: what pumps have becomes the archive that a drainer would have written, whichever pump has it."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from drainer.formats.binlog_file import in_order
from drainer.places.place import Place
from drainer.reading.archive.files.segments import survey
from drainer.sink.file.remote_files import OWNER
from drainer.spark import program as program
from drainer.spark.export import export
from tests.drainer.reading.archive.support import corpus
from tests.drainer.support import recorded
from tests.drainer.support.archive_life import Ready, payloads, whole
from tests.drainer.support.relay_world import items
from tests.object_store import ObjectStore
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import ConfigError


async def drained(scenario: str, directory: Path) -> list[bytes]:
    """The records that a drainer archives."""
    await whole(directory, Ready(items(scenario)), max_file_size=1 << 30)
    return payloads(directory)


@pytest.mark.parametrize("scenario", recorded.VARIED)
async def test_records_are_those_of_a_drainer(scenario: str, tmp_path: Path) -> None:
    pumps = corpus.pumps(scenario, tmp_path / "pumps")
    archive = str(tmp_path / "archive")
    done = await export(pumps, recorded.jobs(scenario), archive, ManualClock(), finished=True)
    assert payloads(tmp_path / "archive") == await drained(scenario, tmp_path / "drained")
    assert done.files >= len(pumps)
    savepoint = (tmp_path / "archive" / "savepoint").read_text()
    assert "consistent = true" in savepoint


async def test_pumps_come_together_and_what_both_have_comes_once(tmp_path: Path) -> None:
    """Begun with one pump's logs of yesterday; gone on with those of today, one of them there twice."""
    pumps = corpus.pumps("multi-pump", tmp_path / "pumps")
    assert len(pumps) == 2
    twice = tmp_path / "twice"
    shutil.copytree(Path(pumps[0].uri), twice)
    jobs, archive = recorded.jobs("multi-pump"), str(tmp_path / "archive")
    first = await export([*pumps, Place(str(twice))], jobs, archive, ManualClock(), finished=True)
    everything = await drained("multi-pump", tmp_path / "drained")
    assert payloads(tmp_path / "archive") == everything
    again = await export(pumps, jobs, archive, ManualClock(), finished=True)
    assert (again.transactions, again.rows) == (0, 0) != (first.transactions, first.rows)
    assert payloads(tmp_path / "archive") == everything


async def test_nothing_is_lost_that_pumps_write_while_they_are_read(tmp_path: Path) -> None:
    """Logs that end anywhere, each elsewhere: what lies before a commit that is still to come must wait."""
    pumps = corpus.pumps("multi-pump", tmp_path / "pumps")
    jobs, archive = recorded.jobs("multi-pump"), tmp_path / "archive"
    logs = [path for pump in pumps for path in sorted((Path(pump.uri) / "value").iterdir())]
    whole_logs = [path.read_bytes() for path in logs]
    held_back = []
    for tenths in ((3, 6), (7, 6), (8, 9)):
        for path, data, part in zip(logs, whole_logs, tenths, strict=True):
            path.write_bytes(data[: len(data) * part // 10])
        done = await export(pumps, jobs, str(archive), ManualClock())
        held_back.append(done.held_back)
    for path, data in zip(logs, whole_logs, strict=True):
        path.write_bytes(data)
    await export(pumps, jobs, str(archive), ManualClock(), finished=True)
    assert payloads(archive) == await drained("multi-pump", tmp_path / "drained")
    assert all(held_back)


async def test_a_directory_without_a_value_log_is_refused(tmp_path: Path) -> None:
    pumps = [*corpus.pumps("basic", tmp_path / "pumps"), Place(str(tmp_path))]
    with pytest.raises(ConfigError, match="has no value log"):
        await export(pumps, recorded.jobs("basic"), str(tmp_path / "archive"), ManualClock())


async def test_it_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    (pump,) = corpus.pumps("keys", tmp_path / "pumps")
    archive = tmp_path / "archive"
    await export([pump], recorded.jobs("keys"), str(archive), ManualClock())
    everything = payloads(archive)
    ((_, name),) = in_order(str(archive), [path.name for path in archive.iterdir()])
    (archive / "savepoint").unlink()
    (archive / ".synced").unlink()
    whole = (archive / name).read_bytes()
    (archive / name).write_bytes(whole[: len(whole) * 2 // 3])
    await export([pump], recorded.jobs("keys"), str(archive), ManualClock())
    assert payloads(archive) == everything


async def test_without_the_history_it_says_what_is_needed(tmp_path: Path) -> None:
    pumps = corpus.pumps("basic", tmp_path / "pumps")
    with pytest.raises(ConfigError, match="no definitions of tables"):
        await export(pumps, [], str(tmp_path / "archive"), ManualClock())


def test_the_command_finds_the_history_beside_the_logs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pump,) = corpus.pumps("basic", tmp_path / "pumps")
    shutil.copy(recorded.ROOT / "basic" / "ddl_jobs.jsonl.gz", Path(pump.uri))
    arguments = ["export", "--from", pump.uri, "--to", str(tmp_path / "archive"), "--output", "json"]
    assert program.run(arguments) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["transactions"] > 20
    assert summary["unfinished"] == 0
    assert payloads(tmp_path / "archive") == asyncio.run(drained("basic", tmp_path / "drained"))


@pytest.mark.integration
async def test_records_in_an_object_store(s3: ObjectStore, tmp_path: Path) -> None:
    pumps, jobs = corpus.pumps("multi-pump", tmp_path / "pumps"), recorded.jobs("multi-pump")
    for _ in range(2):
        await export(pumps, jobs, s3.uri("archive"), ManualClock(), finished=True)
        assert all(OWNER not in name for name in s3.objects())  # a Drainer may go on from there
        for name, data in s3.objects().items():
            (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
            (tmp_path / name).write_bytes(data)
        assert payloads(tmp_path / "archive") == await drained("multi-pump", tmp_path / "drained")


@pytest.mark.integration
def test_indexes_are_written_to_an_object_store(
    s3: ObjectStore, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    local = corpus.our_archive(items("basic"), tmp_path / "archive", 4 << 10)
    for entry in local.list():
        Place(s3.uri("archive")).put(entry.name, local.content(entry.name))
    assert program.run(["index", "--archive", s3.uri("archive"), "--newest"]) == 0
    written = {name: data for name, data in s3.objects().items() if name.endswith(".json")}
    assert len(written) == len(local.under("index").list()) // 2 > 1
    assert survey(Place(s3.uri("archive"))).last_ts() == survey(local).last_ts()
    assert all(segment.is_covered for segment in survey(Place(s3.uri("archive"))).segments)
    assert "written" in capfd.readouterr().out

"""Arrow of an archive: the batches that Spark's tasks make, as one stream."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import drainer
from drainer.reading.archive import archive_source
from drainer.reading.archive.archive_source import ArchiveSource
from drainer.txn import Ddl, Transaction
from tests.drainer.reading.archive.support import corpus
from tests.drainer.support import recorded
from tests.drainer.support.relay_world import items
from tidb_binlog.errors import ConfigError, Corruption

PLACES = ("_file", "_pos", "_start_ts")


def of_tasks(path: str, **options: str) -> list[dict[str, Any]]:
    """What Spark's tasks would read, part by part."""
    source = ArchiveSource({"path": path, **options})
    task = source.task(source.schema)
    batches = [
        batch for part in source.parts() for batch in archive_source.read(task, source.options.view, part)
    ]
    return pa.Table.from_batches(batches, source.schema).to_pylist()


def without_places(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in PLACES} for row in rows]


@pytest.fixture(scope="module", params=["basic", "types"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A scenario as an archive, a relay log, and the pumps' logs."""
    directory = tmp_path_factory.mktemp(request.param)
    corpus.our_archive(items(request.param), directory / "archive", 8 << 10)
    corpus.our_relay(items(request.param), directory / "relay", 32 << 10)
    corpus.pumps(request.param, directory / "pumps")
    return request.param, directory


def test_typed_batches_are_those_of_a_task(made: tuple[str, Path]) -> None:
    _, directory = made
    archive = drainer.open_archive(directory / "archive")
    assert len(archive.tables) > 1
    for table in map(str, archive.tables):
        found = archive.to_arrow(table=table).read_all()
        assert found.to_pylist() == of_tasks(str(directory / "archive"), table=table), table


def test_json_batches_are_those_of_a_task(made: tuple[str, Path]) -> None:
    _, directory = made
    for kind in ("archive", "relay"):
        found = drainer.open_archive(directory / kind).to_arrow().read_all()
        assert found.to_pylist() == of_tasks(str(directory / kind)), kind
        assert found.num_rows > 20


def test_every_kind_has_the_same_rows(made: tuple[str, Path]) -> None:
    scenario, directory = made
    pumps = sorted(path for path in (directory / "pumps").rglob("value"))
    history = str(recorded.ROOT / scenario / "ddl_jobs.jsonl.gz")
    archive = drainer.open_archive(directory / "archive")
    relay = drainer.open_archive(directory / "relay")
    logs = drainer.open_archive([path.parent for path in pumps], ddl_history=history)
    for table in map(str, archive.tables):
        wanted = without_places(archive.to_arrow(table=table).read_all().to_pylist())
        assert without_places(relay.to_arrow(table=table).read_all().to_pylist()) == wanted, table
        assert without_places(logs.to_arrow(table=table).read_all().to_pylist()) == wanted, table
    assert logs.to_arrow().read_all().num_rows == archive.to_arrow().read_all().num_rows


def test_only_the_columns_that_are_named_are_there(made: tuple[str, Path]) -> None:
    archive = drainer.open_archive(made[1] / "archive")
    table = archive.tables[0]
    first, last = table.columns[0].name, table.columns[-1].name
    columns = ["_commit_ts", f"after.{last}", f"after.{first}", "before", "_invalid"]
    found = archive.to_arrow(table=str(table), columns=columns).read_all()
    whole = archive.to_arrow(table=str(table)).read_all()
    assert found.schema.names == ["_commit_ts", "after", "before", "_invalid"]
    assert [field.name for field in found.schema.field("after").type] == [last, first]
    assert found["before"] == whole["before"]
    for row, every in zip(found.to_pylist(), whole.to_pylist(), strict=True):
        after = every["after"]
        assert row["after"] == (after and {last: after[last], first: after[first]})
    with pytest.raises(ConfigError, match=r"no column 'after\.nothing'"):
        archive.to_arrow(table=str(table), columns=["after.nothing"])


def test_batches_have_no_more_rows_than_asked_for(made: tuple[str, Path]) -> None:
    archive = drainer.open_archive(made[1] / "archive")
    batches = list(archive.to_arrow(batch_rows=3))
    assert max(batch.num_rows for batch in batches) == 3
    assert pa.Table.from_batches(batches) == archive.to_arrow().read_all()


def test_a_range_is_read_and_no_more(made: tuple[str, Path]) -> None:
    archive = drainer.open_archive(made[1] / "archive")
    whole = archive.to_arrow().read_all().to_pylist()
    start, stop = whole[len(whole) // 3]["_commit_ts"], whole[len(whole) // 2]["_commit_ts"]
    found = archive.to_arrow(start=start, stop=stop).read_all().to_pylist()
    assert found == [row for row in whole if start <= row["_commit_ts"] <= stop]


def test_values_that_do_not_fit_are_told_or_refused(tmp_path: Path) -> None:
    corpus.our_archive(items("types"), tmp_path / "types")
    archive = drainer.open_archive(tmp_path / "types")
    found = archive.to_arrow(table="typ.t_date").read_all()
    assert any("0000-00-00" in text for text in found["_invalid"].to_pylist() if text)
    with pytest.raises(Corruption, match=r"no value for after\."):
        archive.to_arrow(table="typ.t_date", columns=["after"]).read_all()


def test_damage_comes_through_the_stream_with_file_and_offset(tmp_path: Path) -> None:
    corpus.our_archive(items("basic"), tmp_path / "archive", 8 << 10)
    victim = sorted(path for path in (tmp_path / "archive").iterdir() if path.name.startswith("binlog-"))[0]
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    for options in ({}, {"table": "shop.orders"}):
        with pytest.raises(Corruption, match=rf"{victim.name}.*offset \d+"):
            drainer.open_archive(tmp_path / "archive").to_arrow(**options).read_all()
    assert drainer.open_archive(tmp_path / "archive", damage="report").to_arrow().read_all().num_rows


def test_memory_does_not_grow_with_the_archive(tmp_path: Path) -> None:
    """The most that batches hold at a time, of an archive and of one that is eight times as large."""
    recorded_once = [item for item in items("basic") if isinstance(item, Ddl) or item.tables]
    peaks, rows = [], []
    for times in (4, 32):
        stream = list(recorded_once)
        for number in range(1, times):
            later = [one for one in recorded_once if isinstance(one, Transaction)]
            stream += [replace(one, commit_ts=one.commit_ts + (number << 40)) for one in later]
        made = corpus.our_archive(stream, tmp_path / f"of-{times}", 32 << 10)
        reader = drainer.open_archive(made.uri).to_arrow()
        before, peak, count = pa.total_allocated_bytes(), 0, 0
        for batch in reader:
            peak, count = max(peak, pa.total_allocated_bytes() - before), count + batch.num_rows
        peaks.append(peak)
        rows.append(count)
    assert rows[1] == 8 * rows[0] > 0
    assert peaks[1] <= peaks[0] * 1.5


def test_without_the_extra_rows_can_be_read_and_arrow_says_what_to_install(tmp_path: Path) -> None:
    corpus.our_archive(items("basic"), tmp_path / "archive")
    program = f"""
import sys
for name in ("pyarrow", "numpy", "pyspark", "pandas"):
    sys.modules[name] = None
import drainer
archive = drainer.open_archive({str(tmp_path / "archive")!r})
assert sum(1 for _ in archive) > 20
try:
    archive.to_arrow()
except Exception as error:
    print(type(error).__name__, error)
try:
    drainer.open_archive("s3://bucket/archive")
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("ConfigError ")
        assert "is not installed (pip install 'tidb-binlog[arrow]')" in line

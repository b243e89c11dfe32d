"""Time zone: archives of a Go drainer whose clock is not in UTC. What it wrote is made of what one in UTC
wrote: its TIMESTAMPs are put into another zone, nothing else is touched."""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drainer.places.place import Place
from drainer.reading.archive.archive_source import ArchiveSource
from drainer.reading.archive.decode import reading
from drainer.reading.archive.decode.records import Changes, Row
from drainer.reading.archive.files import segments
from drainer.reading.archive.files.selection import Selection
from drainer.reading.archive.read_options import ReadOptions
from drainer.spark.arguments import source_options
from drainer.spark.replay.plan import ReplayOptions, plan
from drainer.spark.source.source import BinlogReader
from drainer.spark.source.spark_types import struct_of
from drainer.spark.source.stream_archive import StreamArchive
from drainer.spark.source.stream_offsets import START
from tests.drainer.reading.archive.support import corpus
from tests.drainer.support.relay_world import items
from tests.spark.support.arguments import parsed
from tidb_binlog.errors import ConfigError
from tidb_binlog.record import decode_file, encode_file
from tidb_binlog.rowcodec.put import put_bytes
from tidb_binlog.table_info import TIMESTAMP
from tidb_binlog.wire import pb_binlog_pb2, secondary_binlog_pb2

ZONE = "America/New_York"
KNOWN = corpus.of_history("types")
HALF_PAST_ONE = "2023-11-05 01:30:00"  # there it comes twice that night


def local(text: str) -> str:
    if text.startswith("0000-00-00"):
        return text
    whole, dot, fraction = text.partition(".")
    in_utc = datetime.datetime.fromisoformat(whole).replace(tzinfo=datetime.UTC)
    return f"{in_utc.astimezone(zoneinfo.ZoneInfo(ZONE)):%Y-%m-%d %H:%M:%S}{dot}{fraction}"


def datum(text: bytes, change: Callable[[str], str]) -> bytes:
    """A datum of text; its size is one byte."""
    return text if len(text) < 3 else put_bytes(change(text[2:].decode()).encode())


def events(payload: bytes, change: Callable[[str], str]) -> bytes:
    record = pb_binlog_pb2.Binlog.FromString(payload)
    for event in record.dml_data.events:
        for place, raw in enumerate(event.row):
            column = pb_binlog_pb2.Column.FromString(raw)
            if column.tp[0] == TIMESTAMP:
                column.value = datum(column.value, change)
                if column.HasField("changed_value"):
                    column.changed_value = datum(column.changed_value, change)
                event.row[place] = column.SerializeToString()
    return record.SerializeToString()


def relay(payload: bytes, change: Callable[[str], str]) -> bytes:
    record = secondary_binlog_pb2.Binlog.FromString(payload)
    for table in record.dml_data.tables:
        for mutation in table.mutations:
            for row in (mutation.row, mutation.change_row):
                for info, column in zip(table.column_info, row.columns, strict=False):
                    if info.mysql_type == "timestamp" and column.HasField("string_value"):
                        column.string_value = change(column.string_value)
    return record.SerializeToString()


def rewritten(kind: str, directory: Path, change: Callable[[str], str] = local) -> Path:
    """What a Go drainer wrote of the scenario `types`, its TIMESTAMPs changed."""
    corpus.unpacked("types", kind, directory)
    for path in directory.iterdir():
        data, at, made = path.read_bytes(), 0, b""
        while at < len(data):
            payload, at = decode_file(data, at)
            made += encode_file((events if kind == "events" else relay)(payload, change))
        path.write_bytes(made)
    return directory


def rows(path: Path, time_zone: str = "UTC") -> list[Row]:
    seen = segments.survey(Place(str(path)), time_zone=time_zone)
    return rows_of(path, seen.plan(Selection()))


def rows_of(path: Path, parts: list[segments.Slice]) -> list[Row]:
    location = Place(str(path))
    records = (one for part in parts for one in reading.read(location, part, Selection(), KNOWN))
    return [row for record in records if isinstance(record, Changes) for row in record.rows]


def typed(path: Path, **options: str) -> list[dict[str, Any]]:
    known = KNOWN.to_json()
    found = ArchiveSource({"path": str(path), "table": "typ.t_ts", "definitions": known, **options})
    reader = BinlogReader(found, struct_of(found.schema))
    made = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    return [{key: row[key] for key in row if key != "_pos"} for row in made]


@pytest.mark.parametrize("kind", ["events", "relay"])
def test_timestamps_of_another_zone_are_the_moments_that_they_were(kind: str, tmp_path: Path) -> None:
    there, utc = rewritten(kind, tmp_path / "there"), rewritten(kind, tmp_path / "utc", str)
    assert rows(there, ZONE) == rows(utc) != rows(there)
    found = typed(there, **{"time-zone": ZONE})
    assert found == typed(utc) != typed(there)
    assert any(row["after"]["ts6"] for row in found if row["after"])


def test_of_two_moments_with_one_name_the_first_counts(tmp_path: Path) -> None:
    there = rewritten("events", tmp_path / "there", lambda text: HALF_PAST_ONE + text[19:])
    seconds = {
        row["after"]["ts0"].astimezone(datetime.UTC)
        for row in typed(there, **{"time-zone": ZONE})
        if row["after"] and row["after"]["ts0"]
    }
    assert seconds == {datetime.datetime(2023, 11, 5, 5, 30, tzinfo=datetime.UTC)}


@pytest.mark.parametrize(
    "make", [corpus.our_archive, lambda stream, path: corpus.our_relay(stream, path, 1 << 20)]
)
def test_an_archive_that_says_its_zone_is_read_in_it(make: Any, tmp_path: Path) -> None:
    location = make(items("types"), tmp_path / "ours")
    path = Path(location.uri)
    assert rows(path, ZONE) == rows(path)


def test_every_reader_knows_the_zone(tmp_path: Path) -> None:
    there = rewritten("events", tmp_path / "there")
    wanted = rows(there, ZONE)
    source = {"time-zone": ZONE}
    assert ReadOptions.of({"path": "x", **source}).time_zone == ZONE
    assert source_options(parsed("--archive=x", f"--time-zone={ZONE}")) == source
    replayed = plan(None, str(there), 0, 0, ReplayOptions(source=source))
    parts = [part for task in replayed.tasks for part in task.slices]
    assert sorted(rows_of(there, parts), key=repr) == sorted(wanted, key=repr)
    followed = StreamArchive(Place(str(there)), time_zone=ZONE)
    stretches = followed.parts(START, followed.end(), 1 << 30)
    assert rows_of(there, [part.slice for part in stretches]) == wanted


def test_a_zone_that_is_not_known_is_refused() -> None:
    for name in ("Mars/Olympus", "../../etc/passwd"):
        with pytest.raises(ConfigError, match="is not known here"):
            ReadOptions.of({"path": "x", "time-zone": name})
    with pytest.raises(ConfigError, match="is not known here"):
        plan(None, "x", 0, 0, ReplayOptions(source={"time-zone": "Mars/Olympus"}))

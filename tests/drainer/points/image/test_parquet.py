"""Images: rows of every recorded type come back from Parquet as they were, and damage is told."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from drainer.points.image import parquet_writer
from drainer.points.image.columns import ImageColumns, added, checksum_of
from drainer.points.image.manifest import MANIFEST, ROWS, Manifest, is_image
from drainer.points.image.parquet_reader import TableReader
from drainer.points.image.parquet_writer import TableWriter
from drainer.reading.archive.columns.typed_values import ImageValues
from drainer.reading.archive.decode.images import Images
from drainer.spark.audit.checks import comparison, reference_side
from drainer.spark.audit.checks.comparison import IMAGE
from drainer.txn import Ddl, TableVersion
from tests.drainer.support.relay_world import items
from tidb_binlog.errors import ConfigError, Corruption, Unavailable

Stored = dict[TableVersion, list[bytes]]


def stored(scenario: str) -> Stored:
    """All row images of a scenario, by definition."""
    found: Stored = {}
    images = Images()
    for item in items(scenario):
        for events in () if isinstance(item, Ddl) else item.tables:
            for version, _, before, after in images.rows(events):
                found.setdefault(version, []).extend(one for one in (before, after) if one is not None)
    return found


def write(directory: Path, version: TableVersion, *parts: list[bytes]) -> TableReader:
    writer = TableWriter(str(directory), version)
    writer.begin()
    for number, images in enumerate(parts):
        with writer.part(number) as part:
            part.add(images)
    return TableReader(str(directory), writer.table_image())


def read(reader: TableReader) -> list[bytes]:
    return [image for group in reader.groups() for image in reader.images(group)]


def values(version: TableVersion, images: list[bytes]) -> list[object]:
    """As every reader of archives sees them; JSON as its text."""
    reader = ImageValues(
        version.info, [one for one in version.info.columns if one.is_writable], by_name=False
    )
    return [reader.read(image) for image in images]


@pytest.mark.parametrize("scenario", ["types", "keys", "charset"])
def test_rows_come_back_as_they_were(tmp_path: Path, scenario: str) -> None:
    for number, (version, images) in enumerate(stored(scenario).items()):
        half = len(images) // 2
        reader = write(tmp_path / str(number), version, images[:half], images[half:])
        found = read(reader)
        assert values(reader.version, found) == values(version, images)
        if not any(column.type.kind.value == "json" for column in version.info.columns):
            assert found == images
        # A second image of what was read is the same one: its checksum says so.
        again = write(tmp_path / f"{number}-again", version, list(reversed(found)))
        assert (again.table.rows, again.table.checksum) == (len(images), reader.table.checksum)


def test_a_checksum_is_of_rows_in_any_order_and_of_each(tmp_path: Path) -> None:
    version, images = max(stored("basic").items(), key=lambda one: len(one[1]))
    images = list(dict.fromkeys(images))
    columns = ImageColumns(version)
    whole = checksum_of(columns.batch(images))
    mixed = random.Random(1).sample(images, len(images))
    assert checksum_of(columns.batch(mixed)) == whole
    split = [checksum_of(columns.batch(some)) for some in (images[:3], images[3:])]
    assert added(*split) == whole
    assert checksum_of(columns.batch(images[1:])) != whole
    assert checksum_of(columns.batch([*images, images[0], images[0]])) != whole


def interrupted(writer: TableWriter, images: list[bytes]) -> None:
    with writer.part(0) as part:
        part.add(images)
        raise InterruptedError


def test_a_part_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_writer, "GROUP_ROWS", 4)
    version, images = max(stored("basic").items(), key=lambda one: len(one[1]))
    writer = TableWriter(str(tmp_path), version)
    writer.begin()
    with pytest.raises(InterruptedError):
        interrupted(writer, images[:9])
    assert writer.has(0) is None
    assert writer.table_image().rows == 0
    with writer.part(0) as part:
        part.add(images[:9])
    with writer.part(1):
        pass  # a table without rows has a file all the same
    found = writer.has(0)
    assert found is not None
    assert found.rows == 9
    (tmp_path / "left.parquet.unfinished").touch()
    reader = TableReader(str(tmp_path), writer.table_image())
    assert [one.rows for one in reader.groups()] == [4, 4, 1]
    assert read(reader) == images[:9]
    writer.forget()
    assert writer.has(0) is None


def test_files_that_are_damaged_or_gone_are_told(tmp_path: Path) -> None:
    version, images = max(stored("basic").items(), key=lambda one: len(one[1]))
    reader = write(tmp_path, version, images[:5], images[5:])
    first, second = sorted((tmp_path / reader.table.directory).iterdir())
    data = first.read_bytes()
    first.write_bytes(data[:60] + bytes([data[60] ^ 1]) + data[61:])
    with pytest.raises(Corruption, match=r"part-000000.parquet does not fit its checksum in manifest"):
        read(reader)
    of_before = TableReader(str(tmp_path), replace(reader.table, files={}))  # had no checksums of files
    with pytest.raises(Corruption, match=r"part-000000.parquet: row group 0"):
        read(of_before)
    first.write_bytes(data[:-9])
    with pytest.raises(Corruption, match=r"part-000000.parquet"):
        reader.groups()
    first.unlink()
    with pytest.raises(Corruption, match=r"has other files than manifest\.json says"):
        reader.groups()
    with pytest.raises(Corruption, match=f"has {len(images) - 5} rows, and the manifest says {len(images)}"):
        of_before.groups()
    second.write_bytes(b"")
    with pytest.raises(Corruption, match="the same command makes it again"):
        TableWriter(str(tmp_path), version).has(1)


def test_whichever_bit_of_a_file_is_flipped_no_other_rows_are_read(tmp_path: Path) -> None:
    """By a restore and an audit. Checksums of Parquet are of pages: what says how to read them has none."""
    version, images = max(stored("types").items(), key=lambda one: len(one[1]))
    reader = write(tmp_path, version, images[:5])
    how, _ = comparison.plan(1, version, reference_side.described(version), whole=True, side=IMAGE)
    assert how is not None
    audited = reference_side.ImageRows(str(tmp_path), reader.table, how)
    (path,) = (tmp_path / reader.table.directory).iterdir()
    data, rng = path.read_bytes(), random.Random(26)
    for at in [*rng.sample(range(len(data)), 60), *range(len(data) - 100, len(data))]:
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])
        with pytest.raises(Corruption):
            read(TableReader(str(tmp_path), reader.table))
        with pytest.raises(Corruption):
            list(audited.read(audited.groups()))
    path.write_bytes(data)
    assert read(reader) == images[:5]
    assert len(list(audited.read(audited.groups()))) == 5
    path.with_name("part-000001.parquet").write_bytes(data)
    with pytest.raises(Corruption, match="other files"):
        audited.groups()


def test_a_disk_that_takes_no_more_is_told(tmp_path: Path) -> None:
    version, _ = next(iter(stored("basic").items()))
    writer = TableWriter(str(tmp_path / "not" / "there"), version)
    with pytest.raises(Unavailable, match="the same command goes on"), writer.part(0):
        pass


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    version, images = next(iter(stored("basic").items()))
    reader = write(tmp_path, version, images)
    made = Manifest(7, "2026", "mysql://u@h", "", ("shop.*",), (reader.table,), ROWS)
    assert not is_image(str(tmp_path))
    made.store(str(tmp_path))
    assert is_image(str(tmp_path))
    assert Manifest.load(str(tmp_path)) == made
    document = json.loads((tmp_path / MANIFEST).read_text()) | {"format": 2}
    (tmp_path / MANIFEST).write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=r"is no image: manifest.json: it does not fit its checksum"):
        Manifest.load(str(tmp_path))
    del document["crc32c"]
    (tmp_path / MANIFEST).write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=r"is no image: manifest.json: of another format"):
        Manifest.load(str(tmp_path))


def test_a_column_that_the_file_lacks_is_damage(tmp_path: Path) -> None:
    version, images = next(iter(stored("basic").items()))
    reader = write(tmp_path, version, images)
    reader = TableReader(str(tmp_path), replace(reader.table, files={}))
    (path,) = (tmp_path / reader.table.directory).iterdir()
    table = parquet.read_table(path)
    parquet.write_table(table.drop_columns([table.column_names[0]]), path)
    with pytest.raises(Corruption, match="the image is damaged"):
        read(reader)
    parquet.write_table(pa.table({"x": [1] * len(images)}), path)
    with pytest.raises(Corruption, match="the image is damaged"):
        read(reader)

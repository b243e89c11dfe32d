"""Audit, images: every recorded value reads from an image as it does from the archive; no session needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from drainer.formats.obinlog.writer import definition_json
from drainer.points.image.columns import ROW
from drainer.points.image.manifest import Manifest, TableImage
from drainer.points.image.parquet_writer import TableWriter
from drainer.reading.archive.decode.images import Images
from drainer.reading.archive.views.changes import INVALID, schema
from drainer.spark.audit.auditing import audit
from drainer.spark.audit.checks import comparison
from drainer.spark.audit.checks.comparison import IMAGE, Comparison, RowReader
from drainer.spark.audit.checks.reference_side import ImageRows, described
from drainer.spark.image import Decoding
from drainer.spark.source.spark_types import struct_of
from drainer.txn import Ddl, TableVersion
from tests.drainer.support.relay_world import items
from tests.spark.support.audit_world import write_archive
from tidb_binlog.errors import ConfigError, Corruption

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


def write(directory: Path, version: TableVersion, images: list[bytes]) -> TableImage:
    """These rows as Spark writes them: its times have 96 bits, its intervals are integers."""
    decoding = Decoding(version, struct_of(schema(version))[ROW].dataType)
    (batch,) = decoding([pa.record_batch([pa.array(images, pa.binary())], ["image"])])
    row = batch.column(0)
    columns = {row.type.field(place).name: array for place, array in enumerate(row.flatten())}
    columns = {
        name: array.cast(pa.int64()) if pa.types.is_duration(array.type) else array
        for name, array in columns.items()
    }
    table = pa.table({**columns, INVALID: batch.column(1)})
    name = ".".join(version.downstream)
    (directory / name).mkdir()
    parquet.write_table(table, directory / name / "part-0.parquet", use_deprecated_int96_timestamps=True)
    return TableImage(*version.downstream, name, len(images), "0", definition_json(version).decode())


def plan(version: TableVersion, there: TableVersion) -> Comparison | None:
    how, _ = comparison.plan(1, version, described(there), whole=True, side=IMAGE)
    return how


def read(rows: ImageRows) -> list[comparison.Compared]:
    return list(rows.read(rows.groups()))


@pytest.mark.parametrize("scenario", ["types", "keys", "charset", "ddl"])
def test_a_row_reads_alike_from_an_image_and_from_the_archive(tmp_path: Path, scenario: str) -> None:
    for number, (version, rows) in enumerate(stored(scenario).items()):
        images = rows[:60]
        directory = tmp_path / str(number)
        directory.mkdir()
        table = write(directory, version, images)
        assert definition_json(table.version).decode() == table.definition
        how = plan(version, table.version)
        assert how is not None
        reader = RowReader(how, lambda _, version=version: version)  # type: ignore[misc]
        wanted = [reader.read(image, 0) for image in images]
        assert read(ImageRows(str(directory), table, how)) == wanted
        assert read(ImageRows(str(directory), table, how, is_beginning=True)) == wanted
        writer = TableWriter(str(directory / "load"), version)
        writer.begin()
        with writer.part(0) as part:
            part.add(images)
        assert read(ImageRows(str(directory / "load"), writer.table_image(), how)) == wanted


def test_a_beginning_reads_under_a_later_definition(tmp_path: Path) -> None:
    versions = [(one, images) for one, images in stored("ddl").items() if one.downstream == ("d1", "t1")]
    (old, images), (new, _) = versions[0], versions[-1]
    assert {column.id for column in old.info.columns} != {column.id for column in new.info.columns}
    table = write(tmp_path, old, images)
    how = plan(new, new)
    assert how is not None
    reader = RowReader(how, lambda _: old)
    for row, image in zip(read(ImageRows(str(tmp_path), table, how, is_beginning=True)), images, strict=True):
        wanted = reader.read(image, 0)
        assert wanted is not None
        assert row.key == wanted.key
        assert row.unknown >= wanted.unknown
        assert row.unknown


def manifest(commit_ts: int, *tables: TableImage) -> Manifest:
    return Manifest(commit_ts, "", "", "", (), tables)


def test_files_that_are_not_there_or_damaged_are_told(tmp_path: Path) -> None:
    version, images = next(iter(stored("basic").items()))
    table = write(tmp_path, version, images)
    how = plan(version, version)
    assert how is not None
    (path,) = (tmp_path / table.directory).iterdir()
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(Corruption, match=r"part-0.parquet: row group 0: .*the image is damaged"):
        ImageRows(str(tmp_path), table, how).groups()
    path.unlink()
    with pytest.raises(Corruption, match=f"has 0 rows, and the manifest says {len(images)}"):
        ImageRows(str(tmp_path), table, how).groups()


@pytest.mark.parametrize(
    ("options", "text"), [({"stop": "10"}, "before the image's timestamp"), ({"path": ""}, "is no image")]
)
def test_an_image_that_does_not_meet_the_range_is_refused(
    tmp_path: Path, options: dict[str, str], text: str
) -> None:
    archive = write_archive(tmp_path / "archive", "basic")
    image = tmp_path / "image"
    image.mkdir()
    if "path" not in options:
        (image / "manifest.json").write_text(manifest(1 << 60).to_json())
    no_session: Any = None
    with pytest.raises(ConfigError, match=text):
        audit(no_session, str(archive), options, image=str(image))

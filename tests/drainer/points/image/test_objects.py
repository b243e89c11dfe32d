"""Objects of an image: what its manifest does not say comes back as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from drainer.points.image.manifest import Manifest
from drainer.points.image.objects import FILE, DatabaseObject, Objects, objects_of
from drainer.stream.schema.tracker import SchemaTracker
from tests.drainer.points.restore.image_world import make_image
from tests.drainer.support import recorded
from tidb_binlog.errors import Corruption
from tidb_binlog.tso import TS_MAX


def test_objects_are_those_of_the_upstream_under_their_names_in_the_image(tmp_path: Path) -> None:
    tracker = SchemaTracker.from_history(recorded.jobs("ddl-fk"), finished_ts=TS_MAX)
    found = objects_of(tracker, lambda schema, table: ("moved", table) if table != "nowhere" else None)
    assert found.tables
    assert [one.name for one in found.databases] == ["moved"]
    assert found.databases[0].charset == "utf8mb4"
    found.store(str(tmp_path))
    manifest = Manifest(1, "", "", "", (), ())
    again = Objects.load(str(tmp_path), manifest)
    assert again == found
    one = again.tables[0]
    assert again.place(one.tracked.schema, one.tracked.name) == one.name
    assert again.place(one.tracked.schema, "") == ("moved", "")
    assert again.place("other", "t") == ("other", "t")
    (tmp_path / FILE).write_text('{"format": 1, "databases": [], "tables": [[1]]}')
    with pytest.raises(Corruption, match=r"schema.json cannot be read"):
        Objects.load(str(tmp_path), manifest)


def test_an_image_without_them_makes_its_tables_from_the_manifest(tmp_path: Path) -> None:
    manifest = make_image("basic", tmp_path, share=0.7)
    whole = Objects.load(str(tmp_path), manifest)
    assert not any(one.is_view or one.is_sequence for one in whole.tables)
    (tmp_path / FILE).unlink()
    with pytest.raises(Corruption, match=r"schema\.json cannot be read: .*No such file"):
        Objects.load(str(tmp_path), replace(manifest, objects=True))
    found = Objects.load(str(tmp_path), manifest)
    assert found.databases == (DatabaseObject("shop"),)
    assert [one.name for one in found.tables] == [(one.schema, one.table) for one in manifest.tables]

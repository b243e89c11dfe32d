"""Typed columns: the values of rows, the same whether thousands are read at once or one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drainer.spark import reading
from drainer.spark.records import Changes
from drainer.spark.source import Archive
from drainer.spark.views import typed_changes
from drainer.spark.views.columns import portions
from drainer.spark.views.view import Task
from tests.drainer import recorded
from tests.spark.replay_world import go_events, our_archive


def tables_of(path: Path) -> list[str]:
    archive = Archive({"path": str(path)})
    found = {}
    for part in archive.slices():
        for record in reading.read(
            archive.options.location, part, archive.options.selection, archive.definitions
        ):
            if isinstance(record, Changes):
                found |= {".".join(row[0].downstream): None for row in record.rows}
    return list(found)


def tasks(path: Path, **options: str) -> Iterator[Task]:
    archive = Archive({"path": str(path), **options})
    options_ = archive.options
    for part in archive.slices():
        yield Task(
            options_.location, part, options_.selection, archive.definitions, archive.schema, archive.version
        )


def one_by_one(task: Task) -> list[dict[str, Any]]:
    rows = typed_changes.TypedRows(task)
    records = reading.read(task.location, task.part, task.selection, task.definitions)
    return [row for portion in portions(records) for row in rows.batch(portion).to_pylist()]


def at_once(task: Task) -> list[dict[str, Any]]:
    return [row for batch in typed_changes.batches(task) for row in batch.to_pylist()]


@pytest.mark.parametrize("made_by", ["go", "here"])
@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
def test_rows_at_once_are_the_rows_one_by_one(scenario: str, made_by: str, tmp_path: Path) -> None:
    path = (go_events if made_by == "go" else our_archive)(scenario, tmp_path / "archive")
    for table in tables_of(path):
        for task in tasks(path, table=table):
            assert at_once(task) == one_by_one(task), table

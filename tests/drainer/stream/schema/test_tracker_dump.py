"""A stored schema answers everything that the one it was made of answers, at every place of every history."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from drainer.stream.schema.catalog import GONE_KEPT, Catalog
from drainer.stream.schema.tracker import SchemaTracker, UnknownTable
from tests.drainer.support import recorded
from tidb_binlog import ddl_job
from tidb_binlog.ddl_job import DdlJob
from tidb_binlog.errors import Corruption


class Stored:
    """Rows by key, as a store keeps them; everything has been JSON text once."""

    def __init__(self) -> None:
        self._rows: dict[str, Any] = {}

    def take(self, rows: list[dict[str, Any]]) -> None:
        for row in json.loads(json.dumps(rows)):
            if row["value"] is None:
                self._rows.pop(row["key"], None)
            else:
                self._rows[row["key"]] = row["value"]

    def restored(self, version: int) -> SchemaTracker:
        rows = [{"key": key, "value": value} for key, value in self._rows.items()]
        return SchemaTracker.restore(rows, version)

    @property
    def rows(self) -> dict[str, Any]:
        return self._rows


def jobs(scenario: str) -> list[DdlJob]:
    found = [ddl_job.parse(one) for one in recorded.jobs(scenario)]
    return sorted((job for job in found if job.took_effect), key=lambda job: job.schema_version)


def answers(tracker: SchemaTracker, ids: set[int], names: set[tuple[str, str]], version: int) -> list[Any]:
    """Everything that can be asked, for every id and name that ever was and every schema version."""
    found: list[Any] = [tracker.version]
    for table_id in sorted(ids):
        found.append(tracker.is_truncated(table_id))
        for asked in range(max(0, version - 9), version + 2):
            try:
                table = tracker.table_for(table_id, asked)
            except UnknownTable as error:
                found.append(error.message)
            except Corruption as error:  # views have columns without a type
                found.append(error.message)
            else:
                found.append((table.info, table.schema, table.name, table.version))
    for schema, name in sorted(names):
        named = tracker.table_named(schema, name)
        found.append((tracker.database_collation(schema), named and named.info))
    return found


@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
def test_restored_at_random_places_it_answers_and_goes_on_as_the_original(scenario: str) -> None:
    tracker, stored = SchemaTracker(), Stored()
    stored.take(tracker.dump())
    ids: set[int] = set()
    names: set[tuple[str, str]] = set()
    pick = random.Random(scenario)
    followers: list[SchemaTracker] = []
    for job in jobs(scenario):
        change = tracker.apply(job)
        for follower in followers:
            assert follower.apply(job) == change, "a restored one says the same of later jobs"
        stored.take(tracker.changed_since_last_dump())
        assert not tracker.changed_since_last_dump()
        ids |= {one.id for one in (*change.before, *change.after)}
        names |= set(change.tables)
        if pick.random() < (0.05 if job.action in (1, 3) else 0.25):
            restored = stored.restored(tracker.version)
            assert answers(restored, ids, names, job.schema_version) == answers(
                tracker, ids, names, job.schema_version
            )
            followers = [*followers[-1:], restored]
    whole = Stored()
    whole.take(tracker.dump())
    assert whole.rows == stored.rows, "what was stored bit by bit is what is stored as a whole"


def test_a_restored_tracker_takes_only_what_is_new_from_the_history() -> None:
    history = jobs("ddl")
    at = history[len(history) // 2].schema_version
    whole = SchemaTracker.from_history(history, schema_version=at)
    stored = Stored()
    stored.take(whole.dump())
    late = stored.restored(at)
    late.expect(history, schema_version=at)
    assert late.generation == 0, "nothing was applied anew"
    for job in history:
        if job.schema_version > at:
            assert late.apply(job) == whole.apply(job)
    assert late.dump() == whole.dump()


def test_a_row_that_cannot_be_read_is_corruption() -> None:
    for row in (
        {"key": "table/x", "value": {}},
        {"key": "table/1", "value": {"schema": "d"}},
        {"key": "database/1", "value": {"other": 1}},
    ):
        with pytest.raises(Corruption, match="stored schema has a row that cannot be read"):
            SchemaTracker.restore([row], 1)


def test_dropped_tables_are_remembered_within_limits() -> None:
    catalog = Catalog()
    for number in range(GONE_KEPT + 10):
        catalog.put({"id": number, "name": {"O": f"t{number}"}, "cols": []}, 1, "d", number)
        catalog.remove(number, number, truncated=True)
    assert len(catalog.dropped) == len(catalog.truncated) == GONE_KEPT
    assert 0 not in catalog.dropped
    kept = [row for row in catalog.rows() if row["key"].startswith("gone/")]
    assert len(kept) == GONE_KEPT

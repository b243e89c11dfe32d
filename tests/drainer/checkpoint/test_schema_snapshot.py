"""The schema snapshot on a real server: whole, changed, held back, damaged."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from drainer.checkpoint.resume import Start
from drainer.checkpoint.schema_snapshot import LOOK_BACK, SchemaChanges, StoredSchema
from drainer.checkpoint.store import CheckpointStore
from drainer.checkpoint.value import Checkpoint
from drainer.mysql.connection import Target, connect
from drainer.mysql.errors import TransientError
from drainer.mysql.rows.change import Position
from tidb_binlog.errors import Conflict

CLUSTER = 7710435644538274661
SCHEMA = "snapshot_test"


def run(target: Target, *statements: str) -> list[tuple[Any, ...]]:
    connection = connect(target)
    try:
        found: list[tuple[Any, ...]] = []
        for statement in statements:
            found = connection.rows(statement.encode())
        connection.commit()
        return found
    finally:
        connection.close()


def begun(target: Target) -> tuple[CheckpointStore, Start]:
    store = CheckpointStore(target, CLUSTER, schema=SCHEMA)
    return store, store.start(2, 100, 10_000)


def loaded(target: Target) -> StoredSchema | None:
    store, start = begun(target)
    try:
        return store.load_schema(start)
    finally:
        store.close()


def at(store: CheckpointStore, commit_ts: int) -> Checkpoint:
    return Checkpoint(commit_ts, False, 1, store.epoch)


def row(name: str, value: Any = None) -> dict[str, Any]:
    return {"key": name, "value": value}


def warned(caplog: pytest.LogCaptureFixture) -> str:
    (record,) = [record for record in caplog.records if "cannot be used" in record.getMessage()]
    fields: dict[str, Any] = record.__dict__["fields"]
    return str(fields["reason"])


WHOLE = SchemaChanges(
    100,
    7,
    2000,
    [row("table/1", {"name": "naïve `t`\\'"}), row("table/2", {"a": [1]}), row("jobs", [2000])],
    whole=True,
)


@pytest.mark.integration
class TestSnapshot:
    def test_nothing_is_stored_at_first(self, target: Target) -> None:
        assert loaded(target) is None

    def test_it_comes_back_as_it_was(self, target: Target) -> None:
        store, _ = begun(target)
        store.save_schema(WHOLE)
        store.save(at(store, 150))
        store.close()
        found = loaded(target)
        assert found is not None
        assert (found.commit_ts, found.version, found.job_id) == (100, 7, 2000)
        assert sorted(found.rows, key=str) == sorted(WHOLE.rows, key=str)
        assert found.history_after == 2000 - LOOK_BACK

    def test_only_what_a_ddl_changed_is_written(self, target: Target) -> None:
        store, _ = begun(target)
        store.save_schema(WHOLE)
        store.save(at(store, 150))
        run(target, f"UPDATE {SCHEMA}.schema_snapshot SET definition='kept' WHERE object='table/1'")
        store.save_schema(SchemaChanges(200, 8, 2001, [row("table/3", {"b": 2}), row("table/2")]))
        store.end_ddl(at(store, 200))
        names = run(target, f"SELECT object, definition FROM {SCHEMA}.schema_snapshot ORDER BY object")
        assert [name for name, _ in names] == ["", "jobs", "table/1", "table/3"]
        assert dict(names)["table/1"] == b"kept"
        store.close()

    def test_changes_of_a_later_start_are_added_to_what_was_loaded(self, target: Target) -> None:
        store, _ = begun(target)
        store.save_schema(WHOLE)
        store.settle(at(store, 150))
        store.close()
        store, start = begun(target)
        assert store.load_schema(start) is not None
        store.save_schema(SchemaChanges(160, 8, 2001, [row("table/1", {"name": "u"})]))
        store.end_ddl(at(store, 160))
        store.close()
        found = loaded(target)
        assert found is not None
        assert {one["key"]: one["value"] for one in found.rows} == {
            "table/1": {"name": "u"},
            "table/2": {"a": [1]},
            "jobs": [2000],
        }

    def test_a_checkpoint_that_is_held_back_holds_the_snapshot_back(self, target: Target) -> None:
        store, _ = begun(target)
        store.save_schema(WHOLE)
        store.save(at(store, 150))
        store.save_schema(SchemaChanges(300, 9, 2002, [row("table/1", {"name": "quarantined"})]))
        store.save_schema(SchemaChanges(400, 10, 2003, [row("table/2", {"a": [2]})]))
        store.end_ddl(at(store, 299), lanes_at=400)
        assert store.lane_table().position(connect(target), 1) == Position(400)
        store.close()
        store, start = begun(target)
        assert (start.floor_ts, start.positions) == (299, (Position(400),) * 2)
        found = store.load_schema(start)
        assert found is not None
        assert found.version == 7
        store.save_schema(SchemaChanges(300, 9, 2002, [row("table/1", {"name": "quarantined"})]))
        store.save_schema(SchemaChanges(400, 10, 2003, [row("table/2", {"a": [2]})]))
        store.save(at(store, 300))
        store.close()
        assert (found := loaded(target)) is not None
        assert found.version == 9

    def test_a_snapshot_is_stored_with_its_ddl_or_not_at_all(self, target: Target) -> None:
        store, _ = begun(target)
        store.save_schema(WHOLE)
        store.save(at(store, 150))
        newer, _ = begun(target)
        store.save_schema(SchemaChanges(200, 8, 2001, [row("table/1", {"name": "late"})]))
        with pytest.raises(TransientError):  # the newer one ended our session
            store.end_ddl(at(store, 200))
        with pytest.raises(Conflict, match="another drainer took over"):
            store.end_ddl(at(store, 200))
        newer.close()
        store.close()
        assert (found := loaded(target)) is not None
        assert found.version == 7

    def test_a_foreign_checkpoint_means_that_the_snapshot_is_outdated(self, target: Target) -> None:
        store, _ = begun(target)
        store.save_schema(WHOLE)
        store.settle(at(store, 150))
        store.close()
        run(target, f"""UPDATE {SCHEMA}.checkpoint SET checkPoint='{{"commitTS":5000,"schema-version":9}}'""")
        assert loaded(target) is None
        assert run(target, f"SELECT object FROM {SCHEMA}.schema_snapshot") == []

    @pytest.mark.parametrize(
        ("damage", "why"),
        [
            ("DELETE FROM schema_snapshot WHERE object='table/1'", "2 objects, not 3"),
            ("DELETE FROM schema_snapshot WHERE object=''", "''"),
            ("UPDATE schema_snapshot SET definition='xxxx' WHERE object='table/1'", "incorrect header"),
            ("UPDATE schema_snapshot SET definition=LEFT(definition,9) WHERE object='jobs'", "incomplete"),
        ],
    )
    def test_a_damaged_one_is_not_used_and_is_written_anew(
        self, target: Target, caplog: pytest.LogCaptureFixture, damage: str, why: str
    ) -> None:
        store, _ = begun(target)
        store.save_schema(WHOLE)
        store.settle(at(store, 150))
        store.close()
        run(target, f"USE {SCHEMA}", damage)
        store, start = begun(target)
        with caplog.at_level(logging.WARNING):
            assert store.load_schema(start) is None
        assert why in warned(caplog)
        store.save_schema(SchemaChanges(160, 8, 2001, [row("table/9", {})]))
        store.end_ddl(at(store, 160))
        store.save_schema(SchemaChanges(170, 8, 2001, WHOLE.rows, whole=True))
        store.save(at(store, 170))
        store.close()
        assert (found := loaded(target)) is not None
        assert len(found.rows) == 3, "changes without anything to add them to are not stored"

    def test_one_of_another_format_is_not_used(
        self, target: Target, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        store, _ = begun(target)
        monkeypatch.setattr("drainer.checkpoint.schema_snapshot.FORMAT", 2)
        store.save_schema(WHOLE)
        store.settle(at(store, 150))
        store.close()
        monkeypatch.undo()
        with caplog.at_level(logging.WARNING):
            assert loaded(target) is None
        assert "its format is 2, not 1" in warned(caplog)

    def test_one_that_is_behind_the_checkpoint_is_not_used(
        self, target: Target, caplog: pytest.LogCaptureFixture
    ) -> None:
        store, _ = begun(target)
        store.save_schema(WHOLE)
        store.save(at(store, 150))
        store.close()
        store, _ = begun(target)
        store.save_schema(SchemaChanges(300, 8, 2001, WHOLE.rows, whole=True))
        store.settle(at(store, 300))
        store.close()
        run(target, f"""UPDATE {SCHEMA}.drainer_state SET checkpoint=REPLACE(checkpoint, '300', '250')""")
        run(target, f"""UPDATE {SCHEMA}.checkpoint SET checkPoint=REPLACE(checkPoint, '300', '250')""")
        with caplog.at_level(logging.WARNING):
            assert loaded(target) is None
        assert "it is at 300" in warned(caplog)

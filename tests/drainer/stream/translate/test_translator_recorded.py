"""Translator and schema tracker on every recorded TiDB stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drainer.stream.pull.merged import Merged
from drainer.stream.pull.merger import Merger
from drainer.stream.rules.table_rules import TableFilter
from drainer.stream.schema.tracker import SchemaTracker, is_system_schema
from drainer.stream.translate.translator import Translator
from drainer.txn import DELETE, INSERT, UPDATE, Ddl, Transaction
from tests.drainer.support import recorded
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.rowcodec.plan import compile_table
from tidb_binlog.wire import binlog_pb2

KIND_NAMES = {INSERT: "insert", UPDATE: "update", DELETE: "delete"}

# Where the Go drainer's record ends early or names the wrong table, it is no oracle.
GO_IS_RIGHT = ("basic", "charset", "keys", "multi-pump", "orphans", "txn", "types")


def translated(scenario: str) -> tuple[SchemaTracker, list[Transaction | Ddl]]:
    tracker = SchemaTracker()
    translator = Translator(tracker, TableFilter())
    return tracker, [translator.translate(entry) for entry in recorded.merged(scenario)]


def test_the_recordings_are_there() -> None:
    assert set(GO_IS_RIGHT) < set(recorded.SCENARIOS)
    assert len(recorded.SCENARIOS) >= 14


@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
def test_every_row_resolves_and_decodes(scenario: str) -> None:
    """Rows between the steps of online DDL included; ordinals count all rows of the payload."""
    plans: dict[int, Any] = {}
    tracker = SchemaTracker()
    translator = Translator(tracker, TableFilter())
    rows = 0
    for entry in recorded.merged(scenario):
        item = translator.translate(entry)
        assert item.commit_ts == entry.commit_ts
        if isinstance(item, Ddl):
            continue
        value = binlog_pb2.PrewriteValue.FromString(
            binlog_pb2.Binlog.FromString(entry.payload).prewrite_value
        )
        ordinals, ordinal = {}, 0
        for mutation in value.mutations:
            if not is_system_schema(tracker.table_for(mutation.table_id, value.schema_version).schema):
                ordinals[ordinal] = len(mutation.sequence)
            ordinal += len(mutation.sequence)
        assert {one.first_ordinal: len(one.rows) for one in item.tables} == ordinals
        for one in item.tables:
            plan = plans.get(id(one.table))
            if plan is None:
                plans[id(one.table)] = plan = (compile_table(one.table.info), one.table)
            decode = {
                INSERT: plan[0].decode_insert,
                UPDATE: plan[0].decode_update,
                DELETE: plan[0].decode_delete,
            }
            for kind, row in zip(one.kinds, one.rows, strict=True):
                decode[kind](row)
                rows += 1
    assert rows > 0


@pytest.mark.parametrize("scenario", GO_IS_RIGHT)
def test_tables_kinds_and_order_are_those_of_the_recorded_events(scenario: str) -> None:
    _, items = translated(scenario)
    ours = {
        item.commit_ts: [
            (events.table.schema, events.table.name, KIND_NAMES[kind])
            for events in item.tables
            for kind in events.kinds
        ]
        for item in items
        if isinstance(item, Transaction)
    }
    compared = 0
    for record in recorded.events(scenario):
        if "events" in record:
            theirs = [(event["schema"], event["table"], event["tp"]) for event in record["events"]]
            assert sorted(ours[record["commit_ts"]]) == sorted(theirs)
            by_table = list(dict.fromkeys(one[:2] for one in theirs))
            for name in by_table:
                assert [one for one in ours[record["commit_ts"]] if one[:2] == name] == [
                    one for one in theirs if one[:2] == name
                ]
            compared += 1
    assert compared == sum(1 for found in ours.values() if found)


@pytest.mark.parametrize("scenario", GO_IS_RIGHT)
def test_statements_and_their_database_are_those_of_the_recorded_events(scenario: str) -> None:
    _, items = translated(scenario)
    ours = [
        (f"use `{item.schema}`; " if item.schema else "") + f"{item.query};"
        for item in items
        if isinstance(item, Ddl) and not item.skip
    ]
    theirs = [record["ddl"] for record in recorded.events(scenario) if "ddl" in record]
    assert ours == theirs


@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
def test_tracked_schema_ends_equal_to_the_upstreams(scenario: str) -> None:
    """After every DDL (renames, swaps, exchanged partitions, flashbacks): names, columns, kinds."""
    tracker, _ = translated(scenario)
    assert_equals_upstream(tracker, scenario)


@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
def test_history_alone_gives_the_same_schema(scenario: str) -> None:
    jobs = recorded.jobs(scenario)
    by_version = SchemaTracker.from_history(jobs, schema_version=1 << 40)
    assert_equals_upstream(by_version, scenario)
    by_time = SchemaTracker.from_history(jobs, finished_ts=1 << 62)
    assert_equals_upstream(by_time, scenario)


def assert_equals_upstream(tracker: SchemaTracker, scenario: str) -> None:
    databases = recorded.expected(scenario)
    tables = 0
    for schema, database in databases.items():
        for name, table in database["tables"].items():
            tracked = tracker.table_named(schema, name)
            assert tracked is not None, f"{schema}.{name}"
            assert (tracked.schema, tracked.name) == (schema, name)
            assert tracked.info.is_view == (table["kind"] == "VIEW")
            assert tracked.info.is_sequence == (table["kind"] == "SEQUENCE")
            tables += 1
            if table["kind"] == "BASE TABLE":
                columns = [
                    column.name for column in tracked.info.columns if column.state == 5 and not column.hidden
                ]
                assert columns == [column["name"] for column in table["columns"]]
    found = [tracker.tracked(key) for key in tracker.names() if key[0] != "mysql"]
    known = [one for one in found if one is not None and one.document.get("temp_table_type", 0) == 0]
    assert len(known) == tables, sorted(known)


@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
def test_a_restart_at_any_ddl_resolves_the_rest(scenario: str) -> None:
    """From the position before and after DDL, by schema version and by time: as in one run."""
    stream = recorded.merged(scenario)
    jobs = recorded.jobs(scenario)
    _, whole = translated(scenario)
    names = [_names(item) for item in whole]
    cuts = [index for index, entry in enumerate(stream) if entry.job is not None]
    for index in cuts[42 :: max(1, len(cuts) // 12)]:
        for start in (index, index + 1):
            after_ts = stream[start - 1].commit_ts
            versions = [item.schema_version for item in whole[:start] if isinstance(item, Ddl)]
            for tracker in (
                SchemaTracker.from_history(jobs, schema_version=max(versions)),
                SchemaTracker.from_history(jobs, finished_ts=after_ts),
            ):
                translator = Translator(tracker, TableFilter())
                assert [_names(translator.translate(entry)) for entry in stream[start:]] == names[start:]


def _names(item: Transaction | Ddl) -> Any:
    if isinstance(item, Ddl):
        return (item.job_id, bool(item.skip), item.tables, item.schema)
    return [
        (one.table.schema, one.table.name, [column.name for column in one.table.info.columns], len(one.rows))
        for one in item.tables
    ]


def test_two_pumps_merge_into_the_recorded_commit_order() -> None:
    """In small pieces, one pump always ahead of the other."""
    order = json.loads((recorded.ROOT / "multi-pump" / "merged_order.json").read_text())
    streams = {"gopump1": recorded.pulled("multi-pump", "-1"), "gopump2": recorded.pulled("multi-pump", "-2")}
    owner = {entry.commit_ts: name for name, stream in streams.items() for entry in stream}
    merger = Merger(0)
    at = dict.fromkeys(streams, 0)
    for name in streams:
        merger.add_source(name, 0)
    seen: list[Merged] = []
    turn = 0
    while any(at[name] < len(stream) for name, stream in streams.items()):
        name = list(streams)[turn % 2]
        size = (7, 31)[turn % 2]
        piece = streams[name][at[name] : at[name] + size]
        at[name] += len(piece)
        merger.push(name, piece, 0)
        seen += merger.pop(10_000).entries
        turn += 1
    for name in streams:
        merger.push(name, [], 1 << 62)
    while more := merger.pop(10_000).entries:
        seen += more
    assert [[str(entry.commit_ts), owner[entry.commit_ts]] for entry in seen] == order


def test_ddl_between_online_steps_is_reported_once_and_delete_only_is_skipped() -> None:
    _, items = translated("ddl")
    drops = [item for item in items if isinstance(item, Ddl) and item.action == ActionType.DROP_COLUMN]
    assert len(drops) == 6
    assert [bool(item.skip) for item in drops] == [True, False] * 3
    rolled_back = [item for item in items if isinstance(item, Ddl) and "rolled back" in item.skip]
    assert [item.query for item in rolled_back] == ["ALTER TABLE `failing` ADD UNIQUE `ua`(`a`);"]


def test_renames_run_in_the_database_that_their_unqualified_names_mean() -> None:
    _, items = translated("ddl-rename-db")
    renames = [item for item in items if isinstance(item, Ddl) and not item.skip and "RENAME" in item.query]
    assert [(item.query, item.schema, item.tables) for item in renames] == [
        ("RENAME TABLE `t1` TO `d2`.`t1`;", "d1", (("d1", "t1"), ("d2", "t1"))),
        ("ALTER TABLE `t2` RENAME AS `d2`.`t2`;", "d1", (("d1", "t2"), ("d2", "t2"))),
        (
            "RENAME TABLE `d2`.`t1` TO `t1`, `d2`.`t2` TO `d1`.`t2`;",
            "d1",
            (("d2", "t1"), ("d1", "t1"), ("d2", "t2"), ("d1", "t2")),
        ),
    ]


def test_swapped_names_send_rows_to_the_right_table() -> None:
    _, items = translated("ddl-swap")
    swap = next(
        index for index, item in enumerate(items) if isinstance(item, Ddl) and "`same_tmp`" in item.query
    )
    before = {
        one.table.id: one.table.name
        for item in items[:swap]
        if isinstance(item, Transaction)
        for one in item.tables
    }
    after = {
        one.table.id: one.table.name
        for item in items[swap:]
        if isinstance(item, Transaction)
        for one in item.tables
    }
    moved = {table_id: (before[table_id], after[table_id]) for table_id in before if table_id in after}
    assert ("same1", "same2") in moved.values()
    assert ("same2", "same1") in moved.values()

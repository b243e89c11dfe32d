"""obinlog: byte for byte what the Go drainer wrote, but for a list of reasons; and back to rows again."""

from __future__ import annotations

import functools
import gzip
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from drainer.formats.obinlog import reader as obinlog_read
from drainer.formats.obinlog.reader import ForeignTable, ObinlogReader, RecordHead
from drainer.formats.obinlog.writer import ObinlogWriter, ddl_document, definition_json, type_name
from drainer.relay.record_readers import to_utc
from drainer.txn import DELETE, INSERT, UPDATE, Ddl, TableEvents, TableVersion, Tracked, Transaction
from tests.common.rowcodec.tables import index, key, kind, table
from tests.drainer.support import recorded
from tests.drainer.support.relay_world import items
from tidb_binlog.errors import Corruption
from tidb_binlog.record import decode_file
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.rowcodec.plan import TablePlan, compile_table
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.table_info import TableInfo
from tidb_binlog.wire import secondary_binlog_pb2 as pb

# Records of the Go drainer that differ from ours, by reason. Where it stopped, the rest is missing.
DIFFER = {
    # It took the column of a DROP COLUMN away when the job was in delete-only state; writers still filled it.
    "ddl": {"columns": 10, "generated": 19},
    # It takes a table's database when it decodes a row, not as it was when the row was written.
    "ddl-rename-db": {"names": 2},
    # A RENAME of several tables leaves the old names in its map.
    "ddl-swap": {"names": 2},
}


def go_records(scenario: str) -> dict[int, bytes]:
    found = {}
    for path in (recorded.ROOT / scenario / "relay").iterdir():
        data, at = gzip.decompress(path.read_bytes()), 0
        while at < len(data):
            payload, at = decode_file(data, at)
            found[pb.Binlog.FromString(payload).commit_ts] = payload
    return found


def reading(payload: bytes) -> Callable[[int, int], bytes]:
    return lambda offset, size: payload[offset : offset + size]


def never(table: ForeignTable) -> TableVersion:
    raise AssertionError(f"{table.name} has a definition")


@functools.cache
def transactions(scenario: str) -> list[Transaction]:
    return [item for item in items(scenario) if isinstance(item, Transaction) and item.tables]


def small_ones(scenario: str) -> list[Transaction]:
    """Small ones, so many that every scenario takes the same time."""
    small = [one for one in transactions(scenario) if sum(len(events.rows) for events in one.tables) < 100]
    return small[:: 1 + len(small) // 70]


def reason(theirs: bytes, ours: bytes) -> str:
    a, b = pb.Binlog.FromString(theirs), pb.Binlog.FromString(ours)
    pairs = list(zip(a.dml_data.tables, b.dml_data.tables, strict=True))
    if any((x.schema_name, x.table_name) != (y.schema_name, y.table_name) for x, y in pairs):
        return "names"
    names = [({c.name for c in x.column_info}, {c.name for c in y.column_info}) for x, y in pairs]
    return "generated" if any(x - y for x, y in names) else "columns" if any(y - x for x, y in names) else "?"


@pytest.mark.parametrize("scenario", recorded.VARIED)
def test_rows_are_byte_for_byte_those_of_the_go_drainer(scenario: str) -> None:
    writer, go = ObinlogWriter(bare=True), go_records(scenario)
    differ: Counter[str] = Counter()
    same = 0
    for transaction in transactions(scenario):
        theirs, ours = go.get(transaction.commit_ts), writer.transaction(transaction)
        if theirs == ours:
            same += 1
        elif theirs is not None:
            differ[reason(theirs, ours)] += 1
    assert same
    assert dict(differ) == DIFFER.get(scenario, {})


@pytest.mark.parametrize("scenario", ["basic", "keys", "types", "charset"])
def test_ddl_are_byte_for_byte_those_of_the_go_drainer(scenario: str) -> None:
    writer, go = ObinlogWriter(bare=True), go_records(scenario)
    for item in items(scenario):
        if isinstance(item, Ddl):
            assert writer.ddl(item, item.query) == go[item.commit_ts]


def test_our_own_fields_stand_after_the_others() -> None:
    """Whoever does not know them reads the record as if they were not there."""
    writer, bare = ObinlogWriter(), ObinlogWriter(bare=True)
    for item in items("basic"):
        message = pb.Binlog.FromString(
            writer.ddl(item, item.query) if isinstance(item, Ddl) else writer.transaction(item)
        )
        assert message.time_zone == "UTC"
        message.ClearField("time_zone")
        message.ClearField("definitions")
        message.ddl_data.ClearField("job")
        for one in message.dml_data.tables:
            one.ClearField("definition")
            one.ClearField("first_ordinal")
        if not isinstance(item, Ddl):
            message.ClearField("ddl_data")
            assert message.SerializeToString() == bare.transaction(item)


@functools.cache
def plan_of(version: TableVersion) -> TablePlan:
    return compile_table(version.info)


def values(version: TableVersion, events: TableEvents) -> Iterator[Any]:
    plan = plan_of(version)
    decode = {INSERT: plan.decode_insert, UPDATE: plan.decode_update, DELETE: plan.decode_delete}
    for kind_of_row, row in zip(events.kinds, events.rows, strict=True):
        yield kind_of_row, decode[kind_of_row](row)


@pytest.mark.parametrize("scenario", recorded.VARIED)
def test_rows_come_back_with_the_same_values(scenario: str) -> None:
    """Kinds, ordinals and values, through the file's definitions."""
    writer = ObinlogWriter()
    definitions: dict[int, TableVersion] = {}
    reader = ObinlogReader(definitions, never)
    for transaction in small_ones(scenario):
        read = reading(payload := writer.transaction(transaction))
        head = obinlog_read.head(read, len(payload))
        for number, document in head.definitions.items():
            definitions[number] = obinlog_read.definition(document)
        found = reader.transaction(read, head, to_utc(head.time_zone))
        assert (found.commit_ts, found.last) == (transaction.commit_ts, True)
        assert len(found.tables) == len(transaction.tables)
        for old, new in zip(transaction.tables, found.tables, strict=True):
            assert new.first_ordinal == old.first_ordinal
            assert (new.table.id, new.table.downstream) == (old.table.id, old.table.downstream)
            assert repr(new.table.info) == repr(old.table.info)
            assert list(values(new.table, new)) == list(values(old.table, old))


@pytest.mark.parametrize("scenario", ["ddl", "ddl-swap", "ddl-multischema"])
def test_ddl_come_back_as_they_were(scenario: str) -> None:
    writer = ObinlogWriter()
    for item in items(scenario):
        if isinstance(item, Ddl):
            payload = writer.ddl(item, "something else")
            head = obinlog_read.head(reading(payload), len(payload))
            assert obinlog_read.ddl(reading(payload), head) == item


def version(info: TableInfo, **more: Any) -> TableVersion:
    return TableVersion(info, "shop", info.name, 3, **more)


def test_a_definition_holds_all_that_a_table_version_is() -> None:
    info = replace(table(("id", kind("bigint", not_null=True))), has_foreign_keys=True)
    known = version(info, target=("other", "name"), left_out=frozenset({1, 7}))
    back = obinlog_read.definition(definition_json(known))
    assert (back.info, back.schema, back.name, back.version) == (info, "shop", info.name, 3)
    assert (back.target, back.left_out) == (known.target, known.left_out)


def test_routed_tables_are_written_under_their_names_downstream() -> None:
    info = table(("id", kind("bigint", not_null=True)), handle="rowid")
    known = version(info, target=("archive", "moved"))
    row = RowEncoder(info).insert((1,), 1)
    payload = ObinlogWriter().transaction(Transaction(1, 2, (TableEvents(known, [INSERT], [row], 0),), 1))
    (written,) = pb.Binlog.FromString(payload).dml_data.tables
    assert (written.schema_name, written.table_name) == ("archive", "moved")


def test_a_message_has_neither_left_out_columns_nor_their_keys() -> None:
    info = table(
        ("id", key("bigint")),
        ("secret", kind("bigint")),
        ("name", kind("varchar")),
        indexes=(index(1, ("secret", 1)), index(2, ("name", 2))),
    )
    (secret,) = (column.id for column in info.columns if column.name == "secret")
    encoder, known = RowEncoder(info), version(info, left_out=frozenset({secret}))
    before, after = (1, 77, "a"), (1, 78, "b")
    older = RowEncoder(replace(info, columns=info.columns[:2])).insert(before[:2], 1)  # read the slow way
    rows = [encoder.insert(before, 1), encoder.update(before, after, 1), encoder.delete(after, 1), older]
    events = TableEvents(known, [INSERT, UPDATE, DELETE, INSERT], rows, 0)
    transaction = Transaction(1, 2, (events,), 1)
    (told,) = pb.Binlog.FromString(ObinlogWriter(bare=True).transaction(transaction)).dml_data.tables
    assert [column.name for column in told.column_info] == ["id", "name"]
    assert [list(one.column_names) for one in told.unique_keys] == [["id"], ["name"]]
    images = [row for change in told.mutations for row in (change.row, change.change_row) if row.columns]
    shown = [tuple(column.string_value or column.int64_value for column in row.columns) for row in images]
    assert shown == [(1, "a"), (1, "b"), (1, "a"), (1, "b"), (1, 0)]
    (kept,) = pb.Binlog.FromString(ObinlogWriter().transaction(transaction)).dml_data.tables
    assert [column.name for column in kept.column_info] == ["id", "secret", "name"]
    assert len(kept.unique_keys) == 3


NUMBERS = [0, 1, -1, 127, 128, 16383, 16384, 2097151, 2097152, 268435455, 268435456, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_of_every_length(number: int) -> None:
    info = table(("a", kind("bigint")), ("b", kind("bigint", unsigned=True)), handle="rowid")
    encoder, known = RowEncoder(info), version(info)
    pair = (number, number % 2**64)
    rows = [encoder.insert(pair, 1), encoder.update(pair, (None, None), 1), encoder.delete(pair, 1)]
    events = TableEvents(known, [INSERT, UPDATE, DELETE], rows, 0)
    message = pb.Binlog.FromString(ObinlogWriter(bare=True).transaction(Transaction(1, 2, (events,), 1)))
    inserted, updated, deleted = message.dml_data.tables[0].mutations
    for row in (inserted.row, updated.change_row, deleted.row):
        assert [row.columns[0].int64_value, row.columns[1].uint64_value] == list(pair)
    assert [column.is_null for column in updated.row.columns] == [True, True]
    assert message.SerializeToString() == ObinlogWriter(bare=True).transaction(
        Transaction(1, 2, (events,), 1)
    )


@pytest.mark.parametrize("ts", [1, 2**28 - 1, 2**28, 2**28 + 5, 470607644560982029, 2**62])
def test_timestamps_of_every_length(ts: int) -> None:
    info = table(("a", kind("bigint")), handle="rowid")
    row = RowEncoder(info).insert((1,), 1)
    payload = ObinlogWriter().transaction(Transaction(0, ts, (TableEvents(version(info), [0], [row], 0),), 1))
    assert pb.Binlog.FromString(payload).commit_ts == ts
    assert obinlog_read.head(reading(payload), len(payload)).commit_ts == ts


def test_a_row_that_cannot_be_right_is_refused() -> None:
    info = table(("id", kind("bigint", not_null=True)), handle="rowid")
    events = TableEvents(version(info), [INSERT], [b"\x08\x02\x08\x04"], 0)
    with pytest.raises(RowError):
        ObinlogWriter().transaction(Transaction(1, 2, (events,), 1))


@pytest.mark.parametrize(
    ("zone", "text", "wanted"),
    [
        ("UTC", "2023-03-28 10:01:00", "2023-03-28 10:01:00"),
        ("Asia/Shanghai", "2023-03-28 10:01:00.123", "2023-03-28 02:01:00.123"),
        ("America/New_York", "2023-07-01 00:00:00", "2023-07-01 04:00:00"),
        ("Asia/Shanghai", "0000-00-00 00:00:00", "0000-00-00 00:00:00"),
    ],
)
def test_timestamps_become_utc(zone: str, text: str, wanted: str) -> None:
    assert to_utc(zone)(text) == wanted


def test_a_record_without_a_zone_is_of_the_local_one(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    assert to_utc("")("2023-03-28 10:01:00") == "2023-03-28 02:01:00"
    with pytest.raises(Corruption, match="Nowhere"):
        to_utc("Nowhere/At_all")


def test_pieces_are_the_transaction() -> None:
    (large,) = [one for one in transactions("txn") if len(one.tables[0].rows) > 5000][:1]
    payload = ObinlogWriter(bare=True).transaction(large)
    read = reading(payload)
    head = obinlog_read.head(read, len(payload))
    reader = ObinlogReader({}, lambda foreign: large.tables[0].table)
    whole = reader.transaction(read, head, to_utc("UTC"))
    pieces = list(reader.pieces(read, head, to_utc("UTC"), rows_max=333))
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    rows = [row for piece in pieces for events in piece.tables for row in events.rows]
    assert rows == [row for events in whole.tables for row in events.rows]
    ordinal = 0
    for piece in pieces:
        for events in piece.tables:
            assert events.first_ordinal == ordinal
            ordinal += len(events.rows)


def test_damage_inside_a_record_is_named() -> None:
    """Whatever is in a record: a transaction or `Corruption`, nothing else."""
    one = transactions("types")[40]
    payload = ObinlogWriter(bare=True).transaction(one)
    refused = 0
    for at in range(len(payload)):
        broken = payload[:at] + bytes((payload[at] ^ 0x5A,)) + payload[at + 1 :]
        read = reading(broken)
        try:
            head = obinlog_read.head(read, len(broken))
            if head.dml is not None:
                ObinlogReader({}, lambda foreign: one.tables[0].table).transaction(read, head, to_utc("UTC"))
        except Corruption:
            refused += 1
    assert refused > len(payload) // 4


def test_names_of_types() -> None:
    names = ["bigint", "varchar", "blob", "json", "enum", "timestamp"]
    assert [type_name(kind(name)) for name in names] == [
        "bigint",
        "varchar",
        "text",
        "json",
        "enum",
        "timestamp",
    ]
    assert type_name(kind("blob", charset="binary")) == "blob"
    assert type_name(kind("varchar", charset="binary")) == "varbinary"


def test_a_record_that_says_nothing_is_damage() -> None:
    for payload in (b"", b"\x08\x00\x10\x05", b"\x08\x00\x10\x05\x1a\x00\x22\x00", b"\xff\xff"):
        with pytest.raises(Corruption):
            obinlog_read.head(reading(payload), len(payload))
    assert obinlog_read.head(reading(b"\x08\x00\x10\x05\x1a\x00"), 6) == RecordHead(5, (6, 0))


def test_tracked_definitions_travel_with_a_ddl() -> None:
    ddl = Ddl(
        9,
        4,
        3,
        "shop",
        "CREATE TABLE t (a INT)",
        (("shop", "t"),),
        12,
        after=(Tracked("shop", "t", {"id": 7}),),
    )
    payload = ObinlogWriter().ddl(ddl, ddl.query)
    head = obinlog_read.head(reading(payload), len(payload))
    back = obinlog_read.ddl(reading(payload), head)
    assert back == ddl
    assert back.after[0].id == 7
    later = {"targets", "shared", "apart", "unread", "early"}
    assert not ddl_document(ddl).keys() & later, "a release of before such were written reads it"

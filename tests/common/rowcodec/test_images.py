"""Images as bytes, over every row that a real TiDB wrote: halves become rows, datums are exchanged."""

from __future__ import annotations

import pytest

from tests.common.rowcodec.recorded import DELETE, INSERT, SCENARIOS, UPDATE, events, history
from tests.common.rowcodec.tables import column, index, key, kind, table
from tidb_binlog.rowcodec.encoder import RowEncoder, needs_restored_data
from tidb_binlog.rowcodec.images import Images
from tidb_binlog.rowcodec.plan import TablePlan, compile_table
from tidb_binlog.rowcodec.put import put_bytes
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.table_info import STRING_KINDS, TableInfo


def same(datum: bytes) -> bytes:
    return datum


def has_stand_in(info: TableInfo) -> bool:
    """The sort key in front of an INSERT is not exact for all text."""
    index_ = info.primary_index
    if not info.is_common_handle or index_ is None:
        return False
    by_offset = {one.offset: one.type for one in info.columns}
    return any(
        needs_restored_data(by_offset[part.offset]) and not by_offset[part.offset].collate.endswith("_bin")
        for part in index_.columns
    )


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_recorded_rows(scenario: str) -> None:
    known = history(scenario)
    made: dict[int, tuple[Images, TablePlan]] = {}
    seen = {INSERT: 0, UPDATE: 0, DELETE: 0}
    for event in events(scenario):
        info = known.at(event.table_id, event.schema_version)
        if id(info) not in made:
            made[id(info)] = Images(info), compile_table(info)
        images, plan = made[id(info)]
        everything = {one.id: same for one in plan.columns}
        seen[event.kind] += 1
        if event.kind == INSERT:
            again = images.exchanged_insert(event.row, everything)
            assert plan.decode_insert(again) == plan.decode_insert(event.row)
            if not has_stand_in(info) and all(value is not None for value in plan.decode_insert(event.row)):
                assert again == event.row or scenario.startswith("ddl")
            assert images.exchanged_insert(event.row, {}) == event.row
        elif event.kind == DELETE:
            again = images.exchanged_image(event.row, everything)
            assert plan.decode_delete(again) == plan.decode_delete(event.row)
            assert again == event.row or scenario.startswith("ddl")
            assert plan.decode_insert(images.insert_of(event.row)) == plan.decode_delete(event.row)
        else:
            old, new = plan.decode_update(event.row)
            split = plan.strict.update(event.row)[2]
            assert plan.decode_delete(event.row[:split]) == old
            assert plan.decode_insert(images.insert_of(event.row, split)) == new
            halves = [
                images.exchanged_image(event.row, everything, *part) for part in ((0, split), (split, None))
            ]
            assert plan.decode_update(b"".join(halves)) == (old, new)
            # Rows that are older than a column get it: with what it holds by default.
            assert b"".join(halves) == event.row or scenario.startswith("ddl")
    assert any(seen.values()) or not list(events(scenario))


TABLES = [
    table(("id", key("bigint")), ("a", kind("varchar")), ("b", kind("int"))),
    table(("id", key("bigint", unsigned=True)), ("a", kind("varchar"))),
    table(("a", kind("varchar")), ("b", kind("int")), handle="rowid"),
    table(
        ("a", key("varchar", flen=40)), ("t", key("time")), ("b", kind("int")),
        handle="common", indexes=(index(1, ("a", 0), ("t", 1), primary=True),),
    ),
    table(
        ("a", key("varchar", collate="utf8mb4_general_ci")), ("b", kind("int")),
        handle="common", indexes=(index(1, ("a", 0, 3), primary=True),),
    ),
]  # fmt: skip


@pytest.mark.parametrize("info", TABLES)
def test_a_half_becomes_the_insert_that_the_writer_makes(info: TableInfo) -> None:
    encoder, images = RowEncoder(info), Images(info)
    names = [one.name for one in info.columns]
    values = {"id": 2**63 + 5 if info.columns[0].type.unsigned else -7, "a": "Text", "b": 9, "t": "-10:00:00"}
    row = {name: values[name] for name in names}
    changed = encoder.update(row, row, rowid=77)
    assert images.insert_of(changed, len(changed) // 2) == encoder.insert(row, rowid=77)


@pytest.mark.parametrize("info", TABLES)
def test_one_datum_is_exchanged_wherever_it_stands(info: TableInfo) -> None:
    encoder, images, plan = RowEncoder(info), Images(info), compile_table(info)
    row = {"id": 5, "a": "Text", "b": 9, "t": "10:00:00"}
    row = {one.name: row[one.name] for one in info.columns}
    wanted = encoder.insert({**row, "a": "other"}, rowid=77)
    column_id = next(one.id for one in info.columns if one.name == "a")
    assert info.columns[column_id - 1].type.kind in STRING_KINDS
    exchanges = {column_id: lambda datum: put_bytes(b"other")}
    assert images.exchanged_insert(encoder.insert(row, rowid=77), exchanges) == wanted
    deleted = images.exchanged_image(encoder.delete(row, rowid=77), exchanges)
    assert plan.decode_delete(deleted) == plan.decode_insert(wanted)
    null = {**row, "a": None}
    if not images.handle_ids & {column_id}:
        assert images.exchanged_insert(encoder.insert(null, rowid=77), exchanges) == encoder.insert(
            null, rowid=77
        )
        assert images.exchanged_image(encoder.delete(null, rowid=77), exchanges) == encoder.delete(
            null, rowid=77
        )


def test_the_default_of_a_row_older_than_its_column_is_exchanged_too() -> None:
    info = table(
        ("id", key("bigint")), column(2, "a", kind("varchar"), origin_default="secret"), ("b", kind("int"))
    )
    older = table(("id", key("bigint")), column(3, "b", kind("int")))
    images, plan = Images(info), compile_table(info)
    exchanges = {2: lambda datum: put_bytes(b"hidden")}
    row = RowEncoder(older).insert({"id": 1, "b": 2})
    assert plan.decode_insert(row) == (1, "secret", 2)
    assert plan.decode_insert(images.exchanged_insert(row, exchanges)) == (1, "hidden", 2)


@pytest.mark.parametrize(
    "row", [b"", b"\x08\x02\x08", b"\x08\x02\x02\x10ab", b"\x09\x00\x00\x00", b"\x08\x02\x00\x08\x02\x00"]
)
def test_a_row_that_cannot_be_right_is_an_error(row: bytes) -> None:
    with pytest.raises(RowError, match="t \\(53\\)"):
        Images(TABLES[0]).insert_of(row)

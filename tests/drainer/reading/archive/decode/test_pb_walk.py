"""pb walk: rows of events are the rows that were written, whatever their types, the fast and the slow way."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drainer.formats.pb import PbEncoder
from drainer.reading.archive.decode.pb_walk import PbWalker, Shape
from drainer.reading.archive.decode.records import Row
from drainer.txn import DELETE, INSERT, UPDATE, Ddl, TableEvents, TableVersion, Transaction
from tests.common.rowcodec.tables import binary, key, kind, table
from tests.drainer.support import recorded
from tests.drainer.support.relay_world import items
from tidb_binlog.errors import Corruption
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.rowcodec.plan import TablePlan, compile_table


class Current:
    """The definitions of one transaction."""

    def __init__(self) -> None:
        self.versions: dict[tuple[str, str], TableVersion] = {}

    def take(self, transaction: Transaction) -> None:
        self.versions = {events.table.downstream: events.table for events in transaction.tables}

    def find(
        self,
        schema: str,
        table: str,
        commit_ts: int,
        column_names: Sequence[str],
        fits: Callable[[TableVersion], bool],
    ) -> TableVersion | None:
        return self.versions.get((schema, table))

    def guess(self, schema: str, table: str, shape: Shape) -> TableVersion:
        raise AssertionError(f"{schema}.{table}: {shape}")

    def valid(self, commit_ts: int) -> tuple[int, int]:
        return commit_ts, commit_ts


class Plans:
    def __init__(self) -> None:
        self._plans: dict[TableVersion, TablePlan] = {}

    def of(self, version: TableVersion) -> TablePlan:
        return self._plans.get(version) or self._plans.setdefault(version, compile_table(version.info))

    def values(self, row: Row) -> tuple[Any, Any]:
        version, _, before, after = row
        read = self.of(version).decode_delete
        return None if before is None else read(before), None if after is None else read(after)

    def written(self, version: TableVersion, kind: int, row: bytes) -> tuple[Any, Any]:
        plan = self.of(version)
        if kind == INSERT:
            return None, plan.decode_insert(row)
        if kind == DELETE:
            return plan.decode_delete(row), None
        return plan.decode_update(row)


@pytest.mark.parametrize("scenario", recorded.VARIED)
def test_images_of_recorded_rows_hold_what_the_rows_held(scenario: str) -> None:
    encoder, current, plans = PbEncoder(), Current(), Plans()
    walker = PbWalker(current)
    for item in items(scenario):
        if isinstance(item, Ddl) or not item.tables:
            continue
        current.take(item)
        runs = walker.rows(encoder.transaction(item), item.commit_ts)
        assert [first for first, _ in runs] == [0]
        found = [(row[0], row[1], *plans.values(row)) for row in runs[0][1]]
        wanted = [
            (events.table, kind, *plans.written(events.table, kind, row))
            for events in item.tables
            for kind, row in zip(events.kinds, events.rows, strict=True)
        ]
        assert found == wanted


KINDS = [
    (kind("int"), st.integers(-(2**31), 2**31 - 1)),
    (kind("bigint"), st.integers(-(2**63), 2**63 - 1)),
    (kind("bigint", unsigned=True), st.integers(0, 2**64 - 1)),
    (kind("year"), st.integers(1901, 2155)),
    (kind("double"), st.floats(allow_nan=False, allow_infinity=False)),
    (kind("float"), st.floats(width=32, allow_nan=False, allow_infinity=False)),
    (kind("decimal", flen=20, decimal=4), st.decimals(-(10**15), 10**15, places=4).map(str)),
    (kind("varchar", flen=20000), st.text(st.characters(codec="utf-8"), max_size=200)),
    (
        kind("varchar", flen=20000),
        st.sampled_from([0, 61, 62, 63, 64, 126, 127, 8191, 9000, 17000]).map("x".__mul__),
    ),
    (binary("blob"), st.binary(max_size=80)),
    (kind("date"), st.dates().map(str)),
    (kind("datetime", decimal=6), st.datetimes().map(lambda at: at.isoformat(" ", "microseconds"))),
    (kind("time", decimal=0), st.integers(0, 838).map(lambda hour: f"-{hour:02d}:59:07")),
    (kind("bit", flen=64), st.integers(0, 2**64 - 1)),
    (kind("enum", elems=("a", "b")), st.integers(1, 2)),
    (kind("set", elems=("a", "b", "c")), st.integers(0, 7)),
    (
        kind("json"),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(2**63), 2**64 - 1)
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(st.characters(codec="utf-8"), max_size=9),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3)
            ),
            max_leaves=8,
        ).map(json.dumps),
    ),
]


@settings(max_examples=60)
@given(st.data())
def test_rows_of_any_types_come_back_through_an_archive(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=6))
    info = table(("id", key("bigint")), *((f"c{at}", one) for at, (one, _) in enumerate(chosen)))
    version = TableVersion(info, "db", "t", 1)
    row = st.tuples(st.integers(-(2**63), 2**63 - 1), *(st.none() | values for _, values in chosen))
    encoder = RowEncoder(info)
    kinds, rows = [], []
    for before, after in data.draw(st.lists(st.tuples(row, row), min_size=1, max_size=4)):
        kinds += [INSERT, UPDATE, DELETE]
        rows += [encoder.insert(before), encoder.update(before, after), encoder.delete(after)]
    events = TableEvents(version, kinds, rows, 0)
    transaction = Transaction(1, 2, (events,), 0)
    current, plans = Current(), Plans()
    current.take(transaction)
    ((first, found),) = PbWalker(current).rows(PbEncoder().transaction(transaction), 2)
    assert first == 0
    assert [(one[1], *plans.values(one)) for one in found] == [
        (kind_, *plans.written(version, kind_, row_)) for kind_, row_ in zip(kinds, rows, strict=True)
    ]


def test_rows_that_are_not_wanted_keep_their_place() -> None:
    info = table(("id", key("int")))
    version = TableVersion(info, "db", "t", 1)
    encoder = RowEncoder(info)
    kinds = [DELETE, INSERT, INSERT, DELETE, INSERT]
    rows = [encoder.delete([1]) if one == DELETE else encoder.insert([1]) for one in kinds]
    transaction = Transaction(1, 2, (TableEvents(version, kinds, rows, 0),), 0)
    current = Current()
    current.take(transaction)
    walker = PbWalker(current, lambda schema, name, one: one == INSERT)
    runs = walker.rows(PbEncoder().transaction(transaction), 2)
    assert [(first, [row[1] for row in found]) for first, found in runs] == [(1, [INSERT] * 2), (4, [INSERT])]


@pytest.mark.parametrize("cut", [1, 4, 9, 30])
def test_a_payload_that_ends_early_is_corrupt(cut: int) -> None:
    info = table(("id", key("int")), ("c", kind("varchar")))
    version = TableVersion(info, "db", "t", 1)
    transaction = Transaction(
        1, 2, (TableEvents(version, [INSERT], [RowEncoder(info).insert([1, "x"])], 0),), 0
    )
    current = Current()
    current.take(transaction)
    with pytest.raises(Corruption):
        PbWalker(current).rows(PbEncoder().transaction(transaction)[:-cut], 2)

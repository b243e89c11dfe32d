"""pb archive: record for record what the Go drainer's file sink wrote, but for a list of reasons."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator

import pytest

from drainer.ddl.derive.derive import same_names
from drainer.ddl.derive.render import NotDerivable
from drainer.ddl.policy import Policy
from drainer.ddl.rules import APPLY
from drainer.formats.obinlog.writer import commit_ts_of
from drainer.formats.pb import PbEncoder, PbPlan
from drainer.sink.ddl_text import ddl_texts, ruling_of
from drainer.txn import DELETE, INSERT, UPDATE, Ddl, Item, TableVersion
from tests.drainer.support import recorded
from tests.drainer.support.relay_world import items
from tidb_binlog.record import decode_file
from tidb_binlog.wire import pb_binlog_pb2 as pb

# Records of the Go drainer that differ from ours, by reason. Where it stopped, the rest is missing.
DIFFER = {
    # It took the column of a DROP COLUMN away when the job was in delete-only state; writers still filled it.
    # It runs a rename to another database in the new one, where its unqualified names mean nothing.
    "ddl": {"columns": 10, "database": 2},
    # It takes a table's database when it decodes a row, not as it was when the row was written.
    "ddl-rename-db": {"names": 2, "database": 2},
    # A RENAME of several tables leaves the old names in its map.
    "ddl-swap": {"names": 2},
}
STOPPED = ("ddl-exchange", "ddl-flashback-db", "ddl-multischema")


def go_records(scenario: str) -> dict[int, bytes]:
    found = {}
    for path in (recorded.ROOT / scenario / "events").glob("binlog-*.gz"):
        data, at = gzip.decompress(path.read_bytes()), 0
        while at < len(data):
            payload, at = decode_file(data, at)
            found[commit_ts_of(payload[:32])] = payload
    return found


def ours(encoder: PbEncoder, stream: list[Item]) -> Iterator[tuple[Item, bytes]]:
    for item in stream:
        if isinstance(item, Ddl):
            if ruling_of(Policy(), item).action != APPLY:
                continue
            for text in ddl_texts(item, None, same_names):
                yield item, encoder.ddl(item, text)
        elif item.tables:
            yield item, encoder.transaction(item)


def columns_of(event: pb.Event) -> list[str]:
    return [pb.Column.FromString(column).name for column in event.row]


def reason(theirs: bytes, mine: bytes) -> str:
    a, b = pb.Binlog.FromString(theirs), pb.Binlog.FromString(mine)
    if a.tp == pb.DDL:
        same = a.ddl_query.partition(b"; ")[2] == b.ddl_query.partition(b"; ")[2]
        return "database" if same and b"RENAME" in a.ddl_query else "?"
    pairs = list(zip(a.dml_data.events, b.dml_data.events, strict=True))
    if any((x.schema_name, x.table_name) != (y.schema_name, y.table_name) for x, y in pairs):
        return "names"
    return "columns" if any(set(columns_of(y)) - set(columns_of(x)) for x, y in pairs) else "?"


@pytest.mark.parametrize("scenario", recorded.VARIED)
def test_records_are_byte_for_byte_those_of_the_go_drainer(scenario: str) -> None:
    go = go_records(scenario)
    differ: Counter[str] = Counter()
    same = missing = 0
    for item, payload in ours(PbEncoder(), items(scenario)):
        theirs = go.pop(item.commit_ts, None)
        if theirs == payload:
            same += 1
        elif theirs is None:
            missing += 1
        else:
            differ[reason(theirs, payload)] += 1
    assert same
    assert not go, "records of the Go drainer that ours has not"
    assert dict(differ) == DIFFER.get(scenario, {})
    assert bool(missing) == (scenario in STOPPED)


@pytest.mark.parametrize("scenario", ["types", "keys", "ddl"])
def test_the_strict_way_makes_the_same_of_every_row(scenario: str) -> None:
    """It takes the rows that are not as the compiled walk expects them."""
    plans: dict[TableVersion, PbPlan] = {}
    rows = 0
    for item in items(scenario):
        for events in () if isinstance(item, Ddl) else item.tables:
            plan = plans.get(events.table) or plans.setdefault(events.table, PbPlan(events.table))
            for kind, row in zip(events.kinds, events.rows, strict=True):
                make = {INSERT: plan.insert, UPDATE: plan.update, DELETE: plan.delete}[kind]
                strict = make.__globals__["slow"]
                assert make(row) == strict(row)
                rows += 1
    assert rows > 50


def test_rows_are_counted_by_table_and_kind() -> None:
    encoder = PbEncoder()
    counted: dict[tuple[str, str], list[int]] = {}
    for item, payload in ours(encoder, items("basic")):
        for event in pb.Binlog.FromString(payload).dml_data.events:
            counts = counted.setdefault((event.schema_name, event.table_name), [0, 0, 0])
            counts[event.tp] += 1
        assert item.commit_ts
    assert encoder.take_counts() == counted
    assert encoder.take_counts() == {}


def routed(schema: str, table: str) -> tuple[str, str]:
    return ("elsewhere", table) if schema == "shop" else (schema, table)


def test_routed_ddl_have_the_names_that_rows_have_or_are_refused() -> None:
    said = []
    for item in items("basic"):
        if isinstance(item, Ddl) and item.tables[0][0] == "shop":
            try:
                said += ddl_texts(item, None, routed)
            except NotDerivable as error:
                said.append(f"refused: {error}")
    assert said[0].startswith("CREATE DATABASE IF NOT EXISTS `elsewhere`")
    assert all("`shop`" not in text for text in said)
    assert [text for text in said if "CREATE TABLE" in text and "`elsewhere`.`customer`" in text]
    assert said[-1] == "refused: its tables are routed, and there is no other text for add column"
    last = [item for item in items("basic") if isinstance(item, Ddl)][-1]
    assert ddl_texts(last, "ALTER TABLE t ADD a INT", routed) == (
        "use `elsewhere`; ALTER TABLE t ADD a INT;",
    )

"""Large transactions: pieces of a spilled payload hold what the payload decoded at once holds."""

from __future__ import annotations

import itertools
import random
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drainer.stream.pull import large_txn
from drainer.stream.pull.large_txn import PIECE_BYTES, PIECE_ROWS
from drainer.stream.pull.merged import Merged, Spilled
from drainer.stream.rules.table_rules import TableFilter
from drainer.stream.schema.tracker import SchemaTracker, UnknownTable
from drainer.stream.translate.translator import Translator
from drainer.txn import Ddl, TableVersion, Transaction
from tests.drainer.stream.translate.setting import Setting
from tests.drainer.support import recorded
from tidb_binlog import binlog, protobuf_fields
from tidb_binlog.errors import Corruption
from tidb_binlog.record import crc32c
from tidb_binlog.wire import binlog_pb2

I, U, D = binlog_pb2.Insert, binlog_pb2.Update, binlog_pb2.DeleteRow  # noqa: E741
START_TS, COMMIT_TS, VERSION = 1000, 1001, 5
WINDOW = 64


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every few fields lie across the end of a window."""
    for module in (protobuf_fields, large_txn):
        monkeypatch.setattr(module, "WINDOW_BYTES", WINDOW)


def spilled_of(payload: bytes, start_ts: int = START_TS, commit_ts: int = COMMIT_TS) -> Spilled:
    begin = binlog.contents_offset(payload)

    def read(offset: int, size: int) -> bytes:
        return payload[offset : offset + size]

    return Spilled(commit_ts, start_ts, len(payload), begin, crc32c(payload[begin:]), read)


def payload_of(value: bytes) -> bytes:
    return binlog.join(
        binlog.prewrite(START_TS, b"k", value), binlog.commit(START_TS, COMMIT_TS, b"a longer key")
    )


def rows_of(transactions: Any) -> list[tuple[int, TableVersion, int, bytes]]:
    """(ordinal, table, kind, row) of every row event."""
    return [
        (events.first_ordinal + number, events.table, kind, row)
        for transaction in transactions
        for events in transaction.tables
        for number, (kind, row) in enumerate(zip(events.kinds, events.rows, strict=True))
    ]


def outcome(make: Any) -> Any:
    try:
        return rows_of(make())
    except Corruption:
        return Corruption


@pytest.fixture(scope="module")
def s() -> Setting:
    return Setting()


# -- the same as at once ----------------------------------------------------------------------------


ROWS = st.one_of(st.binary(max_size=3), st.binary(min_size=120, max_size=140), st.binary(max_size=300))
MUTATION = st.tuples(
    st.sampled_from((1, 2, 4)),  # the last one is a system table: its rows are left out and counted
    st.lists(st.tuples(st.sampled_from((I, U, D)), ROWS), max_size=40),
    st.sampled_from(("as written", "packed", "mixed")),
)


def field(number: int, value: int | bytes) -> bytes:
    """One protobuf field."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*octets, value))


def encoded(table_id: int, events: list[tuple[Any, bytes]], order: str, rng: random.Random) -> bytes:
    """A TableMutation: in the usual order, with a packed sequence, or with its lists mixed up."""
    numbers = {I: 2, U: 3, D: 6}
    lists = {
        kind: [field(number, row) for of, row in events if of == kind] for kind, number in numbers.items()
    }
    kinds = [field(7, kind) for kind, _ in events]
    if order == "packed":
        kinds = [field(7, bytes(kind for kind, _ in events))]
    parts = [[field(1, table_id)], *lists.values(), kinds]
    if order == "mixed":
        parts.append([field(99, b"not known yet"), field(98, 7)])
        queues = [iter(part) for part in parts for _ in part]
        rng.shuffle(queues)
        return b"".join(next(queue) for queue in shared(queues, parts))
    return b"".join(itertools.chain(*parts))


def shared(queues: list[Iterator[bytes]], parts: list[list[bytes]]) -> list[Iterator[bytes]]:
    """One iterator for each list, taken as often as it has entries, in the order of `queues`."""
    counts = [len(part) for part in parts for _ in part]
    owners = [number for number, part in enumerate(parts) for _ in part]
    iterators = [iter(part) for part in parts]
    order = random.Random(len(queues)).sample(owners, len(counts))
    return [iterators[owner] for owner in order]


@settings(max_examples=150)
@given(
    mutations=st.lists(MUTATION, max_size=5),
    seed=st.integers(0, 99),
    limits=st.tuples(st.integers(1, 30), st.integers(1, 900)),
)
@pytest.mark.usefixtures("small_windows")
def test_pieces_are_the_transaction(
    s: Setting, mutations: list[tuple[int, list[tuple[Any, bytes]], str]], seed: int, limits: tuple[int, int]
) -> None:
    rng = random.Random(seed)
    value = field(1, VERSION) + b"".join(
        field(2, encoded(table_id, events, order, rng)) for table_id, events, order in mutations
    )
    payload = payload_of(value)
    whole = s.translator.translate(Merged(COMMIT_TS, payload))
    found = list(large_txn.pieces(spilled_of(payload), resolve(s), rows_max=limits[0], bytes_max=limits[1]))
    assert rows_of(found) == rows_of([whole])
    assert [piece.last for piece in found] == [False] * (len(found) - 1) + [True]
    for piece in found:
        assert (piece.start_ts, piece.commit_ts) == (START_TS, COMMIT_TS)
        rows = [row for one in piece.tables for row in one.rows]
        assert piece.size_bytes == sum(map(len, rows))
        assert len(rows) <= limits[0]
        assert piece.size_bytes - len(rows[-1] if rows else b"") < limits[1]


def resolve(s: Setting) -> large_txn.Resolve:
    return lambda *of: s.translator.resolve({}, *of)


@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
def test_every_recorded_transaction_in_pieces(scenario: str) -> None:
    """Filters, online DDL, kinds and ordinals as in the translator; two trackers that see the same stream."""
    ordinary = Translator(SchemaTracker(), TableFilter())
    spilling = Translator(SchemaTracker(), TableFilter())
    pieces = 0
    for entry in recorded.merged(scenario):
        item = ordinary.translate(entry)
        if isinstance(item, Ddl):
            spilling.translate(entry)
            continue
        found = list(spilling.pieces(spilled_of(entry.payload, item.start_ts, entry.commit_ts)))
        pieces += len(found)
        assert named(found) == named([item])
        assert found[-1].last
    assert pieces


def named(transactions: list[Transaction]) -> list[Any]:
    return [
        (ordinal, table.schema, table.name, table.version, kind, row)
        for ordinal, table, kind, row in rows_of(transactions)
    ]


def test_limits_are_those_that_lanes_like(s: Setting) -> None:
    mutation = binlog_pb2.TableMutation(table_id=1, inserted_rows=[b"r" * 1000] * 9000, sequence=[I] * 9000)
    value = binlog_pb2.PrewriteValue(schema_version=VERSION, mutations=[mutation])
    found = list(s.translator.pieces(spilled_of(payload_of(value.SerializeToString()))))
    assert {piece.size_bytes < PIECE_BYTES + 1000 for piece in found} == {True}
    assert max(len(piece.tables[0].rows) for piece in found) <= PIECE_ROWS
    assert {piece.schema_version for piece in found} == {VERSION}
    assert len(rows_of(found)) == 9000


def test_one_row_larger_than_a_piece_is_one_piece(s: Setting) -> None:
    rows = [b"a", b"b" * (3 << 20), b"c"]
    mutation = binlog_pb2.TableMutation(table_id=1, inserted_rows=rows, sequence=[I] * 3)
    value = binlog_pb2.PrewriteValue(schema_version=VERSION, mutations=[mutation])
    found = list(s.translator.pieces(spilled_of(payload_of(value.SerializeToString()))))
    assert [[len(row) for _, _, _, row in rows_of([piece])] for piece in found] == [[1, 3 << 20], [1]]


def test_memory_does_not_grow_with_the_number_of_rows(s: Setting) -> None:
    count = 40_000
    mutation = binlog_pb2.TableMutation(table_id=1, inserted_rows=[b"row"] * count, sequence=[I] * count)
    value = binlog_pb2.PrewriteValue(schema_version=VERSION, mutations=[mutation])
    spilled = spilled_of(payload_of(value.SerializeToString()))
    tracemalloc.start()
    try:
        rows = sum(len(events.rows) for piece in s.translator.pieces(spilled) for events in piece.tables)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == count
    assert peak < 3 << 20


# -- what must stop it ----------------------------------------------------------------------------------


def small_payload() -> bytes:
    mutations = [
        binlog_pb2.TableMutation(
            table_id=table_id,
            inserted_rows=[b"i0", b"i1"],
            updated_rows=[b"u" * 130],
            deleted_rows=[b"d0"],
            sequence=[I, D, U, I],
        )
        for table_id in (1, 2)
    ]
    return payload_of(
        binlog_pb2.PrewriteValue(schema_version=VERSION, mutations=mutations).SerializeToString()
    )


@pytest.mark.usefixtures("small_windows")
def test_a_payload_that_ends_early_is_refused_before_the_first_piece(s: Setting) -> None:
    payload = small_payload()
    for cut in range(binlog.contents_offset(payload) + 1, len(payload)):
        ours = outcome(lambda: large_txn.pieces(spilled_of(payload[:cut]), resolve(s), rows_max=1))  # noqa: B023
        assert ours == outcome(lambda: [s.translator.translate(Merged(COMMIT_TS, payload[:cut]))])  # noqa: B023


@pytest.mark.usefixtures("small_windows")
def test_an_altered_payload_gives_the_same_rows_or_none(s: Setting) -> None:
    """Every octet after the timestamps, every bit: nothing is made of it that the decoder does not make."""
    payload = small_payload()
    begin = binlog.contents_offset(payload)
    refused = 0
    for at, bit in itertools.product(range(begin, len(payload)), range(8)):
        altered = bytearray(payload)
        altered[at] ^= 1 << bit
        spilled = replace(
            spilled_of(payload),
            read=lambda offset, size: bytes(altered[offset : offset + size]),  # noqa: B023
        )
        ours = outcome(lambda: large_txn.pieces(spilled, resolve(s), rows_max=1))  # noqa: B023
        theirs = outcome(lambda: [s.translator.translate(Merged(COMMIT_TS, bytes(altered)))])  # noqa: B023
        if ours is Corruption:
            refused += 1
        else:
            assert ours == theirs, (at, bit)
    assert refused > 100


def test_nothing_is_applied_of_a_transaction_with_an_unknown_table_at_its_end(s: Setting) -> None:
    mutations = [
        binlog_pb2.TableMutation(table_id=table_id, inserted_rows=[b"r"], sequence=[I])
        for table_id in (1, 77)
    ]
    value = binlog_pb2.PrewriteValue(schema_version=VERSION, mutations=mutations).SerializeToString()
    with pytest.raises(UnknownTable, match="commit_ts 1001"):
        next(s.translator.pieces(spilled_of(payload_of(value))))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sequence": [I, I]}, "table id 1: its sequence of 2 rows does not fit its 1 inserts"),
        ({"sequence": [binlog_pb2.DeletePK]}, "table id 1: rows of an obsolete mutation type"),
        ({"deleted_pks": [b"k"]}, "table id 1: rows of an obsolete mutation type"),
        ({"deleted_ids": [7]}, "table id 1: rows of an obsolete mutation type"),
    ],
)
def test_rows_that_are_not_understood_stop(s: Setting, change: dict[str, Any], said: str) -> None:
    fields: dict[str, Any] = {"inserted_rows": [b"r"], "sequence": [I]} | change
    value = binlog_pb2.PrewriteValue(
        schema_version=VERSION, mutations=[binlog_pb2.TableMutation(table_id=1, **fields)]
    )
    with pytest.raises(Corruption, match=f"transaction with commit_ts 1001, {said}"):
        next(s.translator.pieces(spilled_of(payload_of(value.SerializeToString()))))


def test_an_outline_tells_rows_from_ddl_and_what_is_no_binlog() -> None:
    payload = small_payload()
    found = large_txn.outline(spilled_of(payload).read, len(payload))
    assert (found.tp, found.start_ts, found.commit_ts, found.ddl_job_id) == (1, START_TS, COMMIT_TS, 0)
    assert found.value is not None
    ddl = binlog.join(binlog.prewrite_ddl(8, b"k", "DROP TABLE t", 40), binlog.commit(8, 9, b"k"))
    found = large_txn.outline(spilled_of(ddl).read, len(ddl))
    assert (found.ddl_job_id, found.value) == (40, None)
    with pytest.raises(Corruption, match="payload of 2 bytes is not a binlog"):
        large_txn.outline(lambda offset, size: b"\xff\xff"[offset:][:size], 2)

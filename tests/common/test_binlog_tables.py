"""Tables of a binlog: the same answer as a full parse gives, for any binlog, small or large."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidb_binlog import binlog
from tidb_binlog.wire import binlog_pb2

TABLES = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(1, 1 << 50)
MUTATIONS = st.lists(st.tuples(TABLES, st.sampled_from((0, 3, 9_000))), max_size=4)


def payload(mutations: list[tuple[int, int]]) -> bytes:
    """A joined binlog with a row of so many bytes for each (table id, bytes)."""
    value = binlog_pb2.PrewriteValue(
        schema_version=7,
        mutations=[
            binlog_pb2.TableMutation(table_id=table_id, inserted_rows=[bytes(size)], sequence=[0])
            for table_id, size in mutations
        ],
    ).SerializeToString()
    return binlog.join(binlog.prewrite(1 << 58, b"k", value), binlog.commit(1 << 58, (1 << 58) + 1, b"k"))


@given(MUTATIONS, st.sets(TABLES, max_size=3), st.integers(0, 3))
def test_both_walks_say_what_the_mutations_say(
    mutations: list[tuple[int, int]], others: set[int], pick: int
) -> None:
    tables = others | {table_id for table_id, _ in mutations[pick : pick + 1]}
    data = payload(mutations)
    expected = any(table_id in tables for table_id, _ in mutations)
    begin = binlog.contents_offset(data)
    assert binlog.touches(tables, data) is expected
    assert binlog.touches(tables, memoryview(data)[begin:]) is expected
    assert binlog.touches_stored(tables, lambda at, size: data[at : at + size], begin, len(data)) is expected


@pytest.mark.parametrize("size", [10, 20_000])
def test_a_ddl_and_what_cannot_be_read_are_always_taken(size: int) -> None:
    ddl = binlog.prewrite_ddl(1 << 58, b"k", "create table t (" + "a" * size + " int)", 9)
    sequence = binlog.prewrite_ddl(1 << 58, b"k", "select setval(s, " + "1" * size + ")", 0)
    for data in (ddl, sequence, payload([(4, size)])[:-9]):
        assert binlog.touches({binlog.NO_TABLE}, data)


def test_a_large_transaction_is_stepped_over() -> None:
    data = payload([(5, 2_000_000), (6, 2_000_000), (7, 10)])
    read: list[int] = []

    def counted(at: int, size: int) -> bytes:
        read.append(size)
        return data[at : at + size]

    assert binlog.touches_stored({7}, counted, 0, len(data))
    assert sum(read) < len(data) / 2


def test_an_id_that_is_written_after_rows_is_seen() -> None:
    mutation = b"\x12\x03abc\x08\x2a"
    value = b"\x08\x01\x12" + bytes([len(mutation)]) + mutation
    data = b"\x2a" + bytes([len(value)]) + value
    assert binlog.touches_stored({42}, lambda at, size: data[at : at + size], 0, len(data))
    assert not binlog.touches_stored({43}, lambda at, size: data[at : at + size], 0, len(data))
    assert binlog.touches({42}, data)

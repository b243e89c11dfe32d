"""Meta keys both ways, byte by byte; columns out of stored rows."""

from __future__ import annotations

import pytest

from tests.fakes.meta import row_value
from tidb_binlog.errors import Corruption, Rejected
from tidb_binlog.rowcodec.keys import record_key
from tidb_binlog.upstream.tidb.meta import meta_keys

HISTORY = "6d44444c4a6f624869ff73746f7279000000fc0000000000000068"
DATABASES = "6d4442730000000000fa0000000000000068"
TABLES_OF_1 = "6d44423a3100000000fb0000000000000068"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (
            meta_keys.SCHEMA_VERSION,
            "6d536368656d615665ff7273696f6e4b6579ff0000000000000000f70000000000000073",
        ),
        (meta_keys.diff_key(1), "6d446966663a310000fd0000000000000073"),
        (meta_keys.job_key(42), HISTORY + "000000000000002aff0000000000000000f7"),
        (meta_keys.job_range(41)[0], HISTORY + "000000000000002aff0000000000000000f7"),
        (meta_keys.job_range(0)[1], HISTORY[:-2] + "69"),
        (meta_keys.DATABASES[0], DATABASES),
        (meta_keys.database_key(1), DATABASES + "44423a3100000000fb"),
        (meta_keys.table_key(1, 5), TABLES_OF_1 + "5461626c653a3500fe"),
        (meta_keys.history_row_key(1), record_key(281474976710652, 1).hex()),
        (meta_keys.running_range()[0], record_key(281474976710654, 0).hex()[:22]),
    ],
)
def test_keys_are_those_of_tidb(key: bytes, text: str) -> None:
    assert key.hex() == text


def test_ranges_hold_what_they_should_and_nothing_else() -> None:
    def inside(key: bytes, span: meta_keys.Range) -> bool:
        return span[0] <= key < span[1]

    assert inside(meta_keys.database_key(1 << 47), meta_keys.DATABASES)
    assert not inside(meta_keys.table_key(1, 1), meta_keys.DATABASES)
    for schema_id in (0, 1, 99, 1 << 40):
        assert inside(meta_keys.table_key(schema_id, 1 << 47), meta_keys.TABLES)
    assert not inside(meta_keys.database_key(1), meta_keys.TABLES)
    assert not inside(meta_keys.job_key(1), meta_keys.TABLES)
    assert [
        inside(meta_keys.job_key(job_id), meta_keys.job_range(255)) for job_id in (255, 256, 1 << 50)
    ] == [
        False,
        True,
        True,
    ]
    assert inside(record_key(meta_keys.JOB_TABLE, 7), meta_keys.running_range())
    assert not inside(record_key(meta_keys.HISTORY_TABLE, 7), meta_keys.running_range())
    assert meta_keys.after_prefix(b"a\xff") == b"b"
    assert meta_keys.after_prefix(b"\xff") == b""


@pytest.mark.parametrize("schema_id", [1, 12345678, 1 << 40])
@pytest.mark.parametrize("table_id", [3, 99, 123456789012])
def test_what_a_key_is_of(schema_id: int, table_id: int) -> None:
    assert meta_keys.table_of(meta_keys.table_key(schema_id, table_id)) == (schema_id, table_id)
    assert meta_keys.hash_element(meta_keys.hash_key(b"DBs", b"DB:%d" % schema_id)) == (
        b"DBs",
        b"DB:%d" % schema_id,
    )
    for counter in (b"TID:%d", b"IID:%d", b"TARID:%d", b"SID:%d", b"SequenceCycle:%d"):
        assert meta_keys.table_of(meta_keys.hash_key(b"DB:%d" % schema_id, counter % table_id)) is None


def test_keys_that_are_none() -> None:
    good = meta_keys.table_key(1, 5)
    for bad in (good[:-1], good + b"x", b"t" + good[1:], meta_keys.string_key(b"DB:1"), b"m", b""):
        with pytest.raises(Corruption, match="meta key"):
            meta_keys.table_of(bad)
    with pytest.raises(Corruption, match="no ids"):
        meta_keys.table_of(meta_keys.hash_key(b"DB:1", b"Table:x"))
    with pytest.raises(Rejected, match=r"keyspace.*storage\.api-version"):
        meta_keys.table_of(b"x\0\0\1" + good)
    assert meta_keys.number(b"k", None) == 0
    assert meta_keys.number(b"k", b"17") == 17
    with pytest.raises(Corruption, match="does not hold a number"):
        meta_keys.number(b"k", b"x")


@pytest.mark.parametrize("row_format", [1, 2])
@pytest.mark.parametrize("size", [0, 1, 300, 70_000])
def test_a_column_of_a_stored_row(row_format: int, size: int) -> None:
    row = row_value({2: 7, 5: b"x" * size, 6: b"other", 300 if size > 300 else 30: b"y"}, row_format)
    assert meta_keys.bytes_of(row, 5) == b"x" * size
    assert meta_keys.bytes_of(row, 6) == b"other"
    assert meta_keys.bytes_of(row, 9) is None


def test_rows_with_nulls_and_rows_cut_off() -> None:
    # Format 2: one value (id 2, "ab"), one NULL (id 5). Format 1: id 5 NULL.
    row = bytes.fromhex("80000100010002050200") + b"ab"
    assert meta_keys.bytes_of(row, 2) == b"ab"
    assert meta_keys.bytes_of(row, 5) is None
    assert meta_keys.bytes_of(b"\x08\x0a\x00", 5) is None
    assert meta_keys.bytes_of(b"\x00", 5) is None
    for row_format in (1, 2):
        whole = row_value({5: b"abcdef"}, row_format)
        for end in range(1 if row_format == 2 else 2, len(whole)):
            with pytest.raises(Corruption, match="stored row of"):
                meta_keys.bytes_of(whole[:end], 5)
    with pytest.raises(Corruption):
        meta_keys.bytes_of(b"", 5)

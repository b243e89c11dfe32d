"""Storage keys against the worked examples of the format."""

from __future__ import annotations

import pytest

from tidb_binlog.rowcodec.keys import (
    put_comparable_bytes,
    put_comparable_int,
    read_comparable_bytes,
    read_key,
    record_key,
)
from tidb_binlog.rowcodec.row_error import RowError

GROUPS = [
    (b"", "0000000000000000f7"),
    (bytes((1, 2, 3)), "0102030000000000fa"),
    (bytes(8), "0000000000000000ff0000000000000000f7"),
    (bytes(range(1, 10)), "0102030405060708ff0900000000000000f8"),
]


@pytest.mark.parametrize(("raw", "comparable"), GROUPS)
def test_comparable_bytes(raw: bytes, comparable: str) -> None:
    encoded = bytes.fromhex(comparable)
    assert put_comparable_bytes(raw) == encoded
    assert read_comparable_bytes(encoded + b"more", 0) == (raw, len(encoded))


@pytest.mark.parametrize(
    "wrong", ["", "00" * 8, "0000000000000000f6", "0000000000000001f7", "0102030405060708ff"]
)
def test_wrong_comparable_bytes_are_refused(wrong: str) -> None:
    with pytest.raises(RowError, match="comparable bytes"):
        read_comparable_bytes(bytes.fromhex(wrong), 0)


def test_record_and_index_keys() -> None:
    two = bytes.fromhex("7480000000000000355f728000000000000002")
    assert record_key(53, 2) == two
    assert (read_key(two).table_id, read_key(two).handle) == (53, 2)
    assert record_key(53, -1) == bytes.fromhex("7480000000000000355f727fffffffffffffff")
    clustered = bytes.fromhex("7480000000000000355f72016162630000000000fa")
    assert record_key(53, b"\x01" + put_comparable_bytes(b"abc")) == clustered
    assert read_key(clustered).handle is None
    entry = bytes.fromhex("7480000000000000355f698000000000000001038000000000000007038000000000000002")
    datums = b"\x03" + put_comparable_int(7) + b"\x03" + put_comparable_int(2)
    assert entry.endswith(datums)
    assert (read_key(entry).index_id, read_key(entry).rest) == (1, datums)
    with pytest.raises(RowError, match="not a key"):
        read_key(b"m" + entry[1:])

"""Storage keys, as `prewrite_key` shows one: records and index entries of tables.

    record    "t" table id "_r" handle          handle: 8 bytes, or comparable datums of a clustered key
    index     "t" table id "_i" index id datums

Comparable forms sort as their values do. A key only identifies a transaction: in a partitioned table its id
is the partition's, so it is never mapped to a table of a mutation.
"""

from __future__ import annotations

from typing import Final

from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.rowcodec.row_error import RowError

_SIGN: Final = 1 << 63
_RECORD: Final = b"_r"
_INDEX: Final = b"_i"
_GROUP: Final = 8


def put_comparable_int(value: int) -> bytes:
    return (value + _SIGN).to_bytes(8, "big")


def put_comparable_bytes(raw: bytes) -> bytes:
    """Groups of eight bytes, each with a marker that says how many of them are padding."""
    out = bytearray()
    for at in range(0, len(raw) + 1, _GROUP):
        group = raw[at : at + _GROUP]
        out += group.ljust(_GROUP, b"\0") + bytes((0xFF - (_GROUP - len(group)),))
    return bytes(out)


def read_comparable_bytes(b: bytes, i: int) -> tuple[bytes, int]:
    """Content at `i` and the next offset; `RowError` if it cannot be right."""
    out = bytearray()
    while True:
        group = b[i : i + _GROUP + 1]
        if len(group) <= _GROUP:
            raise RowError("comparable bytes cut off")
        padding = 0xFF - group[_GROUP]
        if padding > _GROUP or any(group[_GROUP - padding : _GROUP]):
            raise RowError("comparable bytes with wrong padding")
        out += group[: _GROUP - padding]
        i += _GROUP + 1
        if padding:
            return bytes(out), i


def record_key(table_id: int, handle: int | bytes) -> bytes:
    """Key of a row; `handle` is the integer handle, or the comparable datums of a clustered key."""
    tail = put_comparable_int(handle) if isinstance(handle, int) else handle.ljust(_GROUP + 1, b"\0")
    return b"t" + put_comparable_int(table_id) + _RECORD + tail


@dataclass(frozen=True, slots=True)
class StorageKey:
    """A table's key, taken apart. `index_id` is None for a record; `handle` None unless it is an integer."""

    table_id: int
    index_id: int | None
    handle: int | None
    rest: bytes


def read_key(key: bytes) -> StorageKey:
    """Take a key apart; `RowError` if it is no table's key."""
    kind = key[9:11]
    if key[:1] != b"t" or kind not in (_RECORD, _INDEX) or (kind == _INDEX and len(key) < 19):
        raise RowError("not a key of a table")
    table_id = int.from_bytes(key[1:9], "big") - _SIGN
    rest = key[11:]
    if kind == _INDEX:
        return StorageKey(table_id, int.from_bytes(rest[:8], "big") - _SIGN, None, rest[8:])
    handle = int.from_bytes(rest, "big") - _SIGN if len(rest) == _GROUP else None
    return StorageKey(table_id, None, handle, rest)

"""Meta keys: where TiDB keeps its schema and its DDL jobs among the keys of TiKV, both ways.

    string        "m" E(name) U("s")
    hash element  "m" E(name) U("h") E(field)
    list element  "m" E(name) U("l") I(index)

E is the memcomparable form, U eight bytes big endian, I the same with the sign bit turned. The layout is that
of TiDB's `structure` and `meta` packages and has not changed since version 2. Ranges are [start, end).
"""

from __future__ import annotations

from typing import Final

from tidb_binlog.errors import Corruption, Rejected
from tidb_binlog.rowcodec import datum
from tidb_binlog.rowcodec.keys import put_comparable_bytes, read_comparable_bytes, record_key
from tidb_binlog.rowcodec.row_error import RowError

Range = tuple[bytes, bytes]

_META: Final = b"m"
_KEYSPACE: Final = b"x"
_STRING: Final = ord("s").to_bytes(8, "big")
_HASH: Final = ord("h").to_bytes(8, "big")
_LIST: Final = ord("l").to_bytes(8, "big")

JOB_TABLE: Final = (1 << 48) - 1 - 1
"""`mysql.tidb_ddl_job`: jobs under way, since TiDB 6.2."""
HISTORY_TABLE: Final = (1 << 48) - 1 - 3
"""`mysql.tidb_ddl_history`: finished jobs, since TiDB 6.2."""
JOB_TABLE_META: Final = 5
"""Id of the column job_meta of `tidb_ddl_job`."""
HISTORY_TABLE_META: Final = 2
"""The same of `tidb_ddl_history`."""


def string_key(name: bytes) -> bytes:
    return _META + put_comparable_bytes(name) + _STRING


def hash_prefix(name: bytes) -> bytes:
    """What the keys of all elements of a hash begin with."""
    return _META + put_comparable_bytes(name) + _HASH


def hash_key(name: bytes, field: bytes) -> bytes:
    return hash_prefix(name) + put_comparable_bytes(field)


def after_prefix(prefix: bytes) -> bytes:
    """The first key after all that begin with `prefix`."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes((trimmed[-1] + 1,)) if trimmed else b""


def prefix_range(prefix: bytes) -> Range:
    return prefix, after_prefix(prefix)


def hash_element(key: bytes) -> tuple[bytes, bytes]:
    """(name, field) of a hash element's key.

    Raises `Rejected` for a key of a keyspace (storage API version 2), `Corruption` for any other key.
    """
    if key[:1] == _KEYSPACE:
        raise Rejected(
            f"the cluster keeps its keys in a keyspace (key {key[:12].hex()}...)",
            hint="binlog works with storage.api-version = 1 or without keyspaces",
        )
    try:
        name, at = read_comparable_bytes(key, 1)
        field, end = read_comparable_bytes(key, at + 8)
    except RowError as error:
        raise Corruption(f"meta key {key[:48].hex()} cannot be read: {error}") from None
    if key[:1] != _META or key[at : at + 8] != _HASH or end != len(key):
        raise Corruption(f"meta key {key[:48].hex()} is no element of a hash")
    return name, field


# What is kept under them ---------------------------------------------------------------------------------

SCHEMA_VERSION: Final = string_key(b"SchemaVersionKey")
NEXT_GLOBAL_ID: Final = string_key(b"NextGlobalID")
_HISTORY: Final = hash_prefix(b"DDLJobHistory")
_DATABASES: Final = b"DBs"
DATABASES: Final = prefix_range(hash_prefix(_DATABASES))
TABLES: Final = prefix_range(_META + b"DB:")
"""Everything of all databases: their tables, and counters between them."""
JOB_LISTS: Final = tuple(
    prefix_range(_META + put_comparable_bytes(name) + _LIST) for name in (b"DDLJobList", b"DDLJobAddIdxList")
)
"""Jobs under way: the only place until TiDB 6.1, and later where concurrent DDL is off."""


def diff_key(version: int) -> bytes:
    """What a schema version changed; written in the transaction that makes the change."""
    return string_key(b"Diff:%d" % version)


def job_key(job_id: int) -> bytes:
    """A finished job."""
    return _HISTORY + put_comparable_bytes(job_id.to_bytes(8, "big"))


def job_range(after_id: int) -> Range:
    """Finished jobs with an id above `after_id`, ascending."""
    return job_key(after_id + 1), after_prefix(_HISTORY)


def database_key(schema_id: int) -> bytes:
    return hash_key(_DATABASES, b"DB:%d" % schema_id)


def table_key(schema_id: int, table_id: int) -> bytes:
    return hash_key(b"DB:%d" % schema_id, b"Table:%d" % table_id)


def table_of(key: bytes) -> tuple[int, int] | None:
    """(database id, table id) of a key in `TABLES`; None for a counter. Raises as `hash_element`."""
    name, field = hash_element(key)
    kind, _, number = field.partition(b":")
    if kind != b"Table":
        return None
    try:
        return int(name.removeprefix(b"DB:")), int(number)
    except ValueError:
        raise Corruption(f"meta key {key[:48].hex()} has no ids: {name!r} {field!r}") from None


def running_range() -> Range:
    """Rows of `mysql.tidb_ddl_job`."""
    return prefix_range(record_key(JOB_TABLE, 0)[:-8])


def history_row_key(job_id: int) -> bytes:
    """A job's row in `mysql.tidb_ddl_history`."""
    return record_key(HISTORY_TABLE, job_id)


def number(key: bytes, value: bytes | None) -> int:
    """A string item as the number it holds, 0 where it is not set. Raises `Corruption`."""
    try:
        return int(value or b"0")
    except ValueError:
        raise Corruption(f"meta key {key[:48].hex()} does not hold a number") from None


# Stored row: one column out of a row as TiKV keeps it, which is not how binlogs carry rows.
#     format 2   0x80 flags(1: large) n_values u16 n_nulls u16, ids (values' then nulls', each ascending),
#                ends of the values, values; all little endian. Ids, ends: 1 and 2 bytes, large: 4 and 4
#     format 1   (column id, value) as datums, one after the other; one NULL datum: no columns
# Only what the tables of the DDL framework need: a column of bytes. Both formats: a cluster that was upgraded
# from TiDB 3 still writes the old one.

_HEAD: Final = 6
_LARGE: Final = 1


def bytes_of(row: bytes, column_id: int) -> bytes | None:
    """The bytes of a column; None where it is NULL or absent. Raises `Corruption`."""
    try:
        if row[0] == datum.ROW_FORMAT_2:
            return _of_format_2(row, column_id)
        return _of_format_1(row, column_id)
    except (IndexError, RowError) as error:
        raise Corruption(f"a stored row of {len(row)} bytes cannot be read: {error or 'cut off'}") from None


def _of_format_1(row: bytes, column_id: int) -> bytes | None:
    at = 0
    if row == datum.NULL_DATUM:
        return None
    while at < len(row):
        number, at = datum.read_int(row, at)
        if number == column_id:
            return None if row[at] == datum.NIL else datum.read_bytes(row, at)[0]
        at = datum.skip(row, at)
    return None


def _of_format_2(row: bytes, column_id: int) -> bytes | None:
    id_size, end_size = (4, 4) if row[1] & _LARGE else (1, 2)
    values, nulls = int.from_bytes(row[2:4], "little"), int.from_bytes(row[4:6], "little")
    ends = _HEAD + (values + nulls) * id_size
    data = ends + values * end_size
    if len(row) < max(data, _HEAD):
        raise IndexError
    start = 0
    for number in range(values):
        at = ends + number * end_size
        end = int.from_bytes(row[at : at + end_size], "little")
        if not start <= end <= len(row) - data:
            raise IndexError
        at = _HEAD + number * id_size
        if int.from_bytes(row[at : at + id_size], "little") == column_id:
            return row[data + start : data + end]
        start = end
    return None

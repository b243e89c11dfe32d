"""JSON to TiDB's binary JSON, the writing side of `binary_json`.

A str is JSON text; anything else is the document itself (dict, list, str inside them, int, float, bool,
None). Keys are sorted by their bytes, one value per key, values lie one after another in order.

Tests  tests/common/rowcodec/test_golden.py
"""

from __future__ import annotations

import json
import struct
import sys
from operator import itemgetter
from typing import Any, Final

from tidb_binlog.rowcodec.binary_json import (
    ARRAY,
    DEPTH_MAX,
    DOUBLE,
    HEADER,
    INT64,
    KEY_ENTRY,
    LITERAL,
    OBJECT,
    STRING,
    UINT64,
    VALUE_ENTRY,
)
from tidb_binlog.rowcodec.varint import INT64_END, UINT64_END, put_uvarint

_KEY_LENGTH_MAX: Final = 0xFFFF
_DOUBLE_MAX: Final = sys.float_info.max
_LITERALS: Final[dict[bool | None, int]] = {None: 0, True: 1, False: 2}


def put_json(value: Any) -> bytes:
    """Datum of a document; ValueError if it is not JSON or nested too deeply."""
    try:
        document = json.loads(value) if isinstance(value, str | bytes) else value
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None
    return put_document(document)


def put_document(document: Any) -> bytes:
    """The same of a document that was parsed, which may be a string."""
    tp, payload = _encode(document, 1)
    return bytes((0x0A, tp)) + payload


def _encode(value: Any, depth: int) -> tuple[int, bytes]:
    if value is None or value is True or value is False:
        return LITERAL, bytes((_LITERALS[value],))
    if isinstance(value, int) and -INT64_END <= value < UINT64_END:
        return (INT64, struct.pack("<q", value)) if value < INT64_END else (UINT64, struct.pack("<Q", value))
    if isinstance(value, int | float):
        if not abs(value) <= _DOUBLE_MAX:  # nan is not, either
            raise ValueError("JSON number out of range")
        return DOUBLE, struct.pack("<d", float(value))
    if isinstance(value, str):
        raw = value.encode()
        return STRING, put_uvarint(len(raw)) + raw
    if depth > DEPTH_MAX:
        raise ValueError(f"JSON nested deeper than {DEPTH_MAX}")
    if isinstance(value, dict):
        pairs = sorted(((str(key).encode(), item) for key, item in value.items()), key=itemgetter(0))
        return OBJECT, _container([item for _, item in pairs], [key for key, _ in pairs], depth)
    if isinstance(value, list | tuple):
        return ARRAY, _container(list(value), None, depth)
    raise ValueError(f"{type(value).__name__} is not JSON")


def _container(values: list[Any], keys: list[bytes] | None, depth: int) -> bytes:
    at = HEADER + len(values) * (VALUE_ENTRY + (KEY_ENTRY if keys is not None else 0))
    key_entries, entries, tail = bytearray(), bytearray(), bytearray()
    for key in keys or ():
        if len(key) > _KEY_LENGTH_MAX:
            raise ValueError("JSON key too long")
        key_entries += struct.pack("<IH", at + len(tail), len(key))
        tail += key
    for value in values:
        tp, payload = _encode(value, depth + 1)
        if tp == LITERAL:
            entries += bytes((tp, payload[0], 0, 0, 0))
        else:
            entries += struct.pack("<BI", tp, at + len(tail))
            tail += payload
    return struct.pack("<II", len(values), at + len(tail)) + key_entries + entries + tail

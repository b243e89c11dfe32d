"""Checked: a checksum inside of a file that is believed later, so that a flipped bit is not another value.

Out    the same with their CRC-32C, in a form that older releases and Go programs read past
Holds  what has none is of an older release, of a Go program, or written by hand, and is taken as it is
Tests  tests/common/test_checked.py
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tidb_binlog.record import crc32c

_KEY: Final = b',"crc32c":'
_MARK: Final = "# crc32c = "


def document(value: Mapping[str, Any], indent: int | None = None) -> bytes:
    """One that is not empty."""
    separators = (",", ":") if indent is None else None
    data = json.dumps(value, indent=indent, separators=separators).encode()
    return data[:-1] + _KEY + b"%d}" % crc32c(data)


def read_document(data: bytes) -> Any:
    """Raises `ValueError`, `RecursionError`."""
    document = json.loads(data)
    if isinstance(document, dict) and document.pop("crc32c", None) is not None:
        before, _, after = data.rpartition(_KEY)
        if after != b"%d}" % crc32c(before + b"}"):
            raise ValueError("it does not fit its checksum")
    return document


def text(body: str) -> str:
    """With a comment behind it."""
    return f"{body}{_MARK}{crc32c(body.encode()):08x}\n"


def read_text(data: str) -> str:
    """Raises `ValueError`."""
    body, mark, check = data.rpartition(_MARK)
    if mark and check != f"{crc32c(body.encode()):08x}\n":
        raise ValueError("it does not fit its checksum")
    return body if mark else data

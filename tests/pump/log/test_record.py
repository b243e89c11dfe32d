"""Value pointers: their bytes and their order."""

from __future__ import annotations

import pytest

from pump.log.record import ValuePointer, decode_pointer, encode_pointer
from tidb_binlog.errors import Corruption


def test_value_pointer_bytes_and_order() -> None:
    assert encode_pointer(ValuePointer(1, 16)).hex() == "010000001000000000000000"
    assert decode_pointer(bytes.fromhex("010000001000000000000000")) == ValuePointer(1, 16)
    assert ValuePointer(1, 16) < ValuePointer(1, 17) < ValuePointer(2, 0)
    for wrong in (b"", bytes(11), b"\0" * 4 + b"\xff" * 8):
        with pytest.raises(Corruption):
            decode_pointer(wrong)

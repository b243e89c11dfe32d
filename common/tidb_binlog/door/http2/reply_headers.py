"""Reply headers: header blocks of our replies, one or two octets each once the peer's table holds our fields.

    first reply   88 | insert content-type: application/grpc      later   88 | content-type by index
    first end     insert grpc-status: 0                           later   grpc-status by index

Holds  blocks are encoded in the order in which they are sent (H2.2); what differs from call to call is a
       literal that touches no table. We insert two fields and nothing else, so their indices are 62 and 63
Why    these two fields are all that a good reply says, and a constant block costs nothing to make
Tests  tests/common/door/calls/test_grpc_calls.py
"""

from __future__ import annotations

from typing import Final

from tidb_binlog.http2 import hpack

STATUS_200: Final = hpack.indexed(8)
_CONTENT_TYPE = (b"content-type", b"application/grpc")
_STATUS_OK = (b"grpc-status", b"0")
_NEWEST = hpack.indexed(62)
_SECOND = hpack.indexed(63)
_LITERAL_HEAD = STATUS_200 + hpack.literal(*_CONTENT_TYPE)
_LITERAL_END = hpack.literal(*_STATUS_OK)
_INSERT_HEAD = STATUS_200 + hpack.insert(*_CONTENT_TYPE)
_INSERT_END = hpack.insert(*_STATUS_OK)
_NEEDED_BYTES = sum(len(name) + len(value) + 32 for name, value in (_CONTENT_TYPE, _STATUS_OK))  # H4.1

HEAD: Final = STATUS_200 + _SECOND
END: Final = _NEWEST


class ReplyBlocks:
    """Encoder of one connection. `constant`: from now on `HEAD` and `END` are right as they are."""

    __slots__ = ("_inserted", "_table_bytes", "_update", "constant")

    def __init__(self) -> None:
        self._inserted = 0
        self._table_bytes = hpack.TABLE_BYTES
        self._update = b""
        self.constant = False

    def resize(self, table_bytes: int) -> None:
        """The peer's SETTINGS_HEADER_TABLE_SIZE; ours is the smaller of it and the default."""
        table_bytes = min(table_bytes, hpack.TABLE_BYTES)
        if table_bytes == self._table_bytes:
            return
        # H4.2: the change is announced at the start of the next block; zero in between empties the table.
        self._update = hpack.size_update(0) + (hpack.size_update(table_bytes) if table_bytes else b"")
        self._table_bytes = table_bytes
        self._inserted = 0
        self.constant = False

    def head(self) -> bytes:
        """Block that opens a gRPC reply."""
        if self.constant:
            return HEAD
        if self._table_bytes < _NEEDED_BYTES:
            return self.other(_LITERAL_HEAD)
        if self._inserted == 0:
            self._inserted = 1
            return self.other(_INSERT_HEAD)
        return self.other(STATUS_200 + (_NEWEST if self._inserted == 1 else _SECOND))

    def end(self) -> bytes:
        """Block that ends a good gRPC reply."""
        if self.constant:
            return END
        if self._table_bytes < _NEEDED_BYTES or self._inserted == 0:
            return self.other(_LITERAL_END)
        if self._inserted == 1:
            self._inserted = 2
            block = self.other(_INSERT_END)
            self.constant = True
            return block
        return self.other(_NEWEST)

    def other(self, literals: bytes) -> bytes:
        """Any block made of literals only, or one of ours: after what has to be announced first."""
        if not self._update:
            return literals
        update, self._update = self._update, b""
        self.constant = self._inserted == 2
        return update + literals

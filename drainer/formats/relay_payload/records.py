"""Payload records: items of the stream become groups of bytes of the relay log's own format.

In     rules, transactions with what the pump sent, large ones as they lie on disk, DDL
Out    `RecordGroup`s for a `RelayWriter`
Holds  a large transaction is copied by who writes, in stretches: it is never in memory
Tests  tests/drainer/relay/test_relay_log.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from drainer.formats.group_writer import CopiedContents
from drainer.formats.record_groups import CHECKSUM_BYTES, RecordGroups
from drainer.formats.relay_payload.writer import PayloadWriter
from drainer.txn import TableVersion, Transaction
from tidb_binlog.protobuf_fields import Read
from tidb_binlog.record import BINLOG_FILE_MAGIC, FILE_HEADER, FILE_OVERHEAD, crc32c, crc32c_extend


class PayloadRecords(RecordGroups):
    """As `RecordGroups`."""

    def __init__(
        self,
        index: int,
        size: int,
        last_ts: dict[int, int],
        max_file_size: int,
        observe: Callable[[int], None],
    ) -> None:
        self._encoder = PayloadWriter()
        super().__init__(index, size, last_ts, max_file_size, observe, self._encoder)

    def transaction(self, item: Transaction) -> None:
        """As that of `RecordGroups`, in one step: there are tens of thousands a second."""
        head, payload, commit_ts = self._encoder.before(item), item.payload, item.commit_ts
        size = len(head) + len(payload)
        checksum = crc32c_extend(crc32c(head), payload).to_bytes(CHECKSUM_BYTES, "little")
        group = self._group
        group.parts += (FILE_HEADER.pack(BINLOG_FILE_MAGIC, size) + head, payload, checksum)
        size += FILE_OVERHEAD
        self._observe(size)
        self.waiting += size
        self._size = group.whole = end = self._size + size
        if commit_ts > self._highest_ts:
            self._highest_ts = commit_ts
        if end >= self._max_file_size:
            self._rotate_if_large()

    def rules(self, text: str) -> None:
        """What follows goes by these rules."""
        self._encoder.rules(text)

    def large(self, commit_ts: int, tables: Sequence[TableVersion], rows: int, size: int, read: Read) -> None:
        """A transaction of `size` bytes that has so many rows of these tables; `read` gives what the pump
        sent."""
        head = self._encoder.head(commit_ts, tables, rows)
        payload_size = len(head) + size
        self._add(FILE_HEADER.pack(BINLOG_FILE_MAGIC, payload_size) + head)
        self._group.copies = CopiedContents(read, size, crc32c(head))
        self._count(size + CHECKSUM_BYTES)
        self._begin_group()
        self._record_ended(commit_ts, payload_size)
        self._rotate_if_large()

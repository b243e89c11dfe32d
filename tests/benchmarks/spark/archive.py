"""An archive of the OLTP shape for the benchmarks of Spark: as long as wanted, made in seconds.

The transactions of `sysbench_like` come again and again, each time with later timestamps. So it is right as
an archive, with index and definitions, but rows of one repetition do not follow from those before.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from drainer.formats import binlog_file, segment_index
from drainer.formats.obinlog.column import varint
from drainer.formats.pb import PbEncoder
from drainer.formats.segment_index import SegmentIndex
from drainer.sink.file import table_definitions as archive_tables
from drainer.stream.rules.table_rules import TableFilter
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from drainer.txn import TableVersion, Transaction
from tests.benchmarks.drainer import ready_made, sysbench_like
from tidb_binlog.record import BINLOG_FILE_MAGIC, FILE_HEADER, FILE_OVERHEAD, crc32c

SEGMENT_BYTES: Final = 128 << 20
_HEAD: Final = b"\x08\x00\x10"
_CRC: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class _Payload:
    """`rest` is what stands behind the timestamp."""

    commit_ts: int
    rest: bytes
    counts: tuple[int, int, int]


def make(directory: Path, changes: int, tables: int = 1) -> int:
    """Writes at least so many row changes; returns how many."""
    payloads, versions = _payloads(tables)
    span = payloads[-1].commit_ts - payloads[0].commit_ts + (1 << 20)
    (directory / segment_index.DIRECTORY).mkdir(parents=True)
    writer = _Writer(directory, versions)
    round_number = written = 0
    while written < changes:
        for one in payloads:
            written += sum(one.counts)
            writer.add(one, one.commit_ts + span * round_number)
            if written >= changes:
                break
        round_number += 1
    writer.close()
    return written


def _payloads(tables: int) -> tuple[list[_Payload], list[TableVersion]]:
    """The transactions, and the tables that they change."""
    scenario = sysbench_like.make(tables=tables)
    tracker = SchemaTracker.from_history([raw for _, raw in scenario.jobs])
    translator = Translator(tracker, TableFilter(ignore_schemas=["mysql"]))
    encoder = PbEncoder()
    found: list[_Payload] = []
    versions: dict[TableVersion, None] = {}
    for entry in ready_made.merged(scenario):
        item = translator.translate(entry)
        if not isinstance(item, Transaction) or not item.tables:
            continue
        versions |= dict.fromkeys(events.table for events in item.tables)
        payload = encoder.transaction(item)
        kinds = [kind for events in item.tables for kind in events.kinds]
        begin = len(_HEAD) + len(varint(item.commit_ts))
        inserts, updates, deletes = (kinds.count(kind) for kind in range(3))
        found.append(_Payload(item.commit_ts, payload[begin:], (inserts, updates, deletes)))
    return found, list(versions)


class _Writer:
    """Segments with index and definitions."""

    def __init__(self, directory: Path, versions: list[TableVersion]) -> None:
        self._directory = directory
        self._versions = versions
        self._number = 0
        self._begin()

    def _begin(self) -> None:
        self._parts: list[bytes] = []
        self._described = SegmentIndex()
        self._counts = [0, 0, 0]

    def add(self, one: _Payload, commit_ts: int) -> None:
        payload = _HEAD + varint(commit_ts) + one.rest
        record = FILE_HEADER.pack(BINLOG_FILE_MAGIC, len(payload)) + payload + _CRC.pack(crc32c(payload))
        size = self._described.size
        self._parts.append(record)
        self._described.add(commit_ts, size, size + len(payload) + FILE_OVERHEAD, is_ddl=False)
        for kind, count in enumerate(one.counts):
            self._counts[kind] += count
        if self._described.size >= SEGMENT_BYTES:
            self.close()
            self._begin()

    def close(self) -> None:
        name = binlog_file.file_name(self._number, f"{20260101000000 + self._number}")
        described = self._described
        described.closed = True
        # All rows under one name: nothing here asks for the counts of a table.
        described.count({self._versions[0].downstream: self._counts})
        beside = self._directory / segment_index.DIRECTORY
        (self._directory / name).write_bytes(b"".join(self._parts))
        (beside / segment_index.file_name(name)).write_bytes(described.to_json())
        lines = [archive_tables.line(described.first_ts, version) for version in self._versions]
        (beside / archive_tables.file_name(name)).write_bytes(b"".join(lines))
        self._number += 1

"""Relay logs: items, a log that is open, what is in its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from drainer.config.relay_format import PAYLOAD
from drainer.formats.binlog_directory import BinlogDirectory
from drainer.formats.relay_payload import commit_ts_of
from drainer.relay.record_readers import RecordReaders
from drainer.relay.relay_log import RelayLog
from drainer.txn import INSERT, Item, TableEvents, TableVersion, Transaction
from tests.common.rowcodec.tables import kind, table
from tests.drainer.support.payloads import sent
from tidb_binlog.clock import ManualClock
from tidb_binlog.rowcodec.encoder import RowEncoder

INFO = table(("id", kind("bigint", not_null=True)), ("c", kind("varchar")), handle="rowid")
TABLE = TableVersion(INFO, "shop", "t", 1)
OTHER = TableVersion(INFO, "shop", "u", 1)
ENCODER = RowEncoder(INFO)


def transaction(ts: int, rows: int = 1, *, first: int = 0, last: bool = True) -> Transaction:
    encoded = [ENCODER.insert((ts * 1000 + first + n, "x" * 50), 1) for n in range(rows)]
    events = TableEvents(TABLE if ts % 2 else OTHER, [INSERT] * rows, encoded, first)
    return sent(Transaction(ts - 1, ts, (events,), rows * 60, last=last))


def opened(
    path: Path | str, max_file_size: int = 2000, *, form: str = PAYLOAD, after_ts: int = 0
) -> RelayLog:
    return RelayLog.open(str(path), max_file_size, ManualClock(), form=form, after_ts=after_ts)


def payloads(path: Path | str) -> list[list[bytes]]:
    """The records of each file."""
    directory = BinlogDirectory(str(path), ManualClock())
    found = [
        [file.payload(place) for place in directory.places[index]] for index, file in directory.files.items()
    ]
    directory.close()
    return found


def timestamps(path: Path | str) -> list[int]:
    return [commit_ts_of(record) for file in payloads(path) for record in file]


def items(path: Path | str) -> list[Item]:
    """What a reader of any format makes of them."""
    found: list[Item] = []
    for file in payloads(path):
        readers = RecordReaders(lambda foreign: TABLE)
        for record in file:
            read = reading(record)
            _, reader = readers.of(read, len(record))
            found.append(reader.item(read, len(record)))
    return found


def reading(record: bytes) -> Callable[[int, int], bytes]:
    return lambda at, size: record[at : at + size]

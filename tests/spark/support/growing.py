"""Archives that grow while they are read: a made-up history, and a writer of either kind."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from drainer.config.relay_format import PAYLOAD
from drainer.formats import binlog_file
from drainer.formats.binlog_directory import BinlogDirectory
from drainer.formats.record_groups import PayloadRecords, RecordGroups, RelayRecords, RelayWriter
from drainer.sink.file.archive import Archive
from drainer.txn import DELETE, INSERT, UPDATE, Ddl, Item, TableEvents, TableVersion, Transaction
from tests.drainer.support.apply_life import column
from tests.drainer.support.payloads import sent
from tidb_binlog.clock import SystemClock
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import FLAG_NOT_NULL, FLAG_PRIMARY, LONG, VARCHAR, TableInfo

FIRST_TS = 440_000_000_000_000_000
_KEY = FLAG_NOT_NULL | FLAG_PRIMARY
KEYED = TableInfo(8, "k", (column(1, "id", LONG, _KEY), column(2, "b", VARCHAR)), pk_is_handle=True)
WIDER = TableInfo(
    8, "k", (column(1, "id", LONG, _KEY), column(2, "b", VARCHAR), column(3, "n", LONG)), pk_is_handle=True
)
KEYLESS = TableInfo(7, "t", (column(1, "a", LONG), column(2, "b", VARCHAR)))
TABLES = (
    "CREATE DATABASE d",
    "CREATE TABLE d.k (id INT NOT NULL PRIMARY KEY, b VARCHAR(64))",
    "CREATE TABLE d.t (a INT, b VARCHAR(64))",
)


class History:
    """Transactions over a table with and one without key, now and then a DDL; and what the tables hold then.

    Every transaction adds one row with its own number to the keyless table: a row that is lost or there
    twice shows.
    """

    def __init__(self, seed: int, ddl_at: int = -1) -> None:
        self._random = random.Random(seed)
        self._ddl_at = ddl_at
        self._number = 0
        self._ts = FIRST_TS
        self._keyed = TableVersion(KEYED, "d", "k", 1)
        self._keyless = TableVersion(KEYLESS, "d", "t", 1)
        self.keyed: dict[int, tuple[str | int | None, ...]] = {}
        self.keyless: list[tuple[int, str]] = []
        self.changes = 0

    def items(self, count: int) -> Iterator[Item]:
        """The next ones."""
        for _ in range(count):
            self._number += 1
            self._ts += self._random.randrange(1, 1 << 20)
            if self._number == self._ddl_at:
                yield self._widen()
            else:
                yield self._transaction()

    @property
    def last_ts(self) -> int:
        return self._ts

    def _widen(self) -> Ddl:
        self._keyed = TableVersion(WIDER, "d", "k", 2)
        self.keyed = {key: (*row, None) for key, row in self.keyed.items()}
        return Ddl(self._ts, 1, 5, "d", "ALTER TABLE d.k ADD COLUMN n INT", (("d", "k"),), 2)

    def _transaction(self) -> Transaction:
        keyless = (self._number, "same")
        self.keyless.append(keyless)
        kinds, rows = [], []
        for _ in range(self._random.randrange(1, 8)):
            kind, row = self._change()
            kinds.append(kind)
            rows.append(row)
        self.changes += 1 + len(rows)
        tables = (
            TableEvents(self._keyless, (INSERT,), [RowEncoder(KEYLESS).insert(keyless, self._number)], 0),
            TableEvents(self._keyed, kinds, rows, 1),
        )
        return Transaction(self._ts - 1, self._ts, tables, 100)

    def _change(self) -> tuple[int, bytes]:
        pick, encoder = self._random, RowEncoder(self._keyed.info)
        key = pick.randrange(200)
        wide = len(self._keyed.info.columns) == 3
        row = (key, f"v{pick.randrange(10**6)}", *([pick.randrange(100)] if wide else []))
        before = self.keyed.pop(key, None)
        if before is not None and pick.random() < 0.3:
            return DELETE, encoder.delete((key, *before))
        self.keyed[key] = row[1:]
        if before is None:
            return INSERT, encoder.insert(row)
        return UPDATE, encoder.update((key, *before), row)


class Writer(Protocol):
    def write(self, items: Iterator[Item], *, sync: bool = True) -> None: ...

    def close(self) -> None: ...


class ArchiveWriter:
    """As the drainer's file sink writes."""

    def __init__(self, path: Path, segment_bytes: int = 4000, stored_ts: int = 1 << 62) -> None:
        self._archive = Archive.open(
            str(path), SystemClock(), cluster_id=7, stored_ts=stored_ts, max_file_size=segment_bytes
        )

    def write(self, items: Iterator[Item], *, sync: bool = True) -> None:
        for item in items:
            if isinstance(item, Ddl):
                self._archive.append_ddl(item, item.query)
            else:
                self._archive.append(item)
        asyncio.run(self._archive.sync() if sync else self._archive.write())

    def close(self) -> None:
        """Like a kill: the segments stay as they are."""
        self._archive.let_go()


class RelayLogWriter:
    """As the drainer's relay log is written."""

    def __init__(self, path: Path, segment_bytes: int = 4000, form: str = PAYLOAD) -> None:
        self._directory = BinlogDirectory(str(path), SystemClock())
        newest = self._directory.newest
        records = PayloadRecords if form == PAYLOAD else RelayRecords
        self._records: RecordGroups = records(newest.index, newest.size, {}, segment_bytes, lambda size: None)
        self._writer = RelayWriter(self._directory)

    def write(self, items: Iterator[Item], *, sync: bool = True) -> None:
        for item in items:
            if isinstance(item, Ddl):
                self._records.ddl(item, item.query)
            else:
                self._records.transaction(sent(item))
        self._writer.write(self._records.take())
        if sync:
            self._writer.sync()

    def close(self) -> None:
        self._directory.close()


WRITERS = {"pb": ArchiveWriter, "relay": RelayLogWriter}


def remove_before(path: Path, index: int) -> int:
    """What retention does; the number of segments that went."""
    gone = 0
    for number, name in binlog_file.in_order(str(path), os.listdir(path)):
        if number < index:
            (path / name).unlink()
            (path / "index" / f"{name}.json").unlink(missing_ok=True)
            (path / "index" / f"{name}.tables.jsonl").unlink(missing_ok=True)
            gone += 1
    return gone

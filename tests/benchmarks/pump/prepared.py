"""Pump data directories with millions of records, made in bulk and kept between runs.

A pump would take minutes to be given as much. What is written here is what it would leave after a clean stop:
segments with their footers, and an index that knows every record. Each prewrite is followed by its commit.

Holds   a store is finished under another name and renamed, so that one that exists is whole. Copies share the
        closed segments with it by hard links: nobody writes into those
"""

from __future__ import annotations

import os
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pump.index.index import Index
from pump.log.record import LogRecord, ValuePointer
from pump.log.segment import FOOTER_SIZE, name_of
from pump.storage.data_dir import DataDir
from tests.benchmarks.door.requests import Writes
from tidb_binlog import binlog, tso
from tidb_binlog.record import VALUE_FOOTER_MAGIC, encode_value

CLUSTER_ID: Final = 7_100_000_000_000_000_002
FIRST_TS: Final = tso.compose(1_767_225_600_000)
PAYLOAD_BYTES: Final = 300
STORES: Final = Path(__file__).resolve().parents[3] / "build" / "bench-stores"
_LAYOUT: Final = 1
"""Part of the name: another one makes stores of earlier runs unused."""
_PAIRS_A_BATCH: Final = 1 << 12
_footer = struct.Struct("<qI").pack


@dataclass(frozen=True, slots=True)
class Store:
    """A prepared data directory. Of pair n (from 0): start_ts FIRST_TS + 2n, commit_ts one more."""

    path: Path
    pairs: int

    @property
    def last_ts(self) -> int:
        """commit_ts of the last pair, the watermark."""
        return FIRST_TS + 2 * self.pairs - 1

    def copy(self, target: Path, *, index: bool = True, finished: bool = True) -> Path:
        """A data directory that a pump may use and change.

        Without its index, or without the footer of its newest segment, which a killed pump does not leave.
        """
        shutil.copytree(self.path / "value", target / "value", copy_function=_link)
        newest = max((target / "value").iterdir())
        newest.unlink()
        shutil.copy2(self.path / "value" / newest.name, newest)
        if not finished:
            os.truncate(newest, newest.stat().st_size - FOOTER_SIZE)
        if index:
            shutil.copytree(self.path / "kv", target / "kv")
        shutil.copy2(self.path / ".cluster", target / ".cluster")
        return target


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def prepared(pairs: int, *, segment_bytes: int) -> Store:
    """The store, made if no earlier run left it. A segment ends with the batch that fills it."""
    path = STORES / f"{pairs}-pairs-{segment_bytes >> 20}-mib-{_LAYOUT}"
    if not path.is_dir():
        unfinished = path.with_name(path.name + ".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        _make(unfinished, pairs, segment_bytes)
        unfinished.rename(path)
    return Store(path, pairs)


def _make(path: Path, pairs: int, segment_bytes: int) -> None:
    data_dir = DataDir(str(path))
    try:
        data_dir.adopt_cluster(CLUSTER_ID)
        value = Path(data_dir.value_path)
        value.mkdir()
        index = Index.open(data_dir.index_path)
        try:
            _fill(value, index, pairs, segment_bytes)
        finally:
            index.close()
    finally:
        data_dir.close()


def _fill(value: Path, index: Index, pairs: int, segment_bytes: int) -> None:
    written, fid = 0, 0
    batches = _Batches()
    while written < pairs:
        with (value / name_of(fid)).open("wb") as file:
            while written < pairs and file.tell() <= segment_bytes:
                count = min(_PAIRS_A_BATCH, pairs - written)
                data, records = batches.next(count, ValuePointer(fid, file.tell()))
                file.write(data)
                written += count
                place = records[-1].place
                index.write(records, place, records[-1].commit_ts, place)
            file.write(_footer(FIRST_TS + 2 * written - 1, VALUE_FOOTER_MAGIC))
        fid += 1


class _Batches:
    """Records one after the other, from templates: a payload costs one formatting."""

    def __init__(self) -> None:
        self._next_ts = FIRST_TS
        # Stand in for real timestamps: they take nine octets too.
        start, commit = 1 << 56, (1 << 56) + 1
        key = b"t%020d" % start
        self._varint = Writes(0, 0, 0).varint
        self._prewrite = self._template(binlog.prewrite(start, key, os.urandom(PAYLOAD_BYTES)))
        self._commit = self._template(binlog.commit(start, commit, key))

    def _template(self, payload: bytes) -> bytes:
        start, commit = 1 << 56, (1 << 56) + 1
        template = payload.replace(b"%", b"%%").replace(b"\x10" + self._varint(start), b"\x10%b", 1)
        template = template.replace(b"\x18" + self._varint(commit), b"\x18%b", 1)
        return template.replace(b"%020d" % start, b"%020d", 1)

    def next(self, pairs: int, place: ValuePointer) -> tuple[bytes, list[LogRecord]]:
        """The bytes of the next pairs at a place, and what the index is told of them."""
        parts: list[bytes] = []
        records: list[LogRecord] = []
        fid, at = place
        for _ in range(pairs):
            start_ts = self._next_ts
            commit_ts = start_ts + 1
            varint = self._varint(start_ts)
            prewrite = encode_value(self._prewrite % (varint, start_ts))
            commit = encode_value(self._commit % (varint, self._varint(commit_ts), start_ts))
            records.append(LogRecord(binlog.PREWRITE, start_ts, 0, ValuePointer(fid, at)))
            at += len(prewrite)
            records.append(LogRecord(binlog.COMMIT, start_ts, commit_ts, ValuePointer(fid, at)))
            at += len(commit)
            parts += (prewrite, commit)
            self._next_ts += 2
        return b"".join(parts), records

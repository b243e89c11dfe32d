"""Index: from a timestamp to the place of its record, and the positions a restart needs, in a
`Store`.

    ts:<ts i64 big-endian>        value pointer       start_ts of a prewrite, commit_ts of everything else
    pr:<ts i64 big-endian>        value pointer       a prewrite whose start_ts is a commit_ts, too
    !binlog!headPointer           value pointer       last record that is in the index
    !binlog!handlePointer         value pointer       last record decided by the sorter, with all before it;
                                                      for a Go pump, which files anew what follows: no later
                                                      than what is settled (`Store.settle`)
    !binlog!maxCommitTS           i64 little-endian   watermark from stored records
    !binlog!gcts                  i64 little-endian   everything below may have been purged
    !binlog!lastCommit            i64, 2 pointers     the largest commit_ts ever filed, with the head then:
                                                      behind another head a Go pump has filed more; and what
                                                      is decided

No timestamp is given twice, but a client may say what it likes. What was filed first stays, so that nobody
takes the place of what was acknowledged before; the second of two prewrites, or of two commits with one
start_ts, is a repetition.

Absent integers read as 0, absent pointers as (0, 0). In LevelDB it is the Go pump's layout, whose directories
open in place. Written without sync: the value log is the truth and replay from the head repairs a lost tail
(that only a tail is ever lost is for the store to see); deleting the directory rebuilds it.

All calls block; they come from worker threads.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Self

from pump import metrics
from pump.index import backends
from pump.index.store import Batch, IndexDamaged, Store
from pump.log.record import POINTER, START, LogRecord, ValuePointer, decode_pointer, encode_pointer
from tidb_binlog.binlog import PREWRITE, Head
from tidb_binlog.observe import log
from tidb_binlog.tso import TS_MAX, Ts

_PREFIX: Final = b"ts:"
_BEYOND: Final = b"ts;"
_APART: Final = b"pr:"
RECENT_MAX: Final = 1 << 15
_KEY: Final = struct.Struct(">3sq")
_TS: Final = struct.Struct(">3xq")
_INTEGER: Final = struct.Struct("<q")
_GC_TS: Final = b"!binlog!gcts"
_MAX_COMMIT_TS: Final = b"!binlog!maxCommitTS"
_HANDLE: Final = b"!binlog!handlePointer"
_HEAD: Final = b"!binlog!headPointer"
_LAST_COMMIT: Final = b"!binlog!lastCommit"
_logger = log.get("index")


def key_of(ts: Ts) -> bytes:
    return _KEY.pack(_PREFIX, ts)


class Index:
    """The index of one data directory."""

    def __init__(self, store: Store, path: str) -> None:
        self.store = store
        self._path = path
        # Timestamps that were filed last, in two generations of which the older goes as a whole; what was
        # filed before is at or below `_below` (None: not asked yet). All others are new without a search.
        self._recent: set[int] = set()
        self._recent_before: set[int] = set()
        self._below: int | None = None
        self.last_commit_ts = self._last_commit()
        """The largest commit_ts that was ever filed here, time marks not counted. What a Go pump has filed
        counts with all its timestamps."""
        self._filed_to = self._settled_to = self.head  # a store that was opened is settled
        self.head_at: Callable[[ValuePointer], Head | None] = lambda _: None
        """Of the record at a place; None where none can be read. What cannot be is replaced."""

    @classmethod
    def open(
        cls,
        path: str,
        *,
        backend: str = backends.AUTO,
        write_buffer_bytes: int = 64 << 20,
        cache_bytes: int = 8 << 20,
    ) -> Self:
        """`IndexDamaged` if the files are wrong, `ConfigError` if they are in use, if the disk refuses, or if
        this Python has no such backend."""
        os.makedirs(path, mode=0o700, exist_ok=True)
        chosen = backends.choose(backend, backends.present_in(path))
        sizes = {"write_buffer_bytes": write_buffer_bytes, "cache_bytes": cache_bytes}
        store = backends.open_store(chosen, path, **sizes)
        try:
            return cls(store, path)
        except BaseException:
            store.close()  # its lock would refuse the index that is built anew
            raise

    def write(
        self, records: Sequence[LogRecord], head: ValuePointer, watermark: int, decided: ValuePointer
    ) -> None:
        """File a batch of records and remember the positions with it.

        A time mark never takes the place of a commit: an oracle that stands still (a replay) may give a
        mark the timestamp that a transaction has.
        """
        if head.fid != self._filed_to.fid:
            self.store.settle()
            self._settled_to = self._filed_to
        with self.store.write_batch() as batch:
            if not self._are_new([record[1] if record[0] == PREWRITE else record[2] for record in records]):
                records = self._first_ones(records, batch)
            # `is_mark` and `index_ts` written out: every record comes through here.
            put, key, pointer, last = batch.put, _KEY.pack, POINTER.pack, self.last_commit_ts
            for tp, start_ts, commit_ts, place in records:
                is_mark = start_ts == commit_ts and tp != PREWRITE
                if is_mark and self.store.get(key_of(commit_ts)) is None:
                    put(key_of(commit_ts), encode_pointer(place))
            for tp, start_ts, commit_ts, (fid, offset) in records:
                ts = start_ts if tp == PREWRITE else commit_ts
                if ts and (tp == PREWRITE or start_ts != commit_ts):
                    put(key(_PREFIX, ts), pointer(fid, offset))
                    if commit_ts > last:
                        last = commit_ts
            batch.put(_LAST_COMMIT, _INTEGER.pack(last) + encode_pointer(head) + encode_pointer(decided))
            self.last_commit_ts = last
            batch.put(_HEAD, encode_pointer(head))
            batch.put(_MAX_COMMIT_TS, _INTEGER.pack(watermark))
            batch.put(_HANDLE, encode_pointer(min(decided, self._settled_to)))
        self._filed_to = head

    def _are_new(self, timestamps: list[int]) -> bool:
        """Whether none of them can be in the index, nor twice among them; they are remembered."""
        if self._below is None:
            self._below = self.last_ts()
        came = set(timestamps)
        came.discard(0)
        are_new = (
            len(came) == len(timestamps) - timestamps.count(0)
            and min(came, default=TS_MAX) > self._below
            and self._recent.isdisjoint(came)
            and self._recent_before.isdisjoint(came)
        )
        self._recent |= came
        if len(self._recent) >= RECENT_MAX:
            self._below = max(self._below, max(self._recent_before, default=0))
            self._recent, self._recent_before = set(), self._recent
        return are_new

    def _first_ones(self, records: Sequence[LogRecord], batch: Batch) -> list[LogRecord]:
        """Those to be filed: neither repetitions, nor prewrites that are filed apart, nor commits whose
        timestamp another transaction has, which are reported."""
        kept: list[LogRecord] = []
        filed: dict[int, LogRecord] = {}
        apart: set[int] = set()
        for record in records:
            ts = record.index_ts
            if not ts or record.is_mark:
                kept.append(record)
                continue
            first = filed.get(ts) or self._filed(ts)
            if first is not None and not first.is_mark and first.place != record.place:
                if first.start_ts == record.start_ts and (first.tp == PREWRITE) == (record.tp == PREWRITE):
                    continue
                if PREWRITE not in (first.tp, record.tp):
                    self._report(record, first)
                    continue
                prewrite = record if record.tp == PREWRITE else first
                if ts not in apart and self.store.get(_KEY.pack(_APART, ts)) is None:
                    batch.put(_KEY.pack(_APART, ts), encode_pointer(prewrite.place))
                apart.add(ts)
                if prewrite is record:
                    continue
            filed[ts] = record
            kept.append(record)
        return kept

    @staticmethod
    def _report(record: LogRecord, first: LogRecord) -> None:
        metrics.STORAGE_ERRORS.labels("same_commit_ts").inc()
        _logger.error(
            "a client gave a commit the commit_ts of another transaction: readers get the first alone",
            commit_ts=record.commit_ts,
            start_ts=record.start_ts,
            place=record.place,
            first_start_ts=first.start_ts,
            next="find the client that does not draw its timestamps from the oracle; what it stored stands "
            "in the value log at this place",
        )

    def _filed(self, ts: Ts) -> LogRecord | None:
        """The record with this index timestamp, if there is one that can be read."""
        place = self.pointer(ts)
        head = None if place is None else self.head_at(place)
        if place is None or head is None:
            return None
        record = LogRecord(*head, place)
        return record if record.index_ts == ts else None

    def prewrite_pointer(self, start_ts: Ts) -> ValuePointer | None:
        """Place of a prewrite, as far as one was filed; else of a commit with this timestamp."""
        data = self.store.get(_KEY.pack(_APART, start_ts))
        return self.pointer(start_ts) if data is None else decode_pointer(data)

    def pointer(self, ts: Ts) -> ValuePointer | None:
        """Place of the record with this index timestamp."""
        data = self.store.get(key_of(ts))
        return None if data is None else decode_pointer(data)

    def runs(
        self, after: int, upto: int, records_max: int = 512
    ) -> Iterator[tuple[list[int], list[tuple[int, int]]]]:
        """Every record with a timestamp in (after, upto], ascending, in runs of at most `records_max`:
        timestamps, and (fid, offset) of each."""
        for entries in self.store.runs(key_of(after) + b"\0", key_of(upto), records_max):
            keys, values = zip(*entries, strict=True)
            try:
                timestamps = [ts for (ts,) in _TS.iter_unpack(b"".join(keys))]
                places = list(POINTER.iter_unpack(b"".join(values)))
            except struct.error:
                raise self._malformed(keys, values) from None
            if len(timestamps) != len(keys) or len(places) != len(values):
                raise self._malformed(keys, values)
            yield timestamps, places

    def places_after(self, ts: Ts, count: int) -> list[ValuePointer]:
        """Where the first records with a timestamp after this one are, so many at most."""
        _, places = next(self.runs(ts, TS_MAX, records_max=count), ([], []))
        return [ValuePointer(*place) for place in places]

    def _malformed(self, keys: Sequence[bytes], values: Sequence[bytes]) -> IndexDamaged:
        wrong = [
            key
            for key, value in zip(keys, values, strict=True)
            if len(key) != _KEY.size or len(value) != POINTER.size
        ]
        return IndexDamaged.at(self._path, f"entry {wrong[0].hex()} has a wrong size")

    def purge(
        self, first_ts: Ts, last_ts: Ts, upto_fid: int, *, records_max: int = 1024
    ) -> tuple[int, int | None]:
        """Delete entries in [first_ts, last_ts] that point into files up to `upto_fid`, some at a time.

        Returns how many went and where to continue; None: all done, and on the medium.
        """
        next_ts: int | None = None
        runs = self.store.runs(key_of(first_ts), key_of(last_ts), records_max + 1, cached=False)
        entries = next(runs, [])
        if len(entries) > records_max:
            next_ts = int(_KEY.unpack(entries.pop()[0])[1])
        gone = [key for key, value in entries if decode_pointer(value).fid <= upto_fid]
        if next_ts is None:
            gone += self._apart(last_ts, upto_fid)
        if gone or next_ts is None:
            with self.store.write_batch(sync=next_ts is None) as batch:
                for key in gone:
                    batch.delete(key)
        return len(gone), next_ts

    def _apart(self, last_ts: Ts, upto_fid: int) -> list[bytes]:
        """Keys of prewrites that are filed apart, up to a timestamp and a file; these are few."""
        runs = self.store.runs(_APART, _KEY.pack(_APART, last_ts), 512)
        return [key for run in runs for key, value in run if decode_pointer(value).fid <= upto_fid]

    def last_ts(self) -> Ts:
        """The largest timestamp in the index; 0 if it is empty."""
        key = self.store.last_before(_BEYOND)
        return int(_KEY.unpack(key)[1]) if key.startswith(_PREFIX) else 0

    @property
    def head(self) -> ValuePointer:
        return self._pointer_or_start(_HEAD)

    @property
    def handle(self) -> ValuePointer:
        decided = self._of_this_head()[_INTEGER.size + POINTER.size :]  # none from releases of before
        return decode_pointer(decided) if decided else self._pointer_or_start(_HANDLE)

    @property
    def max_commit_ts(self) -> Ts:
        return self._integer(_MAX_COMMIT_TS)

    def _last_commit(self) -> int:
        data = self._of_this_head()
        return int(_INTEGER.unpack_from(data)[0]) if data else self.last_ts()

    def _of_this_head(self) -> bytes:
        """What `lastCommit` says; nothing if a Go pump was here since."""
        data = self.store.get(_LAST_COMMIT) or b""
        return data if data[_INTEGER.size :].startswith(encode_pointer(self.head)) else b""

    @property
    def gc_ts(self) -> Ts:
        return self._integer(_GC_TS)

    def set_gc_ts(self, ts: Ts) -> None:
        with self.store.write_batch() as batch:
            batch.put(_GC_TS, _INTEGER.pack(ts))

    def set_handle(self, decided: ValuePointer) -> None:
        """Everything that is filed must be settled."""
        pointer = encode_pointer(decided)
        with self.store.write_batch() as batch:
            last = _INTEGER.pack(self.last_commit_ts)
            batch.put(_LAST_COMMIT, last + encode_pointer(self.head) + pointer)
            batch.put(_HANDLE, pointer)

    def close(self, *, settled: bool = False) -> None:
        """`settled`: a Go pump has nothing to file anew."""
        if settled:
            self.store.settle()
            with contextlib.suppress(OSError, IndexDamaged):  # then it has
                self.set_handle(self.handle)
            self.store.settle()
        self.store.close()

    def _pointer_or_start(self, key: bytes) -> ValuePointer:
        data = self.store.get(key)
        return START if data is None else decode_pointer(data)

    def _integer(self, key: bytes) -> int:
        data = self.store.get(key)
        if data is None:
            return 0
        if len(data) < _INTEGER.size:
            raise IndexDamaged(f"index {self._path}: {key.decode()} holds {len(data)} bytes, 8 are needed")
        return int(_INTEGER.unpack_from(data)[0])

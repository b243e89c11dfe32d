"""History: commits read from the index and the log, for pullers that are too far back for memory.

Walks the index over (position, watermark], steps over prewrites without reading them whole, joins each
commit to its prewrite. A commit without its prewrite is an error, not a gap: the drainer at the other end
would otherwise lose a transaction in silence. Only what the operator has given up is passed over, and
logged. Of a prewrite that is to be sent in parts only the beginning is read; it ends the page.

All calls block; they run on worker threads, one at a time for each reader.

Tests  tests/pump/storage/test_storage.py
"""

from __future__ import annotations

import sys
from collections.abc import Set
from typing import Final

from pump.index.index import Index
from pump.index.store import IndexDamaged
from pump.log.delivery import Delivery, LargeDelivery, Oversized, Page, StoredTail
from pump.log.record import ValuePointer
from pump.log.record_scan import HEAD, PAIR, UPPER, new_tuple
from pump.log.segment import name_of
from pump.log.value_log import ValueLog, header_of
from pump.storage.accepted_losses import AcceptedLosses
from pump.storage.missing_prewrite import MissingPrewrites
from pump.storage.readers import BlockReader, PartReader
from tidb_binlog import binlog
from tidb_binlog.errors import BinlogError, Corruption
from tidb_binlog.record import VALUE_HEADER_SIZE, VALUE_LOG_MAGIC, crc32c
from tidb_binlog.tso import Ts

_PREWRITES_MAX = 1 << 12
_NEVER_LARGE: Final = sys.maxsize
_PART_BYTES: Final = 1 << 20
_BEGIN_BYTES: Final = (
    64 << 10
)  # of a large prewrite: its fields in front of the rows are nearly always in them
_Place = tuple[int, int]  # of a `ValuePointer`
_Passed = tuple[int, int, int, int]  # file, offset, length and checksum of a prewrite


class PositionPurged(BinlogError):
    """What was asked for, or part of it, has been purged from this pump."""


class History:
    """One puller's reader."""

    def __init__(
        self, log: ValueLog, index: Index, losses: AcceptedLosses, missing: MissingPrewrites
    ) -> None:
        self._log = log
        self._index = index
        self._losses = losses
        self._missing = missing
        self._reader = BlockReader(log)
        # Prewrites passed on the way: their commits come next and need no second search.
        self._passed: dict[int, _Passed] = {}
        self._parts_above = self._whole_max = _NEVER_LARGE
        self._large: LargeDelivery | None = None

    def page(
        self,
        position: int,
        watermark: int,
        *,
        bytes_max: int,
        records_max: int = 8192,
        parts_above: int = 0,
        whole_max: int = _NEVER_LARGE,
    ) -> Page:
        """The next commits after `position`, at least one if there is any up to `watermark`.

        `parts_above`: a transaction whose prewrite has more bytes is the page's `large`; 0: none is. Raises
        `PositionPurged`, `Corruption`, or `Oversized` before another record of more than `whole_max` bytes
        is read.
        """
        self._parts_above, self._whole_max = parts_above or _NEVER_LARGE, whole_max
        self._large = None
        self.check_kept(position)
        try:
            return self._read(position, watermark, bytes_max, records_max)
        finally:
            # What went while this read may be missing from it: the purged timestamp rises first.
            self.check_kept(position)

    def part(self, reader: PartReader, position: int, size: int) -> bytes:
        """The next part of a large delivery; `position`: as for its page. Raises as `page`."""
        try:
            return reader.next(size)
        finally:
            self.check_kept(position)

    def passes_over(self, reader: PartReader, position: int, tables: Set[int]) -> bool:
        """Whether a large delivery has no rows of these tables; it was read then, and is not damaged. Raises
        as `page`."""
        try:
            if reader.touches(tables):
                return False
            while reader.offset < reader.large.size:
                reader.next(_PART_BYTES)
            return True
        finally:
            self.check_kept(position)

    def check_kept(self, position: int) -> None:
        """Raises `PositionPurged` where something after it may be gone."""
        gc_ts = self._index.gc_ts
        if position < gc_ts:
            raise PositionPurged(
                f"position {position} is below the gc timestamp {gc_ts} of this pump: binlogs are missing",
                hint=f"take a new snapshot of the upstream and start the drainer at a position above {gc_ts}",
            )

    def _read(self, position: int, watermark: int, bytes_max: int, records_max: int) -> Page:
        page: list[Delivery] = []
        total = seen = 0
        at = max(position, 0)
        for timestamps, places in self._index.runs(at, watermark):
            if seen >= records_max or total >= bytes_max:
                return Page(page, at)
            seen += len(timestamps)
            total, ended = self._read_run(timestamps, places, page, total, bytes_max)
            if ended is not None:
                return Page(page, ended, self._large)
            at = timestamps[-1]
        return Page(page, watermark)

    def _read_run(
        self, timestamps: list[int], places: list[_Place], page: list[Delivery], total: int, bytes_max: int
    ) -> tuple[int, int | None]:
        """Read one run of the index; returns the bytes so far and, when those are enough, where it ended.

        This loop is what pulling history costs: a record in the block at hand of which the first octets look
        as they always do is read here, all others by `_delivery`.
        """
        reader, passed, unpack = self._reader, self._passed, HEAD.unpack_from
        checksum_of, pair, upper, halves = crc32c, PAIR, UPPER, binlog.halves
        block, base, fid = reader.block, reader.base, reader.fid
        sure, large = len(block) - HEAD.size, self._parts_above
        before: int | None = None
        for ts, (place_fid, offset) in zip(timestamps, places, strict=True):
            if total >= bytes_max:
                return total, before
            before = ts
            at = offset - base
            if place_fid != fid or not 0 <= at <= sure:
                reader.turn_to(place_fid, offset)
                block, base, fid = reader.block, reader.base, reader.fid
                sure, at = len(block) - HEAD.size, offset - base
            delivery = None
            if at <= sure:
                magic, length, checksum, a, tp, b, s0, s1, s2, s3, c, c0, c1, c2, c3 = unpack(block, at)
                start_ts = pair[s0] | pair[s1] << 14 | upper[s2] | s3 << 56
                if magic != VALUE_LOG_MAGIC or a != 0x08 or b != 0x10 or c != 0x18:
                    pass
                elif start_ts == ts and tp == binlog.PREWRITE:
                    # Not verified before its commit comes; an altered commit would not have this start_ts.
                    passed[ts] = (place_fid, offset, length, checksum)
                    continue
                elif start_ts in passed and pair[c0] | pair[c1] << 14 | upper[c2] | c3 << 56 == ts:
                    body = at + VALUE_HEADER_SIZE
                    payload = block[body : body + length]
                    whole = checksum_of(payload) == checksum and len(payload) == length
                    if whole and passed[start_ts][2] <= large:
                        first_fid, first_at, length, checksum = passed.pop(start_ts)
                        body = first_at - base + VALUE_HEADER_SIZE
                        first = block[body : body + length] if first_fid == fid and first_at >= base else b""
                        if len(first) != length or checksum_of(first) != checksum:
                            read = self._payload(ts, start_ts, first_fid, first_at)
                            block, base, fid = reader.block, reader.base, reader.fid
                            sure = len(block) - HEAD.size
                            if read is None:
                                continue
                            first = read
                        delivery = new_tuple(
                            Delivery, (ts, start_ts, *halves(first, payload, nine_octets=True))
                        )
            if delivery is None:
                delivery = self._delivery(ts, place_fid, offset)
                block, base, fid = reader.block, reader.base, reader.fid
                sure = len(block) - HEAD.size
                if delivery is None:
                    if self._large is not None:
                        return total, ts
                    continue
            page.append(delivery)
            total += len(delivery[2]) + len(delivery[3])
        if len(passed) > _PREWRITES_MAX:
            passed.clear()
        return total, None

    def _payload(self, ts: Ts, start_ts: Ts, fid: int, offset: int) -> bytes | None:
        """Payload at a place that what is filed under `ts` needs; None where its loss was accepted."""
        try:
            return self._reader.payload(fid, offset)
        except Corruption:
            place = ValuePointer(fid, offset)
            if not self._losses.has(place):
                raise
            self._losses.passed_over(ts, start_ts, place, place)
            return None

    def _delivery(self, ts: Ts, fid: int, offset: int) -> Delivery | None:
        """What is filed under `ts`; None for a prewrite, for a transaction that is now in `_large`, and for
        one whose loss was accepted."""
        segment = self._log.segment(fid)
        lost = self._losses.has(ValuePointer(fid, offset))
        length, checksum = (0, 0) if lost else segment.head(offset)
        if lost or length > self._parts_above:  # only a prewrite is so large
            leading = binlog.leading_header(segment.begin(offset, HEAD.size))
            if (leading.tp, leading.start_ts) == (binlog.PREWRITE, ts):
                if not lost:  # not verified before its commit comes
                    self._passed[ts] = (fid, offset, length, checksum)
                return None
            if length > self._whole_max:
                raise Oversized(length)
        payload = self._payload(ts, 0, fid, offset)
        if payload is None:
            return None
        header = header_of(payload, segment.file.path, offset)
        if header.tp == binlog.PREWRITE:
            self._passed[ts] = (fid, offset, length, checksum)
            return None
        if header.commit_ts != ts:
            raise IndexDamaged(
                f"the index leads from {ts} to a record of commit_ts {header.commit_ts} "
                f"at {name_of(fid)} offset {offset}",
                hint="try again: the pump starts anew and builds the index from the log",
            )
        if header.is_fake:
            return Delivery(ts, header.start_ts, payload)
        passed = self._passed.pop(header.start_ts, None)
        place = passed[:2] if passed is not None else self._index.prewrite_pointer(header.start_ts)
        at = ValuePointer(fid, offset)
        if place is None:
            self._without_prewrite(header, at)
            return None
        return self._joined(header, payload, at, ValuePointer(*place))

    def _joined(
        self, header: binlog.Header, commit: bytes, at: ValuePointer, place: ValuePointer
    ) -> Delivery | None:
        """The commit that stands `at` a place with its prewrite, as `_delivery`."""
        segment = self._log.segment(place.fid)
        length, checksum = (0, 0) if self._losses.has(place) else segment.head(place.offset)
        if length > self._parts_above:
            self._large = self._large_delivery(header, commit, (*place, length, checksum))
            if self._large is None:
                self._without_prewrite(header, at)
            return None
        prewrite = self._payload(header.commit_ts, header.start_ts, *place)
        if prewrite is None:
            return None
        header_there = header_of(prewrite, segment.file.path, place.offset)
        if (header_there.tp, header_there.start_ts) != (binlog.PREWRITE, header.start_ts):
            self._without_prewrite(header, at)
            return None
        return Delivery(header.commit_ts, header.start_ts, *binlog.halves(prewrite, commit))

    def _large_delivery(
        self, header: binlog.Header, commit: bytes, prewrite: _Passed
    ) -> LargeDelivery | None:
        """What a `PartReader` needs; None if that is not the prewrite. Of it only the fields in front of the
        rows are read."""
        fid, offset, length, checksum = prewrite
        segment, size = self._log.segment(fid), _BEGIN_BYTES
        while True:
            data = segment.begin(offset, min(size, length))
            try:
                begin = binlog.contents_offset(data)
                break
            except Corruption:  # the key is longer than that
                if size >= length:
                    raise
                size *= 4
        leading = binlog.parse(data[:begin])
        if (leading.tp, leading.start_ts) != (binlog.PREWRITE, header.start_ts):
            return None
        head = commit[: binlog.contents_offset(commit)]
        tail = StoredTail(fid, offset, length, checksum, begin)
        return LargeDelivery(header.commit_ts, head, tail, len(head) + length - begin)

    def _without_prewrite(self, header: binlog.Header, at: ValuePointer) -> None:
        """Return where the commit `at` a place is passed over, else raise."""
        gc_ts = self._index.gc_ts
        if header.start_ts <= gc_ts:
            raise PositionPurged(
                f"the prewrite {header.start_ts} of commit {header.commit_ts} was purged "
                f"(gc timestamp {gc_ts})",
                hint=f"take a new snapshot of the upstream and start the drainer above {header.commit_ts}",
            )
        self._missing.pass_over(header.start_ts, header.commit_ts, at)

"""History: commits read from the index and the log, for pullers that are too far back for memory.

Walks the index over (position, watermark], steps over prewrites without reading them whole, joins each
commit to its prewrite. A commit without its prewrite is an error, not a gap: the drainer behind the
puller would otherwise lose a transaction without a word.

All calls block; they run on worker threads, one at a time for each reader.
"""

from __future__ import annotations

from common import binlog
from common.errors import BinlogError, Corruption
from pump.block_reader import BlockReader
from pump.delivery import Delivery, Page
from pump.index import Index
from pump.value_log import ValueLog, header_of
from pump.value_pointer import ValuePointer

_PREWRITE_START = bytes((0x08, binlog.PREWRITE))  # how a stored prewrite begins: field 1, its type
_PREWRITES_MAX = 1 << 14


class PositionPurged(BinlogError):
    """What was asked for, or part of it, has been purged from this pump."""


class History:
    """One puller's reader."""

    def __init__(self, log: ValueLog, index: Index) -> None:
        self._log = log
        self._index = index
        self._reader = BlockReader(log)
        # Places of prewrites passed on the way: their commits come next and need no second search.
        self._passed: dict[int, ValuePointer] = {}

    def page(self, position: int, watermark: int, *, bytes_max: int, records_max: int = 8192) -> Page:
        """The next commits behind `position`, at least one if there is any up to `watermark`.

        Raises `PositionPurged` or `Corruption`.
        """
        gc_ts = self._index.gc_ts
        if position < gc_ts:
            raise PositionPurged(
                f"position {position} is below the gc timestamp {gc_ts} of this pump: binlogs are missing",
                hint=f"take a new snapshot of the upstream and start the drainer at a position above {gc_ts}",
            )
        deliveries: list[Delivery] = []
        total = 0
        at = max(position, 0)
        for seen, (ts, place) in enumerate(self._index.between(at, watermark)):
            if total >= bytes_max or seen >= records_max:
                return Page(deliveries, at)
            delivery = self._delivery(ts, place, gc_ts)
            if delivery is not None:
                deliveries.append(delivery)
                total += len(delivery.payload)
            at = ts
        return Page(deliveries, watermark)

    def _delivery(self, ts: int, place: ValuePointer, gc_ts: int) -> Delivery | None:
        reader = self._reader
        if reader.start(place) == _PREWRITE_START:
            if len(self._passed) >= _PREWRITES_MAX:
                self._passed.clear()
            self._passed[ts] = place
            return None
        payload = reader.payload(place)
        header = header_of(payload, self._log.segment(place[0]).file.path, place[1])
        if header.tp == binlog.PREWRITE:
            return None
        if header.commit_ts != ts:
            raise Corruption(
                f"the index leads from {ts} to a record of commit_ts {header.commit_ts} "
                f"at {place.fid:06d}.vlog offset {place.offset}",
                hint="stop the pump and remove the directory `kv`: the index is rebuilt",
            )
        if header.is_fake:
            return Delivery(ts, header.start_ts, payload)
        prewrite_place = self._passed.pop(header.start_ts, None) or self._index.pointer(header.start_ts)
        if prewrite_place is None:
            raise self._without_prewrite(header, gc_ts)
        prewrite = reader.payload(prewrite_place)
        if (
            prewrite[:2] != _PREWRITE_START
            and header_of(prewrite, "value log", prewrite_place[1]).tp != binlog.PREWRITE
        ):
            raise self._without_prewrite(header, gc_ts)
        return Delivery(ts, header.start_ts, binlog.join(prewrite, payload))

    @staticmethod
    def _without_prewrite(header: binlog.Header, gc_ts: int) -> BinlogError:
        if header.start_ts <= gc_ts:
            return PositionPurged(
                f"the prewrite {header.start_ts} of commit {header.commit_ts} was purged "
                f"(gc timestamp {gc_ts})",
                hint=f"take a new snapshot of the upstream and start the drainer above {header.commit_ts}",
            )
        return Corruption(
            f"commit {header.commit_ts} has no prewrite {header.start_ts} on this pump",
            hint="look at the record with GET /debug/binlog/<ts>; if another pump has the prewrite, "
            "this commit was sent to the wrong one",
        )

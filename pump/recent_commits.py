"""Recent commits: the joined payloads just below the watermark, kept in memory for pullers that are near.

In     payloads of records in log order, the watermark after each step
Out    for a position: the commits behind it in commit order, or "too old, read the index"
Why    a drainer that keeps up asks for what was written a moment ago; joining once for all drainers and
       from memory costs neither a disk read nor a search
Holds  every served commit with a timestamp in (floor, watermark]; `bytes_max` bounds what is kept
Never  is asked to be complete: whatever does not fit raises the floor, and the index serves it
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable

from common import binlog
from pump.delivery import Delivery
from pump.logged import Logged
from pump.record_scan import new_tuple

_OVERHEAD = 200  # bytes that an entry costs besides its payload


class RecentCommits:
    """`floor`: largest timestamp at or below which this knows nothing; it may be ahead of the watermark."""

    def __init__(self, floor: int, *, bytes_max: int) -> None:
        self.floor = floor
        self._watermark = floor
        self._bytes_max = bytes_max
        self._prewrites: dict[int, bytes] = {}
        self._prewrite_bytes = 0
        # commit_ts, sequence, what to serve
        self._pending: list[tuple[int, int, Delivery | None]] = []
        self._pending_bytes = 0
        self._sequence = 0
        self._timestamps: list[int] = []
        self._deliveries: list[Delivery] = []
        self._dropped = 0  # leading entries that are out, removed in bulk
        self._bytes = 0

    @property
    def bytes_held(self) -> int:
        return self._bytes + self._prewrite_bytes + self._pending_bytes

    def record(self, record: Logged, payload: bytes) -> None:
        """A record in log order."""
        start_ts, commit_ts = record.start_ts, record.commit_ts
        if record.tp == binlog.PREWRITE:
            self._keep_prewrite(start_ts, payload)
            return
        prewrite = self._prewrites.pop(start_ts, None)
        if prewrite is not None:
            self._prewrite_bytes -= len(prewrite) + _OVERHEAD
        if commit_ts == 0:
            return
        if commit_ts <= self._watermark:
            self._forget_to(commit_ts)
            return
        delivery = None
        if start_ts == commit_ts:
            delivery = Delivery(commit_ts, start_ts, payload)
        elif prewrite is not None:
            delivery = new_tuple(Delivery, (commit_ts, start_ts, *binlog.halves(prewrite, payload)))
        if delivery is not None and self._pending_bytes + delivery.size > self._bytes_max:
            delivery = None
        self._sequence += 1
        self._pending_bytes += _OVERHEAD + (delivery.size if delivery is not None else 0)
        heapq.heappush(self._pending, (commit_ts, self._sequence, delivery))

    def pass_over(self, records: Iterable[Logged]) -> None:
        """Records in log order whose payloads nobody has: their commits are left to the index."""
        prewrites = self._prewrites
        highest = 0
        for tp, start_ts, commit_ts, _ in records:
            if tp != binlog.PREWRITE:
                if prewrites and (prewrite := prewrites.pop(start_ts, None)) is not None:
                    self._prewrite_bytes -= len(prewrite) + _OVERHEAD
                if commit_ts > highest:
                    highest = commit_ts
        if highest > self.floor:
            self._forget_to(highest)

    def _keep_prewrite(self, start_ts: int, payload: bytes) -> None:
        old = self._prewrites.pop(start_ts, None)
        if old is not None:
            self._prewrite_bytes -= len(old) + _OVERHEAD
        self._prewrites[start_ts] = payload
        self._prewrite_bytes += len(payload) + _OVERHEAD
        while self._prewrite_bytes > self._bytes_max:
            oldest = next(iter(self._prewrites))
            self._prewrite_bytes -= len(self._prewrites.pop(oldest)) + _OVERHEAD

    def advance(self, watermark: int) -> None:
        """Everything up to `watermark` may be served now."""
        pending = self._pending
        while pending and pending[0][0] <= watermark:
            commit_ts, _, delivery = heapq.heappop(pending)
            size = _OVERHEAD + (delivery.size if delivery is not None else 0)
            self._pending_bytes -= size
            if commit_ts <= self.floor or (self._timestamps and self._timestamps[-1] == commit_ts):
                continue  # passed over meanwhile, or the same commit twice
            if delivery is None:
                self._forget_to(commit_ts)
                continue
            self._timestamps.append(commit_ts)
            self._deliveries.append(delivery)
            self._bytes += size
        self._watermark = watermark
        while self._bytes > self._bytes_max:
            self._drop_oldest()
        if self._dropped > 4096 or self._dropped == len(self._timestamps):
            self._remove_dropped()

    def _drop_oldest(self) -> None:
        oldest = self._deliveries[self._dropped]
        self._bytes -= oldest.size + _OVERHEAD
        self.floor = oldest.commit_ts
        self._dropped += 1

    def _remove_dropped(self) -> None:
        del self._timestamps[: self._dropped]
        del self._deliveries[: self._dropped]
        self._dropped = 0

    def _forget_to(self, ts: int) -> None:
        while self._dropped < len(self._timestamps) and self._timestamps[self._dropped] <= ts:
            self._drop_oldest()
        self.floor = max(self.floor, ts)

    def after(self, position: int, bytes_max: int) -> list[Delivery] | None:
        """Commits behind `position`, at least one if there is any; None below the floor."""
        if position < self.floor:
            return None
        at = bisect_right(self._timestamps, position, self._dropped)
        total, stop = 0, at
        while stop < len(self._deliveries) and (total < bytes_max or stop == at):
            total += self._deliveries[stop].size
            stop += 1
        return self._deliveries[at:stop]

    def check(self) -> None:
        """Assert what must hold between calls."""
        live = self._timestamps[self._dropped :]
        assert live == sorted(set(live))
        assert not live or (self.floor < live[0] and live[-1] <= self._watermark)
        held = self._deliveries[self._dropped :]
        assert self._bytes == sum(entry.size + _OVERHEAD for entry in held)
        assert self._prewrite_bytes == sum(len(payload) + _OVERHEAD for payload in self._prewrites.values())
        assert all(entry[0] > self._watermark for entry in self._pending)

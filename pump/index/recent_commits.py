"""Recent commits: the joined payloads just below the watermark, kept in memory for pullers that are near.

In     payloads of records in log order, the watermark after each step
Out    for a position: the commits after it in commit order, or "too old, read the index"
Why    a drainer that keeps up asks for what was written lately; joining once for all drainers and
       from memory costs neither a disk read nor a search
Holds  every served commit with a timestamp in (floor, watermark]; `bytes_max` bounds what is kept, thrice:
       prewrites without an end, commits above the watermark, commits below it
Never  is asked to be complete: whatever does not fit raises the floor, and the index serves it
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter

from pump.log.delivery import Delivery
from pump.log.record import LogRecord
from pump.log.record_scan import new_tuple
from tidb_binlog import binlog
from tidb_binlog.binlog import NINE_OCTETS
from tidb_binlog.tso import TS_MAX, Ts

_OVERHEAD = 200  # bytes that an entry costs besides its payload
PENDING_MAX = 1 << 15
"""Commits above the watermark: one step of it may bring them all, while everything else waits."""
_MARKS_FROM = 1 << 62
"""A time mark takes the place of no commit with its timestamp, whichever came first: it sorts behind."""


class RecentCommits:
    """`floor`: largest timestamp at or below which this knows nothing; it may be ahead of the watermark."""

    def __init__(self, floor: int, *, bytes_max: int) -> None:
        self.floor = floor
        self._watermark = floor
        self._bytes_max = bytes_max
        self._prewrites: dict[int, bytes] = {}
        self._prewrite_bytes = 0
        # commit_ts, order at the same one, bytes, what to serve; sorted when the watermark reaches the least
        # of them: they come nearly in order, and one step of the watermark brings many
        self._pending: list[tuple[int, int, int, Delivery | None]] = []
        self._least = TS_MAX
        self._pending_bytes = 0
        self._sequence = 0
        self._timestamps: list[int] = []
        self._deliveries: list[Delivery] = []
        self._dropped = 0  # leading entries that are out, removed in bulk
        self._bytes = 0

    @property
    def bytes_held(self) -> int:
        return self._bytes + self._prewrite_bytes + self._pending_bytes

    def record(self, records: Sequence[LogRecord], payloads: Sequence[bytes]) -> None:
        """Records in log order, and the payload of each."""
        prewrites, pending, watermark = self._prewrites, self._pending, self._watermark
        for (tp, start_ts, commit_ts, _), payload in zip(records, payloads, strict=True):
            prewrite = prewrites.pop(start_ts, None)
            if prewrite is not None:
                self._prewrite_bytes -= len(prewrite) + _OVERHEAD
            if tp == binlog.PREWRITE:
                prewrites[start_ts] = prewrite = payload if prewrite is None else prewrite
                self._prewrite_bytes += len(prewrite) + _OVERHEAD
                if self._prewrite_bytes > self._bytes_max:
                    self._drop_prewrites()
                continue
            if commit_ts == 0:
                continue
            if commit_ts <= watermark:
                self._forget_to(commit_ts)
                continue
            if commit_ts <= self.floor:
                continue
            delivery = None
            size = _OVERHEAD
            self._sequence = order = self._sequence + 1
            if start_ts == commit_ts:
                order += _MARKS_FROM
                delivery = Delivery(commit_ts, start_ts, payload)
            elif prewrite is not None:
                nine = NINE_OCTETS <= start_ts < commit_ts
                halves = binlog.halves(prewrite, payload, nine_octets=nine)
                delivery = new_tuple(Delivery, (commit_ts, start_ts, *halves))
            if delivery is not None:
                size += len(delivery[2]) + len(delivery[3])
                if size > self._bytes_max:
                    delivery, size = None, _OVERHEAD
            while pending and (self._pending_bytes + size > self._bytes_max or len(pending) >= PENDING_MAX):
                self._drop_pending()
            self._pending_bytes += size
            self._least = min(self._least, commit_ts)
            pending.append((commit_ts, order, size, delivery))

    def _drop_prewrites(self) -> None:
        """Forget the oldest, a part of them at once: to find the front of a dictionary takes a search."""
        spare = self._bytes_max // 8
        oldest = []
        for start_ts, payload in self._prewrites.items():
            oldest.append(start_ts)
            spare -= len(payload) + _OVERHEAD
            if spare < 0:
                break
        for start_ts in oldest:
            self._prewrite_bytes -= len(self._prewrites.pop(start_ts)) + _OVERHEAD

    def _drop_pending(self) -> None:
        """Leave the lower half of what waits for the watermark to the index: the rest is what pullers that
        keep up ask for once it moves. A half at once, so that what is sorted was as often added."""
        pending = self._pending
        pending.sort()
        half = (len(pending) + 1) // 2
        self._forget_to(pending[half - 1][0])
        self._pending_bytes -= sum([size for _, _, size, _ in pending[:half]])
        self._take_out(half)

    def _take_out(self, count: int) -> None:
        del self._pending[:count]
        self._least = self._pending[0][0] if self._pending else TS_MAX

    def pass_over(self, records: Iterable[LogRecord]) -> None:
        """Records in log order whose payloads are not in memory: their commits are left to the index."""
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

    def advance(self, watermark: int) -> None:
        """Everything up to `watermark` may be served now."""
        pending, timestamps, reached = self._pending, self._timestamps, 0
        if self._least <= watermark:
            pending.sort()
            reached = bisect_right(pending, watermark, key=itemgetter(0))
        for commit_ts, _, size, delivery in pending[:reached]:
            self._pending_bytes -= size
            if commit_ts <= self.floor or (timestamps and timestamps[-1] == commit_ts):
                continue  # passed over meanwhile, or the same commit twice
            if delivery is None:
                self._forget_to(commit_ts)
                continue
            timestamps.append(commit_ts)
            self._deliveries.append(delivery)
            self._bytes += size
        if reached:
            self._take_out(reached)
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

    def _forget_to(self, ts: Ts) -> None:
        while self._dropped < len(self._timestamps) and self._timestamps[self._dropped] <= ts:
            self._drop_oldest()
        self.floor = max(self.floor, ts)

    def after(self, position: int, bytes_max: int, upto: Ts = TS_MAX) -> list[Delivery] | None:
        """Commits after `position`, up to `upto`, at least one if there is any; None below the floor."""
        if position < self.floor:
            return None
        at = bisect_right(self._timestamps, position, self._dropped)
        end = bisect_right(self._timestamps, upto, at)
        total, stop = 0, at
        while stop < end and (total < bytes_max or stop == at):
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

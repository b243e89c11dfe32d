"""Sorter: turns arrival order into a watermark at or below which every commit is known.

In     records in log order (`feed`), timestamps drawn from the oracle (`mark`)
Out    `Advanced(watermark, decided)`, `Late(start_ts, commit_ts)`, `GivenUp(start_ts)`
Why    a commit timestamp is drawn after its prewrite was acknowledged. So once every prewrite written before
       some place is settled, no commit that arrives later can carry a timestamp smaller than one drawn
       before that place: neither a commit that stands there nor a timestamp drawn while it was the end
       A client's rollback settles nothing where clients may be wrong: its prewrite stays open until the store
       was asked, and what the pump then writes itself settles it
Holds  the watermark never falls; memory grows with open prewrites only, not with what came after them
Never  touches disk, network or clock; the indexer drives it

A timestamp waits only for open prewrites that may still commit at or below it. Two kinds cannot:
- one whose start_ts is not below it: a transaction commits above its start_ts;
- one that was acknowledged after the timestamp had come to this pump: it was drawn by then, and the
  prewrite's commit_ts was not. What has come when a group is acknowledged is more than what stands before
  it in the log: all of the group, and what was queued meanwhile (`ahead`).
A prewrite that its client repeated at another pump, which was quicker, commits there: what this pump hears
of it later, from the upstream, is a repetition.

The queue holds a block for each group of prewrites in log order: those of a group are acknowledged together.
A block carries the largest timestamp that waits for it and not for the next block, and the last place before
the next one. Settled blocks leave from the front, each taking its timestamp into the watermark.

A prewrite that arrives after the end of its transaction (a client repeated it, or the two changed places)
is settled at once as long as the end is among the last `ended_max` at least; otherwise it stays open until
the upstream is asked, which is slower and equally right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from sys import maxsize
from typing import Final

from common.binlog import PREWRITE, ROLLBACK
from pump.log.record import START, LogRecord, ValuePointer


@dataclass(frozen=True, slots=True)
class Advanced:
    """Every commit at or below `watermark` is known; all records up to `decided` are settled."""

    watermark: int
    decided: ValuePointer


@dataclass(frozen=True, slots=True)
class Late:
    """A commit came at or below the published watermark, and is no repetition of one that is known.

    `was_open`: its prewrite was, so readers have passed it, and it is lost to them. Else it may be a
    repetition that came too late to be known for one.
    """

    start_ts: int
    commit_ts: int
    was_open: bool


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The client of an open prewrite says that it rolled back: worth a question now."""

    start_ts: int


Effect = Advanced | Late | GivenUp


@dataclass(slots=True)
class _Block:
    """Prewrites that were acknowledged together."""

    start_ts: int  # the smallest among them
    acknowledged: int  # how many records had come by then
    last_place: ValuePointer  # of the records between its first prewrite and the next block
    open_count: int = 0
    max_ts: int = 0  # the largest timestamp that waits for them


@dataclass(slots=True)
class OpenPrewrite:
    """A prewrite without an end. `since_s`: when it was fed, on the caller's clock."""

    start_ts: int
    place: ValuePointer
    since_s: float
    block: _Block = field(default_factory=lambda: _Block(0, 0, START))


_LAST: Final = maxsize
_LOOK_BACK: Final = 64  # blocks that a timestamp passes at most: more is rare, and waiting is right too


class Sorter:
    """See the head of this file. `watermark`: where an earlier run had arrived; `clients_know`: whether a
    client's rollback is one."""

    def __init__(
        self,
        watermark: int = 0,
        decided: ValuePointer = START,
        *,
        clients_know: bool = True,
        ended_max: int = 1 << 16,
    ) -> None:
        self.watermark = watermark
        self.decided = decided
        self.clients_know = clients_know
        self._ended_max = ended_max
        self._queue: list[_Block] = []
        self._front = 0  # blocks before it have left
        self._fed = 0  # records
        self._open: dict[int, OpenPrewrite] = {}
        # Two generations, of which the older goes as a whole: forgetting costs nothing for each record.
        self._ended: set[int] = set()
        self._ended_before: set[int] = set()
        self._settled_inside = 0

    # -- events ----------------------------------------------------------------------------------

    def feed(self, records: Sequence[LogRecord], now_s: float, ahead: int | None = None) -> list[Effect]:
        """Records in log order, each indexed already. `ahead`: they are a group that was acknowledged when so
        many of the records behind them had come; None if nothing is known but their order."""
        published = self.watermark
        effects: list[Effect] = []
        opened = self._open
        block: _Block | None = None
        first = self._fed
        self._fed += len(records)
        acknowledged = 0 if ahead is None else self._fed + ahead
        for number, (tp, start_ts, commit_ts, place) in enumerate(records, first):
            if tp == PREWRITE:
                if start_ts in opened or start_ts == 0 or self._has_ended(start_ts):
                    self._pass(0, place, number)
                    continue
                if block is None or ahead is None or not block.open_count:
                    block = _Block(start_ts, acknowledged, place)
                    self._queue.append(block)
                elif start_ts < block.start_ts:
                    block.start_ts = start_ts
                block.last_place = place
                block.open_count += 1
                opened[start_ts] = OpenPrewrite(start_ts, place, now_s, block)
                continue
            if not commit_ts and tp == ROLLBACK and not self.clients_know:
                if start_ts in opened:
                    effects.append(GivenUp(start_ts))
                self._pass(0, place, number)
                continue
            if (
                start_ts != commit_ts
                and (was_open := self._end(start_ts)) is not None
                and 0 < commit_ts <= published
            ):
                effects.append(Late(start_ts, commit_ts, was_open))
            self._pass(commit_ts, place, number)
        self._compact()
        if self.watermark > published:
            effects.append(Advanced(self.watermark, self.decided))
        return effects

    def mark(self, ts: int) -> list[Effect]:
        """A timestamp that was drawn before now, though after everything fed so far was acknowledged."""
        published = self.watermark
        self._pass(ts, None, _LAST)
        return [Advanced(self.watermark, self.decided)] if self.watermark > published else []

    def _end(self, start_ts: int) -> bool | None:
        """Settle a transaction; whether it was open, None if it has ended before."""
        entry = self._open.pop(start_ts, None)
        if entry is not None:
            block = entry.block
            block.open_count -= 1
            if not block.open_count:
                self._settled_inside += 1
        elif self._has_ended(start_ts):
            return None
        ended = self._ended
        ended.add(start_ts)
        if len(ended) >= self._ended_max:
            self._ended, self._ended_before = set(), ended
        return entry is not None

    def _has_ended(self, start_ts: int) -> bool:
        return start_ts in self._ended or start_ts in self._ended_before

    def _pass(self, ts: int, place: ValuePointer | None, number: int) -> None:
        """Record `number` was read: its timestamp joins the queue as far ahead as it may; let settled blocks
        leave."""
        queue, front = self._queue, self._front
        if front == len(queue):
            if ts > self.watermark:
                self.watermark = ts
            if place is not None:
                self.decided = place
            return
        if place is not None:
            queue[-1].last_place = place
        if ts > self.watermark:
            self._join(ts, number)
        if queue[front].open_count:
            return
        while front < len(queue) and not (block := queue[front]).open_count:
            if block.max_ts > self.watermark:
                self.watermark = block.max_ts
            self.decided = block.last_place
            front += 1
        self._settled_inside -= front - self._front
        self._front = front

    def _join(self, ts: int, number: int) -> None:
        """Have the timestamp of record `number` wait for the last block that may commit at or below it."""
        queue, at = self._queue, len(self._queue) - 1
        lowest = max(self._front, at - _LOOK_BACK)
        while (block := queue[at]).open_count == 0 or number < block.acknowledged or ts <= block.start_ts:
            if at == lowest:
                break
            at -= 1
        else:
            lowest = -1
        if at == self._front == lowest:  # none is in its way
            self.watermark = ts
        elif ts > block.max_ts:
            block.max_ts = ts

    def _compact(self) -> None:
        """Drop what has left, and merge settled entries that follow an open one."""
        if self._front > 1024 or self._front == len(self._queue):
            del self._queue[: self._front]
            self._front = 0
        if self._settled_inside <= len(self._open) + 1024:
            return
        merged: list[_Block] = []
        for block in self._queue[self._front :]:
            if merged and not block.open_count:
                before = merged[-1]
                before.max_ts = max(before.max_ts, block.max_ts)
                before.last_place = block.last_place
            else:
                merged.append(block)
        self._queue, self._front = merged, 0
        self._settled_inside = sum(not block.open_count for block in merged)

    # -- questions -------------------------------------------------------------------------------

    @property
    def open_count(self) -> int:
        return len(self._open)

    def open_prewrites(self) -> Iterable[OpenPrewrite]:
        """Open prewrites, the longest open first."""
        return self._open.values()

    def is_open(self, start_ts: int) -> bool:
        return start_ts in self._open

    def open_prewrite(self, start_ts: int) -> OpenPrewrite | None:
        return self._open.get(start_ts)

    def check(self) -> None:
        """Assert what must hold between calls."""
        waiting = self._queue[self._front :]
        assert not waiting or waiting[0].open_count
        assert self._settled_inside == sum(not block.open_count for block in waiting)
        for block in waiting:
            held = [entry for entry in self._open.values() if entry.block is block]
            assert len(held) == block.open_count
            assert all(entry.start_ts >= block.start_ts for entry in held)
        assert sum(block.open_count for block in waiting) == len(self._open)
        places = [entry.place for entry in self._open.values()]
        assert places == sorted(places)
        assert len(self._ended) < self._ended_max
        assert len(self._ended_before) <= self._ended_max

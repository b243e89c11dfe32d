"""Sorter: turns arrival order into a watermark at or below which every commit is known.

In     records in log order (`feed`), timestamps drawn from the oracle (`mark`)
Out    `Advanced(watermark, decided)`, `Late(start_ts, commit_ts)`, `GivenUp(start_ts)`
Why    a commit timestamp is drawn after its prewrite was acknowledged. So once every prewrite written before
       some place is settled, no commit that arrives later can carry a timestamp smaller than one drawn
       while that place was the end of the log
       But whoever writes a commit may lie about its timestamp, and would hide what others commit below it:
       the watermark comes from `mark` alone
       A client's rollback settles nothing where clients may be wrong: its prewrite stays open until the store
       was asked, and what the pump then writes itself settles it
Holds  the watermark never falls; memory grows with open prewrites only, not with what came after them
Never  touches disk, network or clock; the indexer drives it

The queue holds an entry for each open prewrite in log order; an entry carries the largest timestamp and the
last place seen between its prewrite and the next entry. Settled entries leave from the front, each taking
its timestamp into the watermark.

A prewrite that arrives after the end of its transaction (a client repeated it, or the two changed places)
is settled at once as long as the end is among the last `ended_max` at least; otherwise it stays open until
the upstream is asked, which is slower and equally right.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final

from pump.log.record import START, LogRecord, ValuePointer
from tidb_binlog.binlog import PREWRITE, ROLLBACK
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts

OPEN_MAX: Final = 1 << 18
"""Prewrites that a pump lets be open at once; each costs 1 KiB at most, asked about or not."""
_SLACK: Final = 1024  # entries that have left, or are settled, before the queue is made anew
_place_of = attrgetter("place")


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

    start_ts: Ts
    commit_ts: Ts
    was_open: bool


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The client of an open prewrite says that it rolled back: worth a question now."""

    start_ts: Ts


Effect = Advanced | Late | GivenUp


@dataclass(slots=True)
class OpenPrewrite:
    """A prewrite without an end. `since_s`: when it was fed, on the caller's clock."""

    start_ts: Ts
    place: ValuePointer
    since_s: float
    last_place: ValuePointer  # of the records between this prewrite and the next entry
    max_ts: Ts = 0  # the largest timestamp among them
    settled: bool = False


@dataclass(frozen=True, slots=True)
class Prewrites:
    """How many prewrites have no end yet, and how many may; whether ends are asked for at their keys."""

    open: int = 0
    most: int = OPEN_MAX
    need_keys: bool = False

    @property
    def are_full(self) -> bool:
        """No prewrite enters."""
        return self.open >= self.most


NO_PREWRITES: Final = Prewrites()


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
        self._queue: list[OpenPrewrite] = []
        self._front = 0  # entries before it have left
        self._open: dict[int, OpenPrewrite] = {}
        # Two generations, of which the older goes as a whole: forgetting costs nothing for each record.
        self._ended: dict[int, int] = {}  # start_ts: commit_ts, 0 of what was rolled back
        self._ended_before: dict[int, int] = {}
        self._settled_inside = 0

    # -- events ----------------------------------------------------------------------------------

    def feed(self, records: Iterable[LogRecord], now_s: float) -> list[Effect]:
        """Records in log order, each indexed already."""
        published = self.watermark
        effects: list[Effect] = []
        opened, queue = self._open, self._queue
        for tp, start_ts, commit_ts, place in records:
            if tp == PREWRITE:
                if start_ts not in opened and start_ts != 0 and not self._has_ended(start_ts):
                    opened[start_ts] = entry = OpenPrewrite(start_ts, place, now_s, place)
                    queue.append(entry)
                    continue
            elif not commit_ts and tp == ROLLBACK and not self.clients_know:
                if start_ts in opened:
                    effects.append(GivenUp(start_ts))
            elif (
                start_ts != commit_ts
                and (was_open := self._end(start_ts, commit_ts)) is not None
                and 0 < commit_ts <= published
            ):
                effects.append(Late(start_ts, commit_ts, was_open))
            self._pass(0, place)
        self._compact()
        if self.watermark > published:
            effects.append(Advanced(self.watermark, self.decided))
        return effects

    def mark(self, ts: Ts) -> list[Effect]:
        """A timestamp that was drawn before now, though after everything fed so far was acknowledged."""
        published = self.watermark
        self._pass(ts, None)
        return [Advanced(self.watermark, self.decided)] if self.watermark > published else []

    def _end(self, start_ts: Ts, commit_ts: Ts) -> bool | None:
        """Settle a transaction; whether it was open, None if it has ended before. One that had been rolled
        back counts as open when a commit of it comes."""
        entry = self._open.pop(start_ts, None)
        if entry is not None:
            entry.settled = True
            self._settled_inside += 1
        undone = entry is None and self._has_ended(start_ts)
        if undone and (not commit_ts or self._ended.get(start_ts) or self._ended_before.get(start_ts)):
            return None
        ended = self._ended
        ended[start_ts] = commit_ts
        if len(ended) >= self._ended_max:
            self._ended, self._ended_before = {}, ended
        return entry is not None or undone

    def _has_ended(self, start_ts: Ts) -> bool:
        return start_ts in self._ended or start_ts in self._ended_before

    def _pass(self, ts: Ts, place: ValuePointer | None) -> None:
        """A timestamp stands at the end of the queue; let settled entries leave."""
        queue, front = self._queue, self._front
        if front == len(queue):
            if ts > self.watermark:
                self.watermark = ts
            if place is not None:
                self.decided = place
            return
        last = queue[-1]
        if ts > last.max_ts:
            last.max_ts = ts
        if place is not None:
            last.last_place = place
        if not queue[front].settled:
            return
        while front < len(queue) and (entry := queue[front]).settled:
            if entry.max_ts > self.watermark:
                self.watermark = entry.max_ts
            self.decided = entry.last_place
            front += 1
        self._settled_inside -= front - self._front
        self._front = front

    def _compact(self) -> None:
        """Drop what has left, and merge settled entries that follow an open one."""
        if self._front > _SLACK or self._front == len(self._queue):
            del self._queue[: self._front]
            self._front = 0
        if self._settled_inside <= len(self._open) + _SLACK:
            return
        merged: list[OpenPrewrite] = []
        for entry in self._queue[self._front :]:
            if entry.settled and merged:
                before = merged[-1]
                before.max_ts = max(before.max_ts, entry.max_ts)
                before.last_place = entry.last_place
            else:
                merged.append(entry)
        self._queue, self._front = merged, 0
        self._settled_inside = sum(entry.settled for entry in merged)

    # -- questions -------------------------------------------------------------------------------

    @property
    def open_count(self) -> int:
        return len(self._open)

    def open_prewrites(self) -> Iterable[OpenPrewrite]:
        """Open prewrites, the longest open first."""
        return self._open.values()

    def open_after(self, place: ValuePointer) -> Iterator[OpenPrewrite]:
        """Prewrites behind a place, in log order; settled ones may be among them."""
        queue = self._queue
        for at in range(bisect_right(queue, place, self._front, key=_place_of), len(queue)):
            yield queue[at]

    def is_open(self, start_ts: Ts) -> bool:
        return start_ts in self._open

    def open_prewrite(self, start_ts: Ts) -> OpenPrewrite | None:
        return self._open.get(start_ts)

    def check(self) -> None:
        """Assert what must hold between calls."""
        waiting = self._queue[self._front :]
        assert not waiting or not waiting[0].settled
        assert [entry.start_ts for entry in waiting if not entry.settled] == list(self._open)
        assert all(entry.start_ts in self._open for entry in waiting if not entry.settled)
        assert self._settled_inside == sum(entry.settled for entry in waiting)
        places = [entry.place for entry in waiting]
        assert places == sorted(places)
        assert len(self._ended) < self._ended_max
        assert len(self._ended_before) <= self._ended_max

"""Merger: the streams of all pumps become one stream, ordered by commit_ts.

In     add_source, push (entries and a watermark), end
Out    pop: the entries that are next, in order, and the watermark reached; awaits: who is waited for
Holds  what is emitted is strictly increasing in commit_ts; an entry is emitted only when every source has
       promised (its floor) that nothing at or below it is still to come
Why    a source is ready (has an entry at or below the common floor), pending (its floor holds back the
       others) or ended (it promises nothing more will come, its queued entries still go out in order).
       A pump that is paused, dead or slow is pending; silence is never taken for an end.
       `ceiling`: nothing above it leaves, whatever the sources promise: there may be more of them.
Never  drops an entry. A source that breaks its order or its promise, and two sources that differ about one
       commit_ts, stop the stream: both would be silent loss otherwise. The same transaction from two pumps
       (a prewrite that was retried on another pump after its reply was lost) is emitted once.

Work is done in batches: whole pushes are checked and sorted by built-in functions; with one source a pop is
a slice. Memory: `push` takes what it is given, so the caller bounds it by what it asks the pumps for;
`Popped.released` says how much of each source's has left the merger's source queues.
"""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

from drainer.stream.pull.merged import Merged
from tidb_binlog import binlog
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.record import crc32c
from tidb_binlog.tso import TS_MAX, Ts

_ENDED_FLOOR: Final = TS_MAX


class OrderBroken(Corruption):
    """A source broke its order or its promise, or two differ about one transaction."""


@dataclass(frozen=True, slots=True)
class Popped:
    """Entries in order, the watermark reached with them, and payload bytes released, by source."""

    entries: list[Merged]
    watermark: int
    released: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Source:
    floor: int
    entries: list[Merged] = field(default_factory=list)
    head: int = 0
    last_ts: Ts = 0
    ended: bool = False

    def take_to(self, limit: int) -> list[Merged]:
        """Remove and return the entries at or below `limit`."""
        entries = self.entries
        if entries[-1].commit_ts <= limit:
            taken = entries[self.head :] if self.head else entries
            self.entries, self.head = [], 0
            return taken
        cut = bisect_right(entries, limit, self.head, key=_commit_ts)
        taken = entries[self.head : cut]
        self.head = cut
        if self.head > len(entries) // 2:
            del entries[: self.head]
            self.head = 0
        return taken


_commit_ts = operator.itemgetter(0)
_payload = operator.itemgetter(1)


class Merger:
    """`after_ts` is the position of the consumer: nothing at or below it is wanted or emitted."""

    def __init__(self, after_ts: Ts, *, ceiling: int = TS_MAX) -> None:
        self.ceiling = ceiling
        self._sources: dict[str, _Source] = {}
        self._merged_ts = after_ts  # every entry at or below it has left the source queues
        self._emitted_ts = after_ts
        self._ready: list[Merged] = []
        self._ready_head = 0
        self._totals: list[int] = []  # payload bytes of _ready up to and including each entry

    # -- membership -----------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """A new source starts after this timestamp: everything at or below it is merged."""
        return self._merged_ts

    @property
    def watermark(self) -> int:
        """Everything at or below it has been popped."""
        return self._emitted_ts

    @property
    def is_held_by_ceiling(self) -> bool:
        """Whether the sources have promised more than may leave."""
        return self.reach > self.ceiling

    @property
    def reach(self) -> int:
        """Up to where the sources that there are have promised everything."""
        live = [source.floor for source in self._sources.values() if not source.ended]
        if live:
            return min(live)
        # only ended sources: what they left goes out, and the position ends with it
        return max((source.last_ts for source in self._sources.values()), default=self._merged_ts)

    @property
    def source_ids(self) -> tuple[str, ...]:
        """Names the pumps whose binlogs are merged now."""
        return tuple(self._sources)

    def add_source(self, source_id: str, floor: int) -> None:
        """A stream that starts after `floor` joins; from now on it is waited for."""
        assert source_id not in self._sources
        self._sources[source_id] = _Source(floor=floor, last_ts=floor)

    def end(self, source_id: str) -> None:
        """Nothing more comes from this source, by decision of the registry. What it sent still goes out."""
        source = self._sources[source_id]
        source.ended = True
        source.floor = _ENDED_FLOOR
        if not source.entries:
            del self._sources[source_id]

    def floor(self, source_id: str) -> int | None:
        """What the source has promised; None when it is not (any more) in the merger, or ended."""
        source = self._sources.get(source_id)
        return None if source is None or source.ended else source.floor

    # -- input ----------------------------------------------------------------------------------------

    def push(self, source_id: str, entries: Sequence[Merged], watermark: int) -> bool:
        """Entries that follow on all earlier ones of the source, and its watermark (0: none); whether this
        is more than was known.

        Raises `OrderBroken` when they are not ascending or not above what the source has promised.
        """
        source = self._sources[source_id]
        assert not source.ended
        if entries:
            self._check_order(source_id, source, entries)
            source.entries.extend(entries)
            source.last_ts = entries[-1].commit_ts
            source.floor = max(source.floor, source.last_ts)
        if watermark > source.floor:
            source.floor = watermark
            return True
        return bool(entries)

    @staticmethod
    def _check_order(source_id: str, source: _Source, entries: Sequence[Merged]) -> None:
        hint = f"`binlogctl -cmd pumps` shows where {source_id} is; check its data directory"
        first = entries[0].commit_ts
        if first <= source.floor:
            raise OrderBroken(
                f"pump {source_id} sent commit_ts {first} after it had promised everything up to "
                f"{source.floor} (its last binlog had commit_ts {source.last_ts})",
                hint=hint,
            )
        if len(entries) > 1:
            stamps = list(map(_commit_ts, entries))
            if not all(map(operator.lt, stamps, stamps[1:])):
                before, after = next((a, b) for a, b in pairwise(stamps) if a >= b)
                raise OrderBroken(
                    f"pump {source_id} sent commit_ts {after} after commit_ts {before}", hint=hint
                )

    # -- output ---------------------------------------------------------------------------------------

    def pop(self, bytes_max: int) -> Popped:
        """The next entries, at most `bytes_max` of payload (but at least one entry if there is any).

        Raises `OrderBroken` when two sources differ about a commit_ts.
        """
        released: dict[str, int] = {}
        if self._ready_head == len(self._ready):
            released = self._merge()
        ready, head, totals = self._ready, self._ready_head, self._totals
        end = len(ready)
        if head < end:
            gone = totals[head - 1] if head else 0
            if totals[-1] - gone > bytes_max:
                end = max(head + 1, bisect_right(totals, gone + bytes_max, head))
        if end == len(ready):
            taken = ready[head:] if head else ready
            self._ready, self._ready_head, self._totals = [], 0, []
            self._emitted_ts = self._merged_ts
        else:
            taken = ready[head:end]
            self._ready_head = end
            self._emitted_ts = taken[-1].commit_ts
        return Popped(taken, self._emitted_ts, released)

    def awaits(self) -> dict[str, int]:
        """Source by source, the watermark it must reach before the smallest waiting entry can go out.

        Empty when nothing waits, so an idle merger asks for nothing.
        """
        heads = [source.entries[source.head].commit_ts for source in self._sources.values() if source.entries]
        if not heads:
            return {}
        smallest = min(heads)
        return {name: smallest for name, source in self._sources.items() if source.floor < smallest}

    @property
    def newest_waiting(self) -> int:
        """The largest commit_ts that waits for other sources; 0 if nothing does."""
        return max((source.last_ts for source in self._sources.values() if source.entries), default=0)

    def _merge(self) -> dict[str, int]:
        """Move what the common floor allows from the sources into `_ready`; bytes moved, by source."""
        limit = min(self.reach, self.ceiling)
        if limit <= self._merged_ts:
            return {}
        released: dict[str, int] = {}
        pieces: list[tuple[str, list[Merged]]] = []
        for name, source in list(self._sources.items()):
            if source.entries and source.entries[source.head].commit_ts <= limit:
                piece = source.take_to(limit)
                pieces.append((name, piece))
                released[name] = sum(map(len, map(_payload, piece)))
            if source.ended and not source.entries:
                del self._sources[name]
        self._merged_ts = limit
        if len(pieces) == 1:
            self._ready = pieces[0][1]
        elif pieces:
            self._ready = _merge_pieces(pieces)
        self._totals = list(accumulate(map(len, map(_payload, self._ready))))
        return released

    def check(self) -> None:
        """Assert every invariant; for tests."""
        assert self._emitted_ts <= self._merged_ts
        for source in self._sources.values():
            waiting = [entry.commit_ts for entry in source.entries[source.head :]]
            assert waiting == sorted(set(waiting))
            assert bool(source.entries) == bool(waiting)
            if waiting:
                assert waiting[0] > self._merged_ts
                assert waiting[-1] == source.last_ts
                assert source.last_ts <= source.floor
            assert waiting or not source.ended
        ready = [entry.commit_ts for entry in self._ready[self._ready_head :]]
        assert ready == sorted(set(ready))
        assert not ready or self._emitted_ts < ready[0] <= ready[-1] <= self._merged_ts


def _merge_pieces(pieces: list[tuple[str, list[Merged]]]) -> list[Merged]:
    """One ascending list; equal transactions collapse, different ones under one commit_ts raise."""
    merged: list[Merged] = []
    for _, piece in pieces:
        merged += piece
    merged.sort(key=_commit_ts)  # stable, and fast on runs that are ascending already
    stamps = list(map(_commit_ts, merged))
    if all(map(operator.lt, stamps, stamps[1:])):
        return merged
    unique: list[Merged] = []
    for entry in merged:
        if unique and unique[-1].commit_ts == entry.commit_ts:
            if not same_transaction(unique[-1], entry):
                raise _conflict(pieces, entry.commit_ts)
        else:
            unique.append(entry)
    return unique


def same_transaction(left: Merged, right: Merged) -> bool:
    """Whether two binlogs of one commit_ts are one transaction: start_ts and all from field 5 on.

    Fields 1 and 4 may differ: a commit that a pump wrote itself after asking the store has no key.
    """
    if left.spilled is not None or right.spilled is not None:
        return _contents(left) == _contents(right)
    if left.payload == right.payload:
        return True
    a, b = binlog.parse(left.payload), binlog.parse(right.payload)
    return (a.start_ts, a.prewrite_value, a.ddl_query, a.ddl_job_id, a.ddl_schema_state) == (
        b.start_ts,
        b.prewrite_value,
        b.ddl_query,
        b.ddl_job_id,
        b.ddl_schema_state,
    )


def _contents(entry: Merged) -> tuple[int, int, int]:
    if entry.spilled is not None:
        return entry.spilled.contents
    rest = entry.payload[binlog.contents_offset(entry.payload) :]
    return binlog.parse(entry.payload).start_ts, len(rest), crc32c(rest)


def _conflict(pieces: list[tuple[str, list[Merged]]], commit_ts: Ts) -> OrderBroken:
    holders = []
    for name, piece in pieces:
        duplicate = next((entry for entry in piece if entry.commit_ts == commit_ts), None)
        if duplicate is not None:
            kept = duplicate.spilled
            start_ts = kept.start_ts if kept else binlog.parse(duplicate.payload).start_ts
            holders.append(
                f"{name} (start_ts {start_ts}, {kept.size if kept else len(duplicate.payload)} bytes)"
            )
    return OrderBroken(
        f"pumps {' and '.join(holders)} differ about the transaction with commit_ts {commit_ts}",
        hint="commit timestamps are unique within a cluster: check that the pumps serve the same cluster",
    )

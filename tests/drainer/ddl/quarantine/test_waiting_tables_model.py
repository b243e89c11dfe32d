"""Quarantine, exhaustively: every interleaving of stream, lanes, refusals, decisions, release and checkpoint,
with a kill at every step, against the serial order.

The world below is a downstream that remembers in which order each table got its changes, two lanes, the
stored rows, and the driver's steps as they are in the shells, each as small as what the downstream takes in
one transaction. At any time each table must hold a prefix of its changes in serial order: nothing is lost
in the middle, done twice, or done too early; and nothing at or below the checkpoint may be missing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from drainer.ddl.quarantine.entry import ROWS, Decision, Entry, Floor, name_of
from drainer.ddl.quarantine.queue_state import QueueState
from drainer.ddl.quarantine.rows_entry import rows_entry
from drainer.ddl.quarantine.shards import Shards
from drainer.ddl.quarantine.waiting_tables import DdlClass, Quarantine, Queue
from drainer.ddl.rules import SKIP
from drainer.mysql.refusal import Refusal, RowsRefused
from drainer.mysql.rows.change import COMPLETE, Position
from drainer.mysql.rows.table_target import target_of
from drainer.txn import INSERT, Ddl, TableEvents, TableVersion, Tracked, Transaction
from tests.drainer.support.exhaustive import explore
from tidb_binlog.clock import SystemClock
from tidb_binlog.table_info import FLAG_NOT_NULL, FLAG_PRIMARY, LONG, Column, FieldType, TableInfo

TABLES = {
    name: TableVersion(TableInfo(number, name, ()), "d", name, 1) for number, name in enumerate("tuv", 1)
}
LANES = 2
TARGETS = {name: target_of(version, LANES) for name, version in TABLES.items()}
COLUMNS = (
    Column(1, "id", 0, FieldType(LONG, FLAG_NOT_NULL | FLAG_PRIMARY)),
    Column(2, "c", 1, FieldType(LONG)),
)
SHARDS = {
    name: TableVersion(
        TableInfo(
            "xyz".index(name.lower()) + 4, name.lower(), COLUMNS[: 1 + name.islower()], pk_is_handle=True
        ),
        "d", name.lower(), 1, ("d", "all"),
    )
    for name in "xyzXYZ"
}  # fmt: skip
"""Tables that are one downstream; in capitals without the column that each of them drops."""


def row(commit_ts: int, *names: str) -> Transaction:
    """One row event in each of the tables."""
    events = tuple(
        TableEvents((TABLES | SHARDS)[name], (INSERT,), [name.encode()], ordinal)
        for ordinal, name in enumerate(names)
    )
    return Transaction(commit_ts - 1, commit_ts, events, len(names))


def rows(commit_ts: int, name: str, count: int) -> Transaction:
    """So many row events of one table."""
    events = TableEvents(TABLES[name], (INSERT,) * count, [name.encode()] * count, 0)
    return Transaction(commit_ts - 1, commit_ts, (events,), count)


def ddl(commit_ts: int, *names: str, refusable: bool = False) -> Ddl:
    """`refusable` says whether the downstream may refuse it."""
    tables = tuple(("d", "" if name == "*" else name) for name in names)
    return Ddl(commit_ts, commit_ts, 5, "d", "refusable" if refusable else "fine", tables, commit_ts)


def bad(commit_ts: int, *names: str) -> Ddl:
    return ddl(commit_ts, *names, refusable=True)


def drop(commit_ts: int, name: str) -> Ddl:
    """The table is gone, and its rows are in the bin."""
    return replace(ddl(commit_ts, name), before=(Tracked("d", name, {"id": TABLES[name].id}),))


def flashback(commit_ts: int, name: str, new: str) -> Ddl:
    """The dropped table is back, under any name, with the id and the rows that it had."""
    return replace(ddl(commit_ts, new), after=(Tracked("d", new, {"id": TABLES[name].id}),))


def tracked(name: str) -> Tracked:
    return Tracked("d", name.lower(), SHARDS[name].info.to_json())


def narrow(commit_ts: int, name: str) -> Ddl:
    """A shard drops the column; `shared` is asked anew."""
    return Ddl(
        commit_ts, commit_ts, 6, "d", "fine", (("d", name),), commit_ts, before=(tracked(name),),
        after=(tracked(name.upper()),), targets=(("d", "all"),), shared=(tracked(name),), apart=True,
    )  # fmt: skip


Item = Transaction | Ddl


def names_of(item: Item) -> list[str]:
    """Of a transaction one for each row event."""
    if isinstance(item, Transaction):
        return [events.table.name for events in item.tables for _ in events.rows]
    names = {table for _, table in item.tables}
    return sorted(TABLES) if "" in names else sorted(names)


def order(item: Item) -> tuple[int, int]:
    """Two queues may each have a part of one transaction."""
    return item.commit_ts, item.tables[0].first_ordinal if isinstance(item, Transaction) else 0


IDS = {name: version.id for name, version in (TABLES | SHARDS).items()}


@dataclass
class World:
    """What is durable, then what a process knows."""

    stream: tuple[Item, ...]
    kills: int
    refusable: frozenset[str] = frozenset()
    """Tables whose rows may be refused, once."""
    contents: dict[str, tuple[int, ...]] = field(default_factory=lambda: dict.fromkeys((*TABLES, *"xyz"), ()))
    lanes: tuple[int, ...] = (0,) * LANES
    checkpoint: tuple[int, int] = (0, 0)
    intent: int = 0
    entries: dict[int, Entry] = field(default_factory=dict)
    # of the process
    quarantine: Quarantine = field(default_factory=Quarantine)
    place: int = 0  # index of the next item of the stream
    queued: tuple[tuple[tuple[int, str], ...], ...] = ((),) * LANES
    kept: dict[int, tuple[Item, ...]] = field(default_factory=dict)
    started: tuple[int, ...] = (0,) * LANES
    schema_version: int = 0
    ran: int = 0  # the DDL of the barrier that has run and is not recorded
    schema_ts: int = 0

    def key(self) -> Any:
        queues = tuple(
            (
                tuple(sorted(queue.entries)),
                queue.state is QueueState.CAUGHT_UP,
                tuple(item.commit_ts for item in self.kept[queue.number]),
            )
            for queue in self.quarantine.queues
        )
        entries = tuple(
            (e.job_id, e.position, e.decision, e.intent_ts, tuple(sorted(e.tables.items())), e.floor)
            for _, e in sorted(self.entries.items())
        )
        contents = tuple(sorted(self.contents.items()))
        return (contents, self.lanes, self.checkpoint, self.intent, entries, queues, self.place, self.queued,
                self.refusable, self.started, self.kills, self.ran, self.schema_ts,
                self.quarantine.is_where_it_was)  # fmt: skip

    def copy(self) -> World:
        other = replace(self, contents=dict(self.contents), entries=dict(self.entries), kept=dict(self.kept))
        quarantine = Quarantine((), self.quarantine._highest_ts, self.quarantine._pending_ts)
        quarantine._numbers, quarantine._seen_ts = self.quarantine._numbers, self.quarantine._seen_ts
        quarantine._queues = [
            replace(q, entries=dict(q.entries), ddls=list(q.ddls), rows=dict(q.rows))
            for q in self.quarantine.queues
        ]
        quarantine._reindex()
        other.quarantine = quarantine
        return other

    # -- the process --------------------------------------------------------------------------------

    def restart(self, kills: int = 1) -> None:
        """A kill and a start: everything that is not durable is gone."""
        self.kills -= kills
        self.schema_ts = 0
        self.lanes = tuple(max(lane, self.checkpoint[0]) for lane in self.lanes)
        self.quarantine = Quarantine(self.entries.values(), max(self.lanes), self.intent)
        self.kept = {queue.number: () for queue in self.quarantine.queues}
        self.started = self.lanes
        self.queued = ((),) * LANES
        self.ran = 0
        after = self.checkpoint[0] if self.entries else min(self.lanes)
        self.place = sum(item.commit_ts <= after for item in self.stream)
        self.schema_version = self.checkpoint[1]

    def stored(self, entry: Entry, *others: int, lanes_at: int = 0) -> None:
        for job_id in others:
            self.entries.pop(job_id, None)
        self.entries[entry.job_id] = entry
        if lanes_at:
            assert all(lane <= lanes_at for lane in self.lanes)
            self.lanes = (lanes_at,) * LANES

    @property
    def drained(self) -> bool:
        return not any(self.queued)

    @property
    def now_ts(self) -> int:
        return self.stream[self.place - 1].commit_ts if self.place else 0

    def note(self, item_ts: int, names: list[str]) -> None:
        for name in names:
            self.contents[name] += (item_ts,)

    def take_row(self, item: Transaction) -> None:
        rest, parts = self.quarantine.divert(item)
        for lane in range(LANES):
            names = "".join(name for name in names_of(rest) if IDS[name] % LANES == lane)
            if names and item.commit_ts > self.started[lane]:
                queue = (*self.queued[lane], (item.commit_ts, names))
                self.queued = tuple(queue if n == lane else q for n, q in enumerate(self.queued))
        for queue_of, part in parts:
            self.kept[queue_of.number] += (part,)
        self.place += 1

    def take_ddl(self, item: Ddl) -> Iterator[World]:
        """All lanes are drained."""
        joins = self.quarantine.joins(item)
        classified = self.quarantine.classify(item)
        assert joins or not classified.absorbed, "release may be at work on what it joins"
        if classified.ddl_class is DdlClass.KEPT:
            assert joins is bool(classified.absorbed), "release is stopped for nothing"
        if classified.ddl_class is DdlClass.FREE:
            if self.intent != item.commit_ts and (reason := self.in_the_way(item)):
                yield self.refused(item, reason)
            else:
                yield from self.run_ddl(item)
            return
        if classified.ddl_class is DdlClass.PASSED:
            assert all(item.commit_ts in self.contents[name] for name in names_of(item))
        if classified.ddl_class is DdlClass.KEPT:
            assert classified.queue is not None
            for other in classified.absorbed:
                both = (*self.kept[classified.queue.number], *self.kept.pop(other.number))
                self.kept[classified.queue.number] = tuple(sorted(both, key=order))
            if classified.changed is not None:
                self.stored(classified.changed, lanes_at=item.commit_ts)
            self.kept[classified.queue.number] += (item,)
        self.schema_version, self.schema_ts = item.schema_version, item.commit_ts
        self.place += 1
        yield self

    def run_ddl(self, item: Ddl) -> Iterator[World]:
        if not self.ran and self.intent != item.commit_ts:
            self.begin_ddl(item)
            self.intent = item.commit_ts
            yield self
        elif not self.ran:
            names = names_of(item)
            if item.query == "refusable" and item.commit_ts not in self.contents[names[0]]:
                yield self.copy().refused(item, "refused")
            if item.commit_ts not in self.contents[names[0]]:  # had_run otherwise
                self.note(item.commit_ts, names)
            self.ran = item.commit_ts
            yield self
        else:
            self.intent = self.ran = 0
            self.stored_lanes(item.commit_ts)
            self.schema_version, self.schema_ts = item.schema_version, item.commit_ts
            self.place += 1
            self.save(item.commit_ts)
            yield self

    def refused(self, item: Ddl, reason: str) -> World:
        tables = {name_of(*name): item.commit_ts for name in item.tables}
        floor, before = Floor(item.commit_ts - 1, self.schema_version), Position(item.commit_ts - 1)
        entry = Entry(item.job_id, item.commit_ts, floor, tables, before, "", reason)
        queue = self.quarantine.begin(entry, item)
        self.kept[queue.number] = (item,)
        self.stored(entry, lanes_at=item.commit_ts)
        self.intent = 0
        self.schema_version, self.schema_ts = item.schema_version, item.commit_ts
        self.place += 1
        return self

    def in_the_way(self, item: Ddl) -> str:
        """By the other tables as they are at this place of the stream."""
        had = {names_of(one)[0] for one in self.stream[: self.place] if isinstance(one, Ddl) and one.shared}
        there = {name for one in self.stream for name in names_of(one) if name in "xyz"}
        others = sorted(there - set(names_of(item)))
        now = tuple(tracked(name.upper() if name in had else name) for name in others)
        return Shards(self.quarantine, lambda names: now).in_the_way(item)

    @property
    def paused(self) -> bool:
        """Nothing goes downstream but what release brings."""
        return self.drained and not self.ran

    def begin_ddl(self, item: Ddl) -> None:
        """The shape is taken, by which a later life sees whether it has run: it is not run twice."""
        done = [name for name in names_of(item) if item.commit_ts in self.contents[name]]
        assert not done, f"DDL {item.commit_ts} runs again, of {done}"

    def stored_lanes(self, commit_ts: int) -> None:
        assert all(lane <= commit_ts for lane in self.lanes)
        self.lanes = (commit_ts,) * LANES

    def save(self, resolved_ts: int) -> None:
        wanted = (resolved_ts, self.schema_version)
        floor = self.quarantine.floor
        self.checkpoint = max(self.checkpoint, wanted if floor is None else min(wanted, (*floor,)))

    # -- all that may happen next -------------------------------------------------------------------

    def following(self) -> Iterator[World]:
        if self.place < len(self.stream):
            item = self.stream[self.place]
            if isinstance(item, Transaction):
                other = self.copy()
                other.take_row(item)
                yield other
            elif self.drained:
                yield from self.copy().take_ddl(item)
        for lane, queue in enumerate(self.queued):
            if queue:
                other = self.copy()
                commit_ts, names = queue[0]
                other.note(commit_ts, list(names))
                other.lanes = tuple(commit_ts if n == lane else ts for n, ts in enumerate(other.lanes))
                other.queued = tuple(q[1:] if n == lane else q for n, q in enumerate(other.queued))
                yield other
                yield from self.rows_refused(lane)
        if self.drained and not self.ran and self.now_ts > self.checkpoint[0]:
            other = self.copy()
            other.save(other.now_ts)
            if other.checkpoint != self.checkpoint:
                yield other
        for entry in self.quarantine.entries:
            if entry.decision is None and not entry.done and not entry.waits_for_shards:
                other = self.copy()
                decided = other.quarantine.decide(entry.job_id, Decision(SKIP))
                other.entries[entry.job_id] = replace(other.entries[entry.job_id], decision=decided.decision)
                yield other
        for queue_of in self.quarantine.queues:
            yield from self.release(queue_of.number)
            if self.drained and not self.ran and self.quarantine.may_close(queue_of, self.now_ts):
                other = self.copy()
                (same,) = [q for q in other.quarantine.queues if q.number == queue_of.number]
                assert not other.kept[same.number]
                other.stored_lanes(other.now_ts)
                for job_id in same.entries:
                    del other.entries[job_id]
                other.quarantine.close(same, other.now_ts)
                other.save(other.now_ts)
                yield other
        if self.kills:
            other = self.copy()
            other.restart()
            yield other

    def rows_refused(self, lane: int) -> Iterator[World]:
        """The next batch of a lane is refused for one of its tables: all is given up but for the entry."""
        last_ts, _ = self.queued[lane][-1]
        for name in {name for _, names in self.queued[lane] for name in names if name in self.refusable}:
            other = self.copy()
            version = TABLES[name]
            refusal = Refusal(TARGETS[name], "k", False, self.queued[lane][0][0], last_ts)
            refused = RowsRefused("refused", hint="", lane=lane, refusal=refusal)
            last_ddl = Floor(other.schema_ts, other.schema_version)
            entry = rows_entry(refused, version.id, Position(other.lanes[lane]), last_ddl, SystemClock())
            other.refusable = other.refusable - {name}
            other.stored(entry)
            other.restart(kills=0)
            yield other

    def release(self, number: int) -> Iterator[World]:
        """One step of the release of a queue."""
        world = self.copy()
        (queue,) = [q for q in world.quarantine.queues if q.number == number]
        kept = world.kept[number]
        if not kept:
            if queue.state is not QueueState.CAUGHT_UP:
                queue.state = QueueState.CAUGHT_UP
                yield world
            return
        item = kept[0]
        if isinstance(item, Transaction):
            part = world.quarantine.rest_of(item)
            if part.tables:
                if len(names_of(part)) > 1:
                    yield self.copy().refused_after_one(number, part)
                world.note(item.commit_ts, names_of(part))
                more = any(following.commit_ts == item.commit_ts for following in kept[1:])
                end = item.tables[-1].first_ordinal + len(item.tables[-1].rows)
                world.advanced(queue, Position(item.commit_ts, end if more else COMPLETE))
            world.kept[number] = kept[1:]
            yield world
        elif world.quarantine.is_done(item):
            world.kept[number] = kept[1:]
            yield world
        else:
            yield from world.release_ddl(queue, item)

    def refused_after_one(self, number: int, part: Transaction) -> World:
        """The lane has committed the first row event alone, the next one is refused, and all comes again."""
        (queue,) = [q for q in self.quarantine.queues if q.number == number]
        self.note(part.commit_ts, names_of(part)[:1])
        self.advanced(queue, Position(part.commit_ts, part.tables[0].first_ordinal + 1))
        return self

    def release_ddl(self, queue: Queue, item: Ddl) -> Iterator[World]:
        entry = queue.entries.get(item.job_id)
        if entry is not None and entry.decision is None:
            if self.quarantine.entries_before(queue, item):
                self.stop_at(queue, item, entry)
                yield self
                return
            if not entry.waits_for_shards or self.in_the_way(item):
                return
        if item.shared and not self.paused:
            return
        holder = self.quarantine.holder_of(queue, item)
        assert holder.intent_ts == self.entries[holder.job_id].intent_ts
        if holder.intent_ts != item.commit_ts:
            shards = self.in_the_way(item) if entry is None else ""
            for reason in (shards,) if shards else ("refused",) * (item.query == "refusable"):
                other = self.copy()
                (same,) = [q for q in other.quarantine.queues if q.number == queue.number]
                floor = Floor(item.commit_ts - 1, self.version_before(item.commit_ts))
                made = replace(
                    holder, job_id=item.job_id, commit_ts=item.commit_ts, decision=None, floor=floor,
                    reason=reason,
                )  # fmt: skip
                other.stop_at(same, item, made)
                yield other
            if shards:
                return
            self.begin_ddl(item)
            self.quarantine.change(holder, intent_ts=item.commit_ts)
            self.entries[holder.job_id] = replace(self.entries[holder.job_id], intent_ts=item.commit_ts)
            yield self
            return
        if item.commit_ts not in self.contents[names_of(item)[0]]:
            self.note(item.commit_ts, names_of(item))
            yield self
            return
        self.advanced(queue, Position(item.commit_ts))
        self.kept[queue.number] = self.kept[queue.number][1:]
        yield self

    def stop_at(self, queue: Queue, item: Ddl, made: Entry) -> None:
        before = [entry.job_id for entry in self.quarantine.entries_before(queue, item)]
        self.stored(self.quarantine.stop_at(queue, item, made), *before)

    def advanced(self, queue: Queue, position: Position) -> None:
        for entry in self.quarantine.advance(queue, position):
            stored = self.entries[entry.job_id]
            self.entries[entry.job_id] = replace(stored, position=position, intent_ts=entry.intent_ts)

    # -- what must hold -----------------------------------------------------------------------------

    def check(self) -> None:
        for name, done in self.contents.items():
            serial = tuple(item.commit_ts for item in self.stream for one in names_of(item) if one == name)
            assert done == serial[: len(done)], f"{name}: {done} is no prefix of {serial}"
            missing = serial[len(done) :]
            assert not missing or missing[0] > self.checkpoint[0], f"{name}: {missing} below the checkpoint"
        came: dict[int, Ddl] = {}
        for item in self.stream:
            if isinstance(item, Ddl) and not item.shared:
                for one in item.after:
                    assert self.is_done(came[one.id]) or not self.is_done(item), "rows are not in the bin yet"
                came |= {one.id: item for one in item.before}
        self.check_shards()
        floor = self.quarantine.floor
        assert floor is None or self.checkpoint <= tuple(floor)
        version = self.version_before(self.checkpoint[0] + 1)
        assert self.checkpoint[1] == version, "schema version of another place"

    def check_shards(self) -> None:
        """Where the column has gone, no row is to come that has it."""
        drops = {names_of(one)[0]: one for one in self.stream if isinstance(one, Ddl) and one.shared}
        if any(map(self.is_done, drops.values())):
            for item in self.stream:
                for name in names_of(item) if isinstance(item, Transaction) else ():
                    if name in "xyz" and item.commit_ts < drops[name].commit_ts:
                        assert item.commit_ts in self.contents[name], f"row of {name} without its column"

    def is_done(self, item: Ddl) -> bool:
        return any(item.commit_ts in self.contents[name] for name in names_of(item))

    def version_before(self, commit_ts: int) -> int:
        ddls = [item for item in self.stream if isinstance(item, Ddl) and item.commit_ts < commit_ts]
        return ddls[-1].schema_version if ddls else 0

    @property
    def complete(self) -> bool:
        return self.quarantine.is_empty and self.place == len(self.stream) and self.drained

    @property
    def budget(self) -> tuple[int, frozenset[str]]:
        return self.kills, self.refusable

    def check_end(self) -> None:
        assert self.complete, "stuck"


STREAMS: dict[str, tuple[Item, ...]] = {
    "rows around a refused DDL": (
        row(1, "t", "u"), bad(2, "t"), row(3, "u"), row(4, "t"), row(5, "t", "u"), row(6, "u"),
    ),
    "a transaction of several rows": (
        bad(1, "t"), rows(2, "t", 3), row(3, "u", "t"), row(4, "t"),
    ),
    "a DDL of another table between": (
        bad(1, "t"), row(2, "t"), row(3, "u"), ddl(4, "u"), row(5, "u"), row(6, "t"),
    ),
    "a later DDL of the table after it": (
        bad(1, "t"), row(2, "t"), bad(3, "t"), row(4, "t"), row(5, "u"),
    ),
    "another table taken in": (
        row(1, "u"), bad(2, "t"), row(3, "u"), ddl(4, "t", "u"), row(5, "u", "t"), row(6, "v"),
    ),
    "two queues become one": (
        bad(1, "t"), bad(2, "u"), row(3, "t", "u"), ddl(4, "t", "u"), row(5, "u"),
    ),
    "two queues become one, one of them far ahead": (
        bad(1, "t"), row(2, "u", "t"), bad(3, "u"), row(4, "v"), ddl(5, "t", "u"),
        row(6, "t", "v"),
    ),
    "a refused DDL takes in another queue and is refused again": (
        bad(1, "t"), bad(2, "u"), bad(3, "t", "u"), row(4, "u"),
    ),
    "a database": (
        bad(1, "t"), row(2, "u"), ddl(3, "*"), row(4, "u", "t"), row(5, "v"),
    ),
    "a database, then one of its tables": (
        row(1, "t"), bad(2, "*"), row(3, "u"), ddl(4, "u"), row(5, "u"),
    ),
    "a later DDL under way while one of another table is": (
        bad(1, "u"), ddl(2, "u"), ddl(3, "t"), ddl(4, "u"), row(5, "u", "t"),
    ),
    "a DDL of one of two queues under way, which a later one joins": (
        bad(1, "t"), bad(2, "u"), ddl(3, "u"), ddl(4, "t"), ddl(5, "t", "u"), row(6, "t"),
    ),
    "a dropped table comes back under another name": (
        bad(1, "t"), drop(2, "t"), flashback(3, "t", "u"), row(4, "u"), row(5, "v"),
    ),
    "the drop itself is refused": (
        replace(drop(1, "t"), query="refusable"), row(2, "v"), flashback(3, "t", "u"), row(4, "u", "v"),
    ),
    "the drop is in one of two queues": (
        bad(1, "t"), bad(2, "v"), drop(3, "t"), flashback(4, "t", "v"), row(5, "v"),
    ),
}  # fmt: skip


# A second kill doubles the states: it comes where they are few.
KILLED_TWICE = (
    "rows around a refused DDL",
    "a DDL of another table between",
    "a database",
    "a dropped table comes back under another name",
    "rows of the other one between",
    "another DDL behind it",
)


@pytest.mark.parametrize("name", STREAMS)
def test_each_change_once_in_order_whatever_happens(name: str) -> None:
    states, ends = explore(World(STREAMS[name], kills=1 + (name in KILLED_TWICE)))
    assert states > 400
    assert ends


SHARD_STREAMS: dict[str, tuple[Item, ...]] = {
    "rows of the other one between": (
        row(1, "x", "y"), narrow(2, "x"), row(3, "X", "y"), narrow(4, "y"), row(5, "X", "Y"),
    ),
    "three": (
        row(1, "x", "y"), narrow(2, "x"), narrow(3, "y"), row(4, "X", "z"), narrow(5, "z"), row(6, "Y", "Z"),
    ),
    "the other one waits already": (
        row(1, "x", "y"), bad(2, "y"), row(3, "y"), narrow(4, "x"), row(5, "X", "y"), narrow(6, "y"),
        row(7, "X", "Y"),
    ),
    "it waits for a DDL of its own, too": (
        row(1, "x", "y"), bad(2, "x"), narrow(3, "x"), row(4, "X", "y"), narrow(5, "y"), row(6, "X", "Y"),
    ),
    "another DDL behind it": (
        row(1, "x", "y"), narrow(2, "x"), ddl(3, "x", "t"), row(4, "X", "t"), narrow(5, "y"), row(6, "Y"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARD_STREAMS)
def test_a_column_of_shards_goes_when_the_last_one_drops_it(name: str) -> None:
    """And then by itself, whatever dies in between."""
    states, ends = explore(World(SHARD_STREAMS[name], kills=1 + (name in KILLED_TWICE)))
    assert states > 400
    assert ends


@pytest.mark.parametrize("seed", range(4))
def test_the_same_for_any_stream(seed: int) -> None:
    """Statements and rows over three tables as they fall."""
    dice = random.Random(seed)
    stream: list[Item] = [ddl(1, dice.choice("tuv"), refusable=True)]
    for commit_ts in range(2, 6):
        if dice.random() < 0.6:
            stream.append(row(commit_ts, *sorted(dice.sample("tuv", dice.choice((1, 1, 2, 3))))))
        else:
            names = ["*"] if dice.random() < 0.1 else dice.sample("tuv", dice.choice((1, 1, 2)))
            stream.append(ddl(commit_ts, *names, refusable=dice.random() < 0.4))
    _, ends = explore(World(tuple(stream), kills=1))
    assert ends


ROW_STREAMS: dict[str, tuple[Item, ...]] = {
    "rows alone": (row(1, "t", "u"), row(2, "v"), row(3, "t", "u"), row(4, "t", "v"), row(5, "u")),
    "a DDL of the table after them": (row(1, "t"), row(2, "u", "t"), ddl(3, "t"), row(4, "t", "v")),
    "a DDL of the table before them": (row(1, "t"), ddl(2, "t"), row(3, "t", "u"), row(4, "v"), row(5, "t")),
    "another table waits for a DDL": (
        row(1, "t"), bad(2, "u"), ddl(3, "u"), row(4, "u", "t"), row(5, "t"), ddl(6, "t", "u"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROW_STREAMS)
def test_rows_that_are_refused_hold_up_their_table_alone(name: str) -> None:
    """At any place of a lane's queue, with all above it in the lanes already."""
    found, ends = explore(World(ROW_STREAMS[name], kills=1, refusable=frozenset("t")))
    without, _ = explore(World(ROW_STREAMS[name], kills=1))
    assert ends
    assert found > without


@pytest.mark.parametrize("commit_ts", [7, 9])
def test_up_to_where_a_start_begins_no_table_joins(commit_ts: int) -> None:
    """There was a reason to leave the DDL out; what an older release kept by names upstream stays kept."""
    entry = Entry(5, 5, Floor(4, 1), {("d", "t"): 5}, Position(4), "", "refused")
    joining = Quarantine([entry], highest_ts=9).classify(ddl(commit_ts, "t", "u"))
    assert joining.ddl_class is DdlClass.PASSED
    kept = Quarantine([entry], highest_ts=9).classify(replace(ddl(commit_ts, "t"), targets=(("d", "all"),)))
    assert (kept.ddl_class, kept.changed) == (DdlClass.KEPT, None)
    assert Quarantine([entry], highest_ts=9).classify(ddl(10, "t", "u")).changed is not None


def test_what_release_has_done_is_not_kept_again() -> None:
    for done_ts, expected in ((6, DdlClass.DONE), (5, DdlClass.KEPT)):
        entry = Entry(5, 5, Floor(4, 1), {("d", "t"): 5}, Position(done_ts), "", "refused")
        assert Quarantine([entry], highest_ts=9).classify(ddl(6, "t")).ddl_class is expected


def test_tables_that_join_wait_with_the_first_entry_of_their_queue() -> None:
    later = Entry(7, 7, Floor(6, 1), {("d", "u"): 7}, Position(6), "", "refused")
    first = Entry(5, 5, Floor(4, 1), {("d", "t"): 5}, Position(4), "", "refused")
    joined = Quarantine([later, first]).classify(ddl(8, "t", "u", "v"))
    assert joined.changed is not None
    assert joined.changed.tables == {("d", "t"): 5, ("d", "v"): 8}


def test_a_queue_waits_for_its_first_ddl_that_is_neither_decided_nor_over() -> None:
    entries = [Entry(at, at, Floor(at - 1, 1), {("d", "t"): at}, Position(2), "", "") for at in (2, 3, 5, 4)]
    entries[1] = replace(entries[1], decision=Decision(SKIP))
    queue = Queue(1, {entry.job_id: entry for entry in entries}, QueueState.WAITING)
    assert queue.waits_for is entries[3]
    assert Queue(1, {2: entries[0], 3: entries[1]}, QueueState.WAITING).waits_for is None


def test_a_ddl_that_concerns_no_table_waits_too_and_holds_nobody_up() -> None:
    policy = Ddl(5, 5, 200, "", "CREATE SOMETHING", (), 5)
    entry = Entry(5, 5, Floor(4, 1), {}, Position(4), "", "refused")
    first = Quarantine()
    assert first.classify(policy).ddl_class is DdlClass.FREE
    first.begin(entry, policy)
    assert not first.is_done(policy)
    later = Quarantine([entry], highest_ts=9)
    (queue,) = later.queues
    queue.state = QueueState.CAUGHT_UP  # nothing had come yet
    assert later.classify(policy).ddl_class is DdlClass.KEPT
    assert queue.state is QueueState.FOLLOWING
    transaction = row(6, "t")
    assert later.divert(transaction) == (transaction, [])
    later.decide(5, Decision(SKIP))
    later.advance(queue, Position(5))
    assert later.is_done(policy)
    assert later.classify(policy).ddl_class is DdlClass.DONE
    queue.state = QueueState.CAUGHT_UP
    assert not later.may_close(queue, 8)
    assert later.may_close(queue, 9)


@pytest.mark.parametrize(
    ("action", "query", "expected"),
    [
        (21, "CREATE VIEW d.v AS SELECT a FROM d.t", DdlClass.KEPT),
        (21, "CREATE VIEW v AS SELECT a FROM T", DdlClass.KEPT),
        (21, "CREATE VIEW v AS SELECT t FROM u", DdlClass.FREE),
        (21, "CREATE VIEW v AS SELECT a FROM e.t", DdlClass.FREE),
        (21, "CREATE VIEW v AS SELECT 1 FROM whole.x", DdlClass.KEPT),
        (3, "CREATE TABLE v LIKE t", DdlClass.KEPT),
        (3, "CREATE TABLE v (t INT, b INT COMMENT 'like t')", DdlClass.FREE),
    ],
)
def test_only_what_reads_a_waiting_table_waits_with_it(action: int, query: str, expected: DdlClass) -> None:
    quarantine = Quarantine()
    entry = Entry(5, 5, Floor(4, 1), {("d", "t"): 5, ("whole", ""): 5}, Position(4), "", "refused")
    quarantine.begin(entry, ddl(5, "t"))
    assert quarantine.classify(Ddl(6, 6, action, "d", query, (("d", "v"),), 6)).ddl_class is expected


def test_position_of_a_large_transaction_in_the_middle() -> None:
    """Release was killed inside a transaction: what it had applied is not kept again, the rest is."""
    quarantine = Quarantine(
        [Entry(1, 1, Floor(0, 0), {("d", "t"): 1, ("d", "u"): 1}, Position(5, 2), "", "")], highest_ts=5
    )
    many = TableEvents(TABLES["t"], (INSERT,) * 4, [b"0", b"1", b"2", b"3"], 0)
    more = TableEvents(TABLES["u"], (INSERT,), [b"4"], 4)
    rest, ((_, part),) = quarantine.divert(Transaction(4, 5, (many, more), 5))
    assert rest.tables == ()
    assert [(events.rows, events.first_ordinal) for events in part.tables] == [([b"2", b"3"], 2), ([b"4"], 4)]
    assert quarantine.divert(Transaction(3, 4, (many,), 4))[1] == []


def test_refused_rows_are_kept_and_tried_once_more_before_their_table_goes_on() -> None:
    """Or the lane would be refused them again, and all would begin anew."""
    quarantine = Quarantine([Entry(ROWS + 1, 9, Floor(4, 1), {("d", "t"): 5}, Position(4), "", "")], 4)
    (queue,) = quarantine.queues
    queue.state = QueueState.CAUGHT_UP
    assert not quarantine.may_close(queue, 8)
    _, ((same, _),) = quarantine.divert(row(9, "t"))
    assert same is queue
    assert not quarantine.may_close(queue, 9)
    quarantine.advance(queue, Position(9))
    queue.state = QueueState.CAUGHT_UP
    assert quarantine.may_close(queue, 9)


def test_refused_rows_of_a_shard_hold_up_all_that_goes_to_its_target() -> None:
    one, two = (replace(TABLES[name], target=("x", "all")) for name in "tu")
    refusal = Refusal(target_of(one, LANES), "k", False, 5, 9)
    refused = RowsRefused("refused", hint="", lane=0, refusal=refusal)
    entry = rows_entry(refused, 1, Position(4), Floor(2, 1), SystemClock())
    assert (entry.done, entry.floor, entry.position) == (True, Floor(4, 1), Position(4))
    quarantine = Quarantine([entry], 9)
    for version in (one, two):
        events = TableEvents(version, (INSERT,), [b"row"], 0)
        rest, parts = quarantine.divert(Transaction(5, 6, (events,), 1))
        assert not rest.tables
        assert len(parts) == 1
        assert not quarantine.divert(Transaction(3, 4, (events,), 1))[1], "applied before"


def test_a_table_that_joins_while_an_intent_is_stored_goes_on_waiting() -> None:
    """Release had read the entry before, and puts what is new about it."""
    quarantine = Quarantine()
    queue = quarantine.begin(
        Entry(5, 5, Floor(4, 1), {("d", "t"): 5}, Position(4), "", "refused"), ddl(5, "t")
    )
    read = quarantine.holder_of(queue, ddl(5, "t"))
    assert quarantine.classify(ddl(7, "t", "u")).ddl_class is DdlClass.KEPT
    assert quarantine.change(read, intent_ts=5).tables == {("d", "t"): 5, ("d", "u"): 7}
    assert quarantine.divert(row(8, "u"))[0].tables == ()

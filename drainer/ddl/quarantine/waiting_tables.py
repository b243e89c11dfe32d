"""Waiting tables: which tables wait for a decision about a DDL, and what of the stream belongs to them.

In     the stream in order (`classify` a DDL, `divert` a transaction), decisions, what release has applied
Out    what is passed to the lanes, what is kept and for which queue, how far the checkpoint may go
Holds  each change of a waiting table is applied exactly once, in the table's order, over any kill; the
       checkpoint stays below everything that waits; other tables are not touched
Never  reads a clock, a file or the downstream: what must be durable is in `Entry`, and the controller
       stores the entries before it takes more of the stream

An entry is a DDL that waits for a decision, with the tables that wait for it and since which commit_ts each
does. Lanes move past the entry while the checkpoint stays before it, so a restart pulls everything again:

    rows and DDL of tables that do not wait     at or below the lanes' positions: done before
    rows and DDL of waiting tables, since then  at or below the entry's own position: done before; else kept

A table waits under its name upstream and under that of its target: whatever is routed there waits with it,
since it is one table downstream. Entries that an older release stored have the first name alone. A table that
a kept DDL takes away waits under its id, too: FLASHBACK and RECOVER bring it back under any name.

The second line does not ask the lanes, whose positions say nothing of these tables; the first is right for
rows of a waiting table from before it waited, because all lanes were drained and put after them when it
began to. Membership is stored and not derived again: rules, filters and texts may have changed in between.

A DDL that touches a waiting table joins its queue and takes its other tables in (`since` its commit_ts); one
that touches two queues makes them one. Rows that the downstream refuses begin a queue too: their table waits
from where the last of its lanes stands, and a new start finds the entry. When a queue has
nothing left and everything up to `now_ts` has gone through drained lanes, all lanes are put at `now_ts` in
the transaction that deletes its entries: from there on its tables are like all others. That needs `now_ts` to
have reached the highest lane position found at the start, or rows of the tables between the two would be
skipped by lanes that never had them; and the queue's own position, or rows that release had applied before
the start would be applied again.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Any, NamedTuple

from drainer.changes.ddl_effect import EffectKind, effect_kind
from drainer.ddl.quarantine.entry import Decision, Entry, Floor, Name, name_of
from drainer.ddl.quarantine.queue_state import QueueEvent, QueueState, after, merged
from drainer.mysql import sql_tokens
from drainer.mysql.rows.change import COMPLETE, Position
from drainer.txn import Ddl, TableEvents, TableVersion, Tracked, Transaction
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.tso import Ts


@dataclass(slots=True, eq=False)
class Queue:
    """Entries whose tables are released as one, in stream order. `number` names its log."""

    number: int
    entries: dict[int, Entry]
    state: QueueState
    open_ts: Ts = 0  # a large transaction of which a piece was kept and the last one not
    refusal: str = ""  # why rows were refused last
    shards: str = ""  # which other tables its DDL waited for last
    wants_pause: bool = False  # its DDL waits for other tables of its target, or until their rows stand still
    ddls: list[Ddl] = field(default_factory=list)  # what was kept of the stream
    rows: dict[TableVersion, int] = field(
        default_factory=dict
    )  # of routed tables: by when the last were kept

    def on(self, event: QueueEvent) -> None:
        self.state = after(self.state, event)

    @property
    def position(self) -> Position:
        """What all of its tables have reached."""
        return min((entry.position for entry in self.entries.values()), key=Position.order_key)

    @property
    def waits_for(self) -> Entry | None:
        """The first entry without a decision."""
        undecided = [entry for entry in self.entries.values() if not entry.done and entry.decision is None]
        return min(undecided, key=lambda entry: entry.commit_ts, default=None)

    @property
    def loading(self) -> Entry | None:
        """Nothing of it is released before the rows of its tables are there."""
        return next((entry for entry in self.entries.values() if entry.is_load and not entry.done), None)


class DdlClass(Enum):
    """What the quarantine has to do with a DDL of the stream."""

    FREE = auto()  # nothing: it goes its usual way
    PASSED = auto()  # it was done, or passed over, before the drainer started
    DONE = auto()  # it belongs to waiting tables, and release has done it
    KEPT = auto()  # it waits after them


class Classification(NamedTuple):
    """`changed`: the entry to be stored before more of the stream is taken, because tables came in."""

    ddl_class: DdlClass
    queue: Queue | None = None
    changed: Entry | None = None
    absorbed: tuple[Queue, ...] = ()


class Below(NamedTuple):
    """What a load at one timestamp is of: tables that wait under `names`, for the entries of `jobs`. Of their
    `ddls`, all up to it, the load has what they did."""

    names: frozenset[Name]
    jobs: tuple[int, ...]
    ddls: tuple[Ddl, ...]


class Kept(NamedTuple):
    """What of a transaction is to be kept, and in which queue."""

    queue: Queue
    part: Transaction


def _keys(version: TableVersion) -> list[Name]:
    """What a table's rows wait under: its names on both sides, their databases."""
    names = [name_of(version.schema, version.name), name_of(*version.downstream)]
    return list(dict.fromkeys([*names, *((schema, "") for schema, _ in names)]))


class Quarantine:
    """`highest_ts`: the highest lane position found at start; nothing at or below it is new.

    `pending_ts`: a DDL of tables that do not wait was under way at the last stop; no other one may run before
    it comes again."""

    def __init__(self, entries: Iterable[Entry] = (), highest_ts: Ts = 0, pending_ts: Ts = 0) -> None:
        self._queues: list[Queue] = []
        self._owners: dict[Name, tuple[Queue, Entry]] = {}
        self._routes: dict[TableVersion, tuple[Queue, Name, int] | None] = {}
        self._highest_ts = highest_ts
        self._pending_ts = pending_ts
        self._seen_ts = 0  # of what came last, or where the stream is
        self._numbers = 0
        for entry in entries:
            self._queue(entry, QueueState.READY)

    # -- questions ------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self._queues

    @property
    def queues(self) -> tuple[Queue, ...]:
        return tuple(self._queues)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """In the order of the stream."""
        entries = [entry for queue in self._queues for entry in queue.entries.values()]
        return tuple(sorted(entries, key=lambda entry: entry.commit_ts))

    @property
    def floor(self) -> Floor | None:
        """The checkpoint that may be stored at most; None: whatever is applied."""
        return min((entry.floor for entry in self.entries), default=None)

    @property
    def is_where_it_was(self) -> bool:
        """All that an earlier life has seen has come again."""
        return self._seen_ts >= self._highest_ts

    @property
    def seen_ts(self) -> Ts:
        """Where the stream is: what comes is at or above it."""
        return self._seen_ts

    def saw(self, ts: Ts) -> None:
        """The stream is at `ts`."""
        was, self._seen_ts = self.is_where_it_was, ts
        if not was and self.is_where_it_was:
            self.shards_changed()

    def shards_changed(self) -> None:
        """What waits for other tables is looked at where the stream is now: later they may be others again,
        and each of two would wait for what the other one has waiting. Refused rows wait for a decision."""
        for queue in self._queues:
            entry = queue.waits_for
            waits = bool(queue.shards) or (entry is not None and entry.waits_for_shards)
            queue.wants_pause |= waits and not queue.state.is_halted

    def queue_of(self, job_id: int) -> Queue | None:
        return next((queue for queue in self._queues if job_id in queue.entries), None)

    def waits_for(self, schema: str, table: str) -> bool:
        """Whether a table waits under its name upstream."""
        name = name_of(schema, table)
        return name in self._owners or (name[0], "") in self._owners

    def _owner(self, name: Name, commit_ts: Ts) -> tuple[Queue, Name] | None:
        """The queue in which a table waits at that commit_ts, and under which name."""
        for key in (name, (name[0], "")):
            owner = self._owners.get(key)
            if owner is not None and owner[1].tables[key] <= commit_ts:
                return owner[0], key
        return None

    def _touched(self, ddl: Ddl) -> dict[Name, Queue]:
        """Waiting names that a DDL concerns."""
        names = {name_of(*name) for name in ddl.names}
        owners = [self._owner(name, ddl.commit_ts) for name in names]
        touched = {owner[1]: owner[0] for owner in owners if owner is not None}
        back = {table.id for table in ddl.after}
        for kept in (kept for queue in self._queues for kept in queue.ddls):
            for table in _taken_away(kept):
                owner = (
                    self._owner(name_of(table.schema, table.name), ddl.commit_ts)
                    if table.id in back
                    else None
                )
                if owner is not None:
                    touched[owner[1]] = owner[0]
        databases = {schema for schema, table in names if not table}
        creates = effect_kind(ddl.action) is EffectKind.CREATE
        read = sql_tokens.tables_read(ddl.query, ddl.schema) if creates else frozenset()
        read |= {(schema, "") for schema, _ in read}
        for key, (queue, entry) in self._owners.items():
            if entry.tables[key] <= ddl.commit_ts and (key[0] in databases or key in read):
                touched[key] = queue
        return touched

    def joins(self, ddl: Ddl) -> bool:
        """Whether a DDL of the stream makes several queues one: release must work on none of them then."""
        return len(self._queues) > 1 and len(set(self._touched(ddl).values())) > 1

    # -- the stream -----------------------------------------------------------------------------------

    def classify(self, ddl: Ddl) -> Classification:
        """What the next DDL of the stream is. One that does nothing downstream (`skip`) is never asked for.

        With KEPT, the controller stores `changed`, joins the logs of `absorbed` to the queue's, and keeps it.
        """
        self.saw(ddl.commit_ts)
        if ddl.shared:
            self.shards_changed()
        touched = self._touched(ddl)
        own = self.queue_of(ddl.job_id)
        if not touched and own is not None:  # it concerns no table
            if own.entries[ddl.job_id].done:
                return Classification(DdlClass.DONE)
            own.on(QueueEvent.KEPT)
            return Classification(DdlClass.KEPT, own)
        if not touched:
            return Classification(DdlClass.PASSED if ddl.commit_ts <= self._highest_ts else DdlClass.FREE)
        names = {name_of(*name) for name in ddl.own_names}
        new = {name for name in names if self._owner(name, ddl.commit_ts) is None}
        if ddl.commit_ts <= self._highest_ts:
            if new & {name_of(*name) for name in ddl.tables}:
                # It would have taken these tables in: before the start there was a reason to leave it out.
                return Classification(DdlClass.PASSED)
            new.clear()  # an older release kept it when only names upstream waited
        if all(ddl.commit_ts <= self._owners[key][1].position.complete_ts for key in touched):
            return Classification(DdlClass.DONE)
        queues = sorted(set(touched.values()), key=lambda queue: queue.number)
        queue = queues[0]
        for other in queues[1:]:
            self._absorb(queue, other)
        changed = None
        if new:
            entry = min(queue.entries.values(), key=lambda entry: entry.commit_ts)
            changed = self.change(entry, tables={**entry.tables, **dict.fromkeys(new, ddl.commit_ts)})
        queue.on(QueueEvent.KEPT)
        queue.ddls.append(ddl)
        return Classification(DdlClass.KEPT, queue, changed, tuple(queues[1:]))

    def begin(self, entry: Entry, ddl: Ddl) -> Queue:
        """A DDL was refused: its tables wait from it on. The entry is durable."""
        queue = self._queue(entry, QueueState.WAITING)
        queue.ddls.append(ddl)
        return queue

    def waiting_with(self, names: Iterable[Name]) -> list[Queue]:
        """The queues of tables that wait under these names already."""
        keys = {key for name in names for key in (name, (name[0], ""))}
        return list(dict.fromkeys(self._owners[key][0] for key in keys if key in self._owners))

    def begin_load(self, entry: Entry, instead_of: Iterable[Queue]) -> Queue:
        """Rows of its tables are loaded. The entry is durable, in place of those of the queues."""
        queue = self._queue(entry, QueueState.WAITING)
        for other in instead_of:
            queue.ddls += other.ddls
            queue.rows |= other.rows
            self._queues.remove(other)
        self._reindex()
        return queue

    def below(self, ts: Ts) -> Below | None:
        """What a load at `ts` is of; None before the stream has come there. Tables that a DDL has made wait
        together with these are loaded with them, unless release has brought them further."""
        queue = next((queue for queue in self._queues if queue.loading), None)
        if queue is None or self._seen_ts < max(ts, self._highest_ts):
            return None
        entries = [
            entry
            for entry in queue.entries.values()
            if min(entry.tables.values()) <= ts and entry.position.commit_ts < ts
        ]
        names = {name for entry in entries for name, since in entry.tables.items() if since <= ts}
        ddls = tuple(ddl for ddl in queue.ddls if ddl.commit_ts <= ts)
        return Below(frozenset(names), tuple(entry.job_id for entry in entries), ddls)

    def divert(self, transaction: Transaction) -> tuple[Transaction, list[Kept]]:
        """What is passed to the lanes, and what is kept."""
        commit_ts = transaction.commit_ts
        self.saw(commit_ts)
        rest: list[TableEvents] = []
        parts: dict[Queue, list[TableEvents]] = {}
        for events in transaction.tables:
            route = self._route(events.table)
            if route is None or commit_ts < route[2]:
                rest.append(events)
                continue
            queue, key, _ = route
            kept = undone(events, commit_ts, self._owners[key][1].position)
            if kept is not None:
                parts.setdefault(queue, []).append(kept)
                if events.table.target is not None:
                    queue.rows[events.table] = commit_ts
        if transaction.last:
            for queue in self._queues:  # a transaction of which a piece was kept also gets its end
                if queue.open_ts == commit_ts:
                    parts.setdefault(queue, [])
        if len(rest) == len(transaction.tables) and not parts:
            return transaction, []
        kept_parts = []
        for queue, tables in parts.items():
            queue.open_ts = 0 if transaction.last else commit_ts
            queue.on(QueueEvent.KEPT)
            kept_parts.append(Kept(queue, replace(transaction, tables=tuple(tables))))
        return replace(transaction, tables=tuple(rest)), kept_parts

    def _route(self, version: TableVersion) -> tuple[Queue, Name, int] | None:
        """Where rows of a table version wait, and since when; cached until membership changes."""
        try:
            return self._routes[version]
        except KeyError:
            pass
        route = None
        keys = [key for key in _keys(version) if key in self._owners]
        if keys:
            key = min(keys, key=lambda key: self._owners[key][1].tables[key])
            queue, entry = self._owners[key]
            route = queue, key, entry.tables[key]
        self._routes[version] = route
        return route

    # -- release --------------------------------------------------------------------------------------

    def decide(self, job_id: int, decision: Decision) -> Entry:
        """Note a decision; the entry is to be stored. KeyError: no such DDL waits."""
        queue = self.queue_of(job_id)
        if queue is None:
            raise KeyError(job_id)
        return self.change(queue.entries[job_id], decision=decision)

    def is_done(self, ddl: Ddl) -> bool:
        """Whether release has done a kept DDL before."""
        entries = self._entries_of(ddl)
        return bool(entries) and all(ddl.commit_ts <= entry.position.complete_ts for entry in entries)

    def _entries_of(self, ddl: Ddl) -> list[Entry]:
        """Those that its tables wait for."""
        names = [self._owner(name_of(*name), ddl.commit_ts) for name in ddl.names]
        entries = [self._owners[owner[1]][1] for owner in names if owner is not None]
        own = self.queue_of(ddl.job_id)
        return entries or ([own.entries[ddl.job_id]] if own is not None else [])

    def rest_of(self, part: Transaction) -> Transaction:
        """What release has not applied yet of something kept."""
        tables = []
        for events in part.tables:
            route = self._route(events.table)
            waits = route is not None and route[2] <= part.commit_ts
            position = self._owners[route[1]][1].position if route is not None and waits else Position(0)
            left = undone(events, part.commit_ts, position)
            if left is not None:
                tables.append(left)
        return replace(part, tables=tuple(tables))

    def advance(self, queue: Queue, position: Position) -> list[Entry]:
        """Everything kept up to there is applied; the entries that this moves."""
        behind = [
            entry for entry in queue.entries.values() if entry.position.order_key() < position.order_key()
        ]
        return [
            self.change(entry, position=position)
            if entry.intent_ts > position.commit_ts
            else self.change(entry, position=position, intent_ts=0, intent={})
            for entry in behind
        ]

    def entries_before(self, queue: Queue, ddl: Ddl) -> tuple[Entry, ...]:
        """Entries other than the DDL's own that have come up to it, and no further.

        One that joined the queue late may have been released past it already; one with the intent of a later
        DDL keeps it.
        """
        return tuple(
            entry
            for entry in queue.entries.values()
            if entry.job_id != ddl.job_id
            and entry.position.complete_ts < ddl.commit_ts
            and entry.intent_ts <= ddl.commit_ts
        )

    def holder_of(self, queue: Queue, ddl: Ddl) -> Entry:
        """The entry that has the intent of a kept DDL, or is to have it. It is one that the DDL's tables wait
        for: another one of the queue may be in another queue after a start, until a DDL joins them again."""
        entries = queue.entries.values()
        fit = [entry for entry in entries if entry.intent_ts == ddl.commit_ts] or [
            entry
            for entry in self._entries_of(ddl)
            if not entry.intent_ts and entry.position.complete_ts < ddl.commit_ts
        ]
        assert fit, f"no entry can have the intent of DDL job {ddl.job_id}"
        return min(fit, key=lambda entry: entry.commit_ts)

    def stop_at(self, queue: Queue, ddl: Ddl, new: Entry) -> Entry:
        """Everything before a kept DDL is applied, and it waits for a decision: one entry for all before it.

        `new` has what is new about it (reason, floor, shape, decision); its tables and position come from
        the queue. The controller stores it in place of those before it.
        """
        earlier = queue.entries.get(ddl.job_id)
        assert earlier is None or earlier.intent_ts in (0, ddl.commit_ts, new.intent_ts), (
            "an intent would be lost"
        )
        tables = dict(earlier.tables) if earlier else {}
        for entry in self.entries_before(queue, ddl):
            assert entry.intent_ts in (0, ddl.commit_ts), "an intent would be lost"
            tables.update(entry.tables)
            del queue.entries[entry.job_id]
        entry = replace(new, tables=tables, position=Position(ddl.commit_ts - 1))
        queue.entries[entry.job_id] = entry
        self._reindex()
        return entry

    def change(self, entry: Entry, **values: Any) -> Entry:
        """The entry as it is now with these values: of what else has changed since it was read, a table that
        has joined it, nothing is lost."""
        queue = self.queue_of(entry.job_id)
        assert queue is not None
        changed = queue.entries[entry.job_id] = replace(queue.entries[entry.job_id], **values)
        self._reindex()
        return changed

    def is_ripe(self, queue: Queue, now_ts: Ts) -> bool:
        """Whether its tables could be like all others again, if only nothing of it were left."""
        entries = queue.entries.values()
        # A DDL that was under way at the last stop comes again: it may have run.
        places = [max(entry.position.commit_ts, entry.intent_ts) for entry in entries]
        reached_ts = max(self._highest_ts, self._pending_ts, *places)
        if rows_ts := [entry.commit_ts for entry in entries if entry.is_rows]:
            reached_ts = max(reached_ts, *rows_ts)  # they are kept by then, and were tried once more
        return not queue.open_ts and all(entry.done for entry in entries) and now_ts >= reached_ts

    def may_close(self, queue: Queue, now_ts: Ts) -> bool:
        """Whether its tables can be like all others again, with all lanes drained at `now_ts`."""
        return queue.state is QueueState.CAUGHT_UP and self.is_ripe(queue, now_ts)

    def close(self, queue: Queue, now_ts: Ts) -> None:
        """Its entries go and the lanes move to `now_ts`, durably."""
        assert all(entry.intent_ts <= now_ts for entry in queue.entries.values()), "an intent would be lost"
        self._queues.remove(queue)
        self._reindex()
        self.shards_changed()

    # -- inside ---------------------------------------------------------------------------------------

    def _queue(self, entry: Entry, state: QueueState) -> Queue:
        self._numbers += 1
        queue = Queue(self._numbers, {entry.job_id: entry}, state)
        self._queues.append(queue)
        self._reindex()
        return queue

    def _absorb(self, queue: Queue, other: Queue) -> None:
        queue.entries.update(other.entries)
        queue.state = merged(queue.state, other.state)
        queue.refusal = queue.refusal or other.refusal
        queue.open_ts = max(queue.open_ts, other.open_ts)
        queue.ddls += other.ddls
        queue.rows |= other.rows
        self._queues.remove(other)
        self._reindex()

    def _reindex(self) -> None:
        self._owners = {
            key: (queue, entry)
            for queue in self._queues
            for entry in queue.entries.values()
            for key in entry.tables
        }
        self._routes.clear()


def _taken_away(ddl: Ddl) -> list[Tracked]:
    left = {table.id for table in ddl.after}
    return [table for table in ddl.before if table.id not in left]


def undone(events: TableEvents, commit_ts: Ts, position: Position) -> TableEvents | None:
    """The row events that are not covered by a position; None if all are."""
    if commit_ts > position.commit_ts:
        return events
    if commit_ts < position.commit_ts or position.rows == COMPLETE:
        return None
    done = position.rows - events.first_ordinal
    if done <= 0:
        return events
    if done >= len(events.rows):
        return None
    return TableEvents(events.table, events.kinds[done:], events.rows[done:], position.rows)

"""Joining rules: Pumps and a Drainer, every step of which is atomic, in every order.

What decides is the product's: sorter, merger, admission, lifecycle, closing, retention, who is to be told.
What waits in the product (indexer, registration, collector, heartbeat) is here a rule of a line or two, a
method of `World`; the collector's are replayed against the real one (`collector_replay`).

A transaction is prewritten, commits, and its end is stored; a Pump files what it stored when it likes, draws
timestamps, joins, is closed, started again, purges; the Drainer looks at the registry, is told of Pumps,
pulls, merges, stores its checkpoint, loses its lease, dies. What is slow takes two steps: a sync, a timestamp
that is drawn, a view of the registry, which is seen when others were seen that are younger.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from drainer.stream.pull.merged import Merged
from drainer.stream.pull.merger import Merger
from pump.index.sorter import Sorter
from pump.log.record import LogRecord, ValuePointer
from pump.log.value_log import ClosedFile
from pump.membership.close_conditions import CloseConditions, CloseSnapshot, DrawMark, Leave, Reader
from pump.membership.notify_drainers import to_notify
from pump.retention.policy import DrainerState, Policy, Situation, Straddlers, Survey, candidates, decide
from pump.write import admission
from tests.model.cores import Kept
from tidb_binlog import tso
from tidb_binlog.binlog import COMMIT, PREWRITE, ROLLBACK
from tidb_binlog.cluster import node
from tidb_binlog.cluster.registry import ClusterView, NodeEntry
from tidb_binlog.errors import BinlogError

BIG: Final = 1 << 30
TICK: Final = tso.compose(1_000_000)  # of the model's time, for rules that reckon in seconds
NAMES: Final = "abc"
NEW, ADMITTED, ACKED, COMMITTED, STORED = range(5)
WATCH, LIST, NOBODY = 10, 11, 12  # nobody: the Pump that asked has ended meanwhile


class Broken(AssertionError):
    """A property does not hold."""


class Txn(NamedTuple):
    phase: int = NEW
    pump: int = 0
    start_ts: int = 0
    commit_ts: int = 0


class Pump(NamedTuple):
    """`entry`: what the registry says, "" nothing; `state`: what admission goes by. `log`: type and number of
    a transaction, or a time mark's timestamp; so many are durable, and filed. `marks` wait for a place of it;
    `drawn` is under way. `told`: the Drainer has confirmed it. `stream`: its name in the merger."""

    entry: str = ""
    state: str = node.OFFLINE
    log: tuple[tuple[int, int], ...] = ()
    durable: int = 0
    filed: int = 0
    sorter: int = 0
    marks: tuple[tuple[int, int], ...] = ()
    drawn: int = 0
    closing: int = -1
    marking: int = 0  # 1: a time mark is to be stored, 2: to be durable
    purged_ts: int = 0
    told: bool = False
    stream: str = ""
    position: int = 0  # up to which it was pulled


class Left(NamedTuple):
    """How often it may happen still. `slow`: what takes two steps; `pages`: pulls of a part."""

    draws: int = 0
    closes: int = 0
    starts: int = 0
    purges: int = 0
    leases: int = 0
    deaths: int = 0
    slow: int = 0
    pages: int = 0


class View(NamedTuple):
    """The registry as it was, and what was known then. `who` asked: a Pump's number, or `WATCH`, `LIST`."""

    who: int
    revision: int
    entries: tuple[str, ...]
    reached_ts: int


class State(NamedTuple):
    """`seen`: the revision that the Drainer has, -1 none. `sure`: its lease has not run out since it listed
    Pumps; `alive`: the registry has the lease."""

    ts: int
    txns: tuple[Txn, ...]
    pumps: tuple[Pump, ...]
    merger: int
    left: Left
    revision: int = 0
    seen: int = 0
    announced: int = 0
    checkpoint: int = 0
    up: bool = True
    alive: bool = True
    sure: bool = True
    views: tuple[View, ...] = ()


@dataclass(frozen=True)
class Bounds:
    """A small cluster: `online` Pumps that the Drainer has, `new` ones, which have left before if they come
    `again`. `finds`: it is a reader without a name, whom nobody tells of Pumps."""

    txns: int
    online: int
    new: int
    left: Left
    finds: bool = False
    again: bool = False


Step = tuple[str, State]


class Conditions(CloseConditions):
    """Says which mark was drawn last."""

    mark = 0

    def drawn(self, ts: int) -> None:
        super().drawn(ts)
        self.mark = ts


class World:
    """The rules. What one decides is a method of its own, so that a wrong one can take its place."""

    sorter: type[Sorter] = Sorter
    merger: type[Merger] = Merger
    conditions: type[Conditions] = Conditions

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.sorters, self.mergers = Kept(), Kept()
        self.closings = Kept(lambda it: (it.step, it.target_ts, it.mark))

    def first(self) -> State:
        """Pumps that are online are known to the Drainer."""
        bounds = self.bounds
        merger = self.merger(0, ceiling=0) if bounds.finds else self.merger(0)
        online, new = (
            NAMES[: bounds.online],
            Pump(node.OFFLINE if bounds.again else "", sorter=self.sorters.add(self.sorter())),
        )
        for name in online:
            merger.add_source(name, 0)
        there = [
            new._replace(entry=node.ONLINE, state=node.ONLINE, told=True, stream=name) for name in online
        ]
        pumps = (*there, *[new] * bounds.new)
        return State(0, (Txn(),) * bounds.txns, pumps, self.mergers.add(merger), bounds.left)

    def steps(self, s: State) -> Iterator[Step]:
        """All that may happen next."""
        for at, txn in enumerate(s.txns):
            yield from self.transaction(s, at, txn)
        for at, pump in enumerate(s.pumps):
            if pump.entry in (node.PAUSED, node.ONLINE, node.CLOSING):
                yield from self.storage(s, at, pump)
                yield from self.membership(s, at, pump)
                if s.up and pump.stream:
                    yield from self.pull(s, at, pump)
            elif not pump.log or s.left.starts:
                used = spent(s, "starts") if pump.log else s
                views = tuple(view._replace(who=NOBODY) if view.who == at else view for view in s.views)
                yield f"start {at}", registered(used._replace(views=views), at, entry=node.PAUSED, told=False)
        yield from self.drainer(s) if s.up else self.dead(s)

    # -- transactions ----------------------------------------------------------------------------

    def transaction(self, s: State, at: int, txn: Txn) -> Iterator[Step]:
        if txn.phase == NEW and (at == 0 or s.txns[at - 1].phase != NEW):  # they are all alike
            for number, pump in enumerate(s.pumps):
                if self.admits(pump, s.ts + 1):
                    begun = of_txn(s._replace(ts=s.ts + 1), at, Txn(ADMITTED, number, s.ts + 1))
                    yield from self.logged(begun, number, f"prewrite {at} on {number}", (PREWRITE, at))
        elif txn.phase == ACKED:
            ts = s.ts + 1
            yield f"commit {at}", of_txn(s._replace(ts=ts), at, txn._replace(phase=COMMITTED, commit_ts=ts))
        elif txn.phase == COMMITTED and s.pumps[txn.pump].entry != node.OFFLINE:
            ended = of_txn(s, at, txn._replace(phase=STORED))
            yield from self.logged(ended, txn.pump, f"end {at}", (COMMIT, at))

    def admits(self, pump: Pump, start_ts: int) -> bool:
        disk = admission.Disk(available=BIG, floor=0)
        return admission.admit((PREWRITE, start_ts, 0), 1, pump.state, disk) is admission.STORE

    def logged(self, s: State, at: int, name: str, record: tuple[int, int]) -> Iterator[Step]:
        after = changed(s, at, log=(*s.pumps[at].log, record))
        yield name, self.synced(after, at)
        if s.left.slow:
            yield f"{name} slowly", spent(after, "slow")

    def synced(self, s: State, at: int) -> State:
        log = s.pumps[at].log
        for tp, number in log[s.pumps[at].durable :]:
            if tp == PREWRITE:
                s = of_txn(s, number, s.txns[number]._replace(phase=ACKED))
        return changed(s, at, durable=len(log))

    # -- a Pump ----------------------------------------------------------------------------------

    def storage(self, s: State, at: int, pump: Pump) -> Iterator[Step]:
        if pump.durable < len(pump.log):
            yield f"sync {at}", self.synced(s, at)
        if pump.filed < pump.durable:
            yield f"file {at}", of_pump(s, at, self.filed(s, pump))
        if pump.drawn:
            yield f"mark {at}", of_pump(s, at, self.marked(pump._replace(drawn=0), pump.drawn))
        elif s.left.draws:
            drawing = spent(s, "draws")._replace(ts=s.ts + 1)
            yield f"draw {at}", of_pump(drawing, at, self.marked(pump, s.ts + 1))
            if s.left.slow:
                yield f"draw {at} slowly", changed(spent(drawing, "slow"), at, drawn=s.ts + 1)
        if s.left.purges and (purged := self.purged(s, pump)) > pump.purged_ts:
            if s.alive and purged > s.checkpoint:
                raise Broken(f"Pump {at} purges to {purged}, and a reader that lives is at {s.checkpoint}")
            yield f"purge {at} to {purged}", changed(spent(s, "purges"), at, purged_ts=purged)

    def filed(self, s: State, pump: Pump) -> Pump:
        """The next record, and the marks that stand behind it."""
        record = self.record(s, pump, pump.filed)
        sorter, _ = self.sorters.step(pump.sorter, "feed", lambda it: it.feed([record], 0.0), record)
        pump = pump._replace(filed=pump.filed + 1, sorter=sorter)
        while pump.marks and pump.marks[0][0] <= pump.filed:
            pump = self.advanced(pump._replace(marks=pump.marks[1:]), pump.marks[0][1])
        return pump

    def record(self, s: State, pump: Pump, at: int, tick: int = 1) -> LogRecord:
        tp, number = pump.log[at]
        start_ts = commit_ts = number
        if tp != ROLLBACK:
            start_ts, commit_ts = s.txns[number].start_ts, s.txns[number].commit_ts if tp == COMMIT else 0
        return LogRecord(tp, start_ts * tick, commit_ts * tick, ValuePointer(at, 0))  # a file for each

    def marked(self, pump: Pump, ts: int) -> Pump:
        """A drawn timestamp is a watermark once what is durable now is sorted."""
        if pump.filed == pump.durable and not pump.marks:
            return self.advanced(pump, ts)
        return pump._replace(marks=(*pump.marks, (pump.durable, ts)))

    def advanced(self, pump: Pump, ts: int) -> Pump:
        return pump._replace(sorter=self.sorters.step(pump.sorter, "mark", lambda it: it.mark(ts), ts)[0])

    def watermark(self, pump: Pump) -> int:
        return self.sorters.fact(pump.sorter, "watermark", lambda it: it.watermark)

    def purged(self, s: State, pump: Pump) -> int:
        """Up to where a purge now would reach; each record is a file."""
        surveys: list[Survey] = []
        for at in range(pump.filed):
            surveys.append(Survey(at, max((earlier.max_ts for earlier in surveys), default=0)))
            surveys[at].feed([self.record(s, pump, at, TICK)])
        decided = self.sorters.fact(pump.sorter, "decided", lambda it: it.decided)
        drainers = [DrainerState("d", node.ONLINE, s.alive, self.applied(s) * TICK, 1)]
        files = [ClosedFile(it.fid, 1, it.max_ts) for it in surveys]
        settled, gc_ts = min(decided.fid, pump.filed), pump.purged_ts * TICK
        now = Situation(
            (s.ts + 1) * TICK, files, 1, BIG, settled, self.watermark(pump) * TICK, gc_ts, drainers
        )
        going, straddlers = candidates(Policy(age_s=1.0), now), Straddlers()
        for at, survey in enumerate(surveys):
            (straddlers.feed if at < len(going) else straddlers.take)(survey)
        plan = decide(going, straddlers.straddlers, gc_ts)
        return plan.ts // TICK if plan else 0

    def applied(self, s: State) -> int:
        return s.checkpoint

    # -- its membership --------------------------------------------------------------------------

    def membership(self, s: State, at: int, pump: Pump) -> Iterator[Step]:
        if pump.entry == node.PAUSED:
            if (
                s.up
                and not self.bounds.finds
                and not pump.told
                and not any(view.who == at for view in s.views)
            ):
                yield from self.looks(s, at)
            if self.may_go_online(s, pump):
                yield f"online {at}", registered(s, at, entry=node.ONLINE, state=node.ONLINE)
        elif pump.closing >= 0:
            yield from self.leaving(s, at, pump)
        elif s.left.closes and (pump.state, "close") in node.LIFECYCLE:
            begun = pump._replace(closing=self.closings.add(self.conditions(0.0)))
            closing, marking = self.observed(s, begun)
            state = node.LIFECYCLE[pump.state, "close"]
            change = {"state": state, "closing": closing, "marking": marking}
            yield f"close {at}", registered(spent(s, "closes"), at, entry=state, **change)

    def may_go_online(self, s: State, pump: Pump) -> bool:
        """All drainers that live have confirmed."""
        status = node.NodeStatus("d", "d:1", node.ONLINE)
        drainers = {} if self.bounds.finds else {"d": NodeEntry(status, 1, s.alive)}
        return pump.told or not to_notify(ClusterView(s.revision, {}, drainers))

    def leaving(self, s: State, at: int, pump: Pump) -> Iterator[Step]:
        ts = s.ts + 1
        if pump.marking == 1:
            yield from self.logged(
                changed(s._replace(ts=ts), at, marking=2), at, f"time mark {at}", (ROLLBACK, ts)
            )
        elif pump.marking and pump.durable == len(pump.log):
            closing, _ = self.closings.step(pump.closing, "drawn", lambda it: it.drawn(ts), ts)
            drawn = self.marked(pump._replace(closing=closing, marking=0), ts)
            yield f"drawn {at}", of_pump(s._replace(ts=ts), at, drawn)
        closing, marking = self.observed(s, pump)
        if marking < 0:
            yield f"leave {at}", self.gone(s, at)
        elif closing != pump.closing:
            yield f"observe {at}", changed(s, at, closing=closing, marking=marking)

    def observed(self, s: State, pump: Pump) -> tuple[int, int]:
        """The closing after it has seen what is, and what is drawn then; -1: it leaves."""
        open_count = self.sorters.fact(pump.sorter, "open", lambda it: it.open_count)
        facts = self.watermark(pump), open_count, s.alive, s.checkpoint
        drainers = {"d": Reader(node.ONLINE, s.alive, s.checkpoint)}
        seen = CloseSnapshot(0.0, facts[0], open_count, 0, drainers)
        closing, effects = self.closings.step(pump.closing, "observe", lambda it: it.observe(seen), *facts)
        return closing, -1 if Leave() in effects else 1 if DrawMark() in effects else pump.marking

    def gone(self, s: State, at: int) -> State:
        for number, txn in enumerate(s.txns):
            if txn.pump == at and txn.phase != NEW and not 0 < txn.commit_ts <= s.checkpoint:
                raise Broken(f"Pump {at} leaves, and transaction {number} is not applied")
        return registered(s, at, entry=node.OFFLINE, state=node.OFFLINE, closing=-1, drawn=0, marks=())

    # -- the Drainer -----------------------------------------------------------------------------

    def drainer(self, s: State) -> Iterator[Step]:
        if s.seen < s.revision:
            yield from self.looks(s, WATCH)
        if self.bounds.finds or (not s.sure and s.alive):
            yield from self.looks(s, LIST)
        for at, view in enumerate(s.views):
            yield f"sees {view.who}", self.saw(s._replace(views=s.views[:at] + s.views[at + 1 :]), view)
        if self.may_emit(s):
            merger, popped = self.mergers.step(s.merger, "pop", lambda it: it.pop(BIG))
            if popped.entries or popped.watermark > s.announced:
                self.check_emitted(s, [entry.commit_ts for entry in popped.entries], popped.watermark)
                yield f"emit to {popped.watermark}", s._replace(merger=merger, announced=popped.watermark)
        if s.announced > s.checkpoint:
            yield "checkpoint", s._replace(checkpoint=s.announced)
        if not s.alive:
            yield "lease again", s._replace(alive=True)
        elif s.left.leases:
            yield "lease gone", self.without_lease(spent(s, "leases"))
        if s.left.deaths:
            yield "dies", spent(s, "deaths")._replace(up=False, views=())

    def dead(self, s: State) -> Iterator[Step]:
        if s.alive:
            yield "lapses", s._replace(alive=False)
        merger = self.mergers.add(self.merger(s.checkpoint))
        pumps = tuple(pump._replace(stream="", position=0) for pump in s.pumps)
        began = s._replace(merger=merger, pumps=pumps, announced=s.checkpoint)
        yield "starts", began._replace(up=True, alive=True, sure=True, seen=-1)

    def may_emit(self, s: State) -> bool:
        return s.sure

    def without_lease(self, s: State) -> State:
        """It knows before others do."""
        return s._replace(alive=False, sure=False)

    def looks(self, s: State, who: int) -> Iterator[Step]:
        """At the registry as it is now; the answer may be slow."""
        if any(view.who == who for view in s.views):
            return
        view = View(who, s.revision, tuple(pump.entry for pump in s.pumps), self.reached(s))
        after = self.saw(s, view)
        if after != s:
            yield f"looks {who}", after
        if s.left.slow and (after != s or who == LIST):
            yield f"asks {who}", spent(s, "slow")._replace(views=tuple(sorted((*s.views, view))))

    def reached(self, s: State) -> int:
        """What was known when a listing began."""
        if not self.bounds.finds:
            return 0
        reach = self.mergers.fact(s.merger, "reach", lambda it: it.reach)
        return max(reach, *(pump.position for pump in s.pumps if pump.stream), 0)

    def saw(self, s: State, view: View) -> State:
        """What the collector makes of a view, and of having it."""
        if self.is_news(s, view):
            s = s._replace(seen=view.revision)
            for at, entry in enumerate(view.entries):
                stream = s.pumps[at].stream
                if entry == node.OFFLINE and stream:
                    merger, _ = self.mergers.step(
                        s.merger, "end", lambda it, stream=stream: it.end(stream), stream
                    )
                    s = changed(s._replace(merger=merger), at, stream="", position=0)
                elif entry not in ("", node.OFFLINE) and not stream:
                    s = self.joined(s, at)
        if view.who == LIST and self.bounds.finds:
            raise_it = lambda it: setattr(it, "ceiling", view.reached_ts)  # noqa: E731
            s = s._replace(merger=self.mergers.step(s.merger, "ceiling", raise_it, view.reached_ts)[0])
        if view.who == LIST:
            return s._replace(sure=s.sure or s.alive)
        return s if view.who >= WATCH else changed(s, view.who, told=True)

    def is_news(self, s: State, view: View) -> bool:
        return view.revision >= s.seen

    def joined(self, s: State, at: int) -> State:
        def join(it: Merger) -> tuple[str, int]:
            stream = NAMES[at]
            while stream in it.source_ids:
                stream += NAMES[at]
            it.add_source(stream, it.position)
            return stream, it.position

        merger, (stream, position) = self.mergers.step(s.merger, "join", join, at)
        return changed(s._replace(merger=merger), at, stream=stream, position=position)

    def pull(self, s: State, at: int, pump: Pump) -> Iterator[Step]:
        watermark = self.watermark(pump)
        if not pump.purged_ts <= pump.position < watermark:  # what was purged is refused
            return
        ends = {s.txns[number].commit_ts for tp, number in pump.log[: pump.filed] if tp == COMMIT}
        stamps = tuple(sorted(ts for ts in ends if pump.position < ts <= watermark))
        yield f"pull {at} to {watermark}", self.pulled(s, at, stamps, watermark)
        if s.left.pages and stamps and stamps[0] < watermark:
            yield f"pull {at} to {stamps[0]}", self.pulled(spent(s, "pages"), at, stamps[:1], stamps[0])

    def pulled(self, s: State, at: int, stamps: tuple[int, ...], watermark: int) -> State:
        stream, entries = s.pumps[at].stream, [Merged(ts, b"x") for ts in stamps]
        try:
            given = stream, stamps, watermark
            merger, _ = self.mergers.step(
                s.merger, "push", lambda it: it.push(stream, entries, watermark), *given
            )
        except BinlogError as error:
            raise Broken(str(error)) from None
        return changed(s._replace(merger=merger), at, position=watermark)

    # -- what must hold --------------------------------------------------------------------------

    def check_emitted(self, s: State, stamps: list[int], watermark: int) -> None:
        committed = sorted(txn.commit_ts for txn in s.txns if s.announced < txn.commit_ts <= watermark)
        if stamps != committed:
            raise Broken(f"{stamps} go out up to {watermark}, committed after {s.announced} is {committed}")
        if watermark > s.ts:
            raise Broken(f"watermark {watermark} was not drawn")

    def check(self, s: State) -> None:
        for txn, pump in ((txn, s.pumps[txn.pump]) for txn in s.txns if txn.commit_ts):
            if (
                txn.commit_ts <= self.watermark(pump)
                and (COMMIT, s.txns.index(txn)) not in pump.log[: pump.filed]
            ):
                raise Broken(f"{pump} promises {self.watermark(pump)}, and has not sorted {txn}")


def of_pump(s: State, at: int, pump: Pump) -> State:
    return s._replace(pumps=(*s.pumps[:at], pump, *s.pumps[at + 1 :]))


def changed(s: State, at: int, **change: object) -> State:
    return of_pump(s, at, s.pumps[at]._replace(**change))


def registered(s: State, at: int, **change: object) -> State:
    """A Pump that has written its entry."""
    return changed(s._replace(revision=s.revision + 1), at, **change)


def of_txn(s: State, at: int, txn: Txn) -> State:
    return s._replace(txns=(*s.txns[:at], txn, *s.txns[at + 1 :]))


def spent(s: State, name: str) -> State:
    return s._replace(left=s.left._replace(**{name: getattr(s.left, name) - 1}))

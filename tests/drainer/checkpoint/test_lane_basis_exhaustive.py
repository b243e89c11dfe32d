"""Every interleaving of a small stream with lanes, kills, unique keys that come and go downstream, and rules
that change: between lives and by reload.

    python -m tests.drainer.checkpoint.test_lane_basis_exhaustive     with one kill more

The downstream notes for each of its rows what was written, in order. In every state that is a beginning of
what one pass over the stream writes, by the rules that are stored; nothing is missing at the end. The stream
goes through the real takeover, dispatcher, lane basis and rule history; when what is stored is the shells'
order (`table_learning`, `rule_taking`), with a kill between any two steps.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, cast

import pytest

from drainer.checkpoint import lane_basis
from drainer.checkpoint.lane_basis import LaneBasis, StoredBasis, TableSpread
from drainer.checkpoint.resume import DrainerState, Start, StarterInfo, StoredState, resume_point
from drainer.checkpoint.value import Checkpoint
from drainer.mysql.rows.causality import Spread, fold_id_of, lane_of_table
from drainer.mysql.rows.change import REMOVE, Form, Position, TableTarget
from drainer.sink.mysql.dispatcher import Dispatcher
from drainer.stream.rules.name_pattern import Source
from drainer.stream.rules.rule_history import RuleHistory
from drainer.stream.rules.rule_set import Rules
from drainer.stream.rules.table_rules import RouteRule, TableFilter, TableRouter
from drainer.txn import DELETE, INSERT, UPDATE, TableEvents, TableVersion, Transaction
from tests.drainer.support.exhaustive import explore
from tests.drainer.support.lane_model import TextPlan, table

LANES: Final = 2
NOW_TS: Final = 1000
KEYLESS: Final = "n"
INFOS: Final = {name: table(number, keyed=name != KEYLESS, pinned=False, lanes=1).version.info
                for number, name in enumerate("abn", 1)}  # fmt: skip

# A transaction: (table, row). `a=1` writes a row, `a=1>b=1` moves it, `-a=1` takes it away.
Rows = tuple[tuple[str, str], ...]
Write = tuple[str, str]  # of a row downstream (its table and key), or of a table without a key


def rules(text: str, *routes: tuple[str, str], ignore: tuple[str, ...] = ()) -> Rules:
    return Rules(
        names=TableFilter(ignore_table=[("d", name) for name in ignore]),
        router=TableRouter([RouteRule(old, Source.of("d", old), "d", new) for old, new in routes]),
        text=json.dumps({"rules": text}),
    )


PLAIN: Final = rules("plain")
SHARED: Final = rules("shared", ("a", "b"))  # where b itself goes, too
MOVED: Final = rules("moved", ("a", "c"), ("n", "m"))
LESS: Final = rules("less", ignore=("b", "n"))
ALL: Final = (PLAIN, SHARED, MOVED, LESS)


@dataclass(frozen=True, eq=False)
class Input:
    """`configured` in this order: each kill or reload may go on to the next. `alters`: so often a unique key
    comes or goes. `former`: the first life is that of a release that stores no basis."""

    transactions: tuple[Rows, ...]
    configured: tuple[Rules, ...] = (PLAIN,)
    alters: int = 0
    former: bool = False
    unique: bool = False

    def commit_ts(self, number: int) -> int:
        return 10 * (number + 1)


class Plan(TextPlan):
    key_index = None
    key_columns = ()


PLAN: Final = cast(Any, Plan())


@cache
def natural(name: str, target: tuple[str, str] | None, unique: bool) -> TableTarget:
    """As the downstream is now; the versions are those that a translator would hand out."""
    version = version_of(name, target)
    pinned = unique or name == KEYLESS
    fold_id = fold_id_of(version.id, target)
    return TableTarget(
        version=version,
        sql=PLAN,
        spread=Spread.BY_TABLE if pinned else Spread.BY_KEY,
        lane=lane_of_table(fold_id, LANES),
        name=b"`d`.`%b`" % version.downstream[1].encode(),
        form=Form.KEYLESS if name == KEYLESS else Form.REPLACE,
        fold_id=fold_id,
        keyed=name != KEYLESS,
    )


@cache
def version_of(name: str, target: tuple[str, str] | None) -> TableVersion:
    return TableVersion(INFOS[name], "d", name, 1, target)


def translated(given: Input, number: int, by: Rules) -> Transaction:
    events = []
    for ordinal, (name, text) in enumerate(given.transactions[number]):
        if by.allows("d", name):
            target = None if by.router.is_empty else by.router.route("d", name)
            kind = UPDATE if ">" in text else DELETE if text[0] == "-" else INSERT
            row = text.lstrip("-").encode()
            events.append(TableEvents(version_of(name, target), [kind], [row], ordinal))
    ts = given.commit_ts(number)
    return Transaction(ts - 1, ts, tuple(events), 1)


def writes(target: TableTarget, row: bytes, key: bytes, commit_ts: int, op: int) -> Write:
    name = target.version.downstream[1]
    if not target.keyed:
        return name, f"{commit_ts} {row.decode()}"
    return f"{name}.{key.decode()}", f"{commit_ts} {'-' if op >= REMOVE else '+'}"


@cache
def dispatched(
    given: Input, number: int, by: Rules, learned: tuple[TableTarget, ...], positions: tuple[Position, ...]
) -> tuple[tuple[int, tuple[Write, ...]], ...]:
    """What each lane gets of a transaction."""
    dispatcher = Dispatcher(positions)
    for target in learned:
        dispatcher.learn(target)
    transaction = translated(given, number, by)
    dispatcher.dispatch(transaction)
    return tuple(
        (lane, tuple(writes(c[0], c[3], c[2], transaction.commit_ts, c[1]) for c in chunk.changes))
        for lane, chunk in dispatcher.take()
    )


@cache
def serial(given: Input, history: str) -> dict[str, tuple[str, ...]]:
    """One pass over the stream: what each row downstream gets."""
    eras = read_history(history)
    found: dict[str, tuple[str, ...]] = {}
    for number in range(len(given.transactions)):
        by = eras.at(given.commit_ts(number))
        learned = tuple(
            natural(name, None if by.router.is_empty else by.router.route("d", name), True) for name in INFOS
        )
        for _, wrote in dispatched(given, number, by, learned, (Position(0),) * LANES):
            for row, what in wrote:
                found[row] = (*found.get(row, ()), what)
    return found


@cache
def read_basis(rules: str, spreads: frozenset[tuple[int, TableSpread]]) -> StoredBasis:
    """As a start reads what was stored."""
    return StoredBasis.from_json(
        lane_basis.header_json(rules), {fold: spread.to_json() for fold, spread in spreads}
    )


@cache
def read_history(rules: str) -> RuleHistory:
    return RuleHistory.from_json(rules, ALL)


Queued = tuple[int, tuple[Write, ...]]  # commit_ts of a chunk, what it writes


@dataclass
class World:
    given: Input
    kills: int
    alters: int
    config: int  # which rules the file has
    # durable
    lanes: tuple[int, ...] = (5,) * LANES
    stored_ts: int = 5
    epoch: int = 0
    header: str | None = None
    header_epoch: int = 0
    spreads: dict[int, TableSpread] = field(default_factory=dict)
    unique: bool = False
    rows: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # of the life
    start: Start | None = None
    history: RuleHistory | None = None
    basis: LaneBasis = field(default_factory=LaneBasis)
    recorded: bool = False
    past: bool = True
    asked: bool = False
    learned: tuple[TableTarget, ...] = ()
    next: int = 0
    queues: tuple[tuple[Queued, ...], ...] = ((),) * LANES

    @property
    def wanted(self) -> Rules:
        return self.given.configured[self.config]

    @property
    def is_former(self) -> bool:
        return self.given.former and self.epoch == 1

    @property
    def may_change(self) -> bool:
        """Behind a release that stores nothing, what it went by must stay until it is stored."""
        return not self.given.former or self.header is not None

    def copy(self) -> World:
        other = copy.copy(self)
        other.rows, other.spreads = dict(self.rows), dict(self.spreads)
        other.basis = LaneBasis(self.basis._known)
        other.basis._found = {fold: dict(members) for fold, members in self.basis._found.items()}
        return other

    def key(self) -> object:
        return (
            self.kills, self.alters, self.config, self.lanes, self.stored_ts, self.epoch, self.header,
            self.header_epoch, frozenset(self.spreads.items()), self.unique,
            frozenset(self.rows.items()), self.past, self.asked, self.next, self.queues,
            frozenset((id(one.version), one.spread.name) for one in self.learned),
            self.history and tuple((era.after_ts, era.rules.text) for era in self.history.eras),
            frozenset(self.basis._known.items()),
            frozenset((fold, frozenset(of.items())) for fold, of in self.basis._found.items()),
        )  # fmt: skip

    # -- a life ---------------------------------------------------------------------------------------

    def begin(self) -> None:
        """What `CheckpointStore.start` and the assembly do."""
        row = Checkpoint(self.stored_ts, False, 1, epoch=self.epoch) if self.epoch else None
        state = DrainerState(self.epoch, "", row, None) if row else None
        basis = None
        if self.header is not None and self.header_epoch == self.epoch:
            basis = read_basis(self.header, frozenset(self.spreads.items()))
        found = StoredState(row, state, tuple(map(Position, self.lanes)) if row else (), basis=basis)
        self.start = start = resume_point(found, StarterInfo(1, LANES, 5, NOW_TS))
        assert not start.foreign
        self.epoch += 1
        self.lanes = tuple(position.commit_ts for position in start.positions)
        if start.basis is None or start.drained:
            self.spreads = {}
            self.header = None if start.basis is None else self.header
        if self.header is not None:
            self.header_epoch = self.epoch
        self.stored_ts = start.floor_ts
        self.recorded = start.basis is not None
        self.basis = LaneBasis(start.basis.tables if start.basis else {})
        self.history = read_history(start.basis.rules) if start.basis else None
        self.past, self.asked, self.learned = True, False, ()
        self.next = sum(
            self.given.commit_ts(n) <= min(self.lanes) for n in range(len(self.given.transactions))
        )
        self.queues = ((),) * LANES

    @property
    def drained(self) -> bool:
        return not any(self.queues)

    @property
    def place(self) -> int:
        assert self.start is not None
        last_ts = self.given.commit_ts(self.next - 1) if self.next else 5
        return max(last_ts, self.start.past_ts)

    @property
    def due(self) -> bool:
        if self.history is None:
            return True
        return self.history.last.text != self.wanted.text

    def rules_at(self, commit_ts: int) -> Rules:
        if self.history is None:
            return self.wanted
        return self.history.at(commit_ts) if self.past else self.history.last

    def settle(self) -> None:
        assert self.drained
        assert self.place >= max(self.lanes), "a lane would be put back"
        self.lanes = (self.place,) * LANES
        self.stored_ts = max(self.stored_ts, self.place)

    def put_rules(self) -> None:
        history = self.history or RuleHistory.since(0, self.wanted)
        self.history = history.followed_by(self.place, self.wanted)
        self.settle()
        self.header, self.header_epoch, self.spreads = self.history.to_json(), self.epoch, {}
        self.basis.settled()
        self.learned, self.asked, self.recorded = (), False, True

    def take(self) -> Iterator[World]:
        """The next transaction, or what has to be stored before it; nothing where lanes are to be drained."""
        assert self.start is not None
        commit_ts = self.given.commit_ts(self.next)
        if self.past and commit_ts > self.start.past_ts and not self.is_former:
            if self.due and not self.drained:
                return
            self.past, self.learned = False, ()
            if self.due:
                self.put_rules()
                yield self
                return
        by = self.rules_at(commit_ts)
        transaction = translated(self.given, self.next, by)
        versions = [events.table for events in transaction.tables]
        known = {target.version for target in self.learned}
        unknown = [version for version in dict.fromkeys(versions) if version not in known]
        found = [natural(version.name, version.target, self.unique) for version in unknown]
        if self.past:
            self.learned = (*self.learned, *map(self._of_past, found))
        elif unknown:
            yield from self._learn(found)
            return
        assert commit_ts > min(self.lanes)
        for lane, wrote in dispatched(self.given, self.next, by, self.learned, self.start.positions):
            queue = (*self.queues[lane], (commit_ts, wrote))
            self.queues = tuple(queue if n == lane else q for n, q in enumerate(self.queues))
        self.next += 1
        yield self

    def _of_past(self, target: TableTarget) -> TableTarget:
        if self.is_former:  # a name of its own was none to it
            by_id = target.version.id, lane_of_table(target.version.id, LANES)
            own = target.version.target in (None, ("d", target.version.name))
            fold_id, lane = by_id if own else (target.fold_id, target.lane)
            return as_kept(replace(target, fold_id=fold_id, lane=lane))
        if not self.recorded:
            return as_kept(lane_basis.as_version_1(target, LANES))
        known = self.basis.of_past(target)
        return target if known is None else as_kept(lane_basis.spread_as(target, known, LANES))

    def _learn(self, found: list[TableTarget]) -> Iterator[World]:
        plan = self.basis.plan(found)
        if plan.other:
            if self.drained:
                self.settle()
                self.spreads |= {**plan.new, **plan.other}
                self.basis.stored(plan)
                self.learned = ()
                yield self
            return
        self.spreads |= plan.new
        self.basis.stored(plan)
        targets = [as_kept(lane_basis.spread_as(one, plan.spreads[one.fold_id], LANES)) for one in found]
        self.learned = (*self.learned, *targets)
        yield self

    # -- all that may happen next ---------------------------------------------------------------------

    def following(self) -> Iterator[World]:
        if self.next < len(self.given.transactions):
            yield from self.copy().take()
        for lane, queue in enumerate(self.queues):
            if queue:
                other = self.copy()
                commit_ts, wrote = queue[0]
                for row, what in wrote:
                    other.rows[row] = (*other.rows.get(row, ()), what)
                other.lanes = tuple(commit_ts if n == lane else ts for n, ts in enumerate(other.lanes))
                other.queues = tuple(q[1:] if n == lane else q for n, q in enumerate(other.queues))
                yield other
        waiting = [queue[0][0] for queue in self.queues if queue]
        last_ts = self.given.commit_ts(self.next - 1) if self.next else 5
        resolved_ts = min([last_ts, *(ts - 1 for ts in waiting)])
        if resolved_ts > self.stored_ts:
            other = self.copy()
            other.stored_ts = resolved_ts
            yield other
        if self.alters and self.may_change:
            other = self.copy()
            other.unique, other.alters = not self.unique, self.alters - 1
            yield other
            noticed = other.copy()
            noticed.learned = ()
            yield noticed
        if self.asked and self.drained:
            other = self.copy()
            other.put_rules()
            yield other
        more = self.config + 1 < len(self.given.configured)
        if more and not self.past and not self.asked:
            other = self.copy()
            other.config, other.asked = self.config + 1, True
            yield other
        if self.kills:
            for config in range(self.config, self.config + (2 if more and self.may_change else 1)):
                other = self.copy()
                other.kills, other.config = self.kills - 1, config
                other.begin()
                yield other

    def check(self) -> None:
        history = self.header or RuleHistory.since(0, self.given.configured[0]).to_json()
        expected = serial(self.given, history)
        for row, wrote in self.rows.items():
            assert expected.get(row, ())[: len(wrote)] == wrote, f"{row}: {wrote}, not {expected.get(row)}"
        for row, what in expected.items():
            missing = what[len(self.rows.get(row, ())) :]
            assert not missing or int(missing[0].split()[0]) > self.stored_ts, (
                f"{row}: {missing} is passed by"
            )

    @property
    def budget(self) -> tuple[int, int]:
        return self.kills, self.alters

    def check_end(self) -> None:
        assert self.next == len(self.given.transactions)
        assert self.header or self.is_former or self.past
        expected = serial(self.given, self.header or RuleHistory.since(0, self.given.configured[0]).to_json())
        assert self.rows == expected


@cache
def _kept(version: TableVersion, spread: Spread, lane: int, fold_id: int, of: TableTarget) -> TableTarget:
    return replace(of, spread=spread, lane=lane, fold_id=fold_id)


def as_kept(target: TableTarget) -> TableTarget:
    """One object for equal ones, so that states can be told apart."""
    plain = natural(target.version.name, target.version.target, False)
    return _kept(target.version, target.spread, target.lane, target.fold_id, plain)


def walk(given: Input, kills: int) -> tuple[int, int]:
    """How many states there are, and how many of them are ends."""
    first = World(given, kills, given.alters, 0, unique=given.unique)
    first.begin()
    return explore(first)


KEYS: Final = ((("a", "p=1"),), (("a", "q=1"),), (("a", "p=1>r=1"),), (("a", "-q=1"),), (("a", "s=1"),))
BOTH: Final = (
    (("a", "p=1"), ("n", "x")),
    (("b", "q=1"), ("n", "y")),
    (("a", "-p=1"),),
    (("b", "p=2"), ("a", "q=2")),
)
HANDED_ON: Final = ((("a", "p=1"),), (("a", "-p=1"),), (("b", "p=2"),), (("b", "-p=2"),), (("a", "p=3"),))

# With the number of kills; the program takes one more.
INPUTS: Final = {
    "a unique key comes": (Input(KEYS, alters=1), 2),
    "a unique key comes and goes": (Input(KEYS[:4], alters=2), 1),
    "a unique key goes": (Input(KEYS, alters=1, unique=True), 2),
    "beside a table without a key": (Input(BOTH, alters=1), 1),
    "a route comes": (Input(BOTH, (PLAIN, MOVED)), 2),
    "a route goes": (Input(BOTH, (MOVED, PLAIN)), 2),
    "a filter comes and goes": (Input(BOTH, (PLAIN, LESS, PLAIN)), 1),
    "two tables become one": (Input(HANDED_ON, (PLAIN, SHARED)), 2),
    "one table that is two": (Input(HANDED_ON, (SHARED,), alters=1), 2),
    "one table becomes two": (Input(BOTH, (SHARED, PLAIN), alters=1), 1),
    "routes come with a unique key": (Input(HANDED_ON[:4], (PLAIN, SHARED, MOVED), alters=1), 1),
    "after a release that stored none": (Input(BOTH, (SHARED, PLAIN), former=True), 2),
    "after one that stored none, a unique key": (Input(KEYS[:4], alters=1, former=True), 2),
}


@pytest.mark.parametrize("name", INPUTS)
def test_each_row_once_and_in_order_whatever_changes(name: str) -> None:
    given, kills = INPUTS[name]
    states, ends = walk(given, kills)
    assert states > 100
    assert ends


def main() -> None:
    for name, (given, kills) in INPUTS.items():
        states, ends = walk(given, kills + 1)
        print(f"{name}: {states} states, {ends} ends", flush=True)


if __name__ == "__main__":
    main()

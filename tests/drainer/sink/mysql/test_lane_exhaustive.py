"""Every interleaving of a small input: hand-over, commits, stored checkpoints, crashes, restarts.

    python -m tests.drainer.sink.mysql.test_lane_exhaustive     with one crash more

All schedules are walked, equal states once. A life begins where `takeover` says, cuts the rest of the input
in a way of its own, hands over whenever it likes, and its lanes commit one chunk or several at a time. In
every state each lane has applied what the serial history has up to its position, and the checkpoint is
below everything that is not committed.
"""

from __future__ import annotations

import copy
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Final

import pytest

from drainer.checkpoint.resume import DrainerState, StarterInfo, StoredState, resume_point
from drainer.checkpoint.value import Checkpoint
from drainer.mysql.rows.causality import lane_of_key, lane_of_table
from drainer.mysql.rows.change import COMPLETE, Chunk, Position, TableTarget
from drainer.sink.mysql.dispatcher import Dispatcher
from drainer.sink.mysql.progress import Progress
from drainer.txn import DELETE, INSERT, UPDATE, TableEvents, TableVersion, Transaction
from tests.drainer.support.lane_model import Downstream, folding, table

KEYED, UNIQUE, KEYLESS, FOLDING = 1, 2, 3, 4
NOW_TS: Final = 1000

# A transaction: (table id, row event) in order. `+` adds a row, `-` removes one, `>` is an UPDATE.
Rows = tuple[tuple[int, str], ...]


@dataclass(frozen=True, eq=False)
class Input:
    """`pieces`: numbers of the transactions that come in pieces. `cuts`: what is large for a lane."""

    transactions: tuple[Rows, ...]
    pieces: frozenset[int] = frozenset()
    lanes: int = 2
    cut_rows: int = 1000

    def commit_ts(self, number: int) -> int:
        return 10 * (number + 1)

    def parts(self, number: int, versions: dict[int, TableVersion], size: int) -> list[Transaction]:
        """The transaction as it reaches the dispatcher, pieces of `size` rows."""
        rows, ts = self.transactions[number], self.commit_ts(number)
        size = size if number in self.pieces else len(rows)
        parts = []
        for start in range(0, len(rows), size):
            events = [
                TableEvents(versions[table_id], [kind_of(text)], [bytes_of(text)], start + at)
                for at, (table_id, text) in enumerate(rows[start : start + size])
            ]
            last = start + size >= len(rows) and number not in self.pieces
            parts.append(Transaction(ts - 1, ts, tuple(events), 1, last=last))
        if number in self.pieces:
            parts.append(Transaction(ts - 1, ts, (), 0))
        return parts


def kind_of(text: str) -> int:
    return UPDATE if ">" in text else {"+": INSERT, "-": DELETE}[text[0]]


def bytes_of(text: str) -> bytes:
    return text.lstrip("+-").encode()


@cache
def targets(lanes: int) -> dict[int, TableTarget]:
    made = [
        table(KEYED, keyed=True, pinned=False, lanes=lanes),
        table(UNIQUE, keyed=True, pinned=True, lanes=lanes, unique=True),
        table(KEYLESS, keyed=False, pinned=True, lanes=lanes),
        folding(FOLDING, lanes),
    ]
    return {target.fold_id: target for target in made}


@cache
def lane_of(table_id: int, key: bytes, lanes: int) -> int:
    if table_id in (KEYED, FOLDING):
        return lane_of_key(table_id, key.lower() if table_id == FOLDING else key, lanes)
    return lane_of_table(table_id, lanes)


# -- the serial history ----------------------------------------------------------------------------

Contents = frozenset[tuple[int, bytes, int]]


@cache
def history(given: Input, lanes: int, lane: int, position: Position) -> Contents:
    """What a lane has to have downstream at a position, by naive application: (table, row, how often)."""
    rows: Counter[tuple[int, bytes]] = Counter()
    for ts, ordinal, table_id, image, count in steps(given):
        before = ts < position.commit_ts or (
            ts == position.commit_ts and (position.rows == COMPLETE or ordinal < position.rows)
        )
        if before and lane_of(table_id, image.partition(b"=")[0], lanes) == lane:
            rows[table_id, image] += count
    assert all(count >= 0 for count in rows.values())
    return frozenset((*row, count) for row, count in rows.items() if count)


def steps(given: Input) -> Iterator[tuple[int, int, int, bytes, int]]:
    """(commit_ts, ordinal, table, image, +1 or -1)"""
    for number, rows in enumerate(given.transactions):
        for ordinal, (table_id, text) in enumerate(rows):
            old, _, new = bytes_of(text).partition(b">")
            where = given.commit_ts(number), ordinal, table_id
            if kind_of(text) == INSERT:
                yield (*where, old, 1)
            else:
                yield (*where, old, -1)
                if new:
                    yield (*where, new, 1)


@cache
def first_missing(given: Input, lanes: int, lane: int, position: Position) -> int:
    """commit_ts of the first change of the lane that the position does not cover."""
    for ts, ordinal, table_id, image, _ in steps(given):
        if lane_of(table_id, image.partition(b"=")[0], lanes) == lane and not (
            ts < position.commit_ts
            or (ts == position.commit_ts and (position.rows == COMPLETE or ordinal < position.rows))
        ):
            return ts
    return NOW_TS


# -- one life --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Life:
    """How a life began, and how it cuts: its number decides the size of pieces."""

    positions: tuple[Position, ...]
    floor_ts: int
    number: int

    @property
    def lanes(self) -> int:
        return len(self.positions)

    @property
    def after_ts(self) -> int:
        return min(position.complete_ts for position in self.positions)


@cache
def parts_of(given: Input, life: Life) -> tuple[Transaction, ...]:
    """What a life gets from its pumps."""
    versions = {table_id: target.version for table_id, target in targets(life.lanes).items()}
    return tuple(
        part
        for number in range(len(given.transactions))
        if given.commit_ts(number) > life.after_ts
        for part in given.parts(number, versions, 1 + life.number % 2)
    )


@cache
def cut(given: Input, life: Life, takes: tuple[int, ...]) -> tuple[tuple[tuple[int, Chunk], ...], int]:
    """The last lot of chunks if the parts were taken after so many each, and up to where it is complete."""
    dispatcher = Dispatcher(life.positions, cut_rows=given.cut_rows)
    for target in targets(life.lanes).values():
        dispatcher.learn(target)
    ready: list[tuple[int, Chunk]] = []
    upto_ts, done = life.after_ts, 0
    parts = parts_of(given, life)
    for take in takes:
        for part in parts[done:take]:
            dispatcher.dispatch(part)
            if part.last:
                upto_ts = part.commit_ts
        done = take
        ready = dispatcher.take()
    return tuple(ready), upto_ts


@dataclass
class World:
    """Memory of a life, and what is durable. `left`: crashes that may still come."""

    life: Life
    left: int
    takes: tuple[int, ...]
    queues: list[deque[Chunk]]
    progress: Progress
    # durable
    stored_ts: int
    at: list[Position]
    rows: dict[int, Contents] = field(default_factory=dict)  # by lane, of tables that are spread or pinned

    def key(self) -> object:
        queues = tuple(tuple(chunk.sequence for chunk in queue) for queue in self.queues)
        durable = (self.stored_ts, tuple(self.at), tuple(self.rows.items()))
        return self.life, self.left, self.takes, queues, self.progress.resolved_ts, durable

    def copy(self) -> World:
        progress = copy.copy(self.progress)
        progress._open = [deque(waiting) for waiting in progress._open]
        queues = [deque(queue) for queue in self.queues]
        return World(
            self.life, self.left, self.takes, queues, progress, self.stored_ts, list(self.at), dict(self.rows)
        )


class Walk:
    """All schedules of an input."""

    def __init__(self, given: Input, crashes: int) -> None:
        self.given = given
        self.states = self.ends = self.crashes = 0
        self._seen: set[object] = set()
        self._open = [self._begin((), None, Contents(), crashes, 0)]
        while self._open:
            self._visit(self._open.pop())

    def _begin(
        self, at: tuple[Position, ...], stored_ts: int | None, rows: Contents, left: int, number: int
    ) -> World:
        """A start: what the checkpoint's tables say, through the takeover."""
        row = None if stored_ts is None else Checkpoint(stored_ts, False, 1, epoch=number)
        state = None if row is None else DrainerState(number, "", row, None)
        lanes = self.given.lanes + number % 2  # only at a drained point
        start = resume_point(StoredState(row, state, at), StarterInfo(1, lanes, 5, NOW_TS))
        assert not start.foreign
        life = Life(start.positions, start.floor_ts, number)
        by_lane: dict[int, Contents] = {
            lane: frozenset(
                item for item in rows if lane_of(item[0], item[1].partition(b"=")[0], life.lanes) == lane
            )
            for lane in range(life.lanes)
        }
        progress = Progress(life.lanes, life.after_ts)
        queues: list[deque[Chunk]] = [deque() for _ in range(life.lanes)]
        return World(life, left, (), queues, progress, life.floor_ts, list(life.positions), by_lane)

    def _visit(self, world: World) -> None:
        key = world.key()
        if key in self._seen:
            return
        self._seen.add(key)
        self.states += 1
        self._check(world)
        parts = parts_of(self.given, world.life)
        done = world.takes[-1] if world.takes else 0
        for take in range(done + 1, len(parts) + 1):
            self._open.append(self._hand_over(world.copy(), take))
        for lane, queue in enumerate(world.queues):
            for chunks in range(1, len(queue) + 1):
                self._open.append(self._commit(world.copy(), lane, chunks))
        if world.progress.resolved_ts > world.stored_ts:
            self._open.append(saved := world.copy())
            saved.stored_ts = world.progress.resolved_ts
        if world.left:
            self.crashes += 1
            rows: Contents = frozenset(chain.from_iterable(world.rows.values()))
            self._open.append(
                self._begin(tuple(world.at), world.stored_ts, rows, world.left - 1, world.life.number + 1)
            )
        if done == len(parts) and not any(world.queues):
            self.ends += 1
            assert world.progress.idle
            last_ts = self.given.commit_ts(len(self.given.transactions) - 1)
            assert world.progress.resolved_ts == max(last_ts, world.life.after_ts)

    def _hand_over(self, world: World, take: int) -> World:
        world.takes = (*world.takes, take)
        ready, upto_ts = cut(self.given, world.life, world.takes)
        for lane, chunk in ready:
            world.progress.sent(lane, chunk.sequence, chunk.first_ts)
            world.queues[lane].append(chunk)
        world.progress.dispatched(upto_ts)
        return world

    def _commit(self, world: World, lane: int, count: int) -> World:
        chunks = [world.queues[lane].popleft() for _ in range(count)]
        batch = Chunk(
            sequence=chunks[-1].sequence,
            changes=[change for chunk in chunks for change in chunk.changes],
            first_ts=chunks[0].first_ts,
            position=chunks[-1].position,
            size_bytes=0,
            cut=any(chunk.cut for chunk in chunks),
        )
        downstream = loaded(world.rows[lane])
        downstream.apply(batch)
        world.rows[lane] = unloaded(downstream)
        assert batch.position.order_key() > world.at[lane].order_key(), (
            "a lost COMMIT could not be told from none"
        )
        world.at[lane] = batch.position
        world.progress.committed(lane, batch.sequence)
        return world

    def _check(self, world: World) -> None:
        world.progress.check()
        lanes = world.life.lanes
        for lane, position in enumerate(world.at):
            assert world.rows[lane] == history(self.given, lanes, lane, position)
            assert world.progress.resolved_ts < first_missing(self.given, lanes, lane, position)
        assert world.stored_ts <= world.progress.resolved_ts
        folded = [
            image.partition(b"=")[0].lower()
            for rows in world.rows.values()
            for table_id, image, _ in rows
            if table_id == FOLDING
        ]
        assert len(folded) == len(set(folded)), "two rows under one key"


def loaded(rows: Contents) -> Downstream:
    downstream = Downstream()
    for table_id, image, count in rows:
        if table_id == KEYLESS:
            downstream.keyless.setdefault(table_id, Counter())[image] = count
        else:
            key, _, value = image.partition(b"=")
            downstream.keyed.setdefault(table_id, {})[key] = value
    return downstream


def unloaded(downstream: Downstream) -> Contents:
    keyed, keyless = downstream.contents()
    return frozenset(
        chain(
            ((of, key + b"=" + value, 1) for of, rows in keyed.items() for key, value in rows.items()),
            ((of, image, count) for of, rows in keyless.items() for image, count in rows.items()),
        )
    )


# The same keys again and again, moves between lanes, equal rows of a table without key.
MOVES = (
    ((KEYED, "+a=1"), (KEYED, "+b=2"), (KEYLESS, "+r=1")),
    ((KEYED, "a=1>c=3"), (KEYLESS, "+r=1"), (UNIQUE, "+u=1")),
    ((KEYED, "b=2>a=4"), (KEYED, "c=3>b=5"), (UNIQUE, "u=1>v=1")),
    ((KEYLESS, "-r=1"), (KEYED, "-a=4"), (UNIQUE, "+u=2")),
)
BORN_AND_GONE = (
    ((KEYED, "+a=1"), (KEYED, "a=1>a=2"), (KEYED, "-a=2"), (KEYLESS, "+r=1"), (KEYLESS, "r=1>r=2")),
    ((KEYED, "+a=3"), (UNIQUE, "+u=1"), (KEYLESS, "r=2>r=1")),
    ((KEYED, "a=3>b=3"), (UNIQUE, "-u=1"), (UNIQUE, "+u=2"), (KEYED, "+a=4")),
)
# Keys that only the downstream takes for one follow each other, beside rows that are spread and pinned.
EITHER_CASE = (
    ((FOLDING, "+a=1"), (FOLDING, "+b=1"), (KEYED, "+A=1")),
    ((FOLDING, "-a=1"), (FOLDING, "+A=2"), (UNIQUE, "+u=1")),
    ((FOLDING, "A=2>c=3"), (FOLDING, "b=1>a=4"), (KEYED, "A=1>a=1")),
    ((FOLDING, "a=4>A=5"), (FOLDING, "-c=3"), (FOLDING, "+C=6"), (UNIQUE, "u=1>v=1")),
)
SINGLE = (((KEYED, "+a=1"),), ((KEYLESS, "+r=1"),), ((KEYED, "a=1>b=1"),), ((KEYLESS, "-r=1"),))
LARGE = (
    ((KEYED, "+a=1"), (KEYED, "a=1>b=1"), (KEYLESS, "+r=1")),
    ((KEYED, "b=1>a=2"), (KEYLESS, "-r=1")),
)
WIDE = (
    tuple((KEYED, f"+{key}=1") for key in "abcdef"),
    tuple((KEYED, f"{old}=1>{new}=2") for old, new in zip("abc", "xyz", strict=True)),
    ((KEYED, "-d=1"), (KEYED, "x=2>d=3")),
)

# With the number of crashes; the program takes one more.
INPUTS = {
    "moves": (Input(MOVES), 1),
    "moves, three lanes": (Input(MOVES[:3], lanes=3), 1),
    "one in pieces": (Input(MOVES[:2], pieces=frozenset({1})), 1),
    "all in pieces": (Input(LARGE, pieces=frozenset({0, 1})), 1),
    "born and gone": (Input(BORN_AND_GONE), 2),
    "keys of either case": (Input(EITHER_CASE), 1),
    "keys of either case, three lanes": (Input(EITHER_CASE[:3], lanes=3), 1),
    "keys of either case, in pieces": (Input(EITHER_CASE[:3], pieces=frozenset({1})), 1),
    "single rows": (Input(SINGLE), 2),
    "cut inside a lane": (Input(WIDE, cut_rows=2), 1),
}


@pytest.mark.parametrize("name", INPUTS)
def test_every_schedule_applies_exactly_once(name: str) -> None:
    given, crashes = INPUTS[name]
    walk = Walk(given, crashes)
    assert walk.ends > 10


def main() -> None:
    for name, (given, crashes) in INPUTS.items():
        walk = Walk(given, crashes + 1)
        print(f"{name}: {walk.states} states, {walk.crashes} crashes, {walk.ends} ends", flush=True)


if __name__ == "__main__":
    main()

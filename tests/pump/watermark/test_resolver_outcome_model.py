"""The stream delivers what TiKV committed: a client of TiDB, another one, garbage collection, a pump and its
restart in every order, every message lost and everybody dead at every step.

The parts that decide are the real ones: the sorter over a log that is replayed whole at each restart, and the
questions to TiKV, over the plain store of `tests.fakes`. In place of disks and tasks there is one line after
the other. The truth is what the store did when the client committed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from pump.index.sorter import GivenUp, Sorter
from pump.log.record import LogRecord, ValuePointer
from tests.fakes.mvcc import KeyFailure
from tests.fakes.world import TikvWorld
from tidb_binlog import tso
from tidb_binlog.binlog import COMMIT, PREWRITE, ROLLBACK, SETTLED_ROLLBACK
from tidb_binlog.upstream_port import Committed, RolledBack, Unknown

KEY = b"t\x80primary"
LIFE_S = 600.0

CLIENTS = {
    "commits": ("binlog", "lock", "commit", "tell"),
    "loses the answer": ("binlog", "lock", "commit", "say rolled back"),
    "loses the request": ("binlog", "lock", "say rolled back"),
    "fails": ("binlog", "lock", "clean up", "say rolled back"),
    "fails early": ("binlog", "say rolled back"),
    "is late": ("binlog", "say rolled back", "lock", "commit"),
}
"""A message that is lost is a step that is left out, which is what a client does that dies before it."""


@dataclass
class World:
    hold: bool
    tikv: TikvWorld = field(default_factory=TikvWorld)
    log: list[LogRecord] = field(default_factory=list)
    truth: int = 0
    failed: bool = False
    collected: bool = False
    unknown: bool = False

    def __post_init__(self) -> None:
        self.start_ts = self.tikv.cluster.ts()
        self.restart()

    # The client.

    def client(self, step: str) -> None:
        cluster = self.tikv.cluster
        if step == "binlog":
            self.append(PREWRITE, 0)
        elif step == "tell":
            self.append(*((COMMIT, self.truth) if self.truth else (ROLLBACK, 0)))
        elif step == "say rolled back":
            self.append(ROLLBACK, 0)
        elif step == "clean up":
            cluster.mvcc.roll_back(KEY, self.start_ts)
        elif not self.failed:
            try:
                if step == "lock":
                    if any(write.commit_ts > self.start_ts for write in cluster.mvcc.row(KEY).writes):
                        raise KeyFailure(None)  # a write conflict
                    cluster.prewrite({KEY: b"ours"}, start_ts=self.start_ts)
                else:
                    self.truth = cluster.commit(self.start_ts, KEY)
            except KeyFailure:
                self.failed = True

    # The other client and the garbage collection.

    def overwrite(self) -> None:
        row = self.tikv.cluster.mvcc.row(KEY)
        if row.lock is None:
            self.tikv.cluster.put(KEY, b"theirs")

    def collect(self) -> None:
        """As soon as it may."""
        cluster = self.tikv.cluster
        cluster.clock.advance(LIFE_S + 60.0)
        if self.hold and self.sorter.is_open(self.start_ts):
            cluster.service_safe_points["pump"] = (self.start_ts - 1, 0.0)
        cluster.collect(tso.from_wall_s(cluster.clock.wall_s() - LIFE_S))
        cluster.service_safe_points.clear()
        self.collected |= cluster.gc_safe_point >= self.start_ts

    # The pump.

    def append(self, tp: int, commit_ts: int) -> None:
        self.log.append(LogRecord(tp, self.start_ts, commit_ts, ValuePointer(0, len(self.log) * 10)))
        self.feed(self.log[-1:])

    def feed(self, records: list[LogRecord]) -> None:
        self.given_up |= {
            effect.start_ts for effect in self.sorter.feed(records, 0.0) if isinstance(effect, GivenUp)
        }

    def restart(self) -> None:
        self.sorter = Sorter(clients_know=False)
        self.asker = self.tikv.transactions()
        self.given_up: set[int] = set()
        self.feed(self.log)

    async def ask(self) -> None:
        if not self.sorter.is_open(self.start_ts):
            return
        [outcome] = await self.asker.outcomes([(self.start_ts, KEY)], self.given_up)
        self.unknown = isinstance(outcome, Unknown)
        if isinstance(outcome, Committed):
            self.append(COMMIT, outcome.commit_ts)
        elif isinstance(outcome, RolledBack):
            self.append(SETTLED_ROLLBACK, 0)

    async def wait(self) -> None:
        """A long time, in which the pump asks, and at last another life of it."""
        for _ in range(2):
            for seconds in (0.1, 1.0, 15.0, 70.0, 620.0, 620.0):
                self.tikv.cluster.clock.advance(seconds)
                await self.ask()
            if self.sorter.is_open(self.start_ts):
                self.restart()

    # What must be.

    def check(self) -> str:
        """What the stream says in the end."""
        ends = [record for record in self.log if record.tp != PREWRITE]
        delivered = {record.commit_ts for record in ends if record.tp == COMMIT}
        if not any(record.tp == PREWRITE for record in self.log):
            return "no binlog"
        assert delivered <= {self.truth}, "what was not committed is delivered"
        if self.sorter.is_open(self.start_ts):
            assert self.unknown, "it stops for good, and nobody is told"
            assert self.collected, "a trace cannot have gone"
            self.sorter.mark(tso.TS_MAX - 1)
            assert self.sorter.watermark < self.start_ts, "the watermark passes what nobody knows"
            return "unknown"
        assert bool(delivered) == bool(self.truth), "a commit is lost"
        return "delivered" if delivered else "rolled back"


def schedules() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every order of the steps of a client, less any that are lost, with what others do."""
    others = ("overwrite", "collect", "restart", "ask")
    for name, steps in CLIENTS.items():
        for mask in itertools.product((True, False), repeat=len(steps)):
            kept = tuple(step for step, is_kept in zip(steps, mask, strict=True) if is_kept)
            if "commit" in kept and "lock" not in kept:
                continue
            length = len(kept) + len(others)
            for places in itertools.combinations(range(length), len(kept)):
                for order in (
                    others,
                    ("overwrite", "ask", "collect", "restart"),
                    ("ask", "restart", *others),
                ):
                    yield name, _merge(kept, order, places)


def _merge(kept: tuple[str, ...], others: tuple[str, ...], places: tuple[int, ...]) -> tuple[str, ...]:
    steps, rest = iter(kept), iter(others)
    merged = [next(steps) if at in places else next(rest) for at in range(len(kept) + len(others))]
    return tuple(merged)


async def run(world: World, schedule: tuple[str, ...]) -> str:
    for step in schedule:
        world.tikv.cluster.clock.advance(0.05)
        if step == "ask":
            await world.ask()
        elif step in ("overwrite", "collect", "restart"):
            getattr(world, step)()
        else:
            world.client(step)
    await world.wait()
    return world.check()


@pytest.mark.parametrize("hold", [False, True])
async def test_the_stream_says_what_tikv_did(hold: bool) -> None:
    ends: Counter[str] = Counter()
    for name, schedule in sorted(set(schedules())):
        world = World(hold)
        try:
            ends[await run(world, schedule)] += 1
        except AssertionError as error:
            raise AssertionError(f"a client that {name}: {', '.join(schedule)}: {error}") from error
    # Held back, garbage collection leaves nothing unknown but what was no open prewrite when it passed.
    assert ends["delivered"] > 100
    assert ends["rolled back"] > 100
    assert ends["unknown"] > 0

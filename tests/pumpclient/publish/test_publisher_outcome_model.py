"""What a publisher tells its program is what the stream delivers; on a real etcd, whatever is lost or comes
in between: answers, the lease, a pump that asks, a sweep, an end that others drop.

`OutcomeUnknown` is allowed where the publisher's own question about its commit had no answer and the end is
gone, and nowhere else. The stream says what the pump was told, or what it learns when it asks.
"""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest

from pumpclient import OutcomeUnknown, TransactionLost
from tests.pumpclient.support.publisher_world import Database, World, commit_or_ddl, world
from tidb_binlog import binlog
from tidb_binlog.upstream.standalone import StandaloneUpstream
from tidb_binlog.upstream.standalone.layout import entries
from tidb_binlog.upstream_port import Committed, RolledBack, Undecided

__all__ = ["world"]

pytestmark = pytest.mark.integration

LOST = (None, False, True)
"""Of the step that commits: nothing, the request, the answer."""
STEPS = ("the pump asks", "its lease runs out", "a sweep", "an old sweep")
BETWEEN = [steps for count in range(4) for steps in itertools.permutations(STEPS, count)]


class Pump:
    """Asks about what it has no end of, and stores the answer."""

    def __init__(self, world: World, upstream: StandaloneUpstream) -> None:
        self._world = world
        self._upstream = upstream

    async def ask(self) -> None:
        memory = self._world.memory.pumps["pump"]
        ended = {start_ts for tp, start_ts, _ in memory.transactions() if tp != binlog.PREWRITE}
        for tp, start_ts, _ in list(memory.transactions()):
            if tp != binlog.PREWRITE or start_ts in ended:
                continue
            outcome = await self._world.ask(self._upstream, start_ts)
            if isinstance(outcome, Committed):
                memory.payloads.append(binlog.commit(start_ts, outcome.commit_ts))
            elif isinstance(outcome, RolledBack):
                memory.payloads.append(binlog.rollback(start_ts))
            else:
                assert isinstance(outcome, Undecided)

    def ends(self) -> dict[int, set[int]]:
        """start_ts -> commit_ts of its ends, 0 for a rollback."""
        found: dict[int, set[int]] = {}
        for tp, start_ts, commit_ts in self._world.memory.pumps["pump"].transactions():
            if tp != binlog.PREWRITE:
                found.setdefault(start_ts, set()).add(commit_ts)
        return found


async def _between(world: World, pump: Pump, other: StandaloneUpstream, steps: tuple[str, ...]) -> None:
    await pump.ask()  # it watches from here on
    for step in steps:
        if step == "the pump asks":
            await pump.ask()
        elif step == "its lease runs out":
            world.clock.advance(3.1)
        else:
            # A sweep comes behind the watermark, which an open prewrite holds.
            now_ts = await other.oracle.timestamp()
            prewrites = {ts for tp, ts, _ in world.memory.pumps["pump"].transactions() if tp == 0}
            if step == "a sweep":
                if not prewrites - pump.ends().keys():
                    await other.transactions.sweep(now_ts)
            elif not prewrites - pump.ends().keys():  # as of a machine that slept for long
                async for start_ts, _, entry in entries(world.etcd):
                    if isinstance(entry, Committed | RolledBack):
                        await other.transactions.forget(start_ts)
            await other.transactions.drop_forgotten()


@pytest.mark.parametrize("lost", LOST, ids=["nothing", "the request", "the answer"])
@pytest.mark.parametrize("what", ["commit", "ddl"])
async def test_what_the_program_is_told_is_what_the_stream_says(
    world: World, tmp_path: Path, what: str, lost: bool | None
) -> None:
    told: Counter[str] = Counter()
    database = Database(tmp_path / "app")
    for steps in BETWEEN:
        publisher, losing = await world.publisher(database)
        await publisher._definitions.load()
        other = await world.upstream()
        pump = Pump(world, other)
        world.interloper = lambda s=steps, p=pump, o=other: _between(world, p, o, s)  # type: ignore[misc]
        losing.lose = None if lost is None else ("commit", lost)
        world.memory.pumps["pump"].payloads.clear()
        before = await other.oracle.timestamp()
        said, commit_ts = "committed", 0
        try:
            commit_ts = await commit_or_ddl(publisher, what, f"d{len(told)}x{sum(told.values())}")
        except TransactionLost:
            said = "lost"
        except OutcomeUnknown:
            said = "unknown"
            assert lost is not None, steps
            assert "an old sweep" in steps, steps
        await publisher.flush(5.0)
        await pump.ask()
        world.clock.advance(3.1)
        await pump.ask()
        told[said] += 1
        [(start_ts, ends)] = pump.ends().items()
        assert start_ts > before
        assert len(ends) == 1, (steps, said, ends)
        if said != "unknown":
            assert ends == {commit_ts}, (steps, said, ends)
        else:
            assert (0 not in ends) is lost, (steps, ends)
    assert told["committed"] > 0
    assert (told["lost"] > 0) is (lost is False)
    assert (told["unknown"] > 0) is (lost is not None)

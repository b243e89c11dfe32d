from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.waiting import PATIENCE_S
from tidb_binlog import tso
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import BinlogError, Conflict, Corruption, Rejected
from tidb_binlog.etcd import client as etcd_client
from tidb_binlog.etcd.client import EtcdClient
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.upstream.standalone import GRACE_S, Forgotten, StandaloneHistory, StandaloneUpstream, layout
from tidb_binlog.upstream.standalone.compare_and_set import CompareAndSet, Swap
from tidb_binlog.upstream.standalone.oracle import WRITES_MAX
from tidb_binlog.upstream.standalone.transactions import KEPT_S
from tidb_binlog.upstream_port import Committed, Outcome, RolledBack, Undecided

pytestmark = pytest.mark.integration


class GatedClient(EtcdClient):
    """A client that counts its requests and, while gated, lets them through one at a time."""

    def __init__(self, endpoints: Sequence[str], tls: TlsConfig | None, timeout_s: float) -> None:
        super().__init__(endpoints, tls, timeout_s)
        self.calls = 0
        self.gated = False
        self._held: asyncio.Queue[tuple[Any, asyncio.Future[Any]]] = asyncio.Queue()

    async def _call(self, call: Any) -> Any:
        self.calls += 1
        if not self.gated:
            return await super()._call(call)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        await self._held.put((call, future))
        return await future

    async def pass_one(self) -> None:
        call, future = await self._held.get()
        try:
            future.set_result(await super()._call(call))
        except BinlogError as error:
            future.set_exception(error)


@dataclass
class World:
    """Two processes' views of one store, with clocks that move when told."""

    ours: StandaloneUpstream
    theirs: StandaloneUpstream
    our_client: GatedClient
    their_client: GatedClient
    our_clock: ManualClock
    their_clock: ManualClock
    client: EtcdClient

    async def outcome(self, start_ts: int) -> Outcome:
        """What the other process, a pump, is told."""
        return (await self.theirs.transactions.outcomes([(start_ts, b"key")]))[0]

    async def stored(self, start_ts: int) -> bytes | None:
        found = await self.client.get(layout.txn_key(start_ts))
        return found.value if found else None

    async def watch(self, *start_tss: int) -> None:
        """Both processes look, and so begin to watch these entries."""
        questions = [(start_ts, b"key") for start_ts in start_tss]
        for upstream in (self.ours, self.theirs):
            await upstream.transactions.outcomes(questions)

    def advance(self, seconds: float) -> None:
        self.our_clock.advance(seconds)
        self.their_clock.advance(seconds)


@pytest.fixture
async def world(etcd_clean: str) -> AsyncIterator[World]:
    clocks = ManualClock(), ManualClock()
    clients = await GatedClient.connect(etcd_clean), await GatedClient.connect(etcd_clean)
    ours, theirs = (
        StandaloneUpstream(client, 1, clock, GRACE_S) for client, clock in zip(clients, clocks, strict=True)
    )
    client = await EtcdClient.connect(etcd_clean)
    yield World(ours, theirs, *clients, *clocks, client)
    for closing in (ours, theirs, client):
        await closing.close()


async def test_begin_commit(world: World) -> None:
    start_ts = await world.ours.transactions.begin()
    assert await world.outcome(start_ts) == Undecided(3.0)
    commit_ts = await world.ours.transactions.commit(start_ts)
    assert commit_ts > start_ts
    assert await world.outcome(start_ts) == Committed(commit_ts)
    assert await world.ours.transactions.commit(start_ts) == commit_ts
    with pytest.raises(Conflict, match=f"committed at {commit_ts}"):
        await world.ours.transactions.roll_back(start_ts)
    world.advance(1000)
    assert await world.outcome(start_ts) == Committed(commit_ts)


async def test_begin_roll_back(world: World) -> None:
    start_ts = await world.ours.transactions.begin()
    await world.ours.transactions.roll_back(start_ts)
    await world.ours.transactions.roll_back(start_ts)
    assert await world.outcome(start_ts) == RolledBack()
    with pytest.raises(Conflict, match="it was rolled back"):
        await world.ours.transactions.commit(start_ts)
    with pytest.raises(Conflict, match="is over"):
        await world.ours.transactions.keep_alive(start_ts)


async def test_an_expired_lease_is_rolled_back_by_whoever_asks(world: World) -> None:
    start_ts = await world.ours.transactions.begin(ttl_s=5.0)
    assert await world.outcome(start_ts) == Undecided(5.0)
    world.advance(4.5)
    assert await world.outcome(start_ts) == Undecided(pytest.approx(0.5))  # type: ignore[arg-type]
    world.advance(0.5)
    assert await world.outcome(start_ts) == RolledBack()
    with pytest.raises(Conflict):
        await world.ours.transactions.commit(start_ts)


async def test_an_expired_lease_that_nobody_judged_may_still_commit(world: World) -> None:
    start_ts = await world.ours.transactions.begin(ttl_s=5.0)
    world.advance(60)
    commit_ts = await world.ours.transactions.commit(start_ts)
    assert await world.outcome(start_ts) == Committed(commit_ts)


async def test_keep_alive_moves_the_deadline(world: World) -> None:
    start_ts = await world.ours.transactions.begin(ttl_s=5.0)
    for _ in range(5):
        world.advance(4.0)
        await world.ours.transactions.keep_alive(start_ts, 5.0)
        assert isinstance(await world.outcome(start_ts), Undecided)
    await world.theirs.transactions.keep_alive(start_ts, 5.0)
    commit_ts = await world.ours.transactions.commit(start_ts)
    assert await world.outcome(start_ts) == Committed(commit_ts)


async def test_without_an_entry_a_transaction_is_rolled_back_when_it_was_watched_for_a_grace(
    world: World,
) -> None:
    old = tso.from_wall_s(world.their_clock.wall_s() - 3.0)
    young = tso.from_wall_s(world.their_clock.wall_s() - 2.0)
    for start_ts in (old, young):
        assert await world.outcome(start_ts) == Undecided(3.0)
    world.advance(2.0)
    for start_ts in (old, young):
        assert await world.outcome(start_ts) == Undecided(pytest.approx(1.0))  # type: ignore[arg-type]
        assert await world.stored(start_ts) is None
    world.advance(1.01)
    for start_ts in (old, young):
        assert await world.outcome(start_ts) == RolledBack()
        assert await world.stored(start_ts) == b"rolled_back"
    for start_ts in (old, young):
        with pytest.raises(Conflict):
            await world.ours.transactions.commit(start_ts)


async def test_commit_without_begin_is_refused(world: World) -> None:
    start_ts = await world.ours.oracle.timestamp()
    with pytest.raises(Conflict):
        await world.ours.transactions.commit(start_ts)
    assert await world.stored(start_ts) is None


async def test_a_wall_clock_set_back_does_not_keep_the_dead_alive(world: World) -> None:
    """The judge's clock is an hour behind: its own watch over the unchanged entry decides."""
    begun = await world.ours.transactions.begin(ttl_s=5.0)
    absent = tso.from_wall_s(world.our_clock.wall_s())
    world.their_clock.advance(-3600)
    for start_ts in (begun, absent):
        assert isinstance(await world.outcome(start_ts), Undecided)
    world.their_clock.advance(2.9)
    for start_ts in (begun, absent):
        assert isinstance(await world.outcome(start_ts), Undecided)
    world.their_clock.advance(2.2)
    for start_ts in (begun, absent):
        assert await world.outcome(start_ts) == RolledBack()


@pytest.mark.parametrize("ahead_s", [3.0, 3600.0])
async def test_a_wall_clock_that_is_ahead_ends_nothing_that_lives(world: World, ahead_s: float) -> None:
    """The judge's clock is ahead of the publisher's, which renews its lease in time."""
    wall_s = world.their_clock.wall_s
    world.their_clock.wall_s = lambda: wall_s() + ahead_s  # type: ignore[method-assign]
    start_ts = await world.ours.transactions.begin(ttl_s=3.0)
    absent = await world.ours.oracle.timestamp()
    for _ in range(10):
        assert await world.outcome(start_ts) == Undecided(3.0)
        world.advance(1.0)
        await world.ours.transactions.keep_alive(start_ts, 3.0)
    assert await world.outcome(absent) == Undecided(3.0)
    assert (await world.ours.transactions.commit(start_ts)) > start_ts


async def _committed_and_dropped(world: World) -> int:
    """A transaction whose commit had no answer, and of which others have dropped the end since."""
    ours = world.ours.transactions
    start_ts = await ours.begin()
    mine = ours._mine[start_ts]
    await ours.commit(start_ts)
    ours._mine[start_ts] = mine  # as after a reply that was lost
    await world.theirs.transactions.forget(start_ts)
    await world.theirs.transactions.drop_forgotten()
    return start_ts


@pytest.mark.parametrize("judged", [False, True])
async def test_an_end_that_others_dropped_is_no_rollback(world: World, judged: bool) -> None:
    """Also not where somebody has written a rollback into its place, finding nothing."""
    start_ts = await _committed_and_dropped(world)
    if judged:
        await world.watch(start_ts)
        world.advance(3.0)
        assert await world.outcome(start_ts) == RolledBack()
    with pytest.raises(Forgotten):
        await world.ours.transactions.commit(start_ts)


async def test_a_lease_that_ran_out_is_a_rollback_for_certain(world: World) -> None:
    start_ts = await world.ours.transactions.begin()
    await world.watch(start_ts)
    world.advance(3.0)
    assert await world.outcome(start_ts) == RolledBack()
    with pytest.raises(Conflict, match="its lease had run out") as caught:
        await world.ours.transactions.commit(start_ts)
    assert not isinstance(caught.value, Forgotten)


async def test_recorded_outcomes_for_replays(world: World) -> None:
    transactions = world.ours.transactions
    await world.ours.oracle.pin(1 << 60)
    await transactions.record(100, Committed(110))
    await transactions.record(200, RolledBack())
    assert await world.outcome(100) == Committed(110)
    assert await world.outcome(200) == RolledBack()
    await transactions.record(200, Committed(210))
    assert await world.outcome(200) == Committed(210)


async def test_forget_is_batched_and_flushed_at_close(world: World, etcd: str) -> None:
    upstream = await StandaloneUpstream.connect(etcd)
    started = await asyncio.gather(*(upstream.transactions.begin() for _ in range(150)))
    await asyncio.gather(*(upstream.transactions.commit(start_ts) for start_ts in started))
    _, entries = await world.client.range(layout.TXN)
    assert len(entries) == 150
    before, _ = await world.client.range(b"/")
    for start_ts in started:
        await upstream.transactions.forget(start_ts)
    await upstream.close()
    after, entries = await world.client.range(layout.TXN)
    assert (entries, after - before) == ([], 2)


async def test_forgotten_without_close(world: World) -> None:
    start_ts = await world.ours.transactions.begin()
    await world.ours.transactions.commit(start_ts)
    await world.ours.transactions.forget(start_ts)
    async with asyncio.timeout(PATIENCE_S):
        while await world.stored(start_ts) is not None:
            await asyncio.sleep(0.01)


async def test_concurrent_begins_share_writes_within_etcds_limit(world: World) -> None:
    before, _ = await world.client.range(b"/")
    count = 4 * WRITES_MAX
    started = await asyncio.gather(*(world.ours.transactions.begin() for _ in range(count)))
    after, entries = await world.client.range(layout.TXN)
    assert after - before == 4
    assert sorted(int(entry.key[-20:]) for entry in entries) == sorted(started)
    draws = [world.ours.oracle.timestamp() for _ in range(100)]
    begins = [world.ours.transactions.begin() for _ in range(100)]
    mixed = await asyncio.gather(*(call for pair in zip(draws, begins, strict=True) for call in pair))
    assert len(set(mixed)) == 200


async def test_outcomes_of_many_take_few_round_trips(world: World) -> None:
    started = await asyncio.gather(*(world.ours.transactions.begin(1.0) for _ in range(250)))
    committed = {
        start_ts: Committed(await world.ours.transactions.commit(start_ts)) for start_ts in started[:5]
    }
    world.their_client.calls = 0
    outcomes = await world.theirs.transactions.outcomes([(start_ts, b"") for start_ts in started])
    assert world.their_client.calls == 3
    assert [committed.get(start_ts, Undecided(1.0)) for start_ts in started] == outcomes
    world.advance(1.0)
    world.their_client.calls = 0
    outcomes = await world.theirs.transactions.outcomes([(start_ts, b"") for start_ts in started])
    assert [committed.get(start_ts, RolledBack()) for start_ts in started] == outcomes
    assert world.their_client.calls == 3 + 5


async def test_the_same_transaction_twice_in_one_question(world: World) -> None:
    assert await world.theirs.transactions.outcomes([]) == []
    await world.watch(1, 2)
    world.advance(3.0)
    answers = await world.theirs.transactions.outcomes([(1, b"a"), (2, b""), (1, b"b")])
    assert answers == [RolledBack()] * 3


# The steps that commit, expiry (judged by another process), roll-back and keep-alive consist of, in every
# order in which two processes can interleave them, against the real store. An action has at most three
# requests, so five turns fix the order of six.

ACTIONS = ("commit", "judge", "roll_back", "keep_alive")


async def _act(upstream: StandaloneUpstream, action: str, start_ts: int) -> object:
    transactions = upstream.transactions
    try:
        if action == "commit":
            return Committed(await transactions.commit(start_ts))
        if action == "roll_back":
            await transactions.roll_back(start_ts)
            return RolledBack()
        if action == "keep_alive":
            await transactions.keep_alive(start_ts, 1000.0)
            return "alive"
        return (await transactions.outcomes([(start_ts, b"")]))[0]
    except Conflict:
        return "conflict"


async def _interleave(world: World, actions: tuple[str, str], start_ts: int, order: str) -> list[object]:
    """Run both actions; `order` says whose request goes next (when that one is done, the other's)."""
    clients = {"a": world.our_client, "b": world.their_client}
    for client in clients.values():
        client.gated = True
    running = {
        "a": asyncio.create_task(_act(world.ours, actions[0], start_ts)),
        "b": asyncio.create_task(_act(world.theirs, actions[1], start_ts)),
    }
    for turn in itertools.chain(order, itertools.cycle("ab")):
        if all(task.done() for task in running.values()):
            break
        passing = asyncio.create_task(clients[turn].pass_one())
        await asyncio.wait({passing, running[turn]}, return_when=asyncio.FIRST_COMPLETED)
        if not passing.done():
            passing.cancel()
            await asyncio.wait({passing})
        else:
            for _ in range(6):  # let the answer reach whoever waits for it
                await asyncio.sleep(0)
    for client in clients.values():
        client.gated = False
    return [running["a"].result(), running["b"].result()]


@pytest.mark.parametrize("actions", list(itertools.product(ACTIONS, repeat=2)), ids="-".join)
async def test_every_interleaving_has_one_winner(world: World, actions: tuple[str, str]) -> None:
    for expired, order in itertools.product(
        (False, True), ("".join(order) for order in itertools.product("ab", repeat=5))
    ):
        start_ts = await world.ours.transactions.begin(ttl_s=5.0)
        if expired:
            await world.watch(start_ts)
            world.advance(5.0)
        results = await _interleave(world, actions, start_ts, order)
        final = await world.stored(start_ts)
        assert final is not None
        entry = layout.decode_entry(layout.txn_key(start_ts), final)
        told = {result for result in results if isinstance(result, Committed | RolledBack)}
        context = (actions, expired, order, results, entry)
        # Whoever was told an end was told the one that is stored, and nobody was told another.
        assert told <= {entry}, context
        if isinstance(entry, layout.Open):
            assert "commit" not in actions, context
            assert "roll_back" not in actions, context
        for action, result in zip(actions, results, strict=True):
            if action == "commit":
                assert result == entry if isinstance(entry, Committed) else result == "conflict", context
            if action == "roll_back":
                assert result == RolledBack() if entry == RolledBack() else result == "conflict", context
            if action == "judge" and isinstance(result, Undecided):
                # It saw an open entry that may live: not expired, just extended, or ended a moment later.
                assert not expired or "keep_alive" in actions, context


async def test_concurrent_commit_and_expiry_of_many(world: World) -> None:
    for _ in range(3):
        started = await asyncio.gather(*(world.ours.transactions.begin(1.0) for _ in range(100)))
        await world.watch(*started)
        world.advance(1.0)
        judged = asyncio.create_task(
            world.theirs.transactions.outcomes([(start_ts, b"") for start_ts in started])
        )
        commits = await asyncio.gather(
            *(world.ours.transactions.commit(start_ts) for start_ts in started), return_exceptions=True
        )
        for start_ts, commit, outcome in zip(started, commits, await judged, strict=True):
            if isinstance(commit, int):
                assert outcome == Committed(commit), start_ts
            else:
                assert isinstance(commit, Conflict)
                assert outcome == RolledBack(), start_ts


async def test_swaps_of_one_key_in_one_turn_are_decided_one_after_the_other(world: World) -> None:
    swaps = CompareAndSet(world.client)
    results = await asyncio.gather(*(swaps.swap(Swap(b"/k", 0, b"%d" % number)) for number in range(5)))
    assert [result.won for result in results] == [True, False, False, False, False]
    assert {result.actual.value for result in results if result.actual} == {b"0"}
    gone = await swaps.swap(Swap(b"/other", 7, b"x"))
    assert (gone.won, gone.actual) == (False, None)
    await swaps.close()


async def test_a_foreign_entry_is_corruption(world: World) -> None:
    await world.client.put(layout.txn_key(5), b"maybe")
    with pytest.raises(Corruption, match="00005 does not hold a transaction status"):
        await world.outcome(5)


@pytest.mark.parametrize(
    "entry", [layout.Open(1, 2), Committed(3), RolledBack()], ids=lambda entry: type(entry).__name__
)
def test_entries_round_trip(entry: layout.Entry) -> None:
    assert layout.decode_entry(b"k", layout.encode_entry(entry)) == entry


@pytest.mark.parametrize("value", [b"", b"open", b"open 1", b"open a b", b"committed", b"rolled_back 1"])
def test_malformed_entries(value: bytes) -> None:
    with pytest.raises(Corruption):
        layout.decode_entry(b"k", value)


async def read(history: StandaloneHistory, after_id: int = 0) -> list[bytes]:
    return [job async for page in history.pages(after_id) for job in page]


async def test_the_history_comes_in_pages(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidb_binlog.upstream.standalone.catalog.PAGE_JOBS", 3)
    jobs = [b'{"id": %d}' % number for number in range(1, 7)]
    for job in jobs:
        await world.ours.history.add(job)
    assert [page async for page in world.theirs.history.pages()] == [jobs[:3], jobs[3:]]
    assert [page async for page in world.theirs.history.pages(2)] == [jobs[2:5], jobs[5:]]
    assert await world.theirs.history.schema_at(1 << 60) is None
    assert await world.theirs.garbage.hold("me", 17, 300) == 17


async def test_history(world: World) -> None:
    history = world.ours.history
    assert await read(history) == []
    jobs = [b'{"id": 12, "query": "a"}', b'{"id": 3, "query": "b"}', b'{"id": 100, "query": "c"}']
    assert [await history.add(job) for job in jobs] == [12, 3, 100]
    assert await history.add(jobs[0]) == 12
    with pytest.raises(Conflict, match="DDL job 12 is in the history with other contents"):
        await history.add(b'{"id": 12}')
    assert await world.theirs.history.job(3) == jobs[1]
    assert await world.theirs.history.job(4) is None
    assert await read(world.theirs.history) == [jobs[1], jobs[0], jobs[2]]
    assert await read(history, 3) == [jobs[0], jobs[2]]
    assert await read(history, 100) == []
    for bad in (b"", b"[]", b"{}", b'{"id": "1"}', b'{"id": true}', b'{"id": 0}'):
        with pytest.raises(Rejected):
            await history.add(bad)


async def test_a_value_that_etcd_refuses(world: World) -> None:
    with pytest.raises(Rejected, match=r"a request of \d+ bytes is larger than etcd's limit"):
        await world.ours.history.add(b'{"id": 1, "x": "' + b"y" * (2 << 20) + b'"}')
    assert etcd_client.OPS_MAX == 128


async def test_a_sweep_drops_ends_that_nobody_asks_about_and_nothing_else(world: World) -> None:
    ours = world.ours.transactions
    committed, rolled_back, prepared, expired, spanning = [await ours.begin() for _ in range(5)]
    await ours.roll_back(rolled_back)
    await ours.prepare(prepared, "app", 3.0)
    commit_ts = await ours.commit(committed)
    await world.watch(expired)
    world.advance(4.0)
    live = await ours.begin()
    await ours.hold(spanning, 60.0)
    below_ts = await world.ours.oracle.timestamp()
    await ours.commit(spanning)  # above, as everything after it
    later = await ours.begin()
    await ours.roll_back(later)

    async def kept(below_ts: int) -> set[int]:
        await world.theirs.transactions.sweep(below_ts)
        await world.theirs.transactions.drop_forgotten()
        begun = (committed, rolled_back, prepared, expired, spanning, live, later)
        return {start_ts for start_ts in begun if await world.stored(start_ts) is not None}

    everything = {committed, rolled_back, prepared, expired, spanning, live, later}
    kept_ts = tso.compose(int(KEPT_S * 1000))
    assert await kept(below_ts) == everything  # every watermark has passed it, its owner may still ask
    assert await kept(committed + kept_ts) == everything
    assert await kept(commit_ts + kept_ts) == {committed, prepared, spanning, live, later}
    assert await kept(below_ts + kept_ts) == {prepared, spanning, live, later}
    assert await world.outcome(spanning) != RolledBack()


async def test_a_step_too_large_for_etcd_fails_alone(world: World) -> None:
    """It shares a request with others, who are not concerned."""
    ours = world.ours.transactions
    large, *others = [await ours.begin() for _ in range(4)]
    job = b"x" * (2 << 20)
    results = await asyncio.gather(
        ours.commit(others[0]),
        ours.commit(large, writes=lambda _: [etcd_client.put(layout.ddl_key(1), job)]),
        *(ours.commit(start_ts) for start_ts in others[1:]),
        world.ours.oracle.timestamp(),
        return_exceptions=True,
    )
    assert isinstance(results[1], Rejected)
    assert "larger than etcd's limit" in results[1].message
    assert all(isinstance(results[at], int) for at in (0, 2, 3, 4)), results
    assert await world.outcome(large) == Undecided(3.0)


async def test_what_is_open_or_prepared_says_who_can_end_it(world: World) -> None:
    ours = world.ours.transactions
    begun, prepared = await ours.begin(), await ours.begin()
    await ours.prepare(prepared, "app-7")
    outcomes = await world.theirs.transactions.outcomes([(begun, b""), (prepared, b"")])
    hints = [outcome.hint for outcome in outcomes if isinstance(outcome, Undecided)]
    assert "lease" in hints[0]
    assert "the database app-7" in hints[1]
    assert "OutcomeTable(CONNECT)" in hints[1]

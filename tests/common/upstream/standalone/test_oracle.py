""""""

from __future__ import annotations

import asyncio
import multiprocessing
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binlog_playground.cluster.etcd_server import EtcdServer
from tests.waiting import PATIENCE_S
from tidb_binlog import tso
from tidb_binlog.clock import ManualClock, SystemClock
from tidb_binlog.errors import Conflict, Corruption, Rejected, Unavailable
from tidb_binlog.etcd.client import EtcdClient
from tidb_binlog.upstream.standalone import StandaloneUpstream, layout
from tidb_binlog.upstream.standalone.oracle import ASK_AGAIN_S, SLACK_S, TimeBound

pytestmark = pytest.mark.integration


@pytest.fixture
async def upstream(etcd_clean: str) -> AsyncIterator[StandaloneUpstream]:
    upstream = await StandaloneUpstream.connect(etcd_clean)
    yield upstream
    await upstream.close()


async def test_timestamps_rise_and_follow_the_wall_clock(upstream: StandaloneUpstream) -> None:
    last = tso.from_wall_s(SystemClock().wall_s())
    for _ in range(100):
        ts = await upstream.oracle.timestamp()
        assert ts > last or ts == last == tso.from_wall_s(tso.physical_s(last))
        last = ts
    assert abs(tso.age_s(last, SystemClock().wall_s())) < 5


async def test_concurrent_draws_are_distinct_and_share_writes(upstream: StandaloneUpstream) -> None:
    client = await EtcdClient.connect(upstream._client.addresses)
    before, _ = await client.range(b"/")
    drawn = await asyncio.gather(*(upstream.oracle.timestamp() for _ in range(1000)))
    after, _ = await client.range(b"/")
    assert len(set(drawn)) == 1000
    assert after - before == 1
    await client.close()


async def test_a_draw_after_an_answer_is_larger_than_the_whole_window(upstream: StandaloneUpstream) -> None:
    """Nothing of a window is kept for those who come later."""
    rng = random.Random(1)
    answered = 0

    async def draw() -> None:
        nonlocal answered
        for _ in range(20):
            floor = answered
            ts = await upstream.oracle.timestamp()
            assert ts > floor
            answered = max(answered, ts)
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)

    await asyncio.gather(*(draw() for _ in range(20)))


async def test_two_connections_interleaved(upstream: StandaloneUpstream, etcd: str) -> None:
    other = await StandaloneUpstream.connect(etcd)
    last = 0
    for turn in range(60):
        oracle = (upstream, other)[turn % 2].oracle
        group = await asyncio.gather(*(oracle.timestamp() for _ in range(1 + turn % 3)))
        assert min(group) > last
        last = max(group)
    await other.close()


def _draw_in_a_process(endpoint: str, seed: int, pipe: Connection) -> None:
    """Draws bursts; each must be above the floor that came through the pipe before it."""

    async def draw() -> None:
        upstream = await StandaloneUpstream.connect(endpoint)
        rng = random.Random(seed)
        while True:
            floor = await asyncio.to_thread(pipe.recv)
            if floor is None:
                break
            drawn = await asyncio.gather(*(upstream.oracle.timestamp() for _ in range(rng.randrange(1, 20))))
            assert min(drawn) > floor, (floor, drawn)
            pipe.send(drawn)
        await upstream.close()

    asyncio.run(draw())


async def test_linearizable_over_processes(etcd_clean: str) -> None:
    """What any process got before a message is below what its receiver draws afterwards."""
    await (await StandaloneUpstream.connect(etcd_clean)).close()
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for seed in range(3):
        ours, theirs = context.Pipe()
        process = context.Process(target=_draw_in_a_process, args=(etcd_clean, seed, theirs))
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    everything: list[int] = []

    async def drive(pipe: Connection) -> None:
        for _ in range(40):
            pipe.send(max(everything, default=0))  # all that anybody has got so far
            everything.extend(await asyncio.to_thread(pipe.recv))

    try:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(drive(pipe) for pipe in pipes))
        for pipe in pipes:
            pipe.send(None)
    finally:
        for pipe, process in zip(pipes, processes, strict=True):
            await asyncio.to_thread(process.join, 10)
            pipe.close()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(everything) == len(set(everything))


async def test_monotone_over_a_restart_with_the_clock_set_back(tmp_path: Path) -> None:
    clock = ManualClock()
    server = EtcdServer.start(tmp_path)
    try:
        first = await StandaloneUpstream.connect(server.endpoint, clock=clock)
        drawn = [await first.oracle.timestamp() for _ in range(5)]
        server.kill()
        clock.advance(-3600)
        with pytest.raises(Unavailable):
            await first.oracle.timestamp()
        server.restart()
        second = await StandaloneUpstream.connect(server.endpoint, clock=clock)
        drawn.append(await second.oracle.timestamp())
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    drawn.append(await first.oracle.timestamp())
                    break
                except Unavailable:
                    await asyncio.sleep(0.05)
        drawn.append(await second.oracle.timestamp())
        assert drawn == sorted(set(drawn))
        clock.advance(7200)
        ahead = await second.oracle.timestamp()
        assert tso.physical_s(ahead) == pytest.approx(clock.wall_s(), abs=0.01)
        await first.close()
        await second.close()
    finally:
        server.stop()


async def test_the_logical_part_carries_over_into_milliseconds(etcd_clean: str) -> None:
    clock = ManualClock()
    upstream = await StandaloneUpstream.connect(etcd_clean, clock=clock)
    first = await upstream.oracle.timestamp()
    client = await EtcdClient.connect(etcd_clean)
    await client.put(layout.TSO, b"%d" % (first | tso.LOGICAL_MAX))
    following = await upstream.oracle.timestamp()
    assert following == (first | tso.LOGICAL_MAX) + 1
    assert tso.physical_ms(following) == tso.physical_ms(first) + 1
    await client.close()
    await upstream.close()


async def test_pinned_clocks_stand_still_everywhere(upstream: StandaloneUpstream, etcd: str) -> None:
    other = await StandaloneUpstream.connect(etcd)
    before = await upstream.transactions.begin()
    pinned = before + (1 << 40)
    await other.oracle.pin(pinned)
    assert await asyncio.gather(*(upstream.oracle.timestamp() for _ in range(5))) == [pinned] * 5
    assert await other.oracle.timestamp() == pinned
    with pytest.raises(Rejected, match="pinned for a replay"):
        await upstream.transactions.begin()
    with pytest.raises(Rejected, match="pinned"):
        await upstream.transactions.commit(before)
    await upstream.oracle.pin(pinned + 1)
    assert await other.oracle.timestamp() == pinned + 1
    await other.oracle.unpin()
    await other.oracle.unpin()
    assert await upstream.oracle.timestamp() > pinned + 1
    await upstream.oracle.pin(before - 5)  # recorded work is older than the clock
    assert await upstream.oracle.timestamp() == before - 5
    await upstream.oracle.unpin()
    assert await upstream.oracle.timestamp() > pinned + 1
    await other.close()


async def test_a_cancelled_draw_does_not_disturb_the_others(upstream: StandaloneUpstream) -> None:
    draws = [asyncio.create_task(upstream.oracle.timestamp()) for _ in range(10)]
    await asyncio.sleep(0)
    for draw in draws[::2]:
        draw.cancel()
    results = await asyncio.gather(*draws, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results[::2])
    assert len(set(results[1::2])) == 5


async def test_close_fails_whoever_waits(etcd_clean: str) -> None:
    upstream = await StandaloneUpstream.connect(etcd_clean)
    draws = [asyncio.create_task(upstream.oracle.timestamp()) for _ in range(3)]
    await asyncio.sleep(0)
    await upstream.close()
    results = await asyncio.gather(*draws, return_exceptions=True)
    assert all(isinstance(result, Unavailable) for result in results)
    with pytest.raises(Unavailable):
        await upstream.oracle.timestamp()
    with pytest.raises(Unavailable):
        await upstream.transactions.outcomes([(1, b"")])


async def test_a_foreign_value_is_corruption(upstream: StandaloneUpstream) -> None:
    await upstream._client.put(layout.TSO, b"soon")
    with pytest.raises(Corruption, match="/tidb-binlog-standalone/v1/tso does not hold a number: b'soon'"):
        await upstream.oracle.timestamp()


async def test_cluster_id_is_founded_once(etcd_clean: str) -> None:
    with pytest.raises(Rejected, match="holds no standalone cluster"):
        await StandaloneUpstream.connect(etcd_clean, create=False)
    founders = await asyncio.gather(*(StandaloneUpstream.connect(etcd_clean) for _ in range(4)))
    assert len({founder.cluster_id for founder in founders}) == 1
    cluster_id = founders[0].cluster_id
    assert 0 < cluster_id < 1 << 63
    again = await StandaloneUpstream.connect(etcd_clean, create=False, cluster_id=cluster_id)
    assert again.cluster_id == cluster_id
    with pytest.raises(Conflict, match=f"belongs to cluster {cluster_id}, not 5"):
        await StandaloneUpstream.connect(etcd_clean, cluster_id=5)
    for upstream in (*founders, again):
        await upstream.close()


async def test_a_given_cluster_id_is_taken(etcd_clean: str) -> None:
    upstream = await StandaloneUpstream.connect(etcd_clean, cluster_id=7_012_345_678_901_234_567)
    assert upstream.cluster_id == 7_012_345_678_901_234_567
    await upstream.close()


# -- clocks that are wrong -----------------------------------------------------------------------------------


class Ahead(ManualClock):
    """A host whose clock is a week ahead of etcd's."""

    def __init__(self, ahead_s: float = 8 * 86_400.0) -> None:
        super().__init__(SystemClock().wall_s() + ahead_s)


async def test_a_clock_that_is_ahead_is_not_followed_and_gets_timestamps(
    upstream: StandaloneUpstream, etcd: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = await upstream.oracle.timestamp()
    for _ in range(3):
        other = await StandaloneUpstream.connect(etcd, clock=Ahead())
        drawn = [await other.oracle.timestamp() for _ in range(3)]
        await other.close()
        assert before < drawn[0] < drawn[1] < drawn[2]
        assert abs(tso.age_s(drawn[2], SystemClock().wall_s())) < 10
        before = drawn[2]
    assert "timestamps do not follow it" in caplog.text
    assert await upstream.oracle.timestamp() > before


async def test_the_first_of_a_cluster_is_not_followed_either(etcd_clean: str) -> None:
    founder = await StandaloneUpstream.connect(etcd_clean, clock=Ahead())
    assert abs(tso.age_s(await founder.oracle.timestamp(), SystemClock().wall_s())) < 10
    await founder.close()


async def test_a_clock_that_was_stored_long_ago_is_moved_to_now(
    upstream: StandaloneUpstream, etcd: str
) -> None:
    await upstream._client.put(layout.TSO, b"%d" % tso.from_wall_s(SystemClock().wall_s() - 9 * 86_400))
    other = await StandaloneUpstream.connect(etcd)
    assert abs(tso.age_s(await other.oracle.timestamp(), SystemClock().wall_s())) < 5
    await other.close()


async def test_what_no_clock_vouches_for_an_operator_may_say(
    upstream: StandaloneUpstream, etcd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(_client: EtcdClient, _timeout_s: float) -> list[float | None]:
        return [None]

    monkeypatch.setattr(EtcdClient, "clocks", silent)
    old = tso.from_wall_s(SystemClock().wall_s() - 9 * 86_400)
    await upstream._client.put(layout.TSO, b"%d" % old)
    other = await StandaloneUpstream.connect(etcd)
    assert 0 < await other.oracle.timestamp() - old < tso.compose(60_000)
    now = tso.from_wall_s(SystemClock().wall_s())
    assert await other.oracle.advance(now) == now
    assert await other.oracle.advance(old) == now, "there is no way back"
    assert 0 < await upstream.oracle.timestamp() - now < tso.compose(60_000)
    await other.close()


async def test_where_it_stands_lies_between_what_was_drawn_before_and_after(
    upstream: StandaloneUpstream, etcd: str
) -> None:
    """Several processes draw all the while."""
    drawn: list[int] = []
    others = [await StandaloneUpstream.connect(etcd) for _ in range(3)]

    async def draw(other: StandaloneUpstream) -> None:
        for _ in range(60):
            ts = await other.oracle.timestamp()
            drawn.append(ts)

    drawing = [asyncio.create_task(draw(other)) for other in others]
    while not all(task.done() for task in drawing):
        before = max(drawn, default=0)
        stands = await upstream.oracle.latest()
        assert before <= stands
        assert stands < await upstream.oracle.timestamp()
    await asyncio.gather(*drawing)
    assert await upstream.oracle.latest() >= max(drawn)
    for other in others:
        await other.close()


DAY_S = 86_400.0
ETCD = "etcd"
BEGAN_S = 1_700_000_000.0


@dataclass
class Process:
    """One life. Its stored value and the bound are all it has."""

    wall_ahead_s: float
    born_s: float
    bound: TimeBound = field(default_factory=TimeBound)
    last_ts: int = 0


class Cluster:
    def __init__(self, names: str = "ab") -> None:
        self.now_s = BEGAN_S
        self.stored = 0
        self.etcd_ahead_s = 0.0
        self.etcd_tells = True
        self.wrong: dict[str, float] = {}
        self.lives = {name: self.born(name) for name in names}

    def born(self, name: str) -> Process:
        return Process(self.wrong.get(name, 0.0), self.now_s - random.Random(name).random() * 1000)

    def restart(self, name: str) -> None:
        self.lives[name] = self.born(name)

    def set_clock(self, name: str, ahead_s: float) -> None:
        self.wrong[name] = ahead_s
        if name == ETCD:
            self.etcd_ahead_s = ahead_s
        else:
            self.lives[name].wall_ahead_s = ahead_s

    def draw(self, name: str) -> int:
        """As the oracle does it."""
        life = self.lives[name]
        now_s, wall_s = self.now_s - life.born_s, self.now_s + life.wall_ahead_s
        if life.bound.should_ask(wall_s, now_s):
            clock = float(int(self.now_s + self.etcd_ahead_s)) if self.etcd_tells else None
            life.bound.observe([None, clock], now_s)
        life.bound.stored(self.stored, now_s)
        first = max(self.stored + 1, tso.from_wall_s(life.bound.physical_s(wall_s, now_s)))
        assert first > self.stored
        self.stored = first
        life.bound.stored(first, now_s)
        return first

    def check(self) -> None:
        ahead_s = tso.physical_s(self.stored) - self.now_s
        assert ahead_s <= SLACK_S + 0.002, f"dragged {ahead_s} s ahead"


OFFSETS = (-30 * DAY_S, -3.0, 0.0, 3.0, 60.0, 8 * DAY_S, 3e10)


@settings(max_examples=400)
@given(
    wrong=st.sampled_from(("a", ETCD)),
    events=st.lists(
        st.one_of(
            st.tuples(st.just("draw"), st.sampled_from("ab")),
            st.tuples(st.just("restart"), st.sampled_from("ab")),
            st.tuples(st.just("jump"), st.sampled_from(OFFSETS)),
            st.tuples(st.just("pass"), st.sampled_from((0.0, 0.001, 1.0, 11.0, 3600.0, 5 * DAY_S))),
            st.tuples(st.just("etcd tells"), st.booleans()),
        ),
        max_size=40,
    ),
)
def test_one_wrong_clock_drags_nobody(wrong: str, events: list[tuple[str, object]]) -> None:
    cluster = Cluster()
    cluster.draw("b")  # founded while all is well
    for what, value in events:
        if what in ("draw", "restart"):
            getattr(cluster, what)(value)
        elif what == "jump":
            cluster.set_clock(wrong, float(value))  # type: ignore[arg-type]
        elif what == "pass":
            cluster.now_s += float(value)  # type: ignore[arg-type]
        else:
            cluster.etcd_tells = bool(value)
        cluster.check()


def test_a_thousand_lives_with_a_wrong_clock_gain_nothing() -> None:
    cluster = Cluster()
    cluster.draw("b")
    cluster.set_clock("a", 8 * DAY_S)
    for tells in (True, False):
        cluster.etcd_tells = tells
        for _ in range(1000):
            cluster.restart("a")
            cluster.draw("a")
            cluster.draw("b")
            cluster.check()


@pytest.mark.parametrize("off_s", [0.5, 3600.0, 5 * DAY_S, 400 * DAY_S])
def test_a_cluster_that_was_off_finds_back_to_the_time_by_itself(off_s: float) -> None:
    cluster = Cluster()
    cluster.draw("a")
    cluster.now_s += off_s
    for name in "ab":
        cluster.restart(name)
    drawn = cluster.draw("a")
    assert -1.1 <= tso.physical_s(drawn) - cluster.now_s <= 0.001


def test_a_process_that_slept_or_was_set_right_follows_again() -> None:
    cluster = Cluster()
    cluster.draw("a")
    cluster.now_s += 2 * DAY_S
    cluster.lives["a"].born_s += 2 * DAY_S  # its monotonic clock stood still
    cluster.draw("a")
    cluster.now_s += ASK_AGAIN_S
    assert abs(tso.physical_s(cluster.draw("a")) - cluster.now_s) <= 1.1


def test_a_running_cluster_goes_on_while_etcds_clock_is_behind_or_not_told() -> None:
    for set_up in (lambda one: one.set_clock(ETCD, -3600.0), lambda one: setattr(one, "etcd_tells", False)):
        cluster = Cluster()
        cluster.draw("a")
        cluster.draw("b")
        set_up(cluster)
        for second in range(200):
            cluster.now_s += 1.0
            drawn = cluster.draw("ab"[second % 2])
            assert abs(tso.physical_s(drawn) - cluster.now_s) < 0.1


def test_etcd_is_not_asked_all_the_time() -> None:
    bound = TimeBound()
    assert bound.should_ask(1000.0, 5.0)
    bound.observe([None], 5.0)
    assert bound.etcd_is_silent
    assert not bound.should_ask(1000.0, 5.0 + ASK_AGAIN_S - 0.1)
    assert bound.should_ask(1000.0, 5.0 + ASK_AGAIN_S)
    bound.observe([999.0], 15.0)
    assert not bound.should_ask(1000.0, 1e6), "within the slack"

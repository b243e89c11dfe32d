"""What became of a transaction: every state of its primary key at every age, against the plain truth."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.fakes.cluster import FakeCluster
from tests.fakes.mvcc import DELETE, LOCK, PESSIMISTIC, PUT, ROLLBACK, KeyFailure, MvccLock, Write
from tests.fakes.tikv import FakeTikv, Fault, LocalPd
from tests.fakes.world import TikvWorld
from tidb_binlog.errors import Rejected, Unavailable
from tidb_binlog.rpc import UNIMPLEMENTED, RpcStatus
from tidb_binlog.upstream.tidb.tikv.locks import LockResolver
from tidb_binlog.upstream.tidb.tikv.tikv import TikvClient
from tidb_binlog.upstream.tidb.tikv.transactions import QUESTIONS_MAX, REGION_QUESTIONS_MAX, TikvTransactions
from tidb_binlog.upstream.tidb.tikv.txn_status import FINAL_MAX, FinalOutcomes
from tidb_binlog.upstream_port import Committed, Outcome, RolledBack, Undecided, Unknown
from tidb_binlog.wire import kvrpcpb_pb2 as kv

KEY, SECONDARY = b"t\x80primary", b"t\x80secondary"
HOUR_MS, SHORT_MS = 3_600_000, 3000


@dataclass(frozen=True)
class Lock:
    """A lock of ours on the primary key; of an async-commit transaction, what its secondary key has."""

    kind: kv.Op.ValueType = PUT
    ttl_ms: int = HOUR_MS
    large: bool = False
    secondary: str = ""

    @property
    def alive(self) -> bool:
        return self.ttl_ms == HOUR_MS


@dataclass(frozen=True)
class Record:
    """Records of the primary key; `end` is what they say of our transaction."""

    name: str
    writes: Callable[[int], list[Write]]
    end: str = "open"


LOCKS: list[Lock | None] = [
    None,
    *(
        Lock(kind, ttl_ms, large)
        for kind in (PUT, DELETE, LOCK, PESSIMISTIC)
        for ttl_ms in (HOUR_MS, SHORT_MS, 0)
        for large in (False, True)
    ),
    *(
        Lock(PUT, ttl_ms, True, secondary)
        for ttl_ms in (HOUR_MS, SHORT_MS)
        for secondary in ("locked", "missing", "committed", "ordinary")
    ),
]
RECORDS = [
    Record("nothing", lambda ts: []),
    Record("another's", lambda ts: [Write(PUT, ts - 9, ts - 5), Write(PUT, ts + 40, ts + 50)]),
    Record("another's at our start_ts", lambda ts: [Write(PUT, ts - 9, ts)]),
    Record("put", lambda ts: [Write(PUT, ts, ts + 7)], "committed"),
    Record("delete", lambda ts: [Write(DELETE, ts, ts + 7), Write(PUT, ts + 9, ts + 11)], "committed"),
    Record("lock", lambda ts: [Write(LOCK, ts, ts + 7)], "committed"),
    Record("rollback", lambda ts: [Write(ROLLBACK, ts, ts), Write(PUT, ts + 9, ts + 11)], "rolled back"),
    Record("overlapped", lambda ts: [Write(PUT, ts - 9, ts, overlapped_rollback=True)], "rolled back"),
]
AGES = [
    "young",
    "old, asked about for the first time",
    "old, asked about for long",
    "young, asked about since its lock expired",
]
CASES = [(lock, record) for lock in LOCKS for record in RECORDS if lock is None or record.end == "open"]


class Question(TikvWorld):
    """A cluster with one transaction in a certain state, and who asks about it."""

    def __init__(self, lock: Lock | None, record: Record, age: str) -> None:
        super().__init__()
        self.asker = self.transactions()
        self.start_ts = self.cluster.ts(100)
        for write in record.writes(self.start_ts):
            self.cluster.mvcc.row(KEY).add(write)
        self.lock = lock
        if lock is not None:
            self._put(lock)
        self.cluster.clock.advance(10 if age in (AGES[0], AGES[3]) else 601)
        self.age = age

    def _put(self, lock: Lock) -> None:
        rows, ts = self.cluster.mvcc, self.start_ts
        min_commit_ts = ts + 1 if lock.large else 0
        secondaries = (SECONDARY,) if lock.secondary else None
        rows.row(KEY).lock = MvccLock(
            lock.kind, ts, KEY, lock.ttl_ms, b"", min_commit_ts, secondaries, for_update_ts=ts
        )
        if lock.secondary in ("locked", "ordinary"):
            own = () if lock.secondary == "locked" else None
            rows.row(SECONDARY).lock = MvccLock(PUT, ts, KEY, lock.ttl_ms, b"", ts + 20, own)
        elif lock.secondary == "committed":
            rows.row(SECONDARY).add(Write(PUT, ts, ts + 30))

    async def ask(self) -> Outcome:
        if self.age in AGES[2:]:
            with contextlib.suppress(Rejected):
                await self.asker.outcomes([(self.start_ts, KEY)])
            self.cluster.clock.advance(600 if self.age == AGES[2] else 60)
        return (await self.asker.outcomes([(self.start_ts, KEY)]))[0]

    def decides(self, with_history: bool) -> bool:
        """Whether it is time to have TiKV decide."""
        if self.age == AGES[3]:
            dead = self.lock is not None and not self.lock.alive and self.lock.kind != PESSIMISTIC
            return with_history and dead
        return self.age == AGES[2]

    def truth(self, record: Record, with_history: bool) -> tuple[str, int]:
        """What may be said: the end and its commit_ts."""
        ts, lock = self.start_ts, self.lock
        if record.end != "open":
            return record.end, ts + 7 if record.end == "committed" else 0
        if not self.decides(with_history) or (lock is not None and lock.alive):
            return "open", 0
        if lock is not None and lock.secondary == "locked":
            return "committed", ts + 20
        if lock is not None and lock.secondary == "committed":
            return "committed", ts + 30
        return "rolled back", 0


@pytest.mark.parametrize("mvcc", ["answers", "fails", "is not known"])
@pytest.mark.parametrize("age", AGES)
async def test_every_state_at_every_age(age: str, mvcc: str) -> None:
    for lock, record in CASES:
        question = Question(lock, record, age)
        if mvcc == "fails":

            def without_info(reply: Any) -> None:
                reply.ClearField("info")
                reply.error = "Engine: IO error"

            question.tikv.fault(Fault(method="MvccGetByKey", times=10, change=without_info))
        elif mvcc == "is not known":
            unknown = RpcStatus(UNIMPLEMENTED, "no")
            question.tikv.fault(Fault(method="MvccGetByKey", times=10, fails=unknown))
        await check(question, record, mvcc == "answers")


async def check(question: Question, record: Record, with_history: bool) -> None:
    state = (question.lock, record.name)
    before = question.cluster.mvcc.dump()
    end, commit_ts = question.truth(record, with_history)
    decides = question.decides(with_history)
    outcome: Outcome | None
    try:
        outcome = await question.ask()
    except Rejected:
        outcome = None  # no history to be had, and too early to decide
    if with_history:
        assert outcome is not None, state
    if not with_history and not decides:
        assert outcome is None, state
    elif end == "committed":
        assert outcome == Committed(commit_ts), state
    elif end == "rolled back":
        assert outcome == RolledBack(), state
    else:
        assert isinstance(outcome, Undecided), state
        assert 0 < outcome.retry_after_s <= 3600, state
    after = question.cluster.mvcc.dump()
    if end == "open" or record.end != "open":
        assert after == before, state
    else:
        assert KEY not in question.cluster.locked(question.start_ts), state
        ends = {write.commit_ts for write in after[KEY][1] if write.start_ts == question.start_ts}
        marks = {write for write in after[KEY][1] if write.overlapped_rollback}
        assert ends == {commit_ts or question.start_ts} or marks, state
    if not decides:
        assert question.tikv.called("KvCheckTxnStatus") == [], state


@pytest.mark.parametrize("state", ["committed", "expired", "alive", "no trace"])
async def test_a_history_that_never_comes_in_time(state: str) -> None:
    """As a counter's is that is written all the time; TiKV answers the short question."""
    world = TikvWorld()
    start_ts, commit_ts = world.cluster.ts(), 0
    if state != "no trace":
        start_ts = world.cluster.prewrite({KEY: b"v"}, ttl_ms=HOUR_MS if state == "alive" else SHORT_MS)
    if state == "committed":
        commit_ts = world.cluster.commit(start_ts)
    world.tikv.fault(Fault(method="MvccGetByKey", times=10**6, slow=True))
    asker = world.transactions()
    with pytest.raises(Unavailable):  # too early to decide
        await asker.outcomes([(start_ts, KEY)])
    world.cluster.clock.advance(601)
    before = world.cluster.mvcc.dump()
    if state == "no trace":
        with pytest.raises(Unavailable):
            await asker.outcomes([(start_ts, KEY)])
    else:
        (answer,) = await asker.outcomes([(start_ts, KEY)])
        ends = {"committed": Committed(commit_ts), "expired": RolledBack()}
        assert isinstance(answer, Undecided) if state == "alive" else answer == ends[state]
    assert (world.cluster.mvcc.dump() == before) is (state != "expired")


async def test_a_final_answer_cannot_become_another() -> None:
    """After each answer, the application tries to go on: what was said stays true."""
    for lock, record in CASES:
        for age in AGES:
            question = Question(lock, record, age)
            outcome = await question.ask()
            mvcc, ts = question.cluster.mvcc, question.start_ts
            with contextlib.suppress(KeyFailure):
                mvcc.prewrite(KEY, MvccLock(PUT, ts, KEY, HOUR_MS))
                mvcc.commit(KEY, ts, question.cluster.ts())
            history = mvcc.row(KEY).writes
            committed = [one for one in history if one.start_ts == ts and one.kind != ROLLBACK]
            if isinstance(outcome, RolledBack):
                assert committed == []
            elif isinstance(outcome, Committed):
                assert outcome.commit_ts in {one.commit_ts for one in committed}


async def test_the_request_that_decides() -> None:
    question = Question(None, RECORDS[0], AGES[2])
    assert await question.ask() == RolledBack()
    (call,) = question.tikv.called("KvCheckTxnStatus")
    request = call.request
    assert (request.primary_key, request.lock_ts, request.caller_start_ts) == (KEY, *[question.start_ts] * 2)
    assert request.rollback_if_not_exist
    assert request.verify_is_primary
    assert not request.force_sync_commit
    assert not request.resolving_pessimistic_lock
    assert question.start_ts < request.current_ts <= question.cluster.ts()


async def test_the_ages_are_those_that_were_asked_for() -> None:
    world = TikvWorld()
    asker = world.transactions(young_s=60.0, watched_s=5.0)
    start_ts = world.cluster.ts()
    for advance_s, over in ((0, False), (59, False), (2, True)):
        world.cluster.clock.advance(advance_s)
        (outcome,) = await asker.outcomes([(start_ts, KEY)])
        assert (outcome == RolledBack()) == over
    late = world.cluster.ts()
    world.cluster.clock.advance(1000)
    for advance_s, over in ((0, False), (4, False), (2, True)):
        world.cluster.clock.advance(advance_s)
        (outcome,) = await asker.outcomes([(late, KEY)])
        assert (outcome == RolledBack()) == over


async def test_who_is_asked_about_for_long_is_asked_about_less_often() -> None:
    world = TikvWorld()
    asker, start_ts = world.transactions(), world.cluster.ts()
    pauses = []
    for _ in range(30):
        (outcome,) = await asker.outcomes([(start_ts, KEY)])
        assert isinstance(outcome, Undecided)
        pauses.append(outcome.retry_after_s)
        world.cluster.clock.advance(outcome.retry_after_s)
    assert pauses[0] == 0.1
    assert pauses == sorted(pauses)
    assert pauses[-1] == 1.0


async def test_a_lock_of_another_primary_is_left_alone() -> None:
    """The key in the binlog is the primary; where TiKV says that it is not, nothing is decided there."""
    world = TikvWorld()
    start_ts = world.cluster.ts()
    world.cluster.mvcc.prewrite(KEY, MvccLock(PUT, start_ts, b"other", SHORT_MS))
    before = world.cluster.mvcc.dump()
    world.cluster.clock.advance(700)
    asker = world.transactions(watched_s=0.0)
    with pytest.raises(Rejected, match="not the primary key"):
        await asker.outcomes([(start_ts, KEY)])
    assert world.cluster.mvcc.dump() == before


async def test_a_commit_that_is_not_above_its_start_says_nothing() -> None:
    world = TikvWorld()
    start_ts = world.cluster.ts()
    world.cluster.mvcc.row(KEY).add(Write(PUT, start_ts, start_ts))
    assert isinstance((await world.transactions().outcomes([(start_ts, KEY)]))[0], Undecided)


async def test_a_ttl_beside_a_commit_ts_is_a_live_lock() -> None:
    world = TikvWorld()
    start_ts = world.cluster.ts()
    world.cluster.clock.advance(700)

    def both(reply: Any) -> None:
        reply.Clear()
        reply.lock_ttl, reply.commit_version = 5000, start_ts + 5

    world.tikv.fault(Fault(method="KvCheckTxnStatus", change=both))
    assert isinstance((await world.transactions(watched_s=0.0).outcomes([(start_ts, KEY)]))[0], Undecided)


async def test_final_answers_are_kept_and_others_are_not() -> None:
    world = TikvWorld()
    cluster, asker = world.cluster, world.transactions()
    committed, open_ts, rolled_back = (cluster.prewrite({b"t%d" % n: b"v"}) for n in range(3))
    cluster.commit(committed)
    cluster.roll_back(rolled_back)
    questions = [(committed, b"t0"), (open_ts, b"t1"), (rolled_back, b"t2")]
    first = await asker.outcomes(questions)
    assert [type(outcome) for outcome in first] == [Committed, Undecided, RolledBack]
    world.tikv.calls.clear()
    commit_ts = cluster.commit(open_ts)
    assert await asker.outcomes(questions) == [first[0], Committed(commit_ts), first[2]]
    assert [call.request.key for call in world.tikv.calls] == [b"t1"]


def test_so_many_final_answers_are_kept() -> None:
    final = FinalOutcomes()
    for start_ts in range(FINAL_MAX + 10):
        final.put(start_ts, Committed(start_ts + 1))
    assert len(final) == FINAL_MAX
    assert final.get(9) is None
    assert final.get(10) == Committed(11)


async def test_the_answers_come_in_the_order_of_the_questions() -> None:
    """Also of a transaction asked about twice."""
    world = TikvWorld()
    world.cluster.split(*(b"t%03d" % n for n in range(0, 200, 20)))
    asker = world.transactions()
    started = [world.cluster.prewrite({b"t%03d" % n: b"v"}) for n in range(200)]
    ended = {ts: world.cluster.commit(ts) for ts in started[::2]}
    questions = [(ts, b"t%03d" % n) for n, ts in enumerate(started)]
    questions += questions[:5]
    outcomes = await asker.outcomes(questions)
    for (start_ts, _), outcome in zip(questions, outcomes, strict=True):
        if start_ts in ended:
            assert outcome == Committed(ended[start_ts])
        else:
            assert isinstance(outcome, Undecided)


async def test_no_question_no_answer() -> None:
    world = TikvWorld()
    assert await world.transactions().outcomes([]) == []
    assert world.tikv.calls == []


async def test_one_slow_region_holds_nobody_else_up() -> None:
    world = TikvWorld()
    cluster = world.cluster
    cluster.split(b"t100")
    started = [cluster.prewrite({b"t%03d" % n: b"v"}) for n in range(200)]
    ended = {ts: cluster.commit(ts) for ts in started}
    questions = [(ts, b"t%03d" % n) for n, ts in enumerate(started)]
    slow = cluster.region_of(b"t000").id
    fault = world.tikv.fault(Fault(region_id=slow, times=10**6, hold=asyncio.Event()))
    asker = world.transactions(deadline_s=1.0)
    outcomes = await asker.outcomes(questions)
    for n, ((start_ts, _), outcome) in enumerate(zip(questions, outcomes, strict=True)):
        if n < 100:
            assert isinstance(outcome, Undecided)
            assert "within 1 s" in outcome.unanswered
        else:
            assert outcome == Committed(ended[start_ts])
    at_slow = [call for call in world.tikv.calls if call.request.context.region_id == slow]
    assert len(at_slow) == REGION_QUESTIONS_MAX
    assert fault.hold is not None
    fault.hold.set()
    assert await asker.outcomes(questions) == [Committed(ended[ts]) for ts in started]


async def test_so_many_questions_at_once() -> None:
    world = TikvWorld()
    world.cluster.split(*(b"t%03d" % n for n in range(0, 300, 5)))
    running: Counter[int] = Counter()
    most = most_in_region = 0
    answer = world.tikv.answer

    async def counted(store_id: int, method: str, data: bytes, timeout_s: float) -> bytes:
        nonlocal most, most_in_region
        region_id = kv.MvccGetByKeyRequest.FromString(data).context.region_id
        running[region_id] += 1
        most, most_in_region = max(most, running.total()), max(most_in_region, running[region_id])
        for _ in range(20):
            await asyncio.sleep(0)
        running[region_id] -= 1
        return await answer(store_id, method, data, timeout_s)

    questions = [(n + 1, b"t%03d" % n) for n in range(300)]
    await world.transactions().outcomes(questions)  # the regions are known now
    world.tikv.answer = counted  # type: ignore[method-assign]
    await world.transactions().outcomes(questions)
    assert QUESTIONS_MAX / 2 < most <= QUESTIONS_MAX
    await world.transactions().outcomes([(n + 1, b"t000") for n in range(50)])
    assert most_in_region == REGION_QUESTIONS_MAX
    assert most <= QUESTIONS_MAX


@pytest.mark.parametrize("away", ["stores", "pd", "oracle", "slow"])
async def test_without_any_answer_it_is_unavailable(away: str) -> None:
    world = TikvWorld()
    asker = world.transactions(deadline_s=0.2 if away == "slow" else 8.0)
    if away == "stores":
        world.tikv.down = {1, 2, 3}
    elif away == "pd":
        world.pd.away = True
    elif away == "slow":
        world.tikv.fault(Fault(times=10, hold=asyncio.Event()))
    else:

        async def recent(max_age_s: float = 2.0) -> int:
            raise Unavailable("no timestamp")

        world.pd.recent = recent  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await asker.outcomes([(world.cluster.ts(), KEY), (world.cluster.ts(), KEY)])


async def test_one_question_that_is_wrong_spoils_no_other() -> None:
    world = TikvWorld()
    asker = world.transactions()
    start_ts = world.cluster.prewrite({KEY: b"v"})
    commit_ts = world.cluster.commit(start_ts)
    questions = [(start_ts, KEY), (1, b""), (2, b"x\0\0\7t12345")]
    found, without_key, of_keyspace = await asker.outcomes(questions)
    assert found == Committed(commit_ts)
    assert isinstance(without_key, Unknown)  # there is nothing to ask TiKV about
    assert "no primary key" in without_key.reason
    assert isinstance(of_keyspace, Undecided)
    assert "keyspace 7" in of_keyspace.unanswered
    with pytest.raises(Rejected, match="keyspace 7"):
        await asker.outcomes(questions[2:])


async def test_who_stops_waiting_leaves_nothing_behind() -> None:
    world = TikvWorld()
    world.tikv.fault(Fault(times=10, hold=asyncio.Event()))
    asking = asyncio.create_task(world.transactions().outcomes([(n + 1, KEY) for n in range(5)]))
    while not world.tikv.calls:
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("lost", ["lose", "slow"])
async def test_a_lost_reply_to_the_question_that_decides(lost: str) -> None:
    """It was done; the repetition says the same."""
    world = TikvWorld()
    start_ts = world.cluster.prewrite({KEY: b"v"}, ttl_ms=SHORT_MS)
    world.cluster.clock.advance(700)
    fault = world.tikv.fault(Fault(method="KvCheckTxnStatus"))
    setattr(fault, lost, True)
    assert await world.transactions(watched_s=0.0).outcomes([(start_ts, KEY)]) == [RolledBack()]
    assert [write.kind for write in world.cluster.mvcc.row(KEY).writes] == [ROLLBACK]


async def test_a_long_history_comes_over_a_real_network() -> None:
    """More than gRPC takes unasked; TiKV sends all versions of a key."""
    cluster = FakeCluster()
    tikv = FakeTikv(cluster)
    await tikv.serve(1)
    pd = LocalPd(cluster)
    client = TikvClient(pd)
    asker = TikvTransactions(client, LockResolver(client, pd), pd, pd)
    start_ts = cluster.ts(60_000)
    ends = range(40_000, -2, -2)
    cluster.mvcc.row(KEY).writes = [Write(PUT, start_ts + n, start_ts + n + 1, b"v" * 250) for n in ends]
    try:
        assert cluster.mvcc.history(KEY).ByteSize() > 4 << 20
        assert await asker.outcomes([(start_ts, KEY)]) == [Committed(start_ts + 1)]
    finally:
        await client.close()
        await tikv.stop()

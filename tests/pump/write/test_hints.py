"""A client's rollback under TiDB: a reason to ask, and nothing else. A real storage, a scripted upstream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pump.index.sorter import Advanced, GivenUp, OpenPrewrite, Sorter
from pump.log.record import LogRecord, ValuePointer
from pump.watermark.resolve_schedule import TxnAnswer
from pump.watermark.trace_hold import RENEW_S, TRANSACTION_S, TTL_S, TraceHold
from tests.pump.support.payloads import opened, put
from tests.pump.support.resolving import Scene
from tests.pump.support.scripted import ScriptedOracle
from tests.waiting import until
from tidb_binlog import binlog, tso
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import Rejected
from tidb_binlog.upstream.garbage_hold import BACK_MAX_S
from tidb_binlog.upstream.upstream_time import UpstreamTime
from tidb_binlog.upstream_port import Committed, RolledBack, Undecided, Unknown


@asynccontextmanager
async def scene(path: Path, **options: Any) -> AsyncIterator[Scene]:
    clock = ManualClock()
    async with opened(path, clock=clock, clients_know=False, **options) as storage:
        yield Scene(storage, clock)


async def test_a_client_that_says_rolled_back_of_what_is_committed_is_not_believed(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        one.upstream.answers[10] = [Committed(15)]
        await one.prewrite(10)
        await put(one.storage, binlog.rollback(10, b"key10"))
        assert await one.round() == [10]  # at once, not in a second
        await one.settled()
        assert await one.commits() == [15]


async def test_many_that_roll_back_are_asked_about_at_once_and_together(tmp_path: Path) -> None:
    """However young they are, and beside those whose end is only late."""
    async with scene(tmp_path) as one:
        rolled_back = range(100, 200)
        one.upstream.answers = {start_ts: [RolledBack()] for start_ts in rolled_back}
        await one.prewrite(50, *rolled_back)
        await put(one.storage, *(binlog.rollback(start_ts, b"k") for start_ts in rolled_back))
        assert await one.round() == [*rolled_back]
        assert len(one.upstream.asked) == 1
        assert one.upstream.given_up == set(rolled_back)
        await until(lambda: one.storage.open_count == 1)


async def test_one_whose_end_is_on_its_way_is_asked_about_again_soon(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        one.upstream.answers[10] = [Undecided(1.0), Undecided(1.0), RolledBack()]
        await one.prewrite(10)
        await put(one.storage, binlog.rollback(10, b"k"))
        assert await one.round() == [10]
        one.clock.advance(0.02)
        assert await one.round() == [10]
        one.clock.advance(0.04)
        assert await one.round() == [10]
        await one.settled()


async def test_a_word_that_comes_while_a_question_is_under_way_is_not_lost(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        one.upstream.answers[10] = [Undecided(5.0), RolledBack()]
        await one.prewrite(10)
        one.clock.advance(1.5)
        due = one.resolver.due()
        await put(one.storage, binlog.rollback(10, b"k"))
        await until(lambda: one.storage.places.indexed == one.storage.places.written)
        await one.resolver.ask(due)
        one.clock.advance(0.02)
        assert await one.round() == [10]
        await one.settled()


async def test_a_restart_believes_what_the_pump_has_asked_and_asks_about_the_rest(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        one.upstream.answers[20] = [RolledBack()]
        await one.prewrite(10, 20, 30)  # 10 holds the place where a restart begins
        await put(one.storage, binlog.rollback(20, b"k"))
        assert await one.round() == [20]
        await until(lambda: not one.storage.is_open(20))
        await put(one.storage, binlog.rollback(30, b"k"), binlog.rollback(30))  # with a key or without
        await until(lambda: one.storage.places.indexed == one.storage.places.written)
    async with scene(tmp_path, replayed=False) as one:  # the resolver is there before anything is read
        one.upstream.answers[30] = [Committed(35)]
        await one.storage.replayed.wait()
        assert [prewrite.start_ts for prewrite in one.storage.open_prewrites()] == [10, 30]
        assert await one.round() == [30]
        await until(lambda: not one.storage.is_open(30))


async def test_what_others_know_is_believed_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        await put(storage, binlog.prewrite(10, b"k", b"v"))
        await put(storage, binlog.rollback(10, b"k"))
        await until(lambda: storage.open_count == 0)


def test_the_sorter_settles_by_what_the_pump_wrote() -> None:
    sorter = Sorter(clients_know=False)

    def fed(tp: int, commit_ts: int, at: int) -> list[object]:
        effects = sorter.feed([LogRecord(tp, 10, commit_ts, ValuePointer(0, at))], 0.0)
        sorter.check()
        return [*effects]

    assert fed(binlog.ROLLBACK, 0, 0) == []  # before its prewrite: nothing is open
    fed(binlog.PREWRITE, 0, 10)
    assert fed(binlog.ROLLBACK, 0, 20) == [GivenUp(10)]
    assert sorter.is_open(10)
    assert sorter.mark(50) == []
    [advanced] = fed(binlog.SETTLED_ROLLBACK, 0, 30)
    assert isinstance(advanced, Advanced)
    assert (advanced.watermark, sorter.open_count) == (50, 0)
    assert fed(binlog.ROLLBACK, 0, 40) == []


# Nobody knows.


async def test_what_nobody_knows_is_told_once_and_waits_for_a_person(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path) as one:
        one.upstream.answers[10] = [Unknown("no trace", retry_after_s=1.0)]
        await one.prewrite(10)
        await put(one.storage, binlog.prewrite(40, b"k", b"v"), binlog.commit(40, 45))
        for _ in range(20):
            one.clock.advance(10.0)
            assert await one.round() == [10]
        assert caplog.text.count("unknown upstream") == 1
        [record] = [record for record in caplog.records if "unknown upstream" in record.message]
        assert "binlogctl decide 10 rolled-back" in record.fields["next"]  # type: ignore[attr-defined]
        assert one.storage.is_open(10)
        assert one.storage.watermark < 45
        assert one.resolver.facts().unknown == 20


@pytest.mark.parametrize("commit_ts", [0, 30])
async def test_an_operator_decides_it(tmp_path: Path, commit_ts: int) -> None:
    async with scene(tmp_path) as one:
        one.upstream.answers[10] = [Unknown("no trace")]
        await one.prewrite(10)
        await put(one.storage, binlog.prewrite(40, b"k", b"v"), binlog.commit(40, 45))
        with pytest.raises(Rejected, match="not left to you"):
            await one.resolver.decide(10, commit_ts)  # nobody has asked yet
        one.clock.advance(1.5)
        await one.round()
        for wrong in (10, 45):
            with pytest.raises(Rejected, match="cannot be its commit_ts"):
                await one.resolver.decide(10, wrong)
        with pytest.raises(Rejected, match="not open here"):
            await one.resolver.decide(11, commit_ts)
        await one.resolver.decide(10, commit_ts)
        await one.settled()
        assert await one.commits() == ([30, 45] if commit_ts else [45])
    async with scene(tmp_path) as one:
        assert one.storage.open_count == 0


async def test_an_end_that_comes_after_all_settles_it(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        one.upstream.answers[10] = [Unknown("no trace"), Committed(20)]
        await one.prewrite(10)
        one.clock.advance(1.5)
        await one.round()
        assert one.resolver.heard(10).answer is TxnAnswer.UNKNOWN
        one.clock.advance(5.0)
        assert await one.round() == [10]
        await one.settled()
        assert await one.commits() == [20]


# The hold.


class Garbage:
    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []
        self.floor_ts = 0  # a hold from before it is not taken

    async def hold(self, name: str, ts: int, ttl_s: int) -> int:
        self.calls.append((name, ts, ttl_s))
        return max(ts, self.floor_ts)


class Opens:
    def __init__(self, watermark: int, *start_tss: int) -> None:
        self.watermark = watermark
        self.start_tss = start_tss
        self.replayed = asyncio.Event()

    def open_prewrites(self) -> Iterable[OpenPrewrite]:
        place = ValuePointer(0, 0)
        return [OpenPrewrite(start_ts, place, 0.0, place) for start_ts in self.start_tss]


async def test_traces_are_held_from_before_whatever_is_open() -> None:
    clock, garbage = ManualClock(), Garbage()
    now = tso.from_wall_s(clock.wall_s())
    opens = Opens(now - 50, now - 20, now - 100)
    hold = TraceHold(garbage, "pump-1", opens, UpstreamTime(ScriptedOracle(), clock))
    assert await hold.renew() == RENEW_S < TTL_S / 10
    opens.start_tss = (now - 20,)
    await hold.renew()
    await hold.leave()  # something is open: the next life needs it
    opens.start_tss = ()
    opens.watermark = now
    await hold.renew()
    await hold.leave()
    assert garbage.calls == [
        ("pump_pump-1", now - 101, TTL_S),
        ("pump_pump-1", now - 51, TTL_S),
        ("pump_pump-1", now - 1, TTL_S),
        ("pump_pump-1", now - 1, 0),
    ]


async def test_a_hold_is_as_old_as_it_is_upstream() -> None:
    """This host's clock may be days from the upstream's."""
    clock, oracle, garbage = ManualClock(), ScriptedOracle(), Garbage()
    for ahead_s in (3 * 86_400.0, -3 * 86_400.0):
        oracle.pinned = tso.from_wall_s(clock.wall_s() + ahead_s)
        time = UpstreamTime(oracle, clock)
        now = await time.draw()
        await TraceHold(garbage, "pump-1", Opens(now, now - 5), time).renew()
        assert garbage.calls.pop() == ("pump_pump-1", now - 6, TTL_S)
        long_ago = now - tso.compose(int((BACK_MAX_S + 1) * 1000))
        await TraceHold(garbage, "pump-1", Opens(now, long_ago), time).renew()
        assert garbage.calls.pop() == ("pump_pump-1", now - 1, TTL_S)


async def test_what_is_open_for_too_long_costs_no_other_its_hold(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody knows of it, and the watermark stays below it until a person decides."""
    clock, garbage = ManualClock(), Garbage()
    now = tso.from_wall_s(clock.wall_s())
    long_ago = now - tso.compose(int((BACK_MAX_S + 1) * 1000))
    opens = Opens(long_ago - 1, long_ago, now - 20)
    hold = TraceHold(garbage, "pump-1", opens, UpstreamTime(ScriptedOracle(), clock))
    for _ in range(3):
        await hold.renew()
    hour_ago = now - tso.compose(int(TRANSACTION_S * 1000))
    assert garbage.calls == [("pump_pump-1", hour_ago - 1, TTL_S)] * 3
    told = [record for record in caplog.records if "more than a day" in record.message]
    assert len(told) == 1
    opens.start_tss = (long_ago, hour_ago - 9)
    await hold.renew()
    assert garbage.calls[-1] == ("pump_pump-1", hour_ago - 10, TTL_S)


async def test_a_hold_that_comes_too_late_is_from_where_one_can_be_had(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """TiDB collects what is ten minutes old, and a pump without a watermark asks for an hour: PD takes no
    such hold. Nor one for what was open while the pump was away, with which all that is younger would go."""
    clock, garbage = ManualClock(), Garbage()
    now = tso.from_wall_s(clock.wall_s())
    garbage.floor_ts = now - tso.compose(600_000)
    opens = Opens(0, now - 20)
    hold = TraceHold(garbage, "pump-1", opens, UpstreamTime(ScriptedOracle(), clock))
    await hold.renew()
    assert garbage.calls[-1] == ("pump_pump-1", garbage.floor_ts, TTL_S)
    assert not caplog.records, "what is open is held"
    opens.start_tss = (garbage.floor_ts - 1, now - 20)
    await hold.renew()
    assert garbage.calls[-1] == ("pump_pump-1", garbage.floor_ts, TTL_S)
    assert "collected already" in caplog.text

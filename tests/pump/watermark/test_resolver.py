"""Open prewrites whose end never came: a real storage, a scripted upstream, a clock that is told."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from msgspec import to_builtins

from pump.index import indexer
from pump.watermark import resolver
from pump.watermark.resolve_schedule import TxnAnswer
from pump.watermark.stall_monitor import StallMonitor
from pump.watermark.stall_report import StallReport
from tests.pump.support.payloads import opened, pull, put, put_pair, wait_watermark
from tests.pump.support.resolving import scene
from tests.waiting import PATIENCE_S, until
from tidb_binlog import binlog
from tidb_binlog.errors import Corruption, Rejected
from tidb_binlog.upstream_port import Committed, RolledBack, Undecided


async def test_orphan_is_asked_about_after_a_second_or_at_once_when_somebody_waits(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        await one.prewrite(10)
        for passed_s in (0.0, 0.5, 0.49):
            one.clock.advance(passed_s)
            assert await one.round() == []
        one.clock.advance(0.02)
        assert await one.round() == [10]
        await one.prewrite(20)
        one.waits = True
        one.clock.advance(0.09)
        assert 20 not in await one.round()
        one.clock.advance(0.02)
        assert 20 in await one.round()


async def test_keys_of_three_times_the_bound_are_read_again_and_no_more_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "_KEYS_BYTES_MAX", 2000)
    async with scene(tmp_path) as one:
        start_tss = [*range(10, 40)]
        await one.prewrite(*start_tss)
        for _ in range(3):
            one.clock.advance(10.0)
            assert await one.round() == start_tss
            assert one.upstream.asked[-1] == [(start_ts, b"key%d" % start_ts) for start_ts in start_tss]
            assert len(one.resolver._keys) * 200 <= 2000


async def test_orphans_of_both_kinds_settle_in_one_round_and_nothing_is_lost(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        one.upstream.answers = {10: [Committed(15)], 20: [RolledBack()], 30: [Committed(35)]}
        await one.prewrite(10, 20)
        await put_pair(one.storage, 40, 41)
        await one.prewrite(30)
        await put_pair(one.storage, 50, 51)
        assert one.storage.watermark == 0
        one.clock.advance(1.5)
        assert await one.round() == [10, 20, 30]
        assert one.upstream.asked == [[(10, b"key10"), (20, b"key20"), (30, b"key30")]]
        await one.settled()
        assert one.storage.watermark == 51
        assert await one.commits() == [15, 35, 41, 51]
        assert to_builtins(one.resolver.facts()) == {
            "asked": 3,
            "committed": 2,
            "rolled_back": 1,
            "undecided": 0,
            "unanswered": 0,
            "unknown": 0,
            "rounds_under_way": 0,
            "unavailable_s": 0.0,
        }
    async with opened(tmp_path) as storage:
        await wait_watermark(storage, 51)
        assert [delivery.commit_ts for delivery in await pull(storage)] == [15, 35, 41, 51]
        assert storage.open_count == 0


async def test_a_lock_alive_for_eleven_minutes_is_held_named_and_delivered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path) as one:
        one.upstream.answers[10] = [Undecided(20.0)]
        watch = StallMonitor(one.storage, one.resolver, one.clock, StallReport(first_s=10.0))
        await put_pair(one.storage, 5, 6)
        await one.prewrite(10)
        await put_pair(one.storage, 20, 21)
        began_s = one.clock.now_s
        with caplog.at_level("INFO"):
            while one.clock.now_s - began_s < 660:
                one.clock.advance(1.0)
                await one.round()
                await watch.observe()
                assert one.storage.is_open(10)
            # What order does not hold back has passed, and writes go on.
            assert one.storage.watermark == 6
            await put_pair(one.storage, 30, 31)
            assert 100 < len(one.upstream.asked) <= 132  # every 5 s at most
            assert one.storage.stored_total == 7
            oldest = to_builtins(watch.oldest())[0]
            assert (oldest["start_ts"], oldest["age_s"]) == (10, 660.0)
            assert oldest["upstream"] == "it may still commit: asked again in 20 s"
            told = [record for record in caplog.records if "holds the watermark" in record.message]
            assert [record.fields["age_s"] for record in told] == [10, 20, 40, 80, 160, 320, 640]  # type: ignore[attr-defined]
            assert {record.fields["start_ts"] for record in told} == {10}  # type: ignore[attr-defined]
            one.upstream.answers[10] = [Committed(25)]
            one.clock.advance(5.0)
            assert await one.round() == [10]
            await one.settled()
            await watch.observe()
        assert await one.commits() == [6, 21, 25, 31]
        assert "the prewrite that held the watermark is settled" in caplog.text


async def test_a_store_that_is_away_for_an_hour_delays_and_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path) as one:
        one.upstream.gone = True
        orphans = range(100, 120)
        await put_pair(one.storage, 5, 6)
        await one.prewrite(*orphans)
        for _ in range(3600):
            one.clock.advance(1.0)
            await one.round()
        assert one.storage.watermark == 6
        assert one.storage.open_count == 20
        assert to_builtins(one.resolver.facts())["unavailable_s"] > 3590
        # The first round looked whether it is one of them alone; then one question a second at most.
        assert sum(len(asked) > 1 for asked in one.upstream.asked) < 20
        assert len(one.upstream.asked) <= 3600 + 2 * len(orphans)
        assert {one.resolver.heard(start_ts).answer for start_ts in orphans} == {TxnAnswer.UNAVAILABLE}
        assert caplog.text.count("upstream does not answer about open prewrites") == 1
        # Meanwhile a client comes back with its commit: no question needs to be answered for that.
        await put(one.storage, binlog.commit(100, 200))
        await until(lambda: not one.storage.is_open(100))

        one.upstream.gone = False
        for start_ts in orphans:
            one.upstream.answers[start_ts] = [Committed(start_ts + 500)]
        rounds = 0
        while one.storage.open_count:
            one.clock.advance(1.0)
            await one.round()
            rounds += 1
        assert rounds <= 10
        assert await one.commits() == [6, 200, *(start_ts + 500 for start_ts in orphans[1:])]
        assert to_builtins(one.resolver.facts())["unavailable_s"] == 0


async def test_a_damaged_prewrite_is_named_and_the_others_are_asked_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path) as one:
        await one.prewrite(10, 20, 30)
        places = {prewrite.start_ts: prewrite.place for prewrite in one.storage.open_prewrites()}
        file = tmp_path / "value" / "000000.vlog"
        with file.open("r+b") as log:
            log.seek(places[20].offset + 20)
            log.write(b"\xff")
        one.upstream.answers = {10: [Committed(11)], 20: [Committed(21)], 30: [RolledBack()]}
        one.clock.advance(1.5)
        assert await one.round() == [10, 20, 30]
        await until(lambda: one.storage.open_count == 1)
        assert [start_ts for start_ts, _ in one.upstream.asked[0]] == [10, 30]
        heard = one.resolver.heard(20)
        assert heard.answer is TxnAnswer.DAMAGED
        assert f"000000.vlog: offset {places[20].offset}" in heard.detail
        for _ in range(20):
            one.clock.advance(5.0)
            assert await one.round() == [20]
        assert caplog.text.count("open prewrite cannot be read") == 1
        assert one.storage.is_open(20)  # a timer settles nothing
        await put(one.storage, binlog.commit(20, 21))
        await one.settled()
        with pytest.raises(Corruption, match="checksum mismatch"):
            await pull(one.storage, from_disk=True)


async def test_one_that_cannot_be_answered_does_not_silence_the_others(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        orphans = range(100, 140)
        one.upstream.answers = {start_ts: [RolledBack()] for start_ts in orphans}
        one.upstream.answers[117] = [Rejected("what is this")]
        await one.prewrite(*orphans)
        one.clock.advance(1.5)
        assert await one.round() == [*orphans]
        await until(lambda: one.storage.open_count == 1)
        assert one.storage.is_open(117)
        assert one.resolver.heard(117).detail == "what is this"
        assert len(one.upstream.asked) <= 2 * 6 + 1  # the way down to one of forty
        assert to_builtins(one.resolver.facts())["unavailable_s"] == 0


async def test_where_nobody_answers_the_group_is_asked_once(tmp_path: Path) -> None:
    """Half of a group waits as long for a store that is away as all of it."""
    async with scene(tmp_path) as one:
        orphans = range(100, 140)
        one.upstream.gone = True
        await one.prewrite(*orphans)
        one.clock.advance(1.5)
        assert await one.round() == [*orphans]
        assert len(one.upstream.asked) == 1
        assert one.resolver.heard(117).answer is TxnAnswer.UNAVAILABLE


async def test_one_of_many_without_an_answer_is_not_called_alive(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        one.upstream.answers = {10: [Undecided(1.0, "its region is away")], 20: [Undecided(5.0)]}
        await one.prewrite(10, 20)
        one.clock.advance(1.5)
        await one.round()
        assert one.resolver.heard(10).answer is TxnAnswer.UNAVAILABLE
        assert one.resolver.heard(10).detail == "its region is away"
        assert one.resolver.heard(20).answer is TxnAnswer.ALIVE


async def test_a_question_that_hangs_holds_nobody_else_up(tmp_path: Path) -> None:
    async with scene(tmp_path, answer_deadline_s=0.05) as one:
        one.upstream.hung = {20}
        one.upstream.answers = {start_ts: [Committed(50)] for start_ts in (10, 30, 40)}
        await one.prewrite(10, 20, 30)
        one.clock.advance(1.5)
        due = one.resolver.due()
        asking = asyncio.create_task(one.resolver.ask(due))
        await until(lambda: bool(one.upstream.asked))
        # A later one is asked about beside it, and writers are not concerned.
        await one.prewrite(40)
        one.clock.advance(1.5)
        assert await one.round() == [40]
        await put_pair(one.storage, 60, 61)
        await asking
        await until(lambda: one.storage.open_count == 1)
        assert one.resolver.heard(20).detail == "no answer within 0.05 s"


async def test_what_the_resolver_writes_can_be_read_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index does not take the commit at first: until it does, the prewrite stays open."""
    monkeypatch.setattr(indexer, "_RETRY_S", 0.01)
    async with scene(tmp_path) as one:
        one.upstream.answers[10] = [Committed(15)]
        await one.prewrite(10)
        write, refused = one.storage.index.write, threading.Event()
        failing = True

        def refusing(*arguments: object) -> None:
            if failing:
                refused.set()
                raise OSError("no room")
            write(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(one.storage.index, "write", refusing)
        one.clock.advance(1.5)
        assert await one.round() == [10]
        await until(refused.is_set)
        assert one.storage.is_open(10)
        assert one.storage.watermark == 0
        assert one.resolver.heard(10).answer is TxnAnswer.ENDED
        one.clock.advance(60.0)
        assert one.resolver.due() == []  # its end is stored: not asked, not written again
        failing = False
        await one.settled()
        assert await one.commits() == [15]
        assert one.storage.stored_total == 2


async def test_nothing_is_written_after_the_close(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with scene(tmp_path) as one:
        one.upstream.answers[10] = [Committed(15)]
        await one.prewrite(10)
        one.clock.advance(1.5)
        answered = asyncio.Event()
        outcomes = one.upstream.outcomes

        async def late(transactions: list[tuple[int, bytes]], _: object) -> list[object]:
            await answered.wait()
            return [*await outcomes(transactions)]

        one.upstream.outcomes = late  # type: ignore[method-assign, assignment]
        asking = asyncio.create_task(one.resolver.ask(one.resolver.due()))
        await until(lambda: to_builtins(one.resolver.facts())["asked"] == 1)
    size = (tmp_path / "value" / "000000.vlog").stat().st_size
    answered.set()
    await asking
    assert "end of an open prewrite not written" in caplog.text
    assert (tmp_path / "value" / "000000.vlog").stat().st_size == size
    async with scene(tmp_path) as one:  # it is asked about again
        one.upstream.answers[10] = [Committed(15)]
        await until(lambda: one.storage.is_open(10))
        one.clock.advance(1.5)
        assert await one.round() == [10]
        await one.settled()
        assert await one.commits() == [15]


async def test_nobody_is_asked_about_what_the_log_may_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the index stands, ends wait in the log: asking about them would load the store for nothing."""
    async with scene(tmp_path) as one:
        await one.prewrite(*range(100, 110))
        write, go_on = one.storage.index.write, threading.Event()

        def stalled(*arguments: object) -> None:
            assert go_on.wait(PATIENCE_S)
            write(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(one.storage.index, "write", stalled)
        one.resolver.due()
        one.clock.advance(0.5)
        await put(one.storage, *(binlog.commit(start_ts, start_ts + 50) for start_ts in range(100, 110)))
        for _ in range(30):
            assert one.resolver.due() == []
            one.clock.advance(1.0)
        go_on.set()
        await one.settled()
        assert one.upstream.asked == []


async def test_nothing_is_asked_once_the_log_takes_no_writes(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        await one.prewrite(10)
        one.clock.advance(1.5)
        failure = RuntimeError("the disk")

        def fail(*_: object) -> None:
            raise failure

        one.storage.value_log.append = fail  # type: ignore[method-assign, assignment]
        one.upstream.answers[10] = [RolledBack()]
        assert await one.round() == [10]
        assert one.resolver.heard(10).answer is TxnAnswer.NOT_WRITTEN
        one.clock.advance(60.0)
        assert one.resolver.due() == []

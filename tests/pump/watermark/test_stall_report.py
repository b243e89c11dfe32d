"""Which open prewrite is told as the one that holds the watermark, when, and in which words."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from pump.index.sorter import OpenPrewrite
from pump.log.record import START
from pump.watermark.resolve_schedule import Heard, TxnAnswer
from pump.watermark.stall_monitor import StallMonitor
from pump.watermark.stall_report import (
    Settled,
    Stalled,
    StallReport,
    Subject,
    latest_answer,
    next_step,
    subject_of,
)
from tests.pump.support.payloads import put
from tests.pump.support.resolving import SECRET, Scene, rows, scene
from tidb_binlog import binlog, tso
from tidb_binlog.observe import metrics
from tidb_binlog.upstream_port import Committed, Undecided


def an_open(start_ts: int, since_s: float) -> OpenPrewrite:
    return OpenPrewrite(start_ts, START, since_s, START)


# -- when ----------------------------------------------------------------------------------------


def test_told_after_ten_seconds_then_ever_more_rarely_and_once_at_the_end() -> None:
    core, one = StallReport(first_s=10.0, pause_max_s=60.0), an_open(7, 100.0)
    told: list[Stalled] = []
    for now_s in range(100, 400):
        for effect in core.observe(one, float(now_s)):
            assert isinstance(effect, Stalled)
            told.append(effect)
    assert [tell.age_s for tell in told] == [10, 20, 40, 80, 140, 200, 260]
    assert [tell.turn for tell in told] == [1, 2, 3, 4, 5, 6, 7]
    assert core.reported is one
    assert core.observe(None, 400.5) == [Settled(7, 300.5)]
    assert core.observe(None, 500.0) == []
    assert core.reported is None


def test_the_next_one_that_holds_is_told_at_once_when_it_is_old_too() -> None:
    core = StallReport(first_s=10.0)
    first, second, young = an_open(1, 0.0), an_open(2, 1.0), an_open(3, 19.0)
    assert core.observe(first, 12.0) == [Stalled(first, 12.0, 1)]
    assert core.observe(second, 20.0) == [Settled(1, 20.0), Stalled(second, 19.0, 1)]
    assert core.observe(young, 21.0) == [Settled(2, 20.0)]
    assert core.observe(young, 29.0) == [Stalled(young, 10.0, 1)]


def test_every_short_history_agrees_with_the_rules() -> None:
    """Looks ten seconds apart at nobody, or one of three; what was told is settled exactly once."""
    for seen in itertools.product((0, 1, 2, 3), repeat=5):
        core, told = StallReport(first_s=10.0), 0
        since: dict[int, float] = {}
        for turn, start_ts in enumerate(seen):
            now_s = turn * 10.0
            if start_ts:
                since.setdefault(start_ts, now_s)
            oldest = an_open(start_ts, since[start_ts]) if start_ts else None
            effects = core.observe(oldest, now_s)
            settled = [effect.start_ts for effect in effects if isinstance(effect, Settled)]
            assert settled == ([told] if told and told != start_ts else [])
            new = [effect for effect in effects if isinstance(effect, Stalled)]
            due = start_ts and now_s - since[start_ts] >= 10.0
            assert len(new) <= 1
            if due and told != start_ts:
                assert [(tell.prewrite.start_ts, tell.turn) for tell in new] == [(start_ts, 1)]
            told = start_ts if due else 0
            assert (core.reported.start_ts if core.reported else 0) == told


# -- what ----------------------------------------------------------------------------------------


def test_subject_is_the_first_table_or_the_ddl_and_never_a_row() -> None:
    found = subject_of(rows(1, 45, 46, 45))
    assert found == Subject(table_id=45, tables=2)
    assert found.fields() == {"table_id": 45, "tables": 2}
    ddl = subject_of(binlog.prewrite_ddl(1, b"k", "create table t " + "x" * 500, 77))
    assert (ddl.ddl_job_id, len(ddl.ddl_query), ddl.ddl_query[:14]) == (77, 200, "create table t")
    assert ddl.fields() == {"ddl_job_id": 77, "ddl_query": ddl.ddl_query}
    for payload in (b"\xff", binlog.prewrite(1, b"k", b"\xff\xff"), binlog.prewrite(1, b"k", b"")):
        assert subject_of(payload).fields() == {}


def test_every_answer_has_words_and_a_next_step() -> None:
    for answer in TxnAnswer:
        heard = Heard(3, answer, "for 2 s more at least")
        assert latest_answer(heard).startswith(answer.value)
        assert next_step(99, heard)
    assert "start_ts 99" in next_step(99, Heard(1, TxnAnswer.ALIVE))
    assert latest_answer(Heard()) == "not asked yet"


# -- where ---------------------------------------------------------------------------------------


def told_lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.fields for record in caplog.records if "holds the watermark" in record.message]  # type: ignore[attr-defined]


async def stuck_for(one: Scene, watch: StallMonitor, seconds: int) -> None:
    for _ in range(seconds):
        one.clock.advance(1.0)
        await one.round()
        await watch.observe()


async def test_log_status_and_metrics_name_the_transaction(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path) as one:
        watch = StallMonitor(one.storage, one.resolver, one.clock)
        watch.bind_gauges()
        start_ts = tso.compose(1_700_000_000_000, 5)
        one.upstream.answers[start_ts] = [Undecided(3.0)]
        await put(one.storage, rows(start_ts, 45, 46))
        for later in range(1, 15):
            await put(one.storage, rows(start_ts + later, 50))
        await stuck_for(one, watch, 9)
        assert told_lines(caplog) == []
        assert "table_id" not in to_builtins(watch.oldest())[0]
        await stuck_for(one, watch, 1)
        (line,) = told_lines(caplog)
        assert line["start_ts"] == start_ts
        assert line["age_s"] == 10
        assert (line["table_id"], line["tables"], line["open"]) == (45, 2, 15)
        assert line["upstream"] == "it may still commit: asked again in 3 s"
        assert f"start_ts {start_ts}" in line["next"]
        shown = to_builtins(watch.oldest())
        assert len(shown) == 10
        assert shown[0]["start_ts"] == start_ts
        assert shown[0]["started_s"] == 1_700_000_000.0
        assert (shown[0]["age_s"], shown[0]["table_id"]) == (10.0, 45)
        assert "table_id" not in shown[1]  # nobody reads prewrites that are not told
        text = metrics.exposition().decode()
        assert "binlog_pump_stuck_table_id 45.0" in text
        assert "binlog_pump_sorter_oldest_open_seconds 10.0" in text
        assert 'binlog_pump_stage_lag_seconds{stage="sorted"} 10.0' in text
        assert SECRET.decode() not in caplog.text + str(shown)
        # Settled: said once, and the next one is named.
        with caplog.at_level("INFO"):
            one.upstream.answers[start_ts] = [Committed(start_ts + 100)]
            await stuck_for(one, watch, 5)
        assert to_builtins(watch.oldest())[0]["start_ts"] == start_ts + 1
        assert told_lines(caplog)[-1]["table_id"] == 50
        (end,) = (record for record in caplog.records if "is settled" in record.message)
        assert end.fields["start_ts"] == start_ts  # type: ignore[attr-defined]
        assert end.fields["held_s"] >= 11  # type: ignore[attr-defined]


async def test_a_ddl_and_a_store_that_is_away_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path) as one:
        watch = StallMonitor(one.storage, one.resolver, one.clock)
        one.upstream.gone = True
        await put(one.storage, binlog.prewrite_ddl(10, b"k", "drop table important", 77))
        await stuck_for(one, watch, 12)
        (line,) = told_lines(caplog)
        assert (line["ddl_job_id"], line["ddl_query"]) == (77, "drop table important")
        assert line["upstream"] == "the upstream does not answer: the store is gone"
        assert watch.stuck_table_id == 0


async def test_a_prewrite_that_cannot_be_read_is_told_without_its_table(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path) as one:
        watch = StallMonitor(one.storage, one.resolver, one.clock)
        await one.prewrite(10)
        with (tmp_path / "value" / "000000.vlog").open("r+b") as log:
            log.seek(20)
            log.write(b"\xff")
        await stuck_for(one, watch, 12)
        (line,) = told_lines(caplog)
        assert "table_id" not in line
        assert line["upstream"].startswith("its record cannot be read")
        assert "offset 0" in line["upstream"]
        assert line["next"].startswith("restore the file")


async def test_nothing_is_told_of_a_pump_that_moves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with scene(tmp_path) as one:
        watch = StallMonitor(one.storage, one.resolver, one.clock)
        for start_ts in range(100, 400, 10):
            await one.prewrite(start_ts)
            one.clock.advance(1.0)
            await put(one.storage, binlog.commit(start_ts, start_ts + 5))
            await watch.observe()
        await one.settled()
        assert told_lines(caplog) == []
        assert to_builtins(watch.oldest()) == []
        assert watch.oldest_open_s == 0
        stages = to_builtins(watch.stages())
        assert stages["indexed"] == {"lag_bytes": 0, "lag_s": 0.0}
        assert stages["sorted"] == {"lag_bytes": 0, "lag_s": 0.0, "open_prewrites": 0}
        assert stages["written"] == {"records": 60}
        assert stages["published"] == {"watermark": 395}


def test_the_upstream_says_what_can_be_done_about_its_own_transactions() -> None:
    """A lease, a prepared transaction and a lock of TiDB end in different ways."""
    told = Heard(1, TxnAnswer.ALIVE, hint="ask for {start_ts} there")
    assert next_step(10, told) == "ask for 10 there"
    assert "start_ts 10" in next_step(10, Heard(1, TxnAnswer.ALIVE))

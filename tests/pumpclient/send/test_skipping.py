"""Ignore-error: the switch alone against a plain model, and through a client."""

from __future__ import annotations

import asyncio
import itertools
import logging

import pytest

from pumpclient import (
    BinlogTooLarge,
    ClientState,
    Failure,
    Options,
    RecoveryTimeout,
    WriteFailed,
)
from pumpclient.send.skipping import Skipping
from pumpclient.testing import MemoryCluster, settle
from tests.pumpclient.support.memory_cluster import while_time_passes
from tidb_binlog import binlog
from tidb_binlog.errors import ConfigError

IGNORING = Options(ignore_error=True, write_timeout_s=1.0)
STEPS = ("lost 1", "lost 2", "skip 3", "finish 1", "finish 3", "finish 9", "recover", "reset")


def test_every_sequence_of_five_steps_against_a_plain_model() -> None:
    for steps in itertools.product(STEPS, repeat=5):
        skipping = Skipping(IGNORING)
        on = False
        open_: set[int] = set()
        lost: list[int] = []
        for step in steps:
            name, _, number = step.partition(" ")
            start_ts = int(number or 0)
            if name == "lost" or (name == "skip" and on):
                if not on:
                    lost = []
                on = True
                lost.append(start_ts)
                open_.add(start_ts)
                if name == "lost":
                    assert skipping.lost(start_ts, "cause", 0.0, 7.0)
                else:
                    skipping.skip(start_ts, 0.0)
            elif name == "finish":
                expected = on or start_ts in open_
                assert (not skipping.is_quiet and skipping.finished(start_ts)) == expected
                open_.discard(start_ts)
            elif name == "recover":
                assert skipping.recover() == on
                on = False
            elif name == "reset":
                skipping.reset()
                open_ = set()
            status = skipping.status(0.0)
            assert (status.skipping, status.skipped_committers) == (on, len(open_))
            assert skipping.is_quiet == (not on and not open_)
            if lost:
                assert status.gap is not None
                assert (status.gap.first_lost_ts, status.gap.last_lost_ts) == (min(lost), max(lost))
                assert (status.gap.prewrites, status.gap.began_s) == (len(lost), 7.0)


def test_without_the_option_nothing_is_ever_skipped() -> None:
    skipping = Skipping(Options())
    assert not skipping.lost(1, "cause", 0.0, 0.0)
    assert not skipping.on
    assert skipping.is_quiet


def test_transactions_that_never_end_are_forgotten_in_time() -> None:
    skipping = Skipping(Options(ignore_error=True, affinity_age_max_s=60.0, affinity_entries_max=2))
    for start_ts in (1, 2, 3):
        skipping.lost(start_ts, "cause", 0.0, 0.0)
    assert skipping.status(59.0).skipped_committers == 2
    assert skipping.status(60.0).skipped_committers == 0


async def test_a_lost_prewrite_does_not_fail_its_transaction_and_all_later_ones_are_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = MemoryCluster(["a"])
    async with cluster.client(options=IGNORING) as client:
        states = [client.state]
        assert await client.write_prewrite(1, b"k", b"v")
        cluster.registry.set("a", state="paused")
        await settle()
        assert not await while_time_passes(cluster, client.write_prewrite(7, b"k", b"v"))
        states.append(client.state)
        assert states == [ClientState.ON, ClientState.SKIPPING]
        cluster.registry.set("a")
        await settle()
        attempts = cluster.pumps["a"].attempts
        assert not await client.write_binlog(binlog.prewrite(9, b"k", b"v"))
        assert not await client.write_commit(1, 2)  # its pump asks the upstream
        assert not await client.write_commit(7, 8)
        assert cluster.pumps["a"].attempts == attempts
        status = await client.recover("status")
        assert status.as_tidb() == {"Skipped": True, "SkippedCommitterCounter": 1}
        assert status.gap is not None
        assert (status.gap.first_lost_ts, status.gap.last_lost_ts, status.gap.prewrites) == (7, 9, 2)
        assert status.gap.cause == "write binlog failed, the last error no available pump to write binlog"
        counters = client.counters
        assert (counters.prewrites_stored, counters.prewrites_failed, counters.prewrites_skipped) == (1, 1, 2)
        assert (counters.finishes_skipped, counters.finishes_lost) == (2, 0)
    told = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert len(told) == 1
    assert "start_ts=7" in told[0].getMessage()
    assert cluster.pumps["a"].transactions() == [(binlog.PREWRITE, 1, 0)]


async def test_it_is_said_again_every_minute(caplog: pytest.LogCaptureFixture) -> None:
    cluster = MemoryCluster(["a"])
    cluster.pumps["a"].failures.append(Failure.TOO_LARGE)
    async with cluster.client(options=IGNORING) as client:
        for start_ts in range(1, 200):
            assert not await client.write_prewrite(start_ts, b"k", b"v")
            cluster.time.advance(1.0)
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]
    assert len(told) == 4
    assert "181 transactions" in told[-1]


async def test_without_the_option_the_same_failures_raise() -> None:
    cluster = MemoryCluster(["a"])
    cluster.pumps["a"].failures.append(Failure.TOO_LARGE)
    async with cluster.client() as client:
        with pytest.raises(BinlogTooLarge):
            await client.write_prewrite(1, b"k", b"v")
        cluster.registry.set("a", state="paused")
        await settle()
        with pytest.raises(WriteFailed):
            await while_time_passes(cluster, client.write_prewrite(2, b"k", b"v"))
        assert client.state is ClientState.ON
        assert (await client.recover("status")).gap is None


async def test_recover_waits_for_the_transactions_without_a_prewrite() -> None:
    cluster = MemoryCluster(["a"])
    cluster.pumps["a"].failures.append(Failure.TOO_LARGE)
    async with cluster.client(options=IGNORING) as client:
        for start_ts in (1, 3):
            await client.write_prewrite(start_ts, b"k", b"v")
        recovering = asyncio.ensure_future(client.recover())
        await settle()
        assert client.state is ClientState.ON
        assert await client.write_prewrite(5, b"k", b"v")
        assert await client.write_commit(5, 6)
        assert not await client.write_commit(1, 2)
        await cluster.time.run(5.0)
        assert not recovering.done()
        assert not await client.write_rollback(3)
        await cluster.time.run(0.5)
        status = await recovering
        assert status.as_tidb() == {"Skipped": False, "SkippedCommitterCounter": 0}
        assert status.gap is not None
        assert (status.gap.first_lost_ts, status.gap.last_lost_ts, status.gap.finishes) == (1, 3, 2)
    assert [entry[1] for entry in cluster.pumps["a"].transactions()] == [5, 5]


async def test_recover_gives_up_in_time_nowait_does_not_wait_and_reset_forgets() -> None:
    cluster = MemoryCluster(["a"])
    cluster.pumps["a"].failures.append(Failure.TOO_LARGE)
    async with cluster.client(options=IGNORING) as client:
        await client.write_prewrite(1, b"k", b"v")
        assert (await client.recover("nowait")).as_tidb() == {"Skipped": False, "SkippedCommitterCounter": 1}
        recovering = asyncio.ensure_future(client.recover("wait", 10.0))
        await cluster.time.run(9.9)
        assert not recovering.done()
        await cluster.time.run(0.2)
        with pytest.raises(RecoveryTimeout, match="1 transactions without a prewrite"):
            await recovering
        assert (await client.recover("reset")).skipped_committers == 0
        assert not await client.write_commit(1, 2)  # there is no prewrite to end
        with pytest.raises(ConfigError, match="recover now is not known"):
            await client.recover("now")  # type: ignore[arg-type]
    assert client.state is ClientState.OFF
    assert cluster.pumps["a"].payloads == []


async def test_a_prewrite_under_way_that_is_stored_is_not_counted_as_lost() -> None:
    cluster = MemoryCluster(["a", "b"])
    cluster.pumps["b"].hanging = True
    async with cluster.client(options=Options(ignore_error=True)) as client:
        await client.write_prewrite(1, b"k", b"v")
        slow = asyncio.ensure_future(client.write_prewrite(2, b"k", b"v"))  # at b
        await settle()
        cluster.pumps["a"].failures.append(Failure.TOO_LARGE)
        assert not await client.write_prewrite(3, b"k", b"v")
        cluster.pumps["b"].hanging = False
        await cluster.time.run(15.0)
        assert await slow
        gap = (await client.recover("nowait")).gap
        assert gap is not None
        assert (gap.first_lost_ts, gap.prewrites) == (3, 1)
        assert await client.write_commit(2, 9)

"""PumpClient on pumps, registry and time in memory."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from pumpclient import (
    BinlogTooLarge,
    ClientClosed,
    Failure,
    InvalidBinlog,
    NoPumpRegistered,
    Options,
    PumpClient,
    WriteFailed,
)
from pumpclient.pumps.health import PumpState
from pumpclient.testing import MemoryCluster, settle
from tests.pumpclient.support.memory_cluster import while_time_passes
from tidb_binlog import binlog
from tidb_binlog.cluster import node
from tidb_binlog.errors import ConfigError, Unavailable

P, C, R = binlog.PREWRITE, binlog.COMMIT, binlog.ROLLBACK


def states(client: PumpClient) -> dict[str, PumpState | None]:
    client._roster.check()
    return {pump.pump_id: pump.state for pump in client.pumps()}


async def test_prewrite_and_its_commit_go_to_one_pump_byte_for_byte() -> None:
    cluster = MemoryCluster(["a", "b"])
    async with cluster.client() as client:
        await client.write_prewrite(10, b"k", b"v")
        await client.write_prewrite(11, b"k", b"v")
        assert await client.write_commit(11, 21, b"k")
        assert await client.write_rollback(10, b"k")
    assert cluster.pumps["a"].payloads == [binlog.prewrite(10, b"k", b"v"), binlog.rollback(10, b"k")]
    assert cluster.pumps["b"].payloads == [binlog.prewrite(11, b"k", b"v"), binlog.commit(11, 21, b"k")]
    counters = client.counters
    assert (counters.prewrites_stored, counters.finishes_delivered, counters.finishes_lost) == (2, 2, 0)


async def test_ddl_prewrite_and_raw_payloads() -> None:
    cluster = MemoryCluster(["a"])
    raw = binlog.prewrite(12, b"raw", b"value") + b"\x98\x3f\x01"  # an unknown field stays
    async with cluster.client() as client:
        await client.write_ddl_prewrite(10, b"k", "create table t (a int)", 77)
        assert await client.write_binlog(raw)
        assert await client.write_binlog(binlog.commit(12, 13, b"raw"))
        for payload in (b"", b"\xff\xff", binlog.prewrite(0, b"", b"")):
            with pytest.raises(InvalidBinlog):
                await client.write_binlog(payload)
        with pytest.raises(InvalidBinlog):
            await client.write_commit(10, 10)
        with pytest.raises(InvalidBinlog):
            await client.write_prewrite(0, b"", b"")
    assert cluster.pumps["a"].payloads == [
        binlog.prewrite_ddl(10, b"k", "create table t (a int)", 77),
        raw,
        binlog.commit(12, 13, b"raw"),
    ]


@pytest.mark.parametrize("strategy", ["range", "hash", "score"])
@pytest.mark.parametrize("failure", [Failure.UNREACHABLE, Failure.FAILED, Failure.REFUSED])
async def test_a_failed_prewrite_goes_to_the_next_pump_without_waiting(
    strategy: str, failure: Failure
) -> None:
    cluster = MemoryCluster(["a", "b", "c"])
    cluster.pumps["a"].broken = failure
    async with cluster.client(strategy) as client:
        for start_ts in range(1, 7):
            await client.write_prewrite(start_ts, b"k", b"v")  # nobody moves the clock
            assert await client.write_commit(start_ts, start_ts + 100)
    assert cluster.pumps["a"].payloads == []
    for pump_id in "bc":
        stored = cluster.pumps[pump_id].transactions()
        starts = [start_ts for tp, start_ts, _ in stored if tp == P]
        assert stored == [
            entry for start_ts in starts for entry in ((P, start_ts, 0), (C, start_ts, start_ts + 100))
        ]
    assert client.counters.finishes_delivered == 6


async def test_every_pump_fails_twice_then_one_recovers() -> None:
    cluster = MemoryCluster(["a", "b"])
    for pump in cluster.pumps.values():
        pump.failures.extend([Failure.FAILED] * 2)
    async with cluster.client() as client:
        started_s = cluster.time.now_s
        await while_time_passes(cluster, client.write_prewrite(1, b"k", b"v"))
        assert cluster.time.now_s - started_s == pytest.approx(0.3, abs=0.06)
    assert sum(pump.attempts for pump in cluster.pumps.values()) == 5


async def test_prewrite_fails_at_its_deadline_with_the_last_error_and_no_affinity() -> None:
    cluster = MemoryCluster(["a", "b"])
    for pump in cluster.pumps.values():
        pump.broken = Failure.FAILED
    async with cluster.client(options=Options(errors_max=1000)) as client:
        started_s = cluster.time.now_s
        with pytest.raises(WriteFailed, match=r"write binlog failed, the last error pump at [ab]: failed"):
            await while_time_passes(cluster, client.write_prewrite(1, b"k", b"v"))
        assert 15.0 < cluster.time.now_s - started_s < 15.5
        assert not await client.write_rollback(1)
        assert client.counters.prewrites_failed == client.counters.finishes_lost == 1


async def test_every_pump_gets_its_turn_although_one_call_eats_the_deadline() -> None:
    cluster = MemoryCluster(["a", "b", "c"])
    cluster.pumps["a"].hanging = cluster.pumps["b"].hanging = True
    async with cluster.client() as client:
        await while_time_passes(cluster, client.write_prewrite(1, b"k", b"v"))
        assert cluster.pumps["c"].transactions() == [(P, 1, 0)]


async def test_a_message_too_large_fails_at_once_and_blames_no_pump() -> None:
    cluster = MemoryCluster(["a", "b"])
    cluster.pumps["a"].failures.append(Failure.TOO_LARGE)
    async with cluster.client() as client:
        with pytest.raises(BinlogTooLarge):
            await client.write_prewrite(1, b"k", b"v")
        assert cluster.pumps["b"].attempts == 0
        assert states(client) == {"a": PumpState.USABLE, "b": PumpState.USABLE}
        assert await client.write_binlog(binlog.prewrite(2, b"k", b"v"))


async def test_a_commit_is_retried_on_its_pump_even_if_too_large_or_refused() -> None:
    cluster = MemoryCluster(["a", "b"])
    async with cluster.client() as client:
        await client.write_prewrite(1, b"k", b"v")
        cluster.pumps["a"].failures.extend([Failure.UNREACHABLE, Failure.TOO_LARGE, Failure.REFUSED])
        assert await while_time_passes(cluster, client.write_commit(1, 2))
    assert cluster.pumps["a"].transactions() == [(P, 1, 0), (C, 1, 2)]
    assert cluster.pumps["b"].attempts == 0


async def test_a_commit_gives_up_after_ten_minutes_and_returns_false() -> None:
    cluster = MemoryCluster(["a", "b"])
    async with cluster.client() as client:
        await client.write_prewrite(1, b"k", b"v")
        cluster.pumps["a"].broken = Failure.UNREACHABLE
        started_s = cluster.time.now_s
        assert not await while_time_passes(cluster, client.write_commit(1, 2))
        assert 600.0 < cluster.time.now_s - started_s < 602.0
        assert cluster.pumps["b"].attempts == 0
        assert client.counters.finishes_lost == 1
        assert not await client.write_commit(1, 2)  # the mapping is used up


async def test_commits_without_a_prewrite_are_dropped_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = MemoryCluster(["a"])
    async with cluster.client() as client:
        assert not await client.write_commit(1, 2)
        assert not await client.write_rollback(3)
    assert cluster.pumps["a"].attempts == 0
    assert "binlog don't have matched prewrite binlog" in caplog.text


async def test_the_commit_follows_its_prewrite_to_a_pump_that_left() -> None:
    """Pausing, then deleted from the registry: still known until the end is sent, then forgotten."""
    cluster = MemoryCluster(["a", "b"])
    async with cluster.client() as client:
        await client.write_prewrite(1, b"k", b"v")
        await client.write_prewrite(3, b"k", b"v")
        await client.write_prewrite(5, b"k", b"v")
        cluster.registry.set("a", state=node.PAUSING)
        await settle()
        assert await client.write_commit(1, 2)
        cluster.registry.remove("a")
        await settle()
        assert states(client) == {"a": None, "b": PumpState.USABLE}
        for start_ts in (10, 11):
            await client.write_prewrite(start_ts, b"k", b"v")
        client.set_strategy("hash")
        assert await client.write_commit(5, 6)
        assert states(client) == {"b": PumpState.USABLE}
    assert cluster.pumps["a"].transactions() == [(P, 1, 0), (P, 5, 0), (C, 1, 2), (C, 5, 6)]
    assert [entry[1] for entry in cluster.pumps["b"].transactions()] == [3, 10, 11]


async def test_a_removed_pump_is_let_go_when_its_last_prewrite_is_too_old() -> None:
    cluster = MemoryCluster(["a", "b"])
    async with cluster.client(options=Options(affinity_age_max_s=60.0)) as client:
        await client.write_prewrite(1, b"k", b"v")
        cluster.registry.remove("a")
        await settle()
        assert "a" in states(client)
        await cluster.time.run(61.0)
        await client.write_prewrite(2, b"k", b"v")
        cluster.registry.set("b")
        await settle()
        assert states(client) == {"b": PumpState.USABLE}
        assert not await client.write_commit(1, 2)


async def test_the_affinity_map_is_bounded() -> None:
    cluster = MemoryCluster(["a"])
    async with cluster.client(options=Options(affinity_entries_max=3)) as client:
        for start_ts in range(1, 6):
            await client.write_prewrite(start_ts, b"k", b"v")
        assert [await client.write_commit(start_ts, 100) for start_ts in range(1, 6)] == [
            False,
            False,
            True,
            True,
            True,
        ]


async def test_a_failing_pump_goes_out_and_a_probe_brings_it_back() -> None:
    cluster = MemoryCluster(["a", "b"])
    cluster.pumps["a"].broken = Failure.FAILED
    async with cluster.client() as client:
        for start_ts in range(1, 30):
            await client.write_prewrite(start_ts, b"k", b"v")
        assert states(client) == {"a": PumpState.OUT, "b": PumpState.USABLE}
        assert cluster.pumps["a"].attempts == 11
        await cluster.time.run(29.9)
        assert client.counters.probes_sent == 0
        await cluster.time.run(0.2)
        assert client.counters.probes_sent == 1
        assert states(client)["a"] is PumpState.OUT
        cluster.pumps["a"].broken = None
        await cluster.time.run(29.0)
        assert cluster.pumps["a"].probes == 0
        await cluster.time.run(1.0)
        assert cluster.pumps["a"].probes == 1
        assert states(client) == {"a": PumpState.USABLE, "b": PumpState.USABLE}
        await client.write_prewrite(50, b"k", b"v")
        await client.write_prewrite(51, b"k", b"v")
    assert [entry[1] for entry in cluster.pumps["a"].transactions()] in ([50], [51])
    assert cluster.pumps["a"].payloads  # and the probe was not stored


async def test_the_last_chance_finds_a_pump_that_is_out_and_readmits_it() -> None:
    cluster = MemoryCluster(["a"])
    cluster.pumps["a"].failures.extend([Failure.UNREACHABLE] * 3)
    async with cluster.client(options=Options(errors_max=2)) as client:
        await while_time_passes(cluster, client.write_prewrite(1, b"k", b"v"))
        assert cluster.pumps["a"].transactions() == [(P, 1, 0)]
        assert states(client) == {"a": PumpState.USABLE}
        assert await client.write_commit(1, 2)


async def test_the_last_chance_leaves_pumps_alone_that_are_not_online() -> None:
    cluster = MemoryCluster(["a", "b"])
    cluster.registry.set("a", state=node.PAUSED)
    cluster.registry.set("b", state=node.CLOSING)
    async with cluster.client() as client:
        began_s = cluster.time.now_s
        with pytest.raises(WriteFailed, match="no available pump to write binlog"):
            await while_time_passes(cluster, client.write_prewrite(1, b"k", b"v"))
        waited_s = cluster.time.now_s - began_s
        assert Options().write_timeout_s - 2 * Options().retry_pause_s <= waited_s
        assert waited_s <= Options().write_timeout_s
        with pytest.raises(WriteFailed):
            await client.write_prewrite(1, b"k", b"v")  # they have been away for long: at once
        cluster.registry.set("b")
        await settle()
        await client.write_prewrite(2, b"k", b"v")
    assert cluster.pumps["a"].attempts == 0


async def test_a_pump_that_is_online_in_time_gets_the_first_write() -> None:
    """It starts just now, or its lease ran out on a busy machine."""
    cluster = MemoryCluster(["a"])
    cluster.registry.set("a", state=node.OFFLINE)
    async with cluster.client() as client:
        writing = asyncio.create_task(client.write_prewrite(1, b"k", b"v"))
        await cluster.time.run(Options().write_timeout_s / 2)
        assert not writing.done()
        cluster.registry.set("a")
        await while_time_passes(cluster, writing)
        assert cluster.pumps["a"].transactions() == [(P, 1, 0)]


async def test_no_pump_registered_at_all() -> None:
    with pytest.raises(NoPumpRegistered, match="no pump found in pd"):
        await MemoryCluster([]).client().start()


async def test_a_registry_that_does_not_answer() -> None:
    cluster = MemoryCluster(["a"])

    class Silent(type(cluster.registry)):  # type: ignore[misc]
        async def view(self) -> None:
            await asyncio.Event().wait()

    client = PumpClient(Silent(), cluster.transport, cluster_id=1, options=Options(registry_timeout_s=0.001))
    with pytest.raises(Unavailable, match="registry did not answer"):
        await client.start()


async def test_pumps_come_leave_and_move_while_writing() -> None:
    cluster = MemoryCluster(["a"])
    async with cluster.client() as client:
        cluster.add_pump("b")
        await settle()
        cluster.registry.set("a", state=node.PAUSING)
        await settle()
        await client.write_prewrite(1, b"k", b"v")
        await client.write_prewrite(2, b"k", b"v")
        assert [entry[1] for entry in cluster.pumps["b"].transactions()] == [1, 2]
        cluster.pumps["b2"] = cluster.pumps.pop("b")  # restarted at another address under its id
        cluster.registry.set("b", host="b2")
        await settle()
        assert await client.write_commit(1, 9)
        assert client.counters.attempts_failed == 0
        assert not cluster.transport.connected("b")  # nothing goes on at the old address


async def test_a_commit_that_waits_follows_its_pump_to_a_new_address() -> None:
    cluster = MemoryCluster(["a"])
    async with cluster.client() as client:
        await client.write_prewrite(1, b"k", b"v")
        pump = cluster.pumps.pop("a")
        commit = asyncio.ensure_future(client.write_commit(1, 2))
        await cluster.time.run(5.0)
        assert not commit.done()
        cluster.pumps["elsewhere"] = pump
        cluster.registry.set("a", host="elsewhere")
        assert await while_time_passes(cluster, commit)


async def test_a_broken_watch_lists_again_and_misses_nothing() -> None:
    cluster = MemoryCluster(["a"])
    async with cluster.client() as client:
        cluster.registry.break_watch(Unavailable("compacted"))
        await settle()
        cluster.add_pump("b")
        await settle()
        assert set(states(client)) == {"a"}  # harmless: what was known stays in use
        await client.write_prewrite(1, b"k", b"v")
        await cluster.time.run(1.0)
        assert set(states(client)) == {"a", "b"}


async def test_a_dead_pump_is_left_out_as_soon_as_its_lease_runs_out() -> None:
    cluster = MemoryCluster(["a", "b"])
    cluster.registry.set("a", alive=True)
    async with cluster.client() as client:
        cluster.registry.set("a", alive=False)
        await settle()
        assert states(client) == {"a": PumpState.OUT, "b": PumpState.USABLE}
        for start_ts in (1, 2):
            await client.write_prewrite(start_ts, b"k", b"v")
        assert cluster.pumps["a"].attempts == 0
        cluster.registry.set("a", alive=True)
        await settle()
        assert states(client)["a"] is PumpState.USABLE


async def test_a_cancelled_prewrite_leaves_nothing_behind() -> None:
    cluster = MemoryCluster(["a", "b"])
    cluster.pumps["a"].hanging = cluster.pumps["b"].hanging = True
    async with cluster.client() as client:
        write = asyncio.ensure_future(client.write_prewrite(1, b"k", b"v"))
        await settle()
        assert sum(pump.in_flight for pump in client.pumps()) == 1
        write.cancel()
        with pytest.raises(asyncio.CancelledError):
            await write
        assert sum(pump.in_flight for pump in client.pumps()) == 0
        assert all(load.in_flight == 0 for load in client._roster.selector._loads.values())
        assert states(client) == {"a": PumpState.USABLE, "b": PumpState.USABLE}
        assert client.counters.prewrites_failed == 1
        assert not await client.write_commit(1, 2)


async def test_a_cancelled_commit_is_counted_and_lets_its_pump_go() -> None:
    cluster = MemoryCluster(["a", "b"])
    async with cluster.client() as client:
        await client.write_prewrite(1, b"k", b"v")
        cluster.registry.remove("a")
        cluster.pumps["a"].hanging = True
        commit = asyncio.ensure_future(client.write_commit(1, 2))
        await settle()
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        assert states(client) == {"b": PumpState.USABLE}
        assert client.counters.finishes_lost == 1


async def test_close_ends_what_is_under_way() -> None:
    cluster = MemoryCluster(["a", "b"])
    client = cluster.client()
    with pytest.raises(ClientClosed):
        await client.write_prewrite(1, b"k", b"v")
    async with client:
        await client.write_prewrite(1, b"k", b"v")
        await client.write_prewrite(2, b"k", b"v")
        cluster.pumps["a"].broken = cluster.pumps["b"].broken = Failure.FAILED
        commit = asyncio.ensure_future(client.write_commit(1, 5))
        write = asyncio.ensure_future(client.write_prewrite(3, b"k", b"v"))
        await settle()
        await client.close()
        assert await commit is False
        with pytest.raises(ClientClosed):
            await write
    with pytest.raises(ClientClosed):
        await client.write_prewrite(4, b"k", b"v")
    assert not await client.write_commit(2, 7)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("pumpclient")]


async def test_another_cluster_id_is_refused_by_the_pump() -> None:
    cluster = MemoryCluster(["a"])
    cluster.pumps["a"].cluster_id = 2
    async with cluster.client() as client:
        with pytest.raises(WriteFailed, match="cluster ID are mismatch, 1 vs 2"):
            await while_time_passes(cluster, client.write_prewrite(1, b"k", b"v"))


async def test_four_hundred_writers_at_once() -> None:
    cluster = MemoryCluster(["a", "b", "c"])
    cluster.pumps["b"].failures.extend([Failure.UNREACHABLE] * 5)
    async with cluster.client() as client:

        async def one(start_ts: int) -> bool:
            await client.write_prewrite(start_ts, b"k", b"v")
            return await client.write_commit(start_ts, start_ts + 1)

        results = await while_time_passes(cluster, asyncio.gather(*(one(2 * n) for n in range(1, 401))))
        assert all(results)
        client._roster.check()
    for pump in cluster.pumps.values():
        stored = pump.transactions()
        assert {entry[1] for entry in stored if entry[0] == P} == {
            entry[1] for entry in stored if entry[0] == C
        }
    assert sum(len(pump.payloads) for pump in cluster.pumps.values()) == 800


# -- labels and scores ------------------------------------------------------------------------------


def zones(*, a_score: int = 0, b_score: int = 0) -> MemoryCluster:
    """Pumps a and b in zone one, c in zone two."""
    cluster = MemoryCluster(["a", "b", "c"])
    for pump_id, zone, score in (("a", "one", a_score), ("b", "one", b_score), ("c", "two", 0)):
        cluster.registry.set(pump_id, labels={"zone": zone, "host": pump_id}, score=score)
    return cluster


def prewrites_at(cluster: MemoryCluster) -> dict[str, int]:
    counts = {
        pump_id: sum(tp == P for tp, _, _ in pump.transactions()) for pump_id, pump in cluster.pumps.items()
    }
    for pump in cluster.pumps.values():
        pump.payloads.clear()
    return counts


@pytest.mark.parametrize("strategy", ["range", "hash", "score"])
async def test_pumps_of_the_own_zone_first_others_while_none_of_them_takes_it_and_back(
    strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pumpclient")
    cluster = zones()
    numbers = itertools.count(1)

    async def write(count: int) -> dict[str, int]:
        for _ in range(count):
            await while_time_passes(cluster, client.write_prewrite(next(numbers), b"k", b"v"))
        return prewrites_at(cluster)

    async with cluster.client(strategy, Options(errors_max=1), label={"zone": "one"}) as client:
        assert {pump.pump_id: pump.labels["zone"] for pump in client.pumps()} == {
            "a": "one",
            "b": "one",
            "c": "two",
        }
        at = await write(6)
        assert (at["a"] + at["b"], at["c"]) == (6, 0)
        assert at["a"]
        assert at["b"]
        cluster.pumps["a"].broken = Failure.FAILED
        at = await write(6)
        assert (at["b"], at["c"]) == (6, 0)
        cluster.pumps["b"].broken = Failure.FAILED
        at = await write(6)
        assert at == {"a": 0, "b": 0, "c": 6}
        assert states(client) == {"a": PumpState.OUT, "b": PumpState.OUT, "c": PumpState.USABLE}
        cluster.pumps["b"].broken = None
        await cluster.time.run(31.0)  # the probe finds it again
        assert await write(6) == {"a": 0, "b": 6, "c": 0}
    lost, back = [record for record in caplog.records if "zone=one" in record.getMessage()]
    assert lost.getMessage() == "no pump with label zone=one takes prewrites: they go to other pumps"
    assert back.getMessage() == "pumps with label zone=one take prewrites again"


async def test_a_label_that_no_pump_has_and_all_of_a_label_of_two() -> None:
    cluster = zones()
    async with cluster.client(label={"zone": "three"}) as client:
        for start_ts in range(1, 4):
            await client.write_prewrite(start_ts, b"k", b"v")
    assert prewrites_at(cluster) == {"a": 1, "b": 1, "c": 1}
    async with cluster.client(label={"zone": "one", "host": "b"}) as client:
        for start_ts in range(11, 14):
            await client.write_prewrite(start_ts, b"k", b"v")
    assert prewrites_at(cluster) == {"a": 0, "b": 3, "c": 0}


@pytest.mark.parametrize("strategy", ["range", "hash", "score"])
async def test_a_pump_that_says_it_takes_nothing_is_asked_last_until_it_says_otherwise(strategy: str) -> None:
    cluster = zones(a_score=-1, b_score=-1)
    async with cluster.client(strategy, label={"zone": "one"}) as client:
        await client.write_prewrite(1, b"k", b"v")
        assert prewrites_at(cluster) == {"a": 0, "b": 0, "c": 1}
        cluster.pumps["c"].broken = Failure.REFUSED
        await client.write_prewrite(2, b"k", b"v")
        at = prewrites_at(cluster)
        assert at["a"] + at["b"] == 1, "better than not at all"
        cluster.registry.set("b", labels={"zone": "one"}, score=50)
        await settle()
        attempts = cluster.pumps["c"].attempts
        for start_ts in range(3, 6):
            await client.write_prewrite(start_ts, b"k", b"v")
        assert prewrites_at(cluster) == {"a": 0, "b": 3, "c": 0}
        assert cluster.pumps["c"].attempts == attempts


@pytest.mark.parametrize("label", [{"": "a"}, {"zone": ""}, {"zone": 1}])
def test_a_label_is_names_with_values(label: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="is not a name with its value"):
        zones().client(label=label)

"""The services as functions from bytes to bytes, on a real storage, with a scripted upstream."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from pump.index.index import key_of
from pump.index.store import IndexDamaged
from pump.pull.puller import OUT_OF_RANGE
from pump.watermark.idle import write_fake_binlogs
from pump.write.admission import Disk
from tests.pump.support.payloads import alter, header, opened, put, put_pair, wait_watermark
from tests.pump.support.scripted import ScriptedOracle
from tests.pump.support.services import CLUSTER, Puller, pump
from tests.waiting import PATIENCE_S, until
from tidb_binlog import binlog, rpc, tso
from tidb_binlog.cluster import node
from tidb_binlog.errors import Corruption, Unavailable
from tidb_binlog.upstream_port import Committed, Outcome, RolledBack, Undecided
from tidb_binlog.wire import pump_pb2

PREWRITE = binlog.prewrite(10, b"key", b"value")
COMMIT = binlog.commit(10, 11, b"key")


# -- WriteBinlog ---------------------------------------------------------------------------------


async def test_write_is_stored_in_canonical_form(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        bare = pump_pb2.WriteBinlogReq(clusterID=CLUSTER)
        bare.payload = b"\x10\x0a"  # only start_ts = 10
        assert await one.server.write_binlog(bare.SerializeToString()) == b""
        assert await one.write(COMMIT) == b""
        await wait_watermark(one.storage, 11)
        assert await one.storage.find(10) == bytes.fromhex("0800100a180038004000")


@pytest.mark.parametrize(
    ("payload", "state", "text"),
    [
        (PREWRITE, node.PAUSED, "no online: paused"),
        (b"", node.CLOSING, "no online: closing"),
        (b"\xff\xff", node.ONLINE, "is not a Binlog"),
        (PREWRITE[:-3], node.ONLINE, "is not a Binlog"),
    ],
)
async def test_refusals_are_unknown_with_their_text(
    payload: bytes, state: str, text: str, tmp_path: Path
) -> None:
    async with pump(tmp_path) as one:
        one.state = state
        with pytest.raises(rpc.RpcStatus, match=text) as caught:
            await one.write(payload)
        assert caught.value.code == rpc.UNKNOWN
        assert one.storage.stored_total == 0


async def test_other_cluster_is_refused_for_writes_and_pulls(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        with pytest.raises(rpc.RpcStatus, match="cluster ID are mismatch, 5 vs 77"):
            await one.write(PREWRITE, cluster=5)
        pull = pump_pb2.PullBinlogReq(clusterID=5).SerializeToString()
        with pytest.raises(rpc.RpcStatus, match="cluster ID are mismatch, 5 vs 77"):
            await anext(one.pullers.pull_binlogs(pull))
        puller = Puller(one)
        puller.requests.get_nowait()
        puller.ask(cluster=5)
        with pytest.raises(rpc.RpcStatus, match="cluster ID are mismatch, 5 vs 77"):
            await puller.next()


async def test_undecodable_requests_are_invalid_arguments(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        for call in (one.server.write_binlog(b"\xff"), anext(one.pullers.pull_binlogs(b"\xff"))):
            with pytest.raises(rpc.RpcStatus, match="cannot be decoded"):
                await call


async def test_probe_stores_nothing_and_full_disk_takes_ends_only(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        await one.write(b"")
        await one.write(PREWRITE)
        assert one.storage.stored_total == 1
        one.guard.disk = Disk(5, 10)
        for payload in (b"", binlog.prewrite(20, b"k", b"v")):
            with pytest.raises(rpc.RpcStatus, match="no available space, available: 5, StopWriteAtAv"):
                await one.write(payload)
        await one.write(COMMIT)
        await one.write(binlog.fake(30))
        await wait_watermark(one.storage, 30)


async def test_what_carries_a_timestamp_from_the_future_is_refused_and_moves_nothing(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        limit_ts = await one.time.draw() + tso.compose(5_000)
        one.oracle.pinned = one.oracle.last
        await one.write(PREWRITE)
        far = limit_ts + tso.compose(1_000)
        for payload in (
            binlog.prewrite(far, b"k", b"v"),
            binlog.commit(10, far, b"k"),
            binlog.rollback(far, b"k"),
            binlog.fake(far),
            binlog.fake(1 << 62),
        ):
            with pytest.raises(
                rpc.RpcStatus, match="the upstream cannot have given a timestamp above"
            ) as caught:
                await one.write(payload)
            assert caught.value.code == rpc.UNKNOWN
        await one.write(COMMIT)
        await wait_watermark(one.storage, 11)
        assert one.storage.watermark == 11
        one.oracle.pinned, one.oracle.last = 0, far  # a host that slept, a replay of other years: it is asked
        one.clock.advance(1)
        await one.write(binlog.fake(far))


async def test_a_position_from_the_future_is_refused(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        await one.time.draw()
        with pytest.raises(rpc.RpcStatus, match="lies in the future"):
            await Puller(one, after=1 << 62).next()
        request = pump_pb2.PullBinlogReq(clusterID=CLUSTER)
        request.startFrom.offset = 1 << 62
        with pytest.raises(rpc.RpcStatus, match="lies in the future"):
            await anext(one.pullers.pull_binlogs(request.SerializeToString()))


async def test_ends_are_taken_in_every_state(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        await one.write(PREWRITE)
        one.state = node.CLOSING
        await one.write(COMMIT)
        await wait_watermark(one.storage, 11)


# -- PullBatches ---------------------------------------------------------------------------------


async def test_batches_carry_payloads_and_their_watermark(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        first = await put_pair(one.storage, 10, 11)
        second = await put_pair(one.storage, 20, 21)
        await wait_watermark(one.storage, 21)
        puller = Puller(one)
        assert await puller.next() == ([first, second], 21)
        third = await put_pair(one.storage, 30, 31)
        assert await puller.next() == ([third], 31)
        await puller.close()
        late = Puller(one, after=21)
        assert await late.next() == ([third], 31)
        await late.close()


async def test_awaited_watermark_is_drawn_at_once_and_only_once(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        puller = Puller(one, wait=500_000)
        assert await puller.next() == ([], 1_001_000)
        assert one.oracle.draws == 1
        puller.ask(wait=1_000_500)  # told already: more than that is known
        assert await puller.next() == ([], 1_001_000)
        assert one.oracle.draws == 1
        puller.ask(wait=1_001_001)
        assert await puller.next() == ([], 1_002_000)
        assert one.oracle.draws == 2
        await puller.close()


async def test_an_oracle_that_gives_nonsense_ends_no_task(tmp_path: Path) -> None:
    """Somebody else wrote into the clock's key: what it was before comes back, or an operator sees why."""
    async with pump(tmp_path) as one:
        drawn = one.oracle.timestamp

        async def nonsense() -> int:
            raise Corruption("etcd key tso does not hold a number: b'x'")

        one.oracle.timestamp = nonsense  # type: ignore[method-assign]
        marks = asyncio.create_task(write_fake_binlogs(one.storage, one.oracle, lambda: True, 0.001))
        puller = Puller(one, wait=500)
        assert await puller.is_quiet_until(lambda: "does not hold a number" in one.idle.trouble)
        assert not marks.done()
        one.oracle.timestamp = drawn  # type: ignore[method-assign]
        assert (await puller.later())[1] > 500
        marks.cancel()
        await asyncio.wait({marks})


async def test_nothing_is_drawn_while_nobody_waits(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        puller = Puller(one)
        assert await puller.is_quiet()
        assert one.oracle.draws == 0


async def test_open_prewrite_blocks_the_awaited_watermark_without_more_draws(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        await one.write(PREWRITE)
        puller = Puller(one, wait=500)
        assert await puller.is_quiet_until(lambda: one.oracle.draws)
        await one.write(COMMIT)
        payloads, watermark = await puller.later()
        assert (payloads, watermark) == ([binlog.join(PREWRITE, COMMIT)], 1_001_000)
        assert one.oracle.draws == 1


async def test_held_oracle_is_asked_again_at_a_pace(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        one.oracle.pinned = 400
        puller = Puller(one, wait=500)
        began_s = asyncio.get_running_loop().time()
        assert await puller.is_quiet_until(lambda: one.oracle.draws >= 4)
        assert asyncio.get_running_loop().time() - began_s > 0.1
        one.oracle.pinned = 600
        assert await puller.later() == ([], 600)


async def test_silent_oracle_is_waited_for(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        one.oracle.silent = True
        puller = Puller(one, wait=500)
        assert await puller.is_quiet(0.1)
        one.oracle.silent = False
        assert (await puller.later())[1] >= 500


async def test_credit_stops_payloads_and_adding_it_goes_on(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        sent = [await put_pair(one.storage, ts, ts + 1, bytes(1000)) for ts in range(10, 60, 10)]
        await wait_watermark(one.storage, 51)
        puller = Puller(one, credit=2 * len(sent[0]))
        assert await puller.next() == (sent[:2], 21)
        assert await puller.is_quiet()
        puller.ask(credit=1)
        assert await puller.later() == (sent[2:3], 31)
        puller.ask(credit=1 << 20)
        assert await puller.next() == (sent[3:], 51)


async def test_no_commit_follows_a_watermark_that_covers_it(tmp_path: Path) -> None:
    # A busy pump: sessions draw, prewrite, draw again, commit; a puller awaits fresh timestamps all the time.
    async with pump(tmp_path) as one:
        puller, told, seen = Puller(one, wait=1), 0, []
        stop = False

        async def session() -> None:
            while not stop:
                start_ts = await one.oracle.timestamp()
                await one.write(binlog.prewrite(start_ts, b"k", b"v"))
                await asyncio.sleep(0)
                await one.write(binlog.commit(start_ts, await one.oracle.timestamp()))

        sessions = [asyncio.create_task(session()) for _ in range(5)]
        async with asyncio.timeout(PATIENCE_S):
            while len(seen) < 500:
                payloads, watermark = await puller.next()
                commits = [binlog.parse(payload).commit_ts for payload in payloads]
                assert commits == sorted(commits)
                assert not commits or told < commits[0] <= commits[-1] <= watermark
                assert watermark >= told
                seen += commits
                told = watermark
                puller.ask(credit=1 << 16, wait=one.oracle.last)
        stop = True
        await asyncio.gather(*sessions)


async def test_no_commit_follows_a_watermark_that_was_drawn_for_what_other_pumps_got(tmp_path: Path) -> None:
    # Busy pumps with one oracle. Each puller is told the newest commit that any of them has sent, as a merge
    # does.
    oracle, names, told = ScriptedOracle(), "abc", dict.fromkeys("abc", 0)
    seen: dict[str, list[int]] = {name: [] for name in names}
    async with AsyncExitStack() as stack:
        pumps = {
            name: await stack.enter_async_context(pump(tmp_path / name, oracle=oracle)) for name in names
        }
        pullers = {name: Puller(one) for name, one in pumps.items()}
        stop = False

        async def session(number: int) -> None:
            while not stop:
                one = pumps[names[number % 3]]
                start_ts = await oracle.timestamp()
                await one.write(binlog.prewrite(start_ts, b"k", b"v"))
                for _ in range(number):
                    await asyncio.sleep(0)
                await one.write(binlog.commit(start_ts, await oracle.timestamp()))

        async def pull(name: str) -> None:
            puller = pullers[name]
            while not stop:
                payloads, watermark = await puller.next()
                commits = [binlog.parse(payload).commit_ts for payload in payloads]
                assert not commits or told[name] < commits[0] <= commits[-1] <= watermark
                told[name] = watermark
                seen[name] += commits
                puller.ask(credit=1 << 16)
                for other in pullers.values():
                    if commits:
                        other.ask(given=commits[-1])

        for one in pumps.values():
            await one.time.draw()
        draws = oracle.draws
        writers = [asyncio.create_task(session(number)) for number in range(7)]
        readers = [asyncio.create_task(pull(name)) for name in names]
        await until(lambda: min(map(len, seen.values())) >= 150, beside=readers)
        stop = True
        await asyncio.gather(*writers)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        for puller in pullers.values():
            await puller.close()
        stored = sum(one.storage.stored_total for one in pumps.values())
        assert oracle.draws - draws > stored, "for each prewrite and commit, and the pumps"


async def test_a_commit_of_another_pump_wakes_the_drawing_and_is_no_watermark(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        one.oracle.pinned = await one.time.draw()
        now_ts = one.oracle.pinned
        puller = Puller(one, wait=1)
        await puller.next()
        one.oracle.silent = True
        puller.ask(given=now_ts + 70)
        assert await puller.is_quiet()
        assert one.storage.watermark == now_ts
        one.oracle.silent, one.oracle.pinned = False, now_ts + 90
        assert await puller.later() == ([], now_ts + 90)
        draws = one.oracle.draws
        puller.ask(given=now_ts + 80)
        assert await puller.is_quiet()
        assert one.oracle.draws == draws, "it lies below what was drawn"


async def test_a_commit_from_the_future_raises_nothing_and_the_oracle_is_asked(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        await one.time.draw()
        future_ts = one.oracle.last + tso.compose(2_000)
        puller = Puller(one)
        puller.ask(wait=future_ts, given=future_ts)
        assert await puller.is_quiet_until(lambda: one.oracle.draws > 1)
        assert one.storage.watermark < future_ts


async def test_commit_without_prewrite_ends_the_stream_with_data_loss(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        await one.write(COMMIT)
        await wait_watermark(one.storage, 11)
        with pytest.raises(Corruption, match="commit 11 has no prewrite 10") as caught:
            await Puller(one).next()
        assert rpc.status_of(caught.value)[0] == rpc.DATA_LOSS


async def test_a_damaged_index_ends_the_stream_for_a_puller_that_comes_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        await put_pair(storage, 10, 11)
        await wait_watermark(storage, 11)  # an acknowledgement does not wait for the index
        alter(storage.index, {key_of(10): None})

    async def life() -> None:
        async with pump(tmp_path) as one:
            with pytest.raises(Unavailable, match="does not know the prewrite 10 of commit 11") as caught:
                await Puller(one).next()
            assert rpc.status_of(caught.value)[0] == rpc.UNAVAILABLE

    with pytest.raises(IndexDamaged):  # and the pump with it
        await life()
    async with pump(tmp_path) as one:
        (payload,), watermark = await Puller(one).next()
        assert (header(payload).commit_ts, watermark) == (11, 11)


async def test_purged_position_is_out_of_range(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        await put_pair(storage, 10, 11)
        storage.index.set_gc_ts(50)
    async with pump(tmp_path) as one:
        for stream in (
            one.pullers.pull_binlogs(pump_pb2.PullBinlogReq(clusterID=CLUSTER).SerializeToString()),
            Puller(one).replies,
        ):
            with pytest.raises(rpc.RpcStatus, match="position 0 is below the gc timestamp 50") as caught:
                await anext(stream)
            assert caught.value.code == OUT_OF_RANGE


async def test_streams_end_when_the_pump_stops(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        puller = Puller(one)
        old = one.pullers.pull_binlogs(pump_pb2.PullBinlogReq(clusterID=CLUSTER).SerializeToString())
        ended = [asyncio.ensure_future(anext(stream, None)) for stream in (puller.replies, old)]
        await until(lambda: (one.pullers.new_streams, one.pullers.old_streams) == (1, 1))
        one.pullers.end()
        assert await asyncio.gather(*ended) == [None, None]
        assert (one.pullers.new_streams, one.pullers.old_streams) == (0, 0)


# -- PullBinlogs ---------------------------------------------------------------------------------


async def test_old_protocol_gives_one_entity_a_message_with_time_marks(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        joined = await put_pair(one.storage, 10, 11)
        await put(one.storage, binlog.fake(20))
        request = pump_pb2.PullBinlogReq(clusterID=CLUSTER)
        request.startFrom.offset = 5
        stream = one.pullers.pull_binlogs(request.SerializeToString())
        first = await anext(stream)
        # pos is there and empty, checksum is not
        reply = pump_pb2.PullBinlogResp.FromString(first)
        assert reply.entity.HasField("pos")
        assert reply.entity.payload == joined
        assert (reply.entity.meta.startTs, reply.entity.meta.commitTs) == (10, 11)
        second = pump_pb2.PullBinlogResp.FromString(await anext(stream))
        assert second.entity.payload == binlog.fake(20)
        later = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        joined = await put_pair(one.storage, 30, 31)
        assert pump_pb2.PullBinlogResp.FromString(await later).entity.payload == joined


async def test_time_marks_are_stored_for_old_drainers_while_nothing_is_written(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        needed, asked = True, 0

        def is_needed() -> bool:
            nonlocal asked
            asked += 1
            return needed

        marks = asyncio.create_task(write_fake_binlogs(one.storage, one.oracle, is_needed, 0.005))
        await wait_watermark(one.storage, 1_001_000)
        payload = await one.storage.find(1_001_000)
        assert payload == binlog.fake(1_001_000)
        needed, before = False, asked
        await until(lambda: asked > before + 1)
        stored = one.storage.stored_total
        await until(lambda: asked > before + 5)
        assert one.storage.stored_total == stored
        marks.cancel()


# -- resolver ------------------------------------------------------------------------------------


async def test_committed_orphan_is_delivered_and_its_end_stored(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        one.transactions.answers[10] = [Undecided(0.01), Committed(15)]
        await one.write(PREWRITE)
        puller = Puller(one, wait=15)
        payloads, watermark = await puller.next()
        assert payloads == [binlog.join(PREWRITE, binlog.commit(10, 15))]
        assert watermark >= 15
        assert one.transactions.asked[0] == [(10, b"key")]
        assert len(one.transactions.asked) == 2
    async with opened(tmp_path) as storage:
        assert storage.open_count == 0


async def test_rolled_back_orphan_is_settled_for_good(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        one.transactions.answers[10] = [RolledBack()]
        await one.write(PREWRITE)
        await one.write(binlog.prewrite(20, b"k", b"v"))
        await one.write(binlog.commit(20, 21))
        payloads, _ = await Puller(one).next()
        assert [binlog.parse(payload).commit_ts for payload in payloads] == [21]
    async with opened(tmp_path) as storage:
        assert storage.open_count == 0


async def test_upstream_that_does_not_answer_only_delays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pump(tmp_path) as one:
        one.transactions.answers[10] = [Unavailable("gone"), Unavailable("gone"), Committed(15)]
        await one.write(PREWRITE)
        with caplog.at_level("INFO"):
            payloads, _ = await Puller(one, wait=15).next()
        assert len(payloads) == 1
        assert caplog.text.count("upstream does not answer about open prewrites") == 1
        assert "upstream answers about open prewrites again" in caplog.text


async def test_undecided_prewrite_is_held_whatever_its_age(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        await one.write(PREWRITE)
        assert await Puller(one, wait=15).is_quiet_until(lambda: len(one.transactions.asked) > 2)
        assert one.storage.open_count == 1
        assert one.storage.watermark == 0


async def test_commit_that_arrives_while_the_upstream_is_asked_is_served_once(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        asked, answered = asyncio.Event(), asyncio.Event()
        ask = one.transactions.outcomes

        async def slow(*arguments: Any) -> list[Outcome]:
            asked.set()
            await answered.wait()
            return await ask(*arguments)

        one.transactions.outcomes = slow  # type: ignore[method-assign]
        one.transactions.answers[10] = [Committed(11)]
        await one.write(PREWRITE)
        await asked.wait()
        await one.write(COMMIT)
        await wait_watermark(one.storage, 11)
        answered.set()
        puller = Puller(one)
        assert await puller.next() == ([binlog.join(PREWRITE, COMMIT)], 11)
        assert await puller.is_quiet(0.15)
        assert one.storage.stored_total == 2

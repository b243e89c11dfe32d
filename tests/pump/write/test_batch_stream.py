"""Streams of `WriteBinlogs`: the same verdicts and the same log as of single writes, answered in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pump.write import admission, write_request
from pump.write.admission import Disk
from tests.fakes import grpcio_server
from tests.pump.support.writing import CLUSTER, Pump, Reason, Writing, pump, told
from tests.waiting import until
from tidb_binlog import binlog, rpc, tso
from tidb_binlog.cluster import node
from tidb_binlog.door.server.listener import serve
from tidb_binlog.errors import Unavailable
from tidb_binlog.wire import pump_pb2

PATH = "binlog.PumpBatch/WriteBinlogs"


def pair(number: int, value: bytes = b"value") -> list[bytes]:
    """A prewrite and its commit."""
    return [
        binlog.prewrite(2 * number, b"key", value),
        binlog.commit(2 * number, 2 * number + 1, b"key"),
    ]


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# -- answers -------------------------------------------------------------------------------------


async def test_everything_is_stored_in_order_and_answered_before_the_end(tmp_path: Path) -> None:
    payloads = [payload for number in range(1, 301) for payload in pair(number)]
    async with pump(tmp_path) as one:
        writing = Writing(one.batches)
        for at in range(0, len(payloads), 50):
            writing.send(*payloads[at : at + 50])
        writing.half_close()
        assert await writing.to(600) == []
        await writing.ended()
        assert one.storage.stored_total == 600
        log = one.log
        places = [log.index(payload) for payload in payloads]
        assert places == sorted(places)
        assert one.batches.streams == 0


async def test_failures_are_named_with_the_texts_of_single_writes(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        one.state = node.PAUSED
        writing = Writing(one.batches)
        writing.send(b"\xff\xff", *pair(1), b"", binlog.rollback(4))
        assert await writing.to(5) == [
            (1, Reason.PAYLOAD, await one.write(b"\xff\xff")),
            (2, Reason.STATE, "no online: paused"),
            (4, Reason.STATE, "no online: paused"),
        ]
        one.state, one.guard.disk = node.ONLINE, Disk(100, 1600)
        writing.send(*pair(2), binlog.fake(9))
        text = "no available space, available: 100, StopWriteAtAvailableSpace: 1600"
        assert await writing.to(8) == [(number, Reason.DISK, text) for number in (6, 7, 8)]
        one.guard.disk = Disk(101, 1600)  # ends are taken from the reserve, down to a sixteenth
        writing.send(*pair(2), b"")
        assert [failure[:2] for failure in await writing.to(11)] == [(9, Reason.DISK), (11, Reason.DISK)]
        one.guard.disk = Disk(1601, 1600)
        writing.send(b"", *pair(3))
        assert await writing.to(14) == []
        assert one.storage.stored_total == 5


async def test_what_no_pump_can_deliver_is_refused_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "PAYLOAD_BYTES_MAX", 1000)
    large = binlog.prewrite(2, b"key", bytes(1000))
    text = f"grpc: received message larger than max ({len(large)} vs. 1000)"
    async with pump(tmp_path) as one:
        writing = Writing(one.batches)
        writing.send(large, *pair(2))
        assert await writing.to(3) == [(1, Reason.SIZE, text)]
        request = pump_pb2.WriteBinlogReq(clusterID=CLUSTER, payload=large).SerializeToString()
        with pytest.raises(rpc.RpcStatus) as caught:
            await one.server.write_binlog(request)
        # The one status that clients of all ages never try again. A full disk must not use it.
        assert (caught.value.code, str(caught.value)) == (rpc.RESOURCE_EXHAUSTED, text)
        one.guard.disk = Disk(0, 10)
        with pytest.raises(rpc.RpcStatus) as caught:
            await one.server.write_binlog(
                pump_pb2.WriteBinlogReq(clusterID=CLUSTER, payload=pair(5)[0]).SerializeToString()
            )
        assert caught.value.code == rpc.UNKNOWN


async def test_timestamps_from_the_future_are_refused_one_by_one(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        far = await one.time.draw() + tso.compose(2 * 86_400_000)
        writing = Writing(one.batches)
        ahead = [binlog.prewrite(far, b"k", b"v"), binlog.commit(10, far, b"k"), binlog.fake(far)]
        writing.send(*pair(10), *ahead)
        writing.send(*ahead, b"\xff\xff", *pair(20))
        failures = await writing.to(11)
        assert [number for number, _, _ in failures] == [3, 4, 5, 6, 7, 8, 9]
        for _, reason, text in failures[:6]:
            assert reason == pump_pb2.WriteFailure.PAYLOAD
            assert "the upstream cannot have given a timestamp above" in text
        assert one.storage.stored_total == 4


async def test_messages_are_answered_while_later_ones_wait_for_the_disk(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        syncs = one.held()
        writing = Writing(one.batches)
        first = asyncio.ensure_future(anext(writing.answers))
        writing.send(*pair(1))
        await until(lambda: one.directory.happened[-1] == "append 000000.vlog")
        writing.send(*pair(2))
        writing.send(b"\xff")  # fails at once, is answered in its turn
        writing.send(*pair(3))
        await until(lambda: writing.read == 4)  # all taken apart, though nothing is durable yet
        await turns()
        assert not first.done()
        syncs.let()
        assert told(await first) == (2, [])
        assert await writing.is_quiet()
        assert one.storage.write_queue_bytes > 0
        syncs.let()  # the rest shares one
        answered, failures = await writing.later()
        assert (answered, [number for number, _, _ in failures]) == (7, [5])


async def test_an_empty_message_and_an_empty_stream_have_no_answer(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        writing = Writing(one.batches)
        writing.send()
        assert await writing.is_quiet()
        writing.send(*pair(1))
        assert await writing.later() == (2, [])
        writing.half_close()
        await writing.ended()
        empty = Writing(one.batches)
        empty.half_close()
        await empty.ended()


# -- ends ----------------------------------------------------------------------------------------


async def test_another_cluster_ends_the_stream_at_once(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        for payloads in ([], pair(1)):
            writing = Writing(one.batches)
            writing.send(*payloads, cluster=5)
            with pytest.raises(rpc.RpcStatus, match="cluster ID are mismatch, 5 vs 77") as caught:
                await writing.ended()
            assert caught.value.code == rpc.UNKNOWN
        later = Writing(one.batches)
        later.send(*pair(1))
        later._first = True
        later.send(*pair(2), cluster=6)
        assert await later.to(2) == []
        with pytest.raises(rpc.RpcStatus, match="6 vs 77"):
            await later.ended()
        assert one.storage.stored_total == 2


@pytest.mark.parametrize("octets", [b"\xff", b"\xff" * write_request.WALK_BYTES_MIN])
async def test_a_message_that_cannot_be_read_ends_the_stream_after_what_was_before(
    octets: bytes, tmp_path: Path
) -> None:
    async with pump(tmp_path) as one:
        writing = Writing(one.batches)
        writing.send(*pair(1))
        writing.send_octets(octets)
        writing.send(*pair(2))
        assert await writing.to(2) == []
        with pytest.raises(rpc.RpcStatus, match="cannot be decoded") as caught:
            await writing.ended()
        assert caught.value.code == rpc.INVALID_ARGUMENT
        assert one.storage.stored_total == 2


@pytest.mark.parametrize("payload", [b"", bytes(100)])
async def test_too_many_payloads_in_a_message_end_the_stream(payload: bytes, tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        writing = Writing(one.batches)
        writing.send(*[payload] * (write_request.PAYLOADS_MAX + 1))
        with pytest.raises(rpc.RpcStatus, match="more than 16384 payloads"):
            await writing.ended()


async def test_stop_answers_what_was_read_then_says_unavailable(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        syncs = one.held()
        writing, idle = Writing(one.batches), Writing(one.batches)
        ends = [asyncio.ensure_future(anext(stream.answers, None)) for stream in (writing, idle)]
        writing.send(*pair(1))
        await until(lambda: one.storage.write_queue_bytes > 0)
        one.server.end_streams()  # of another room with the same storage: nothing happens here
        one.batches.end()
        with pytest.raises(Unavailable, match="the pump is stopping"):
            await ends[1]
        await turns()
        assert not ends[0].done()
        syncs.let()
        answer = await ends[0]
        assert answer is not None
        assert told(answer) == (2, [])
        with pytest.raises(Unavailable, match="the pump is stopping"):
            await writing.ended()
        late = Writing(one.batches)
        late.send(*pair(2))
        with pytest.raises(Unavailable):
            await late.ended()
        assert one.storage.stored_total == 2


async def test_stop_takes_a_message_apart_to_its_end(tmp_path: Path) -> None:
    payloads = [pair(number)[0] + b"\x48\x01" for number in range(1, 3001)]
    payloads.append(b"\xff")  # so that they are looked at one by one, in parts
    async with pump(tmp_path) as one:
        writing = Writing(one.batches)
        writing.send(*payloads)
        first = asyncio.ensure_future(anext(writing.answers))
        await until(lambda: one.storage.write_queue_bytes > 0 or first.done())
        one.batches.end()
        answered, failures = told(await first)
        while answered < 3001:
            answered, more = await writing.next()
            failures += more
        assert [number for number, _, _ in failures] == [3001]
        with pytest.raises(Unavailable):
            await writing.ended()
        assert one.storage.stored_total == 3000


async def test_a_client_that_goes_away_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        syncs = one.held()
        writing = Writing(one.batches)
        writing.send(*pair(1))
        syncs.let()
        assert await writing.next() == (2, [])
        writing.send(*pair(2))
        assert await writing.is_quiet()
        await until(lambda: one.storage.write_queue_bytes > 0)
        writing.pending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing.pending
        await writing.answers.aclose()  # type: ignore[attr-defined]
        assert one.batches.streams == 0
        assert len(asyncio.all_tasks()) <= 3  # this test, the indexer, the test's deadline
        syncs.let()
        await until(lambda: one.storage.stored_total == 4)
        assert one.storage.write_queue_bytes == 0
        syncs.let(2)
        assert await one.write(pair(3)[0]) == ""


# -- failures of the disk ------------------------------------------------------------------------


async def test_a_failed_sync_fails_what_is_not_durable_and_everything_later(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        syncs = one.held()
        writing = Writing(one.batches)
        writing.send(*pair(1))
        syncs.let()
        assert await writing.next() == (2, [])
        syncs.error = OSError(5, "Input/output error")
        writing.send(*pair(2))
        writing.send(*pair(3), b"\xff")
        syncs.let(5)
        failures = await writing.to(7)
        assert [number for number, _, _ in failures] == [3, 4, 5, 6, 7]
        assert [reason for _, reason, _ in failures] == [Reason.WRITER] * 4 + [Reason.PAYLOAD]
        assert "unable to write to log file: memory/000000.vlog: [Errno 5]" in failures[0][2]
        writing.send(b"", *pair(4))  # a probe is told too
        last = await writing.to(10)
        assert last == [(number, Reason.WRITER, await one.write(pair(4)[1])) for number in (8, 9, 10)]
        assert one.storage.stored_total == 2


async def test_of_a_message_in_several_groups_the_durable_ones_are_acknowledged(tmp_path: Path) -> None:
    payloads = [payload for number in range(1, 6) for payload in pair(number)]
    async with pump(tmp_path, group_records_max=4) as one:
        syncs = one.held()
        writing = Writing(one.batches)
        writing.send(*payloads[:3], b"\xff", *payloads[3:])
        assert await writing.is_quiet()
        syncs.let()
        await until(lambda: one.storage.stored_total == 4)
        syncs.error = OSError(28, "No space left on device")
        syncs.let(5)
        answered, failures = await writing.later()
        assert answered == 11
        assert [number for number, _, _ in failures] == [4, 6, 7, 8, 9, 10, 11]
        assert one.storage.stored_total == 4


async def test_writes_are_cut_into_groups_within_bounds(tmp_path: Path) -> None:
    async with pump(tmp_path, group_records_max=4, group_bytes_max=500) as one:
        appended: list[int] = []
        file = one.directory.files["000000.vlog"]
        append = file.append

        def counted(parts: Any) -> None:
            appended.append(sum(len(part) for part in parts))
            append(parts)

        file.append = counted  # type: ignore[method-assign]
        small = [binlog.rollback(number) for number in range(1, 11)]
        large = binlog.prewrite(50, b"key", bytes(2000))
        writing = Writing(one.batches)
        writing.send(*small, large, *small)
        assert await writing.to(21) == []
        assert sum(appended) == len(one.log)
        assert [size for size in appended if size > 500 + 16 * 4] == [len(large) + 16]
        assert len(appended) == 7


# -- backpressure --------------------------------------------------------------------------------


async def test_what_is_in_flight_is_bounded_in_bytes(tmp_path: Path) -> None:
    value = bytes(10_000)
    async with pump(tmp_path, in_flight=50_000) as one:
        syncs = one.held()
        writing = Writing(one.batches)
        for number in range(1, 41):
            writing.send(*pair(number, value))
        assert await writing.is_quiet()
        await until(lambda: writing.read == 5)
        await turns(200)
        assert writing.read == 5
        assert one.storage.write_queue_bytes < 60_000
        syncs.let(100)
        answered, _ = await writing.later()
        while answered < 80:
            answered, failures = await writing.next()
            assert failures == []


async def test_a_client_that_reads_no_answers_is_read_no_further(tmp_path: Path) -> None:
    async with pump(tmp_path, in_flight=50_000) as one:
        writing = Writing(one.batches)
        for number in range(1, 41):
            writing.send(*pair(number, bytes(10_000)))
        await writing.next()  # and no more
        await until(lambda: one.storage.write_queue_bytes == 0)
        await turns(200)
        assert writing.read <= 11
        await writing.answers.aclose()  # type: ignore[attr-defined]


async def test_a_full_queue_of_the_writer_makes_streams_wait(tmp_path: Path) -> None:
    async with pump(tmp_path, write_queue_bytes_max=20_000) as one:
        syncs = one.held()
        streams = [Writing(one.batches) for _ in range(3)]
        quiet = [asyncio.ensure_future(anext(stream.answers)) for stream in streams]
        for number in range(1, 31):
            streams[number % 3].send(*pair(number, bytes(5000)))
        await until(lambda: one.storage.write_queue_bytes >= 20_000)
        await turns(200)
        assert one.storage.write_queue_bytes < 20_000 + 3 * 6000
        read = [stream.read for stream in streams]
        assert sum(read) < 15
        syncs.let(100)
        for stream, first in zip(streams, quiet, strict=True):
            answered, _ = told(await first)
            while answered < 20:
                answered, _ = await stream.next()
        assert one.storage.stored_total == 60
        log = one.log
        for stream in range(3):
            places = [
                log.index(payload)
                for number in range(1, 31)
                if number % 3 == stream
                for payload in pair(number, bytes(5000))
            ]
            assert places == sorted(places)


async def test_the_log_has_the_order_of_the_stream_when_the_queue_filled_up_meanwhile(tmp_path: Path) -> None:
    async with pump(tmp_path, write_queue_bytes_max=20_000) as one:
        syncs = one.held()
        writing = Writing(one.batches)
        assert await writing.is_quiet()  # it found room and waits for a message
        others = [asyncio.create_task(one.write(pair(number, bytes(5000))[0])) for number in range(100, 110)]
        await until(lambda: one.storage.write_queue_bytes >= 20_000)
        payloads = [payload for number in range(1, 31) for payload in pair(number)]
        for payload in payloads:
            writing.send(payload)
        await turns(200)
        syncs.let(100)
        answered, _ = await writing.later()
        while answered < 60:
            answered, _ = await writing.next()
        places = [one.log.index(payload) for payload in payloads]
        assert places == sorted(places)
        assert await asyncio.gather(*others) == [""] * 10


# -- the same as single writes -------------------------------------------------------------------

_timestamps = st.integers(0, 5) | st.integers(1 << 50, (1 << 50) + 5) | st.just(2**63 - 1)
_usual = st.builds(
    lambda tp, start, commit, value: {
        0: binlog.prewrite(start, b"key", value),
        1: binlog.commit(start, commit, b"key"),
        2: binlog.rollback(start),
        3: binlog.fake(commit),
        4: binlog.prewrite_ddl(start, b"", "create table", commit),
    }[tp],
    st.integers(0, 4),
    _timestamps,
    _timestamps,
    st.binary(max_size=5),
)
_field = st.builds(
    lambda number, value: bytes((number << 3, *varint(value))), st.integers(1, 9), _timestamps
) | st.builds(
    lambda number, value: bytes((number << 3 | 2, len(value))) + value,
    st.integers(4, 9),
    st.binary(max_size=5),
)
_unusual = st.lists(_field, max_size=6).map(b"".join)
_payload = _usual | _unusual | st.binary(max_size=12) | st.builds(lambda a, b: a + b, _usual, _unusual)


def varint(value: int) -> list[int]:
    octets = []
    while value >= 0x80:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    return [*octets, value]


def test_any_payloads_have_the_verdicts_and_the_bytes_of_single_writes(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        context = both(tmp_path)
        single, batch = runner.run(context.__aenter__())

        @settings(max_examples=150)
        @given(
            st.lists(st.lists(_payload, max_size=6), min_size=1, max_size=3),
            st.sampled_from(node.STATES),
            st.sampled_from([Disk(100, 10), Disk(10, 10), Disk(0, 10)]),
        )
        def same(messages: list[list[bytes]], state: str, disk: Disk) -> None:
            for one in (single, batch):
                one.state, one.guard.disk = state, disk
            before = len(single.log), len(batch.log)
            runner.run(compare(messages))
            assert single.log[before[0] :] == batch.log[before[1] :]

        async def compare(messages: list[list[bytes]]) -> None:
            payloads = [payload for message in messages for payload in message]
            texts = [await single.write(payload) for payload in payloads]
            writing = Writing(batch.batches)
            for message in messages:
                writing.send(*message)
            writing.half_close()
            named = {number: text for number, _, text in await writing.to(len(payloads))}
            await writing.ended()
            assert [named.get(number, "") for number in range(1, len(payloads) + 1)] == texts

        same()
        runner.run(context.__aexit__(None, None, None))


@asynccontextmanager
async def both(path: Path) -> AsyncIterator[tuple[Pump, Pump]]:
    async with pump(path / "single") as single, pump(path / "batch") as batch:
        yield single, batch


# -- on the wire ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["door", "grpcio"])
async def test_over_both_servers(kind: str, tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        services = one.server.services()
        server: Any
        if kind == "door":
            server = await serve(services, None, "127.0.0.1", 0)
        else:
            server = await grpcio_server.serve(services, "127.0.0.1", 0)
        client = rpc.Client(f"127.0.0.1:{server.port}")
        go_on = asyncio.Event()

        async def requests() -> AsyncIterator[bytes]:
            for number in range(1, 51):
                message = [*pair(number, bytes(20_000)), b"\xff"]
                yield pump_pb2.WriteBinlogsReq(cluster_id=CLUSTER, payloads=message).SerializeToString()
            await go_on.wait()
            yield pump_pb2.WriteBinlogsReq(payloads=pair(60)).SerializeToString()
            await asyncio.Event().wait()

        answered, failed = 0, []
        replies = client.bidi(PATH, requests())
        while answered < 152:
            answered, failures = told(await anext(replies))
            failed += [number for number, _, _ in failures]
            if answered == 150:
                go_on.set()
        assert (answered, failed) == (152, list(range(3, 151, 3)))
        one.server.end_streams()
        with pytest.raises(Unavailable, match="the pump is stopping"):
            await anext(replies)
        assert one.storage.stored_total == 102
        await client.close()
        await server.stop(1.0)


def test_the_protocol_file_tells_the_limit_of_a_message() -> None:
    text = (Path(__file__).parents[3] / "proto/tidb_binlog/wire/pump.proto").read_text()
    assert f"at most {write_request.PAYLOADS_MAX:,}" in text

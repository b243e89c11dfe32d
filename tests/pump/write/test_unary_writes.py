"""Single writes that are taken together: the same log and the same answers as of writes one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pump.index.sorter import Prewrites
from pump.log.writer import Ended, WriteFailed
from pump.storage.opening import StorageLimits
from pump.storage.storage import Storage
from pump.write.admission import Disk
from pump.write.disk_guard import DiskGuard
from pump.write.unary_writes import UnaryWrites
from tests.exposition import sample
from tests.pump.support.memory_log import MemoryDirectory
from tests.pump.support.payloads import opened
from tests.pump.support.scripted import ScriptedOracle
from tests.pump.support.writing import Calls, Syncs
from tests.waiting import PATIENCE_S, until
from tidb_binlog import binlog, rpc
from tidb_binlog.binlog import Head
from tidb_binlog.clock import ManualClock, SystemClock
from tidb_binlog.cluster import node
from tidb_binlog.door.server.listener import serve
from tidb_binlog.rpc.service import status_of
from tidb_binlog.upstream.upstream_time import UpstreamTime
from tidb_binlog.wire import pump_pb2

CLUSTER = 77
PATH = "/binlog.Pump/WriteBinlog"
FULL, EXHAUSTED, ROOMY = Disk(1 << 20, 1 << 20), Disk(1, 1 << 20), Disk(1 << 30, 1 << 20)


def asked(payload: bytes, cluster: int = CLUSTER) -> bytes:
    return pump_pb2.WriteBinlogReq(clusterID=cluster, payload=payload).SerializeToString()


@dataclass
class FakeStorage:
    """A storage that stores at once, or is broken."""

    failure: WriteFailed | None = None
    has_room: bool = True
    stored: list[tuple[bytes, Head]] = field(default_factory=list)

    @property
    def write_failure(self) -> WriteFailed | None:
        return self.failure

    def prewrites(self, more: int = 1) -> Prewrites:
        return Prewrites(len(self.stored) + more - 1)

    async def write(self, payload: bytes, head: Head) -> None:
        if self.failure is not None:
            raise self.failure
        self.stored.append((payload, tuple(head)))

    def submit(self, payloads: Sequence[bytes], heads: Sequence[Head], ended: Ended) -> bool:
        if self.failure is not None or not self.has_room:
            return False
        self.stored += zip(payloads, heads, strict=True)
        ended(None)
        return True


def writes_to(storage: Any, disk: Disk = ROOMY, state: str = node.ONLINE, limit_ts: int = 0) -> UnaryWrites:
    guard = DiskGuard(".", 0)
    guard.disk = disk
    oracle = ScriptedOracle()
    oracle.silent = True
    time = UpstreamTime(oracle, ManualClock())
    time.limit_ts = limit_ts or time.limit_ts
    return UnaryWrites(storage, guard, CLUSTER, lambda: state, SystemClock(), time)


def outcome(answer: bytes | BaseException) -> Any:
    return status_of(answer) if isinstance(answer, BaseException) else answer


async def one_by_one(writes: UnaryWrites, requests: Sequence[bytes]) -> list[Any]:
    answers = []
    for request in requests:
        try:
            answers.append(outcome(await writes.write_binlog(request)))
        except rpc.RpcStatus as error:
            answers.append(outcome(error))
    return answers


_TS = st.sampled_from((0, 1, 9, 1 << 40, 1 << 58, (1 << 63) - 1))
_PAYLOADS = st.one_of(
    st.builds(binlog.prewrite, st.sampled_from((1, 9, 1 << 58)), st.just(b"key"), st.binary(max_size=40)),
    st.builds(binlog.prewrite, _TS, st.binary(max_size=4), st.just(b"\x10\x00\x18\x00")),
    st.builds(binlog.commit, _TS, _TS, st.binary(max_size=4)),
    st.builds(binlog.rollback, _TS, st.binary(max_size=4)),
    st.builds(binlog.fake, _TS),
    st.builds(binlog.settled_rollback, _TS),
    st.builds(lambda ts, more: binlog.commit(ts, ts + 1) + more, st.just(9), st.binary(max_size=6)),
    st.builds(lambda ts, cut: binlog.prewrite(ts, b"key", b"v")[:-cut], st.just(9), st.integers(1, 9)),
    st.binary(max_size=12),
)
_USUAL = st.builds(
    binlog.prewrite, st.integers(1 << 56, 1 << 58), st.just(b"key"), st.binary(max_size=200)
) | st.builds(binlog.commit, st.integers(1 << 56, 1 << 58), st.integers(1 << 56, 1 << 58), st.just(b"key"))
_ODD_REQUESTS = (
    st.builds(asked, _PAYLOADS)
    | st.builds(asked, _USUAL, st.sampled_from((0, 76)))
    | st.builds(lambda payload, more: asked(payload) + more, _USUAL, st.binary(min_size=1, max_size=9))
    | st.binary(max_size=12)
)
_REQUESTS = st.lists(st.builds(asked, _USUAL), min_size=1, max_size=5) | st.lists(
    st.builds(asked, _USUAL) | _ODD_REQUESTS, min_size=1, max_size=5
)


def usually(requests: list[bytes]) -> Any:
    """An example of these requests to a pump that would take them."""
    return example(
        requests=requests, disk=ROOMY, state=node.ONLINE, limit_ts=0, is_broken=False, has_room=True
    )


PREWRITE = binlog.prewrite(9, b"key", b"value")


@usually([asked(PREWRITE, 76)])
@usually([asked(PREWRITE), asked(PREWRITE, 76), asked(PREWRITE)])
@usually([asked(PREWRITE)[:-3], PREWRITE[-3:]])
@usually([asked(PREWRITE) + asked(PREWRITE)[2:]])
@usually([asked(b"")])
@usually([asked(binlog.prewrite(0, b"", b"")), asked(PREWRITE)])
@given(
    requests=_REQUESTS,
    disk=st.sampled_from((ROOMY, ROOMY, FULL, EXHAUSTED)),
    state=st.sampled_from((node.ONLINE, node.ONLINE, node.PAUSED)),
    limit_ts=st.sampled_from((0, 1 << 57)),
    is_broken=st.sampled_from((False, False, True)),
    has_room=st.booleans(),
)
@settings(max_examples=300)
def test_what_is_taken_is_stored_and_answered_as_one_by_one(
    requests: list[bytes], disk: Disk, state: str, limit_ts: int, is_broken: bool, has_room: bool
) -> None:
    failure = WriteFailed("broken") if is_broken else None
    alone, together = FakeStorage(failure), FakeStorage(failure, has_room)
    answers = asyncio.run(one_by_one(writes_to(alone, disk, state, limit_ts), requests))
    calls = Calls(len(requests))
    if writes_to(together, disk, state, limit_ts).take(requests, calls):
        assert together.stored == alone.stored
        assert [calls.end] * len(requests) == answers == [b""] * len(requests)
    else:
        assert not together.stored
        assert calls.end is None


@given(requests=st.lists(st.builds(asked, _USUAL), min_size=1, max_size=20))
@settings(max_examples=30)
def test_usual_writes_are_taken(requests: list[bytes]) -> None:
    storage, calls = FakeStorage(), Calls(len(requests))
    assert writes_to(storage).take(requests, calls)
    assert [payload for payload, _ in storage.stored] == [
        pump_pb2.WriteBinlogReq.FromString(request).payload for request in requests
    ]


# -- on a real storage ---------------------------------------------------------------------------


@dataclass
class Pump:
    storage: Storage
    directory: MemoryDirectory
    writes: UnaryWrites

    def held(self) -> Syncs:
        return Syncs(self.directory.files["000000.vlog"])

    @property
    def service(self) -> rpc.Service:
        handlers, taken = {"WriteBinlog": self.writes.write_binlog}, {"WriteBinlog": self.writes.take}
        return rpc.Service("binlog.Pump", inline=handlers, taken=taken)


@asynccontextmanager
async def pump(path: Path, **limits: Any) -> AsyncIterator[Pump]:
    directory = MemoryDirectory()
    async with opened(path, directory=directory, limits=StorageLimits(**limits)) as storage:
        async with asyncio.timeout(PATIENCE_S):
            yield Pump(storage, directory, writes_to(storage))


def prewrites(count: int, first: int = 1, size: int = 100) -> list[bytes]:
    return [asked(binlog.prewrite(ts, b"key", bytes(size))) for ts in range(first, first + count)]


def counted(label: str) -> tuple[int, float]:
    """Calls that were observed, and those that the writer refused."""
    series = f'binlog_pump_rpc_duration_seconds_count{{label="{label}",method="WriteBinlog"}}'
    return int(sample(series)), sample('binlog_pump_admission_refused_total{reason="writer"}')


async def test_nothing_is_acknowledged_before_its_sync(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        syncs, (before, _) = one.held(), counted("succ")
        first, second = Calls(3), Calls(2, cancelled=1)
        assert one.writes.take(prewrites(3), first)
        await until(lambda: one.directory.happened[-1].startswith("append"))
        assert one.writes.take(prewrites(2, 10), second)
        assert first.end is second.end is None
        syncs.let()
        await until(lambda: first.end is not None)
        assert (first.end, second.end) == (b"", None)
        syncs.let()
        await until(lambda: second.end is not None)
        assert one.storage.stored_total == 5, "a cancelled write is stored, as one alone is"
        assert counted("succ")[0] == before + 4
        syncs.let(9)


async def test_a_failed_sync_fails_all_that_were_taken(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        one.directory.sync_error = OSError(5, "Input/output error")
        before, refused = counted("fail")
        calls = Calls(3, cancelled=1)
        assert one.writes.take(prewrites(3), calls)
        await until(lambda: calls.end is not None)
        assert isinstance(calls.end, rpc.RpcStatus)
        assert calls.end.code == rpc.UNKNOWN
        assert "unable to write to log file" in str(calls.end)
        assert counted("fail") == (before + 3, refused + 2)
        assert not one.writes.take(prewrites(3), Calls(3))
        with pytest.raises(rpc.RpcStatus, match="unable to write to log file"):
            await one.writes.write_binlog(prewrites(1)[0])


async def test_a_full_queue_makes_writes_wait_one_by_one(tmp_path: Path) -> None:
    async with pump(tmp_path, write_queue_bytes_max=2000) as one:
        syncs = one.held()
        calls = Calls(5)
        assert one.writes.take(prewrites(5), calls)
        assert not one.writes.take(prewrites(1, 10), Calls(1)), "2,000 bytes are taken"
        waiting = asyncio.ensure_future(one.writes.write_binlog(prewrites(1, 10)[0]))
        syncs.let(9)
        assert await waiting == b""
        assert calls.end == b""


async def test_a_group_that_is_larger_than_the_log_takes_goes_one_by_one(tmp_path: Path) -> None:
    async with pump(tmp_path, group_records_max=4, group_bytes_max=1000) as one:
        assert not one.writes.take(prewrites(5), Calls(5))
        assert not one.writes.take(prewrites(3, size=400), Calls(3))
        assert one.writes.take(prewrites(4), Calls(4))


async def test_clients_of_a_door_are_acknowledged_refused_and_cancelled(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        syncs = one.held()
        server = await serve([one.service], None, "127.0.0.1", 0)
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{server.port}")
        try:
            write = channel.unary_unary(PATH)
            stored = [asyncio.ensure_future(write(request)) for request in prewrites(20)]
            gone = write(prewrites(1, 50)[0])
            late = write(prewrites(1, 60)[0], timeout=0.05)
            with pytest.raises(grpc.aio.AioRpcError, match="cluster ID are mismatch"):
                await write(asked(b"", 5))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await late
            assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            gone.cancel()
            await until(lambda: one.storage.write_queue_bytes > 0)
            assert not any(done.done() for done in stored)
            syncs.let(50)
            assert await asyncio.gather(*stored) == [b""] * 20
        finally:
            await channel.close()
            await server.stop(0.0)

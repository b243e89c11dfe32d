"""The publisher against pump processes: what readers get is what was committed, kill -9 included."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

import pumpclient
from pumpclient import Options, TransactionLost
from tests.forked import Forked
from tests.waiting import PATIENCE_S, until
from tidb_binlog import binlog, rpc
from tidb_binlog.upstream.standalone import StandaloneUpstream
from tidb_binlog.wire import pump_pb2

pytestmark = pytest.mark.integration

QUICK = Options(retry_pause_s=0.02, finish_retry_pause_s=0.05, probe_interval_s=0.2)


class PumpProcess:
    """A pump on a port and directory of its own; killed by its own id only."""

    def __init__(self, endpoint: str, directory: Path, port: int) -> None:
        self.endpoint, self.directory, self.port = endpoint, directory, port
        self._process: Forked | None = None

    async def start(self) -> None:
        self.directory.mkdir(exist_ok=True)
        arguments = [f"-addr=127.0.0.1:{self.port}", f"-data-dir={self.directory}"]
        arguments += [f"-pd-urls={self.endpoint}", f"-node-id={self.directory.name}"]
        self._process = Forked("pump", arguments, self.directory.with_suffix(".log"))

    async def end(self, number: int = signal.SIGTERM) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
        await asyncio.to_thread(self._process.wait)

    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log_text(self) -> str:
        return self.directory.with_suffix(".log").read_text()[-3000:]


async def connected(endpoint: str, pumps: Sequence[PumpProcess]) -> pumpclient.Publisher:
    """A publisher as soon as all pumps are usable."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                stream = await pumpclient.open_publisher(endpoint, options=QUICK)
            except pumpclient.NoPumpRegistered:
                await asyncio.sleep(0.05)
                continue
            await until_usable(stream, pumps)
            return stream


async def until_usable(stream: pumpclient.Publisher, pumps: Sequence[PumpProcess]) -> None:
    def are_usable() -> bool:
        for pump in pumps:
            assert pump.runs(), pump.log_text()
        states = [pump.state.value for pump in stream.client.pumps() if pump.state]
        return states == ["usable"] * len(pumps)

    await until(are_usable)


@pytest.fixture
async def pumps(
    etcd_clean: str, tmp_path: Path, free_port: Callable[[], int]
) -> AsyncIterator[list[PumpProcess]]:
    await (await StandaloneUpstream.connect(etcd_clean)).close()
    started = [PumpProcess(etcd_clean, tmp_path / f"pump{number}", free_port()) for number in range(2)]
    for pump in started:
        await pump.start()
    yield started
    for pump in started:
        await pump.end(signal.SIGKILL)


async def pulled(pump: PumpProcess, cluster_id: int, want: set[int]) -> list[tuple[int, int]]:
    """(start_ts, commit_ts) served by the pump until it has passed the largest of `want`."""
    request = pump_pb2.PullBinlogReq(clusterID=cluster_id, startFrom=pump_pb2.Pos(offset=0))
    client = rpc.Client(f"127.0.0.1:{pump.port}")
    found: list[tuple[int, int]] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            replies = client.server_stream("/binlog.Pump/PullBinlogs", request.SerializeToString())
            async for reply in replies:
                payload = pump_pb2.PullBinlogResp.FromString(reply).entity.payload
                header = binlog.header(binlog.parse(payload))
                if header.tp == binlog.COMMIT:
                    found.append((header.start_ts, header.commit_ts))
                if header.commit_ts >= max(want):
                    break
    finally:
        await client.close()
    return found


async def test_committed_is_served_and_nothing_else(etcd_clean: str, pumps: list[PumpProcess]) -> None:
    stream = await connected(etcd_clean, pumps)
    committed: dict[int, int] = {}
    ended: set[int] = set()
    async with stream:
        for number in range(40):
            txn = stream.transaction(ttl_s=0.5)
            await txn.begin()
            txn.insert(5, b"row %d" % number)
            if number % 5 == 1:
                await txn.abandon()
            elif number % 5 == 2:
                await txn.prewrite()
                await txn.roll_back(deliver=number % 2 == 0)
            else:
                committed[txn.start_ts] = await txn.commit(deliver=number % 5 != 3)
                continue
            ended.add(txn.start_ts)
        assert await stream.flush(10.0)
        served = [await pulled(pump, stream.client.cluster_id, set(committed.values())) for pump in pumps]
    entries = [entry for found in served for entry in found]
    assert all(found == sorted(found, key=lambda entry: entry[1]) for found in served)
    assert sorted(entries) == sorted(committed.items())
    assert not {start_ts for start_ts, _ in entries} & ended


async def test_writing_goes_on_while_pumps_are_killed(etcd_clean: str, pumps: list[PumpProcess]) -> None:
    stream = await connected(etcd_clean, pumps)
    committed: dict[int, int] = {}
    stop = asyncio.Event()

    async def session(number: int) -> None:
        while not stop.is_set():
            try:
                async with stream.transaction() as txn:
                    txn.insert(5, b"row of %d" % number)
            except TransactionLost:
                continue
            committed[txn.start_ts] = txn.commit_ts

    async with stream:
        sessions = [asyncio.ensure_future(session(number)) for number in range(4)]
        for round_ in range(4):
            await asyncio.sleep(0.4)
            pump = pumps[round_ % 2]
            await pump.end(signal.SIGKILL)
            before = len(committed)
            while len(committed) < before + 5:  # the other one takes over
                await asyncio.sleep(0.02)
            await pump.start()
            await until_usable(stream, pumps)
        stop.set()
        await asyncio.gather(*sessions)
        assert await stream.flush(30.0)
        served = [await pulled(pump, stream.client.cluster_id, set(committed.values())) for pump in pumps]
    entries = {entry for found in served for entry in found}  # a repeated prewrite may be served twice
    assert entries == set(committed.items())

"""A pump as a real process, and clients of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from tests.forked import Forked
from tests.waiting import PATIENCE_S, until_served
from tidb_binlog import binlog, rpc
from tidb_binlog.wire import pump_pb2

ROOT = Path(__file__).parents[3]


class PumpProcess:
    """A pump; start it as often as you like, on the same directory and ports."""

    def __init__(self, directory: Path, etcd: str, free_port: Callable[[], int], *flags: str) -> None:
        self.directory = directory
        self.address = f"127.0.0.1:{free_port()}"
        self.arguments = [
            f"-addr={self.address}",
            "-debug-routes",
            f"-pd-urls={etcd}",
            f"-data-dir={directory}",
            *flags,
        ]
        self.log = directory.with_name(directory.name + ".log")
        self.child: Forked | subprocess.Popen[bytes] | None = None

    def start(self, *flags: str) -> None:
        self.child = Forked("pump", [*self.arguments, *flags], self.log)

    async def start_and_wait(self, *flags: str) -> None:
        self.start(*flags)
        await self.until_up()

    async def until_up(self) -> None:
        assert self.child is not None
        url = f"http://{self.address}/readyz"
        await asyncio.to_thread(until_served, url, self.child, self.log.read_text)

    def http(self, path: str, method: str = "GET") -> tuple[int, str]:
        request = urllib.request.Request(f"http://{self.address}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    async def status(self) -> dict[str, Any]:
        _, body = await asyncio.to_thread(self.http, "/status")
        document: dict[str, Any] = json.loads(body)
        return document

    def memory_mib(self, name: str) -> float:
        """One of those in /proc/PID/status."""
        assert self.child is not None
        text = Path(f"/proc/{self.child.pid}/status").read_text()
        return int(text.split(f"{name}:")[1].split()[0]) / 1024

    def kill(self) -> None:
        """As kill -9."""
        assert self.child is not None
        self.child.kill()
        self.child.wait(PATIENCE_S)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.child is not None
        self.child.terminate()
        return self.child.wait(PATIENCE_S)

    def hang_up(self) -> None:
        """SIGHUP."""
        assert self.child is not None
        os.kill(self.child.pid, signal.SIGHUP)

    def wait(self) -> int:
        assert self.child is not None
        return self.child.wait(PATIENCE_S)

    def end(self) -> None:
        if self.child is not None and self.child.poll() is None:
            self.kill()


Start = Callable[..., PumpProcess]
"""Of the fixture `pump`: flags, and by name the `directory` under the test's own and the etcd `endpoint`."""


async def start_two(pump: Start) -> list[PumpProcess]:
    """Pumps p1 and p2, of one cluster, that answer."""
    pumps = [pump(f"-node-id={name}", "-heartbeat-interval=200ms", directory=name) for name in ("p1", "p2")]
    for process in pumps:
        await process.start_and_wait()
    return pumps


class PumpClient:
    """Raw calls of both protocols."""

    def __init__(self, address: str, cluster_id: int) -> None:
        self._client = rpc.Client(address)
        self._cluster_id = cluster_id

    async def write(self, payload: bytes) -> None:
        request = pump_pb2.WriteBinlogReq(clusterID=self._cluster_id, payload=payload)
        await self._client.unary("/binlog.Pump/WriteBinlog", request.SerializeToString(), 5.0)

    async def pull_batches(
        self, after_ts: int, wait: int = 0
    ) -> AsyncIterator[tuple[list[binlog.Header], list[bytes], int]]:
        """(headers, payloads, watermark) of each message; credit is given back as it is used."""
        requests: asyncio.Queue[pump_pb2.PullBatchesReq] = asyncio.Queue()
        requests.put_nowait(
            pump_pb2.PullBatchesReq(
                cluster_id=self._cluster_id, after_ts=after_ts, credit_bytes=4 << 20, wait_watermark=wait
            )
        )

        async def sent() -> AsyncIterator[bytes]:
            while True:
                yield (await requests.get()).SerializeToString()

        async for data in self._client.bidi("/binlog.PumpBatch/PullBatches", sent()):
            reply = pump_pb2.PullBatchesResp.FromString(data)
            payloads = list(reply.payloads)
            requests.put_nowait(pump_pb2.PullBatchesReq(credit_bytes=sum(map(len, payloads))))
            headers = [binlog.header(binlog.parse(payload)) for payload in payloads]
            yield headers, payloads, reply.watermark

    async def pull_binlogs(self, after_ts: int) -> AsyncIterator[tuple[int, int, bytes]]:
        """(start_ts, commit_ts, payload) of each entity."""
        request = pump_pb2.PullBinlogReq(clusterID=self._cluster_id)
        request.startFrom.offset = after_ts
        async for data in self._client.server_stream("/binlog.Pump/PullBinlogs", request.SerializeToString()):
            entity = pump_pb2.PullBinlogResp.FromString(data).entity
            yield entity.meta.startTs, entity.meta.commitTs, entity.payload

    async def close(self) -> None:
        await self._client.close()

"""What Go's programs ask of PD and TiKV, over a standalone cluster: a process of its own, until SIGTERM.

    python -m tests.benchmarks.peer.stand_in ETCD_ENDPOINT

One port, as PD has it: time and places, etcd's calls passed on to the cluster's own, and one store with one
region in which finished DDL jobs can be read, and nothing else. Prints {"event": "listening", "address"}.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Final

import uvloop

from tests.fakes.cluster import FakeCluster
from tests.fakes.pd import FakePd
from tidb_binlog import rpc, tso
from tidb_binlog.protobuf_fields import fields
from tidb_binlog.upstream.standalone import StandaloneUpstream
from tidb_binlog.upstream.standalone.catalog import id_of_job
from tidb_binlog.upstream.tidb.meta import meta_keys
from tidb_binlog.wire import kvrpcpb_pb2 as kv
from tidb_binlog.wire import pdpb_pb2

ROOM: Final = 1 << 28  # a second
ETCD_TIMEOUT_S: Final = 10.0
ETCD_UNARY: Final = {"KV": ("Range", "Put", "DeleteRange", "Txn"), "Lease": ("LeaseGrant", "LeaseRevoke")}
ETCD_STREAMS: Final = {"Lease": ("LeaseKeepAlive",), "Watch": ("Watch",)}


class StandIn:
    """The services, over one cluster, beside those of a `FakePd`. `behind`: how far its time is behind the
    cluster's."""

    def __init__(self, upstream: StandaloneUpstream, etcd: rpc.Client, behind: int) -> None:
        self._upstream = upstream
        self._etcd = etcd
        self._behind = behind
        self._last_ts = 0

    def services(self) -> list[rpc.Service]:
        found = [
            rpc.Service("pdpb.PD", bidi_streams={"Tso": self._tso}),
            rpc.Service("tikvpb.Tikv", bidi_streams={"BatchCommands": self._batches}),
        ]
        for name in ("KV", "Lease", "Watch"):
            path = f"etcdserverpb.{name}"
            unary = {one: partial(self._pass, f"{path}/{one}") for one in ETCD_UNARY.get(name, ())}
            bidi = {one: partial(self._etcd.bidi, f"{path}/{one}") for one in ETCD_STREAMS.get(name, ())}
            found.append(rpc.Service(path, unary=unary, bidi_streams=bidi))
        return found

    async def _pass(self, path: str, data: bytes) -> bytes:
        return await self._etcd.unary(path, data, ETCD_TIMEOUT_S)

    async def _tso(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for data in requests:
            count = pdpb_pb2.TsoRequest.FromString(bytes(data)).count
            for _ in range(count):
                now_ts = await self._upstream.oracle.timestamp() - self._behind
                self._last_ts = last_ts = max(now_ts, self._last_ts + 1)
            stamp = pdpb_pb2.Timestamp(physical=tso.physical_ms(last_ts), logical=last_ts & tso.LOGICAL_MAX)
            reply = pdpb_pb2.TsoResponse(count=count, timestamp=stamp)
            reply.header.cluster_id = self._upstream.cluster_id
            yield reply.SerializeToString()

    async def _batches(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Commands and their numbers come together, and so do replies."""
        commands: dict[int, tuple[Any, Callable[[Any], Awaitable[Any]]]] = {
            1: (kv.GetRequest, self._get),
            2: (kv.ScanRequest, self._scan),
        }
        async for data in requests:
            reply = bytearray()
            for tag, content in messages(bytes(data)):
                if tag >> 3 == 2:
                    reply += message(2, content)
                    continue
                ((command, body),) = messages(content)
                request_type, work = commands[command >> 3]
                answer = await work(request_type.FromString(body))
                reply += message(1, message(command >> 3, answer.SerializeToString()))
            yield bytes(reply)

    async def _get(self, request: kv.GetRequest) -> kv.GetResponse:
        return next(
            (kv.GetResponse(value=job) for key, job in await self._jobs() if key == request.key),
            kv.GetResponse(not_found=True),
        )

    async def _scan(self, request: kv.ScanRequest) -> kv.ScanResponse:
        """Backwards, the range begins at its end."""
        first, end = request.start_key, request.end_key
        if request.reverse:
            first, end = end, first
        pairs = [(key, job) for key, job in await self._jobs() if first <= key and (not end or key < end)]
        if request.reverse:
            pairs.reverse()
        return kv.ScanResponse(pairs=[kv.KvPair(key=key, value=job) for key, job in pairs[: request.limit]])

    async def _jobs(self) -> list[tuple[bytes, bytes]]:
        """Ascending keys."""
        jobs = [job async for page in self._upstream.history.pages() for job in page]
        return [(meta_keys.job_key(id_of_job(job)), job) for job in jobs]


def messages(data: bytes) -> list[tuple[int, bytes]]:
    """Tag and contents of each field; all have a length."""
    found = fields(lambda at, size: data[at : at + size], 0, len(data))
    return [(tag, data[end : end + size]) for tag, size, end in found]


def message(number: int, content: bytes) -> bytes:
    """A field that has a length."""
    size, head = len(content), bytearray([number << 3 | 2])
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head) + content


async def run(endpoint: str) -> None:
    upstream = await StandaloneUpstream.connect(endpoint)
    etcd = rpc.Client(endpoint.removeprefix("http://"))
    cluster = FakeCluster(stores=1)
    cluster.cluster_id = upstream.cluster_id
    # Go's client ends its process when a timestamp comes again. A clock that stands has room before it.
    stands = await upstream.oracle.timestamp() == await upstream.oracle.timestamp()
    stand_in = StandIn(upstream, etcd, ROOM if stands else 0)
    pd = await FakePd.start(cluster, before=stand_in.services())
    address = pd.members[0].address
    cluster.move_store(1, address)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    print(json.dumps({"event": "listening", "address": address}), flush=True)
    await stopped.wait()
    await pd.close()
    await etcd.close()
    await upstream.close()


if __name__ == "__main__":
    uvloop.run(run(sys.argv[1]))

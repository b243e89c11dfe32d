"""Stores of the fake cluster: TiKV's unary calls, regions checked as TiKV checks them, faults on order.

In one process through `dial` (a slow reply then lets the cluster's clock pass instead of waiting), or as real
gRPC servers after `serve`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tests.fakes import grpcio_server
from tests.fakes.cluster import FakeCluster
from tests.fakes.mvcc import KeyFailure
from tests.fakes.region_message import region_message
from tidb_binlog import rpc
from tidb_binlog.errors import BinlogError, Unavailable
from tidb_binlog.upstream.tidb.tikv.regions import Region, Store, peer_message
from tidb_binlog.wire import errorpb_pb2
from tidb_binlog.wire import kvrpcpb_pb2 as kv

_CALLS: Final[dict[str, tuple[Any, Any]]] = {
    "KvGet": (kv.GetRequest, kv.GetResponse),
    "KvScan": (kv.ScanRequest, kv.ScanResponse),
    "KvBatchGet": (kv.BatchGetRequest, kv.BatchGetResponse),
    "KvCheckTxnStatus": (kv.CheckTxnStatusRequest, kv.CheckTxnStatusResponse),
    "KvCheckSecondaryLocks": (kv.CheckSecondaryLocksRequest, kv.CheckSecondaryLocksResponse),
    "KvResolveLock": (kv.ResolveLockRequest, kv.ResolveLockResponse),
    "MvccGetByKey": (kv.MvccGetByKeyRequest, kv.MvccGetByKeyResponse),
}


@dataclass
class Fault:
    """What goes wrong, `times` times, with the calls that it fits; one of the lower fields says what."""

    method: str | None = None
    store_id: int | None = None
    region_id: int | None = None
    times: int = 1
    region_error: errorpb_pb2.Error | None = None
    refuse: bool = False  # nothing is done
    lose: bool = False  # done, but no reply comes
    slow: bool = False  # done, but the reply comes after the caller has given up
    hold: asyncio.Event | None = None  # begins only when this is set
    fails: BinlogError | None = None
    change: Callable[[Any], None] | None = None  # of the reply
    before: Callable[[], None] | None = None  # something happens in the cluster first

    def fits(self, store_id: int, method: str, request: Any) -> bool:
        return (
            self.times > 0
            and self.method in (None, method)
            and self.store_id in (None, store_id)
            and self.region_id in (None, request.context.region_id)
        )


@dataclass
class Call:
    """One call as a store got it."""

    store_id: int
    method: str
    request: Any = field(repr=False)


class FakeTikv:
    """All stores of a cluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.faults: list[Fault] = []
        self.calls: list[Call] = []
        self.down: set[int] = set()
        self.serving = {store.address: store.id for store in cluster.stores.values()}
        self.names_locked_keys = False
        """Whether pairs of a scan that are locked have their key outside of the error too."""
        self._servers: dict[int, grpcio_server.Server] = {}

    def fault(self, fault: Fault) -> Fault:
        self.faults.append(fault)
        return fault

    def called(self, method: str) -> list[Call]:
        return [call for call in self.calls if call.method == method]

    # Where stores are.

    def dial(self, address: str) -> LocalChannel:
        return LocalChannel(self, address)

    def move(self, store_id: int, address: str, *, taken_by: int | None = None) -> None:
        """A store gets another address, of which PD knows; perhaps another store now has the old one."""
        old = self.cluster.stores[store_id].address
        del self.serving[old]
        if taken_by is not None:
            self.serving[old] = taken_by
        self.serving[address] = store_id
        self.cluster.move_store(store_id, address)

    async def serve(self, *store_ids: int) -> None:
        """Real servers on free ports, for all stores or for those named; PD knows their addresses."""
        for store_id in store_ids or tuple(self.cluster.stores):
            server = await grpcio_server.serve([self.service(store_id)], "127.0.0.1", 0)
            self._servers[store_id] = server
            self.move(store_id, f"127.0.0.1:{server.port}")

    def service(self, store_id: int) -> rpc.Service:
        return rpc.Service(
            "tikvpb.Tikv", unary={method: self._handler(store_id, method) for method in _CALLS}
        )

    async def stop(self, *store_ids: int) -> None:
        """End the servers, of all stores or of those named."""
        for store_id in store_ids or tuple(self._servers):
            await self._servers.pop(store_id).stop(None)

    def _handler(self, store_id: int, method: str) -> Callable[[bytes], Any]:
        async def handle(request: bytes) -> bytes:
            return await self.answer(store_id, method, bytes(request), 60.0)

        return handle

    # What a store does.

    async def answer(self, store_id: int, method: str, data: bytes, timeout_s: float) -> bytes:
        """One call. Raises `Unavailable` where no answer comes."""
        request_type, reply_type = _CALLS[method]
        request = request_type.FromString(data)
        self.calls.append(Call(store_id, method, request))
        fault = next((one for one in self.faults if one.fits(store_id, method, request)), Fault(times=0))
        fault.times -= 1
        if fault.before is not None:
            fault.before()
        if fault.hold is not None:
            await fault.hold.wait()
        if fault.refuse:
            raise Unavailable("connection refused")
        if fault.fails is not None:
            raise fault.fails
        reply = reply_type()
        error = fault.region_error or self._region_error(store_id, method, request)
        if error is not None:
            reply.region_error.CopyFrom(error)
        else:
            self._act(method, request, reply)
        if fault.change is not None:
            fault.change(reply)
        if fault.slow:
            self.cluster.clock.advance(timeout_s)
            raise Unavailable("Deadline Exceeded")
        if fault.lose:
            raise Unavailable("Socket closed")
        return bytes(reply.SerializeToString())

    def _region_error(self, store_id: int, method: str, request: Any) -> errorpb_pb2.Error | None:
        context = request.context
        error = errorpb_pb2.Error(message=f"store {store_id}")
        if context.peer.store_id != store_id:
            error.store_not_match.request_store_id = context.peer.store_id
            error.store_not_match.actual_store_id = store_id
            return error
        region = self.cluster.region_by_id(context.region_id)
        peer = next((peer for peer in region.peers if peer.store_id == store_id), None) if region else None
        if region is None or peer is None:
            error.region_not_found.region_id = context.region_id
        elif peer.id != context.peer.id:
            error.mismatch_peer_id.SetInParent()
        elif region.leader is None or region.leader.store_id != store_id:
            error.not_leader.region_id = region.id
            if region.leader is not None:
                error.not_leader.leader.CopyFrom(peer_message(region.leader))
        elif region.version != context.region_epoch.version:
            error.epoch_not_match.current_regions.extend(self._around(region))
        elif not all(map(region.holds, _keys(method, request))):
            error.key_not_in_region.region_id = region.id
        else:
            return None
        return error

    def _around(self, region: Region) -> Iterator[Any]:
        """The region and the one left of it, which a split has made."""
        at = self.cluster.regions.index(region)
        return (region_message(one) for one in self.cluster.regions[max(0, at - 1) : at + 1])

    def _act(self, method: str, request: Any, reply: Any) -> None:
        mvcc = self.cluster.mvcc
        try:
            if method == "KvGet":
                self._get(request, reply)
            elif method == "KvBatchGet":
                for key in request.keys:
                    self._pair(key, request, reply)
            elif method == "KvScan":
                self._scan(request, reply)
            elif method == "KvCheckTxnStatus":
                reply.CopyFrom(mvcc.check_txn_status(request))
            elif method == "KvCheckSecondaryLocks":
                reply.CopyFrom(mvcc.check_secondary_locks(request.keys, request.start_version))
            elif method == "KvResolveLock":
                region = self.cluster.region_by_id(request.context.region_id)
                assert region is not None
                keys = list(request.keys) or list(mvcc.keys(region.start_key, region.end_key))
                mvcc.resolve_lock(keys, request.start_version, request.commit_version)
            else:
                reply.info.CopyFrom(mvcc.history(request.key))
        except KeyFailure as failure:
            reply.error.CopyFrom(failure.error)

    def _get(self, request: Any, reply: Any) -> None:
        value = self.cluster.mvcc.get(request.key, request.version, request.context.resolved_locks)
        reply.not_found = value is None
        reply.value = value or b""

    def _pair(self, key: bytes, request: Any, reply: Any) -> None:
        try:
            value = self.cluster.mvcc.get(key, request.version, request.context.resolved_locks)
        except KeyFailure as failure:
            reply.pairs.add(error=failure.error, key=key if self.names_locked_keys else b"")
            return
        if value is not None:
            key_only = getattr(request, "key_only", False)
            reply.pairs.add(key=key, value=b"" if key_only else value)

    def _scan(self, request: Any, reply: Any) -> None:
        region = self.cluster.region_by_id(request.context.region_id)
        assert region is not None
        if region.end_key and (not request.end_key or request.end_key > region.end_key):
            raise KeyFailure(kv.KeyError(abort="InvalidReqRange"))
        for key in self.cluster.mvcc.keys(request.start_key, request.end_key):
            if len(reply.pairs) == request.limit:
                break
            self._pair(key, request, reply)


class LocalChannel:
    """To whichever store is at the address, without a network."""

    def __init__(self, tikv: FakeTikv, address: str) -> None:
        self._tikv = tikv
        self._address = address
        self.closed = False

    async def unary(self, method_path: str, request: bytes, timeout_s: float) -> bytes:
        store_id = self._tikv.serving.get(self._address)
        if self.closed or store_id is None or store_id in self._tikv.down:
            raise Unavailable(f"{self._address}: connection refused")
        await asyncio.sleep(0)
        return await self._tikv.answer(store_id, method_path.rpartition("/")[2], request, timeout_s)

    async def close(self) -> None:
        self.closed = True


class LocalPd:
    """PD's answers about places, and its time, without a network."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.cluster_id = cluster.cluster_id
        self.asked = 0
        self.away = False

    async def region_of(self, key: bytes, *, deadline_s: float = 10.0) -> Region:
        self._ask(deadline_s)
        await asyncio.sleep(0)
        return self._cluster.region_of(key)

    async def store(self, store_id: int, *, deadline_s: float = 10.0) -> Store | None:
        self._ask(deadline_s)
        await asyncio.sleep(0)
        return self._cluster.stores.get(store_id)

    async def recent(self, max_age_s: float = 2.0) -> int:
        return self._cluster.ts()

    async def now(self) -> int:
        """The safe point of the garbage collection."""
        self._ask(10.0)
        await asyncio.sleep(0)
        return self._cluster.gc_safe_point

    def _ask(self, deadline_s: float) -> None:
        self.asked += 1
        if self.away:
            self._cluster.clock.advance(deadline_s)
            raise Unavailable("PD does not answer")


def _keys(method: str, request: Any) -> list[bytes]:
    if method in ("KvBatchGet", "KvCheckSecondaryLocks", "KvResolveLock"):
        return list(request.keys)
    if method == "KvScan":
        return [request.start_key]
    return [request.primary_key if method == "KvCheckTxnStatus" else request.key]

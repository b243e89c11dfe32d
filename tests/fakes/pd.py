"""A PD cluster for tests: real gRPC servers, one a member, over the state of a `FakeCluster`.

Every member answers as PD does: a follower refuses what is for the leader, an election leaves the leader out,
a wrong cluster id is a failed precondition. What goes wrong beyond that is put into `faults` of a member, per
method and call: `Fail`, `Lost`, `Late`, `End`, `Changed`.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fakes import grpcio_server
from tests.fakes.cluster import FakeCluster, Member
from tests.fakes.region_message import region_message
from tidb_binlog import rpc, tso
from tidb_binlog.net.port import free_ports
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.upstream.tidb.tikv.regions import Store, StoreState, key_of_pd, peer_message
from tidb_binlog.wire import metapb_pb2, pdpb_pb2

HOST = "127.0.0.1"
NOT_LEADER = "not leader"
GC_WORKER = "gc_worker"
TSO_FAILED = "[PD:tso:ErrGenerateTimestamp]generate timestamp failed"


@dataclass(frozen=True)
class Fail:
    """The call ends with this status; nothing is done."""

    code: int
    text: str


@dataclass(frozen=True)
class Lost:
    """The work is done, the reply never comes."""


@dataclass
class Late:
    """The work is done, the reply comes when `event` is set; `reached` tells that it waits."""

    event: asyncio.Event = field(default_factory=asyncio.Event)
    reached: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True)
class End:
    """The server ends the stream without an error."""


@dataclass(frozen=True)
class Changed:
    """The reply is changed before it goes out."""

    change: Callable[[Any], None]


Fault = Fail | Lost | Late | End | Changed


class FakeMember:
    """One PD server."""

    def __init__(self, pd: FakePd, member: Member, port: int) -> None:
        self._pd = pd
        self.member = member
        self.port = port
        self.cluster_id: int | None = None
        """Another id than the cluster's: a stranger."""
        self.believes: Member | None = None
        """Cut off from the others: the leader it goes on to name, and whom it takes itself for."""
        self.is_started = True
        self.hangs = False
        self.faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self.calls: Counter[str] = Counter()
        self.streams = 0
        self.counts: list[int] = []
        """Of each Tso request."""
        self._server: grpcio_server.Server | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def service(self) -> rpc.Service:
        unary = {
            "GetMembers": self._handler("GetMembers", pdpb_pb2.GetMembersRequest, self._members),
            "GetRegion": self._handler("GetRegion", pdpb_pb2.GetRegionRequest, self._region),
            "GetRegionByID": self._handler(
                "GetRegionByID", pdpb_pb2.GetRegionByIDRequest, self._region_by_id
            ),
            "GetStore": self._handler("GetStore", pdpb_pb2.GetStoreRequest, self._store),
            "GetAllStores": self._handler("GetAllStores", pdpb_pb2.GetAllStoresRequest, self._stores),
            "GetGCSafePoint": self._handler(
                "GetGCSafePoint",
                pdpb_pb2.GetGCSafePointRequest,
                lambda _: pdpb_pb2.GetGCSafePointResponse(safe_point=self._pd.cluster.gc_safe_point),
            ),
            "UpdateServiceGCSafePoint": self._handler(
                "UpdateServiceGCSafePoint", pdpb_pb2.UpdateServiceGCSafePointRequest, self._safe_point
            ),
        }
        return rpc.Service("pdpb.PD", unary=unary, bidi_streams={"Tso": self._tso})

    async def start(self) -> None:
        self._server = await grpcio_server.serve(
            [*self._pd.before, self.service()], HOST, self.port, tls=self._pd.tls
        )

    async def stop(self) -> None:
        """Its port refuses connections until `start`."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)

    # What every call goes through.

    def _handler(self, method: str, request_type: Any, work: Callable[[Any], Any]) -> rpc.Unary:
        async def handle(data: bytes) -> bytes:
            self.calls[method] += 1
            await self._alive(method)
            request = request_type.FromString(bytes(data))
            fault = self._next_fault(method)
            if method != "GetMembers":
                self._check_leader(request.header)
            reply = work(request) if self.is_started else _not_started()
            reply.header.cluster_id = self._id() if self.is_started else 0
            await _spoil(fault, reply)
            return bytes(reply.SerializeToString())

        return handle

    def _next_fault(self, method: str) -> Fault | None:
        faults = self.faults[method]
        fault = faults.popleft() if faults else None
        if isinstance(fault, Fail):
            raise rpc.RpcStatus(fault.code, fault.text)
        return fault

    async def _alive(self, method: str) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if not self.is_started and method != "GetMembers":
            raise rpc.RpcStatus(rpc.UNAVAILABLE, "server not started")

    def _id(self) -> int:
        return self.cluster_id or self._pd.cluster.cluster_id

    def _leads(self) -> bool:
        return self.member == (self.believes or self._pd.cluster.leader)

    def _check_leader(self, header: pdpb_pb2.RequestHeader) -> None:
        if not self._leads():
            raise rpc.RpcStatus(rpc.UNAVAILABLE, NOT_LEADER)
        if header.cluster_id != self._id():
            text = f"mismatch cluster id, need {self._id()} but got {header.cluster_id}"
            raise rpc.RpcStatus(rpc.FAILED_PRECONDITION, text)

    # What the calls do.

    def _members(self, request: pdpb_pb2.GetMembersRequest) -> pdpb_pb2.GetMembersResponse:
        cluster = self._pd.cluster
        leader = self.believes or cluster.leader
        reply = pdpb_pb2.GetMembersResponse(members=[_member(member) for member in cluster.members])
        if leader is not None:
            reply.leader.CopyFrom(_member(leader))
        return reply

    def _region(self, request: pdpb_pb2.GetRegionRequest) -> pdpb_pb2.GetRegionResponse:
        key = key_of_pd(request.region_key)
        return self._told(next((one for one in self._pd.cluster.regions if one.holds(key)), None))

    def _region_by_id(self, request: pdpb_pb2.GetRegionByIDRequest) -> pdpb_pb2.GetRegionResponse:
        return self._told(self._pd.cluster.region_by_id(request.region_id))

    def _told(self, region: Any) -> pdpb_pb2.GetRegionResponse:
        reply = pdpb_pb2.GetRegionResponse()
        if region is not None:
            reply.region.CopyFrom(region_message(region))
            if region.leader is not None:
                reply.leader.CopyFrom(peer_message(region.leader))
            down = self._pd.down_peers.intersection(peer.id for peer in region.peers)
            reply.down_peers.extend(
                pdpb_pb2.PeerStats(peer=peer_message(peer), down_seconds=900)
                for peer in region.peers
                if peer.id in down
            )
        return reply

    def _store(self, request: pdpb_pb2.GetStoreRequest) -> pdpb_pb2.GetStoreResponse:
        store = self._pd.cluster.stores.get(request.store_id)
        reply = pdpb_pb2.GetStoreResponse()
        if store is None:
            reply.header.error.type = pdpb_pb2.UNKNOWN
            reply.header.error.message = f"invalid store ID {request.store_id}, not found"
        else:
            reply.store.CopyFrom(_store(store))
        return reply

    def _stores(self, request: pdpb_pb2.GetAllStoresRequest) -> pdpb_pb2.GetAllStoresResponse:
        stores = self._pd.cluster.stores.values()
        kept = [
            one
            for one in stores
            if not request.exclude_tombstone_stores or one.state is not StoreState.TOMBSTONE
        ]
        return pdpb_pb2.GetAllStoresResponse(stores=[_store(store) for store in kept])

    def _safe_point(
        self, request: pdpb_pb2.UpdateServiceGCSafePointRequest
    ) -> pdpb_pb2.UpdateServiceGCSafePointResponse:
        cluster, name = self._pd.cluster, request.service_id.decode()
        now_s = int(cluster.clock.wall_s())
        held = cluster.service_safe_points
        if request.TTL <= 0:
            held.pop(name, None)
        smallest = self._smallest(now_s)
        if request.TTL > 0 and request.safe_point >= held[smallest][0]:
            held[name] = (request.safe_point, now_s + request.TTL)
            smallest = self._smallest(now_s)
        safe_point, until_s = held[smallest]
        return pdpb_pb2.UpdateServiceGCSafePointResponse(
            service_id=smallest.encode(),
            TTL=(1 << 63) - 1 - now_s if math.isinf(until_s) else int(until_s) - now_s,
            min_safe_point=safe_point,
        )

    def _smallest(self, now_s: int) -> str:
        held = self._pd.cluster.service_safe_points
        for name, (_, until_s) in list(held.items()):
            if until_s < now_s:
                del held[name]
        held.setdefault(GC_WORKER, (self._pd.cluster.gc_safe_point, math.inf))
        return min(held, key=lambda name: held[name][0])

    async def _tso(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        self.streams += 1
        self.calls["Tso"] += 1
        async for data in requests:
            await self._alive("Tso")
            request = pdpb_pb2.TsoRequest.FromString(bytes(data))
            fault = self._next_fault("Tso")
            if isinstance(fault, End):
                return
            if not self._leads():
                raise rpc.RpcStatus(rpc.UNKNOWN, f"{TSO_FAILED}, requested pd is not leader of cluster")
            if request.header.cluster_id != self._id():
                text = f"mismatch cluster id, need {self._id()} but got {request.header.cluster_id}"
                raise rpc.RpcStatus(rpc.FAILED_PRECONDITION, text)
            if request.count == 0:
                raise rpc.RpcStatus(rpc.UNKNOWN, f"{TSO_FAILED}, tso count should be positive")
            self.counts.append(request.count)
            last = self._pd.cluster.ts(request.count)
            reply = pdpb_pb2.TsoResponse(
                count=request.count,
                timestamp=pdpb_pb2.Timestamp(
                    physical=tso.physical_ms(last),
                    logical=last & tso.LOGICAL_MAX,
                    suffix_bits=self._pd.cluster.suffix_bits,
                ),
            )
            reply.header.cluster_id = self._id()
            await _spoil(fault, reply)
            yield reply.SerializeToString()


class FakePd:
    """The members of one cluster. Construct through `start`; `close` at the end."""

    def __init__(
        self, cluster: FakeCluster, tls: TlsConfig | None, before: Sequence[rpc.Service] = ()
    ) -> None:
        self.cluster = cluster
        self.before = before
        self.tls = tls
        self.down_peers: set[int] = set()
        self.members: list[FakeMember] = []

    @classmethod
    async def start(
        cls,
        cluster: FakeCluster,
        *,
        members: int = 1,
        tls: TlsConfig | None = None,
        before: Sequence[rpc.Service] = (),
    ) -> FakePd:
        """`members` servers named pd-1, pd-2, …; the first leads. `before`: what they serve besides, or in
        another way."""
        pd = cls(cluster, tls, before)
        cluster.members = [Member(f"pd-{number}", 10 + number) for number in range(1, members + 1)]
        cluster.leader = cluster.members[0]
        try:
            for member in cluster.members:
                await pd.add(member)
        except BaseException:
            await pd.close()
            raise
        return pd

    async def add(self, member: Member) -> FakeMember:
        """Start a member that is in `cluster.members` already; it advertises where it listens."""
        server = FakeMember(self, member, free_ports(1)[0])
        scheme = "https" if self.tls else "http"
        member.client_urls = member.client_urls or (f"{scheme}://{server.address}",)
        await server.start()
        self.members.append(server)
        return server

    @property
    def endpoints(self) -> str:
        """As an operator would configure them."""
        scheme = "https" if self.tls else "http"
        return ",".join(f"{scheme}://{member.address}" for member in self.members)

    def elect(self, member: FakeMember | None) -> None:
        """Another leader; None: an election that does not end yet."""
        self.cluster.leader = member.member if member else None

    async def close(self) -> None:
        await asyncio.gather(*(member.stop() for member in self.members))


def _not_started() -> pdpb_pb2.GetMembersResponse:
    reply = pdpb_pb2.GetMembersResponse()
    reply.header.error.type = pdpb_pb2.UNKNOWN
    reply.header.error.message = "[PD:server:ErrServerNotStarted]server not started"
    return reply


async def _spoil(fault: Fault | None, reply: Any) -> None:
    if isinstance(fault, Lost):
        await asyncio.Event().wait()
    elif isinstance(fault, Late):
        fault.reached.set()
        await fault.event.wait()
    elif isinstance(fault, Changed):
        fault.change(reply)


def _member(member: Member) -> pdpb_pb2.Member:
    return pdpb_pb2.Member(
        name=member.name,
        member_id=member.member_id,
        client_urls=member.client_urls,
        binary_version=f"v{member.version}",
    )


def _store(store: Store) -> metapb_pb2.Store:
    return metapb_pb2.Store(
        id=store.id, address=store.address, state=store.state.value, version=store.version
    )

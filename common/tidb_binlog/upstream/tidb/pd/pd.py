"""PD: members, regions, stores and the safe points of a real cluster, asked over gRPC.

Order   keys go to PD memcomparable and come back raw; a region that PD does not know yet is waited for
Stops   `close` ends all calls
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final, Self, TypeVar

from tidb_binlog import rpc
from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import Clock
from tidb_binlog.errors import Unavailable
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.upstream.tidb.pd.leadership import PdMember, header_error
from tidb_binlog.upstream.tidb.pd.pd_servers import DEADLINE_S, HINT, NotPd, PdServers, read
from tidb_binlog.upstream.tidb.tikv.regions import (
    Region,
    Store,
    StoreState,
    key_for_pd,
    name_of,
    region_of_message,
)
from tidb_binlog.wire import metapb_pb2, pdpb_pb2

__all__ = ["NotPd", "PdClient", "PdMember"]

MISSING_FIRST_S: Final = 0.02
MISSING_MAX_S: Final = 0.5
_T = TypeVar("_T")


class PdClient:
    """See the module. Construct through `connect`; one event loop."""

    def __init__(self, servers: PdServers) -> None:
        self._servers = servers

    @classmethod
    async def connect(
        cls,
        endpoints: str,
        *,
        tls: TlsConfig | None = None,
        clock: Clock | None = None,
        timeout_s: float = 5.0,
    ) -> Self:
        """Ask every address of a comma list of URLs or host:port once; one with a cluster id is enough.

        A leader need not be elected yet. `timeout_s` also limits each later request. Raises `Unavailable` if
        no address answers, `NotPd` if those that do know no PD, `Conflict` if they belong to different
        clusters, `ConfigError` for addresses and TLS files that cannot be used.
        """
        servers = PdServers(endpoints, tls=tls, clock=clock, timeout_s=timeout_s)
        try:
            await servers.introduce()
        except BaseException:
            await servers.close()
            raise
        return cls(servers)

    async def close(self) -> None:
        """End all calls and connections. Idempotent."""
        await self._servers.close()

    @property
    def cluster_id(self) -> int:
        return self._servers.cluster_id

    def header(self) -> pdpb_pb2.RequestHeader:
        return pdpb_pb2.RequestHeader(cluster_id=self.cluster_id)

    async def at_leader(
        self,
        what: str,
        attempt: Callable[[rpc.Client, float], Awaitable[_T]],
        deadline_s: float = DEADLINE_S,
    ) -> _T:
        """See `PdServers.at_leader`."""
        return await self._servers.at_leader(what, attempt, deadline_s)

    async def members(self) -> tuple[PdMember, ...]:
        """All PD servers, as they say now. Raises `Unavailable`, `Conflict`."""
        return await self._servers.members()

    async def _ask_leader(self, method: str, request: Any, reply_type: Any, deadline_s: float) -> Any:
        """A reply of the leader, whose header may still hold an error."""
        request.header.CopyFrom(self.header())

        async def attempt(client: rpc.Client, timeout_s: float) -> Any:
            data = await self._servers.unary(client, f"/pdpb.PD/{method}", request, timeout_s)
            reply: Any = read(reply_type, data, client.address)
            if reply.header.error.type == pdpb_pb2.NOT_BOOTSTRAPPED:
                raise Unavailable(f"{client.address} has no TiKV yet: {header_error(reply.header)}")
            return reply

        return await self.at_leader(method, attempt, deadline_s)

    async def _successful(self, method: str, request: Any, reply_type: Any, deadline_s: float) -> Any:
        """A reply without an error. Raises `Unavailable` with the header's error."""
        reply = await self._ask_leader(method, request, reply_type, deadline_s)
        if reply.header.error.type != pdpb_pb2.OK:
            raise Unavailable(f"PD refuses {method}: {header_error(reply.header)}")
        return reply

    async def region_of(self, key: bytes, *, deadline_s: float = DEADLINE_S) -> Region:
        """The region of a raw key, without peers that are down. Waits while PD knows none.

        Raises `Unavailable`, `Corruption` for boundaries that are no keys.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + deadline_s
        pauses = Backoff(MISSING_FIRST_S, MISSING_MAX_S)
        request, why = pdpb_pb2.GetRegionRequest(region_key=key_for_pd(key)), ""
        while True:
            left_s = max(0.001, deadline - loop.time())
            try:
                reply = await self._ask_leader("GetRegion", request, pdpb_pb2.GetRegionResponse, left_s)
            except Unavailable:
                if not why or loop.time() < deadline:
                    raise
                raise _not_found(key, why) from None  # a try cut short shows nothing
            if reply.header.error.type == pdpb_pb2.OK and reply.HasField("region"):
                region = region_of_message(_without_down(reply.region, reply), reply.leader)
                if region.holds(key):
                    return region
                why = f"it names region {region.id}, which does not hold it"
            else:
                why = header_error(reply.header) if reply.header.error.type else "it knows none"
            pause_s = pauses.next_s()
            if loop.time() + pause_s >= deadline:
                raise _not_found(key, why)
            await asyncio.sleep(pause_s)

    async def store(self, store_id: int, *, deadline_s: float = DEADLINE_S) -> Store | None:
        """A TiKV server; None if it is gone for good or was never known. Raises `Unavailable`."""
        request = pdpb_pb2.GetStoreRequest(store_id=store_id)
        reply = await self._ask_leader("GetStore", request, pdpb_pb2.GetStoreResponse, deadline_s)
        if reply.header.error.type != pdpb_pb2.OK:
            # The same error stands for an unknown store and for everything else: the list decides.
            stores = await self.stores(deadline_s=deadline_s)
            return next((store for store in stores if store.id == store_id), None)
        current = _store(reply.store) if reply.HasField("store") else None
        return None if current is None or current.state is StoreState.TOMBSTONE else current

    async def stores(self, *, deadline_s: float = DEADLINE_S) -> list[Store]:
        """All TiKV servers but tombstones. Raises `Unavailable`."""
        request = pdpb_pb2.GetAllStoresRequest(exclude_tombstone_stores=True)
        reply = await self._successful("GetAllStores", request, pdpb_pb2.GetAllStoresResponse, deadline_s)
        stores = [_store(message) for message in reply.stores]
        return [store for store in stores if store.state is not StoreState.TOMBSTONE]

    async def gc_safe_point(self, *, deadline_s: float = DEADLINE_S) -> int:
        """Up to where garbage may be collected by now. Raises `Unavailable`."""
        reply = await self._successful(
            "GetGCSafePoint", pdpb_pb2.GetGCSafePointRequest(), pdpb_pb2.GetGCSafePointResponse, deadline_s
        )
        return int(reply.safe_point)

    async def update_safe_point(
        self, service_id: str, ttl_s: int, safe_point: int, *, deadline_s: float = DEADLINE_S
    ) -> int:
        """Hold garbage from `safe_point` on for `ttl_s` seconds (0: let go); PD's smallest safe point then.

        Above `safe_point`: it was not stored. Raises `Unavailable`, `Rejected` where PD has no such call.
        """
        request = pdpb_pb2.UpdateServiceGCSafePointRequest(
            service_id=service_id.encode(), TTL=ttl_s, safe_point=safe_point
        )
        reply = await self._successful(
            "UpdateServiceGCSafePoint", request, pdpb_pb2.UpdateServiceGCSafePointResponse, deadline_s
        )
        return int(reply.min_safe_point)


def _not_found(key: bytes, why: str) -> Unavailable:
    return Unavailable(f"PD does not find the region of {name_of(key)}: {why}", hint=HINT)


def _store(message: metapb_pb2.Store) -> Store:
    with contextlib.suppress(ValueError):
        return Store(message.id, message.address, StoreState(message.state), message.version)
    return Store(message.id, message.address, StoreState.OFFLINE, message.version)


def _without_down(region: metapb_pb2.Region, reply: Any) -> metapb_pb2.Region:
    """The region without the peers that PD has not heard of for long, if any are left then."""
    down = {peer.peer.id for peer in reply.down_peers}
    left = [peer for peer in region.peers if peer.id not in down]
    if not left or len(left) == len(region.peers):
        return region
    kept = metapb_pb2.Region()
    kept.CopyFrom(region)
    del kept.peers[:]
    kept.peers.extend(left)
    return kept

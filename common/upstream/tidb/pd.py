"""PD: members, regions, stores and the safe points of a real cluster, asked over gRPC.

Drives  one channel per address; a task that asks for the members every minute
Owns    the knowledge who leads (`leadership` decides), the cluster id
Order   a call goes to the leader; after any failure the members are asked at once, then the call goes to a
        leader or an address not tried yet without a pause, otherwise after one
Stops   `close` ends all calls

Every PD may be away and come back, in any order, at the same or at other addresses: what is configured is
kept in mind for ever. Nothing here waits without an end, and no call waits for another one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, Self, TypeVar

from common import log, rpc
from common.backoff import Backoff
from common.clock import Clock
from common.errors import BinlogError, ConfigError, Conflict, Rejected, Unavailable
from common.etcd.client import parse_endpoints
from common.tls import TlsConfig
from common.upstream.tidb.leadership import (
    Answer,
    Leadership,
    PdMember,
    answer_of_message,
    common_cluster_id,
    header_error,
)
from common.upstream.tidb.regions import Region, Store, StoreState, key_for_pd, region_of_message
from common.wire import metapb_pb2, pdpb_pb2

TRY_S: Final = 3.0  # one request, as Go clients wait
DEADLINE_S: Final = 10.0
REFRESH_S: Final = 60.0
GRACE_S: Final = 0.3  # for the others, once one has named a leader
PAUSE_FIRST_S: Final = 0.5
PAUSE_MAX_S: Final = 3.0
MISSING_FIRST_S: Final = 0.02
MISSING_MAX_S: Final = 0.5
PING_S: Final = 10.0
HINT: Final = "check that PD runs and that --pd-urls names it"
_GET_MEMBERS: Final = "/pdpb.PD/GetMembers"

_logger = log.get("pd")
_T = TypeVar("_T")


class NotPd(Rejected):
    """Who answers there does not know PD's calls: an etcd alone, or another service."""


class _Message(Protocol):
    def SerializeToString(self) -> bytes: ...


class PdClient:
    """See the module. Construct through `connect`; one event loop."""

    def __init__(
        self, endpoints: str, *, tls: TlsConfig | None, clock: Clock | None, timeout_s: float
    ) -> None:
        self._addresses = _addresses(endpoints, tls)
        self._tls = tls
        self._clock = clock
        self._try_s = min(TRY_S, timeout_s)
        self._clients: dict[str, rpc.Client] = {}
        self._leadership = Leadership(self._addresses, 0)
        self._refreshing: asyncio.Task[BinlogError | None] | None = None
        self._minutely: asyncio.Task[None] | None = None
        self._closed = False
        self.cluster_id = 0

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
        nobody answers, `NotPd` if those who do know no PD, `Conflict` if they belong to different clusters,
        `ConfigError` for addresses and TLS files that cannot be used.
        """
        pd = cls(endpoints, tls=tls, clock=clock, timeout_s=timeout_s)
        try:
            await pd._introduce()
        except BaseException:
            await pd.close()
            raise
        pd._minutely = asyncio.get_running_loop().create_task(pd._refresh_minutely(), name="pd.members")
        return pd

    async def _introduce(self) -> None:
        answers, errors = await self._ask_all(self._addresses)
        said = "; ".join(error.message for error in errors)
        strangers = [error for error in errors if isinstance(error, NotPd)]
        if not answers:
            if strangers:
                raise NotPd(f"there is no PD: {said}", hint="check --pd-urls, or choose the other upstream")
            raise Unavailable(f"PD does not answer: {said}", hint=HINT)
        if strangers:
            raise Conflict(
                f"some of the PD addresses are none: {said}", hint="name PD servers only in --pd-urls"
            )
        self.cluster_id = common_cluster_id(answers)
        self._leadership = Leadership(self._addresses, self.cluster_id)
        self._leadership.take(answers)

    async def close(self) -> None:
        """End all calls and connections. Idempotent."""
        self._closed = True
        tasks = {task for task in (self._minutely, self._refreshing) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for client in self._clients.values():
            await client.close()

    # Whom to ask.

    def client(self, address: str) -> rpc.Client:
        """The one connection to an address."""
        client = self._clients.get(address)
        if client is None:
            client = rpc.Client(address, tls=self._tls, clock=self._clock, ping_s=PING_S)
            self._clients[address] = client
        return client

    async def at_leader(
        self,
        what: str,
        attempt: Callable[[rpc.Client, float], Awaitable[_T]],
        deadline_s: float = DEADLINE_S,
    ) -> _T:
        """What `attempt` (given a connection and seconds) returns at the leader, repeated until it works.

        `attempt` raises `Unavailable` to be repeated elsewhere or later; other errors end the call, but for a
        `Conflict` with a server that turns out to belong to another cluster. Raises `Unavailable` after
        `deadline_s`, with what each address said.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + deadline_s
        pauses = Backoff(PAUSE_FIRST_S, PAUSE_MAX_S)
        said: dict[str, str] = {}
        tried: set[str] = set()
        fresh = False  # the members were asked since the last pause
        while True:
            if self._leadership.leader is None and not fresh:
                await self._refresh(deadline)
            address = self._untried(tried)
            if address is None:
                pause_s = pauses.next_s()
                if self._closed or loop.time() + pause_s >= deadline:
                    raise self._unavailable(what, deadline_s, said)
                await asyncio.sleep(pause_s)
                tried.clear()
                fresh = False
                continue
            tried.add(address)
            left_s = max(0.001, deadline - loop.time())
            conflict: Conflict | None = None
            try:
                result = await attempt(self.client(address), min(self._try_s, left_s))
            except Unavailable as error:
                said[address] = error.message
            except Conflict as error:
                conflict, said[address] = error, error.message
            else:
                self._leadership.worked(address)
                return result
            self._leadership.failed(address)
            await self._refresh(deadline)
            fresh = True
            if conflict is not None and not self._leadership.is_foreign(address):
                raise conflict

    def _untried(self, tried: set[str]) -> str | None:
        if self._closed:
            return None
        return next((address for address in self._leadership.order() if address not in tried), None)

    def _unavailable(self, what: str, deadline_s: float, said: dict[str, str]) -> Unavailable:
        if self._closed:
            return Unavailable(f"{what}: the connection to PD is closed")
        texts = list(said.values())
        if self._leadership.leader is None:
            texts.append(f"{', '.join(self._leadership.everyone())}: no leader is elected")
        return Unavailable(
            f"PD does not answer {what} within {deadline_s:g} s: {'; '.join(texts)}", hint=HINT
        )

    async def _refresh(self, deadline: float) -> None:
        """Ask for the members, together with everybody else who wants to; not beyond `deadline`."""
        loop = asyncio.get_running_loop()
        if self._closed:
            return
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = loop.create_task(self._ask_members(), name="pd.refresh")
        task = self._refreshing
        await asyncio.wait({task}, timeout=max(0.0, deadline - loop.time()))
        if task.done() and not task.cancelled() and (error := task.result()) is not None:
            raise type(error)(error.message, hint=error.hint)

    async def _ask_members(self) -> BinlogError | None:
        """One round; `Conflict` if the cluster is another one. Nobody answering is no error."""
        answers, _ = await self._ask_all(self._leadership.everyone())
        before = self._leadership.leader
        try:
            changed = self._leadership.take(answers)
        except Conflict as error:
            return error
        leader = self._leadership.leader
        if changed and leader is not None:
            was = before.name if before else ""
            _logger.info("PD has another leader", leader=leader.name, was=was, at=leader.client_urls)
        return None

    async def _refresh_minutely(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                await self._refresh(asyncio.get_running_loop().time() + self._try_s)
            except Conflict as error:
                _logger.error("PD belongs to another cluster", error=error)

    async def _ask_all(self, addresses: Sequence[str]) -> tuple[list[Answer], list[BinlogError]]:
        """Everybody at once; when one has named a leader, the others get a moment more."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._ask(address), name=f"pd.ask {address}") for address in addresses]
        pending = set(tasks)
        ends = loop.time() + self._try_s
        graced = False
        try:
            while pending and (left_s := ends - loop.time()) > 0:
                done, pending = await asyncio.wait(
                    pending, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
                )
                results = [task.result() for task in done]
                if not graced and any(isinstance(one, Answer) and one.leader for one in results):
                    ends, graced = min(ends, loop.time() + GRACE_S), True
        finally:
            for task in pending:
                task.cancel()
            if pending:
                await asyncio.wait(pending)
        answers: list[Answer] = []
        errors: list[BinlogError] = []
        for address, task in zip(addresses, tasks, strict=True):
            told = Unavailable(f"{address} takes too long") if task.cancelled() else task.result()
            if isinstance(told, Answer):
                answers.append(told)
            else:
                errors.append(told)
        return answers, errors

    async def _ask(self, address: str) -> Answer | BinlogError:
        try:
            reply = await self._unary(
                self.client(address), _GET_MEMBERS, pdpb_pb2.GetMembersRequest(), self._try_s
            )
            return answer_of_message(address, pdpb_pb2.GetMembersResponse.FromString(reply))
        except BinlogError as error:
            return error

    # Calls.

    def header(self) -> pdpb_pb2.RequestHeader:
        return pdpb_pb2.RequestHeader(cluster_id=self.cluster_id)

    @staticmethod
    async def _unary(client: rpc.Client, path: str, request: _Message, timeout_s: float) -> bytes:
        try:
            return await client.unary(path, request.SerializeToString(), timeout_s)
        except rpc.RpcStatus as status:
            raise refusal(client.address, path, status) from None

    async def _ask_leader(self, method: str, request: Any, reply_type: Any, deadline_s: float) -> Any:
        """A reply of the leader, whose header may still tell an error."""
        request.header.CopyFrom(self.header())

        async def attempt(client: rpc.Client, timeout_s: float) -> Any:
            reply = reply_type.FromString(await self._unary(client, f"/pdpb.PD/{method}", request, timeout_s))
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

    async def members(self) -> tuple[PdMember, ...]:
        """All PD servers, as they say now. Raises `Unavailable`, `Conflict`."""
        answers, errors = await self._ask_all(self._leadership.everyone())
        self._leadership.take(answers)
        if not any(answer.cluster_id == self.cluster_id for answer in answers):
            said = "; ".join(error.message for error in errors)
            raise Unavailable(f"PD does not answer: {said}", hint=HINT)
        return self._leadership.members

    async def region_of(self, key: bytes, *, deadline_s: float = DEADLINE_S) -> Region:
        """The region of a raw key, without peers that are down. Waits while PD knows none.

        Raises `Unavailable`, `Corruption` for boundaries that are no keys.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + deadline_s
        pauses = Backoff(MISSING_FIRST_S, MISSING_MAX_S)
        while True:
            request = pdpb_pb2.GetRegionRequest(region_key=key_for_pd(key))
            reply = await self._ask_leader(
                "GetRegion", request, pdpb_pb2.GetRegionResponse, max(0.001, deadline - loop.time())
            )
            if reply.header.error.type == pdpb_pb2.OK and reply.HasField("region"):
                region = region_of_message(_without_down(reply.region, reply), reply.leader)
                if region.holds(key):
                    return region
                told = f"it names region {region.id}, which does not hold it"
            else:
                told = header_error(reply.header) if reply.header.error.type else "it knows none"
            pause_s = pauses.next_s()
            if loop.time() + pause_s >= deadline:
                raise Unavailable(f"PD does not find the region of key {key.hex()}: {told}", hint=HINT)
            await asyncio.sleep(pause_s)

    async def scan_regions(
        self, start_key: bytes, end_key: bytes, limit: int, *, deadline_s: float = DEADLINE_S
    ) -> list[Region]:
        """At most `limit` regions with raw keys of [start_key, end_key), ascending; an empty end is none.

        There can be gaps. Raises `Unavailable`, `Corruption`.
        """
        request = pdpb_pb2.ScanRegionsRequest(
            start_key=key_for_pd(start_key), end_key=key_for_pd(end_key), limit=limit
        )
        reply: pdpb_pb2.ScanRegionsResponse = await self._successful(
            "ScanRegions", request, pdpb_pb2.ScanRegionsResponse, deadline_s
        )
        if reply.regions:
            return [region_of_message(_without_down(one.region, one), one.leader) for one in reply.regions]
        # Old servers answer in parallel lists; where no leader is known its entry is empty.
        leaders: list[metapb_pb2.Peer | None] = [*reply.leaders]
        leaders += [None] * (len(reply.region_metas) - len(leaders))
        return [
            region_of_message(meta, leader) for meta, leader in zip(reply.region_metas, leaders, strict=False)
        ]

    async def store(self, store_id: int, *, deadline_s: float = DEADLINE_S) -> Store | None:
        """A TiKV server; None if it is gone for good or was never known. Raises `Unavailable`."""
        request = pdpb_pb2.GetStoreRequest(store_id=store_id)
        reply = await self._ask_leader("GetStore", request, pdpb_pb2.GetStoreResponse, deadline_s)
        if reply.header.error.type != pdpb_pb2.OK:
            # The same error stands for an unknown store and for everything else: the list tells.
            known = await self.stores(deadline_s=deadline_s)
            return next((store for store in known if store.id == store_id), None)
        found = _store(reply.store) if reply.HasField("store") else None
        return None if found is None or found.state is StoreState.TOMBSTONE else found

    async def stores(self, *, deadline_s: float = DEADLINE_S) -> list[Store]:
        """All TiKV servers but tombstones. Raises `Unavailable`."""
        request = pdpb_pb2.GetAllStoresRequest(exclude_tombstone_stores=True)
        reply = await self._successful("GetAllStores", request, pdpb_pb2.GetAllStoresResponse, deadline_s)
        stores = [_store(message) for message in reply.stores]
        return [store for store in stores if store.state is not StoreState.TOMBSTONE]

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


def refusal(address: str, path: str, status: rpc.RpcStatus) -> BinlogError:
    """What a status that is not OK means when PD sends it."""
    method = path.rpartition("/")[2]
    if status.code == rpc.UNIMPLEMENTED:
        return NotPd(f"{address} does not know {method}: {status.message}")
    if status.code == rpc.FAILED_PRECONDITION:
        return Conflict(f"{address} refuses {method}: {status.message}", hint="check --pd-urls")
    return Unavailable(f"{address} refuses {method}: {status.message}")


def _addresses(endpoints: str, tls: TlsConfig | None) -> list[str]:
    addresses = parse_endpoints(endpoints)
    if tls is None and "https://" in endpoints:
        raise ConfigError("pd-urls: https without TLS files", hint="pass --ssl-ca, --ssl-cert and --ssl-key")
    return addresses


def _store(message: metapb_pb2.Store) -> Store:
    with contextlib.suppress(ValueError):
        return Store(message.id, message.address, StoreState(message.state), message.version)
    return Store(message.id, message.address, StoreState.OFFLINE, message.version)


def _without_down(region: metapb_pb2.Region, told: Any) -> metapb_pb2.Region:
    """The region without the peers that PD has not heard of for long, if any are left then."""
    down = {one.peer.id for one in told.down_peers}
    left = [peer for peer in region.peers if peer.id not in down]
    if not left or len(left) == len(region.peers):
        return region
    kept = metapb_pb2.Region()
    kept.CopyFrom(region)
    del kept.peers[:]
    kept.peers.extend(left)
    return kept

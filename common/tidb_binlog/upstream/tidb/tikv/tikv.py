"""TiKV client: a request goes to the leader of the region that holds its key, wherever that is by now.

Drives  region cache and region errors (cores); PD's answers about places; one channel for each address
Owns    the channels, the region cache, the addresses of stores
Order   cache, else PD; the leader, else any voter; a region error changes what is known, then the next try.
        A store that does not answer: its address and the region are asked for again, and the next peer is
        asked, since it learns of a new leader before PD does
Stops   `close`; every request has one deadline, after which the error says what was tried, where, and what
        the last answer was

Requests are built for the region that gets them: TiKV refuses ranges that go beyond it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from itertools import takewhile
from typing import Any, Final, Literal, Protocol, Self, TypeVar

from google.protobuf.message import DecodeError, Message

from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import Corruption, Rejected, Unavailable
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.rpc import UNIMPLEMENTED, Client, RpcStatus
from tidb_binlog.upstream.tidb.tikv.region_errors import (
    NETWORK,
    PLACE,
    CacheChange,
    Decision,
    Pause,
    Pauses,
    decide,
)
from tidb_binlog.upstream.tidb.tikv.regions import (
    Peer,
    Region,
    RegionCache,
    Store,
    StoreState,
    name_of,
    peer_message,
    refuse_keyspace,
)
from tidb_binlog.wire import errorpb_pb2, metapb_pb2

LOOKUPS_MAX: Final = 8
KEYS_MAX: Final = 256
PING_S: Final = 10.0
_SERVICE: Final = "/tikvpb.Tikv/"

Reply = TypeVar("Reply", bound="_Reply")


class _Reply(Protocol):
    """What all replies have in common."""

    @property
    def region_error(self) -> errorpb_pb2.Error: ...

    def HasField(self, field_name: Literal["region_error"], /) -> bool: ...

    @classmethod
    def FromString(cls, s: bytes, /) -> Self: ...


class RegionSource(Protocol):
    """What is needed of PD."""

    @property
    def cluster_id(self) -> int: ...

    async def region_of(self, key: bytes, *, deadline_s: float = ...) -> Region: ...

    async def store(self, store_id: int, *, deadline_s: float = ...) -> Store | None: ...


class Channel(Protocol):
    """What is needed of `tidb_binlog.rpc.Client`."""

    async def unary(self, method_path: str, request: bytes, timeout_s: float) -> bytes: ...

    async def close(self) -> None: ...


class Deadline:
    """The deadline of one operation, over all its requests and pauses."""

    __slots__ = ("_clock", "_until_s", "seconds")

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._until_s = clock.monotonic_s() + seconds
        self.seconds = seconds

    @property
    def left_s(self) -> float:
        return self._until_s - self._clock.monotonic_s()


@dataclass(frozen=True, slots=True)
class _Target:
    region: Region
    peer: Peer
    address: str

    def __str__(self) -> str:
        return f"{self.address} (store {self.peer.store_id}, region {self.region.id})"


class _Tries:
    """What one request has been through."""

    def __init__(self, rng: random.Random | None) -> None:
        self.pauses = Pauses(rng)
        self.avoid: set[int] = set()  # stores that did not answer
        self._counts: Counter[str] = Counter()
        self._last = ""

    def note(self, kind: str, where: object, answer: str) -> None:
        self._counts[kind] += 1
        self._last = f"the last at {where}: {answer}"

    def __str__(self) -> str:
        if not self._counts:
            return "nothing could be tried"
        kinds = ", ".join(f"{kind} {count}" for kind, count in self._counts.most_common())
        return f"{self._counts.total()} tries ({kinds}), {self._last}"


class TikvClient:
    """Requests to all stores of a cluster. One event loop."""

    def __init__(
        self,
        pd: RegionSource,
        *,
        tls: TlsConfig | None = None,
        clock: Clock | None = None,
        dial: Callable[[str], Channel] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.sleep = sleep
        self._pd = pd
        self._dial = dial or (lambda address: Client(address, tls=tls, clock=self.clock, ping_s=PING_S))
        self._rng = rng
        self._regions = RegionCache()
        self._stores: dict[int, Store] = {}
        self._doubted: set[int] = set()  # stores whose address PD is to be asked about again
        self._channels: dict[str, Channel] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._lookups = asyncio.Semaphore(LOOKUPS_MAX)
        self._closed = False

    async def region(self, key: bytes, deadline: Deadline) -> Region:
        """The region that holds a raw key, as far as is known. Raises `Unavailable`, `Rejected`."""
        refuse_keyspace(key)
        region = self._regions.find(key)
        if region is None:
            async with self._lookups:
                region = self._regions.find(key)
                if region is None:
                    answer = await self._pd.region_of(key, deadline_s=max(deadline.left_s, 0.001))
                    self._regions.insert(answer)
                    region = self._regions.find(key) or answer
        return region

    async def send(
        self,
        key: bytes,
        method: str,
        build: Callable[[Region], Message],
        reply_type: type[Reply],
        *,
        timeout_s: float,
        deadline: Deadline,
    ) -> tuple[Reply, Region]:
        """Send what `build` makes for the region that holds `key`; the reply and the region that gave it.

        Asks again until `deadline`, each time for `timeout_s` at most. Raises `Unavailable` then, `Rejected`
        for an answer that no repetition changes, `Corruption` for a reply that cannot be read.
        """
        tries = _Tries(self._rng)
        while not self._closed:
            target: _Target | None = None
            pause: Pause | None = PLACE
            least_s = 0.0
            try:
                target = await self._target(key, tries, deadline)
                if target is not None:
                    reply = await self._call(
                        target, method, build(target.region), reply_type, timeout_s, deadline
                    )
                    if not reply.HasField("region_error"):
                        return reply, target.region
                    error = reply.region_error
                    decision = decide(error)
                    tries.note(decision.kind, target, f"{decision.kind} {error.message}".strip())
                    self._learn(target, decision, tries)
                    pause, least_s = decision.pause, decision.least_s
            except Unavailable as failure:
                tries.note("no answer", target or "PD", failure.message)
                pause = NETWORK
                if target is not None:
                    self._lost(target, tries)
            wait_s = tries.pauses.next_s(pause, least_s)
            if wait_s >= deadline.left_s:
                raise Unavailable(
                    f"TiKV does not answer {method} of {name_of(key)} within {deadline.seconds:g} s: {tries}",
                    hint="check that the store is up and reachable from here",
                )
            if wait_s > 0:
                await self.sleep(wait_s)
        raise Unavailable(f"{method} of {name_of(key)}: the connections to TiKV are closed")

    async def send_by_region(
        self,
        keys: Iterable[bytes],
        method: str,
        build: Callable[[list[bytes]], Message],
        reply_type: type[Reply],
        *,
        timeout_s: float,
        deadline: Deadline,
    ) -> AsyncIterator[tuple[list[bytes], Reply]]:
        """Ask about many keys, one region after the other; the keys of each request and its reply.

        Raises as `send` does.
        """
        rest = sorted(set(keys))
        while rest:
            asked: list[bytes] = []

            def build_for(region: Region, asked: list[bytes] = asked, rest: list[bytes] = rest) -> Message:
                asked[:] = takewhile(region.holds, rest[:KEYS_MAX])
                return build(asked)

            reply, _ = await self.send(
                rest[0], method, build_for, reply_type, timeout_s=timeout_s, deadline=deadline
            )
            rest = rest[len(asked) :]
            yield asked, reply

    async def _call(
        self,
        target: _Target,
        method: str,
        request: Any,
        reply_type: type[Reply],
        timeout_s: float,
        deadline: Deadline,
    ) -> Reply:
        timeout_s = max(min(timeout_s, deadline.left_s), 0.001)
        context, region = request.context, target.region
        context.region_id = region.id
        context.region_epoch.CopyFrom(
            metapb_pb2.RegionEpoch(conf_ver=region.conf_ver, version=region.version)
        )
        context.peer.CopyFrom(peer_message(target.peer))
        context.max_execution_duration_ms = int(timeout_s * 1000)
        context.cluster_id = self._pd.cluster_id
        channel = self._channel(target.address)
        try:
            data = await channel.unary(_SERVICE + method, request.SerializeToString(), timeout_s)
        except RpcStatus as status:
            if status.code == UNIMPLEMENTED:
                raise Rejected(
                    f"{target} does not know {method}", hint="check that PD's stores are TiKV servers"
                ) from status
            raise Unavailable(f"{target} fails: {status.message}") from status
        try:
            return reply_type.FromString(data)
        except DecodeError as error:
            raise Corruption(f"{target} answers {method} with what is no {reply_type.__name__}") from error

    async def _target(self, key: bytes, tries: _Tries, deadline: Deadline) -> _Target | None:
        """Whom to ask; None if what PD says of the region leads nowhere now."""
        region = await self.region(key, deadline)
        peer = _peer(region, tries.avoid)
        if peer is None:
            self._regions.drop(region.id)
            tries.note("no voter", "PD", f"region {region.id} has no voter")
            return None
        store = await self._store(peer.store_id, deadline)
        if store is None:
            self._regions.drop(region.id)
            tries.avoid.add(peer.store_id)
            tries.note("no store", "PD", f"store {peer.store_id} of region {region.id} is gone")
            return None
        return _Target(region, peer, store.address)

    async def _store(self, store_id: int, deadline: Deadline) -> Store | None:
        """As it is known, else as PD says; None if it is gone."""
        store = self._known(store_id)
        if store is None:
            async with self._lookups:
                store = self._known(store_id)
                if store is None:
                    store = await self._pd.store(store_id, deadline_s=max(deadline.left_s, 0.001))
                    store = self._take(store_id, store)
        return store

    def _known(self, store_id: int) -> Store | None:
        return None if store_id in self._doubted else self._stores.get(store_id)

    def _take(self, store_id: int, current: Store | None) -> Store | None:
        """Note what PD says; a connection to a store that is gone ends."""
        gone = current is None or current.state is StoreState.TOMBSTONE or not current.address
        self._doubted.discard(store_id)
        before = self._stores.pop(store_id, None)
        if current is not None and not gone:
            self._stores[store_id] = current
        if before is not None and all(before.address != store.address for store in self._stores.values()):
            self._hang_up(before.address)
        return None if gone else current

    def _channel(self, address: str) -> Channel:
        if self._closed:
            raise Unavailable("the connections to TiKV are closed")
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._dial(address)
        return channel

    def _learn(self, target: _Target, decision: Decision, tries: _Tries) -> None:
        """Change what is known as the region error says."""
        region, change = target.region, decision.change
        if change is CacheChange.FAIL:
            raise Rejected(f"TiKV refuses: {tries}")
        if change is CacheChange.LEADER and decision.leader is not None:
            tries.avoid.discard(decision.leader.store_id)
            if not self._regions.switch_leader(region.id, decision.leader):
                self._drop(region)
        elif change is CacheChange.REGIONS:
            self._replace(target, decision.regions)
        elif change is CacheChange.DROP_REGION:
            self._drop(region)
        elif change is CacheChange.DROP_STORE:
            self._regions.drop_store(target.peer.store_id)
            self._drop(region)
            self._doubted.add(target.peer.store_id)
            self._hang_up(target.address)  # its name may stand for another host by now

    def _replace(self, target: _Target, regions: tuple[Region, ...]) -> None:
        """The regions that are there now; the store that knows them leads them until another is named."""
        if not regions:
            self._drop(target.region)
        for region in regions:
            leader = next((peer for peer in region.peers if peer.store_id == target.peer.store_id), None)
            self._regions.insert(replace(region, leader=leader))

    def _lost(self, target: _Target, tries: _Tries) -> None:
        """The store has not answered. Perhaps only this request: those of others that are on their way
        continue, and a connection that is dead is found out by its pings.
        """
        tries.avoid.add(target.peer.store_id)
        self._drop(target.region)
        self._doubted.add(target.peer.store_id)

    def _drop(self, region: Region) -> None:
        if self._regions.find(region.start_key) is region:  # otherwise it was replaced meanwhile
            self._regions.drop(region.id)

    def _hang_up(self, address: str) -> None:
        channel = self._channels.pop(address, None)
        if channel is not None:
            task = asyncio.get_running_loop().create_task(channel.close(), name=f"close {address}")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """End all calls and connections; who still asks gets `Unavailable`. Idempotent."""
        self._closed = True
        channels, self._channels = self._channels, {}
        await asyncio.gather(*(channel.close() for channel in channels.values()), *self._closing)


def _peer(region: Region, avoid: set[int]) -> Peer | None:
    """The leader, or the first voter in a store that has not failed; with all failed they start over."""
    voters = [peer for peer in region.peers if not peer.is_learner and not peer.is_witness]
    if region.leader is not None:
        voters.insert(0, region.leader)
    for peer in voters:
        if peer.store_id not in avoid:
            return peer
    avoid.clear()
    return voters[0] if voters else None

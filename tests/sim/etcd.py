"""etcd of the world: one store with revisions, leases and watches below the connections of `etcd.client`.

In     the messages that the client sends; Out the messages that etcd would answer
Holds  each request is done at once or not at all, as by one leader; an answer that is lost says nothing of
       whether the request was carried out. A watch gives each change once, in order, or ends
Never  an error that real etcd does not give to such a request

Tests  tests/sim/test_etcd.py
"""

from __future__ import annotations

import asyncio
import functools
from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from tests.sim.network import Network
from tidb_binlog.errors import Unavailable
from tidb_binlog.etcd.client import messages
from tidb_binlog.rpc import DEADLINE_EXCEEDED, NOT_FOUND, UNAVAILABLE, NoAnswer, RpcStatus

HOST: Final = "etcd"
_WAITS_S: Final = 5.0
_revision = itemgetter(0)


@dataclass
class _Pair:
    value: bytes
    created: int
    changed: int
    version: int
    lease: int


@dataclass
class _Lease:
    ttl_s: float
    ends_s: float
    keys: dict[bytes, None] = field(default_factory=dict)


@dataclass
class _Plan:
    """A transaction whose conditions are looked at: what is to be done."""

    succeeded: bool
    steps: list[tuple[Any, _Plan | None]]


class EtcdStore:
    """Keys and what happened to them. `term` rises with each leader."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.loop = network.loop
        self.revision = 1
        self.compacted = 0
        self.term = 2
        self._pairs: dict[bytes, _Pair] = {}
        self._keys: list[bytes] = []  # of the pairs, in order
        self._events: list[tuple[int, list[Any]]] = []
        self._leases: dict[int, _Lease] = {}
        self._next_lease = 1
        self.changed: dict[asyncio.Event, None] = {}
        self.on_put: Callable[[bytes, bytes], None] = lambda key, value: None

    def compact(self) -> None:
        """Nothing of before can be watched."""
        self.compacted = self.revision
        self._events.clear()

    # -- requests --------------------------------------------------------------------------------------

    def range(self, request: Any) -> Any:
        pairs = [self._shown(key) for key in self._within(request.key, request.range_end)]
        shown = pairs[: request.limit or None]
        return messages.RangeResponse(
            header=self.header(), kvs=shown, count=len(pairs), more=len(shown) < len(pairs)
        )

    def txn(self, request: Any) -> Any:
        events: list[Any] = []
        response = self._carried_out(self._plan(request), self.revision + 1, events)
        self._done(events)
        response.header.CopyFrom(self.header())
        return response

    def _plan(self, request: Any) -> _Plan:
        """All conditions, those of transactions inside it too, are about what stands before any change."""
        succeeded = all(map(self._holds, request.compare))
        steps: list[tuple[Any, _Plan | None]] = []
        for operation in request.success if succeeded else request.failure:
            kind = operation.WhichOneof("request")
            if kind == "request_put" and operation.request_put.lease:
                self._lease(operation.request_put.lease)
            steps.append((operation, self._plan(operation.request_txn) if kind == "request_txn" else None))
        return _Plan(succeeded, steps)

    def _carried_out(self, plan: _Plan, revision: int, events: list[Any]) -> Any:
        responses = [self._operation(operation, inner, revision, events) for operation, inner in plan.steps]
        return messages.TxnResponse(succeeded=plan.succeeded, responses=responses)

    def _holds(self, compare: Any) -> bool:
        assert compare.target == messages.Compare.MOD
        assert compare.result == messages.Compare.EQUAL
        pair = self._pairs.get(compare.key)
        return bool(compare.mod_revision == (pair.changed if pair else 0))

    def _operation(self, operation: Any, inner: _Plan | None, revision: int, events: list[Any]) -> Any:
        match operation.WhichOneof("request"):
            case "request_range":
                return messages.ResponseOp(response_range=self.range(operation.request_range))
            case "request_put":
                self._put(operation.request_put, revision, events)
                return messages.ResponseOp(response_put=messages.PutResponse())
            case "request_delete_range":
                request = operation.request_delete_range
                gone = self._within(request.key, request.range_end)
                for key in gone:
                    self._delete(key, revision, events)
                return messages.ResponseOp(
                    response_delete_range=messages.DeleteRangeResponse(deleted=len(gone))
                )
            case _:
                assert inner is not None
                return messages.ResponseOp(response_txn=self._carried_out(inner, revision, events))

    def _put(self, request: Any, revision: int, events: list[Any]) -> None:
        before = self._pairs.get(request.key)
        if before is not None and before.lease in self._leases:
            self._leases[before.lease].keys.pop(request.key, None)
        if request.lease:
            self._lease(request.lease).keys[request.key] = None
        if before is None:
            insort(self._keys, request.key)
        created, version = (before.created, before.version + 1) if before else (revision, 1)
        self._pairs[request.key] = _Pair(request.value, created, revision, version, request.lease)
        events.append(messages.Event(type=messages.Event.PUT, kv=self._shown(request.key)))
        self.on_put(request.key, request.value)

    def _delete(self, key: bytes, revision: int, events: list[Any]) -> None:
        pair = self._pairs.pop(key)
        del self._keys[bisect_left(self._keys, key)]
        if pair.lease in self._leases:
            self._leases[pair.lease].keys.pop(key, None)
        gone = messages.KeyValue(key=key, mod_revision=revision)
        events.append(messages.Event(type=messages.Event.DELETE, kv=gone))

    def _done(self, events: list[Any]) -> None:
        if events:
            self.revision += 1
            self._events.append((self.revision, events))
            for event in self.changed:
                event.set()

    def _within(self, key: bytes, end: bytes) -> list[bytes]:
        if not end:
            return [key] if key in self._pairs else []
        stop = None if end == b"\0" else bisect_left(self._keys, end)
        return self._keys[bisect_left(self._keys, key) : stop]

    def _shown(self, key: bytes) -> Any:
        pair = self._pairs[key]
        return messages.KeyValue(
            key=key,
            value=pair.value,
            create_revision=pair.created,
            mod_revision=pair.changed,
            version=pair.version,
            lease=pair.lease,
        )

    def header(self) -> Any:
        return messages.ResponseHeader(revision=self.revision, raft_term=self.term)

    # -- leases ----------------------------------------------------------------------------------------

    def _lease(self, number: int) -> _Lease:
        if number not in self._leases:
            raise RpcStatus(NOT_FOUND, "etcdserver: requested lease not found")
        return self._leases[number]

    def grant(self, request: Any) -> Any:
        number = self._next_lease
        self._next_lease += 1
        self._leases[number] = _Lease(request.TTL, self.loop.time() + request.TTL)
        self.loop.call_later(request.TTL, self._expire, number)
        return messages.LeaseGrantResponse(header=self.header(), ID=number, TTL=request.TTL)

    def keep_alive(self, request: Any) -> Any:
        lease = self._leases.get(request.ID)
        if lease is None:
            return messages.LeaseKeepAliveResponse(header=self.header(), ID=request.ID, TTL=0)
        lease.ends_s = self.loop.time() + lease.ttl_s
        return messages.LeaseKeepAliveResponse(header=self.header(), ID=request.ID, TTL=int(lease.ttl_s))

    def revoke(self, request: Any) -> Any:
        self._lease(request.ID)
        self._end(request.ID)
        return messages.LeaseRevokeResponse(header=self.header())

    def _expire(self, number: int) -> None:
        lease = self._leases.get(number)
        if lease is None:
            return
        left_s = lease.ends_s - self.loop.time()
        if left_s > 0:
            self.loop.call_later(left_s, self._expire, number)
        else:
            self.network.trace("etcd", "lease ran out", number)
            self._end(number)

    def _end(self, number: int) -> None:
        events: list[Any] = []
        for key in list(self._leases[number].keys):
            self._delete(key, self.revision + 1, events)
        del self._leases[number]
        self._done(events)

    # -- watches ---------------------------------------------------------------------------------------

    def changes(self, request: Any, after: int) -> list[tuple[int, list[Any]]]:
        """What happened in its range after a revision, by revision."""
        newer = self._events[bisect_right(self._events, after, key=_revision) :]
        within = [
            (revision, [event for event in events if request.key <= event.kv.key < request.range_end])
            for revision, events in newer
        ]
        return [(revision, events) for revision, events in within if events]


class SimEndpoint:
    """`rpc.Client` of an etcd client: a connection to the store."""

    def __init__(self, store: EtcdStore, address: str, **_: Any) -> None:
        self.address = address
        self._store = store
        self._unary: dict[str, tuple[Any, Callable[[Any], Any]]] = {
            "/etcdserverpb.KV/Range": (messages.RangeRequest, store.range),
            "/etcdserverpb.KV/Txn": (messages.TxnRequest, store.txn),
            "/etcdserverpb.Lease/LeaseGrant": (messages.LeaseGrantRequest, store.grant),
            "/etcdserverpb.Lease/LeaseRevoke": (messages.LeaseRevokeRequest, store.revoke),
        }

    async def close(self) -> None:
        """Nothing to end: who waits for an answer is cancelled."""

    async def unary(self, path: str, request: bytes, timeout_s: float) -> bytes:
        kind, answer = self._unary[path]
        return await self._ask(path, lambda: answer(kind.FromString(request)), timeout_s)

    async def _ask(self, path: str, answer: Callable[[], Any], timeout_s: float = _WAITS_S) -> bytes:
        async def run() -> bytes:
            data: bytes = answer().SerializeToString()
            return data

        try:
            async with asyncio.timeout(timeout_s):
                data: bytes = await self._store.network.call(HOST, run)
                return data
        except TimeoutError:
            raise NoAnswer(self.address, path, DEADLINE_EXCEEDED, "Deadline Exceeded") from None
        except Unavailable as error:
            raise NoAnswer(self.address, path, UNAVAILABLE, error.message) from None

    async def bidi(
        self, path: str, requests: AsyncIterator[bytes], *, metadata: object = ()
    ) -> AsyncGenerator[bytes, None]:
        answers = self._watched if path.endswith("/Watch") else self._kept_alive
        async for answer in answers(path, requests):
            yield answer

    async def _kept_alive(self, path: str, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for data in requests:
            request = messages.LeaseKeepAliveRequest.FromString(data)
            yield await self._ask(path, functools.partial(self._store.keep_alive, request))

    async def _watched(self, path: str, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        store = self._store
        request = messages.WatchRequest.FromString(await anext(requests)).create_request
        changed = asyncio.Event()
        store.changed[changed] = None
        try:
            after = request.start_revision - 1
            yield await self._ask(path, lambda: self._begun(after))
            while True:
                if after < store.compacted:
                    yield self._begun(after).SerializeToString()
                changed.clear()
                upto = store.revision
                for revision, events in store.changes(request, after):
                    answer = messages.WatchResponse(header=store.header(), events=events)
                    answer.header.revision = revision
                    yield await self._ask(path, lambda answer=answer: answer)
                after = upto
                if after == store.revision:
                    await changed.wait()
        finally:
            store.changed.pop(changed, None)

    def _begun(self, after: int) -> Any:
        store = self._store
        if after < store.compacted:
            return messages.WatchResponse(
                header=store.header(), compact_revision=store.compacted, canceled=True
            )
        return messages.WatchResponse(header=store.header(), created=True)

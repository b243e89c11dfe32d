"""Key-value client of etcd: what the registry and the standalone upstream need of it, and no more.

All reads are linearizable. Several endpoints: one is used until it does not answer, then the next.

Errors: `Unavailable` (no answer in time, no leader, out of space) says nothing about whether a write took
place; `LeaseLost`; `Compacted` for a watch that starts too early; `Rejected` for everything that etcd will
never accept.

Tests  tests/common/etcd/test_registry.py
"""

from __future__ import annotations

import asyncio
import contextlib
import urllib.parse
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final, Self, TypeVar

from google.protobuf.message import Message

from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import BinlogError, ConfigError, Conflict, Rejected, Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net.http_client import HttpClient
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.rpc import (
    ABORTED,
    DEADLINE_EXCEEDED,
    INTERNAL,
    NOT_FOUND,
    OUT_OF_RANGE,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    UNIMPLEMENTED,
    UNKNOWN,
    Client,
    NoAnswer,
    RpcStatus,
)
from tidb_binlog.wire import etcd_pb2 as messages

HINT: Final = "start etcd, or correct its address"
_ADDRESS: Final = "address of PD or etcd"  # a program has no flag for it, a command pd-urls
_CORRECT: Final = "correct the address"
HINT_TLS: Final = "https needs ssl-ca, ssl-cert and ssl-key, and none is given"
REQUEST_TIMEOUT_S: Final = 5.0
_VERSION_BYTES_MAX: Final = 1 << 14
OPS_MAX: Final = 128  # etcd's default limit of operations in a transaction
REQUEST_BYTES_MAX: Final = 1536 * 1024  # etcd's default limit of a request

_PING_S: Final = 10.0
_KV, _LEASE, _WATCH = "/etcdserverpb.KV/", "/etcdserverpb.Lease/", "/etcdserverpb.Watch/"
# A member that has lost the others ends the watch instead of keeping silent.
_NEEDS_LEADER: Final = ((b"hasleader", b"true"),)
_RETRYABLE: Final = frozenset(
    {
        RESOURCE_EXHAUSTED,
        ABORTED,
        UNKNOWN,  # "context deadline exceeded", of a member that waits for others
        INTERNAL,  # of a stream that was reset; etcd never says it
    }
)


_Answer = TypeVar("_Answer")
_Message = TypeVar("_Message", bound=Message)


class LeaseLost(Conflict):
    """The lease has expired or was revoked."""


class Compacted(BinlogError):
    """The revisions that were asked for are gone; list again."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    """`create_revision`: since when the key has been there without a break; 0 where that was not asked."""

    key: bytes
    value: bytes
    mod_revision: int
    create_revision: int = 0


@dataclass(frozen=True, slots=True)
class Deleted:
    """A watch's news that a key is gone."""

    key: bytes
    mod_revision: int


@dataclass(frozen=True, slots=True)
class Lease:
    """`term` is etcd's term of office in which it was granted: it changes with every new leader."""

    id: int
    term: int


@dataclass(frozen=True, slots=True)
class OpResult:
    """What one operation of a transaction gave: pairs of a range, or a nested transaction's result."""

    kvs: tuple[KeyValue, ...] = ()
    nested: TxnResult | None = None


@dataclass(frozen=True, slots=True)
class TxnResult:
    """`revision` is the one under which the writes took place (or the store's, without any)."""

    succeeded: bool
    revision: int
    results: tuple[OpResult, ...]


def mod_is(key: bytes, revision: int) -> messages.Compare:
    """Condition: the key was last changed at `revision`; 0 means it does not exist."""
    return messages.Compare(
        key=key,
        target=messages.Compare.MOD,
        result=messages.Compare.EQUAL,
        mod_revision=revision,
    )


def put(key: bytes, value: bytes, lease: int = 0) -> messages.RequestOp:
    return messages.RequestOp(request_put=messages.PutRequest(key=key, value=value, lease=lease))


def delete(key: bytes) -> messages.RequestOp:
    return messages.RequestOp(request_delete_range=messages.DeleteRangeRequest(key=key))


def get(key: bytes) -> messages.RequestOp:
    return messages.RequestOp(request_range=messages.RangeRequest(key=key))


def nested(
    compare: Sequence[messages.Compare],
    success: Sequence[messages.RequestOp],
    failure: Sequence[messages.RequestOp] = (),
) -> messages.RequestOp:
    """A transaction inside a transaction, decided on its own."""
    request = messages.TxnRequest(compare=compare, success=success, failure=failure)
    return messages.RequestOp(request_txn=request)


def prefix_end(prefix: bytes) -> bytes:
    """The first key after all keys with this prefix."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else b"\0"


def parse_endpoints(text: str) -> list[str]:
    """host:port of each item of a comma list of URLs or host:port. Raises `ConfigError`."""
    endpoints: list[str] = []
    for item in (part.strip() for part in text.split(",")):
        if not item:
            continue
        url = item if "://" in item else f"http://{item}"
        split = urllib.parse.urlsplit(url)
        if split.scheme not in ("http", "https"):
            raise ConfigError(f"{_ADDRESS}: URL scheme must be http or https: {item}", hint=_CORRECT)
        if split.path or split.query or split.fragment:
            raise ConfigError(f"{_ADDRESS}: URL must not contain a path: {item}", hint=_CORRECT)
        try:
            host, port = split.hostname, split.port
        except ValueError:
            host = port = None
        if not host or port is None:
            raise ConfigError(
                f'{_ADDRESS}: URL address does not have the form "host:port": {item}', hint=_CORRECT
            )
        endpoints.append(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    if not endpoints:
        raise ConfigError(f"{_ADDRESS} is empty", hint="give one, as http://HOST:2379")
    return endpoints


class EtcdClient:
    """A connection to a cluster. Construct through `connect`; one event loop."""

    def __init__(self, endpoints: Sequence[str], tls: TlsConfig | None, timeout_s: float) -> None:
        self._tls = tls
        self._endpoints = [Client(address, tls=tls, ping_s=_PING_S) for address in endpoints]
        self._current = 0
        self._timeout_s = timeout_s

    @property
    def addresses(self) -> str:
        return ",".join(endpoint.address for endpoint in self._endpoints)

    @classmethod
    async def connect(
        cls, endpoints: str, *, tls: TlsConfig | None = None, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Self:
        """Connect and check that an endpoint answers within `timeout_s`. Raises `Unavailable`."""
        client = cls(parse_endpoints(endpoints), tls, timeout_s)
        try:
            await client.range(b"\0")
        except BaseException as error:
            await client.close()
            if isinstance(error, Unavailable) and tls is None and "https://" in endpoints:
                raise Unavailable(error.message, hint=HINT_TLS) from None
            raise
        return client

    async def close(self) -> None:
        """End all requests and connections. Idempotent."""
        await asyncio.gather(*(endpoint.close() for endpoint in self._endpoints))

    def _error(self, endpoint: Client, error: NoAnswer | RpcStatus) -> BinlogError:
        code, text = error.code, error.text if isinstance(error, NoAnswer) else error.message
        if isinstance(error, NoAnswer) or code in _RETRYABLE:
            if self._endpoints[self._current] is endpoint:
                self._current = (self._current + 1) % len(self._endpoints)
            where = self.addresses
            if code == UNAVAILABLE and "etcdserver" not in text:
                return Unavailable(f"etcd at {where} cannot be reached", hint=HINT)
            return Unavailable(f"etcd at {where} does not answer: {text}", hint=HINT)
        if code == NOT_FOUND and "lease" in text:
            return LeaseLost("the lease is gone")
        if code == OUT_OF_RANGE:
            return Compacted(f"etcd at {endpoint.address}: {text}")
        if code == UNIMPLEMENTED:
            return Rejected(
                f"what listens on {endpoint.address} is not etcd: {text}", hint="give the address of etcd"
            )
        return Rejected(f"etcd at {endpoint.address} refused: {text}")

    async def _call(self, call: Callable[[Client], Awaitable[_Answer]]) -> _Answer:
        endpoint = self._endpoints[self._current]
        try:
            return await call(endpoint)
        except (NoAnswer, RpcStatus) as error:
            raise self._error(endpoint, error) from None

    async def _read(self, call: Callable[[Client], Awaitable[_Answer]]) -> _Answer:
        """Like `_call`, on every endpoint in turn: reading twice does no harm."""
        for _ in range(len(self._endpoints) - 1):
            with contextlib.suppress(Unavailable):
                return await self._call(call)
        return await self._call(call)

    def _ask(
        self, path: str, request: Message, answer: type[_Message], timeout_s: float | None = None
    ) -> Callable[[Client], Awaitable[_Message]]:
        """One request of `etcdserverpb`, for the endpoint that is to have it."""
        data = request.SerializeToString()

        async def ask(endpoint: Client) -> _Message:
            return answer.FromString(await endpoint.unary(path, data, timeout_s or self._timeout_s))

        return ask

    async def clocks(self, timeout_s: float) -> list[float | None]:
        """What time it is at each endpoint, seconds since 1970, cut to whole ones; None for one that does not
        say: etcd answers HTTP on the port of its clients, unless that takes gRPC alone."""
        http = HttpClient(SystemClock(), self._tls, timeout_s, _VERSION_BYTES_MAX)

        async def date_s(address: str) -> float | None:
            try:
                return (await http.get(address, "/version")).date_s
            except Unavailable:
                return None

        return await asyncio.gather(*(date_s(endpoint.address) for endpoint in self._endpoints))

    async def get(self, key: bytes) -> KeyValue | None:
        request = messages.RangeRequest(key=key)
        response = await self._read(self._ask(f"{_KV}Range", request, messages.RangeResponse))
        return _key_value(response.kvs[0]) if response.kvs else None

    async def range(self, prefix: bytes, first: bytes = b"", limit: int = 0) -> tuple[int, list[KeyValue]]:
        """The store's revision and all pairs under a prefix, ascending; those from the key `first` on, the
        first `limit` of them if it is not 0."""
        request = messages.RangeRequest(key=max(prefix, first), range_end=prefix_end(prefix), limit=limit)
        response = await self._read(self._ask(f"{_KV}Range", request, messages.RangeResponse))
        return response.header.revision, [_key_value(pair) for pair in response.kvs]

    async def txn(
        self,
        compare: Sequence[messages.Compare],
        success: Sequence[messages.RequestOp],
        failure: Sequence[messages.RequestOp] = (),
        *,
        timeout_s: float | None = None,
    ) -> TxnResult:
        """One atomic step. After `Unavailable` it may or may not have taken place."""
        request = messages.TxnRequest(compare=compare, success=success, failure=failure)
        if (size := request.ByteSize()) > REQUEST_BYTES_MAX:
            raise Rejected(f"a request of {size} bytes is larger than etcd's limit of {REQUEST_BYTES_MAX}")
        ask = self._ask(f"{_KV}Txn", request, messages.TxnResponse, timeout_s)
        return _txn_result(await self._call(ask))

    async def read(self, ops: Sequence[messages.RequestOp]) -> TxnResult:
        """Several ranges at one revision."""
        request = messages.TxnRequest(success=ops)
        return _txn_result(await self._read(self._ask(f"{_KV}Txn", request, messages.TxnResponse)))

    async def put(self, key: bytes, value: bytes, lease: int = 0) -> int:
        """Write without a condition; returns the revision."""
        return (await self.txn([], [put(key, value, lease)])).revision

    async def grant(self, ttl_s: int, timeout_s: float | None = None) -> Lease:
        """A new lease; it ends `ttl_s` seconds after the last `keep_alive`."""
        request = messages.LeaseGrantRequest(TTL=ttl_s)
        ask = self._ask(f"{_LEASE}LeaseGrant", request, messages.LeaseGrantResponse, timeout_s)
        response = await self._call(ask)
        return Lease(int(response.ID), int(response.header.raft_term))

    async def keep_alive(self, lease: int, timeout_s: float | None = None) -> int:
        """Extend a lease once; returns etcd's term of office. Raises `LeaseLost`."""
        deadline_s = timeout_s or self._timeout_s

        async def requests() -> AsyncIterator[bytes]:
            yield messages.LeaseKeepAliveRequest(ID=lease).SerializeToString()

        async def extend(endpoint: Client) -> tuple[int, int]:
            path = f"{_LEASE}LeaseKeepAlive"
            try:
                async with asyncio.timeout(deadline_s), aclosing(endpoint.bidi(path, requests())) as answers:
                    async for answer in answers:
                        response = messages.LeaseKeepAliveResponse.FromString(answer)
                        return response.TTL, response.header.raft_term
                    return 0, 0
            except TimeoutError:
                raise NoAnswer(endpoint.address, path, DEADLINE_EXCEEDED, "Deadline Exceeded") from None

        ttl_s, term = await self._call(extend)
        if ttl_s <= 0:
            raise LeaseLost("the lease is gone")
        return term

    async def revoke(self, lease: int) -> None:
        """End a lease now; its keys vanish. A lease that is gone already is fine."""
        request = messages.LeaseRevokeRequest(ID=lease)
        with contextlib.suppress(LeaseLost):
            await self._call(self._ask(f"{_LEASE}LeaseRevoke", request, messages.LeaseRevokeResponse))

    async def watch(
        self, prefix: bytes, start_revision: int
    ) -> AsyncGenerator[tuple[int, list[KeyValue | Deleted]], None]:
        """Changes from `start_revision` on, as (revision, changes); first one with none, when it is set up.

        Ends only by an error: `Unavailable`, `Compacted`.
        """
        endpoint = self._endpoints[self._current]
        create = messages.WatchCreateRequest(
            key=prefix, range_end=prefix_end(prefix), start_revision=start_revision
        )

        async def requests() -> AsyncIterator[bytes]:
            yield messages.WatchRequest(create_request=create).SerializeToString()
            await asyncio.Event().wait()  # etcd ends the watch when the requests end

        watching = endpoint.bidi(f"{_WATCH}Watch", requests(), metadata=_NEEDS_LEADER)
        try:
            async with aclosing(watching) as answers:
                async for answer in answers:
                    response = messages.WatchResponse.FromString(answer)
                    if response.compact_revision:
                        raise Compacted(f"etcd has compacted up to revision {response.compact_revision}")
                    if response.canceled:
                        raise Unavailable(
                            f"etcd at {endpoint.address} ended a watch: {response.cancel_reason}"
                        )
                    yield response.header.revision, [_change(event) for event in response.events]
            raise Unavailable(f"etcd at {endpoint.address} ended a watch", hint=HINT)
        except (NoAnswer, RpcStatus) as error:
            raise self._error(endpoint, error) from None


def _key_value(pair: messages.KeyValue) -> KeyValue:
    return KeyValue(pair.key, pair.value, pair.mod_revision, pair.create_revision)


def _change(event: messages.Event) -> KeyValue | Deleted:
    if event.type == messages.Event.DELETE:
        return Deleted(event.kv.key, event.kv.mod_revision)
    return _key_value(event.kv)


def _txn_result(response: messages.TxnResponse, revision: int = 0) -> TxnResult:
    # Nested responses carry no header of their own.
    revision = response.header.revision or revision
    results: list[OpResult] = []
    for part in response.responses:
        which = part.WhichOneof("response")
        if which == "response_range":
            results.append(OpResult(tuple(_key_value(pair) for pair in part.response_range.kvs)))
        elif which == "response_txn":
            results.append(OpResult(nested=_txn_result(part.response_txn, revision)))
        else:
            results.append(OpResult())
    return TxnResult(response.succeeded, revision, tuple(results))

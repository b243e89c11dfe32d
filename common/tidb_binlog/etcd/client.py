"""Key-value client of etcd: what the registry and the standalone upstream need of it, and no more.

Speaks through aetcd's generated messages and stubs on channels of its own: aetcd's client object knows
neither TLS nor more than one endpoint, and its watcher cannot survive the end of its stream. All reads are
linearizable. Several endpoints: one is used until it does not answer, then the next.

Errors: `Unavailable` (no answer in time, no leader, out of space) says nothing about whether a write took
place; `LeaseLost`; `Compacted` for a watch that starts too early; `Rejected` for everything that etcd will
never accept.

Tests  tests/common/etcd/test_registry.py
"""

from __future__ import annotations

import asyncio
import contextlib
import urllib.parse
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, Self

from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import BinlogError, ConfigError, Conflict, Rejected, Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net.http_client import HttpClient
from tidb_binlog.net.tls import Reread, TlsConfig

with warnings.catch_warnings():
    # Its messages were made by protobuf 5.27. All releases of 6 and 7 take them; 6.31 alone warns of that.
    warnings.filterwarnings("ignore", "Protobuf gencode version", UserWarning)
    from aetcd import rpc as messages

HINT: Final = "start etcd, or correct its address"
_ADDRESS: Final = "address of PD or etcd"  # a program has no flag for it, a command pd-urls
_CORRECT: Final = "correct the address"
HINT_TLS: Final = "https needs ssl-ca, ssl-cert and ssl-key, and none is given"
REQUEST_TIMEOUT_S: Final = 5.0
_VERSION_BYTES_MAX: Final = 1 << 14
OPS_MAX: Final = 128  # etcd's default limit of operations in a transaction
REQUEST_BYTES_MAX: Final = 1536 * 1024  # etcd's default limit of a request

_OPTIONS: Final[tuple[tuple[str, Any], ...]] = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # Without it an unanswered ping of grpcio's own bandwidth probing holds ours back for a minute.
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)
# A member that has lost the others ends the watch instead of keeping silent.
_NEEDS_LEADER: Final = (("hasleader", "true"),)
_RETRYABLE: Final = frozenset(
    {
        messages.StatusCode.UNAVAILABLE,
        messages.StatusCode.DEADLINE_EXCEEDED,
        messages.StatusCode.CANCELLED,
        messages.StatusCode.RESOURCE_EXHAUSTED,
        messages.StatusCode.ABORTED,
        messages.StatusCode.UNKNOWN,  # "context deadline exceeded", of a member that waits for others
        messages.StatusCode.INTERNAL,  # of grpcio for a stream that was reset; etcd never says it
    }
)


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


def mod_is(key: bytes, revision: int) -> Any:
    """Condition: the key was last changed at `revision`; 0 means it does not exist."""
    return messages.Compare(
        key=key,
        target=messages.Compare.MOD,
        result=messages.Compare.EQUAL,
        mod_revision=revision,
    )


def put(key: bytes, value: bytes, lease: int = 0) -> Any:
    return messages.RequestOp(request_put=messages.PutRequest(key=key, value=value, lease=lease))


def delete(key: bytes) -> Any:
    return messages.RequestOp(request_delete_range=messages.DeleteRangeRequest(key=key))


def get(key: bytes) -> Any:
    return messages.RequestOp(request_range=messages.RangeRequest(key=key))


def nested(compare: Sequence[Any], success: Sequence[Any], failure: Sequence[Any] = ()) -> Any:
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


class _Endpoint:
    """One channel and its stubs."""

    def __init__(self, address: str, credentials: Any) -> None:
        self.address = address
        self.credentials = credentials
        if credentials is None:
            self.channel = messages.insecure_channel(address, options=list(_OPTIONS))
        else:
            self.channel = messages.secure_channel(address, credentials, options=list(_OPTIONS))
        self.kv = messages.KVStub(self.channel)
        self.lease = messages.LeaseStub(self.channel)
        self.watch = messages.WatchStub(self.channel)


class EtcdClient:
    """A connection to a cluster. Construct through `connect`; one event loop."""

    def __init__(self, endpoints: Sequence[str], tls: TlsConfig | None, timeout_s: float) -> None:
        self._credentials = tls and Reread(tls, tls.channel_credentials, use="etcd", every_s=1.0)
        self._tls = tls
        credentials = self._credentials.current() if self._credentials else None
        self._endpoints = [_Endpoint(address, credentials) for address in endpoints]
        self._retired: list[_Endpoint] = []
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
        for endpoint in (*self._endpoints, *self._retired):
            await endpoint.channel.close(None)
        self._retired.clear()

    def _error(self, endpoint: _Endpoint, error: messages.AioRpcError) -> BinlogError:
        code, details = error.code(), error.details() or error.code().name
        if code in _RETRYABLE:
            self._renew(endpoint)
            if self._endpoints[self._current].address == endpoint.address:
                self._current = (self._current + 1) % len(self._endpoints)
            where = self.addresses
            if code is messages.StatusCode.UNAVAILABLE and "etcdserver" not in details:
                return Unavailable(f"etcd at {where} cannot be reached", hint=HINT)
            return Unavailable(f"etcd at {where} does not answer: {details}", hint=HINT)
        if code is messages.StatusCode.NOT_FOUND and "lease" in details:
            return LeaseLost("the lease is gone")
        if code is messages.StatusCode.OUT_OF_RANGE:
            return Compacted(f"etcd at {endpoint.address}: {details}")
        if code is messages.StatusCode.UNIMPLEMENTED:
            return Rejected(
                f"what listens on {endpoint.address} is not etcd: {details}", hint="give the address of etcd"
            )
        return Rejected(f"etcd at {endpoint.address} refused: {details}")

    def _renew(self, endpoint: _Endpoint) -> None:
        """A connection that failed is made anew with the certificates that are in force now."""
        credentials = self._credentials.current() if self._credentials else None
        if credentials is not endpoint.credentials and endpoint in self._endpoints:
            self._endpoints[self._endpoints.index(endpoint)] = _Endpoint(endpoint.address, credentials)
            self._retired.append(endpoint)

    async def _call(self, call: Callable[[_Endpoint], Awaitable[Any]]) -> Any:
        endpoint = self._endpoints[self._current]
        try:
            return await call(endpoint)
        except messages.AioRpcError as error:
            raise self._error(endpoint, error) from None
        except messages.BaseError as error:
            raise Unavailable(f"the connection to etcd at {self.addresses} is closed: {error}") from None

    async def _read(self, call: Callable[[_Endpoint], Awaitable[Any]]) -> Any:
        """Like `_call`, on every endpoint in turn: reading twice does no harm."""
        for _ in range(len(self._endpoints) - 1):
            with contextlib.suppress(Unavailable):
                return await self._call(call)
        return await self._call(call)

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
        response = await self._read(lambda endpoint: endpoint.kv.Range(request, timeout=self._timeout_s))
        return _key_value(response.kvs[0]) if response.kvs else None

    async def range(self, prefix: bytes, first: bytes = b"", limit: int = 0) -> tuple[int, list[KeyValue]]:
        """The store's revision and all pairs under a prefix, ascending; those from the key `first` on, the
        first `limit` of them if it is not 0."""
        request = messages.RangeRequest(key=max(prefix, first), range_end=prefix_end(prefix), limit=limit)
        response = await self._read(lambda endpoint: endpoint.kv.Range(request, timeout=self._timeout_s))
        return response.header.revision, [_key_value(pair) for pair in response.kvs]

    async def txn(
        self,
        compare: Sequence[Any],
        success: Sequence[Any],
        failure: Sequence[Any] = (),
        *,
        timeout_s: float | None = None,
    ) -> TxnResult:
        """One atomic step. After `Unavailable` it may or may not have taken place."""
        request = messages.TxnRequest(compare=compare, success=success, failure=failure)
        if (size := request.ByteSize()) > REQUEST_BYTES_MAX:
            raise Rejected(f"a request of {size} bytes is larger than etcd's limit of {REQUEST_BYTES_MAX}")
        deadline_s = timeout_s or self._timeout_s
        return _txn_result(await self._call(lambda endpoint: endpoint.kv.Txn(request, timeout=deadline_s)))

    async def read(self, ops: Sequence[Any]) -> TxnResult:
        """Several ranges at one revision."""
        request = messages.TxnRequest(success=ops)
        return _txn_result(
            await self._read(lambda endpoint: endpoint.kv.Txn(request, timeout=self._timeout_s))
        )

    async def put(self, key: bytes, value: bytes, lease: int = 0) -> int:
        """Write without a condition; returns the revision."""
        return (await self.txn([], [put(key, value, lease)])).revision

    async def grant(self, ttl_s: int, timeout_s: float | None = None) -> Lease:
        """A new lease; it ends `ttl_s` seconds after the last `keep_alive`."""
        request = messages.LeaseGrantRequest(TTL=ttl_s)
        deadline_s = timeout_s or self._timeout_s
        response = await self._call(lambda endpoint: endpoint.lease.LeaseGrant(request, timeout=deadline_s))
        return Lease(int(response.ID), int(response.header.raft_term))

    async def keep_alive(self, lease: int, timeout_s: float | None = None) -> int:
        """Extend a lease once; returns etcd's term of office. Raises `LeaseLost`."""
        deadline_s = timeout_s or self._timeout_s

        async def requests() -> AsyncIterator[Any]:
            yield messages.LeaseKeepAliveRequest(ID=lease)

        async def extend(endpoint: _Endpoint) -> tuple[int, int]:
            call = endpoint.lease.LeaseKeepAlive(requests(), timeout=deadline_s)
            try:
                async for response in call:
                    return int(response.TTL), int(response.header.raft_term)
                return 0, 0
            finally:
                call.cancel()

        answer: tuple[int, int] = await self._call(extend)
        ttl_s, term = answer
        if ttl_s <= 0:
            raise LeaseLost("the lease is gone")
        return term

    async def revoke(self, lease: int) -> None:
        """End a lease now; its keys vanish. A lease that is gone already is fine."""
        request = messages.LeaseRevokeRequest(ID=lease)
        with contextlib.suppress(LeaseLost):
            await self._call(lambda endpoint: endpoint.lease.LeaseRevoke(request, timeout=self._timeout_s))

    async def watch(
        self, prefix: bytes, start_revision: int
    ) -> AsyncGenerator[tuple[int, list[KeyValue | Deleted]], None]:
        """Changes from `start_revision` on, as (revision, changes); first one with none, when it is set up.

        Ends only by an error: `Unavailable`, `Compacted`.
        """
        endpoint = self._endpoints[self._current]
        never = asyncio.Event()

        async def requests() -> AsyncIterator[Any]:
            yield messages.WatchRequest(
                create_request=messages.WatchCreateRequest(
                    key=prefix, range_end=prefix_end(prefix), start_revision=start_revision
                )
            )
            await never.wait()  # etcd ends the watch when the requests end

        try:
            call = endpoint.watch.Watch(requests(), metadata=_NEEDS_LEADER)
        except messages.BaseError as error:
            raise Unavailable(f"the connection to etcd at {self.addresses} is closed: {error}") from None
        try:
            async for response in call:
                if response.compact_revision:
                    raise Compacted(f"etcd has compacted up to revision {response.compact_revision}")
                if response.canceled:
                    raise Unavailable(f"etcd at {endpoint.address} ended a watch: {response.cancel_reason}")
                yield response.header.revision, [_change(event) for event in response.events]
            raise Unavailable(f"etcd at {endpoint.address} ended a watch", hint=HINT)
        except messages.AioRpcError as error:
            raise self._error(endpoint, error) from None
        finally:
            never.set()
            call.cancel()


def _key_value(pair: Any) -> KeyValue:
    return KeyValue(pair.key, pair.value, pair.mod_revision, pair.create_revision)


def _change(event: Any) -> KeyValue | Deleted:
    if event.type == messages.Event.DELETE:
        return Deleted(event.kv.key, event.kv.mod_revision)
    return _key_value(event.kv)


def _txn_result(response: Any, revision: int = 0) -> TxnResult:
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

"""Client: calls to one peer over grpcio channels, one at a time but after a change of the TLS files."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Final

import grpc
import grpc.aio

from tidb_binlog.clock import Clock
from tidb_binlog.errors import BinlogError, ConfigError, Unavailable
from tidb_binlog.net.port import split_address
from tidb_binlog.net.tls import Reread, TlsConfig
from tidb_binlog.rpc.service import CANCELLED, DEADLINE_EXCEEDED, NOT_SENT, UNAVAILABLE, RpcStatus
from tidb_binlog.rpc.tunnel import Tunnel, client_contexts, selects_alpn

TLS_FILES_CHECKED_S: Final = 1.0
# Go servers of old answer pings closer than 5 minutes, or without a call, with GOAWAY.
_PING_S: Final = 310.0
_PONG_S: Final = 20.0
_QUICK_PONG_S: Final = 3.0
_NOWHERE: Final = "127.0.0.1:0"
_SOCKET: Final = "unix:"
_RETRYABLE: Final = frozenset({CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE})
_CHANNEL_OPTIONS: Final[tuple[tuple[str, Any], ...]] = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


class _Channel:
    """One grpcio channel, its stubs and how many calls run on it."""

    __slots__ = ("credentials", "grpcio", "running", "unary")

    def __init__(
        self,
        target: str,
        credentials: grpc.ChannelCredentials | None,
        ping_s: float | None,
        authority: str = "",
    ) -> None:
        options = [*_CHANNEL_OPTIONS, *([("grpc.default_authority", authority)] if authority else [])]
        options.append(("grpc.keepalive_time_ms", round((ping_s or _PING_S) * 1000)))
        options.append(("grpc.keepalive_timeout_ms", round((_QUICK_PONG_S if ping_s else _PONG_S) * 1000)))
        if ping_s:
            # Without it an unanswered ping of grpcio's own bandwidth probing holds ours back for a minute.
            options.append(("grpc.http2.ping_timeout_ms", round(_QUICK_PONG_S * 1000)))
        # The published stubs demand serializers; without any, bytes pass as they are.
        self.grpcio: Any
        if credentials is None:
            self.grpcio = grpc.aio.insecure_channel(target, options=options)
        else:
            self.grpcio = grpc.aio.secure_channel(target, credentials, options=options)
        self.credentials = credentials
        self.unary: dict[str, Any] = {}
        self.running = 0


class Client:
    """Calls to one peer. Connects when first used; reconnects by itself.

    When the TLS files change, calls that start from then on use a new channel; the old one goes when its
    last call ends, so a running stream is not cut. The peer is known by the name in its certificate:
    `TlsConfig.allowed_cn` is for listeners and is not checked here. A peer that selects no ALPN protocol
    (Go nodes select none) is reached through a `Tunnel`.
    """

    def __init__(
        self,
        address: str,
        *,
        tls: TlsConfig | None = None,
        clock: Clock | None = None,
        ping_s: float | None = None,
    ) -> None:
        """`address` is host:port or unix:///path. Calls to any other are `Unavailable`, for it may come from
        the registry.

        Raises `ConfigError` for unusable TLS files.

        `ping_s`: for servers that take pings (PD and TiKV from 10 s on): how often a connection with calls
        is tried, so that a peer that vanished without a word is given up within seconds.
        """
        self.address = address
        self._unusable = ""
        try:
            if not address.startswith(_SOCKET):
                split_address("address", address)
        except ConfigError as error:
            self._unusable = error.message
            address = _NOWHERE
        self._ping_s = ping_s
        self._files: Reread[grpc.ChannelCredentials] | None = None
        self._contexts: Reread[ssl.SSLContext] | None = None
        self._tunnel: Tunnel | None = None
        self._looked = False  # whether the peer selects ALPN is known
        self._looking = asyncio.Lock()
        if tls is not None:
            self._files = Reread(
                tls,
                tls.channel_credentials,
                use=f"channel to {address}",
                every_s=TLS_FILES_CHECKED_S,
                clock=clock,
            )
            self._contexts = client_contexts(tls, address)
        self._channel = _Channel(address, self._files.current() if self._files else None, ping_s)
        self._old: set[_Channel] = set()
        self._closing: set[asyncio.Task[None]] = set()

    async def unary(self, method_path: str, request: bytes, timeout_s: float) -> bytes:
        """One call to `/service/Method`. Raises `Unavailable`, `RpcStatus`."""
        channel = await self._ready()
        call = channel.unary.get(method_path)
        if call is None:
            call = channel.unary[method_path] = channel.grpcio.unary_unary(_path(method_path))
        channel.running += 1
        try:
            reply: bytes = await call(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise self._translate(error, method_path) from None
        except grpc.aio.UsageError as error:
            raise Unavailable(f"connection to {self.address} is closed: {error}") from None
        except asyncio.CancelledError:
            raise self._ended_here(method_path) from None
        finally:
            self._release(channel)
        return reply

    async def server_stream(
        self, path: str, request: bytes, *, gzip: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """Messages until the peer ends the stream. Raises `Unavailable`, `RpcStatus`.

        `gzip`: of gRPC, which servers answer in kind. What comes out of a message has no limit then: it is
        for peers that are trusted, as any stream of theirs is.
        """
        packing = grpc.Compression.Gzip if gzip else None

        def start(grpcio: Any) -> Any:
            return grpcio.unary_stream(_path(path))(request, compression=packing)

        async for reply in self._stream(path, start):
            yield reply

    async def bidi(self, path: str, requests: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Both directions at once; `requests` is read as the peer takes it. Raises as `server_stream`."""
        writer: asyncio.Task[None] | None = None

        def start(grpcio: Any) -> Any:
            nonlocal writer
            call = grpcio.stream_stream(_path(path))()
            writer = asyncio.get_running_loop().create_task(_write_all(call, requests), name=f"send {path}")
            return call

        try:
            async for reply in self._stream(path, start):
                yield reply
        except Unavailable:
            if writer is not None and writer.done() and not writer.cancelled():
                writer.result()  # it may be an error of `requests` that ended the call
            raise
        finally:
            if writer is not None:
                writer.cancel()
                await asyncio.wait({writer})
                if not writer.cancelled():
                    writer.exception()
            close = getattr(requests, "aclose", None)
            if close is not None:
                await close()

    async def _stream(self, path: str, start: Callable[[Any], Any]) -> AsyncIterator[bytes]:
        channel = await self._ready()
        channel.running += 1
        call: Any = None
        try:
            call = start(channel.grpcio)
            async for reply in call:
                yield reply
        except grpc.aio.UsageError as error:
            raise Unavailable(f"connection to {self.address} is closed: {error}") from None
        except grpc.aio.AioRpcError as error:
            raise self._translate(error, path) from None
        except asyncio.CancelledError:
            raise self._ended_here(path) from None
        finally:
            if call is not None:
                call.cancel()
            self._release(channel)

    async def _ready(self) -> _Channel:
        """The channel for a call that begins now. Raises `Unavailable` for an address that is none."""
        if self._unusable:
            raise Unavailable(self._unusable, hint="look at the node's host in the registry")
        return self._channel if self._files is None else await self._latest(self._files)

    async def _latest(self, files: Reread[grpc.ChannelCredentials]) -> _Channel:
        """The channel for a call over TLS that begins now."""
        if not self._looked:
            await self._look(files)
        if self._tunnel is None:
            credentials = files.current()
            if credentials is not self._channel.credentials:
                self._replace(_Channel(self.address, credentials, self._ping_s))
        return self._channel

    async def _look(self, files: Reread[grpc.ChannelCredentials]) -> None:
        """Find out whether the peer selects ALPN, and take the tunnel if it does not.

        Looked again after each lost connection: another node may have taken its place.
        """
        async with self._looking:
            if self._looked or self._contexts is None:
                return
            try:
                direct = await selects_alpn(self.address, self._contexts.current())
            except (OSError, TimeoutError):
                return  # the channel itself says best what is wrong
            self._looked = True
            if direct == (self._tunnel is None):
                return
            tunnel, self._tunnel = self._tunnel, None
            if tunnel is not None:
                self._replace(_Channel(self.address, files.current(), self._ping_s))
                await tunnel.close()
                return
            self._tunnel = Tunnel(self.address, self._contexts)
            await self._tunnel.start()
            self._replace(_Channel(self._tunnel.target, None, self._ping_s, self.address))

    def _replace(self, channel: _Channel) -> None:
        old, self._channel = self._channel, channel
        self._old.add(old)
        self._close_if_over(old)

    def _release(self, channel: _Channel) -> None:
        channel.running -= 1
        if channel is not self._channel:
            self._close_if_over(channel)

    def _close_if_over(self, old: _Channel) -> None:
        if old.running == 0 and old in self._old:
            self._old.remove(old)
            task = asyncio.get_running_loop().create_task(old.grpcio.close(), name=f"close {self.address}")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _ended_here(self, path: str) -> BaseException:
        """grpcio reports a call that `close` ended as a cancellation, although the task was not cancelled."""
        task = asyncio.current_task()
        if task is not None and task.cancelling() == 0:
            return Unavailable(f"{path} was ended: the connection to {self.address} is closed")
        return asyncio.CancelledError()

    def _translate(self, error: grpc.aio.AioRpcError, path: str) -> BinlogError:
        code = error.code().value[0]
        details = error.details() or error.code().name
        if code == UNAVAILABLE:
            self._looked = False
        if code in _RETRYABLE or details == NOT_SENT:
            return Unavailable(
                f"{self.address} does not answer {path}: {details}", hint=f"check that {self.address} is up"
            )
        return RpcStatus(code, details)

    async def close(self) -> None:
        """End all calls and the connection. Idempotent."""
        self._files = None
        old, self._old = self._old, set()
        for channel in (self._channel, *old):
            await channel.grpcio.close()
        if self._closing:
            await asyncio.wait(self._closing)
        if self._tunnel is not None:
            await self._tunnel.close()


async def _write_all(call: Any, requests: AsyncIterator[bytes]) -> None:
    """Send `requests` as the peer takes them; if they fail, the call fails."""
    try:
        async for request in requests:
            await call.write(request)
        await call.done_writing()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        pass  # the call is over; its reader learns why
    except BaseException:
        call.cancel()
        raise


def _path(path: str) -> str:
    return path if path.startswith("/") else f"/{path}"

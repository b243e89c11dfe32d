"""gRPC transport: services are plain async functions from bytes to bytes; this module carries them.

The server is grpcio's; a service knows nothing of it and runs without it in tests. Errors cross the wire as
a status with the error's text: `Unavailable` as UNAVAILABLE, `Corruption` as DATA_LOSS, an `RpcStatus` as
what it says, every other `BinlogError` as UNKNOWN, which is what Go peers expect of a failed handler. What
is not a `BinlogError` is our mistake: logged with its traceback, INTERNAL to the peer.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import grpc
import grpc.aio

from common import log
from common.errors import BinlogError, ConfigError, Corruption, PortTaken, Unavailable
from common.tls import TlsConfig

Unary = Callable[[bytes], Awaitable[bytes]]
ServerStream = Callable[[bytes], AsyncIterator[bytes]]
BidiStream = Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]]

CANCELLED: Final = 1
UNKNOWN: Final = 2
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
RESOURCE_EXHAUSTED: Final = 8
FAILED_PRECONDITION: Final = 9
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
DATA_LOSS: Final = 15

RECEIVE_BYTES_MAX: Final = 2**31 - 1
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_RETRYABLE: Final = frozenset({CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE})

_SERVER_OPTIONS: Final[tuple[tuple[str, Any], ...]] = (
    ("grpc.so_reuseport", 0),  # otherwise a second process on our port would go unnoticed
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),  # old clients ping as they like
    ("grpc.http2.max_pings_without_data", 0),
)
_CHANNEL_OPTIONS: Final[tuple[tuple[str, Any], ...]] = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Go servers of old answer pings closer than 5 minutes, or without a call, with GOAWAY.
    ("grpc.keepalive_time_ms", 310_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)

_logger = log.get("rpc")


class RpcStatus(BinlogError):
    """An answer with a precise gRPC status: raised by handlers to send one, by clients that got one."""

    def __init__(self, code: int, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code


@dataclass(frozen=True)
class Service:
    """One gRPC service: full name (`binlog.Pump`) and its methods by name."""

    name: str
    unary: Mapping[str, Unary] = field(default_factory=dict)
    server_streams: Mapping[str, ServerStream] = field(default_factory=dict)
    bidi_streams: Mapping[str, BidiStream] = field(default_factory=dict)


def status_of(error: BaseException) -> tuple[int, str]:
    """gRPC code and text under which an error crosses the wire."""
    if isinstance(error, RpcStatus):
        return error.code, str(error)
    if isinstance(error, Unavailable):
        return UNAVAILABLE, str(error)
    if isinstance(error, Corruption):
        return DATA_LOSS, str(error)
    if isinstance(error, BinlogError):
        return UNKNOWN, str(error)
    return INTERNAL, "internal error, see the server's log"


async def _abort(context: grpc.aio.ServicerContext[Any, Any], method: str, error: Exception) -> NoReturn:
    code, text = status_of(error)
    if code == INTERNAL and not isinstance(error, BinlogError):
        _logger.failure("handler failed", error, method=method)
    await context.abort(_CODES.get(code, grpc.StatusCode.UNKNOWN), text)
    raise AssertionError("abort returned")


def _unary_handler(method: str, handler: Unary) -> grpc.RpcMethodHandler[bytes, bytes]:
    async def call(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        try:
            return await handler(request)
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            await _abort(context, method, error)

    return grpc.unary_unary_rpc_method_handler(call)


def _stream_handler(
    method: str, handler: Callable[[Any], AsyncIterator[bytes]], make: Callable[[Any], Any]
) -> grpc.RpcMethodHandler[bytes, bytes]:
    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
        # The handler's generator is closed whatever ends the call: a peer that went away cancels us here.
        replies = handler(request)
        try:
            async for reply in replies:
                yield reply
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            await _abort(context, method, error)
        finally:
            close = getattr(replies, "aclose", None)
            if close is not None:
                await close()

    handler_object: grpc.RpcMethodHandler[bytes, bytes] = make(call)
    return handler_object


def _generic_handler(service: Service) -> grpc.GenericRpcHandler[Any, Any]:
    methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {}
    for name, unary in service.unary.items():
        methods[name] = _unary_handler(f"{service.name}/{name}", unary)
    for name, stream in service.server_streams.items():
        methods[name] = _stream_handler(
            f"{service.name}/{name}", stream, grpc.unary_stream_rpc_method_handler
        )
    for name, bidi in service.bidi_streams.items():
        methods[name] = _stream_handler(f"{service.name}/{name}", bidi, grpc.stream_stream_rpc_method_handler)
    return grpc.method_handlers_generic_handler(service.name, methods)


class Server:
    """A running server. `port` is the real one, also when 0 was asked for."""

    def __init__(self, server: grpc.aio.Server, port: int) -> None:
        self._server = server
        self.port = port

    async def stop(self, grace_s: float) -> None:
        """Take no new calls, let the running ones end for `grace_s` seconds, then cancel them."""
        await self._server.stop(grace_s)


def check_port_free(host: str, port: int, flag: str = "--addr") -> None:
    """Raise `PortTaken` when nobody could listen there now."""
    if port == 0:
        return
    bare = host.strip("[]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bare, port))
        except OSError as error:
            raise port_taken(host, port, error, flag) from None


def port_taken(host: str, port: int, error: OSError, flag: str = "--addr") -> ConfigError:
    """The error for an address on which listening failed."""
    where = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return PortTaken(
            f"cannot listen on {where}: the port is taken",
            hint=f"stop the process that uses port {port} or choose another with {flag}",
        )
    reason = error.strerror or str(error)
    return PortTaken(
        f"cannot listen on {where}: {reason}", hint=f"choose an address of this host with {flag}"
    )


async def serve(
    services: Sequence[Service],
    host: str,
    port: int,
    *,
    tls: TlsConfig | None = None,
    receive_bytes_max: int = RECEIVE_BYTES_MAX,
    flag: str = "--addr",
) -> Server:
    """Start serving. `port` 0 takes a free one; `flag` set it. Raises `PortTaken`, `ConfigError`."""
    check_port_free(host, port, flag)
    limit = receive_bytes_max if receive_bytes_max < RECEIVE_BYTES_MAX else -1
    server = grpc.aio.server(options=[*_SERVER_OPTIONS, ("grpc.max_receive_message_length", limit)])
    server.add_generic_rpc_handlers(tuple(_generic_handler(service) for service in services))
    target = f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
    try:
        if tls is None:
            bound = server.add_insecure_port(target)
        else:
            bound = server.add_secure_port(target, tls.server_credentials())
        if bound == 0:
            raise RuntimeError("no address could be bound")
    except RuntimeError as error:
        await server.stop(None)
        raise port_taken(host, port, OSError(0, str(error)), flag) from None
    except BaseException:
        await server.stop(None)
        raise
    await server.start()
    return Server(server, bound)


class Client:
    """Calls to one peer. Connects when first used; reconnects by itself."""

    def __init__(self, address: str, *, tls: TlsConfig | None = None) -> None:
        """`address` is host:port. Raises `ConfigError` for unusable TLS files."""
        self.address = address
        options = list(_CHANNEL_OPTIONS)
        # The published stubs demand serializers; without any, bytes pass as they are.
        self._channel: Any
        if tls is None:
            self._channel = grpc.aio.insecure_channel(address, options=options)
        else:
            self._channel = grpc.aio.secure_channel(address, tls.channel_credentials(), options=options)
        self._unary: dict[str, Any] = {}

    async def unary(self, method_path: str, request: bytes, timeout_s: float) -> bytes:
        """One call to `/service/Method`. Raises `Unavailable`, `RpcStatus`."""
        call = self._unary.get(method_path)
        if call is None:
            call = self._unary[method_path] = self._channel.unary_unary(_path(method_path))
        try:
            reply: bytes = await call(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise self._translate(error, method_path) from None
        except grpc.aio.UsageError as error:
            raise Unavailable(f"connection to {self.address} is closed: {error}") from None
        except asyncio.CancelledError:
            raise self._ended_here(method_path) from None
        return reply

    async def server_stream(self, path: str, request: bytes) -> AsyncGenerator[bytes, None]:
        """Messages until the peer ends the stream. Raises `Unavailable`, `RpcStatus`."""
        async for reply in self._stream(path, lambda: self._channel.unary_stream(_path(path))(request)):
            yield reply

    async def bidi(self, path: str, requests: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Both directions at once; `requests` is read as the peer takes it. Raises as `server_stream`."""
        writer: asyncio.Task[None] | None = None

        def start() -> Any:
            nonlocal writer
            call = self._channel.stream_stream(_path(path))()
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

    async def _stream(self, path: str, start: Callable[[], Any]) -> AsyncIterator[bytes]:
        try:
            call = start()
        except grpc.aio.UsageError as error:
            raise Unavailable(f"connection to {self.address} is closed: {error}") from None
        try:
            async for reply in call:
                yield reply
        except grpc.aio.AioRpcError as error:
            raise self._translate(error, path) from None
        except asyncio.CancelledError:
            raise self._ended_here(path) from None
        finally:
            call.cancel()

    def _ended_here(self, path: str) -> BaseException:
        """grpcio reports a call that `close` ended as a cancellation, although nobody cancelled the task."""
        task = asyncio.current_task()
        if task is not None and task.cancelling() == 0:
            return Unavailable(f"{path} was ended: the connection to {self.address} is closed")
        return asyncio.CancelledError()

    def _translate(self, error: grpc.aio.AioRpcError, path: str) -> BinlogError:
        code = error.code().value[0]
        details = error.details() or error.code().name
        if code in _RETRYABLE:
            return Unavailable(
                f"{self.address} does not answer {path}: {details}", hint=f"check that {self.address} is up"
            )
        return RpcStatus(code, details)

    async def close(self) -> None:
        """End all calls and the connection. Idempotent."""
        await self._channel.close()


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

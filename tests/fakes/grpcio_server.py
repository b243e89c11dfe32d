"""grpcio's server with the same registration as the door: a peer whose HTTP/2 is not ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import grpc
import grpc.aio

from tidb_binlog.errors import BinlogError
from tidb_binlog.net.port import check_port_free, port_taken
from tidb_binlog.net.tls import Reread, TlsConfig
from tidb_binlog.observe import log
from tidb_binlog.rpc.service import INTERNAL, RECEIVE_BYTES_MAX, RpcStatus, Service, status_of

_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_SERVER_OPTIONS: Final[tuple[tuple[str, Any], ...]] = (
    ("grpc.so_reuseport", 0),  # otherwise a second process on our port would go unnoticed
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),  # old clients ping as they like
    ("grpc.http2.max_pings_without_data", 0),
)
_logger = log.get("rpc")


async def _abort(context: grpc.aio.ServicerContext[Any, Any], method: str, error: Exception) -> NoReturn:
    code, text = status_of(error)
    if code == INTERNAL and not isinstance(error, BinlogError):
        _logger.failure("handler failed", error, method=method)
    if isinstance(error, RpcStatus) and error.details:
        context.set_trailing_metadata((("grpc-status-details-bin", error.details),))
    await context.abort(_CODES.get(code, grpc.StatusCode.UNKNOWN), text)
    raise AssertionError("abort returned")


def _unary_handler(
    method: str, handler: Callable[[Any], Awaitable[bytes]], make: Callable[[Any], Any]
) -> grpc.RpcMethodHandler[bytes, bytes]:
    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        try:
            return await handler(request)
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            await _abort(context, method, error)

    handler_object: grpc.RpcMethodHandler[bytes, bytes] = make(call)
    return handler_object


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
    for name, unary in {**service.unary, **service.inline}.items():
        methods[name] = _unary_handler(f"{service.name}/{name}", unary, grpc.unary_unary_rpc_method_handler)
    for name, stream in service.server_streams.items():
        methods[name] = _stream_handler(
            f"{service.name}/{name}", stream, grpc.unary_stream_rpc_method_handler
        )
    for name, collect in service.client_streams.items():
        methods[name] = _unary_handler(
            f"{service.name}/{name}", collect, grpc.stream_unary_rpc_method_handler
        )
    for name, bidi in service.bidi_streams.items():
        methods[name] = _stream_handler(f"{service.name}/{name}", bidi, grpc.stream_stream_rpc_method_handler)
    return grpc.method_handlers_generic_handler(service.name, methods)


class Server:
    """A running server. `port` is the real one, also when 0 was asked for."""

    def __init__(self, server: grpc.aio.Server, port: int) -> None:
        self._server = server
        self._stopping = asyncio.Lock()  # grpcio dies of two stops at once
        self.port = port

    async def stop(self, grace_s: float | None) -> None:
        """Take no new calls, let the running ones end for `grace_s` seconds, then cancel them.

        A second stop waits for the first one.
        """
        async with self._stopping:
            await self._server.stop(grace_s)


def _credentials(tls: TlsConfig) -> grpc.ServerCredentials:
    """Every handshake asks for the current files."""

    def build() -> Any:
        tls.server_tls()  # says what is wrong with them
        ca, cert, key = (Path(path).read_bytes() for path in (tls.ca, tls.cert, tls.key))
        return grpc.ssl_server_certificate_configuration([(key, cert)], root_certificates=ca)

    files = Reread(tls, build, use="grpcio listener")
    latest = first = files.current()

    def fetch() -> Any:
        # None: no change. grpcio holds a lock around this and its taking over of the answer.
        nonlocal latest
        given, latest = latest, files.current()
        return None if latest is given else latest

    return grpc.dynamic_ssl_server_credentials(first, fetch, require_client_authentication=True)


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
            bound = server.add_secure_port(target, _credentials(tls))
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

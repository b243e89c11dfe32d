"""Client: calls to one peer over a grpcio channel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Final

import grpc
import grpc.aio

from common.errors import BinlogError, Unavailable
from common.rpc.service import CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE, RpcStatus
from common.tls import TlsConfig

_RETRYABLE: Final = frozenset({CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE})
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

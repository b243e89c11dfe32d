"""HTTP/1.1 for operators: status, metrics, state changes. Small on purpose.

Owns   one listener and a task per connection
Stops  closes the listener, lets the answer under way finish, drops idle connections
Never  serves from a browser: a changing request that carries `Origin` is refused (DNS rebinding)

Unknown path 404, wrong method 405 with an empty body, as the Go nodes answer. Limits: bytes of a request
head, bytes of a body, seconds a connection may be silent, connections at once.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

from common import log, rpc

JSON_TYPE: Final = "application/json; charset=UTF-8"
TEXT_TYPE: Final = "text/plain; charset=utf-8"
HEAD_BYTES_MAX: Final = 16 * 1024
BODY_BYTES_MAX: Final = 1024 * 1024
IDLE_S: Final = 30.0
CONNECTIONS_MAX: Final = 256
_READ_BYTES: Final = 16 * 1024

_logger = log.get("status_http")


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes = b""
    content_type: str = TEXT_TYPE


Handler = Callable[[dict[str, str]], Awaitable[Response]]


def json_response(doc: Any, indent: int | None = None, *, status: int = 200) -> Response:
    """A JSON answer; compact, or indented as the Go nodes indent."""
    separators = (",", ":") if indent is None else (",", ": ")
    body = json.dumps(doc, indent=indent, separators=separators, ensure_ascii=False)
    return Response(status, body.encode() + b"\n", JSON_TYPE)


class Routes:
    """Which handler answers what. `{name}` in a pattern matches one path segment."""

    def __init__(self) -> None:
        self._routes: list[tuple[str, re.Pattern[str], Handler]] = []

    def add(self, method: str, pattern: str, handler: Handler) -> None:
        """`method` `*` stands for any. The handler gets path parts and query parameters, decoded."""
        parts = re.split(r"\{(\w+)\}", pattern)
        expression = "".join(
            f"(?P<{part}>[^/]+)" if number % 2 else re.escape(part) for number, part in enumerate(parts)
        )
        self._routes.append((method.upper(), re.compile(expression), handler))

    async def answer(self, method: str, target: str) -> Response:
        """Find and run the handler; never raises."""
        split = urlsplit(target)
        wanted = "GET" if method == "HEAD" else method
        path_known = False
        for route_method, pattern, handler in self._routes:
            match = pattern.fullmatch(split.path)
            if match is None:
                continue
            if route_method not in ("*", wanted):
                path_known = True
                continue
            params = dict(parse_qsl(split.query))
            params |= {name: unquote(value) for name, value in match.groupdict().items()}
            try:
                return await handler(params)
            except Exception as error:
                _logger.failure("request failed", error, method=method, path=split.path)
                return Response(500, b"internal error, see the log\n")
        return Response(405) if path_known else Response(404, b"404 page not found\n")


@dataclass(frozen=True, slots=True)
class Limits:
    head_bytes_max: int = HEAD_BYTES_MAX
    body_bytes_max: int = BODY_BYTES_MAX
    idle_s: float = IDLE_S
    connections_max: int = CONNECTIONS_MAX


class HttpServer:
    """A running listener."""

    def __init__(self, routes: Routes, limits: Limits) -> None:
        self._routes = routes
        self._limits = limits
        self._connections: dict[asyncio.Task[None], _Connection] = {}
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        """Raises `OSError`."""
        self._server = await asyncio.start_server(
            self._accept, host, port, ssl=context, limit=_READ_BYTES, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connection = _Connection(self._routes, self._limits, reader, writer)
        if len(self._connections) >= self._limits.connections_max:
            writer.transport.abort()
            return
        self._connections[task] = connection
        try:
            await connection.run()
        except asyncio.CancelledError:
            pass  # stop() ends us; the stream machinery would report the cancellation as an error
        finally:
            del self._connections[task]
            writer.transport.abort() if writer.transport.is_closing() else writer.close()

    async def stop(self, grace_s: float = 1.0) -> None:
        """Close the listener and all connections. Idempotent."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        for task, connection in list(self._connections.items()):
            if not connection.answering:
                task.cancel()
        if self._connections:
            _, late = await asyncio.wait(set(self._connections), timeout=grace_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)


class _Connection:
    def __init__(
        self, routes: Routes, limits: Limits, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._routes = routes
        self._limits = limits
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes_max)
        self.answering = False

    async def run(self) -> None:
        """Serve requests until the peer leaves, is silent for too long, or breaks the protocol."""
        try:
            while await self._one_request():
                self._http.start_next_cycle()
        except (ConnectionError, TimeoutError, ssl.SSLError):
            pass

    async def _next_event(self) -> Any:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            if self._http.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            async with asyncio.timeout(self._limits.idle_s):
                data = await self._reader.read(_READ_BYTES)
            self._http.receive_data(data)

    async def _one_request(self) -> bool:
        try:
            request = await self._next_event()
            if not isinstance(request, h11.Request):
                return False
            self.answering = True
            if _head_bytes(request) > self._limits.head_bytes_max:
                await self._reply("GET", Response(431), close=True)
                return False
            too_large = await self._skip_body()
        except h11.RemoteProtocolError as error:
            if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                await self._reply("GET", Response(error.error_status_hint, b"bad request\n"), close=True)
            return False
        method = request.method.decode("ascii")
        if too_large:
            await self._reply(method, Response(413), close=True)
            return False
        names = {name for name, _ in request.headers}
        if method not in ("GET", "HEAD") and b"origin" in names:
            response = Response(403, b"requests from web pages are refused\n")
        else:
            response = await self._routes.answer(method, request.target.decode("latin-1"))
        await self._reply(method, response, close=False)
        self.answering = False
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _skip_body(self) -> bool:
        """Read the body away; True when it is larger than allowed."""
        size = 0
        while True:
            event = await self._next_event()
            if isinstance(event, h11.Data):
                size += len(event.data)
                if size > self._limits.body_bytes_max:
                    return True
            else:
                return False

    async def _reply(self, method: str, response: Response, *, close: bool) -> None:
        headers = [("content-length", str(len(response.body)))]
        if response.body:
            headers.append(("content-type", response.content_type))
        if close:
            headers.append(("connection", "close"))
        await self._send(
            h11.Response(status_code=response.status, headers=headers, reason=_reason(response.status))
        )
        if method != "HEAD" and response.body:
            await self._send(h11.Data(data=response.body))
        await self._send(h11.EndOfMessage())

    async def _send(self, event: Any) -> None:
        data = self._http.send(event)
        if data:
            self._writer.write(data)
            async with asyncio.timeout(self._limits.idle_s):
                await self._writer.drain()


async def serve(
    routes: Routes,
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    limits: Limits | None = None,
    flag: str = "--addr",
) -> HttpServer:
    """Start listening; `port` 0 takes a free one; `flag` set it. Raises `PortTaken`."""
    server = HttpServer(routes, limits or Limits())
    try:
        await server.start(host, port, tls)
    except OSError as error:
        raise rpc.port_taken(host, port, error, flag) from None
    return server


def _reason(status: int) -> bytes:
    try:
        return HTTPStatus(status).phrase.encode()
    except ValueError:
        return b""


def _head_bytes(request: h11.Request) -> int:
    return len(request.target) + sum(len(name) + len(value) + 4 for name, value in request.headers)

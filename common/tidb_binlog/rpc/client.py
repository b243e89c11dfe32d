"""Client: calls to one peer over one connection, a new one where that is gone or the TLS files changed.

Drives  `Connection`s: octets from and to a socket, deadlines, pings, who waits for room
Holds   a call that the peer has certainly not begun is made once more; every other one ends by what became of
        it. A peer that vanished without a word is given up by a ping, or by a call that heard nothing
Why     no thread: what a node does at rest is what it is asked. And TLS without ALPN, which Go nodes have
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final, cast

from tidb_binlog.clock import Clock
from tidb_binlog.errors import BinlogError, ConfigError, Unavailable
from tidb_binlog.net.port import split_address
from tidb_binlog.net.tls import Reread, TlsConfig
from tidb_binlog.rpc.call_headers import Fields
from tidb_binlog.rpc.connection import PING_FRAME, Call, Connection
from tidb_binlog.rpc.message_framing import deflate
from tidb_binlog.rpc.service import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    INTERNAL,
    OK,
    UNAVAILABLE,
    NoAnswer,
    RpcStatus,
)

TLS_FILES_CHECKED_S: Final = 1.0
CONNECT_S: Final = 5.0
# Go servers of old answer pings closer than 5 minutes, or without a call, with GOAWAY.
_PING_S: Final = 310.0
_PONG_S: Final = 20.0
_QUICK_PONG_S: Final = 3.0
_AGAIN_S, _AGAIN_MAX_S = 0.1, 1.0  # after a connection that failed
_SILENT_S: Final = 1.0
_GOODBYE_S: Final = 0.5  # a peer on the next continent answers within it
_TRIES: Final = 3
_BURST_BYTES: Final = 1 << 18
_QUEUED_BYTES: Final = 1 << 16  # a stream's requests are read ahead of the peer so far
_BACKLOG_BYTES_MAX: Final = 16 << 20
_EXCEEDED: Final = "Deadline Exceeded"
_SOCKET: Final = "unix:"
_RETRYABLE: Final = frozenset({CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE})

End = tuple[int, str, bool]  # code, text, whether the peer may have begun


class Link(asyncio.Protocol):
    """One connection of a client and its socket. `retired`: no further calls, and it ends with its last."""

    def __init__(self, authority: str, context: ssl.SSLContext | None, ping_s: float | None) -> None:
        self.connection = Connection(authority, secure=context is not None)
        self.context = context
        self.retired = False
        self.waiting: deque[asyncio.Future[None]] = deque()  # for room
        self._loop = asyncio.get_running_loop()
        self.lost = self._loop.create_future()
        self.heard_s = self._loop.time()
        self._ping_s, self._pong_s = ping_s or _PING_S, _QUICK_PONG_S if ping_s else _PONG_S
        self._pinged_s = 0.0  # 0: nothing is waited for
        self._is_doubted = False  # the answer is late
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._is_paused = False
        self._transport: asyncio.Transport

    # -- the socket ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass
        self._flush()

    def data_received(self, data: bytes) -> None:
        self.heard_s = self._loop.time()
        self.connection.receive(data)
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
        self.end(f"the connection is lost: {error or 'the peer closed it'}")

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._flush()

    def end(self, fault: str) -> None:
        """End all calls, and the connection when its socket has sent what it has. Idempotent."""
        self.connection.lose(fault)
        for handle in (self._timer, self._soon):
            if handle is not None:
                handle.cancel()
        self._timer = None
        self._flush()

    def abort(self) -> None:
        self._transport.abort()

    def flush_soon(self) -> None:
        """Send what calls of this turn of the loop have to say, in one piece."""
        if self._soon is None:
            self._soon = self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._soon = None
        connection, out = self.connection, self.connection.out
        if not self.lost.done():
            self._send(connection, out)
        room = connection.streams_max - len(connection.calls) if connection.takes_calls else len(self.waiting)
        for _ in range(min(room, len(self.waiting))):
            if not (waiter := self.waiting.popleft()).done():
                waiter.set_result(None)

    def _send(self, connection: Connection, out: list[bytes | memoryview]) -> None:
        while not self._is_paused and (out or connection.can_produce):
            connection.produce(_BURST_BYTES)
            self._write(out)
        if out and connection.fault:
            self._write(out)
        if self._transport.get_write_buffer_size() > _BACKLOG_BYTES_MAX:
            connection.lose("the peer asks for answers that it does not read")
            self.abort()
        elif connection.fault or (not connection.calls and (self.retired or connection.leaves)):
            self._transport.close()

    def _write(self, out: list[bytes | memoryview]) -> None:
        if out and not self._transport.is_closing():
            self._transport.write(b"".join(out))
        out.clear()

    # -- calls -----------------------------------------------------------------------------------------

    def begin(
        self,
        reply: _Reply,
        path: str,
        timeout_s: float | None,
        gzip: bool = False,
        more: Fields = (),
    ) -> None:
        reply.link, reply.call = self, self.connection.begin(reply, path, timeout_s, gzip, more)
        if self._timer is None:
            self._timer = self._loop.call_later(self._ping_s, self._look)
        self.flush_soon()

    async def room(self) -> None:
        """Until there may be room for a call, or none is taken any more."""
        waiter = self._loop.create_future()
        self.waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            self.flush_soon()  # the next one's turn
            raise

    def _look(self) -> None:
        """Whether the peer is there still: asked where nothing was heard while calls run."""
        self._timer = None
        now_s = self._loop.time()
        if self._pinged_s and self.heard_s < self._pinged_s:
            if self._is_doubted:
                self.connection.lose(f"no answer to a ping within {self._pong_s:g} s")
                self.abort()
                return
            self._is_doubted = True  # what has come while this process stood still is read first
            self._timer = self._loop.call_later(self._pong_s / 10, self._look)
            return
        self._pinged_s, self._is_doubted = 0.0, False
        if not self.connection.calls:
            return
        wait_s = self.heard_s + self._ping_s - now_s
        if wait_s <= 0:
            self.connection.out.append(PING_FRAME)
            self._pinged_s, wait_s = now_s, self._pong_s
            self.flush_soon()
        self._timer = self._loop.call_later(wait_s, self._look)

    def gives_up(self, since_s: float) -> None:
        """A call's time is up; if nothing at all was heard meanwhile, further ones do not go there."""
        if self._loop.time() - max(self.heard_s, since_s) >= _SILENT_S:
            self.retired = True


class _Reply:
    """What comes of one call: its messages and its end."""

    __slots__ = ("_loop", "_room", "_wake", "call", "end", "link", "messages")

    link: Link
    call: Call

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake: asyncio.Future[None] | None = None  # of the reader
        self._room: asyncio.Future[None] | None = None  # of the writer
        self.messages: deque[tuple[bytes, int]] = deque()
        self.end: End | None = None

    def on_message(self, message: bytes, size: int) -> None:
        self.messages.append((message, size))
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def on_sent(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def on_end(self, code: int, text: str, is_processed: bool) -> None:
        if self.end is None:
            self.end = (code, text, is_processed)
        for waiter in (self._wake, self._room):
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    async def news(self) -> None:
        """Until a message or the end has come."""
        self._wake = self._loop.create_future()
        await self._wake

    async def sent(self) -> None:
        """Until nothing is queued, or the end has come."""
        self._room = self._loop.create_future()
        await self._room

    def take(self) -> bytes:
        message, size = self.messages.popleft()
        self.link.connection.taken(self.call, size)
        if self.link.connection.out:
            self.link.flush_soon()
        return message

    def expire(self) -> None:
        self.give_up()
        self.on_end(DEADLINE_EXCEEDED, _EXCEEDED, True)

    def give_up(self) -> None:
        """Nobody waits for it any more."""
        if self.link.connection.cancel(self.call):
            self.link.flush_soon()


class Client:
    """Calls to one peer. Connects when first used; reconnects by itself.

    When the TLS files change, calls that start from then on use a new connection; the old one goes when its
    last call ends, so a running stream is not cut. The peer is known by the name in its certificate:
    `TlsConfig.allowed_cn` is for listeners and is not checked here.
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
        self._target = ("", 0)
        try:
            if not address.startswith(_SOCKET):
                self._target = split_address("address", address)
        except ConfigError as error:
            self._unusable = error.message
        self._ping_s = ping_s
        self._contexts: Reread[ssl.SSLContext] | None = None
        if tls is not None:

            def build() -> ssl.SSLContext:
                context = tls.client_context()
                context.set_alpn_protocols(["h2"])  # offered; who selects none is spoken to as well
                return context

            self._contexts = Reread(
                tls, build, use=f"client of {address}", every_s=TLS_FILES_CHECKED_S, clock=clock
            )
        self._link: Link | None = None
        self._links: set[Link] = set()  # all whose sockets are open
        self._connecting: asyncio.Task[None] | None = None
        self._fault = ""  # of the last try to connect
        self._again_s, self._pause_s = 0.0, _AGAIN_S
        self._tried_with: ssl.SSLContext | None = None
        self._is_closed = False
        self._closed = f"the connection to {address} is closed"

    async def unary(self, method_path: str, request: bytes, timeout_s: float) -> bytes:
        """One call to `/service/Method`. Raises `Unavailable`, `RpcStatus`."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        end_s, path = began_s + timeout_s, _path(method_path)
        for _ in range(_TRIES):
            link = self._usable() or await self._ready(path, end_s)
            reply = _Reply()
            link.begin(reply, path, end_s - loop.time())
            link.connection.send(reply.call, request)
            link.connection.end_requests(reply.call)
            timer = loop.call_at(end_s, reply.expire)
            try:
                while reply.end is None:
                    await reply.news()
            except asyncio.CancelledError:
                reply.give_up()
                raise
            finally:
                timer.cancel()
            code, text, is_processed = reply.end
            if code == DEADLINE_EXCEEDED:
                link.gives_up(began_s)
            if is_processed:
                break
        if code != OK:
            raise self._error(path, code, text)
        if len(reply.messages) != 1:
            raise RpcStatus(INTERNAL, f"{self.address} answered {path} with {len(reply.messages)} messages")
        return reply.messages[0][0]

    async def server_stream(
        self, path: str, request: bytes, *, gzip: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """Messages until the peer ends the stream. Raises `Unavailable`, `RpcStatus`.

        `gzip`: of gRPC, which servers answer in kind. What comes out of a message has no limit then: it is
        for peers that are trusted, as any stream of theirs is.
        """
        path, reply = _path(path), _Reply()
        link = await self._ready(path)
        link.begin(reply, path, None, gzip)
        link.connection.send(reply.call, deflate(request) if gzip else request, int(gzip))
        link.connection.end_requests(reply.call)
        try:
            async for message in self._messages(path, reply):
                yield message
        finally:
            reply.give_up()

    async def bidi(
        self, path: str, requests: AsyncIterator[bytes], *, metadata: Fields = ()
    ) -> AsyncGenerator[bytes, None]:
        """Both directions at once; `requests` is read as the peer takes it. Raises as `server_stream`."""
        path, reply = _path(path), _Reply()
        writer: asyncio.Task[None] | None = None
        try:
            link = await self._ready(path)
            link.begin(reply, path, None, more=metadata)
            writer = asyncio.get_running_loop().create_task(_write_all(reply, requests), name=f"send {path}")
            async for message in self._messages(path, reply):
                yield message
        except Unavailable:
            if writer is not None and writer.done() and not writer.cancelled():
                writer.result()  # it may be an error of `requests` that ended the call
            raise
        finally:
            if writer is not None:
                reply.give_up()
                writer.cancel()
                await asyncio.wait({writer})
                if not writer.cancelled():
                    writer.exception()
            close = getattr(requests, "aclose", None)
            if close is not None:
                await close()

    async def _messages(self, path: str, reply: _Reply) -> AsyncIterator[bytes]:
        while True:
            while reply.messages:
                yield reply.take()
            if reply.end is None:
                await reply.news()
            elif not reply.messages:
                break
        code, text, _ = reply.end
        if code != OK:
            raise self._error(path, code, text)

    def _error(self, path: str, code: int, text: str) -> BinlogError:
        if code in _RETRYABLE:
            return NoAnswer(self.address, path, code, text)
        return RpcStatus(code, text)

    # -- connections -----------------------------------------------------------------------------------

    def _usable(self) -> Link | None:
        """The connection for a call that begins now, if there is one with room."""
        link = self._current()
        return link if link is not None and link.connection.has_room and not link.waiting else None

    def _current(self) -> Link | None:
        link = self._link
        if link is None:
            return None
        if self._context() is not link.context:
            link.retired = True
        if link.retired or not link.connection.takes_calls:
            self._link = None
            link.retired = True
            link.flush_soon()  # it goes with its last call
            return None
        return link

    def _context(self) -> ssl.SSLContext | None:
        """Of a connection that is made now."""
        return None if self._contexts is None else self._contexts.current()

    async def _ready(self, path: str, end_s: float | None = None) -> Link:
        """The connection for a call that begins now, waited for. Raises `Unavailable`."""
        try:
            async with asyncio.timeout_at(end_s):
                while True:
                    if (link := self._usable()) is not None:
                        return link
                    if (link := self._current()) is not None:
                        await link.room()
                        if self._current() is link and link.connection.has_room:
                            return link
                    else:
                        await self._connect(path)
        except TimeoutError:
            raise NoAnswer(self.address, path, DEADLINE_EXCEEDED, _EXCEEDED) from None

    async def _connect(self, path: str) -> None:
        """Try once, together with whoever wants it. Raises `Unavailable`."""
        loop = asyncio.get_running_loop()
        if self._unusable:
            raise Unavailable(self._unusable, hint="look at the node's host in the registry")
        if self._is_closed:
            raise Unavailable(self._closed)
        if self._connecting is None:
            if loop.time() < self._again_s and self._tried_with is self._context():
                raise NoAnswer(self.address, path, UNAVAILABLE, self._fault)
            self._fault = ""
            self._connecting = loop.create_task(self._try(), name=f"connect {self.address}")
        connecting = self._connecting
        try:
            await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if not connecting.cancelled():
                raise
            raise Unavailable(self._closed) from None
        if self._fault:
            raise NoAnswer(self.address, path, UNAVAILABLE, self._fault)

    async def _try(self) -> None:
        loop = asyncio.get_running_loop()
        self._tried_with = context = self._context()
        host, port = self._target

        def make() -> Link:
            return Link(self.address if host else "localhost", context, self._ping_s)

        try:
            async with asyncio.timeout(CONNECT_S):
                if not host:
                    socket_path = self.address.removeprefix(_SOCKET).removeprefix("//")
                    _, link = await loop.create_unix_connection(make, socket_path)
                else:
                    _, link = await loop.create_connection(
                        make,
                        host,
                        port,
                        ssl=context,
                        server_hostname=host if context else None,
                        ssl_shutdown_timeout=_GOODBYE_S if context else None,
                    )
        except (OSError, TimeoutError) as error:
            self._fault = f"cannot connect: {error or f'no answer within {CONNECT_S:g} s'}"
            self._rest()
        else:
            self._link = link
            self._links.add(link)
            link.lost.add_done_callback(lambda _: self._on_lost(link))
        finally:
            self._connecting = None

    def _rest(self) -> None:
        """Not at once again."""
        self._again_s = asyncio.get_running_loop().time() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _AGAIN_MAX_S)

    def _on_lost(self, link: Link) -> None:
        self._links.discard(link)
        if link.connection.is_greeted:
            self._pause_s = _AGAIN_S
        else:  # it took the connection and not us
            self._fault = link.connection.fault
            self._rest()

    async def close(self) -> None:
        """End all calls and connections, also where this is cancelled. Idempotent."""
        self._is_closed = True
        self._link = None
        ends: set[asyncio.Future[None]] = {link.lost for link in self._links}
        if self._connecting is not None:
            self._connecting.cancel()
            ends.add(self._connecting)
        try:
            for link in list(self._links):
                link.end(self._closed)
            if ends:
                await asyncio.wait(ends, timeout=_GOODBYE_S)
        finally:
            for link in list(self._links):
                link.abort()
        if ends:
            await asyncio.wait(ends)


async def _write_all(reply: _Reply, requests: AsyncIterator[bytes]) -> None:
    """Send `requests` as the peer takes them; if they fail, the call fails."""
    link, call, connection = reply.link, reply.call, reply.link.connection
    try:
        async for request in requests:
            if reply.end is not None:
                return
            connection.send(call, request)
            link.flush_soon()
            while call.queued > _QUEUED_BYTES and reply.end is None:
                await reply.sent()
        if reply.end is None:
            connection.end_requests(call)
            link.flush_soon()
    except BaseException:
        reply.give_up()
        reply.on_end(CANCELLED, "its requests failed", True)
        raise


def _path(path: str) -> str:
    return path if path.startswith("/") else f"/{path}"

"""Network: calls and streams between hosts in memory, in order, late, cut off or broken, as the world says.

In     services as a daemon offers them (`rpc.Service`), routes of its HTTP; `listen` by address
Out    `SimRpc`, which is `tidb_binlog.rpc.Client` there, and `SimHttp` for `net.http_client.HttpClient`
Holds  what one side of a stream sends comes in its order, or the stream breaks. Two hosts that are `cut` hear
       nothing of each other, and what is on its way arrives when they are healed. What a process that is dead
       has not sent comes never
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.sim.life import LIFE, Life
from tests.sim.scheduling import SimLoop
from tidb_binlog import rpc
from tidb_binlog.door.http.admin_guard import AdminGuard
from tidb_binlog.door.http.routes import Peer, Request, Routes
from tidb_binlog.errors import Unavailable
from tidb_binlog.net.http_client import Page

_DELAY_S: Final = 0.003
_SLOW_S: Final = 1.0
_UNDER_WAY_MAX: Final = 16  # messages of one direction of a stream
_CONNECT_S: Final = 20.0  # nothing answers: how long one waits for it
_RETRYABLE: Final = (rpc.CANCELLED, rpc.DEADLINE_EXCEEDED, rpc.UNAVAILABLE)


@dataclass(eq=False)
class SimServer:
    """Of one process at one address; stands for its listener."""

    network: Network
    life: Life
    address: str
    methods: dict[str, tuple[str, Callable[..., Any]]]
    routes: Routes
    port: int

    def offer(self, services: Sequence[rpc.Service]) -> None:
        self.methods = _methods(services)

    def take_reloads(self, reload: Any) -> None:
        """Its limits are no matter here."""

    async def stop(self, grace_s: float) -> None:
        self.network.forget(self)


def _methods(services: Sequence[rpc.Service]) -> dict[str, tuple[str, Callable[..., Any]]]:
    methods: dict[str, tuple[str, Callable[..., Any]]] = {}
    for service in services:
        for kind, handlers in (
            ("unary", service.unary),
            ("unary", service.inline),
            ("server_stream", service.server_streams),
            ("bidi", service.bidi_streams),
        ):
            methods |= {f"/{service.name}/{name}": (kind, handler) for name, handler in handlers.items()}
    return methods


class Breakable:
    """A call or a direction of a stream between two hosts."""

    def __init__(self, network: Network, hosts: frozenset[str]) -> None:
        self.hosts = hosts
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._network = network
        network.under_way[self] = None
        self.on_break: Callable[[], None] = lambda: None

    def end(self) -> None:
        self._network.under_way.pop(self, None)

    def break_(self) -> None:
        self.end()
        if not self.broken.done():
            self.broken.set_result(None)
        self.on_break()


class Network:
    """All of a world. `trace` gets what happens."""

    def __init__(self, loop: SimLoop, trace: Callable[..., None]) -> None:
        self.loop = loop
        self.trace = trace
        self.servers: dict[str, SimServer] = {}
        self.under_way: dict[Breakable, None] = {}
        self.slow_share, self.slow_s = 0.01, 0.3  # of messages, and how late the latest of them comes
        self.slow_hosts: set[str] = set()  # whose messages all may be
        self.steady: set[str] = set()  # hosts whose messages are not late
        self._cut: dict[frozenset[str], list[Callable[[], None]]] = {}  # what waits for the healing

    # -- what the world does to it ---------------------------------------------------------------------

    def cut(self, a: str, b: str) -> None:
        self._cut.setdefault(frozenset((a, b)), [])

    def is_cut(self, a: str, b: str) -> bool:
        return frozenset((a, b)) in self._cut

    def heal(self, a: str, b: str) -> None:
        for arrive in self._cut.pop(frozenset((a, b)), ()):
            self.loop.call_later(self.delay_s(a, b), arrive)

    def heal_all(self) -> None:
        for hosts in list(self._cut):
            a, b = (*hosts, *hosts)[:2]
            self.heal(a, b)

    def reset(self, a: str, b: str) -> None:
        """All connections between them break."""
        hosts = frozenset((a, b))
        for each in [each for each in self.under_way if each.hosts == hosts]:
            each.break_()

    def drop(self, life: Life, *, silently: bool) -> None:
        """A process is gone; `silently`: its host with it, which answers nothing to nobody."""
        for server in [server for server in self.servers.values() if server.life is life]:
            self.forget(server)
        if not silently:
            for each in [each for each in self.under_way if life.host in each.hosts]:
                each.break_()

    # -- messages --------------------------------------------------------------------------------------

    def delay_s(self, a: str, b: str) -> float:
        rng = self.loop.rng
        if self.slow_hosts & {a, b} and not self.steady & {a, b}:
            return rng.random() * _SLOW_S
        late = rng.random() < self.slow_share and not self.steady & {a, b}
        return rng.random() * (self.slow_s if late else _DELAY_S)

    def deliver(self, a: str, b: str, arrive: Callable[[], None]) -> None:
        """Call it when a message has come from one host to the other."""
        hosts = frozenset((a, b))

        def try_to() -> None:
            if hosts in self._cut:
                self._cut[hosts].append(try_to)
            else:
                arrive()

        self.loop.call_later(self.delay_s(a, b), try_to)

    async def way(self, a: str, b: str) -> None:
        came: asyncio.Future[None] = self.loop.create_future()
        self.deliver(a, b, lambda: None if came.done() else came.set_result(None))
        await came

    def listen(self, address: str, services: Sequence[rpc.Service], routes: Routes) -> SimServer:
        life = LIFE.get()
        port = int(address.rpartition(":")[2])
        server = SimServer(self, life, address, _methods(services), routes, port)
        self.servers[address] = server
        return server

    def forget(self, server: SimServer) -> None:
        if self.servers.get(server.address) is server:
            del self.servers[server.address]

    def server(self, address: str) -> SimServer:
        server = self.servers.get(address)
        if server is None or not server.life.alive:
            raise Unavailable(f"{address} cannot be reached", hint="it refuses connections")
        return server

    async def call(self, host: str, run: Callable[[], Awaitable[Any]]) -> Any:
        """There, `run`, and back. Raises `Unavailable` where the connection breaks."""
        me = LIFE.get().host
        call = Breakable(self, frozenset((me, host)))

        async def there_and_back() -> Any:
            await self.way(me, host)
            value = await run()
            await self.way(host, me)
            return value

        task = asyncio.ensure_future(there_and_back())
        try:
            await asyncio.wait({task, call.broken}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise Unavailable(f"the connection to {host} broke")
            return task.result()
        finally:
            call.end()
            if not task.done():
                task.cancel()

    async def served(self, address: str, kind: str, path: str, *arguments: Any) -> Any:
        """What a unary handler answers, run by the process that has it."""
        server = self.server(address)
        known, handler = server.methods.get(path, ("", None))
        if handler is None or known != kind:
            raise rpc.RpcStatus(rpc.UNIMPLEMENTED, f"unknown method {path}")
        return await self.run_there(server, lambda: handler(*arguments))

    async def run_there(self, server: SimServer, run: Callable[[], Awaitable[Any]]) -> Any:
        context = contextvars.Context()
        context.run(LIFE.set, server.life)

        async def handled() -> Any:
            return await run()

        task = self.loop.create_task(handled(), context=context)
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
        if task.cancelled() or not server.life.alive:
            raise Unavailable(f"{server.address} went away")
        error = task.exception()
        if error is not None:
            raise _as_seen(error)
        return task.result()


def _as_seen(error: BaseException) -> BaseException:
    """What the caller has of an error of the handler."""
    code, text = rpc.status_of(error)
    return Unavailable(text) if code in _RETRYABLE else rpc.RpcStatus(code, text)


_END: Final = object()


class Pipe:
    """One direction of a stream."""

    def __init__(self, network: Network, source: Life, target: Life) -> None:
        self._network = network
        self._source, self._target = source, target
        self._flight: deque[Any] = deque()
        self._inbox: deque[Any] = deque()
        self._moved = asyncio.Event()
        self._link = Breakable(network, frozenset((source.host, target.host)))
        self._link.on_break = self._moved.set
        self.is_closed = False  # the reader has gone

    async def send(self, item: Any) -> None:
        while len(self._flight) + len(self._inbox) >= _UNDER_WAY_MAX:
            if self._link.broken.done() or self.is_closed:
                raise Unavailable("the stream broke")
            self._moved.clear()
            await self._moved.wait()
        self.put(item)

    def put(self, item: Any) -> None:
        if self._source.alive:
            self._flight.append(item)
            self._network.deliver(self._source.host, self._target.host, self._arrive)

    def _arrive(self) -> None:
        self._inbox.append(self._flight.popleft())
        self._moved.set()

    async def receive(self) -> Any:
        while not self._inbox:
            if self._link.broken.done():
                raise Unavailable("the stream broke")
            self._moved.clear()
            await self._moved.wait()
        item = self._inbox.popleft()
        self._moved.set()
        if isinstance(item, BaseException):
            raise item
        return item

    def fail(self, error: BaseException) -> None:
        """At this end, at once."""
        self._inbox.append(error)
        self._moved.set()

    def close(self) -> None:
        self.is_closed = True
        self._link.end()
        self._moved.set()


class SimRpc:
    """`tidb_binlog.rpc.Client` of a host in this world."""

    def __init__(self, network: Network, address: str, **_: Any) -> None:
        self.address = address
        self._network = network
        self._host = address.rpartition(":")[0]
        self._streams: dict[Pipe, None] = {}

    async def unary(self, method_path: str, request: bytes, timeout_s: float) -> bytes:
        run = functools.partial(self._network.served, self.address, "unary", method_path, request)
        try:
            async with asyncio.timeout(timeout_s):
                answer: bytes = await self._network.call(self._host, run)
                return answer
        except TimeoutError:
            raise Unavailable(f"{self.address} does not answer {method_path}: deadline") from None

    async def server_stream(
        self, path: str, request: bytes, *, gzip: bool = False
    ) -> AsyncGenerator[bytes, None]:
        async for reply in self._stream("server_stream", path, request):
            yield reply

    async def bidi(self, path: str, requests: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        async for reply in self._stream("bidi", path, requests):
            yield reply

    async def _stream(self, kind: str, path: str, given: Any) -> AsyncGenerator[bytes, None]:
        network, me = self._network, LIFE.get()
        try:
            async with asyncio.timeout(_CONNECT_S):
                server = await network.call(self._host, self._connected)
        except TimeoutError:
            raise Unavailable(f"{self.address} does not answer") from None
        known, handler = server.methods.get(path, ("", None))
        if handler is None or known != kind:
            raise rpc.RpcStatus(rpc.UNIMPLEMENTED, f"unknown method {path}")
        up, down = Pipe(network, me, server.life), Pipe(network, server.life, me)
        self._streams[down] = None
        context = contextvars.Context()
        context.run(LIFE.set, server.life)
        serving = network.loop.create_task(_serve(kind, handler, given, up, down), context=context)
        sending = asyncio.ensure_future(_send_all(given, up)) if kind == "bidi" else None
        try:
            while (reply := await down.receive()) is not _END:
                yield reply
        finally:
            self._streams.pop(down, None)
            down.close()
            up.close()
            if sending is not None:
                sending.cancel()
                await asyncio.wait({sending})
                close = getattr(given, "aclose", None)
                if close is not None:
                    await close()
            network.loop.call_later(network.delay_s(me.host, self._host), serving.cancel)

    async def _connected(self) -> SimServer:
        return self._network.server(self.address)

    async def close(self) -> None:
        for pipe in list(self._streams):
            pipe.fail(Unavailable(f"the connection to {self.address} is closed"))


async def _send_all(requests: AsyncIterator[bytes], up: Pipe) -> None:
    try:
        async for request in requests:
            await up.send(request)
        await up.send(_END)
    except Unavailable:
        return  # who reads the answers learns why


async def _serve(kind: str, handler: Callable[..., Any], given: Any, up: Pipe, down: Pipe) -> None:
    async def requests() -> AsyncGenerator[bytes, None]:
        while (request := await up.receive()) is not _END:
            yield request

    replies = handler(requests() if kind == "bidi" else given)
    try:
        async for reply in replies:
            await down.send(bytes(reply))
        await down.send(_END)
    except asyncio.CancelledError:
        raise
    except Exception as error:
        down.put(_as_seen(error))
    finally:
        await replies.aclose()


class SimHttp:
    """`net.http_client.HttpClient` of a host in this world."""

    def __init__(self, network: Network, timeout_s: float) -> None:
        self._network = network
        self._timeout_s = timeout_s

    async def ask(self, method: str, address: str, path: str, body: bytes | None) -> Page:
        network = self._network
        request = Request(method, path, "127.0.0.1", None, Peer("127.0.0.1"), body or b"")

        async def answered() -> Page:
            server = network.server(address)
            answer = await network.run_there(server, lambda: server.routes.answer(request, AdminGuard()))
            return Page(answer.status, answer.body, 0.0, 0.0, None)

        try:
            async with asyncio.timeout(self._timeout_s):
                page: Page = await network.call(address.rpartition(":")[0], answered)
                return page
        except TimeoutError:
            raise Unavailable(f"{address} does not answer") from None

"""Handler runner: runs the handlers of one connection's calls on the event loop.

Drives  `calls` (a reply, a failure, a message to send) and `plain`
Owns    a Task for each call, except `inline` ones: those are stepped here, and one that waits for a future is
        stepped on by the future's callback, which costs a quarter of a Task
Stops   a cancelled handler sees CancelledError where it waits; its call is notified of its end in any case
Tests   tests/common/door/server/test_listener.py, tests/pump/pull/test_peer_memory.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any, Final

from tidb_binlog.budget import Ticket
from tidb_binlog.clock import Clock
from tidb_binlog.door.calls.call_group import CANCELLED, CallGroup
from tidb_binlog.door.calls.grpc_calls import GZIP_BYTES_MIN, Call, UnaryCall, Working
from tidb_binlog.door.calls.http_calls import HttpCall
from tidb_binlog.door.calls.methods import MethodKind
from tidb_binlog.door.calls.stream_calls import StreamCall
from tidb_binlog.door.http.routes import Guard, Peer, Request, Response, Routes
from tidb_binlog.door.server.fair_share import MESSAGE_BYTES_MIN, TURN_BYTES, FairShare
from tidb_binlog.errors import BinlogError, Unavailable
from tidb_binlog.observe import log
from tidb_binlog.rpc import service as codes
from tidb_binlog.rpc.message_framing import INFLATE_STEP_BYTES, Inflater, deflate
from tidb_binlog.rpc.service import CALLER, RpcStatus, status_of

_THREAD_BYTES_MIN: Final = 1 << 16
_INLINE_PACKED_BYTES: Final = INFLATE_STEP_BYTES // 1100  # gzip packs a thousand octets into one at best
_PACKED_WAITING_BYTES_MAX: Final = 16 << 20

_logger = log.get("door")


class ReplyRoom:
    """The `tidb_binlog.rpc.Caller` of a streaming call: what its reply may take, for its service to wait for.

    Whatever ends the call, its tickets are closed by the service's own `finally`; one not granted yet is
    closed here.
    """

    __slots__ = ("_call", "address", "connection")

    def __init__(self, call: StreamCall) -> None:
        self._call = call
        self.address = call.session.shares.address
        self.connection: object = call.session

    async def room(self, size: int) -> Ticket:
        granted: asyncio.Future[None] | None = None

        def notify() -> None:
            if granted is not None and not granted.done():
                granted.set_result(None)

        session = self._call.session
        ticket = session.budget.replies.ask(session.shares.replies, size, notify)
        if not ticket.granted:
            granted = asyncio.get_running_loop().create_future()
            try:
                await granted
            except BaseException:
                ticket.close()
                raise
        self._call.granted(ticket)
        return ticket

    def hold(self, size: int) -> None:
        self._call.hold_more(size)

    def give(self, size: int) -> None:
        self._call.hold_less(size)

    def done(self) -> None:
        self._call.done()


class Stepper:
    """A handler without a Task, while it waits for a future."""

    __slots__ = ("_cancelled", "_coroutine", "_waits_for", "call")

    def __init__(self, call: UnaryCall, coroutine: Coroutine[Any, Any, bytes]) -> None:
        self.call = call
        self._coroutine = coroutine
        self._waits_for: asyncio.Future[Any] | None = None
        self._cancelled = False

    def park(self, awaited: Any) -> None:
        """The coroutine yielded this: continue when it is done."""
        if awaited is None:  # a bare yield, as of sleep(0)
            asyncio.get_running_loop().call_soon(self.step)
            return
        if getattr(awaited, "_asyncio_future_blocking", None) is None:
            raise TypeError(f"an inline handler awaits a {type(awaited).__name__}, which needs a Task")
        awaited._asyncio_future_blocking = False
        self._waits_for = awaited
        awaited.add_done_callback(self.step)

    def step(self, _: object = None) -> None:
        self._waits_for = None
        try:
            if self._cancelled:
                self._cancelled = False
                awaited = self._coroutine.throw(asyncio.CancelledError())
            else:
                awaited = self._coroutine.send(None)
            self.park(awaited)
        except StopIteration as end:
            self.call.succeed(end.value)
        except BaseException as error:
            fail(self.call, error)

    def cancel(self) -> None:
        if self._waits_for is None or not self._waits_for.cancel():
            self._cancelled = True


class StreamWork:
    """The Task of a streaming call, and what it waits for."""

    __slots__ = ("_waiters", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self._waiters: list[asyncio.Future[None]] = []

    async def changed(self) -> None:
        """Until something could be taken or sent that could not before."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Requests:
    """The messages of a client's stream, for its service."""

    def __init__(self, runner: Runner, call: StreamCall, work: StreamWork) -> None:
        self._runner = runner
        self._call = call
        self._work = work
        self._turn = 0

    def __aiter__(self) -> Requests:
        return self

    async def __anext__(self) -> bytes | memoryview:
        call = self._call
        while True:
            message = call.take()
            if message is not None:
                break
            if call.over:
                raise Unavailable("the peer has gone away")
            if call.requests_ended:
                raise StopAsyncIteration
            await self._work.changed()
        flag, body = message
        self._turn += max(len(body), MESSAGE_BYTES_MIN)
        if self._turn >= TURN_BYTES:
            self._turn = 0
            await asyncio.sleep(0)  # a service that never waits for anything else must not starve the rest
        return await self._runner.unpacked(call, body) if flag else body


class Runner:
    """`flush` is called whenever there may be something to send."""

    __slots__ = (
        "_fair_share",
        "_guard",
        "_inflating",
        "_packed_waiting",
        "_peer",
        "_routes",
        "_tasks",
        "flush",
        "now_s",
    )

    def __init__(
        self,
        flush: Callable[[], None],
        clock: Clock,
        tasks: set[asyncio.Task[None]],
        fair_share: FairShare,
        routes: Routes,
        guard: Guard,
        peer: Peer,
    ) -> None:
        self.flush = flush
        self.now_s = clock.monotonic_s
        self._tasks = tasks
        self._fair_share = fair_share
        self._routes = routes
        self._guard = guard
        self._inflating: asyncio.Lock | None = None
        self._packed_waiting = 0
        self._peer = peer

    # -- unary -----------------------------------------------------------------------------------

    def unary(self, call: UnaryCall, message: bytes | memoryview) -> None:
        method = call.plan.method
        if method.kind is not MethodKind.INLINE:
            call.work = self._start(self._unary(call, message), method.path)
            return
        coroutine = method.handler(message)
        try:
            awaited = coroutine.send(None)
        except StopIteration as end:
            call.succeed(end.value)
        except BaseException as error:
            fail(call, error)
        else:
            call.work = stepper = Stepper(call, coroutine)
            try:
                stepper.park(awaited)
            except TypeError as error:
                coroutine.close()
                fail(call, error)

    def take(self, group: CallGroup) -> None:
        take, calls, requests = group.method.take, group.calls, group.requests
        assert take is not None
        group.requests = []
        try:
            taken = take(requests, group)
        except BaseException as error:
            group.fail(error)
            return
        if not taken:
            group.calls = []
            for call, message in zip(calls, requests, strict=True):
                if call.work is group:  # else it was cancelled in the same read
                    call.work = None
                    self.unary(call, message)

    def fail_with(self, call: UnaryCall, error: BaseException) -> None:
        fail(call, error)

    async def _unary(self, call: UnaryCall, message: bytes | memoryview) -> None:
        try:
            reply = await call.plan.method.handler(message)
        except BaseException as error:
            fail(call, error)
        else:
            call.succeed(reply)

    def inflate(self, call: UnaryCall, packed: bytes | memoryview) -> None:
        call.work = self._start(self._inflated(call, packed), call.plan.method.path)

    async def _inflated(self, call: UnaryCall, packed: bytes | memoryview) -> None:
        try:
            message = await self.unpacked(call, packed)
            reply = await call.plan.method.handler(message)
        except BaseException as error:
            fail(call, error)
        else:
            call.succeed(reply)

    async def unpacked(self, call: Call, packed: bytes | memoryview) -> bytes | memoryview:
        """A gzip message, unpacked. Raises `RpcStatus`."""
        limits = call.session.connection.limits
        inflater = Inflater(packed, limits.message_bytes_max, limits.gzip_ratio_max)
        if len(packed) <= _INLINE_PACKED_BYTES:  # at most a step, whatever it holds
            inflater.step()
            return inflater.result()
        if self._inflating is None:
            self._inflating = asyncio.Lock()
        if self._packed_waiting > _PACKED_WAITING_BYTES_MAX:
            call.session.connection.abuse.refused("packed_requests")
            raise RpcStatus(codes.UNAVAILABLE, "too many compressed requests at once")
        # One of a connection at a time: what it may unpack to is memory, asked for step by step.
        self._packed_waiting += len(packed)
        try:
            async with self._inflating:
                return await self._inflate(call, inflater)
        finally:
            self._packed_waiting -= len(packed)

    async def _inflate(self, call: Call, inflater: Inflater) -> bytes | memoryview:
        call.hold(INFLATE_STEP_BYTES)
        done = inflater.step()
        while not done:
            call.hold(INFLATE_STEP_BYTES)
            done = await asyncio.to_thread(inflater.step)
        return inflater.result()

    # -- streams ---------------------------------------------------------------------------------

    def stream(self, call: StreamCall) -> None:
        call.work = work = StreamWork()
        work.task = self._start(self._stream(call, work), call.plan.method.path)

    async def _stream(self, call: StreamCall, work: StreamWork) -> None:
        method = call.plan.method
        requests = Requests(self, call, work)
        CALLER.set(ReplyRoom(call))  # of this Task, and those that it starts
        try:
            if method.kind is MethodKind.CLIENT_STREAM:
                await self._send(call, await method.handler(requests))
            else:
                request = await _only(requests) if method.kind is MethodKind.SERVER_STREAM else requests
                await self._send_all(call, work, method.handler(request))
        except BaseException as error:
            fail(call, error)
        else:
            call.complete()

    async def _send_all(self, call: StreamCall, work: StreamWork, replies: AsyncIterator[bytes]) -> None:
        fair_share = self._fair_share
        try:
            # Before the first message as after each: many streams without a window must not hold one each.
            await self._room(call, work)
            async for reply in replies:
                await self._send(call, reply)
                turn = fair_share.take(call, len(reply))
                del reply  # or the last one would stay as long as the next one takes
                if turn is not None:
                    await turn
                await self._room(call, work)
        finally:
            # Whatever ends the call, a service's generator is closed here and now.
            close = getattr(replies, "aclose", None)
            if close is not None:
                await close()

    async def _send(self, call: StreamCall, reply: bytes) -> None:
        packed = call.plan.gzip_reply and len(reply) >= GZIP_BYTES_MIN
        if packed:
            reply = await self._deflated(call, reply) if len(reply) > _THREAD_BYTES_MIN else deflate(reply)
        call.send(reply, packed=packed)

    async def _deflated(self, call: StreamCall, reply: bytes) -> bytes:
        """Others make theirs meanwhile: it counts as if it were queued."""
        part, share, size = call.session.budget.replies, call.session.shares.replies, len(reply)
        share.add(size)
        try:
            return await asyncio.to_thread(deflate, reply)
        finally:
            part.give(share, size)

    async def _room(self, call: StreamCall, work: StreamWork) -> None:
        while not call.has_room and not call.over:
            call.session.waiting.add(call)
            await work.changed()

    def wake(self, call: StreamCall) -> None:
        if isinstance(call.work, StreamWork):
            call.work.wake()

    # -- plain HTTP ------------------------------------------------------------------------------

    def plain(self, call: HttpCall) -> None:
        call.work = self._start(self._plain(call), "http")

    async def _plain(self, call: HttpCall) -> None:
        head = call.head
        request = Request(
            head.method.decode("latin-1"),
            head.path.decode("latin-1"),
            head.authority.decode("latin-1"),
            None if head.origin is None else head.origin.decode("latin-1"),
            self._peer,
            call.body,
            head.accept.decode("latin-1"),
        )
        call.answer(await self._routes.answer(request, self._guard))

    # -- all -------------------------------------------------------------------------------------

    def cancel(self, call: Working) -> None:
        work = call.work
        if isinstance(work, Stepper):
            work.cancel()
            return
        if isinstance(work, CallGroup):
            assert isinstance(call, UnaryCall)
            call.work = CANCELLED
            # As a handler that is cancelled ends: not before the next turn.
            asyncio.get_running_loop().call_soon(call.fail, codes.CANCELLED, "the call was cancelled")
            return
        task = work.task if isinstance(work, StreamWork) else work
        assert isinstance(task, asyncio.Task)
        task.cancel()
        task.add_done_callback(partial(_cancelled_unrun, call))

    def _start(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)  # the loop itself holds tasks only weakly
        task.add_done_callback(self._tasks.discard)
        return task


def _cancelled_unrun(call: Working, _: object) -> None:
    """A Task cancelled before its first step ran nothing, so nothing notified its call."""
    if call.work is None:
        return
    if isinstance(call, Call):
        call.fail(codes.CANCELLED, "the call was cancelled")
    elif isinstance(call, HttpCall):
        call.answer(Response(503))


async def _only(requests: Requests) -> bytes | memoryview:
    """The one request of a server-streaming call."""
    request = await anext(requests, None)
    if request is None:
        raise RpcStatus(codes.UNIMPLEMENTED, "a call without a message")
    if await anext(requests, None) is not None:
        raise RpcStatus(codes.UNIMPLEMENTED, "a call with more than one message")
    return request


def fail(call: Call, error: BaseException) -> None:
    """Tell the call how its handler failed. What is our own mistake is logged."""
    if isinstance(error, asyncio.CancelledError):
        call.fail(codes.CANCELLED, "the call was cancelled")
        return
    code, text = status_of(error)
    if not isinstance(error, BinlogError):
        _logger.failure("handler failed", error, method=call.plan.method.path)
    call.fail(code, text, error.details if isinstance(error, RpcStatus) else b"")

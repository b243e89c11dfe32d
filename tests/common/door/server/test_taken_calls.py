"""Calls that a service takes together: to a client they are what calls of handlers are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.common.door.support.model import (
    HELLO,
    Reader,
    data,
    opened,
    prefixed,
    rst,
    unary,
)
from tidb_binlog import rpc
from tidb_binlog.clock import ManualClock
from tidb_binlog.door.calls.methods import methods_of
from tidb_binlog.door.calls.session import Session
from tidb_binlog.door.http.admin_guard import AdminGuard
from tidb_binlog.door.http.routes import Peer, Routes
from tidb_binlog.door.http2.connection import Connection
from tidb_binlog.door.limits import Budget, Limits
from tidb_binlog.door.server.fair_share import FairShare
from tidb_binlog.door.server.handler_runner import Runner
from tidb_binlog.http2 import frames

DECLINED = b"declined"


class Groups:
    """`test.Door`: calls of `Write` wait until all that are asked for are ended, as writes for their sync do.
    A request that begins as DECLINED says is left to the handler."""

    def __init__(self, *, takes: bool) -> None:
        self._takes = takes
        self.handled: list[asyncio.Future[bytes]] = []
        self.groups: list[rpc.TakenCalls] = []
        self.requests: list[bytes] = []
        self.taken = 0

    def service(self) -> rpc.Service:
        handlers = {"Write": self.write, "Put": self.write}
        taken = {"Write": self.take, "Put": self.take} if self._takes else {}
        return rpc.Service("test.Door", inline=handlers, taken=taken)

    async def write(self, request: bytes) -> bytes:
        self.requests.append(bytes(request))
        done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.handled.append(done)
        return await done

    def take(self, requests: Sequence[bytes], calls: rpc.TakenCalls) -> bool:
        if any(request.startswith(DECLINED) for request in requests):
            return False
        self.requests += requests
        self.groups.append(calls)
        self.taken += len(requests)
        return True

    def end(self, reply: bytes | rpc.RpcStatus) -> None:
        groups, self.groups = self.groups, []
        handled, self.handled = self.handled, []
        for done in handled:
            if done.done():
                continue
            if isinstance(reply, bytes):
                done.set_result(reply)
            else:
                done.set_exception(reply)
        for calls in groups:
            if isinstance(reply, bytes):
                calls.succeed(reply)
            else:
                calls.fail(reply)
            assert calls.succeed(b"") == calls.fail(RuntimeError()) == 0, "each is ended once"


class House:
    """What a `ConnectionTransport` has of a connection of HTTP/2, without a socket."""

    def __init__(self, limits: Limits, service: Groups) -> None:
        self.service = service
        self.clock = ManualClock()
        self.methods = methods_of([service.service()])
        budget = Budget(limits)
        runner = Runner(
            lambda: None, self.clock, set(), FairShare(), Routes(), AdminGuard(), Peer("127.0.0.1")
        )
        made: list[Session] = []

        def above(connection: Connection) -> Session:
            made.append(Session(connection, self.methods, runner, budget))
            return made[0]

        self.connection = Connection(above, limits, budget, self.clock.monotonic_s())
        self.session = made[0]
        self.budget = budget
        self.reader = Reader()

    async def receive(self, octets: bytes) -> None:
        self.connection.receive(octets, self.clock.monotonic_s())
        self.session.hand_over()
        await self.turn()

    async def turn(self) -> None:
        for _ in range(4):
            await asyncio.sleep(0)
        self.connection.produce(1 << 20)
        out = self.connection.outbound.out
        self.reader.feed(b"".join(out))
        out.clear()

    def told(self) -> dict[int, Any]:
        """What the client has of each of its calls."""
        replies = sorted(self.reader.replies.items())
        return {stream: (reply.heads, reply.body, reply.ended, reply.reset) for stream, reply in replies}

    def counted(self) -> Any:
        methods = [
            (path, method.started, method.succeeded, method.failed, method.buckets, round(method.seconds, 6))
            for path, method in self.methods.items()
        ]
        connection = self.connection
        at_rest = connection.lingering, sorted(connection.streams), self.budget.receive_held
        return methods, at_rest, connection.outbound.queued, connection.ended


_METHODS = st.sampled_from(("Write", "Write", "Write", "Put"))
_SHAPES = st.sampled_from(
    ("whole", "whole", "whole", "next read", "cut", "two reads", "cancelled", "declined", "short time")
)
_READ = st.tuples(st.just("read"), st.lists(st.tuples(_METHODS, _SHAPES), min_size=1, max_size=6))
_STEPS = st.lists(
    _READ
    | st.tuples(st.just("end"), st.sampled_from((b"", b"", b"r", bytes(1500), bytes(5000))))
    | st.tuples(st.just("fail"), st.sampled_from((rpc.UNKNOWN, rpc.RESOURCE_EXHAUSTED)))
    | st.tuples(st.just("cancel"), st.integers(0, 5))
    | st.tuples(st.just("time"), st.sampled_from((0.5, 3.0, 40.0)))
    | st.tuples(st.just("window"), st.sampled_from((0, 20, 1 << 16))),
    max_size=14,
)


def read_of(asked: list[tuple[str, str]], next_id: int) -> tuple[list[bytes], int]:
    """The octets of one read, or of two."""
    first, second = b"", b""
    for method, shape in sorted(asked, key=lambda one: one[1] == "next read"):
        request = (DECLINED if shape == "declined" else b"request") + b"%d" % next_id
        whole = unary(next_id, method, request)
        if shape == "cut":  # two frames
            whole = opened(next_id, method) + data(next_id, prefixed(request)) + data(next_id, end=True)
        elif shape == "two reads":
            whole = opened(next_id, method)
            second += data(next_id, prefixed(request), end=True)
        elif shape == "cancelled":
            whole += rst(next_id)
        elif shape == "short time":
            whole = unary(next_id, method, request, (b"grpc-timeout", b"1S"))
        if shape == "next read":
            second += whole
        else:
            first += whole
        next_id += 2
    return [part for part in (first, second) if part], next_id


async def play(house: House, steps: Sequence[tuple[str, Any]]) -> list[Any]:
    """What is counted after each step."""
    counted = []
    next_id, window = 1, frames.DEFAULT_WINDOW
    await house.receive(HELLO)
    for step, value in steps:
        if step == "read":
            parts, next_id = read_of(value, next_id)
            for part in parts:
                await house.receive(part)
                house.clock.advance(0.001)
        elif step == "end":
            house.service.end(value)
        elif step == "fail":
            house.service.end(rpc.RpcStatus(value, "not now"))
        elif step == "cancel" and next_id - 2 * value > 1:
            await house.receive(rst(next_id - 2 - 2 * value))
        elif step == "time":
            house.clock.advance(value)
            house.connection.now_s = house.clock.monotonic_s()
            house.session.tick(house.clock.monotonic_s())
        elif step == "window":
            window = value
            await house.receive(frames.settings({frames.INITIAL_WINDOW_SIZE: window}))
        await house.turn()
        counted.append(house.counted())
    house.service.end(b"")
    await house.turn()
    return [*counted, house.counted()]


@given(steps=_STEPS, streams_max=st.sampled_from((4, 1024)))
@settings(max_examples=100)
def test_a_client_sees_no_difference(steps: list[tuple[str, Any]], streams_max: int) -> None:
    async def both() -> None:
        limits = Limits(streams_max=streams_max)
        alone, together = House(limits, Groups(takes=False)), House(limits, Groups(takes=True))
        counted = await play(alone, steps)
        assert await play(together, steps) == counted
        assert together.told() == alone.told()
        assert set(together.service.requests) <= set(alone.service.requests)

    asyncio.run(both())


async def test_short_requests_of_one_read_are_taken_together() -> None:
    house = House(Limits(), Groups(takes=True))
    await house.receive(
        HELLO + b"".join(unary(stream, "Write", b"%d" % stream) for stream in range(1, 65, 2))
    )
    assert len(house.service.groups) == 1
    assert house.service.requests == [b"%d" % stream for stream in range(1, 65, 2)]
    house.service.end(b"")
    assert len(house.connection.outbound.out) >= 32
    await house.turn()
    assert [reply.status for reply in house.reader.replies.values()] == [0] * 32
    # Of another method, larger, or cut: not among them.
    await house.receive(
        unary(65, "Write", b"a")
        + unary(67, "Put", b"b")
        + unary(69, "Write", b"c")
        + unary(71, "Put", bytes(9000))
    )
    assert len(house.service.groups) == 3
    assert house.service.taken == 35
    assert len(house.service.handled) == 1


async def test_a_service_that_fails_to_take_is_answered_for(caplog: pytest.LogCaptureFixture) -> None:
    house = House(Limits(), Groups(takes=True))
    method = house.methods[b"/test.Door/Write"]

    def broken(requests: Sequence[bytes], calls: rpc.TakenCalls) -> bool:
        raise ValueError("a mistake of ours")

    method.take = broken
    await house.receive(HELLO + unary(1, "Write", b"a") + unary(3, "Write", b"b"))
    assert [house.reader.replies[stream].status for stream in (1, 3)] == [rpc.INTERNAL] * 2
    assert "a mistake of ours" in caplog.text
    assert not house.connection.streams


async def test_calls_of_a_connection_that_is_gone_are_over() -> None:
    house = House(Limits(), Groups(takes=True))
    await house.receive(HELLO + unary(1, "Write", b"a") + unary(3, "Write", b"b") + rst(1))
    house.session.end()
    (group,) = house.service.groups
    await house.turn()
    assert house.connection.lingering == 0
    assert group.succeed(b"") == 0
    assert house.methods[b"/test.Door/Write"].failed == {rpc.CANCELLED: 2}
    assert not house.told()


async def test_a_reply_that_its_peer_does_not_take_has_its_time_from_when_it_was_made() -> None:
    house = House(Limits(stuck_reply_s=60.0), Groups(takes=True))
    await house.receive(HELLO + unary(1, "Write", b"a"))
    house.service.end(b"")
    await house.turn()
    await house.receive(frames.settings({frames.INITIAL_WINDOW_SIZE: 0}) + unary(3, "Write", b"a"))
    house.clock.advance(40.0)
    house.service.end(b"reply")
    for seconds, open_streams in ((40.0, [3]), (21.0, [])):
        house.clock.advance(seconds)
        house.session.tick(house.clock.monotonic_s())
        assert list(house.connection.streams) == open_streams

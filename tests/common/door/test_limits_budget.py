"""Each place of a door where a peer's bytes can wait: it is counted, has an end, and leaves others theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import pytest

from tests.attacks import frames as attack_frames
from tests.attacks.frames import END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, frame
from tests.common.door.support.model import (
    NOW_S,
    Door,
    block,
    data,
    get,
    headers,
    opened,
    prefixed,
    pseudo,
    rst,
    unary,
)
from tests.common.door.support.peers import Bench, Raw, call, connected, house
from tests.waiting import settle, until
from tidb_binlog.clock import ManualClock
from tidb_binlog.door.http.routes import Response, Routes
from tidb_binlog.door.limits import CALL_BYTES, Budget, Limits
from tidb_binlog.door.network import network_of
from tidb_binlog.door.server.listener import Server, serve
from tidb_binlog.observe import metrics
from tidb_binlog.rpc import service as codes

LOOPS = ("asyncio", "uvloop")
PAGE: Final = 1 << 16
GET: Final = b"GET /page HTTP/1.1\r\nhost: localhost\r\n\r\n"


def closed_windows(limits: Limits, budget: Budget | None = None) -> Door:
    one = Door(limits, budget=budget)
    one.receive(attack_frames.settings([(4, 0)]), attack_frames.frame(4, 1, 0))
    return one


# -- replies ---------------------------------------------------------------------------------------


def test_pages_over_http2_wait_within_the_limit_of_replies() -> None:
    one = closed_windows(Limits(connection_send_bytes_max=20))
    for stream in range(1, 21, 2):
        one.receive(get(stream))
    waiting = [stream for stream in range(1, 21, 2) if one.reply(stream).http == 200]
    refused = [stream for stream in range(1, 21, 2) if one.reply(stream).http == 503]
    assert (waiting, refused) == ([1, 3, 5], [7, 9, 11, 13, 15, 17, 19])  # of 6 octets each
    assert one.connection.outbound.queued == one.budget.send_queued == 18
    assert all(one.reply(stream).ended for stream in refused)
    assert set(one.refusals) == {"http_bytes"}
    one.receive(*(rst(stream) for stream in waiting))
    one.check_empty()


def test_one_large_reply_passes_where_nothing_else_waits() -> None:
    one = closed_windows(Limits(connection_send_bytes_max=5000))
    one.receive(unary(1, "Echo", bytes(9000)), unary(3, "Echo", bytes(4097)))
    assert 1 in one.connection.streams
    assert one.reply(3).status == 8


def test_a_stream_that_nobody_reads_ends_when_somebody_waits_for_its_memory() -> None:
    limits = Limits(send_bytes_max=1000, stuck_reply_s=5.0, stream_send_bytes_max=2000)
    budget = Budget(limits)
    deaf, other = closed_windows(limits, budget), closed_windows(limits, budget)
    deaf.receive(opened(1, "Hold"))
    deaf.runner.held[0].send(bytes(990))
    deaf.tick(NOW_S + 60)
    assert 1 in deaf.connection.streams, "nobody needs it: it may stay"
    told: list[int] = []
    ticket = budget.replies.ask(other.connection.shares.replies, 500, lambda: told.append(1))
    deaf.pass_time(NOW_S + 63)
    assert (deaf.reply(1).reset, ticket.granted, told) == (8, True, [1])
    assert deaf.refusals == ["stuck_stream"]
    ticket.close()
    deaf.check_empty()


@asynccontextmanager
async def paged(
    limits: Limits | None = None, clock: ManualClock | None = None
) -> AsyncIterator[tuple[Server, list[int]]]:
    """A door with a large page, and how often it was asked for."""
    asked: list[int] = []
    routes = Routes()

    async def page(_: dict[str, str]) -> Response:
        asked.append(len(asked))
        return Response(200, b"p" * PAGE)

    routes.add("GET", "/page", page)
    bench = Bench()
    server = await serve([bench.service()], routes, "127.0.0.1", 0, limits=limits, clock=clock)
    try:
        yield server, asked
    finally:
        await server.stop(0.0)
        assert (server.budget.send_queued, server.budget.receive_held) == (0, 0)


async def test_pipelined_requests_wait_for_the_answers_before_them() -> None:
    """Nobody reads them: one is answered now and then, as the peer takes it; none is lost."""
    count = 400
    async with paged() as (server, asked), Raw.to(server.port, hello=b"", receive_bytes=4096) as raw:
        sending = asyncio.create_task(raw.send(GET * count))
        await until(lambda: asked)
        seen = -1
        while len(asked) > seen:
            seen = len(asked)
            await settle()
        assert len(asked) < 100, "what the system's own buffers take"
        (wire,) = server.wires
        assert wire._transport is not None
        assert wire._transport.get_write_buffer_size() < 4 * PAGE
        assert server.budget.send_queued < 4 * PAGE
        answered = 0
        while answered < count * PAGE:
            octets = await raw.octets()
            assert octets
            answered += octets.count(b"p")
        await sending
        assert len(asked) == count


async def test_an_answer_of_http1_that_nobody_takes_ends_its_connection() -> None:
    clock = ManualClock()
    async with (
        paged(Limits(stuck_reply_s=5.0), clock) as (server, _asked),
        Raw.to(server.port, hello=b"", receive_bytes=4096) as raw,
    ):
        sending = asyncio.create_task(raw.send(GET * 400))
        await until(lambda: server.budget.send_queued)
        await settle()  # nothing is on its way any more
        clock.advance(4.0)
        await settle()
        assert server.wires
        clock.advance(2.0)
        await until(lambda: not server.wires)
        await asyncio.gather(sending, return_exceptions=True)


async def test_pages_of_http1_are_refused_where_replies_take_too_much() -> None:
    limits = Limits(connection_send_bytes_max=1 << 20, send_bytes_max=1 << 20)
    async with paged(limits) as (server, asked), AsyncExitStack() as stack:
        for _ in range(12):
            deaf = await stack.enter_async_context(Raw.to(server.port, hello=b"", receive_bytes=4096))
            await asyncio.wait({asyncio.create_task(deaf.send(GET * 400))}, timeout=0.3)
        assert server.budget.send_queued <= (3 << 20) // 4 + PAGE
        before = len(asked)
        polite = await stack.enter_async_context(Raw.to(server.port, hello=GET, source="127.0.0.2"))
        assert (await polite.octets()).startswith(b"HTTP/1.1 200 ")
        assert len(asked) > before


async def test_what_a_peer_does_not_take_counts_while_it_lies_with_the_transport() -> None:
    limits = Limits(ping_strikes_max=1 << 30, control_bytes_max=1 << 12)
    async with house(limits) as here, Raw.to(here.port, receive_bytes=4096) as raw:
        pings = asyncio.create_task(raw.send(frame(PING, 0, 0, bytes(8)) * 400_000))
        await until(lambda: here.server.wires and not next(iter(here.server.wires)).reading)
        (wire,) = here.server.wires
        assert wire.connection is not None
        assert wire._transport is not None
        waits = sum(map(len, wire.connection.outbound.out)) + wire._transport.get_write_buffer_size()
        assert here.server.budget.send_queued >= waits > 1 << 12
        pings.cancel()
        await asyncio.gather(pings, return_exceptions=True)
        raw.sock.close()
        await here.at_rest()


async def test_one_address_s_unread_answers_leave_no_room_for_more_of_them() -> None:
    """Where the shares are used up, who takes no answers is ended: what one read makes of them is there."""
    limits = Limits(ping_strikes_max=1 << 30, control_bytes_max=1 << 12, send_bytes_max=1 << 16)
    async with house(limits) as here, AsyncExitStack() as stack:
        deaf = [await stack.enter_async_context(Raw.to(here.port, receive_bytes=4096)) for _ in range(8)]
        await until(lambda: here.server.connections == 8, "all of them")
        tasks = [asyncio.create_task(raw.send(frame(PING, 0, 0, bytes(8)) * 400_000)) for raw in deaf]
        await until(lambda: here.server.connections < 8, "the first ones beyond the limit")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# -- requests --------------------------------------------------------------------------------------


def test_a_request_counts_until_its_service_asks_for_the_next_one() -> None:
    one = Door(Limits())
    one.receive(opened(1, "Hold"), data(1, prefixed(bytes(1000))), data(1, prefixed(bytes(10))), hello=True)
    (held,) = one.runner.held
    both = one.session.held
    assert both >= 1010
    assert held.take() is not None
    assert one.session.held == both, "taken, and still in memory"
    assert held.take() is not None
    assert 10 <= one.session.held < 100, "it has done with the first"
    held.done()
    assert one.session.held == 0
    held.hold_more(70)
    assert one.session.held == 70
    one.receive(rst(1))
    one.check_empty()


def test_an_unfinished_request_of_a_stream_can_be_the_one_that_goes() -> None:
    limits = Limits(receive_bytes_max=1000)
    budget = Budget(limits)
    large, small = Door(limits, budget=budget), Door(limits, budget=budget)
    large.receive(opened(1, "Chat"), data(1, prefixed(bytes(2000))[:900]), hello=True)
    small.receive(opened(1, "Echo"), data(1, prefixed(bytes(200))[:150]), hello=True)
    large.settle()
    assert large.reply(1).status == codes.UNAVAILABLE
    small.receive(data(1, prefixed(bytes(200))[150:], end=True))
    assert small.reply(1).status == 0


def test_a_whole_request_that_its_handler_waits_with_counts() -> None:
    one = Door(Limits())
    one.receive(unary(1, "Park", bytes(5000)), hello=True)
    assert one.session.held >= 5000
    one.receive(unary(3, "Park", bytes(CALL_BYTES // 2)))
    assert one.session.held < 5000 + CALL_BYTES // 2, "small ones are in what a call counts"
    for parked in list(one.runner.parked):
        parked.succeed(b"")
    one.settle()
    one.check_empty()


def test_bodies_of_plain_requests_count_until_they_are_answered() -> None:
    one = Door(Limits(connection_receive_bytes_max=50_000))
    post = block(pseudo(b"/", b"PUT"))
    for stream in (1, 3, 5):
        one.receive(headers(stream, post), data(stream, bytes(16_000)), hello=stream == 1)
    assert one.session.held == 48_000
    one.receive(headers(7, post), data(7, bytes(16_000)))
    assert one.reply(7).http == 503
    assert one.session.held == 48_000
    one.receive(data(1, end=True))
    assert one.reply(1).http == 200
    assert one.session.held == 32_000
    one.receive(data(3, bytes(16_000)), data(3, bytes(16_000)))  # too large to be kept: it is read away
    assert one.session.held == 16_000
    one.receive(rst(3), rst(5))
    one.check_empty()


async def test_calls_of_one_address_leave_others_theirs() -> None:
    async with house(Limits(calls_max=40)) as here, AsyncExitStack() as stack:
        for _ in range(2):
            raw = await stack.enter_async_context(Raw.to(here.port))
            for stream in range(1, 101, 2):  # one read after the other: all calls are counted between
                await raw.send(call(stream, "/test.Bench/Wait"))
            await raw.until(RST_STREAM)
        assert 30 <= here.server.budget.calls.held <= 32
        other = await stack.enter_async_context(Raw.to(here.port, source="127.0.0.2"))
        assert await other.answers()
        await stack.aclose()
        await until(lambda: here.server.budget.calls.held == 0)
        await here.at_rest()


async def test_calls_of_many_addresses_leave_a_newcomer_its_own() -> None:
    async with house(Limits(calls_max=40)) as here, AsyncExitStack() as stack:
        for number in range(2, 14):
            raw = await stack.enter_async_context(Raw.to(here.port, source=f"127.0.0.{number}"))
            await raw.send(b"".join(call(stream, "/test.Bench/Wait") for stream in range(1, 101, 2)))
            await raw.until(RST_STREAM)
        assert here.server.budget.calls.held >= 40
        other = await stack.enter_async_context(Raw.to(here.port, source="127.0.0.20"))
        assert await other.answers()
        await stack.aclose()
        await until(lambda: here.server.budget.calls.held == 0)
        await here.at_rest()


async def test_what_pipelines_behind_an_answer_counts() -> None:
    async with paged() as (server, _), Raw.to(server.port, hello=b"", receive_bytes=4096) as raw:
        sending = asyncio.create_task(raw.send(GET * 100_000))
        await until(lambda: server.wires and not next(iter(server.wires)).reading)
        assert 1 << 14 <= server.budget.receive_held < 1 << 20
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


# -- who is one peer -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("::1", "::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("", ""),
        ("no:address", "no:address"),
    ],
)
def test_a_peer_has_one_address_of_ipv4_and_a_64_of_ipv6(address: str, network: str) -> None:
    assert network_of(address) == network


async def test_peers_words_make_no_metrics() -> None:
    """Whatever is asked for: the names and labels of the metrics are ours."""

    def labels() -> set[str]:
        return {line.rpartition(b" ")[0].decode() for line in metrics.exposition().splitlines()}

    async with house() as here, Raw.to(here.port) as raw:
        assert await raw.answers(1)
        before = labels()
        for at in range(3, 203, 2):
            encoded = attack_frames.request_block(f"/stranger{at}/Method{at}")
            await raw.send(frame(HEADERS, END_HEADERS | END_STREAM, at, encoded))
        await raw.send(call(203, "/test.Bench/Empty"))
        await raw.until(HEADERS, 203, END_STREAM)
        for at in range(20):
            sock = connected(here.port)
            web = Raw(sock)
            await web.send(b"GET /BREW%d HTTP/1.1\r\nhost: BREW%d\r\nBREW%d: 1\r\n\r\n" % (at, at, at))
            assert await web.octets()
            sock.close()
        assert {line for line in labels() - before if "stranger" in line or "BREW" in line} == set()
        assert len(labels()) < len(before) + 20

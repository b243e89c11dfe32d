"""Limits of the door's shell, each reached on real sockets; a peer that keeps them is served on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.attacks import frames
from tests.attacks.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    frame,
    u32,
)
from tests.attacks.messages import gzipped_zeros
from tests.common.door.support.peers import (
    PATIENCE_S,
    Raw,
    call,
    connected,
    flow,
    goaway_of,
    house,
    polite,
    told,
)
from tests.waiting import until
from tidb_binlog import rpc
from tidb_binlog.door.limits import Limits

LOOPS = ("asyncio", "uvloop")
ASK = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
ROOT = Path(__file__).parents[4]
BUSY_S = 2.0
"""More than a busy machine needs for what a peer does in time here."""


async def is_closed(sock: socket.socket) -> bool:
    """The server ended this connection and said nothing."""
    return await Raw(sock).octets() == b""


async def test_connections_in_all(caplog: pytest.LogCaptureFixture) -> None:
    async with house(Limits(connections_max=3)) as here:
        open_sockets = [connected(here.port, source=f"127.0.0.{host}") for host in (2, 3, 4)]
        await until(lambda: here.server.connections == 3)
        refused = connected(here.port, source="127.0.0.5")
        assert await is_closed(refused)
        refused.close()
        assert "connections: its connection was closed: too many are open" in told(caplog)
        for sock in open_sockets:
            sock.close()
        await here.at_rest()
        async with Raw.to(here.port) as raw:
            assert await raw.answers()


async def test_connections_of_one_address(caplog: pytest.LogCaptureFixture) -> None:
    async with house(Limits(connections_per_address_max=2)) as here:
        greedy = [connected(here.port, source="127.0.0.2") for _ in range(20)]
        await until(lambda: here.server.connections == 2)
        assert all([await is_closed(sock) for sock in greedy[2:]])
        async with Raw.to(here.port, source="127.0.0.3") as raw:
            assert await raw.answers()
        for sock in greedy:
            sock.close()
        await here.at_rest()
        assert told(caplog).startswith("connections_per_address")
        async with Raw.to(here.port, source="127.0.0.2") as raw:
            assert await raw.answers()


@pytest.mark.parametrize(
    "first", [b"", b"G", b"PRI * HT", frames.PREFACE, frames.PREFACE + b"\0\0\x06"], ids=len
)
async def test_a_client_has_to_say_what_it_speaks(first: bytes) -> None:
    async with house(Limits(handshake_s=0.3)) as here:
        async with Raw.to(here.port, hello=first) as raw:
            began_s = time.monotonic()
            found = await raw.rest()
            assert time.monotonic() - began_s > 0.2
            if first.startswith(frames.PREFACE):
                assert goaway_of(found) == (1, b"no SETTINGS came")
        await here.at_rest()


async def test_settings_have_to_be_acknowledged() -> None:
    async with house(Limits(handshake_s=BUSY_S)) as here, Raw.to(here.port) as raw:
        assert await raw.answers(1)
        assert goaway_of(await raw.rest())[0] == 4  # SETTINGS_TIMEOUT
        await here.at_rest()


async def test_a_header_block_takes_too_long() -> None:
    async with house(Limits(header_block_s=0.2)) as here, Raw.to(here.port) as raw:
        await raw.send(frame(HEADERS, 0, 1, b"\x83"))
        assert goaway_of(await raw.rest()) == (11, b"header block takes too long")
        await here.at_rest()


# -- HTTP/1 ------------------------------------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.parametrize(
    "slow",
    [
        b"GET /healthz HTTP/1.1\r\nx-slow: " + b"y" * 1000,
        b"POST /post HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n" + b"y" * 999,
    ],
    ids=["head", "body"],
)
async def test_a_slow_http1_request(slow: bytes) -> None:
    """An octet now and then does not keep a connection."""
    async with house(Limits(http_idle_s=0.3)) as here, Raw.to(here.port, hello=slow[:60]) as raw:
        for octet in slow[60:]:
            await raw.send(bytes((octet,)))
            await asyncio.sleep(0.02)
            with contextlib.suppress(BlockingIOError):
                if raw.sock.recv(1, socket.MSG_PEEK) == b"":
                    break
        else:
            pytest.fail("it was kept to its end")
        raw.sock.close()
        await here.at_rest()


@pytest.mark.integration
async def test_an_idle_http1_connection() -> None:
    async with house(Limits(http_idle_s=BUSY_S)) as here, Raw.to(here.port, hello=ASK) as raw:
        for _ in range(3):  # each request begins the time anew
            assert (await raw.octets()).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.4 * BUSY_S)
            await raw.send(ASK)
        assert (await raw.octets()).startswith(b"HTTP/1.1 200")
        assert await raw.octets() == b""
        raw.sock.close()
        await here.at_rest()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nx: " + b"y" * 3000, b"431"),
        (b"POST /post HTTP/1.1\r\nhost: x\r\ncontent-length: 5000\r\n\r\n", b"413"),
        (
            b"POST /post HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nbb8\r\n" + b"y" * 3000,
            b"413",
        ),
    ],
)
async def test_large_http1_requests(request_: bytes, status: bytes) -> None:
    limits = Limits(http_head_bytes_max=2000, http_body_bytes_max=2000)
    async with house(limits) as here, Raw.to(here.port, hello=request_) as raw:
        assert (await raw.octets()).startswith(b"HTTP/1.1 " + status)
        while await raw.octets():
            pass
        raw.sock.close()
        await here.at_rest()


async def test_pipelined_requests_wait_in_the_socket() -> None:
    """What a client sends ahead is not collected without end."""
    async with house(Limits(http_head_bytes_max=2000)) as here, Raw.to(here.port, hello=b"") as raw:
        asked = 2000
        sending = asyncio.create_task(raw.send(ASK * asked))
        seen = b""
        while seen.count(b"HTTP/1.1 200") < asked:
            data = await raw.octets()
            assert data
            seen += data
        await sending


# -- HTTP/2: time ------------------------------------------------------------------------------------


async def test_silent_bodies_and_stuck_replies_are_cut() -> None:
    hello = frames.PREFACE + frames.settings([(frames.INITIAL_WINDOW_SIZE, 10)])
    limits = Limits(silent_body_s=0.2, stuck_reply_s=0.2)
    async with house(limits) as here, Raw.to(here.port, hello=hello) as raw:
        await raw.send(call(1, "/test.Bench/Swallow", end=False))  # never ends
        await raw.send(call(3, "/test.Bench/Give", struct.pack(">Q", 1000)))  # has no window
        await raw.send(call(5, "/test.Bench/Echo", end=False))  # a stream may be silent
        cut = {(await raw.until(RST_STREAM))[2:] for _ in range(2)}
        assert cut == {(1, u32(8)), (3, u32(8))}
        assert here.server.budget.send_queued == 0
        assert here.bench.flowing == 1
        assert await raw.answers(7)


async def test_who_does_not_answer_a_ping_is_gone() -> None:
    limits = Limits(keepalive_s=0.2, keepalive_answer_s=BUSY_S)
    async with house(limits) as here, Raw.to(here.port) as stopped, Raw.to(here.port) as alive:
        await stopped.send(flow(1, 1 << 30, 1 << 10))
        began_s = time.monotonic()

        async def answering() -> None:
            while found := await alive.next():
                if found[0] == PING:
                    await alive.send(frame(PING, frames.ACK, 0, found[3]))

        answers = asyncio.create_task(answering())
        await until(lambda: here.server.connections == 1, "the stopped one is ended")
        assert time.monotonic() - began_s > BUSY_S
        await until(lambda: here.bench.flowing == 0)
        assert not answers.done()
        answers.cancel()


@pytest.mark.parametrize("limits", [Limits(idle_s=BUSY_S), Limits(age_s=BUSY_S)], ids=["idle", "age"])
async def test_idle_and_old_connections_end_in_good_order(limits: Limits) -> None:
    async with house(limits) as here, Raw.to(here.port) as raw:
        assert await raw.answers(1)
        ping = await raw.until(PING)
        await raw.send(frame(PING, frames.ACK, 0, ping[3]))
        assert goaway_of(await raw.rest()) == (0, b"")
        await here.at_rest()


# -- HTTP/2: octets ----------------------------------------------------------------------------------


async def test_streams_of_a_connection() -> None:
    async with house(Limits(streams_max=4)) as here, Raw.to(here.port) as raw:
        await raw.send(b"".join(call(stream, "/test.Bench/Wait") for stream in (1, 3, 5, 7, 9)))
        assert (await raw.until(RST_STREAM))[2:] == (9, u32(7))
        here.bench.release.set()
        for stream in (1, 3, 5, 7):
            await raw.until(HEADERS, stream, END_STREAM)
        assert await raw.answers(11)


async def test_unread_answers_stop_reading() -> None:
    """A peer that asks and never reads: its questions wait in its own socket."""
    limits = Limits(ping_strikes_max=1 << 30, control_bytes_max=1 << 12)
    asked = 400_000
    async with house(limits) as here, Raw.to(here.port, receive_bytes=4096) as raw:
        await raw.send(frame(SETTINGS, frames.ACK, 0))
        sending = asyncio.create_task(
            asyncio.get_running_loop().sock_sendall(raw.sock, frame(PING, 0, 0, bytes(8)) * asked)
        )
        await until(lambda: here.server.wires and not next(iter(here.server.wires)).reading)
        (wire,) = here.server.wires
        assert wire.connection is not None
        assert sum(map(len, wire.connection.outbound.out)) < 1 << 19  # one read more than the limit
        async with Raw.to(here.port) as other:
            assert await other.answers()
        answered = 0
        while answered < 17 * asked:  # it reads after all: nothing was lost
            data = await raw.octets()
            assert data
            answered += len(data)
        await sending
        assert wire.reading


async def test_dead_pullers_beside_a_polite_client() -> None:
    """50 connections ask for streams without end and never read a byte."""
    limits = Limits(stream_send_bytes_max=1 << 18, connection_send_bytes_max=1 << 19, send_bytes_max=1 << 22)
    wide = frames.PREFACE + frames.settings([(frames.INITIAL_WINDOW_SIZE, frames.WINDOW_MAX)])
    async with house(limits) as here, contextlib.AsyncExitStack() as stack:
        caller = await stack.enter_async_context(polite(here.port))
        pullers = [connected(here.port, receive_bytes=4096) for _ in range(50)]
        for sock in pullers:
            sock.send(
                wide + frames.window_update(0, 1 << 30) + flow(1, 1 << 40, 1 << 16) + flow(3, 1 << 40, 1000)
            )
        await until(lambda: here.bench.flowing == 100)
        await until(lambda: here.server.budget.send_queued >= 1 << 22)
        seen = caller.calls
        await until(lambda: caller.calls > seen + 50)
        # Each connection may have one message more than there is room for.
        assert here.server.budget.send_queued < (1 << 22) + 50 * (1 << 17)
        for wire in here.server.wires:
            assert wire.connection is not None
            assert wire.connection.outbound.queued < (1 << 19) + (1 << 17)
        for sock in pullers:
            sock.close()
        await until(lambda: here.bench.flowing == 0, "generators are closed")
        await until(lambda: here.server.budget.send_queued == 0)
        await stack.aclose()
        await here.at_rest()


async def test_unary_replies_that_nobody_reads() -> None:
    limits = Limits(connection_send_bytes_max=1 << 20, send_bytes_max=1 << 22)
    none = frames.PREFACE + frames.settings([(frames.INITIAL_WINDOW_SIZE, 0)])
    async with house(limits) as here:
        async with polite(here.port), Raw.to(here.port, hello=none) as dead:
            asked = b"".join(call(at, "/test.Bench/Give", (1 << 18).to_bytes(8)) for at in range(1, 201, 2))
            await dead.send(asked)
            for _ in range(100 - 3):
                refused = await dead.until(HEADERS, flags=END_STREAM)
                assert b"grpc-status\x018" in refused[3]
            assert here.server.budget.send_queued == 3 * ((1 << 18) + 5)
            caller = rpc.Client(f"127.0.0.1:{here.port}")  # who reads gets large ones meanwhile
            gives = (caller.unary("/test.Bench/Give", (1 << 18).to_bytes(8), PATIENCE_S) for _ in range(3))
            assert [len(reply) for reply in await asyncio.gather(*gives)] == [1 << 18] * 3
            await caller.close()
        await here.at_rest()


async def test_a_slow_reader_gets_its_stream() -> None:
    """While dead ones hold all the memory there is for streams."""
    limits = Limits(send_bytes_max=1 << 20, connection_send_bytes_max=1 << 20, stream_send_bytes_max=1 << 22)
    wide = frames.PREFACE + frames.settings([(frames.INITIAL_WINDOW_SIZE, frames.WINDOW_MAX)])
    async with house(limits) as here, Raw.to(here.port, hello=wide, receive_bytes=4096) as dead:
        await dead.send(frames.window_update(0, 1 << 30) + flow(1, 1 << 40, 1 << 16))
        await until(lambda: here.server.budget.send_queued >= 1 << 20)
        caller = rpc.Client(f"127.0.0.1:{here.port}")
        stream = caller.server_stream("/test.Bench/Flow", struct.pack(">QQ", 200, 1 << 14))
        assert sum([len(part) async for part in stream]) == 200 << 14
        await caller.close()


async def test_requests_held_by_one_connection() -> None:
    limits = Limits(connection_receive_bytes_max=1 << 20, stream_window_bytes=1 << 20)
    async with house(limits) as here:
        async with Raw.to(here.port) as raw:
            part = bytes(1 << 14)
            for stream in (1, 3, 5):
                await raw.send(
                    frame(HEADERS, END_HEADERS, stream, frames.request_block("/test.Bench/Swallow"))
                )
                await raw.send(
                    frame(DATA, 0, stream, b"\0" + u32(1 << 30)) + frame(DATA, 0, stream, part) * 25
                )
            refused = await raw.until(HEADERS, flags=END_STREAM)
            assert refused[2] == 5
            assert b"grpc-status\x0214" in refused[3]
            assert here.server.budget.receive_held <= 1 << 20
            assert await raw.answers(7)
        await here.at_rest()


async def test_requests_held_in_all() -> None:
    """The largest of the connection that holds most has to go, not the one that came last."""
    limits = Limits(receive_bytes_max=1 << 20, stream_window_bytes=1 << 20)
    async with house(limits) as here:
        async with Raw.to(here.port) as large, Raw.to(here.port) as small:
            block = frames.request_block("/test.Bench/Swallow")
            part = frame(DATA, 0, 1, bytes(1 << 14))
            start = frame(HEADERS, END_HEADERS, 1, block) + frame(DATA, 0, 1, b"\0" + u32(1 << 30))
            await large.send(start + part * 60)
            await until(lambda: here.server.budget.receive_held > 60 << 14)
            await small.send(start + part * 10)
            refused = await large.until(HEADERS, flags=END_STREAM)
            assert b"grpc-status\x0214" in refused[3]
            assert await large.answers(3)
            assert await small.answers(3)
            assert 10 << 14 <= here.server.budget.receive_held < 11 << 14
        await here.at_rest()


async def test_gzip_that_unpacks_to_far_more() -> None:
    packed = gzipped_zeros(16 << 20)
    block = frames.request_block("/test.Bench/Swallow", "http", ("grpc-encoding", "gzip"))
    async with house() as here, Raw.to(here.port) as raw:
        await raw.send(frame(HEADERS, END_HEADERS, 1, block))
        await raw.send(frame(DATA, 0, 1, b"\x01" + u32(len(packed)) + packed[:10_000]))
        await raw.send(frame(DATA, END_STREAM, 1, packed[10_000:]))
        refused = await raw.until(HEADERS, flags=END_STREAM)
        assert b"grpc-status\x018" in refused[3]
        await here.at_rest(1)


# -- files -------------------------------------------------------------------------------------------

CHILD = """
import asyncio, os, resource, sys
from tests.common.door.support.peers import house

async def main(hard, spare):
    if hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    async with house() as here:
        if spare:
            files = len(os.listdir("/proc/self/fd")) - 1 + spare
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        print(here.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main(*map(int, sys.argv[1:])))
"""


@contextlib.asynccontextmanager
async def child(hard: int, spare: int) -> AsyncIterator[tuple[int, asyncio.subprocess.Process]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        CHILD,
        str(hard),
        str(spare),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        yield int(await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)), process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.integration
async def test_no_files_are_left() -> None:
    """Nobody can be accepted, everybody who is in is served, and the next come in when files are free."""
    async with child(0, 6) as (port, _), Raw.to(port) as raw, Raw.to(port, hello=ASK) as http1:
        assert await raw.answers(1)
        assert (await http1.octets()).startswith(b"HTTP/1.1 200")
        crowd = [connected(port) for _ in range(20)]
        await asyncio.sleep(0.1)
        for stream in (3, 5):
            assert await raw.answers(stream)
            await http1.send(ASK)
            assert (await http1.octets()).startswith(b"HTTP/1.1 200")
        for sock in crowd:
            sock.close()
        async with Raw.to(port) as late:
            assert await late.answers()


@pytest.mark.integration
async def test_connections_leave_files_to_the_process() -> None:
    """Also where there are fewer in all than are to be left."""
    async with child(64, 0) as (port, _):
        crowd = [connected(port) for _ in range(64)]
        async with Raw.to(port) as refused:
            assert await refused.octets() == b""
        for sock in crowd[:30]:
            raw = Raw(sock)
            await raw.send(frames.PREFACE + frames.settings())
            assert await raw.answers()
        for sock in crowd:
            sock.close()


async def test_connections_of_one_ipv6_network_are_one_peer_s() -> None:
    async with house(Limits(connections_per_address_max=2)) as here:
        pairs = [socket.socketpair() for _ in range(4)]
        for number, (mine, _) in enumerate(pairs):
            here.server._take(mine, f"2001:db8::{number}:1" if number < 3 else "2001:db8:0:1::1")
        await until(lambda: len(here.server.wires) == 3)
        closed = [mine.fileno() < 0 for mine, _ in pairs]
        assert closed == [False, False, True, False]
        for _, theirs in pairs:
            theirs.close()
        await here.at_rest()

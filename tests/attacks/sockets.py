"""Below HTTP/2: many connections, TLS half done, the wrong protocol, plain garbage.

Where an attack is many connections, `frames_sent` counts those that came to be, `ended` says that the server
closed one of them, `debug` how many.
"""

from __future__ import annotations

import random
import select
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Final

from tests.attacks import frames
from tests.attacks.session import Chunk, Outcome, Session, Target, attack, tcp

CONNECTIONS: Final = 800
_POLL_S: Final = 0.05


def _crowd(target: Target, seconds: float, connections_max: int, first: bytes) -> Outcome:
    """Connect, send `first`, and stay."""
    began_s = time.monotonic()
    deadline_s = began_s + seconds
    open_sockets: dict[int, socket.socket] = {}
    poll = select.poll()
    made = closed = 0
    ended_s = 0.0
    try:
        while (now_s := time.monotonic()) < deadline_s:
            if made < connections_max:
                try:
                    sock = tcp(target)
                except OSError:
                    closed += 1
                    made = connections_max
                    continue
                open_sockets[sock.fileno()] = sock
                poll.register(sock, select.POLLIN)
                made += 1
                closed += not _sent(sock, first)
            for number, _ in poll.poll(0 if made < connections_max else _POLL_S * 1000):
                if not _is_open(open_sockets[number]):
                    poll.unregister(number)
                    open_sockets.pop(number).close()
                    closed += 1
            if closed and not ended_s:
                ended_s = now_s
            if made >= connections_max and not open_sockets:
                break
    finally:
        for sock in open_sockets.values():
            sock.close()
    took_s = (ended_s or time.monotonic()) - began_s
    return Outcome(closed > 0, None, b"%d of %d closed" % (closed, made), took_s, made)


def _sent(sock: socket.socket, data: bytes) -> bool:
    try:
        sock.sendall(data)
    except OSError:
        return False
    return True


def _is_open(sock: socket.socket) -> bool:
    try:
        return bool(sock.recv(1 << 16, socket.MSG_DONTWAIT))
    except BlockingIOError:
        return True
    except OSError:
        return False


def connections(target: Target, seconds: float, frames_max: int) -> Outcome:
    """Connections that say nothing."""
    return _crowd(target, seconds, min(frames_max, CONNECTIONS), b"")


def half_open_tls(target: Target, seconds: float, frames_max: int) -> Outcome:
    """Connections that send the first half of a ClientHello."""
    hello = client_hello()
    return _crowd(target, seconds, min(frames_max, CONNECTIONS), hello[: len(hello) // 2])


def handshakes(target: Target, seconds: float, frames_max: int) -> Outcome:
    """Connections that send a whole ClientHello, for which the server signs, and then nothing."""
    return _crowd(target, seconds, frames_max, client_hello())


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2"])
    try:
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def clear_on_tls(target: Target, seconds: float, frames_max: int) -> Outcome:
    """HTTP/2 in clear text where TLS is asked for."""
    return attack(target, seconds, frames_max, _calls, clear=True, hold=True)


def tls_on_clear(target: Target, seconds: float, frames_max: int) -> Outcome:
    """A ClientHello where clear text is spoken."""
    return attack(
        target, seconds, frames_max, lambda session: iter(()), hello=client_hello(), clear=True, hold=True
    )


def _calls(session: Session) -> Iterator[Chunk]:
    block = session.target.block(session.target.empty)
    body = frames.message(b"")
    for stream in range(1, 21, 2):
        yield (
            frames.frame(frames.HEADERS, frames.END_HEADERS, stream, block)
            + frames.frame(frames.DATA, frames.END_STREAM, stream, body),
            2,
        )


def garbage(target: Target, seconds: float, frames_max: int) -> Outcome:
    """Octets without meaning from the first one on, inside TLS where there is TLS."""
    noise = random.Random(7).randbytes(1 << 15)

    def steps(session: Session) -> Iterator[Chunk]:
        while True:
            yield noise, 1

    return attack(target, seconds, frames_max, steps, hello=b"", hold=True)


def http1_endless(target: Target, seconds: float, frames_max: int) -> Outcome:
    """An HTTP/1 request whose head never ends."""
    line = b"x-more: " + b"y" * 1000 + b"\r\n"

    def steps(session: Session) -> Iterator[Chunk]:
        while True:
            yield line * 16, 16

    return attack(target, seconds, frames_max, steps, hello=b"GET /status HTTP/1.1\r\nhost: x\r\n", hold=True)

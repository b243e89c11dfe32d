"""One hostile connection: sends what an attack gives it, notes what the server does about it.

In     chunks of an attack (bytes and how many frames they are, or seconds to wait), the server's replies
Out    `Outcome`
Holds  it ends at its deadline, at its number of frames or when the server ends it, whatever comes first
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.attacks import frames
from tests.waiting import PATIENCE_S, until_here

Chunk = tuple[bytes, int] | float
"""Bytes and the number of frames in them; or seconds in which nothing is sent."""

SETTLE_S: Final = 0.5
READ_BYTES: Final = 1 << 18
_POLL_S: Final = 0.05
_head = struct.Struct(">LBL").unpack_from
_Again = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@dataclass(frozen=True, slots=True)
class Target:
    """Whom to attack. `tls`: PEM files of the authority, a certificate and its key; None for clear text.

    `source` is the own address, where it matters how many connections come from one.
    """

    host: str
    port: int
    tls: tuple[str, str, str] | None = None
    source: str = ""
    empty: str = "/test.Bench/Empty"
    swallow: str = "/test.Bench/Swallow"
    flow: str = "/test.Bench/Flow"
    echo: str = "/test.Bench/Echo"

    @property
    def scheme(self) -> str:
        return "http" if self.tls is None else "https"

    def block(self, path: str, *more: tuple[str, str]) -> bytes:
        return frames.request_block(path, self.scheme, *more)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the server did. Without a GOAWAY `code` is None, also when the connection was cut."""

    ended: bool
    code: int | None
    debug: bytes
    seconds: float
    frames_sent: int
    resets: dict[int, int] = field(default_factory=dict)
    """RST_STREAM frames by error code."""
    replies: int = 0
    """HEADERS frames."""

    def __str__(self) -> str:
        if not self.ended:
            what = "held"
        elif self.code is None:
            what = "closed"
        else:
            what = _name(self.code)
        resets = ", ".join(f"{count} x RST {_name(code)}" for code, count in sorted(self.resets.items()))
        debug = f" {self.debug.decode(errors='replace')!r}" if self.debug else ""
        return f"{what}{debug} after {self.seconds:.2f} s, {self.frames_sent:,} frames" + (
            f", {resets}" if resets else ""
        )


def _name(code: int) -> str:
    return frames.CODE_NAMES[code] if code < len(frames.CODE_NAMES) else str(code)


def _ready(sock: socket.socket, events: int, timeout_s: float) -> int:
    """Which of `events` (and errors) there are within that time. Unlike select, for any number of sockets."""
    poll = select.poll()
    poll.register(sock, events)
    found = poll.poll(timeout_s * 1000)
    return found[0][1] if found else 0


def tcp(target: Target, *, receive_bytes: int = 0) -> socket.socket:
    """A connection, before any TLS. `receive_bytes` makes its receive buffer small."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(PATIENCE_S)
        if target.source:
            sock.bind((target.source, 0))
        sock.connect((target.host, target.port))
    except BaseException:
        sock.close()
        raise
    return sock


def client_context(files: tuple[str, str, str], alpn: list[str]) -> ssl.SSLContext:
    ca, cert, key = files
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=ca)
    context.load_cert_chain(cert, key)
    if alpn:
        context.set_alpn_protocols(alpn)
    return context


class Session:
    """A connection of the attacker. `deaf` sessions never read, until `outcome` asks what came."""

    def __init__(
        self,
        target: Target,
        seconds: float,
        frames_max: int,
        *,
        hello: bytes | None = None,
        deaf: bool = False,
        clear: bool = False,
    ) -> None:
        """`hello` replaces preface and SETTINGS; `clear` leaves out TLS although the target has it."""
        self.target = target
        self.window = 65_535  # of the connection, ours to send
        self.stream_window = 65_535  # of a new stream, ours to send
        self.stream_windows: Counter[int] = Counter()  # what WINDOW_UPDATE added to single streams
        self.frames_sent = 0
        self._frames_max = frames_max
        self._deaf = deaf
        self._code: int | None = None
        self._debug = b""
        self._acknowledged = False
        self._closed = False
        self._resets: Counter[int] = Counter()
        self._replies = 0
        self._rest = b""
        sock = tcp(target, receive_bytes=4096 if deaf else 0)
        if target.tls is not None and not clear:
            try:
                sock = client_context(target.tls, ["h2"]).wrap_socket(sock, server_hostname=target.host)
            except BaseException:
                sock.close()
                raise
        sock.setblocking(False)
        self._sock = sock
        self._began_s = time.monotonic()
        self._ended_s = 0.0
        self._deadline_s = self._began_s + seconds
        self.in_block = False  # inside a header block an acknowledgement would be a mistake of another kind
        self._ack_due = self._has_settings = False
        hello = frames.PREFACE + frames.settings() if hello is None else hello
        self.send(hello)
        if hello.startswith(frames.PREFACE):
            self._until_settings()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *ignored: object) -> None:
        self._sock.close()

    @property
    def ended(self) -> bool:
        return self._closed or bool(self._code)

    @property
    def is_over(self) -> bool:
        return self.ended or time.monotonic() >= self._deadline_s or self.frames_sent >= self._frames_max

    def carry_out(self, chunks: Iterator[Chunk], *, hold: bool) -> Outcome:
        """Send them all. `hold`: stay until the deadline, even when nothing is left to send."""
        for chunk in chunks:
            if isinstance(chunk, float):
                self.wait(chunk)
            else:
                self._acknowledge()
                if self.send(chunk[0]):
                    self.frames_sent += chunk[1]
            if self.is_over:
                break
        if hold:
            self.wait(self._deadline_s - time.monotonic())
        self._deaf = False
        settled_s = max(time.monotonic() + SETTLE_S, self._deadline_s)
        while not self.ended and time.monotonic() < settled_s:
            self._read(_POLL_S)
        return self.outcome()

    def outcome(self) -> Outcome:
        end_s = self._ended_s or time.monotonic()
        return Outcome(
            self.ended,
            self._code,
            self._debug,
            end_s - self._began_s,
            self.frames_sent,
            dict(self._resets),
            self._replies,
        )

    def wait(self, seconds: float) -> None:
        """Send nothing for so long; not beyond the deadline or the end."""
        end_s = min(time.monotonic() + seconds, self._deadline_s)
        while not self.ended and (left_s := end_s - time.monotonic()) > 0:
            if self._deaf:
                until_here(lambda: self.ended or time.monotonic() >= end_s, seconds=left_s + 1.0)
            else:
                self._read(min(left_s, _POLL_S))

    def until_acknowledged(self) -> None:
        """Read until our SETTINGS are acknowledged."""
        while not self.is_over and not self._acknowledged:
            self._read(_POLL_S)

    def until_replied(self) -> None:
        """Read until there is a reply, if only its first frame."""
        while not self.is_over and not self._replies:
            self._read(_POLL_S)

    def _until_settings(self) -> None:
        while not self.is_over and not self._has_settings:
            self._read(_POLL_S)
        self._acknowledge()

    def _acknowledge(self) -> None:
        if self._ack_due and not self.in_block:
            self._ack_due = False
            self.send(frames.frame(frames.SETTINGS, frames.ACK, 0))

    def send(self, data: bytes) -> bool:
        """All of it, reading what comes meanwhile; False when time or connection ended before."""
        view = memoryview(data)
        while view:
            if self.ended or time.monotonic() >= self._deadline_s:
                return False
            try:
                view = view[self._sock.send(view) :]
            except _Again:
                self._pause()
            except OSError:
                # A GOAWAY may have come before the cut.
                self._deaf = False
                self._read(0.0)
                self._close()
                return False
            if not self._deaf:
                self._read(0.0)
        return True

    def _pause(self) -> None:
        """Until there is room to send, or something to read."""
        if _ready(self._sock, select.POLLOUT | (0 if self._deaf else select.POLLIN), _POLL_S) & select.POLLIN:
            self._read(0.0)

    def _read(self, timeout_s: float) -> None:
        if self._closed:
            return
        try:
            waiting = isinstance(self._sock, ssl.SSLSocket) and self._sock.pending() > 0
            if not waiting and not _ready(self._sock, select.POLLIN, timeout_s):
                return
            data = self._sock.recv(READ_BYTES)
        except _Again:
            return
        except OSError:
            data = b""
        if data:
            self._parse(self._rest + data)
        else:
            self._close()

    def _close(self) -> None:
        self._closed = True
        self._ended_s = self._ended_s or time.monotonic()

    def _parse(self, data: bytes) -> None:
        at, end = 0, len(data)
        while end - at >= 9:
            length, flags, stream = _head(data, at)
            after = at + 9 + (length >> 8)
            if after > end:
                break
            self._note(length & 255, flags, stream, data[at + 9 : after])
            at = after
        self._rest = data[at:]

    def _note(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == frames.GOAWAY:
            code = int.from_bytes(payload[4:8], "big")
            if self._code is None or code:
                self._code, self._debug = code, payload[8:]
            if code:
                self._ended_s = self._ended_s or time.monotonic()
        elif kind == frames.RST_STREAM:
            self._resets[int.from_bytes(payload, "big")] += 1
        elif kind == frames.HEADERS:
            self._replies += 1
        elif kind == frames.WINDOW_UPDATE:
            octets = int.from_bytes(payload, "big")
            if stream:
                self.stream_windows[stream] += octets
            else:
                self.window += octets
        elif kind == frames.SETTINGS:
            if flags & frames.ACK:
                self._acknowledged = True
                return
            for name, value in struct.iter_unpack(">HL", payload):
                if name == frames.INITIAL_WINDOW_SIZE:
                    self.stream_window = value
            self._ack_due = self._has_settings = True


Steps = Callable[[Session], Iterator[Chunk]]


def attack(
    target: Target,
    seconds: float,
    frames_max: int,
    steps: Steps,
    *,
    hello: bytes | None = None,
    deaf: bool = False,
    hold: bool = False,
    clear: bool = False,
) -> Outcome:
    """One session from connect to its end."""
    with Session(target, seconds, frames_max, hello=hello, deaf=deaf, clear=clear) as session:
        return session.carry_out(steps(session), hold=hold)

"""HTTP/1.1 of one connection, as bytes in and bytes out; h11 reads, this module sets the bounds.

In     bytes as they came: `receive(data)`; the peer's end of file: `end()`; `answer(method, response)`
Out    events: `Ask` (a whole request, its body read away), `Refuse` (answer this, then close), `Closed`;
       bytes to send at once: `take_output()`, and what `answer` returns
Holds  the same bytes give the same events however they were cut. One request at a time: after an `Ask` or a
       `Refuse` nothing is read until `resume` says that its answer has left. It keeps a head and a body
Never  upgrades to h2c (R3.1: answered as if not asked), becomes a tunnel (CONNECT: 405), keeps a body of more
       than `BODY_KEPT_MAX` octets: it is read away

For the shell:

    events = http.receive(data)             # or http.end(), or http.resume(); one event at most
    write(http.take_output())               # `100 Continue`, when a client waits for it
    Ask:     write(http.answer(ask.method, await routes.answer(...)))
    Refuse:  write(http.answer(refuse.method, refuse.response))
    after an answer:  if http.closing: flush, half-close, linger, close
                      else, as soon as the peer took enough of it: events = http.resume()
    Closed:  close
    http.paused:  pipelined requests wait for the one being answered; read no further for now

A head larger than `http_head_bytes_max` or of more than `header_fields_max` fields is refused with 431, a
body larger than `http_body_bytes_max` (with its chunk framing) with 413, already when its Content-Length says
so. Seconds of silence are the shell's to count.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

import h11

from tidb_binlog.door.http.routes import BODY_KEPT_MAX, Response, split_target
from tidb_binlog.door.limits import Limits
from tidb_binlog.late_dataclass import dataclass, replace

CHUNKS_MAX: Final = 4096  # of one body; chunks of a few octets cost far more time than they cost bytes
_PIECE_BYTES: Final = 16 * 1024  # given to the parser at once
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_HEAD_LINES_MORE: Final = 2  # request line and empty line
_NO_BODY: Final = frozenset((204, 304))
_SAY_ALL: Final = frozenset((405, 413, 431))  # statuses that need no text


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to answer."""

    method: str
    target: str
    host: str  # of an absolute target, else of the Host header; "" when missing
    origin: str | None
    keep_alive: bool
    body: bytes | None = b""  # None: too large to be kept
    accept: str = ""


@dataclass(frozen=True, slots=True)
class Refuse:
    """A request that is answered with `response`; then the connection closes."""

    response: Response
    method: str = "GET"  # unless it could be read


@dataclass(frozen=True, slots=True)
class Closed:
    """The peer is done, at the end of a request or within."""


Event = Ask | Refuse | Closed


class Http1:
    """One connection, from the first byte of its first request."""

    __slots__ = (
        "_answered",
        "_asked",
        "_body",
        "_chunks",
        "_closing",
        "_ended",
        "_kept",
        "_limits",
        "_output",
        "_parser",
        "_pending",
        "_room",
        "_searched",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pending = bytearray()  # not yet parsed
        self._searched = 0  # of it, for the end of a head
        self._parser: h11.Connection | None = None  # while a body is read
        self._body: Ask | None = None  # the request that it belongs to
        self._kept: bytearray | None = None  # of this body
        self._room = 0  # bytes that this body may still take
        self._chunks = 0
        self._output = b""
        self._asked = False  # an answer is due, or on its way
        self._answered = False  # it is on its way
        self._closing = False
        self._ended = False

    @property
    def closing(self) -> bool:
        """No further request is read: when the answer that is due was sent, the connection closes."""
        return self._closing or (self._ended and not self._pending)

    @property
    def paused(self) -> bool:
        """Enough is kept after the request being answered."""
        return self._asked and len(self._pending) >= self._limits.http_head_bytes_max

    def receive(self, data: bytes) -> list[Event]:
        """Bytes of the peer. Ignored once the connection is closing."""
        if self._closing:
            return []
        self._pending += data
        events = self._advance()
        if len(self._pending) > self._limits.http_head_bytes_max + self._limits.http_body_bytes_max:
            # Only pipelined requests can be so many. A server may close after any answer; a peer asks again.
            self._pending.clear()
            self._closing = True
        return events

    def end(self) -> list[Event]:
        """The peer will send no more."""
        self._ended = True
        return self._advance()

    def resume(self) -> list[Event]:
        """An answer has left: the next request, if it is there already."""
        if self._answered:
            self._asked = self._answered = False
        return self._advance()

    @property
    def held(self) -> int:
        """Octets that are kept."""
        return len(self._pending) + len(self._kept or b"")

    def take_output(self) -> bytes:
        """Bytes to send that are no answer."""
        output, self._output = self._output, b""
        return output

    def answer(self, method: str, response: Response) -> bytes:
        """The bytes of the answer that is due. HEAD gets the head that GET would get."""
        assert self._asked
        assert not self._answered
        self._answered = True
        lines = [f"HTTP/1.1 {response.status} {_reason(response.status)}"]
        if response.status not in _NO_BODY:
            lines.append(f"content-length: {len(response.body)}")
        if response.body:
            lines.append(f"content-type: {response.content_type}")
        lines += (f"{name}: {value}" for name, value in response.headers)
        if self.closing:
            lines.append("connection: close")
        head = "\r\n".join((*lines, "", "")).encode("ascii")
        return head if method == "HEAD" or response.status in _NO_BODY else head + response.body

    def _advance(self) -> list[Event]:
        if self._asked or self._closing:
            return []
        event: Event | None = None
        if self._parser is not None:
            event = self._read_body(self._parser)
        elif self._pending:
            event = self._read_head()
        if event is None and self._ended:  # more is needed, and will not come
            self._drop()
            event = Closed()
        return [] if event is None else [event]

    def _read_head(self) -> Event | None:
        """Take the head, and what is there of the body; None when more bytes are needed."""
        pending, limits = self._pending, self._limits
        if pending[0] <= 0x20:
            return self._refuse(400)  # no method starts so: do not wait for the end of such a head
        end = _HEAD_END.search(pending, self._searched, limits.http_head_bytes_max)
        if end is None:
            self._searched = max(0, len(pending) - 2)
            return self._refuse(431) if len(pending) >= limits.http_head_bytes_max else None
        head = bytes(pending[: end.end()])
        del pending[: end.end()]
        self._searched = 0
        if head.count(b"\n") > limits.header_fields_max + _HEAD_LINES_MORE:
            return self._refuse(431)
        # A parser for each request: what it has read is then exactly this request.
        parser = h11.Connection(h11.SERVER, limits.http_head_bytes_max + limits.http_body_bytes_max)
        parser.receive_data(head)
        try:
            request = parser.next_event()
        except h11.RemoteProtocolError as error:
            return self._refuse(error.error_status_hint)
        if not isinstance(request, h11.Request):
            return self._refuse(400)
        return self._start(parser, request)

    def _start(self, parser: h11.Connection, request: h11.Request) -> Event | None:
        headers = dict(reversed(list(request.headers)))  # the first of each name
        method = request.method.decode("ascii")
        length = headers.get(b"content-length")
        chunked = b"transfer-encoding" in headers
        if not request.http_version.startswith(b"1."):
            return self._refuse(505, method)
        if method == "CONNECT":
            return self._refuse(405, method)
        if chunked and length is not None:
            return self._refuse(400, method)  # two lengths: peers that pick different ones lose step
        room = self._limits.http_body_bytes_max if chunked else int(length or 0)
        if room > self._limits.http_body_bytes_max:
            return self._refuse(413, method)
        target = request.target.decode("ascii")
        authority, _, _ = split_target(target)
        origin = headers.get(b"origin")
        self._body = Ask(
            method=method,
            target=target,
            host=authority or headers.get(b"host", b"").decode("latin-1"),
            origin=None if origin is None else origin.decode("latin-1"),
            keep_alive=request.http_version != b"1.0" and not _says_close(request),
            accept=headers.get(b"accept", b"").decode("latin-1"),
        )
        self._parser, self._room, self._chunks, self._kept = parser, room, 0, bytearray()
        return self._read_body(parser)

    def _read_body(self, parser: h11.Connection) -> Event | None:
        """Take what is there; None when more bytes are needed."""
        assert self._body is not None
        while True:
            try:
                event = parser.next_event()
            except h11.RemoteProtocolError as error:
                return self._refuse(error.error_status_hint, self._body.method)
            if isinstance(event, h11.Data):
                self._chunks += event.chunk_start
                if self._chunks > CHUNKS_MAX:
                    return self._refuse(413, self._body.method)
                if self._kept is not None and len(self._kept) + len(event.data) <= BODY_KEPT_MAX:
                    self._kept += event.data
                else:
                    self._kept = None
            elif isinstance(event, h11.EndOfMessage):
                # The last piece may reach into the next request.
                self._pending[:0] = parser.trailing_data[0]
                return self._ask()
            elif self._room == 0:
                return self._refuse(413, self._body.method)
            elif not self._pending:
                if parser.they_are_waiting_for_100_continue:
                    go_on = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
                    self._output += parser.send(go_on) or b""
                return None
            else:
                piece = bytes(self._pending[: min(self._room, _PIECE_BYTES)])
                del self._pending[: len(piece)]
                self._room -= len(piece)
                parser.receive_data(piece)

    def _ask(self) -> Ask:
        ask = self._body
        assert ask is not None
        if self._kept is None or self._kept:
            ask = replace(ask, body=None if self._kept is None else bytes(self._kept))
        self._parser = self._body = self._kept = None
        self._asked = True
        self._closing = not ask.keep_alive
        if self._closing:
            self._drop()
        return ask

    def _refuse(self, status: int, method: str = "GET") -> Refuse:
        self._asked = True
        self._drop()
        return Refuse(Response(status, b"" if status in _SAY_ALL else b"bad request\n"), method)

    def _drop(self) -> None:
        """Read no further."""
        self._closing = True
        self._parser = self._body = self._kept = None
        self._pending.clear()


def _says_close(request: h11.Request) -> bool:
    return any(
        token.strip().lower() == b"close"
        for name, value in request.headers
        if name == b"connection"
        for token in value.split(b",")
    )


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""

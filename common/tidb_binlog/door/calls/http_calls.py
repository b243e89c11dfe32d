"""HTTP calls: HTTP requests on HTTP/2 streams that are not gRPC; the routes answer them as on HTTP/1.1.

Why    h2spec and `curl --http2-prior-knowledge` speak so, and the pages are the same on either protocol
Tests  tests/common/door/server/test_listener_http.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidb_binlog.door.calls.grpc_calls import moved
from tidb_binlog.door.http.routes import BODY_KEPT_MAX, Response
from tidb_binlog.door.http2 import grpc_headers
from tidb_binlog.door.http2.header_fields import Head
from tidb_binlog.door.http2.outbound import NO_TRAILERS
from tidb_binlog.door.http2.streams import Stream
from tidb_binlog.rpc.service import RpcStatus

if TYPE_CHECKING:
    from tidb_binlog.door.calls.session import Session

_NEVER = float("inf")
_SMALL_BYTES = 64


class HttpCall:
    """One request. Its body is counted, and kept if it is a small one."""

    __slots__ = (
        "_kept",
        "_session",
        "_size",
        "deadline_s",
        "head",
        "held",
        "over",
        "since_s",
        "stream",
        "work",
    )

    def __init__(self, session: Session, stream: Stream, head: Head) -> None:
        self._session = session
        self._size = 0
        self._kept = bytearray()
        self.stream = stream
        self.head = head
        self.deadline_s = _NEVER
        self.since_s = session.connection.now_s
        self.held = 0
        self.over = False
        self.work: object = None

    @property
    def body(self) -> bytes | None:
        """None: too large to be kept."""
        return bytes(self._kept) if self._size <= BODY_KEPT_MAX else None

    def on_data(self, buffer: bytes, start: int, stop: int, end: bool) -> None:
        if self.over:
            return
        connection = self._session.connection
        self.since_s = connection.now_s
        self._size += stop - start
        if self._size > BODY_KEPT_MAX:
            self._kept.clear()
            self._release()
        elif stop > start:
            self._kept += memoryview(buffer)[start:stop]
            self.held += stop - start
            try:
                self._session.hold(self, stop - start)
            except RpcStatus:
                self._refuse()
                return
        if self._size > connection.limits.http_body_bytes_max:
            connection.abuse.refused("http_body_bytes")
            self._send(Response(413))
        elif end:
            if self._session.shares.takes(1):
                self._session.runner.plain(self)
            else:
                self._refuse()
        else:
            if stop - start < _SMALL_BYTES:
                connection.abuse.glitch(connection.now_s)
            connection.credit(self.stream, stop - start)

    def answer(self, response: Response) -> None:
        """The route's answer."""
        self.work = None
        self._release()
        if self.over:
            self._session.connection.lingering -= 1
        elif response.body and not self._session.shares.takes(len(response.body)):
            self._refuse()
        else:
            self._send(response)

    def _release(self) -> None:
        """The body is needed no more."""
        if self.held:
            held, self.held = self.held, 0
            self._session.release(self, held)

    def _refuse(self) -> None:
        """Requests, or answers that this peer or its address does not read, take too much memory already."""
        self._session.connection.abuse.refused("http_bytes")
        self._send(Response(503))

    def _send(self, response: Response) -> None:
        self.over = True
        self._release()
        session, stream = self._session, self.stream
        fields = {b"content-length": b"%d" % len(response.body)}
        if response.body:
            fields[b"content-type"] = response.content_type.encode()
        fields |= {name.encode(): value.encode() for name, value in response.headers}
        outbound = session.connection.outbound
        outbound.head(stream, grpc_headers.http_status(response.status, fields))
        if self.head.method != b"HEAD":
            outbound.data(stream, response.body)
        if outbound.end(stream, NO_TRAILERS):
            session.connection.finished(stream)
        else:
            session.is_queued(self)
        session.runner.flush()

    def on_cancel(self) -> None:
        if not self.over:
            self.over = True
            if self.work is not None:
                self._session.connection.lingering += 1
                self._session.runner.cancel(self)
            else:
                self._release()
        if self._session.waiting:
            self._session.wake_waiting()

    def on_room(self, sent: int) -> None:
        self.since_s = moved(self.since_s, sent, self._session.runner.now_s())
        if self._session.waiting:
            self._session.wake_waiting()

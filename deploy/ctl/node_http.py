"""Node over HTTP: one request to a pump or drainer, and what its answer means.

In     the address as the registry has it; TLS: https with our certificate, and the node's name checked
Holds  an answer within the deadline, or `Unavailable`; the body is bounded
Why    the Go nodes answer 200 whatever happened and put a code into the body, ours answer with a status. Both
       are read: what is no success in either is a refusal, in the node's own words
"""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from dataclasses import dataclass
from typing import Any, Final

from common.clock import SystemClock
from common.errors import BinlogError, Rejected, Unavailable
from common.port import split_address
from common.tls import TlsConfig

DEADLINE_S: Final = 10.0
BYTES_MAX: Final = 64 << 20
_CODE_OK: Final = 200
_PIECE: Final = 1 << 16
STATUS_PORT_OFFSET: Final = 100
"""A node on grpcio's server speaks HTTP on a port so much higher."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. `document`: the body, if it is a JSON object."""

    status: int
    body: bytes
    document: dict[str, Any] | None

    @property
    def said(self) -> str:
        """The message of the body, in one line."""
        if self.document is not None and self.document.get("message"):
            return str(self.document["message"]).strip()
        text = self.body[:500].decode("utf-8", "replace")
        return " ".join(text.split()) or f"HTTP status {self.status}"

    @property
    def is_success(self) -> bool:
        code = _CODE_OK if self.document is None else self.document.get("code", _CODE_OK)
        return self.status == 200 and code == _CODE_OK

    def refusal(self, who: str) -> BinlogError:
        """The error of an answer that is no success."""
        assert not self.is_success
        if self.status == 403:
            return Rejected(
                f"{who} takes this from its own host, over mutual TLS and from admin-from only: {self.said}",
                hint="run this on the node's host or with -ssl-ca, or add this host to the node's admin-from",
            )
        if self.status >= 500:
            return Unavailable(f"{who}: {self.said}", hint="look at its log")
        return Rejected(f"{who} refused: {self.said}")


async def ask(
    who: str,
    address: str,
    method: str,
    path: str,
    tls: TlsConfig | None,
    *,
    body: bytes = b"",
    deadline_s: float | None = None,
) -> Answer:
    """One request to `who` (its name in errors). Raises `Unavailable`, `ConfigError` for TLS files."""
    context = tls.client_context() if tls else None
    host, port = split_address(f"address of {who}", address)
    request = _Request(who, method, path, context, body, deadline_s or DEADLINE_S)
    return await asyncio.to_thread(request.run, host, port)


@dataclass(frozen=True, slots=True)
class _Request:
    who: str
    method: str
    path: str
    context: ssl.SSLContext | None
    body: bytes
    deadline_s: float

    def run(self, host: str, port: int) -> Answer:
        end_s = SystemClock().monotonic_s() + self.deadline_s
        try:
            try:
                return self._ask(host, port, end_s)
            except (http.client.HTTPException, ConnectionResetError) as error:
                try:
                    return self._ask(host, port + STATUS_PORT_OFFSET, end_s)
                except (OSError, OverflowError):
                    raise error from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = str(error) or type(error).__name__
            tls = "" if self.context is None else " over TLS"
            raise Unavailable(
                f"{self.who} at {host}:{port} does not answer{tls}: {why}",
                hint="is it running? look at its log",
            ) from None

    def _ask(self, host: str, port: int, end_s: float) -> Answer:
        context = self.context
        connection = (
            http.client.HTTPConnection(host, port, timeout=_left(end_s))
            if context is None
            else http.client.HTTPSConnection(host, port, timeout=_left(end_s), context=context)
        )
        try:
            connection.request(self.method, self.path, body=self.body or None)
            response = connection.getresponse()
            pieces: list[bytes] = []
            size = 0
            while piece := response.read1(_PIECE):
                pieces.append(piece)
                size += len(piece)
                if size > BYTES_MAX:
                    raise ValueError(f"its answer is larger than {BYTES_MAX >> 20} MiB")
                if connection.sock is not None:
                    connection.sock.settimeout(_left(end_s))
            return _answer(response.status, b"".join(pieces))
        finally:
            connection.close()


def _left(end_s: float) -> float:
    left_s = end_s - SystemClock().monotonic_s()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s


def _answer(status: int, body: bytes) -> Answer:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    return Answer(status, body, document if isinstance(document, dict) else None)

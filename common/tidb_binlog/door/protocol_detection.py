"""Protocol detection: what the first bytes of a connection speak.

Out    NEED_MORE, TLS, HTTP2, HTTP1, or a `Reject` with a reason that an operator understands
Holds  the same bytes get the same verdict however they were cut; 24 always suffice, a wrong one is noticed as
       soon as it is there
Never  shows the peer's bytes, but for the first few as hex
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from tidb_binlog.late_dataclass import dataclass

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # R3.4
BYTES_MAX: Final = len(PREFACE)  # what a verdict may need

_HTTP1: Final = tuple(
    method + b" "
    for method in (b"OPTIONS", b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"TRACE", b"CONNECT", b"PATCH")
)
_TLS: Final = b"\x16\x03"  # record of a handshake, any version
_HEX_BYTES_MAX: Final = 8


class WireProtocol(Enum):
    NEED_MORE = "need more"
    TLS = "TLS"
    HTTP2 = "HTTP/2"
    HTTP1 = "HTTP/1"


@dataclass(frozen=True, slots=True)
class Reject:
    reason: str


Verdict = WireProtocol | Reject

# For the shell, which knows what its port speaks.
TLS_ON_PLAIN_PORT: Final = Reject("TLS hello on a port without TLS: set ssl-ca, or connect without TLS")
PLAIN_ON_TLS_PORT: Final = Reject("no TLS on a port with TLS: connect with TLS and a certificate")


def detect(data: bytes) -> Verdict:
    """The verdict over a connection's first bytes; what follows the first 24 does not matter."""
    data = bytes(data[:BYTES_MAX])
    if data == PREFACE:
        return WireProtocol.HTTP2
    if data.startswith(_HTTP1):
        return WireProtocol.HTTP1
    if data.startswith(_TLS):
        return WireProtocol.TLS
    if any(start.startswith(data) for start in (PREFACE, _TLS, *_HTTP1)):
        return WireProtocol.NEED_MORE
    return Reject(_reason(data))


def _reason(data: bytes) -> str:
    if data.startswith((b"PROXY ", b"\r\n\r\n\x00\r\nQUIT\n")):
        return "PROXY protocol header: this port does not read it, switch it off in the load balancer"
    if data.startswith(b"PRI "):
        wrong = next(at for at, octet in enumerate(data) if octet != PREFACE[at])
        return f"broken HTTP/2 preface: octet {wrong + 1} is {data[wrong]:02x}"
    first = data[:_HEX_BYTES_MAX].hex(" ")
    if data.upper().startswith(_HTTP1):
        return f"HTTP method not in capital letters: it starts with {first}"
    return f"neither gRPC, nor HTTP, nor TLS: it starts with {first}"

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidb_binlog.door import protocol_detection
from tidb_binlog.door.protocol_detection import PREFACE, Reject, WireProtocol

METHODS = ("OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT", "PATCH")
BEGINNINGS = [
    *((f"{method} /status HTTP/1.1\r\n".encode(), WireProtocol.HTTP1, len(method) + 1) for method in METHODS),
    (PREFACE + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00", WireProtocol.HTTP2, 24),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", WireProtocol.TLS, 2),
    (b"\x16\x03\x03\x02\x00\x01", WireProtocol.TLS, 2),
]
REJECTED = [
    (b"\x00", 1, "neither gRPC, nor HTTP, nor TLS: it starts with 00"),
    (
        b"SSH-2.0-OpenSSH_9.6\r\n",
        1,
        "neither gRPC, nor HTTP, nor TLS: it starts with 53 53 48 2d 32 2e 30 2d",
    ),
    (b"\x16\x02\x00", 2, "it starts with 16 02 00"),
    (b"GETS /", 4, "it starts with 47 45 54 53 20 2f"),
    (b"GET\t/", 4, "it starts with 47 45 54 09 2f"),
    (b"get / HTTP/1.1\r\n", 1, "HTTP method not in capital letters: it starts with 67 65 74 20"),
    (b"PRI * HTTP/1.1\r\n\r\nSM\r\n\r\n", 12, "broken HTTP/2 preface: octet 12 is 31"),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX", 24, "broken HTTP/2 preface: octet 24 is 58"),
    (b"PROPFIND / HTTP/1.1\r\n", 3, "it starts with 50 52 4f 50"),
    (b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", 3, "switch it off in the load balancer"),
    (b"\r\n\r\n\x00\r\nQUIT\n\x21\x11", 1, "PROXY protocol header"),
    (b"\r\nGET / HTTP/1.1\r\n", 1, "it starts with 0d 0a 47"),
]


@pytest.mark.parametrize(("data", "kind", "needed"), BEGINNINGS)
def test_every_beginning_is_known_as_early_as_it_can_be(data: bytes, kind: WireProtocol, needed: int) -> None:
    for size in range(needed):
        assert protocol_detection.detect(data[:size]) is WireProtocol.NEED_MORE, size
    for size in range(needed, len(data) + 1):
        assert protocol_detection.detect(data[:size]) is kind, size


@pytest.mark.parametrize(("data", "needed", "reason"), REJECTED)
def test_what_deviates_is_rejected_at_its_first_wrong_octet(data: bytes, needed: int, reason: str) -> None:
    for size in range(needed):
        assert protocol_detection.detect(data[:size]) is WireProtocol.NEED_MORE, size
    for size in range(needed, len(data) + 1):
        assert isinstance(protocol_detection.detect(data[:size]), Reject), size
    verdict = protocol_detection.detect(data)
    assert isinstance(verdict, Reject)
    assert reason in verdict.reason


def test_every_octet_of_the_preface_counts() -> None:
    for at in range(len(PREFACE)):
        wrong = PREFACE[:at] + bytes([PREFACE[at] ^ 0x80]) + PREFACE[at + 1 :]
        assert isinstance(protocol_detection.detect(wrong), Reject), at


def test_the_shell_has_words_for_the_wrong_port() -> None:
    assert "set ssl-ca, or connect without TLS" in protocol_detection.TLS_ON_PLAIN_PORT.reason
    assert "connect with TLS" in protocol_detection.PLAIN_ON_TLS_PORT.reason


@given(st.one_of(st.binary(max_size=40), st.sampled_from([case[0] for case in BEGINNINGS + REJECTED])))
def test_a_verdict_once_given_stays(data: bytes) -> None:
    decided: object = None
    for size in range(len(data) + 1):
        verdict = protocol_detection.detect(data[:size])
        if isinstance(verdict, Reject):
            assert verdict.reason.isascii()
            assert verdict.reason.isprintable()
            assert len(verdict.reason) < 120
        now = Reject if isinstance(verdict, Reject) else verdict
        assert decided is None or now is decided
        if now is not WireProtocol.NEED_MORE:
            decided = now
    if len(data) >= protocol_detection.BYTES_MAX:
        assert decided is not None

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import case
from tidb_binlog.door.http.http1 import CHUNKS_MAX, Ask, Closed, Event, Http1, Refuse
from tidb_binlog.door.http.routes import BODY_KEPT_MAX, JSON_TYPE, Response
from tidb_binlog.door.limits import Limits

LIMITS = Limits()
SMALL = Limits(http_head_bytes_max=300, http_body_bytes_max=100, header_fields_max=8)
OK = Response(200, b"{}\n")
BAD = b"bad request\n"


def head(method: str, target: str, *headers: str) -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/1.1", "Host: h:1", *headers, "", ""]).encode("latin-1")


def ask(
    method: str = "GET",
    target: str = "/a",
    *,
    origin: str | None = None,
    keep_alive: bool = True,
    body: bytes | None = b"",
) -> Ask:
    return Ask(method, target, "h:1", origin, keep_alive, body)


def refuse(status: int, body: bytes = b"", method: str = "GET") -> Refuse:
    return Refuse(Response(status, body), method)


def kept(http: Http1) -> int:
    read = len(http._parser.trailing_data[0]) if http._parser else 0
    return len(http._pending) + read + len(http._kept or b"")


def answered(http: Http1) -> None:
    """The request was answered, and the answer has left."""
    http.answer("PUT", OK)
    assert http.resume() == []


def talk(pieces: Iterable[bytes], limits: Limits = LIMITS, *, end: bool = False) -> list[Event]:
    """What a shell sees that answers everything at once."""
    http = Http1(limits)
    seen: list[Event] = []

    def handle(events: list[Event]) -> None:
        while events:
            (event,) = events
            seen.append(event)
            if isinstance(event, Closed):
                assert http.closing
                return
            response = event.response if isinstance(event, Refuse) else OK
            reply = http.answer(event.method, response)
            assert reply.startswith(b"HTTP/1.1 ")
            assert http.closing == (b"\r\nconnection: close\r\n" in reply)
            events = http.resume()

    for piece in pieces:
        handle(http.receive(piece))
        assert kept(http) <= limits.http_head_bytes_max + limits.http_body_bytes_max
        http.take_output()
    if end:
        handle(http.end())
    return seen


def parse(reply: bytes) -> tuple[bytes, dict[str, str], bytes]:
    top, _, body = reply.partition(b"\r\n\r\n")
    status, *lines = top.split(b"\r\n")
    return status, dict(line.decode().split(": ", 1) for line in lines), body


GET = head("GET", "/a")
CHUNKED = head("POST", "/a", "Transfer-Encoding: chunked")
EXCHANGES: dict[str, tuple[bytes, list[Event]]] = {
    "get": (GET, [ask()]),
    "get, then nothing more": (GET * 3, [ask()] * 3),
    "go": (
        b"PUT /a HTTP/1.1\r\nHost: h:1\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: 0\r\n"
        b"Accept-Encoding: gzip\r\n\r\n",
        [ask("PUT")],
    ),
    "close": (head("GET", "/a", "Connection: Close") + GET, [ask(keep_alive=False)]),
    "close among others": (head("GET", "/a", "connection: x, close") + GET, [ask(keep_alive=False)]),
    "http/1.0": (b"GET /a HTTP/1.0\r\nHost: h:1\r\nConnection: keep-alive\r\n\r\n", [ask(keep_alive=False)]),
    "http/1.0 without host": (b"GET /a HTTP/1.0\r\n\r\n", [Ask("GET", "/a", "", None, False)]),
    "bare line feeds": (b"GET /a HTTP/1.1\nHost: h:1\n\n" + GET, [ask(), ask()]),
    "absolute target": (head("GET", "http://o:2/a?b"), [Ask("GET", "http://o:2/a?b", "o:2", None, True)]),
    "origin": (head("PUT", "/a", "Origin: null"), [ask("PUT", origin="null")]),
    "empty origin": (head("PUT", "/a", "Origin:"), [ask("PUT", origin="")]),
    "accept": (
        head("GET", "/a", "Accept: text/html, */*", "Accept: x/y"),
        [Ask("GET", "/a", "h:1", None, True, accept="text/html, */*")],
    ),
    "latin-1": (head("GET", "/a", "Origin: \xe4"), [ask(origin="\xe4")]),
    "h2c": (
        head("GET", "/a", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMA")
        + GET,
        [ask(), ask()],
    ),
    "websocket": (head("GET", "/a", "Connection: Upgrade", "Upgrade: websocket") + b"\x81\x00", [ask()]),
    "body": (head("PUT", "/a", "Content-Length: 5") + b"GET /" + GET, [ask("PUT", body=b"GET /"), ask()]),
    "continue": (
        head("PUT", "/a", "Content-Length: 5", "Expect: 100-continue") + b"12345",
        [ask("PUT", body=b"12345")],
    ),
    "chunks": (
        CHUNKED + b"3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n" + GET,
        [ask("POST", body=b"abc0123456789"), ask()],
    ),
    "trailers": (
        CHUNKED + b"1\r\na\r\n0\r\nHost: evil\r\nOrigin: o\r\n\r\n" + GET,
        [ask("POST", body=b"a"), ask()],
    ),
    "connect": (b"CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n", [refuse(405, method="CONNECT")]),
    "garbage": (b"\x00\xff garbage\r\n\r\n", [refuse(400, BAD)]),
    "tls": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", [refuse(400, BAD)]),
    "empty line": (b"\r\n" + GET, [refuse(400, BAD)]),
    "no version": (b"GET /a\r\n\r\n", [refuse(400, BAD)]),
    "four words": (b"GET /a b c\r\n\r\n", [refuse(400, BAD)]),
    "http/2.0": (b"PRI * HTTP/2.0\r\n\r\n", [refuse(505, BAD, "PRI")]),
    "no host": (b"GET /a HTTP/1.1\r\n\r\n", [refuse(400, BAD)]),
    "two hosts": (head("GET", "/a", "Host: o"), [refuse(400, BAD)]),
    "space before colon": (head("GET", "/a", "X : y"), [refuse(400, BAD)]),
    "nul": (head("GET", "/a", "X: \x00"), [refuse(400, BAD)]),
    "bad length": (head("PUT", "/a", "Content-Length: 5x"), [refuse(400, BAD)]),
    "negative length": (head("PUT", "/a", "Content-Length: -5"), [refuse(400, BAD)]),
    "two lengths": (head("PUT", "/a", "Content-Length: 5", "Content-Length: 6"), [refuse(400, BAD)]),
    "length and chunks": (
        head("PUT", "/a", "Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
        [refuse(400, BAD, "PUT")],
    ),
    "unknown coding": (head("PUT", "/a", "Transfer-Encoding: gzip"), [refuse(501, BAD)]),
    "bad chunk": (CHUNKED + b"3\r\nabc\r\nxyz\r\n", [refuse(400, BAD, "POST")]),
    "bad chunk end": (CHUNKED + b"3\r\nabcd\r\n", [refuse(400, BAD, "POST")]),
    "good, then bad": (GET + b"\x00", [ask(), refuse(400, BAD)]),
    "large length": (head("PUT", "/a", "Content-Length: 101"), [refuse(413, method="PUT")]),
    "huge length": (head("HEAD", "/a", "Content-Length: " + "9" * 20), [refuse(413, method="HEAD")]),
    "largest body": (
        head("PUT", "/a", "Content-Length: 100") + b"x" * 100 + GET,
        [ask("PUT", body=b"x" * 100), ask()],
    ),
    "largest chunk": (CHUNKED + b"5a\r\n" + b"x" * 89, []),  # 93 of 100, and 8 to come
    "large chunk": (CHUNKED + b"61\r\n" + b"x" * 97, [refuse(413, method="POST")]),
    "endless chunk line": (CHUNKED + b"1;" + b"x" * 98 + b"x" * 99, [refuse(413, method="POST")]),
    "endless trailer": (CHUNKED + b"0\r\n" + b"x" * 200, [refuse(413, method="POST")]),
    "large head": (head("GET", "/a", "X: " + "y" * 300), [refuse(431)]),
    "endless target": (b"GET /" + b"a" * 400, [refuse(431)]),
    "largest head": (head("GET", "/a", "X: " + "y" * (300 - len(GET) - 5)) + GET, [ask(), ask()]),
    "one octet more": (head("GET", "/a", "X: " + "y" * (301 - len(GET) - 5)), [refuse(431)]),
    "most fields": (head("GET", "/a", *["a:"] * 7) + GET, [ask(), ask()]),
    "one field more": (head("GET", "/a", *["a:"] * 8), [refuse(431)]),
}


def test_every_split_gives_the_same_events() -> None:
    for name in EXCHANGES:
        with case(name):
            data, expected = EXCHANGES[name]
            assert talk([data], SMALL) == expected
            assert talk(data[at : at + 1] for at in range(len(data))) == talk([data])
            assert talk((data[at : at + 1] for at in range(len(data))), SMALL) == expected
            for at in range(1, len(data)):
                assert talk([data[:at], data[at:]], SMALL) == expected, at


def test_the_peer_may_end_between_requests_and_within() -> None:
    assert talk([], end=True) == [Closed()]
    assert talk([GET], end=True) == [ask(), Closed()]
    assert talk([GET + GET[:-1]], end=True) == [ask(), Closed()]
    assert talk([head("PUT", "/a", "Content-Length: 5") + b"1234"], end=True) == [Closed()]
    assert talk([CHUNKED + b"5\r\n123"], end=True) == [Closed()]
    assert talk([b"\x00"], end=True) == [refuse(400, BAD)]


def test_one_request_at_a_time() -> None:
    http = Http1(LIMITS)
    assert http.receive(head("GET", "/1") + head("GET", "/2")) == [ask(target="/1")]
    assert http.receive(head("GET", "/3")) == []
    assert http.end() == []
    assert http.resume() == []  # nothing was answered yet
    for number in (2, 3):
        assert not http.closing
        http.answer("GET", OK)
        assert http.resume() == [ask(target=f"/{number}")]
    assert http.closing  # the peer ended, and this was its last request
    assert b"\r\nconnection: close\r\n" in http.answer("GET", OK)
    assert http.resume() == [Closed()]
    assert http.resume() == []


def test_answers() -> None:
    http = Http1(LIMITS)

    def answer(method: str, response: Response, *headers: str) -> tuple[bytes, dict[str, str], bytes]:
        assert http.receive(head(method, "/a", *headers)) == [ask(method, keep_alive=not headers)]
        answered = parse(http.answer(method, response))
        assert http.resume() == []
        return answered

    length = {"content-length": "3"}
    json = Response(200, b"{}\n", JSON_TYPE)
    typed = {**length, "content-type": JSON_TYPE}
    assert answer("GET", json) == (b"HTTP/1.1 200 OK", typed, b"{}\n")
    assert answer("HEAD", json) == (b"HTTP/1.1 200 OK", typed, b"")
    more = Response(200, b"{}\n", JSON_TYPE, (("cache-control", "no-store"), ("x-more", "a b")))
    said = {**typed, "cache-control": "no-store", "x-more": "a b"}
    assert answer("GET", more) == (b"HTTP/1.1 200 OK", said, b"{}\n")
    assert answer("HEAD", more) == (b"HTTP/1.1 200 OK", said, b"")
    assert answer("POST", Response(405)) == (b"HTTP/1.1 405 Method Not Allowed", {"content-length": "0"}, b"")
    assert answer("GET", Response(299)) == (b"HTTP/1.1 299 ", {"content-length": "0"}, b"")
    assert answer("GET", Response(204)) == (b"HTTP/1.1 204 No Content", {}, b"")
    assert not http.closing
    closing = {**typed, "connection": "close"}
    assert answer("GET", json, "Connection: close") == (b"HTTP/1.1 200 OK", closing, b"{}\n")
    assert http.closing
    assert http.receive(GET) == []


def test_the_next_request_waits_until_the_answer_has_left() -> None:
    http = Http1(LIMITS)
    assert http.receive(GET + GET) == [ask()]
    http.answer("GET", OK)
    for more in (GET, b""):
        assert http.receive(more) == []
    assert http.resume() == [ask()]
    assert http.resume() == []  # it was not answered yet
    http.answer("GET", OK)
    assert http.end() == []
    assert http.resume() == [ask()]
    http.answer("GET", OK)
    assert http.resume() == [Closed()]


def test_a_refused_head_request_gets_no_body() -> None:
    http = Http1(LIMITS)
    (event,) = http.receive(head("HEAD", "/a", "Transfer-Encoding: chunked", "Content-Length: 1"))
    assert isinstance(event, Refuse)
    assert parse(http.answer(event.method, event.response))[2] == b""


def test_a_client_that_waits_is_told_to_go_on() -> None:
    http = Http1(SMALL)
    expect = "Expect: 100-continue"
    go_on = b"HTTP/1.1 100 Continue\r\n\r\n"
    asking = head("PUT", "/a", "Content-Length: 5", expect)
    for at in range(1, len(asking)):
        assert http.receive(asking[:at]) == []
        assert http.take_output() == b""
        assert http.receive(asking[at:]) == []
        assert http.take_output() == go_on
        assert http.receive(b"12") == []
        assert http.receive(b"345") == [ask("PUT", body=b"12345")]
        assert http.take_output() == b""
        answered(http)
    assert http.receive(asking + b"12345") == [ask("PUT", body=b"12345")]  # it did not wait
    answered(http)
    assert http.receive(head("PUT", "/a", "Content-Length: 0", expect)) == [ask("PUT")]
    answered(http)
    assert http.take_output() == b""
    assert http.receive(head("PUT", "/a", "Content-Length: 101", expect)) == [refuse(413, method="PUT")]
    assert http.take_output() == b""


def test_large_bodies_are_not_kept() -> None:
    http = Http1(LIMITS)
    assert http.receive(head("PUT", "/a", f"Content-Length: {1 << 20}")) == []
    for _ in range(255):
        assert http.receive(bytes(4096)) == []
        assert kept(http) <= BODY_KEPT_MAX
    assert kept(http) == 0
    assert http.receive(bytes(4096)) == [ask("PUT", body=None)]
    answered(http)
    for size, body in ((BODY_KEPT_MAX, bytes(BODY_KEPT_MAX)), (BODY_KEPT_MAX + 1, None)):
        assert http.receive(head("PUT", "/a", f"Content-Length: {size}") + bytes(size)) == [
            ask("PUT", body=body)
        ]
        answered(http)


def test_many_small_chunks_are_refused() -> None:
    chunk = b"1\r\nx\r\n"
    assert talk([CHUNKED + chunk * CHUNKS_MAX + b"0\r\n\r\n"]) == [ask("POST", body=b"x" * CHUNKS_MAX)]
    assert talk([CHUNKED + chunk * (CHUNKS_MAX + 1) + b"0\r\n\r\n"]) == [refuse(413, method="POST")]


def test_requests_that_pile_up_pause_reading_and_then_end_the_connection() -> None:
    http = Http1(SMALL)
    assert http.receive(GET) == [ask()]
    sizes = itertools.takewhile(lambda size: size <= 400, itertools.count(len(GET), len(GET)))
    for size in sizes:
        assert http.receive(GET) == []
        assert kept(http) == size
        assert http.paused == (size >= 300)
        assert not http.closing
    assert http.receive(GET) == []
    assert kept(http) == 0
    assert http.closing
    assert not http.paused
    assert b"\r\nconnection: close\r\n" in http.answer("GET", OK)
    assert http.resume() == []


def test_pipelined_requests_behind_a_long_read_are_bounded_too() -> None:
    http = Http1(SMALL)
    assert http.receive(GET * 100) == [ask()]
    assert kept(http) == 0
    assert http.closing


def test_an_answer_nobody_asked_for_is_a_mistake() -> None:
    http = Http1(LIMITS)
    with pytest.raises(AssertionError):
        http.answer("GET", OK)
    http.receive(GET)
    http.answer("GET", OK)
    with pytest.raises(AssertionError):
        http.answer("GET", OK)


def cuts(data: bytes, at: list[int]) -> Iterator[bytes]:
    places = sorted({0, len(data), *(place % (len(data) + 1) for place in at)})
    return (data[start:end] for start, end in itertools.pairwise(places))


_TOKENS = (
    b"GET |/| HTTP/1.1\r\n|\r\n|\n|\r|\r\n\r\n|: |0\r\n\r\n|5\r\n12345\r\n|Host: h|Content-Length: 9|"
    b"Expect: 100-continue|Transfer-Encoding: chunked\r\n\r\n|"
    b"Connection: upgrade\r\nUpgrade: h2c\r\n|\xff|\x00| "
).split(b"|")
_WORDS = st.sampled_from([*(data for data, _ in EXCHANGES.values()), *_TOKENS])


@given(st.lists(_WORDS | st.binary(max_size=20), max_size=8), st.lists(st.integers(0, 5000), max_size=12))
def test_anything_gives_events_alone_and_the_same_for_every_split(words: list[bytes], at: list[int]) -> None:
    data = b"".join(words)
    whole = talk([data], Limits(http_head_bytes_max=300, http_body_bytes_max=8000), end=True)
    assert talk(cuts(data, at), Limits(http_head_bytes_max=300, http_body_bytes_max=8000), end=True) == whole
    assert all(isinstance(event, Ask | Refuse | Closed) for event in whole)
    for event in whole[:-1]:
        assert isinstance(event, Ask)
        assert event.keep_alive
    assert len(whole) <= 1 + data.count(b"\n")

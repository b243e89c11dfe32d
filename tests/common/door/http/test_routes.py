from __future__ import annotations

import json
import logging

import pytest

from tests.cases import case
from tidb_binlog.door.http.admin_guard import AdminGuard
from tidb_binlog.door.http.routes import Peer, Request, Response, Routes, json_response, split_target

LOOPBACK = Peer("127.0.0.1")


async def _params(params: dict[str, str]) -> Response:
    return json_response(params)


async def _fail(params: dict[str, str]) -> Response:
    raise ValueError("inner")


def _routes() -> Routes:
    routes = Routes()
    routes.add("GET", "/status", _params)
    routes.add("PUT", "/state/{node_id}/{action}", _params, guarded=True)
    routes.add("*", "/metrics", _params)
    routes.add("get", "/a.c", _params)
    routes.add("GET", "/fail", _fail)
    routes.add("GET", "/rows/{ts}", _params, guarded=True)
    routes.add("POST", "/rows/{ts}", _params)
    return routes


async def ask(
    method: str, target: str, *, host: str = "h:1", origin: str | None = None, peer: Peer = LOOPBACK
) -> Response:
    return await _routes().answer(Request(method, target, host, origin, peer), AdminGuard(hosts=["h"]))


async def test_routes() -> None:
    for method, target, status, body in [
        ("GET", "/status", 200, b"{}\n"),
        ("HEAD", "/status", 200, b"{}\n"),  # the connection leaves the body out
        ("GET", "/status?a=1", 200, b'{"a":"1"}\n'),
        ("GET", "/status?a=%C3%A4&b=x+y&a=2", 200, b'{"a":"2","b":"x y"}\n'),
        ("GET", "http://other:80/status?a=1", 200, b'{"a":"1"}\n'),
        ("PUT", "/state/h%3A8250/pause", 200, b'{"node_id":"h:8250","action":"pause"}\n'),
        ("PUT", "/state/a%2Fb/close", 200, b'{"node_id":"a/b","action":"close"}\n'),
        ("PUT", "/state/a/close?action=pause", 200, b'{"action":"close","node_id":"a"}\n'),
        ("DELETE", "/metrics", 200, b"{}\n"),
        ("HEAD", "/metrics", 200, b"{}\n"),
        ("GET", "/a.c", 200, b"{}\n"),
        ("GET", "/abc", 404, b"404 page not found\n"),
        ("GET", "/state/x/pause", 405, b""),
        ("HEAD", "/state/x/pause", 405, b""),
        ("POST", "/status", 405, b""),
        ("get", "/status", 405, b""),
        ("POST", "/rows/1", 200, b'{"ts":"1"}\n'),
        ("GET", "/state/x/y/z", 404, b"404 page not found\n"),
        ("PUT", "/state/../pause/close", 404, b"404 page not found\n"),
        ("PUT", "/state//pause", 404, b"404 page not found\n"),
        ("GET", "/", 404, b"404 page not found\n"),
        ("GET", "/status/", 404, b"404 page not found\n"),
        ("GET", "/Status", 404, b"404 page not found\n"),
        ("GET", "/%73tatus", 404, b"404 page not found\n"),
        ("GET", "//evil.example/status", 404, b"404 page not found\n"),
        ("GET", "", 404, b"404 page not found\n"),
        ("OPTIONS", "*", 404, b"404 page not found\n"),
        ("CONNECT", "h:443", 404, b"404 page not found\n"),
        ("GET", "http://[", 404, b"404 page not found\n"),
        ("GET", "/fail", 500, b"internal error, see the log\n"),
    ]:
        with case(method, target, status, body):
            response = await ask(method, target)
            assert (response.status, response.body) == (status, body)


async def test_failures_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert (await ask("GET", "/fail")).status == 500
    assert "request failed" in caplog.text


async def test_changes_from_web_pages_are_refused() -> None:
    for origin in ("http://evil.example", "null", ""):
        for target in ("/state/a/pause", "/metrics", "/unknown"):
            response = await ask("PUT", target, origin=origin)
            assert (response.status, response.body) == (403, b"requests from web pages are refused\n")
        assert (await ask("GET", "/status", origin=origin)).status == 200
        assert (await ask("HEAD", "/status", origin=origin)).status == 200
        assert (await ask("GET", "/rows/1", origin=origin)).status == 403


async def test_guarded_routes_ask_the_guard_and_others_do_not() -> None:
    stranger = Peer("10.0.0.9")
    put = "/state/a/pause"
    assert (await ask("PUT", put)).status == 200
    refused = await ask("PUT", put, peer=stranger)
    assert refused.status == 403
    assert refused.body.startswith(b"refused: 10.0.0.9 may not administrate this node; ")
    assert (await ask("PUT", put, peer=Peer("10.0.0.9", verified=True))).status == 200
    assert (await ask("PUT", put, host="evil.example:8250")).status == 403
    assert (await ask("PUT", put, host="")).status == 403
    assert (await ask("GET", "/status", peer=stranger, host="evil.example:8250")).status == 200
    # Only what is really asked for is guarded: no other method, no unknown path.
    assert (await ask("GET", put, peer=stranger)).status == 405
    assert (await ask("PUT", put + "/x", peer=stranger)).status == 404
    assert (await ask("HEAD", "/rows/1", peer=stranger)).status == 403
    assert (await ask("POST", "/rows/1", peer=stranger)).status == 200


async def test_refusals_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await ask("PUT", "/state/a/pause", peer=Peer("10.0.0.9"))
    assert "request refused" in caplog.text


async def test_a_guard_that_fails_lets_nothing_pass() -> None:
    class Broken:
        def refusal(self, request: Request) -> Response | None:
            raise ValueError("inner")

    request = Request("PUT", "/state/a/pause", "h", None, LOOPBACK)
    assert (await _routes().answer(request, Broken())).status == 500


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("/a?b?c", ("", "/a", "b?c")),
        ("//h/a", ("", "//h/a", "")),
        ("http://h:1/a?b", ("h:1", "/a", "b")),
        ("HTTPS://h", ("h", "/", "")),
        ("http://h?b=/x", ("h", "/", "b=/x")),
        ("http:///a", ("", "/a", "")),
        ("ftp://h/a", ("", "ftp://h/a", "")),
        ("/x/http://h/a", ("", "/x/http://h/a", "")),
        ("*", ("", "*", "")),
    ],
)
def test_targets(target: str, parts: tuple[str, str, str]) -> None:
    assert split_target(target) == parts


def test_json_forms() -> None:
    assert json_response({"a": [1]}).body == b'{"a":[1]}\n'
    assert json_response({"a": None}, 2).body == b'{\n  "a": null\n}\n'
    assert json.loads(json_response({"ä": 1}).body) == {"ä": 1}
    assert json_response({}).content_type == "application/json; charset=UTF-8"
    assert json_response({}, status=503).status == 503

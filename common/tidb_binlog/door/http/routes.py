"""Routes: which handler answers which plain HTTP request, whatever version of HTTP it came by.

Out    one `Response`; unknown path 404, known path with another method 405 with an empty body, as the Go
       nodes answer; a handler that fails is logged and answered 500
Holds  a guarded handler runs only after the guard let the request pass. A certificate needs the
       permission to administer for it, and the one to read for every other
Never  serves a change to a web page: whatever is not GET or HEAD and carries `Origin` is refused
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, unquote

from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net.permission import Permission
from tidb_binlog.observe import log

JSON_TYPE: Final = "application/json; charset=UTF-8"
TEXT_TYPE: Final = "text/plain; charset=utf-8"
HTML_TYPE: Final = "text/html; charset=utf-8"
BODY_KEPT_MAX: Final = 32 * 1024
"""Octets of a request's body that a route may see; a larger body is read away."""
_LOGGED_CHARS_MAX: Final = 200

_logger = log.get("http")


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes = b""
    content_type: str = TEXT_TYPE
    headers: tuple[tuple[str, str], ...] = ()
    """Further ones: lower-case names, values without line breaks."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who asks."""

    address: str  # without port: IPv4, IPv6 or IPv4-mapped IPv6; "" for a unix socket
    verified: bool = False  # came over mutual TLS, with a certificate that was accepted
    denied: frozenset[Permission] = frozenset()  # what that certificate does not allow


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str
    host: str  # Host header or :authority; "" when missing
    origin: str | None  # set by web pages
    peer: Peer
    body: bytes | None = b""  # None: larger than BODY_KEPT_MAX
    accept: str = ""  # media types that the asker takes; "": it did not say


Handler = Callable[[dict[str, str]], Awaitable[Response]]
Changer = Callable[[Request, dict[str, str]], Awaitable[Response]]


class Guard(Protocol):
    """Decides who may use guarded routes."""

    def refusal(self, request: Request) -> Response | None: ...


def json_response(doc: Any, indent: int | None = None, *, status: int = 200) -> Response:
    """A JSON answer; compact, or indented as the Go nodes indent."""
    separators = (",", ":") if indent is None else (",", ": ")
    body = json.dumps(doc, indent=indent, separators=separators, ensure_ascii=False)
    return Response(status, body.encode() + b"\n", JSON_TYPE)


def split_target(target: str) -> tuple[str, str, str]:
    """Authority, path and query. Only `http://host/path` has an authority: `//host/path` is a path (its
    general reading as a URL would let a request name one path and get another)."""
    authority = ""
    if not target.startswith("/"):
        scheme, separator, rest = target.partition("://")
        if separator and scheme.lower() in ("http", "https"):
            end = re.search(r"[/?]", rest)
            at = end.start() if end else len(rest)
            authority, target = rest[:at], rest[at:]
            if not target.startswith("/"):
                target = "/" + target
    path, _, query = target.partition("?")
    return authority, path, query


class Routes:
    """What can be asked for. `{name}` in a pattern matches one path segment."""

    __slots__ = ("_routes",)

    def __init__(self) -> None:
        self._routes: list[tuple[str, re.Pattern[str], Changer, bool]] = []

    def add(self, method: str, pattern: str, handler: Handler, *, guarded: bool = False) -> None:
        """`method` `*` stands for any. The handler gets path parts and query parameters, decoded. `guarded`
        asks the guard first: for what changes the node or shows rows. A later route takes the place of an
        earlier one for the same."""

        async def answer(_request: Request, params: dict[str, str]) -> Response:
            return await handler(params)

        self._add(method, pattern, answer, guarded=guarded)

    def add_for(self, method: str, pattern: str, handler: Changer) -> None:
        """A route for everybody that is given who asks, and for what media type."""
        self._add(method, pattern, handler, guarded=False)

    def add_change(self, method: str, pattern: str, handler: Changer) -> None:
        """A guarded route that is given who asks, and the body."""
        self._add(method, pattern, handler, guarded=True)

    def _add(self, method: str, pattern: str, handler: Changer, *, guarded: bool) -> None:
        parts = re.split(r"\{(\w+)\}", pattern)
        expression = "".join(
            f"(?P<{part}>[^/]+)" if number % 2 else re.escape(part) for number, part in enumerate(parts)
        )
        route_of = method.upper(), re.compile(expression), handler, guarded
        self._routes = [route for route in self._routes if route[:2] != route_of[:2]] + [route_of]

    async def answer(self, request: Request, guard: Guard) -> Response:
        """Find and run the handler; never raises."""
        if request.origin is not None and request.method not in ("GET", "HEAD"):
            return Response(403, b"requests from web pages are refused\n")
        path = request.target
        try:
            _, path, query = split_target(request.target)
            return await self._answer(request, guard, path, query)
        except Exception as error:
            _logger.failure("request failed", error, method=request.method, path=path[:_LOGGED_CHARS_MAX])
            return Response(500, b"internal error, see the log\n")

    async def _answer(self, request: Request, guard: Guard, path: str, query: str) -> Response:
        asked_method = "GET" if request.method == "HEAD" else request.method
        path_known = False
        for method, pattern, handler, guarded in self._routes:
            match = pattern.fullmatch(path)
            if match is None:
                continue
            if method not in ("*", asked_method):
                path_known = True
                continue
            refusal = guard.refusal(request) if guarded else None
            permission = Permission.ADMIN if guarded else Permission.READ
            if permission in request.peer.denied:
                text = f"refused: the certificate's common name is not in security.cert-{permission}-cn\n"
                refusal = Response(403, text.encode())
            if refusal is not None:
                _logger.warning(
                    "request refused",
                    method=request.method,
                    path=path[:_LOGGED_CHARS_MAX],
                    peer=request.peer.address,
                    why=refusal.body.decode(errors="replace").strip(),
                )
                return refusal
            params = dict(parse_qsl(query))
            params |= {name: unquote(value) for name, value in match.groupdict().items()}
            return await handler(request, params)
        return Response(405) if path_known else Response(404, b"404 page not found\n")

"""Webhook: a real HTTP server of the standard library, which keeps what it takes and answers as told."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    """The client's port: the same one for requests of one connection."""

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.body.splitlines()]


@dataclass
class Answer:
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    text: str = ""
    takes: bool = True
    """What is not taken is as if it had not come; False also for 4xx and 5xx."""
    breaks: bool = False
    """The connection is broken off instead of an answer."""


class Webhook:
    """Listens at once. `answers` are given one after the other, then 200."""

    def __init__(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        hook = self
        self.seen: list[Request] = []
        self.taken: list[Request] = []
        self.answers: list[Answer] = []
        self.before: Callable[[], object] = lambda: None

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.answer(self, Request(self.path, dict(self.headers), body, self.client_address[1]))

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a client that goes away is what some tests are about

        self._server = Server(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def answer(self, handler: BaseHTTPRequestHandler, request: Request) -> None:
        self.before()
        self.seen.append(request)
        found = self.answers.pop(0) if self.answers else Answer()
        if found.takes and found.status < 400:
            self.taken.append(request)
        if found.breaks:
            handler.close_connection = True
            handler.connection.close()
            return
        text = found.text.encode()
        handler.send_response(found.status)
        for name, value in (*found.headers, ("Content-Length", str(len(text)))):
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(text)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

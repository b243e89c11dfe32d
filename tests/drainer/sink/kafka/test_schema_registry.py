"""Schema registry: a real HTTP server that plays Confluent's documented interface."""

from __future__ import annotations

import base64
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from drainer.sink.kafka.schema_registry import SchemaRegistry
from tests.certificates import authority, leaf, write
from tidb_binlog.errors import ConfigError, Rejected, Unavailable
from tidb_binlog.net.port import free_ports
from tidb_binlog.net.tls import TlsConfig

SCHEMA = '{"type":"string"}'


class Registry(http.server.ThreadingHTTPServer):
    """Ids by schema. `answer`: what is said instead, once for every question."""

    daemon_threads = True
    answer: tuple[int, bytes] | None = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ids: dict[str, int] = {}
        self.asked: list[tuple[str, str | None, str]] = []

    @property
    def port(self) -> int:
        return self.server_address[1]


class Handler(http.server.BaseHTTPRequestHandler):
    server: Registry

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path, self.headers["Authorization"], self.headers["Content-Type"]))
        if self.server.answer is not None:
            status, said = self.server.answer
        else:
            schema = json.loads(body)["schema"]
            status, said = (
                200,
                json.dumps({"id": self.server.ids.setdefault(schema, len(self.server.ids) + 1)}).encode(),
            )
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(tls: TlsConfig | None = None) -> Iterator[Registry]:
    with Registry() as server:
        if tls is not None:
            server.socket = tls.server_context().wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_a_schema_has_one_id_and_is_asked_for_once() -> None:
    with serving() as server:
        registry = SchemaRegistry(f"http://127.0.0.1:{server.port}/")
        assert registry.register("shop_a-value", SCHEMA) == 1
        assert registry.register("shop_a-value", SCHEMA) == 1
        assert registry.register("shop_b-value", SCHEMA) == 1
        assert registry.register("a/b c-key", '{"type":"int"}') == 2
        assert server.asked == [
            (f"/subjects/{subject}/versions", None, "application/vnd.schemaregistry.v1+json")
            for subject in ("shop_a-value", "shop_b-value", "a%2Fb%20c-key")
        ]


def test_user_and_password_of_the_url_are_sent_and_a_path_stays() -> None:
    with serving() as server:
        url = f"http://al%40ice:p%3Aw%2F@127.0.0.1:{server.port}/registry"
        assert SchemaRegistry(url).register("a", SCHEMA) == 1
        ((path, authorization, _),) = server.asked
        assert path == "/registry/subjects/a/versions"
        assert authorization == f"Basic {base64.b64encode(b'al@ice:p:w/').decode()}"


def test_over_tls_the_server_must_be_known(tmp_path: Path) -> None:
    ca = authority()
    own = write(tmp_path / "own", ca=[ca], node=leaf("registry", ca=ca))
    other = write(tmp_path / "other", ca=[authority("other")], node=None)
    with serving(own) as server:
        url = f"https://127.0.0.1:{server.port}"
        assert SchemaRegistry(url, own).register("a", SCHEMA) == 1
        for unknown in (other, None):
            with pytest.raises(Unavailable, match=f"schema registry {url}: .*certificate"):
                SchemaRegistry(url, unknown).register("a", SCHEMA)


@pytest.mark.parametrize(
    ("status", "said", "error", "words"),
    [
        (409, {"message": "incompatible"}, Rejected, "incompatible .*compatibility to NONE"),
        (422, {"error_code": 42201, "message": "Invalid schema"}, Rejected, "Invalid schema"),
        (401, {"message": "Unauthorized"}, Rejected, "Unauthorized .*user and password"),
        (403, {"message": "Forbidden"}, Rejected, "Forbidden .*grant"),
        (404, {"message": "no"}, Rejected, "no .*REST interface"),
        (500, {"error_code": 50001, "message": "backend"}, Unavailable, "does not answer .*backend"),
        (429, {"message": "slowly"}, Unavailable, "slowly"),
        (200, {"nothing": 1}, Rejected, "status 200"),
        (200, ["id"], Rejected, "status 200"),
        (302, {}, Rejected, "status 302"),
    ],
)  # fmt: skip
def test_what_it_says_is_in_the_error(status: int, said: Any, error: Any, words: str) -> None:
    with serving() as server:
        server.answer = status, json.dumps(said).encode()
        registry = SchemaRegistry(f"http://u:secret@127.0.0.1:{server.port}")
        with pytest.raises(error, match=words) as raised:
            registry.register("shop_a-value", SCHEMA)
        assert "secret" not in str(raised.value)
        assert "shop_a-value" in str(raised.value)
        server.answer = None
        assert registry.register("shop_a-value", SCHEMA) == 1, "an error is not remembered"


def test_a_page_that_is_no_answer_is_an_error() -> None:
    with serving() as server:
        server.answer = 200, b"<html>"
        with pytest.raises(Rejected, match="status 200"):
            SchemaRegistry(f"http://127.0.0.1:{server.port}").register("a", SCHEMA)


def test_nobody_there() -> None:
    (port,) = free_ports(1)
    with pytest.raises(Unavailable, match=f"schema registry http://127.0.0.1:{port} cannot be reached"):
        SchemaRegistry(f"http://127.0.0.1:{port}").register("a", SCHEMA)


@pytest.mark.parametrize("url", ["", "127.0.0.1:8081", "ftp://h:1", "http://", "http://h:port"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ConfigError, match="schema-registry is no URL"):
        SchemaRegistry(url)

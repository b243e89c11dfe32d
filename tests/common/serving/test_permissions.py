"""Permissions: every method and route asks for one, and a certificate without it gets nothing of them."""

from __future__ import annotations

import ast
import asyncio
import http.client
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from drainer.operate.control.http import notify_service
from pump.config import PumpConfig
from pump.server import PERMISSIONS, PumpServer, services_before_start
from tests import certificates
from tests.pump.support.services import pump
from tests.waiting import PATIENCE_S
from tidb_binlog import rpc
from tidb_binlog.clock import ManualClock
from tidb_binlog.door.calls.methods import methods_of
from tidb_binlog.door.http.routes import Response, Routes
from tidb_binlog.door.server.listener import Server, serve
from tidb_binlog.errors import ConfigError
from tidb_binlog.net.permission import Permission
from tidb_binlog.net.tls import ServerTls, TlsConfig
from tidb_binlog.rpc import Service
from tidb_binlog.rpc.service import PERMISSION_DENIED
from tidb_binlog.serving.starting import Starting
from tidb_binlog.wire import drainer_pb2, pump_pb2

READ, WRITE, ADMIN = Permission
ROOT = Path(__file__).parents[3]
METHODS = {
    "/binlog.Pump/WriteBinlog": WRITE,
    "/binlog.Pump/PullBinlogs": READ,
    "/binlog.PumpBatch/WriteBinlogs": WRITE,
    "/binlog.PumpBatch/PullBatches": READ,
    "/binlog.PumpBatch/CutRange": READ,
    "/binlog.Cistern/Notify": WRITE,
}
ROUTES = {
    ("GET", "/"): READ,
    ("GET", "/cluster"): READ,
    ("GET", "/healthz"): READ,
    ("GET", "/readyz"): READ,
    ("GET", "/status"): READ,
    ("*", "/metrics"): READ,
    ("GET", "/drainers"): READ,
    ("GET", "/commit_ts"): READ,
    ("GET", "/ddl"): READ,
    ("GET", "/ddl-rule"): READ,
    ("GET", "/ddl/{job_id}"): READ,
    ("PUT", "/ddl/{job_id}/{decision}"): ADMIN,
    ("GET", "/load"): READ,
    ("PUT", "/load"): ADMIN,
    ("DELETE", "/load"): ADMIN,
    ("PUT", "/state/{node_id}/{action}"): ADMIN,
    ("PUT", "/transactions/{start_ts}/{end}"): ADMIN,
    ("POST", "/debug/gc/trigger"): ADMIN,
    ("GET", "/debug/binlog/{ts}"): ADMIN,
    ("PUT", "/apply/pause"): ADMIN,
    ("PUT", "/apply/resume"): ADMIN,
    ("PUT", "/apply/rate"): ADMIN,
    ("PUT", "/apply/hold"): ADMIN,
    ("PUT", "/apply/release"): ADMIN,
    ("PUT", "/reload"): ADMIN,
    ("GET", "/config"): ADMIN,
}


# -- everything has one ----------------------------------------------------------------------------


async def _nothing() -> None: ...


async def test_every_method_that_is_served_says_who_may_call_it(tmp_path: Path) -> None:
    """Of the .proto files, of what is served, and of what is served before that."""
    declared = {
        f"/{service.full_name}/{method.name}"
        for pb in (pump_pb2, drainer_pb2)
        for service in pb.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert declared == METHODS.keys()
    async with pump(tmp_path) as one:
        assert isinstance(one.server, PumpServer)
        early = services_before_start(Starting(0.0, ManualClock(), lambda _: None))
        for served in (
            [*one.server.services(), notify_service(_nothing)],
            [*early, notify_service(_nothing)],
        ):
            found = {method.path: method.permission for method in methods_of(served).values()}
            assert found == METHODS
            named = {name for service in served for name in service.permissions}
            assert named == {path.rpartition("/")[2] for path in METHODS}, "none has one by default"
    assert len(PERMISSIONS) == 5


def routes_of(package: str) -> Iterator[tuple[tuple[str, str], Permission]]:
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr not in ("add", "add_for", "add_change") or len(node.args) != 3:
                continue
            method, pattern = (getattr(argument, "value", None) for argument in node.args[:2])
            if isinstance(method, str) and isinstance(pattern, str) and pattern.startswith("/"):
                guarded = node.func.attr == "add_change" or any(one.arg == "guarded" for one in node.keywords)
                yield (method, pattern), ADMIN if guarded else READ


def test_every_route_is_in_the_table_of_who_may_use_it() -> None:
    assert dict([*routes_of("common"), *routes_of("pump"), *routes_of("drainer")]) == ROUTES


# -- and it is asked for ---------------------------------------------------------------------------


class Files:
    """An authority, a node, and who calls it."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._ca = directory, certificates.authority()
        self.of = {name: self._write(name) for name in ("node", "reader", "writer", "operator")}

    def _write(self, name: str) -> TlsConfig:
        leaf = certificates.leaf(name, ca=self._ca)
        return certificates.write(self._directory / name, ca=[self._ca], node=leaf)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


async def _unary(_: bytes) -> bytes:
    return b"done"


async def _stream(_: bytes | AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield b"done"


SERVICE = Service(
    "test.Permissions",
    unary={"Change": _unary},
    inline={"Write": _unary},
    server_streams={"Pull": _stream},
    bidi_streams={"Batch": _stream},
    permissions={"Write": WRITE, "Pull": READ, "Batch": READ},
)


@asynccontextmanager
async def door(files: Files) -> AsyncIterator[tuple[Server, ServerTls]]:
    routes = Routes()

    async def answer(_: dict[str, str]) -> Response:
        return Response(200, b"done")

    routes.add("GET", "/see", answer)
    routes.add("PUT", "/change", answer, guarded=True)
    tls = files.of["node"].server_tls()
    server = await serve([SERVICE], routes, "127.0.0.1", 0, tls=tls)
    try:
        yield server, tls
    finally:
        await server.stop(0.0)


async def may(port: int, tls: TlsConfig) -> set[str]:
    """What a holder of this certificate gets, of all that there is."""
    client = rpc.Client(f"localhost:{port}", tls=tls)
    found: set[str] = set()

    async def none() -> AsyncIterator[bytes]:
        for request in list[bytes]():
            yield request

    async def call(name: str) -> None:
        path = f"/test.Permissions/{name}"
        if name in ("Change", "Write"):
            assert await client.unary(path, b"", 5.0) == b"done"
        else:
            stream = client.server_stream(path, b"") if name == "Pull" else client.bidi(path, none())
            assert [reply async for reply in stream] == [b"done"]

    for name in ("Change", "Write", "Pull", "Batch"):
        try:
            await call(name)
            found.add(name)
        except rpc.RpcStatus as error:
            if error.code != PERMISSION_DENIED or "is not in security.cert-" not in error.message:
                raise
    await client.close()

    def plain(method: str, path: str) -> int:
        connection = http.client.HTTPSConnection(
            "localhost", port, timeout=PATIENCE_S, context=tls.client_context()
        )
        try:
            connection.request(method, path)
            return connection.getresponse().status
        finally:
            connection.close()

    for method, path in (("GET", "/see"), ("PUT", "/change")):
        status = await asyncio.to_thread(plain, method, path)
        assert status in (200, 403)
        if status == 200:
            found.add(path)
    return found


EVERYTHING = {"Change", "Write", "Pull", "Batch", "/see", "/change"}


async def test_a_certificate_gets_what_its_name_may_and_a_list_without_names_is_for_all(files: Files) -> None:
    async with door(files) as (server, tls):
        assert await may(server.port, files.of["reader"]) == EVERYTHING
        names = {READ: frozenset({"reader", "operator"}), WRITE: frozenset({"writer"})}
        tls.restrict(names | {ADMIN: frozenset({"operator"})})
        assert await may(server.port, files.of["reader"]) == {"Pull", "Batch", "/see"}
        assert await may(server.port, files.of["writer"]) == {"Write"}
        assert await may(server.port, files.of["operator"]) == {"Pull", "Batch", "/see", "Change", "/change"}
        tls.restrict({READ: frozenset(), WRITE: frozenset(), ADMIN: frozenset({"operator"})})
        assert await may(server.port, files.of["writer"]) == EVERYTHING - {"Change", "/change"}


# -- configuration ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"cert_read_cn": (" ",)}, "security.cert-read-cn holds no name"),
        ({"cert_write_cn": ("x",), "cert_allowed_cn": ("node",)}, "cert-write-cn names 'x', which may not"),
        ({"cert_admin_cn": ("x",), "ssl_ca": ""}, "cert-admin-cn has no effect: nobody shows a certificate"),
    ],
)
def test_a_list_that_cannot_be_meant_is_refused(changed: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        PumpConfig(**{"ssl_ca": "ca.pem"} | changed).check_listener()  # type: ignore[arg-type]

"""What a reload changes of a listener: who may come, and what he may cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import certificates
from tests.common.support.other_values import other_value
from tests.waiting import PATIENCE_S, until
from tidb_binlog.clock import ManualClock
from tidb_binlog.config.declaring import options
from tidb_binlog.door.http.routes import Peer, Request, Response, Routes
from tidb_binlog.door.limits import Limits
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.net.permission import Permission
from tidb_binlog.serving import listener
from tidb_binlog.serving.listener import Listener
from tidb_binlog.serving.node_config import NodeConfig
from tidb_binlog.serving.reload import Reload


@dataclass(frozen=True, slots=True)
class Config(NodeConfig):
    @property
    def listen(self) -> str:
        return "127.0.0.1:0"

    @property
    def advertised(self) -> str:
        return "127.0.0.1:0"

    def validate(self) -> None:
        self.check_listener()


class Life:
    def __init__(self, settings: Config, listener: Listener) -> None:
        self.file = settings
        self.listener = listener
        self.reload: Reload[Config] = Reload(settings, lambda: self.file, ManualClock())
        listener.take_reloads(self.reload)

    async def change(self, **values: Any) -> list[str]:
        self.file = replace(self.file, **values)
        return (await self.reload.run()).keys

    async def ask(self, path: str, method: str = "GET") -> bytes:
        """The first line of the answer; b"" where the connection is ended before."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.port)
        try:
            writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            async with asyncio.timeout(PATIENCE_S):
                return (await reader.read(1 << 16)).split(b"\r\n")[0]
        except ConnectionError:
            return b""
        finally:
            writer.close()


@asynccontextmanager
async def living(settings: Config) -> AsyncIterator[Life]:
    routes = Routes()

    async def page(_: dict[str, str]) -> Response:
        return Response(200, b"ok\n")

    routes.add("GET", "/page", page)
    routes.add("PUT", "/change", page, guarded=True)
    made = await listener.listen(settings, [], routes)
    try:
        yield Life(settings, made)
    finally:
        await made.stop(0.0)


async def test_each_limit_is_what_new_connections_get() -> None:
    async with living(Config()) as life:
        (door,) = life.listener._doors
        for name in options(Limits):
            value = 1 << 20 if name == "message_bytes_max" else other_value(life.file, name)
            before = life.file
            assert await life.change(**{name: value}) == [options(Limits)[name].key]
            assert door.limits == life.file.effective() != before.effective()
            assert door.budget.requests.whole.limit == door.limits.receive_bytes_max
            assert door.budget.replies.whole.limit == door.limits.send_bytes_max
            assert door.budget.calls.whole.limit == door.limits.calls_max


async def test_limits_count_for_who_comes_next() -> None:
    async with living(Config()) as life:
        (door,) = life.listener._doors

        async def connected(count: int) -> None:
            await until(lambda: door.connections == count)

        path = "/page?" + "x" * 8000
        assert b" 200 " in await life.ask(path)
        await life.change(http_head_bytes_max=1000)
        assert b" 431 " in await life.ask(path)
        await connected(0)
        await life.change(connections_max=1)
        _, writer = await asyncio.open_connection("127.0.0.1", life.listener.port)
        await connected(1)
        assert await life.ask("/page") == b""
        writer.close()


async def test_networks_of_operators_are_taken_and_wrong_ones_refused() -> None:
    async with living(Config()) as life:
        guard = life.listener._guard
        request = Request("PUT", "/change", "localhost", None, Peer("10.1.2.3"))
        assert guard.refusal(request) is not None
        await life.change(admin_from=("10.0.0.0/8",))
        assert guard.refusal(request) is None
        with pytest.raises(ConfigError, match="no network"):
            await life.change(admin_from=("ten",))
        assert guard.refusal(request) is None, "as before"
        await life.change(admin_from=())
        assert guard.refusal(request) is not None


async def test_names_that_may_connect_are_taken(tmp_path: Path) -> None:
    authority = certificates.authority()
    files = certificates.write(tmp_path, ca=[authority], node=certificates.leaf("node", ca=authority))
    settings = Config(ssl_ca=files.ca, ssl_cert=files.cert, ssl_key=files.key, cert_allowed_cn=("a",))
    async with living(settings) as life:
        tls = life.listener._tls
        assert tls is not None
        shown: Any = {"subject": ((("commonName", "b"),),)}
        assert tls.refusal(shown) is not None
        assert await life.change(cert_allowed_cn=("a", "b")) == ["security.cert-allowed-cn"]
        assert tls.refusal(shown) is None
        with pytest.raises(ConfigError, match="holds no name"):
            await life.change(cert_allowed_cn=(" ",))
        assert tls.refusal(shown) is None


async def test_what_names_may_do_counts_from_the_start_and_after_a_reload(tmp_path: Path) -> None:
    authority = certificates.authority()
    files = certificates.write(tmp_path, ca=[authority], node=certificates.leaf("node", ca=authority))
    settings = Config(ssl_ca=files.ca, ssl_cert=files.cert, ssl_key=files.key, cert_admin_cn=("a",))
    shown: Any = {"subject": ((("commonName", "b"),),)}
    async with living(settings) as life:
        tls = life.listener._tls
        assert tls is not None
        assert tls.denied(shown) == {Permission.ADMIN}
        changed = await life.change(cert_admin_cn=("b",), cert_read_cn=("a",), cert_write_cn=("a",))
        assert changed == [f"security.cert-{one}-cn" for one in ("admin", "read", "write")]
        assert tls.denied(shown) == {Permission.READ, Permission.WRITE}
        with pytest.raises(ConfigError, match="cert-read-cn holds no name"):
            await life.change(cert_read_cn=(" ",))
        await life.change(cert_read_cn=(), cert_write_cn=())
        assert tls.denied(shown) == set()

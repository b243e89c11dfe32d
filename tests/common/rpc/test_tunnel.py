"""Calls over TLS to peers that select no ALPN protocol, as Go nodes do not."""

from __future__ import annotations

import asyncio
import os
import ssl
import stat
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests import certificates
from tidb_binlog import rpc
from tidb_binlog.door.server.listener import serve
from tidb_binlog.door.server.stats import STATS
from tidb_binlog.errors import Unavailable
from tidb_binlog.net.tls import ServerTls, TlsConfig


class NoAlpn(ServerTls):
    """A listener's TLS as a Go node has it."""

    __slots__ = ("_plain",)

    def __init__(self, config: TlsConfig) -> None:
        super().__init__(config)
        self._plain = config

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(self._plain.ca)
        context.load_cert_chain(self._plain.cert, self._plain.key)
        return context

    def refusal(self, peer_certificate: Mapping[str, Any] | None) -> str | None:
        return None


async def upper(request: bytes) -> bytes:
    return bytes(request).upper()


async def count(request: bytes) -> AsyncIterator[bytes]:
    for number in range(int(bytes(request))):
        yield b"%d" % number


async def echo(requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


SERVICE = rpc.Service(
    "t.S", unary={"Upper": upper}, server_streams={"Count": count}, bidi_streams={"Echo": echo}
)


@pytest.fixture
def tls(tmp_path: Path) -> TlsConfig:
    ca = certificates.authority()
    return certificates.write(tmp_path, ca=[ca], node=certificates.leaf("node", ca=ca))


@pytest.fixture
def tunnels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Path]]:
    """Directories of the tunnels that are there."""
    made = tmp_path / "t"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    return lambda: list(made.iterdir())


async def test_all_kinds_of_calls(tls: TlsConfig, tunnels: Callable[[], list[Path]]) -> None:
    server = await serve([SERVICE], None, "127.0.0.1", 0, tls=NoAlpn(tls))
    client = rpc.Client(f"127.0.0.1:{server.port}", tls=tls)
    try:
        assert await client.unary("/t.S/Upper", b"word", 10) == b"WORD"
        large = os.urandom(3 << 20)
        assert await client.unary("/t.S/Upper", large, 20) == large.upper()
        assert [part async for part in client.server_stream("/t.S/Count", b"3")] == [b"0", b"1", b"2"]

        async def requests() -> AsyncIterator[bytes]:
            yield b"a"
            yield b"b"

        assert [part async for part in client.bidi("/t.S/Echo", requests())] == [b"a", b"b"]
        (directory,) = tunnels()
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    finally:
        await client.close()
        await server.stop(1)
    assert not directory.exists()


def test_looking_at_a_node_is_no_handshake_that_fails(tls: TlsConfig) -> None:
    """Its log and `BinlogNodeLimitsReached` would tell an operator of it, at every start of a Drainer. On the
    loop of the daemons: it drops what is not sent yet when a connection is cut off."""

    async def look() -> None:
        server = await serve([SERVICE], None, "127.0.0.1", 0, tls=tls.server_tls())
        client = rpc.Client(f"127.0.0.1:{server.port}", tls=tls)
        assert await client.unary("/t.S/Upper", b"x", 10) == b"X"  # looks first
        await client.close()
        await server.stop(1)

    failed = STATS.handshakes_failed
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(look())
    assert STATS.handshakes_failed == failed


async def test_nodes_take_each_others_place(tls: TlsConfig, tunnels: Callable[[], list[Path]]) -> None:
    """One with ALPN, then one without, then one with it on the same port."""
    client: rpc.Client | None = None
    port = 0
    for own in (tls.server_tls(), NoAlpn(tls), tls.server_tls()):
        server = await serve([SERVICE], None, "127.0.0.1", port, tls=own)
        port = server.port
        client = client or rpc.Client(f"127.0.0.1:{port}", tls=tls)
        for attempt in range(20):
            try:
                assert await client.unary("/t.S/Upper", b"x", 10) == b"X"
                break
            except Unavailable:
                assert attempt < 19
        assert bool(tunnels()) == isinstance(own, NoAlpn)
        await server.stop(1)
        with pytest.raises(Unavailable):
            await client.unary("/t.S/Upper", b"x", 1)
    assert client is not None
    await client.close()


async def test_a_stranger_is_not_spoken_to(
    tls: TlsConfig, tmp_path: Path, tunnels: Callable[[], list[Path]]
) -> None:
    """The tunnel checks authority and name as the channel does."""
    other = certificates.authority("other")
    strange = certificates.write(tmp_path / "other", ca=[other], node=certificates.leaf("node", ca=other))
    ca = certificates.authority("third")
    third = certificates.write(
        tmp_path / "third", ca=[ca], node=certificates.leaf("x", ca=ca, sans=["elsewhere"])
    )
    for own, ours in ((strange, tls), (third, third)):
        server = await serve([SERVICE], None, "127.0.0.1", 0, tls=NoAlpn(own))
        client = rpc.Client(f"127.0.0.1:{server.port}", tls=ours)
        with pytest.raises(Unavailable):
            await client.unary("/t.S/Upper", b"x", 3)
        assert not tunnels()
        await client.close()
        await server.stop(1)

"""Calls over TLS to peers that select no ALPN protocol, as Go nodes do not."""

from __future__ import annotations

import functools
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import certificates
from tests.waiting import until
from tidb_binlog import rpc
from tidb_binlog.door.server.listener import serve
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


async def test_all_kinds_of_calls(tls: TlsConfig) -> None:
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
    finally:
        await client.close()
        await server.stop(1)


async def answers(client: rpc.Client) -> bool:
    try:
        return await client.unary("/t.S/Upper", b"x", 10) == b"X"
    except Unavailable:  # not at once after a try that failed
        return False


async def test_nodes_take_each_others_place(tls: TlsConfig) -> None:
    """One with ALPN, then one without, then one with it on the same port."""
    client: rpc.Client | None = None
    port = 0
    for own in (tls.server_tls(), NoAlpn(tls), tls.server_tls()):
        server = await serve([SERVICE], None, "127.0.0.1", port, tls=own)
        port = server.port
        client = client or rpc.Client(f"127.0.0.1:{port}", tls=tls)
        await until(functools.partial(answers, client))
        await server.stop(1)
        with pytest.raises(Unavailable):
            await client.unary("/t.S/Upper", b"x", 1)
    assert client is not None
    await client.close()


async def test_a_stranger_is_not_spoken_to(tls: TlsConfig, tmp_path: Path) -> None:
    """Its authority and its name are looked at."""
    other = certificates.authority("other")
    strange = certificates.write(tmp_path / "other", ca=[other], node=certificates.leaf("node", ca=other))
    ca = certificates.authority("third")
    third = certificates.write(
        tmp_path / "third", ca=[ca], node=certificates.leaf("x", ca=ca, sans=["elsewhere"])
    )
    for own, ours, why in ((strange, tls, "CERTIFICATE_VERIFY_FAILED"), (third, third, "not valid for")):
        server = await serve([SERVICE], None, "127.0.0.1", 0, tls=NoAlpn(own))
        client = rpc.Client(f"127.0.0.1:{server.port}", tls=ours)
        with pytest.raises(Unavailable, match=why):
            await client.unary("/t.S/Upper", b"x", 3)
        await client.close()
        await server.stop(1)

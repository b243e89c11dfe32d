"""The door over TLS, on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests import certificates
from tests.attacks import frames
from tests.attacks.frames import GOAWAY, HEADERS
from tests.attacks.sockets import client_hello
from tests.common.door.support.peers import FOR_EVER_S, PATIENCE_S, House, Raw, call, connected, house, told
from tests.waiting import settle, until
from tidb_binlog import rpc
from tidb_binlog.door.limits import Limits
from tidb_binlog.errors import Unavailable
from tidb_binlog.net.tls import TlsConfig

LOOPS = ("asyncio", "uvloop")
ENDED = rb"\0\0.\x01\x05\0\0\0\x01"  # HEADERS that end stream 1
HELLO = frames.PREFACE + frames.settings()


class Files:
    """Two authorities, a node of the first, and clients."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ca = certificates.authority()
        self.other_ca = certificates.authority("other")
        self.node = self.write("node", "node")

    def write(self, place: str, cn: str, *, other: bool = False) -> TlsConfig:
        """A leaf of this name; `other`: of the authority that nobody trusts."""
        leaf = certificates.leaf(cn, ca=self.other_ca if other else self.ca)
        return certificates.write(self.directory / place, ca=[self.ca], node=leaf)

    def server(self, *allowed_cn: str) -> TlsConfig:
        return TlsConfig(self.node.ca, self.node.cert, self.node.key, allowed_cn)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


@asynccontextmanager
async def tls_house(tls: TlsConfig, limits: Limits | None = None) -> AsyncIterator[House]:
    async with house(limits, tls=tls.server_tls()) as here:
        yield here


class Client:
    """TLS by hand, so that a test says what goes into one segment."""

    def __init__(self, raw: Raw, context: ssl.SSLContext) -> None:
        self._raw = raw
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")

    async def shake_hands(self, first: bytes = b"", *, goodbye: bool = False) -> None:
        """`first` goes out with the handshake's last flight, and close_notify after it."""
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self._raw.send(self._out.read())
                data = await self._raw.octets()
                if not data:
                    raise ConnectionError("ended in the handshake") from None
                self._in.write(data)
        if first:
            self.tls.write(first)
        if goodbye:
            with contextlib.suppress(ssl.SSLWantReadError):
                self.tls.unwrap()
        await self._raw.send(self._out.read())

    async def send(self, data: bytes) -> None:
        self.tls.write(data)
        await self._raw.send(self._out.read())

    async def rest(self, until: bytes = b"") -> bytes:
        """What comes until the connection ends, or until it holds that (an expression)."""
        found = b""
        while not until or not re.search(until, found, re.DOTALL):
            try:
                data = self.tls.read(1 << 16)
                if not data:
                    break  # close_notify
                found += data
            except ssl.SSLWantReadError:
                data = await self._raw.octets()
                if not data:
                    break
                self._in.write(data)
            except ssl.SSLError:
                break
        return found


def context_of(tls: TlsConfig, *alpn: str, certificate: bool = True) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(tls.ca)
    if certificate:
        context.load_cert_chain(tls.cert, tls.key)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


@asynccontextmanager
async def client(here: House, context: ssl.SSLContext) -> AsyncIterator[Client]:
    async with Raw.to(here.port, hello=b"") as raw:
        yield Client(raw, context)


async def test_calls(files: Files) -> None:
    async with tls_house(files.server("node")) as here:
        caller = rpc.Client(f"127.0.0.1:{here.port}", tls=files.node)
        assert await caller.unary("/test.Bench/Swallow", b"x" * (1 << 20), PATIENCE_S) == (1 << 20).to_bytes(
            8
        )
        await caller.close()
        await here.at_rest()


@pytest.mark.parametrize("alpn", ["h2", "http/1.1", ""])
async def test_both_protocols_by_alpn_or_none(files: Files, alpn: str) -> None:
    offered = [alpn] if alpn else []
    async with tls_house(files.server()) as here:
        async with client(here, context_of(files.node, *offered)) as peer:
            await peer.shake_hands(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert peer.tls.selected_alpn_protocol() == (alpn or None)
            assert (await peer.rest()).startswith(b"HTTP/1.1 200 OK\r\n")
        async with client(here, context_of(files.node, *offered)) as peer:
            await peer.shake_hands(HELLO + call(1, "/test.Bench/Empty"))
            assert b"grpc-status\x010" in await peer.rest(ENDED + b".*0$")
        await here.at_rest()


@pytest.mark.parametrize("who", ["nobody", "of another authority", "of another name", "an old version"])
async def test_strangers_are_refused(files: Files, who: str, caplog: pytest.LogCaptureFixture) -> None:
    """Even what they send in one segment with the handshake's end is not looked at."""
    theirs = {
        "of another authority": files.write("stranger", "node", other=True),
        "of another name": files.write("wrong", 'evil"\nname'),
    }.get(who, files.node)
    context = context_of(theirs, "h2", certificate=who != "nobody")
    text = "TLS handshake failed"
    if who == "of another name":
        text = "is not in cert-allowed-cn"
    if who == "an old version":
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with tls_house(files.server("node")) as here:
        async with client(here, context) as peer:
            try:
                await peer.shake_hands(
                    HELLO + b"".join(call(at, "/test.Bench/Empty") for at in range(1, 21, 2))
                )
                assert await peer.rest() == b""
            except (ssl.SSLError, OSError):
                pass
        await here.at_rest()
        assert here.bench.called == 0
        assert text in told(caplog)


async def test_clear_text_on_a_port_with_tls(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    async with tls_house(files.server()) as here:
        for first in (HELLO, b"GET /status HTTP/1.1\r\nhost: x\r\n\r\n"):
            async with Raw.to(here.port, hello=first) as raw:
                while await raw.octets():
                    pass
        await here.at_rest()
        assert "connect with TLS and a certificate" in told(caplog)


async def test_tls_on_a_port_in_clear_text(caplog: pytest.LogCaptureFixture) -> None:
    async with house() as here, Raw.to(here.port, hello=client_hello()) as raw:
        assert await raw.octets() == b""
        await here.at_rest()
        assert "set ssl-ca, or connect without TLS" in told(caplog)


async def test_handshakes_have_a_time(files: Files) -> None:
    hello = client_hello()
    async with tls_house(files.server(), Limits(handshake_s=2.0)) as here:
        async with (
            Raw.to(here.port, hello=b"") as silent,
            Raw.to(here.port, hello=hello[: len(hello) // 2]) as half,
            Raw.to(here.port, hello=hello) as whole,
            client(here, context_of(files.node, "h2")) as shaken,
        ):
            await shaken.shake_hands()  # and then no preface
            assert await silent.octets() == b""
            assert await half.octets() == b""
            while await whole.octets():
                pass
            assert await shaken.rest() == b""
        await here.at_rest()


async def test_too_many_handshakes_end_those_of_the_greediest(files: Files) -> None:
    async with tls_house(files.server(), Limits(handshakes_max=4)) as here:
        patient = connected(here.port, source="127.0.0.3")  # one of another address, and older
        await until(lambda: here.server.connections == 1)
        greedy = [connected(here.port, source="127.0.0.2") for _ in range(30)]
        caller = rpc.Client(f"127.0.0.1:{here.port}", tls=files.node)
        try:
            assert await caller.unary("/test.Bench/Empty", b"", PATIENCE_S) == b""
            await until(lambda: here.server.connections <= 5)
            assert here.server._addresses["127.0.0.3"] == 1
            assert here.server._addresses["127.0.0.2"] <= 3
        finally:
            await caller.close()
            for sock in (*greedy, patient):
                sock.close()
        await here.at_rest()


async def test_a_crowd_of_handshakes_ends_none_of_a_polite_client(files: Files) -> None:
    """Half-open ones come without end, from one address; calls on new connections succeed all the while."""
    hello = client_hello()
    async with tls_house(files.server(), Limits(handshakes_max=8)) as here:
        greedy = []
        try:
            for _ in range(5):
                for _ in range(20):
                    greedy.append(sock := connected(here.port, source="127.0.0.2"))
                    sock.send(hello)
                caller = rpc.Client(f"127.0.0.1:{here.port}", tls=files.node)
                assert await caller.unary("/test.Bench/Empty", b"", PATIENCE_S) == b""
                await caller.close()
            await until(lambda: here.server.connections <= 8)
        finally:
            for sock in greedy:
                sock.close()
        await here.at_rest()


async def test_handshakes_that_many_addresses_leave_open_hold_up_nobody(files: Files) -> None:
    """Each address has a few, all together far more than there may be; one that continues comes in."""
    hello = client_hello()
    async with tls_house(files.server(), Limits(handshakes_max=40)) as here:
        crowd = []
        try:
            for round_ in range(4):
                for last in range(2, 62):
                    crowd.append(sock := connected(here.port, source=f"127.0.0.{last}"))
                    sock.send(hello if last % 2 else hello[: len(hello) // 2])
                assert len(here.server.handshakes) <= 40
                caller = rpc.Client(f"127.0.0.1:{here.port}", tls=files.node)
                assert await caller.unary("/test.Bench/Empty", b"", PATIENCE_S) == b"", round_
                await caller.close()
            await until(lambda: here.server.connections <= 40, "the rest was ended")
        finally:
            for sock in crowd:
                sock.close()
        await here.at_rest()


async def test_certificates_rotate_under_load(tmp_path: Path) -> None:
    """No call fails while the files are replaced; new connections see the new certificate."""
    files = Files(tmp_path)
    async with tls_house(files.server()) as here:
        caller = rpc.Client(f"127.0.0.1:{here.port}", tls=files.write("client", "client"))
        calls = 0
        stop = False

        async def load() -> None:
            nonlocal calls
            while not stop:
                await caller.unary("/test.Bench/Empty", b"", PATIENCE_S)
                calls += 1

        loads = [asyncio.create_task(load()) for _ in range(4)]
        await until(lambda: calls > 20)
        for number in range(3):
            seen = calls
            files.write("node", f"node {number}")
            async with client(here, context_of(files.write("client", "client"), "h2")) as peer:
                await peer.shake_hands(HELLO)
                shown = peer.tls.getpeercert()
                assert shown is not None
                assert ((("commonName", f"node {number}"),),) == shown["subject"]
            await until(lambda: calls >= seen + 20 or any(task.done() for task in loads))  # noqa: B023
        stop = True
        await asyncio.wait_for(asyncio.gather(*loads), PATIENCE_S)
        await caller.close()
        await here.at_rest()


async def test_stop_loses_no_call(files: Files) -> None:
    async with tls_house(files.server()) as here:
        caller = rpc.Client(f"127.0.0.1:{here.port}", tls=files.node)
        calls = [asyncio.create_task(caller.unary("/test.Bench/Gated", b"", PATIENCE_S)) for _ in range(32)]
        await until(lambda: here.bench.running == 32)
        stopping = asyncio.create_task(here.server.stop(PATIENCE_S))
        await settle()
        here.bench.gate.set_result(None)
        assert await asyncio.gather(*calls) == [b""] * 32
        await asyncio.wait_for(stopping, PATIENCE_S)
        with pytest.raises(Unavailable):
            await caller.unary("/test.Bench/Empty", b"", PATIENCE_S)
        await caller.close()


async def test_stop_ends_handshakes(files: Files) -> None:
    async with tls_house(files.server()) as here, Raw.to(here.port, hello=client_hello()[:50]) as raw:
        await until(lambda: here.server.connections == 1)
        await asyncio.wait_for(here.server.stop(FOR_EVER_S), PATIENCE_S)
        assert await raw.octets() == b""
        await here.at_rest()


async def test_a_fault_is_told(files: Files) -> None:
    async with tls_house(files.server()) as here:
        async with client(here, context_of(files.node, "h2")) as peer:
            await peer.shake_hands(HELLO + frames.frame(HEADERS, 4, 0) + bytes(50_000))
            found = await peer.rest()
        assert bytes((GOAWAY,)) + bytes(5) in found
        await here.at_rest()


@pytest.mark.parametrize("end", [b"", b"\r\n"], ids=["in a request", "before its answer"])
async def test_http1_that_ends_its_side(files: Files, end: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """TLS has no half-close: who says goodbye does not wait for an answer, and nothing is wrong with that."""
    async with tls_house(files.server()) as here:
        async with client(here, context_of(files.node)) as peer:
            await peer.shake_hands(b"GET /healthz HTTP/1.1\r\nhost: x\r\n" + end, goodbye=True)
            await peer.rest()
        await here.at_rest()
        assert [record.getMessage() for record in caplog.records] == []

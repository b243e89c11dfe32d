"""TLS of listeners and channels: who gets in, and what a rotation changes."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import warnings
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from tests import certificates
from tests.certificates import Pair
from tests.fakes import grpcio_server
from tests.waiting import until
from tidb_binlog import rpc
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import ConfigError, Unavailable
from tidb_binlog.net.tls import LOG_AGAIN_S, RETRY_S, ServerTls, TlsConfig

ECHO = "/test.Tls/Echo"
COUNT = "/test.Tls/Count"
SUBJECT_CN = "commonName"


@pytest.fixture(scope="module")
def ca() -> Pair:
    return certificates.authority()


@pytest.fixture(scope="module")
def other_ca() -> Pair:
    return certificates.authority("other authority")


@pytest.fixture(scope="module")
def node(ca: Pair) -> Pair:
    return certificates.leaf("pump-1", ca=ca)


def listener(directory: Path, ca: Pair, node: Pair, allowed_cn: Sequence[str] = ()) -> ServerTls:
    return certificates.write(directory / "server", ca=[ca], node=node, allowed_cn=allowed_cn).server_tls()


def caller(directory: Path, trusted: Pair, own: Pair | None) -> ssl.SSLContext:
    return certificates.write(directory / "client", ca=[trusted], node=own).client_context()


class Shaken:
    """Both ends of a connection in memory."""

    def __init__(
        self,
        server: ssl.SSLContext,
        client: ssl.SSLContext,
        *,
        name: str = "localhost",
        session: ssl.SSLSession | None = None,
    ) -> None:
        """Shake hands. Raises what the server has against the client, then what the client has."""
        up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(down, up, server_hostname=name, session=session)
        self.server = server.wrap_bio(up, down, server_side=True)
        open_ends = [self.client, self.server]
        for _ in range(10):
            for end in list(open_ends):
                try:
                    end.do_handshake()
                    open_ends.remove(end)
                except ssl.SSLWantReadError:
                    pass
            if not open_ends:
                return
        raise AssertionError("the handshake does not end")

    def exchange(self) -> None:
        self.client.write(b"ping")
        assert self.server.read(4) == b"ping"
        self.server.write(b"pong")
        assert self.client.read(4) == b"pong"

    def server_certificate(self) -> bytes:
        der = self.client.getpeercert(binary_form=True)
        assert der is not None
        return der


def der(pair: Pair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.pem.decode())


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[dict[str, Any]]:
    return [record.fields for record in caplog.records if record.levelno == level]  # type: ignore[attr-defined]


# Who gets in


def test_a_client_of_the_authority_gets_in(tmp_path: Path, ca: Pair, node: Pair) -> None:
    shaken = Shaken(listener(tmp_path, ca, node).context(), caller(tmp_path, ca, node))
    shaken.exchange()
    assert shaken.server.version() == "TLSv1.3"
    assert shaken.server.getpeercert() is not None


def test_tls_1_2_is_still_spoken(tmp_path: Path, ca: Pair, node: Pair) -> None:
    client = caller(tmp_path, ca, node)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    shaken = Shaken(listener(tmp_path, ca, node).context(), client)
    shaken.exchange()
    assert shaken.server.version() == "TLSv1.2"


def test_a_client_without_certificate_is_refused(tmp_path: Path, ca: Pair, node: Pair) -> None:
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        Shaken(listener(tmp_path, ca, node).context(), caller(tmp_path, ca, None))


@pytest.mark.parametrize("kind", ["self-signed", "same subject", "other authority"])
def test_a_client_of_another_authority_is_refused(tmp_path: Path, ca: Pair, node: Pair, kind: str) -> None:
    issuer = {
        "self-signed": None,
        "same subject": certificates.authority(),
        "other authority": certificates.authority("other"),
    }[kind]
    stranger = certificates.leaf("pump-1", ca=issuer)
    server = listener(tmp_path, ca, node, ["pump-1"]).context()
    with pytest.raises(ssl.SSLCertVerificationError, match=r"self.signed|local issuer|signature failure"):
        Shaken(server, caller(tmp_path, ca, stranger))


def test_an_expired_client_is_refused(tmp_path: Path, ca: Pair, node: Pair) -> None:
    expired = certificates.expired_leaf("pump-1", ca=ca)
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
        Shaken(listener(tmp_path, ca, node).context(), caller(tmp_path, ca, expired))


def test_a_certificate_for_servers_is_not_one_for_clients(tmp_path: Path, ca: Pair, node: Pair) -> None:
    only_server = certificates.leaf("pump-1", ca=ca, eku=[certificates.SERVER])
    with pytest.raises(ssl.SSLCertVerificationError, match=r"unsuitable certificate purpose"):
        Shaken(listener(tmp_path, ca, node).context(), caller(tmp_path, ca, only_server))


def test_a_certificate_for_clients_is_not_one_for_servers(tmp_path: Path, ca: Pair, node: Pair) -> None:
    only_client = certificates.leaf("pump-1", ca=ca, eku=[certificates.CLIENT])
    with pytest.raises(ssl.SSLCertVerificationError, match=r"unsuitable certificate purpose"):
        Shaken(listener(tmp_path, ca, only_client).context(), caller(tmp_path, ca, node))


def test_clients_check_the_name_of_the_server(tmp_path: Path, ca: Pair, node: Pair) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        Shaken(listener(tmp_path, ca, node).context(), caller(tmp_path, ca, node), name="pump-2")


def test_tls_1_1_is_refused(tmp_path: Path, ca: Pair, node: Pair) -> None:
    server, client = listener(tmp_path, ca, node).context(), caller(tmp_path, ca, node)
    for context in (server, client):
        # Otherwise OpenSSL's own caution would refuse, whatever the listener asks for.
        context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        client.minimum_version = client.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL"):
            Shaken(server, client)
        server.minimum_version = ssl.TLSVersion.TLSv1_1
        Shaken(server, client)  # the test can tell


def test_no_renegotiation_and_no_compression(tmp_path: Path, ca: Pair, node: Pair) -> None:
    options = listener(tmp_path, ca, node).context().options
    assert options & ssl.OP_NO_RENEGOTIATION
    assert options & ssl.OP_NO_COMPRESSION


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (["h2"], "h2"),
        (["http/1.1"], "http/1.1"),
        (["http/1.1", "h2"], "h2"),
        ([], None),
        (["spdy/3"], None),
    ],
)
def test_alpn(tmp_path: Path, ca: Pair, node: Pair, offered: list[str], chosen: str | None) -> None:
    client = caller(tmp_path, ca, node)
    if offered:
        client.set_alpn_protocols(offered)
    shaken = Shaken(listener(tmp_path, ca, node).context(), client)
    assert shaken.server.selected_alpn_protocol() == chosen
    assert shaken.client.selected_alpn_protocol() == chosen
    shaken.exchange()


# cert-allowed-cn


@pytest.mark.parametrize(
    ("allowed", "cns", "refused"),
    [
        ([], "anybody", None),
        (["tidb"], "tidb", None),
        (["pump", "tidb"], "tidb", None),
        ([" tidb ", "\tpump\n"], "tidb", None),
        ([" tidb ", "\tpump\n"], "pump", None),
        (["", "tidb"], "tidb", None),
        (["tidb"], ["evil", "tidb"], None),
        (["tidb"], "evil", 'certificate of CN "evil" is not in cert-allowed-cn'),
        (["tidb"], "TiDB", 'certificate of CN "TiDB" is not in cert-allowed-cn'),
        (["tidb"], "tidb.evil", 'certificate of CN "tidb.evil" is not in cert-allowed-cn'),
        (["tidb-1"], "tidb", 'certificate of CN "tidb" is not in cert-allowed-cn'),
        (["tidb"], " tidb", 'certificate of CN " tidb" is not in cert-allowed-cn'),
        (["*"], "tidb", 'certificate of CN "tidb" is not in cert-allowed-cn'),
        (["tidb"], [], "certificate without CN is not in cert-allowed-cn"),
        (["", "tidb"], [], "certificate without CN is not in cert-allowed-cn"),
    ],
)
def test_names_of_the_leaf_decide(
    tmp_path: Path, ca: Pair, node: Pair, allowed: list[str], cns: str | list[str], refused: str | None
) -> None:
    tls = listener(tmp_path, ca, node, allowed)
    client = caller(tmp_path, ca, certificates.leaf(cns, ca=ca))
    assert tls.refusal(Shaken(tls.context(), client).server.getpeercert()) == refused


@pytest.mark.parametrize("between", [False, True])
def test_names_of_authorities_do_not_count(tmp_path: Path, ca: Pair, node: Pair, between: bool) -> None:
    """Go pumps accept a listed CN anywhere in the chain."""
    root = ca if between else certificates.authority("tidb")
    issuer = certificates.authority("tidb", issuer=root) if between else root
    tls = listener(tmp_path, root, certificates.leaf("pump-1", ca=root), ["tidb"])
    for cn, refused in (("evil", 'certificate of CN "evil" is not in cert-allowed-cn'), ("tidb", None)):
        shaken = Shaken(tls.context(), caller(tmp_path, root, certificates.leaf(cn, ca=issuer)))
        assert tls.refusal(shaken.server.getpeercert()) == refused


def test_only_the_common_name_counts(tmp_path: Path, ca: Pair, node: Pair) -> None:
    tls = listener(tmp_path, ca, node, ["tidb"])
    subject = ((("organizationName", "tidb"),), (("surname", "tidb"), (SUBJECT_CN, "evil")))
    peer = {"subject": subject, "issuer": (((SUBJECT_CN, "tidb"),),), "subjectAltName": (("DNS", "tidb"),)}
    assert tls.refusal(peer) == 'certificate of CN "evil" is not in cert-allowed-cn'
    peer["subject"] = ((("surname", "x"), (SUBJECT_CN, "tidb")),)
    assert tls.refusal(peer) is None


def test_who_shows_nothing_is_refused(tmp_path: Path, ca: Pair, node: Pair) -> None:
    """Also without a list: the handshake should have seen to it, but nobody is not of the authority."""
    for allowed in ([], ["tidb"]):
        tls = listener(tmp_path, ca, node, allowed)
        for nothing in (None, {}):
            assert tls.refusal(nothing) == "no certificate was shown"


def test_hostile_names_are_escaped_and_cut(tmp_path: Path, ca: Pair, node: Pair) -> None:
    tls = listener(tmp_path, ca, node, ["tidb"])

    def text(*names: str) -> str:
        refused = tls.refusal({"subject": tuple(((SUBJECT_CN, name),) for name in names)})
        assert refused is not None
        assert refused.isascii()
        assert refused.isprintable()
        return refused

    assert text("tidb\0.evil") == r'certificate of CN "tidb\u0000.evil" is not in cert-allowed-cn'
    assert text('a"\n[x]\x1b\u202e') == r'certificate of CN "a\"\n[x]\u001b\u202e" is not in cert-allowed-cn'
    assert text("x" * 1000) == f'certificate of CN "{"x" * 64}"... is not in cert-allowed-cn'
    many = text(*(f"n{number}" for number in range(500)))
    assert many == 'certificate of CN "n0", "n1", "n2" and 497 more is not in cert-allowed-cn'


def test_a_list_without_a_name_is_no_empty_list(tmp_path: Path, ca: Pair, node: Pair) -> None:
    with pytest.raises(ConfigError, match="cert-allowed-cn holds no name"):
        listener(tmp_path, ca, node, [" ", ""])


def test_the_list_comes_with_the_paths() -> None:
    assert TlsConfig.from_paths("a", "c", "k") == TlsConfig("a", "c", "k", ())
    assert TlsConfig.from_paths("a", "c", "k", ["x", "y"]) == TlsConfig("a", "c", "k", ("x", "y"))


# Rotation


def test_unchanged_files_are_not_read_again(tmp_path: Path, ca: Pair, node: Pair) -> None:
    tls = listener(tmp_path, ca, node)
    assert tls.context() is tls.context()


def test_the_next_handshake_gets_the_new_certificate(
    tmp_path: Path, ca: Pair, node: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    tls, client = listener(tmp_path, ca, node), caller(tmp_path, ca, node)
    before = Shaken(tls.context(), client)
    assert before.server_certificate() == der(node)
    renewed = certificates.leaf("pump-1", ca=ca)
    certificates.write(tmp_path / "server", ca=[ca], node=renewed)
    after = Shaken(tls.context(), client)
    assert after.server_certificate() == der(renewed)
    before.exchange()
    after.exchange()
    assert [fields["ssl_cert"] for fields in lines(caplog, logging.INFO)] == [
        str(tmp_path / "server" / "node.pem")
    ]


@pytest.mark.parametrize("name", ["ca.pem", "node.pem", "node.key"])
@pytest.mark.parametrize("how", ["content", "rename", "chmod"])
def test_a_change_of_any_file_is_seen(tmp_path: Path, ca: Pair, node: Pair, name: str, how: str) -> None:
    tls = listener(tmp_path, ca, node)
    before = tls.context()
    path = tmp_path / "server" / name
    os.utime(path, (1, 1))
    before, old = tls.context(), before
    assert before is not old
    if how == "content":  # same time and inode, as `rsync --inplace --times` leaves it
        path.write_bytes(path.read_bytes() + b"\n")
    elif how == "rename":  # same time and size
        fresh = path.with_suffix(".new")
        fresh.write_bytes(path.read_bytes())
        os.utime(fresh, (1, 1))
        fresh.rename(path)
    else:
        path.chmod(0o640)
    if how != "chmod":
        os.utime(path, (1, 1))
    assert tls.context() is not before


def test_symbolic_links_that_turn_are_seen(tmp_path: Path, ca: Pair, node: Pair) -> None:
    """As Kubernetes mounts secrets: the files are links through a link to a directory."""
    renewed = certificates.leaf("pump-1", ca=ca)
    certificates.write(tmp_path / "v1", ca=[ca], node=node)
    certificates.write(tmp_path / "v2", ca=[ca], node=renewed)
    data = tmp_path / "data"
    data.symlink_to("v1")
    tls = TlsConfig(*(str(data / name) for name in ("ca.pem", "node.pem", "node.key"))).server_tls()
    fresh = tmp_path / "data.new"
    fresh.symlink_to("v2")
    fresh.rename(data)
    shaken = Shaken(tls.context(), caller(tmp_path, ca, node))
    assert shaken.server_certificate() == der(renewed)


def test_clients_of_a_removed_authority_are_dropped(
    tmp_path: Path, ca: Pair, other_ca: Pair, node: Pair
) -> None:
    """First both authorities, then only the new one, as a rotation goes."""
    tls = listener(tmp_path, ca, node)
    old = caller(tmp_path / "old", ca, node)
    new = caller(tmp_path / "new", ca, certificates.leaf("pump-2", ca=other_ca))
    with pytest.raises(ssl.SSLCertVerificationError):
        Shaken(tls.context(), new)
    certificates.write(tmp_path / "server", ca=[ca, other_ca], node=node)
    Shaken(tls.context(), new)
    running = Shaken(tls.context(), old)
    running.exchange()
    certificates.write(tmp_path / "server", ca=[other_ca], node=node)
    with pytest.raises(ssl.SSLCertVerificationError):
        Shaken(tls.context(), old)
    Shaken(tls.context(), new)
    running.exchange()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_resumed_session_does_not_outlive_the_authority(
    tmp_path: Path, ca: Pair, other_ca: Pair, node: Pair, version: ssl.TLSVersion
) -> None:
    tls, client = listener(tmp_path, ca, node, ["pump-1"]), caller(tmp_path, ca, node)
    client.maximum_version = version
    first = Shaken(tls.context(), client)
    first.exchange()  # brings the tickets of TLS 1.3
    again = Shaken(tls.context(), client, session=first.client.session)
    assert again.server.session_reused
    assert tls.refusal(again.server.getpeercert()) is None
    certificates.write(tmp_path / "server", ca=[other_ca], node=node)
    with pytest.raises(ssl.SSLCertVerificationError):
        Shaken(tls.context(), client, session=first.client.session)


def _other_key(directory: Path) -> None:
    (directory / "node.key").write_bytes(certificates.authority().key_pem)


def _cut_key(directory: Path) -> None:
    (directory / "node.key").write_bytes((directory / "node.key").read_bytes()[:100])


def _cut_certificate(directory: Path) -> None:
    (directory / "node.pem").write_bytes((directory / "node.pem").read_bytes()[:100])


def _empty_authority(directory: Path) -> None:
    (directory / "ca.pem").write_bytes(b"")


def _no_key(directory: Path) -> None:
    (directory / "node.key").unlink()


def _no_authority(directory: Path) -> None:
    (directory / "ca.pem").unlink()


BROKEN = [
    (_other_key, "ssl-cert {0}/node.pem with ssl-key {0}/node.key is unusable", "key values mismatch"),
    (_cut_key, "with ssl-key {0}/node.key is unusable", "key is whole"),
    (_cut_certificate, "ssl-cert {0}/node.pem is unusable", "check the file"),
    (_empty_authority, "ssl-ca {0}/ca.pem is unusable", "check the file"),
    (_no_key, "could not read ssl-key {0}/node.key", "No such file"),
    (_no_authority, "could not read ssl-ca {0}/ca.pem", "No such file"),
]


@pytest.mark.parametrize(("spoil", "which", "why"), BROKEN)
def test_a_broken_rotation_keeps_the_old_files_and_recovers(
    tmp_path: Path, ca: Pair, node: Pair, caplog: pytest.LogCaptureFixture, spoil: Any, which: str, why: str
) -> None:
    clock = ManualClock()
    directory = tmp_path / "server"
    tls = certificates.write(directory, ca=[ca], node=node).server_tls(clock=clock)
    client = caller(tmp_path, ca, node)
    spoil(directory)
    for _ in range(5):
        assert Shaken(tls.context(), client).server_certificate() == der(node)
        clock.advance(RETRY_S)
    (told,) = lines(caplog, logging.WARNING)
    assert which.format(directory) in told["error"]
    assert why.lower() in told["error"].lower()
    assert told["use"] == "listener"
    clock.advance(LOG_AGAIN_S)
    tls.context()
    assert len(lines(caplog, logging.WARNING)) == 2
    renewed = certificates.leaf("pump-1", ca=ca)
    certificates.write(directory, ca=[ca], node=renewed)
    assert Shaken(tls.context(), client).server_certificate() == der(renewed)
    spoil(directory)
    tls.context()
    assert len(lines(caplog, logging.WARNING)) == 3  # a new trouble is told at once


def test_the_old_files_put_back_are_no_trouble(
    tmp_path: Path, ca: Pair, node: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    tls = listener(tmp_path, ca, node)
    aside = tmp_path / "aside"
    (tmp_path / "server" / "node.key").rename(aside)
    tls.context()
    aside.rename(tmp_path / "server" / "node.key")
    usable = tls.context()
    assert tls.context() is usable
    assert len(lines(caplog, logging.WARNING)) == 1


def test_unusable_files_are_tried_again_although_they_do_not_change(
    tmp_path: Path, ca: Pair, node: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of file descriptors, for example."""
    clock = ManualClock()
    tls = certificates.write(tmp_path, ca=[ca], node=node).server_tls(clock=clock)
    before = tls.context()
    tries = 0

    def fail(config: TlsConfig) -> ssl.SSLContext:
        nonlocal tries
        tries += 1
        raise ConfigError("too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(TlsConfig, "server_context", fail)
        certificates.write(tmp_path, ca=[ca], node=node)
        assert [tls.context() for _ in range(3)] == [before] * 3
        assert tries == 1
    assert tls.context() is before
    clock.advance(RETRY_S)
    assert tls.context() is not before


@pytest.mark.parametrize(("spoil", "which", "why"), BROKEN)
def test_unusable_files_at_the_start_are_config_errors(
    tmp_path: Path, ca: Pair, node: Pair, spoil: Any, which: str, why: str
) -> None:
    config = certificates.write(tmp_path, ca=[ca], node=node)
    spoil(tmp_path)
    with pytest.raises(ConfigError) as caught:
        rpc.Client("127.0.0.1:1", tls=config)
    assert str(tmp_path) in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        config.server_tls()
    assert which.format(tmp_path) in str(caught.value)


def test_a_listener_needs_a_certificate(tmp_path: Path, ca: Pair) -> None:
    with pytest.raises(ConfigError, match="a TLS listener needs a certificate"):
        certificates.write(tmp_path, ca=[ca], node=None).server_tls()


# clients


class Counter:
    """Counts as far as it is let."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def echo(self, request: bytes) -> bytes:
        return request

    async def count(self, request: bytes) -> AsyncIterator[bytes]:
        yield b"1"
        await self.go_on.wait()
        yield b"2"

    def service(self) -> rpc.Service:
        return rpc.Service(name="test.Tls", unary={"Echo": self.echo}, server_streams={"Count": self.count})


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.Transport]:
    """All connections that clients have made."""
    made: list[asyncio.Transport] = []
    begin = rpc.client.Link.connection_made

    def record(link: rpc.client.Link, transport: asyncio.Transport) -> None:
        made.append(transport)
        begin(link, transport)

    monkeypatch.setattr(rpc.client.Link, "connection_made", record)
    return made


async def test_calls_after_a_rotation_use_a_new_connection(
    tmp_path: Path, ca: Pair, other_ca: Pair, node: Pair, sockets: list[asyncio.Transport]
) -> None:
    counter, clock = Counter(), ManualClock()
    config = certificates.write(tmp_path / "server", ca=[ca], node=node)
    server = await grpcio_server.serve([counter.service()], "127.0.0.1", 0, tls=config)
    own = certificates.write(tmp_path / "client", ca=[ca], node=node)
    client = rpc.Client(f"127.0.0.1:{server.port}", tls=own, clock=clock)
    async with aclosing(client.server_stream(COUNT, b"")) as stream:
        assert await anext(stream) == b"1"
        # Files that the server does not accept show which calls use them.
        certificates.write(tmp_path / "client", ca=[ca], node=certificates.leaf("pump-1", ca=other_ca))
        assert await client.unary(ECHO, b"x", 5) == b"x"  # not looked at yet
        clock.advance(rpc.client.TLS_FILES_CHECKED_S)
        with pytest.raises(Unavailable):
            await client.unary(ECHO, b"x", 5)
        with pytest.raises(Unavailable):
            await anext(client.server_stream(COUNT, b""))
        assert not sockets[0].is_closing()
        tried = len(sockets)
        certificates.write(tmp_path / "client", ca=[ca], node=certificates.leaf("pump-1", ca=ca))
        clock.advance(rpc.client.TLS_FILES_CHECKED_S)
        assert await client.unary(ECHO, b"x", 5) == b"x"
        assert [socket.is_closing() for socket in sockets] == [False, *[True] * (tried - 1), False]
        counter.go_on.set()
        assert [reply async for reply in stream] == [b"2"]
    await until(lambda: [socket.is_closing() for socket in sockets] == [True] * tried + [False])
    assert await client.unary(ECHO, b"x", 5) == b"x"
    await client.close()
    await client.close()
    assert all(socket.is_closing() for socket in sockets)
    await server.stop(0)


async def test_close_ends_calls_on_old_connections_too(
    tmp_path: Path, ca: Pair, node: Pair, sockets: list[asyncio.Transport]
) -> None:
    counter, clock = Counter(), ManualClock()
    config = certificates.write(tmp_path, ca=[ca], node=node)
    server = await grpcio_server.serve([counter.service()], "127.0.0.1", 0, tls=config)
    client = rpc.Client(f"127.0.0.1:{server.port}", tls=config, clock=clock)
    stream = client.server_stream(COUNT, b"")
    assert await anext(stream) == b"1"
    certificates.write(tmp_path, ca=[ca], node=certificates.leaf("pump-1", ca=ca))
    clock.advance(rpc.client.TLS_FILES_CHECKED_S)
    assert await client.unary(ECHO, b"x", 5) == b"x"
    await client.close()
    with pytest.raises(Unavailable):
        await anext(stream)
    certificates.write(tmp_path, ca=[ca], node=node)
    clock.advance(rpc.client.TLS_FILES_CHECKED_S)
    with pytest.raises(Unavailable, match="is closed"):
        await client.unary(ECHO, b"x", 5)
    assert [socket.is_closing() for socket in sockets] == [True, True]
    await server.stop(0)


async def test_unusable_new_files_keep_the_connection(
    tmp_path: Path,
    ca: Pair,
    node: Pair,
    sockets: list[asyncio.Transport],
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    config = certificates.write(tmp_path / "server", ca=[ca], node=node)
    server = await grpcio_server.serve([Counter().service()], "127.0.0.1", 0, tls=config)
    address = f"127.0.0.1:{server.port}"
    own = certificates.write(tmp_path / "client", ca=[ca], node=node)
    client = rpc.Client(address, tls=own, clock=clock)
    _cut_key(tmp_path / "client")
    for _ in range(3):
        clock.advance(rpc.client.TLS_FILES_CHECKED_S)
        assert await client.unary(ECHO, b"x", 5) == b"x"
    assert len(sockets) == 1
    (told,) = (line for line in lines(caplog, logging.WARNING) if line["use"] == f"client of {address}")
    assert str(tmp_path / "client" / "node.key") in told["error"]
    certificates.write(tmp_path / "client", ca=[ca], node=node)
    clock.advance(rpc.client.TLS_FILES_CHECKED_S)
    assert await client.unary(ECHO, b"x", 5) == b"x"
    assert len(sockets) == 2
    await client.close()
    await server.stop(0)


@pytest.mark.parametrize("secure", [True, False])
async def test_files_are_looked_at_once_a_second(
    tmp_path: Path, ca: Pair, node: Pair, monkeypatch: pytest.MonkeyPatch, secure: bool
) -> None:
    clock = ManualClock()
    tls = certificates.write(tmp_path, ca=[ca], node=node) if secure else None
    server = await grpcio_server.serve([Counter().service()], "127.0.0.1", 0, tls=tls)
    client = rpc.Client(f"127.0.0.1:{server.port}", tls=tls, clock=clock)
    assert await client.unary(ECHO, b"x", 5) == b"x"  # the handshake of the server looks, too
    looks: list[Any] = []
    stat = os.stat

    def count(path: Any, *arguments: Any, **named: Any) -> os.stat_result:
        looks.append(path)
        return stat(path, *arguments, **named)

    monkeypatch.setattr(os, "stat", count)
    for _ in range(3):
        for _ in range(5):
            assert await client.unary(ECHO, b"x", 5) == b"x"
        clock.advance(rpc.client.TLS_FILES_CHECKED_S)
    monkeypatch.undo()
    assert looks == ([tls.ca, tls.cert, tls.key] * 2 if tls else [])
    await client.close()
    await server.stop(0)


async def test_the_list_of_names_is_not_for_whom_we_call(tmp_path: Path, ca: Pair, node: Pair) -> None:
    config = certificates.write(tmp_path / "server", ca=[ca], node=node)
    server = await grpcio_server.serve([Counter().service()], "127.0.0.1", 0, tls=config)
    own = certificates.write(tmp_path / "client", ca=[ca], node=node, allowed_cn=["drainer"])
    client = rpc.Client(f"127.0.0.1:{server.port}", tls=own)
    assert await client.unary(ECHO, b"x", 5) == b"x"
    await client.close()
    await server.stop(0)

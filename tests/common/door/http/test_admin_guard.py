from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import case
from tidb_binlog.door.http.admin_guard import AdminGuard, shown
from tidb_binlog.door.http.routes import Peer, Request
from tidb_binlog.errors import ConfigError

GUARD = AdminGuard(
    ["10.1.0.0/16", " 192.0.2.7 ", "fd00::/8", "2001:db8::5", "::ffff:172.16.0.0/108"],
    ["Pump-A.example:8250", "pump-a", "", "[fe80::1]:8250"],
)


def request(
    address: str = "127.0.0.1",
    host: str = "127.0.0.1:8250",
    origin: str | None = None,
    *,
    verified: bool = False,
    method: str = "PUT",
) -> Request:
    return Request(method, "/state/a/pause", host, origin, Peer(address, verified))


def refused(guard: AdminGuard, asked: Request) -> str:
    response = guard.refusal(asked)
    if response is None:
        return ""
    assert response.status == 403
    text = response.body.decode("ascii")
    assert text.startswith("refused: ")
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    assert len(text) < 300
    return text


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.9.8.7",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        "",  # unix socket
        "10.1.0.0",
        "10.1.255.255",
        "::ffff:10.1.2.3",
        "192.0.2.7",
        "fd12:3456::1",
        "fd12::1%eth0",
        "2001:db8::5",
        "2001:0DB8:0::0:5",
        "172.31.255.255",
    ],
)
def test_these_may(address: str) -> None:
    assert refused(GUARD, request(address)) == ""


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.9",
        "10.2.0.0",
        "192.0.2.8",
        "128.0.0.1",
        "0.0.0.0",
        "::",
        "::2",
        "fe80::1",
        "fc00::1",
        "2001:db8::6",
        "::ffff:10.2.0.0",
        "::127.0.0.1",
        "64:ff9b::7f00:1",  # NAT64 of 127.0.0.1 is somebody else
        "172.32.0.0",
        "localhost",
        "127.0.0.1:5000",
        "unknown",
    ],
)
def test_these_may_not_unless_verified(address: str) -> None:
    assert refused(GUARD, request(address)) == (
        f"refused: {address} may not administrate this node; "
        "use mutual TLS or add its network to admin-from\n"
    )
    assert refused(GUARD, request(address, verified=True)) == ""


def test_without_networks_only_this_machine_and_verified_peers() -> None:
    guard = AdminGuard()
    assert refused(guard, request("10.1.0.1"))
    assert refused(guard, request("::1")) == ""
    assert refused(guard, request("10.1.0.1", verified=True)) == ""


def test_everybody_can_be_allowed() -> None:
    guard = AdminGuard(["0.0.0.0/0", "::/0"])
    assert refused(guard, request("203.0.113.1")) == ""
    assert refused(guard, request("2001:db8::6")) == ""


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:8250",
        "127.0.0.1:",
        "10.0.0.9:8250",
        "::1",
        "[::1]",
        "[::1]:8250",
        "[2001:DB8::5]:8250",
        "fe80::1",
        "localhost",
        "LocalHost:1234",
        "localhost.",
        "localhost:",
        "pump-a",
        "PUMP-A:99",
        "pump-a.example",
        "pump-a.EXAMPLE.:8250",
    ],
)
def test_own_names_and_addresses(host: str) -> None:
    assert refused(GUARD, request(host=host)) == ""


def test_foreign_names_are_refused_whoever_asks() -> None:
    for host in [
        "evil.example",
        "evil.example:8250",
        "pump-a.evil.example",
        "evil.pump-a",
        "pump-b",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "evil.example@127.0.0.1",
        "127.0.0.1:8250@evil.example",
        "127.0.0.1:8250:8250",
        "127.1",
        "0x7f.0.0.1",
        "2130706433",
        "[evil.example]",
        "[127.0.0.1]",
        "[::1]evil.example",
        "[::1]8250",
        "[::1",
        "[]",
        "[",
        ":8250",
        "localhost:http",
        "localhost:\xb2",
        "localhost,evil.example",
        " localhost",
        "pump-a..",
        "pump\xad-a",
        "\xb2\xb7.0.0.1",
    ]:
        with case(host):
            for verified in (False, True):
                assert "is no name of this node" in refused(GUARD, request(host=host, verified=verified))


def test_a_missing_host_is_refused() -> None:
    assert "names no Host" in refused(GUARD, request(host=""))


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:8250", "null", ""])
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_web_pages_are_refused(origin: str, method: str) -> None:
    asked = request(origin=origin, method=method, verified=True)
    assert "web pages" in refused(GUARD, asked)


@pytest.mark.parametrize(
    "item",
    ["", "10.0.0", "10.0.0.0/33", "10.0.0.9/8", "pump-a", "fd00::/129", "10.0.0.1-10.0.0.9", "10.0.0.0/8,"],
)
def test_wrong_networks_are_named(item: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AdminGuard(["10.0.0.0/8", item])
    assert caught.value.message.startswith(f"admin-from: {item!r} is no network: ")
    assert "10.0.0.0/8" in caught.value.hint


def test_hostile_text_is_not_echoed() -> None:
    assert shown("a\r\nb\x00\x1b[31m\xe4") == "a??b??[31m?"
    assert shown("x" * 64) == "x" * 64
    assert shown("x" * 65) == "x" * 64 + "..."
    text = refused(GUARD, request(host="evil\r\nSet-Cookie: a=b" + "x" * 5000))
    assert "\r" not in text
    assert text.count("\n") == 1


@given(st.text(max_size=80), st.text(max_size=80), st.none() | st.text(max_size=10), st.booleans())
def test_any_text_gets_a_verdict(address: str, host: str, origin: str | None, verified: bool) -> None:
    refused(GUARD, request(address, host, origin, verified=verified))

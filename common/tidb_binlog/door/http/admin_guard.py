"""Admin guard: who may change this node, or see rows, over HTTP.

In     a `Request`, and what the operator allows: networks (`admin-from`) and the names of this node
Out    None, or a 403 whose text says what to do
Holds  only mutual TLS, this machine and the named networks may, and only under a name of this node
Why    a web page in an operator's browser reaches this port from a trusted address. It cannot hide its Origin
       where it sends one, nor its Host: a name made to resolve to us (DNS rebinding) still stands there
Never  shows the peer's bytes as they came
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from tidb_binlog.door.http.routes import Request, Response
from tidb_binlog.errors import ConfigError

_Address = IPv4Address | IPv6Address
_Network = IPv4Network | IPv6Network
_MAPPED: Final = IPv6Network("::ffff:0:0/96")  # IPv4 as a dual-stack socket shows it
_SHOWN_CHARS_MAX: Final = 64


class AdminGuard:
    """`admin_from` holds networks or addresses; `hosts` the node's own names, a port in them is ignored.

    Raises `ConfigError` for an item of `admin_from` that is no network.
    """

    __slots__ = ("_hosts", "_networks")

    def __init__(self, admin_from: Sequence[str] = (), hosts: Collection[str] = ()) -> None:
        self._networks = tuple(_network(item) for item in admin_from)
        self._hosts = frozenset(name for name in map(_host_name, hosts) if name) | {"localhost"}

    def admit(self, admin_from: Sequence[str]) -> None:
        """These networks from now on. Raises `ConfigError`."""
        self._networks = tuple(_network(item) for item in admin_from)

    def refusal(self, request: Request) -> Response | None:
        """None lets the request pass."""
        if not self._trusts(request):
            return _refused(
                f"{shown(request.peer.address)} may not administrate this node; "
                "use mutual TLS or add its network to admin-from"
            )
        if request.origin is not None:
            return _refused("requests from web pages may not administrate this node; leave out Origin")
        if not request.host:
            return _refused("the request names no Host; send the address or the advertised name of this node")
        name = _host_name(request.host)
        if name not in self._hosts and _address(name) is None:
            return _refused(
                f"Host {shown(request.host)} is no name of this node; "
                "use its IP address or the name that it advertises"
            )
        return None

    def _trusts(self, request: Request) -> bool:
        peer = request.peer
        if peer.verified or not peer.address:
            return True
        address = _address(peer.address)
        if address is None:
            return False
        return address.is_loopback or any(address in network for network in self._networks)


def shown(text: str) -> str:
    """Printable ASCII of bounded length, fit for a text that a peer sees."""
    cut = text[:_SHOWN_CHARS_MAX]
    safe = "".join(char if " " <= char <= "~" else "?" for char in cut)
    return safe + "..." if len(text) > len(cut) else safe


def _refused(why: str) -> Response:
    return Response(403, f"refused: {why}\n".encode("ascii"))


def _address(text: str) -> _Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _network(item: str) -> _Network:
    try:
        network = ip_network(item.strip())
    except ValueError as error:
        raise ConfigError(
            f"admin-from: {item!r} is no network: {error}",
            hint="write it as 10.0.0.0/8, fd00::/8 or 10.0.0.9",
        ) from None
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        mapped = network.network_address.ipv4_mapped
        assert mapped is not None
        return IPv4Network((mapped, network.prefixlen - _MAPPED.prefixlen))
    return network


def _host_name(host: str) -> str:
    """Name or address of a Host header in lower case, without port and brackets; "" when it is malformed."""
    if not host.isascii():
        return ""
    if _address(host) is not None:  # IPv6 without brackets has colons, but no port
        return host.lower()
    if host.startswith("["):
        name, bracket, rest = host[1:].partition("]")
        if not bracket or rest[:1] not in ("", ":") or not _is_ipv6(name):
            return ""
        port = rest[1:]
    else:
        name, _, port = host.partition(":")
    if port and not port.isdigit():
        return ""
    return name.lower().removesuffix(".")


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True

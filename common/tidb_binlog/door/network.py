"""Network: what one peer has of addresses. Of IPv4 one; of IPv6 a /64, all of which a host may use.

Tests  tests/common/door/test_limits_budget.py
"""

from __future__ import annotations

import socket
from typing import Final

_MAPPED: Final = bytes(10) + b"\xff\xff"  # IPv4 in IPv6
_LINK_LOCAL: Final = b"\xfe\x80"  # the /64 of a whole link


def network_of(address: str) -> str:
    """The name under which limits per address count it; `address` as the system gives it, without port."""
    if ":" not in address:
        return address
    try:
        packed = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])
    except OSError:
        return address
    if packed[:12] == _MAPPED:
        return socket.inet_ntop(socket.AF_INET, packed[12:])
    if packed[:2] == _LINK_LOCAL or packed == bytes(15) + b"\1":
        return address
    return socket.inet_ntop(socket.AF_INET6, packed[:8] + bytes(8)) + "/64"

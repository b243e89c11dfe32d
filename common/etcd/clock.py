"""The clocks of etcd's hosts, as the `Date` of a reply over HTTP tells them: whole seconds.

etcd answers plain HTTP on the port where clients call it. A member whose port takes gRPC alone tells nothing.
"""

from __future__ import annotations

import asyncio
import email.utils
from typing import Any, Final

from common.net.port import split_address
from common.net.tls import TlsConfig

_REQUEST: Final = "GET /version HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
_HEAD_BYTES_MAX: Final = 1 << 14


async def ask(address: str, tls: TlsConfig | None, timeout_s: float) -> float | None:
    """Seconds since 1970 at host:port, cut to whole ones; None if that is not to be had in time."""
    host, port = split_address("address", address)
    try:
        async with asyncio.timeout(timeout_s):
            options: dict[str, Any] = {}
            if tls:
                options = {"ssl": tls.client_context(), "server_hostname": host}
            reader, writer = await asyncio.open_connection(host, port, limit=_HEAD_BYTES_MAX, **options)
            try:
                writer.write(_REQUEST.format(address=address).encode())
                head = await reader.readuntil(b"\r\n\r\n")
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError, UnicodeError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None
    return _date_s(head.decode("latin-1"))


def _date_s(head: str) -> float | None:
    for line in head.split("\r\n")[1:]:
        name, _, value = line.partition(":")
        if name.strip().lower() == "date":
            try:
                return email.utils.parsedate_to_datetime(value.strip()).timestamp()
            except (ValueError, TypeError, OverflowError):
                return None
    return None

"""HTTP client: one request with one deadline for all of it, however slowly the other side sends.

Out    `Page`, with the time of its `Date`; `Unavailable` in one line that says how far it came
Never  follows a redirect, uses a proxy of the environment, reads more than its limit
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import http.client
import io
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from tidb_binlog.clock import Clock
from tidb_binlog.errors import ConfigError, Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net.abandonable_thread import in_abandonable_thread
from tidb_binlog.net.port import split_address
from tidb_binlog.net.tls import TlsConfig

BYTES_MAX: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Page:
    """`began_s` and `ended_s`: our wall clock; `date_s`: theirs, cut to whole seconds, None without one."""

    status: int
    body: bytes
    began_s: float
    ended_s: float
    date_s: float | None


class SystemAuthorities:
    """TLS with servers that the authorities of this host vouch for."""

    def client_context(self) -> ssl.SSLContext:
        return ssl.create_default_context()


class HttpClient:
    """Requests over one TLS configuration, or in clear."""

    def __init__(
        self,
        clock: Clock,
        tls: TlsConfig | SystemAuthorities | None,
        timeout_s: float,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._clock = clock
        self._tls = tls
        self._timeout_s = timeout_s
        self._bytes_max = bytes_max

    @property
    def scheme(self) -> str:
        return "https" if self._tls else "http"

    async def resolve(self, host: str, port: int = 0) -> tuple[str, ...]:
        """Addresses of a host. Raises `Unavailable`."""
        try:
            infos = await in_abandonable_thread(
                socket.getaddrinfo, host, port, 0, socket.SOCK_STREAM, timeout_s=self._timeout_s
            )
        except UnicodeError:  # of the codec for names of other alphabets
            raise Unavailable(f"{host} is no name of a host") from None
        except OSError as error:  # a timeout too
            why = error.strerror or "takes too long"
            raise Unavailable(f"the name {host} cannot be resolved here: {why}") from None
        return tuple(dict.fromkeys(str(info[4][0]) for info in infos))

    async def is_here(self, host: str) -> bool | None:
        """Whether an address of the host is one of this machine; None if its name is not known."""
        try:
            return any(map(_is_own, await self.resolve(host)))
        except Unavailable:
            return None

    async def connects(self, address: str) -> None:
        """Whether a server listens. Raises `Unavailable`."""
        host, port = _split(address)
        addresses = await self.resolve(host, port)
        try:
            async with asyncio.timeout(self._timeout_s):
                _, writer = await _open(addresses, port)
        except OSError as error:
            raise Unavailable(_why_not(error, self._timeout_s)) from None
        writer.transport.abort()

    async def get(self, address: str, path: str, *, body: bytes | None = None) -> Page:
        """GET (with a body: POST) at host:port. Raises `Unavailable`."""
        try:
            return await self.ask("GET" if body is None else "POST", address, path, body)
        except ConfigError as error:
            raise Unavailable(str(error)) from None

    async def ask(
        self,
        method: str,
        address: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Page:
        """One request at host:port. Raises `Unavailable`; `ConfigError` for TLS files."""
        host, port = _split(address)
        tls: dict[str, Any] = {}
        if self._tls:
            tls = {"ssl": self._tls.client_context(), "server_hostname": host}
        began_s = self._clock.wall_s()
        addresses = await self.resolve(host, port)
        try:
            async with asyncio.timeout(self._timeout_s):
                data = await _exchange(
                    addresses,
                    port,
                    tls,
                    _request(method, address, path, body, headers or {}),
                    self._bytes_max,
                )
        except ssl.SSLError as error:
            raise Unavailable(f"TLS with {address} fails: {_tls_words(error)}") from None
        except ConnectionResetError:
            raise Unavailable(f"{address} breaks the connection off") from None
        except OSError as error:
            raise Unavailable(_why_not(error, self._timeout_s)) from None
        if len(data) > self._bytes_max:
            raise Unavailable(f"{address} answers more than {self._bytes_max >> 20} MiB")
        return _page(address, data, began_s, self._clock.wall_s())


async def _open(
    addresses: Sequence[str], port: int, **tls: Any
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """To the first address that takes it: a name may have one that no server listens at."""
    for address in addresses[:-1]:
        with contextlib.suppress(ConnectionError):
            return await asyncio.open_connection(address, port, **tls)
    return await asyncio.open_connection(addresses[-1], port, **tls)


async def _exchange(
    addresses: Sequence[str], port: int, tls: dict[str, Any], request: bytes, bytes_max: int
) -> bytes:
    reader, writer = await _open(addresses, port, **tls)
    try:
        writer.write(request)
        data = bytearray()
        while len(data) <= bytes_max and (part := await reader.read(1 << 16)):
            data += part
        return bytes(data)
    finally:
        writer.transport.abort()


def _is_own(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
        return True


def _split(address: str) -> tuple[str, int]:
    try:
        return split_address("address", address)
    except ConfigError as error:
        raise Unavailable(error.message) from None


def _request(method: str, address: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAccept: */*\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{head}\r\n".encode() + (body or b"")


class _Received:
    """What `http.client` wants of a socket: the bytes that came."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def _page(address: str, data: bytes, began_s: float, ended_s: float) -> Page:
    if not data:
        raise Unavailable(
            f"{address} takes a connection and says nothing; does it speak TLS, or the other way round?"
        )
    response = http.client.HTTPResponse(cast(socket.socket, _Received(data)))
    try:
        response.begin()
        body = response.read()
    except (http.client.HTTPException, OSError, ValueError, OverflowError):
        raise Unavailable(f"{address} does not speak HTTP") from None
    return Page(response.status, body, began_s, ended_s, _date_s(response.getheader("Date")))


def _date_s(text: str | None) -> float | None:
    """Seconds since 1970; None for what is no date."""
    try:
        return email.utils.parsedate_to_datetime(text).timestamp() if text else None
    except (ValueError, OverflowError, TypeError, OSError):
        return None


def _why_not(error: BaseException, timeout_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"nothing was heard within {timeout_s:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "the connection is refused: nobody listens there"
    return f"it cannot be reached: {getattr(error, 'strerror', None) or error}"


def _tls_words(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (error.reason or "handshake failed").lower().replace("_", " ")

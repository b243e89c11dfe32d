"""Drainer lag: how far a Drainer is behind, as its `/status` says, for a budget that gives way to it.

Drives  `GET /status` of the drainer that is found each time
Out     seconds; None where nobody answers, or the answer has no lag: a comparison goes on without
Tests   tests/drainer/compare/verify/test_drainer_lag.py
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from drainer.points.snapshot.drainer_hold import status_address
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import BinlogError
from tidb_binlog.foreign_document import UNREADABLE
from tidb_binlog.net.http_client import HttpClient, NotHttp, Page
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.status.codec import read
from tidb_binlog.status.drainer import DrainerDocument

TIMEOUT_S: Final = 2.0


class Lag(Protocol):
    async def seconds(self) -> float | None:
        """How far the Drainer is behind now; None where that is not known."""
        ...


class DrainerLag:
    """`locate` gives the address, host:port, of the drainer that runs now."""

    def __init__(
        self, locate: Callable[[], Awaitable[str]], tls: TlsConfig | None, clock: Clock | None = None
    ) -> None:
        self._locate = locate
        self._client = HttpClient(clock or SystemClock(), tls, TIMEOUT_S)

    async def seconds(self) -> float | None:
        try:
            page = await self._page(await self._locate())
            said = read(json.loads(page.body), DrainerDocument).lag_seconds
        except (BinlogError, *UNREADABLE):
            return None
        return float(said) if isinstance(said, int | float) else None

    async def _page(self, address: str) -> Page:
        try:
            return await self._client.ask("GET", address, "/status")
        except NotHttp:  # its gRPC has a port of its own
            return await self._client.ask("GET", status_address(address), "/status")

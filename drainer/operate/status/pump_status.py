"""Pump status: asks a pump over HTTP what only it knows of the stream: how far it has come with sorting.

Drives  `GET /status` of the pump that holds the stream, a few times a minute while the lag is worth a reason
Out     `PumpProgress`: its watermark, how long binlogs wait to be filed, its oldest open transaction
Never   asks for its own sake: an idle or a current drainer asks no pump. A pump that says nothing of itself
        (a Go pump) or does not answer is not asked again for a while, and nothing is made up for it

Tests  tests/drainer/operate/status/test_document.py
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from drainer.operate.status.lag import OpenTransaction
from tidb_binlog import tso
from tidb_binlog.clock import Clock
from tidb_binlog.errors import Unavailable
from tidb_binlog.foreign_document import UNREADABLE
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net.http_client import HttpClient
from tidb_binlog.net.tls import TlsConfig

PACE_S: Final = 2.0
SILENT_S: Final = 30.0
_TIMEOUT_S: Final = 2.0
_BYTES_MAX: Final = 1 << 20

Fetch = Callable[[str], Awaitable[bytes]]
"""The body of GET /status at an address. Raises `Unavailable`."""


@dataclass(frozen=True, slots=True)
class PumpProgress:
    """What a pump said of itself. `asked_s`: monotonic clock; the rest as in `lag.PumpPlace`."""

    asked_s: float
    published_s: float
    unfiled_s: float
    oldest: OpenTransaction | None

    def published_now_s(self, now_s: float) -> float:
        """The watermark by now: it follows the clock unless an open transaction holds it."""
        return self.published_s + (0.0 if self.oldest is not None else max(0.0, now_s - self.asked_s))


def read_status(body: bytes, asked_s: float) -> PumpProgress | None:
    """The answer of a pump of ours; None for any other."""
    try:
        pump: dict[str, Any] = json.loads(body)["pump"]
        oldest = None
        if pump["oldest"]:
            first = pump["oldest"][0]
            about = [f"table {first['table_id']}"] if first.get("table_id") else []
            about += [str(first[key]) for key in ("ddl_query", "upstream") if first.get(key)]
            oldest = OpenTransaction(int(first["start_ts"]), float(first["age_s"]), "; ".join(about))
        return PumpProgress(
            asked_s,
            tso.physical_s(int(pump["watermark"])),
            float(pump["stages"]["indexed"]["lag_s"]),
            oldest,
        )
    except UNREADABLE:
        return None


class PumpStatusReader:
    """Progress of pumps by node id, as old as `PACE_S` at most while they are asked for."""

    def __init__(self, clock: Clock, tls: TlsConfig | None = None, fetch: Fetch | None = None) -> None:
        self._clock = clock
        self._http = HttpClient(clock, tls, _TIMEOUT_S, _BYTES_MAX)
        self._fetch = fetch or self._get
        self._progress: dict[str, PumpProgress] = {}
        self._silent: dict[str, float] = {}

    def progress(self, node_id: str) -> PumpProgress | None:
        """What a pump said last; None if there is none, or it is too old to be true."""
        progress = self._progress.get(node_id)
        fresh = progress is not None and self._clock.monotonic_s() - progress.asked_s <= 3 * PACE_S
        return progress if fresh else None

    async def ask(self, node_id: str, address: str) -> None:
        """Ask now, unless that was done just before or brought nothing not long ago."""
        now_s = self._clock.monotonic_s()
        progress = self._progress.get(node_id)
        if progress is not None and now_s - progress.asked_s < PACE_S:
            return
        if now_s - self._silent.get(node_id, -SILENT_S) < SILENT_S:
            return
        try:
            status = read_status(await self._fetch(address), now_s)
        except Unavailable:
            status = None
        if status is None:
            self._silent[node_id] = now_s
            return
        self._progress[node_id] = status

    async def _get(self, address: str) -> bytes:
        return (await self._http.get(address, "/status")).body

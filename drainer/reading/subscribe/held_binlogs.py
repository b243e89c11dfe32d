"""Held binlogs: from where on pumps have everything, so that a stream can begin there.

Drives  one question (`/status`) to each pump of the registry, all at once
Why     a pump that was asked for what it purged says so when it is pulled; a program wants to know at once,
        and where it could begin. A pump that has left took its binlogs along: nothing at or below its last
        timestamp can be read completely any more
Never   takes a pump that does not answer for one that has everything: `unknown` names it
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from tidb_binlog.clock import SystemClock
from tidb_binlog.cluster import node
from tidb_binlog.cluster.registry import ClusterView
from tidb_binlog.errors import Unavailable
from tidb_binlog.net.http_client import HttpClient
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.status import codec
from tidb_binlog.status.pump import PumpDocument

ANSWER_S: Final = 3.0

Ask = Callable[[str], Awaitable[int]]
"""(address) -> up to where that pump has purged. Raises `Unavailable`."""


@dataclass(frozen=True, slots=True)
class Held:
    """`lowest`: a stream that begins after it misses nothing. `because`: whose doing that is."""

    lowest: int
    because: str
    unknown: tuple[str, ...]


async def held(view: ClusterView, ask: Ask) -> Held:
    """What the pumps of the registry have."""
    staying = {name: entry for name, entry in view.pumps.items() if entry.status.state != node.OFFLINE}
    answers = await asyncio.gather(*(_answer(ask, entry.status.host) for entry in staying.values()))
    found = [
        (purged, f"pump {name} has purged what is older")
        for name, purged in zip(staying, answers, strict=True)
        if purged is not None
    ]
    found += [
        (entry.status.max_commit_ts, f"pump {name} has left the cluster with what is older")
        for name, entry in view.pumps.items()
        if name not in staying
    ]
    lowest, because = max(found, default=(0, ""))
    unknown = tuple(name for name, purged in zip(staying, answers, strict=True) if purged is None)
    return Held(lowest, because if lowest else "", unknown)


async def _answer(ask: Ask, address: str) -> int | None:
    try:
        return await ask(address)
    except Unavailable:
        return None


def asks_pumps(tls: TlsConfig | None) -> Ask:
    """Over HTTP, on the port on which they serve binlogs."""
    client = HttpClient(SystemClock(), tls, ANSWER_S)

    async def ask(address: str) -> int:
        page = await client.get(address, "/status")
        try:
            pump = codec.read(json.loads(page.body), PumpDocument).pump
        except ValueError:
            pump = None
        purged = pump.gc_ts if pump is not None else None
        if purged is None:  # a Go pump does not say it; it refuses a pull below
            raise Unavailable(f"{address} does not say up to where it has purged")
        return purged

    return ask

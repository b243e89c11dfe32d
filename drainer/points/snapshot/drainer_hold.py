"""Hold of a Drainer, over HTTP: its stream stands still at a timestamp of the answer, or goes on to one.

Drives  `PUT /apply/hold` and `/apply/release` of the drainer that is found for each hold: after a take-over
        the new one is asked
Errors  `Unavailable` for what passes by itself: no drainer runs, it is busy, another one holds it, it has
        just ended. `Rejected` for what does not: it takes no orders from here, or knows of no holds
Tests   tests/drainer/points/snapshot/test_downstream_mariadb.py
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, Final

from tidb_binlog.clock import Clock
from tidb_binlog.cluster.registry import Registry
from tidb_binlog.errors import Rejected, Unavailable
from tidb_binlog.foreign_document import UNREADABLE
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net.http_client import HttpClient, Page
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.tso import Ts

_SLACK_S: Final = 2.0
_PASSES: Final = frozenset({409, 502, 503, 504})
_UNKNOWN: Final = frozenset({404, 405})
_NOT_READY: Final = 503


@dataclass(frozen=True, slots=True)
class HeldAt:
    """Downstream is exactly what was committed up to `ts`. `epoch`: the drainer's, as its rows in the
    downstream have it; `waiting`: tables that stand elsewhere, see `is_waiting`."""

    token: str
    ts: Ts
    cluster_id: int
    epoch: int
    waiting: tuple[str, ...]


def is_waiting(waiting: Collection[str], names: Iterable[tuple[str, str]]) -> bool:
    """Rows of one of these tables wait for a decision. `waiting`: names of the upstream in lower case, as
    schema.table, or a schema with all of its tables."""
    return any(name.lower() in waiting for schema, table in names for name in (f"{schema}.{table}", schema))


@dataclass(frozen=True, slots=True)
class LetGo:
    """`valid`: it was held until then; else `why` not."""

    held_ms: float
    valid: bool
    why: str


class DrainerHold:
    """`locate` gives the address, host:port, of the drainer that runs now; raises `Unavailable`. `ask` sends
    a PUT to an address, with a path, within so many seconds."""

    def __init__(
        self,
        locate: Callable[[], Awaitable[str]],
        tls: TlsConfig | None,
        clock: Clock,
        ask: Callable[[str, str, float], Awaitable[Page]] | None = None,
    ) -> None:
        self._locate = locate
        self._tls = tls
        self._clock = clock
        self._ask = ask or self._over_http
        self._address = ""  # of the drainer whose hold it is

    async def arm(self, *, limit_s: float, wait_s: float) -> str:
        """It stands still below every timestamp that is drawn from now on. The hold's token."""
        self._address = await self._locate()
        answer = await self._put(f"hold?arm=1&{_times(limit_s, wait_s)}", wait_s)
        return str(answer["token"])

    async def hold(self, *, limit_s: float, wait_s: float) -> HeldAt:
        self._address = await self._locate()
        return _held(await self._put(f"hold?{_times(limit_s, wait_s)}", wait_s))

    async def go_on(self, token: str, at_ts: Ts, *, wait_s: float) -> HeldAt:
        """To exactly `at_ts`, and held there."""
        asked = f"hold?token={token}&at={at_ts}&wait_ms={wait_s * 1000:.0f}"
        return _held(await self._put(asked, wait_s))

    async def release(self, token: str) -> LetGo:
        answer = await self._put(f"release?token={token}", 0.0)
        return LetGo(float(answer["held_ms"]), bool(answer["valid"]), str(answer["why"]))

    async def _put(self, path: str, wait_s: float) -> dict[str, Any]:
        page = await self._ask(self._address, f"/apply/{path}", wait_s + _SLACK_S)
        return _data(page, f"the drainer at {self._address}")

    async def _over_http(self, address: str, path: str, timeout_s: float) -> Page:
        client = HttpClient(self._clock, self._tls, timeout_s)
        page = await client.ask("PUT", address, path)
        if page.status in _UNKNOWN and (await client.ask("GET", address, "/readyz")).status == _NOT_READY:
            raise Unavailable(
                f"the drainer at {address} is still starting", hint="run the same command again"
            )
        return page


def locate_drainer(nodes: Registry, node_id: str) -> Callable[[], Awaitable[str]]:
    """Where the drainer of a node id is, by the registry."""

    async def locate() -> str:
        entry = (await nodes.view()).drainers.get(node_id)
        if entry is None or entry.alive is False:
            raise Unavailable(
                f"no drainer {node_id} is running, so nothing says where its downstream stands",
                hint="start it; `binlogctl nodes` lists those that run",
            )
        return entry.status.host

    return locate


def _times(limit_s: float, wait_s: float) -> str:
    return f"limit_ms={limit_s * 1000:.0f}&wait_ms={wait_s * 1000:.0f}"


def _data(page: Page, who: str) -> dict[str, Any]:
    """Of an answer; raises what it means."""
    try:
        document = json.loads(page.body)
        said = " ".join(str(document["message"]).split())
    except UNREADABLE:
        document, said = {}, " ".join(page.body[:300].decode("utf-8", "replace").split())
    if page.status == 200 and isinstance(document.get("data"), dict):
        return dict(document["data"])
    if page.status in _PASSES:
        raise Unavailable(f"{who}: {said}", hint="run the same command again")
    if page.status == 403:
        raise Rejected(
            f"{who} takes this from its own host, over mutual TLS and from admin-from only: {said}",
            hint="run this on the drainer's host or with -ssl-ca, or add this host to its admin-from",
        )
    if page.status in _UNKNOWN:
        raise Rejected(
            f"{who} cannot hold its stream still: it is an older release, or a Go drainer",
            hint="replace it with a drainer of this release, which goes on from its checkpoint",
        )
    raise Rejected(f"{who} refused: {said or page.status}")


def _held(answer: dict[str, Any]) -> HeldAt:
    return HeldAt(
        str(answer["token"]),
        int(answer["ts"]),
        int(answer["cluster_id"]),
        int(answer["epoch"]),
        tuple(map(str, answer["waiting"])),
    )

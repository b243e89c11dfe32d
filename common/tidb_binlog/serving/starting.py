"""Starting: what a node does and says before it can work.

Does    waits for peers that are not there yet: nodes of a cluster come up in any order. Says so at once and
        every 30 s, to the log, to `/readyz`, to `/status` and to what supervises the process. All that a
        start asks of others goes through `wait_for`: a peer may leave while it is being asked
Never   waits for what will not come by itself: only `Unavailable` is waited for
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import Clock
from tidb_binlog.door.http.routes import Response, Routes, json_response
from tidb_binlog.errors import Unavailable
from tidb_binlog.observe import log

_LOG_AGAIN_S: Final = 30.0
_PAUSE_FIRST_S: Final = 0.1
_PAUSE_MAX_S: Final = 2.0
_FLAGS: Final = "PD or etcd is at --pd-urls, and --start-wait says how long a start waits for others"

T = TypeVar("T")
_logger = log.get("starting")


class WaitFor(Protocol):
    """`Starting.wait_for`, or a stand-in."""

    async def __call__(self, attempt: Callable[[], Awaitable[T]]) -> T: ...


async def at_once(attempt: Callable[[], Awaitable[T]]) -> T:
    """For who does not wait."""
    return await attempt()


class Starting:
    """One start. `report` is given every new reason to wait."""

    def __init__(self, wait_s: float, clock: Clock, report: Callable[[str], None]) -> None:
        self._clock = clock
        self._report = report
        self._wait_s = wait_s
        self._deadline_s = clock.monotonic_s() + wait_s
        self._logged_s = 0.0
        self.reason = STARTING

    def begin_again(self) -> None:
        """What was started is put together anew: others may be away as long as at the first time."""
        self._deadline_s = self._clock.monotonic_s() + self._wait_s

    def add_status(self, routes: Routes) -> None:
        """`/status` until the node has one of its own: 503, and what is waited for."""

        async def status(_: dict[str, str]) -> Response:
            said = "" if self.reason == STARTING else self.reason
            document = {"State": STARTING, "WaitsFor": said, "ErrMsg": said}
            message = f"{STARTING}: {said}" if said else STARTING
            return json_response({**document, "message": message}, status=503)

        routes.add("GET", "/status", status)

    def waits(self, reason: str) -> None:
        """What the start waits for now; "" when it continues."""
        now_s = self._clock.monotonic_s()
        if not reason:
            if self.reason != STARTING:
                _logger.info("the start continues")
            self.reason = STARTING
            return
        if self.reason == STARTING or now_s - self._logged_s >= _LOG_AGAIN_S:
            _logger.warning("the start " + reason)
            self._logged_s = now_s
        if reason != self.reason:
            self._report(f"starting: {reason}")
        self.reason = reason

    async def wait_for(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Its result, as soon as there is one. Raises `Unavailable` when the start has waited long enough."""
        backoff = Backoff(_PAUSE_FIRST_S, _PAUSE_MAX_S)
        while True:
            try:
                result = await attempt()
            except Unavailable as error:
                left_s = self._deadline_s - self._clock.monotonic_s()
                if left_s <= 0:
                    hint = f"{error.hint}; {_FLAGS}".removeprefix("; ")
                    raise Unavailable(error.message, hint=hint) from None
                self.waits(f"waits: {error.message}")
                await asyncio.sleep(min(backoff.next_s(), left_s))
                continue
            self.waits("")
            return result


# Health: the two questions of what supervises a node. GET /healthz   200 as long as the process answers at
# all GET /readyz    200 when the node does its work, else 503 with the reason

STARTING = "starting"


def add_health(routes: Routes, unready: Callable[[], str]) -> None:
    """`unready` gives the reason why this node does not do its work; "" if it does."""

    async def healthz(_: dict[str, str]) -> Response:
        return Response(200, b"ok\n")

    async def readyz(_: dict[str, str]) -> Response:
        reason = unready()
        return Response(503, f"{reason}\n".encode()) if reason else Response(200, b"ok\n")

    routes.add("GET", "/healthz", healthz)
    routes.add("GET", "/readyz", readyz)

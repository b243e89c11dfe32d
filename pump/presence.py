"""Presence: this pump's state, its registry entry, and its way in and out.

Drives  `common.heartbeat`, `notify`, the lifecycle table of `common.node`
Order   in: the entry says online, every living drainer is told, then prewrites are accepted.
        out: prewrites are refused first, the entry follows
Never   lets two processes with one node id run: the lease refuses the second
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from common import node, tso
from common.clock import Clock
from common.errors import Rejected
from common.heartbeat import Heartbeat
from common.node import NodeStatus
from common.registry import PUMPS, Registry
from common.tls import TlsConfig
from pump.notify import notify_drainers


class Presence:
    """`state` is what admission looks at; the registry entry may be ahead of it while starting."""

    def __init__(
        self,
        registry: Registry,
        node_id: str,
        host: str,
        *,
        watermark: Callable[[], int],
        heartbeat_s: float,
        clock: Clock,
        tls: TlsConfig | None,
    ) -> None:
        self._registry = registry
        self.node_id = node_id
        self._host = host
        self._watermark = watermark
        self._clock = clock
        self._tls = tls
        self._registered_ts = 0
        self._registered_s = 0.0
        self.state = node.OFFLINE
        self._heartbeat = Heartbeat(registry, PUMPS, self.status, heartbeat_s, clock)

    def status(self) -> NodeStatus:
        """The entry as of now; `update_ts` is reckoned from the timestamp drawn at registration."""
        passed_s = int(self._clock.monotonic_s() - self._registered_s)
        update_ts = self._registered_ts + (passed_s * 1000 << tso.LOGICAL_BITS) if self._registered_ts else 0
        return NodeStatus(self.node_id, self._host, self.state, self._watermark(), update_ts)

    async def enter(self, now_ts: int) -> None:
        """Register, tell the drainers, accept prewrites.

        A pump that was here before is known to the drainers already; then one that cannot be told is only
        logged. Raises `Conflict`, `Unavailable`, `DrainerNotNotified`.
        """
        self._registered_ts, self._registered_s = now_ts, self._clock.monotonic_s()
        earlier = await self._heartbeat.register(node.ONLINE)
        is_new = earlier is None or earlier.state == node.OFFLINE
        # A drainer that does not answer takes longer than the lease lasts.
        beating = asyncio.get_running_loop().create_task(self._heartbeat.run(), name="first beats")
        try:
            await notify_drainers(await self._registry.view(), tls=self._tls, required=is_new)
        except BaseException:
            await self._heartbeat.leave(node.OFFLINE)
            raise
        finally:
            beating.cancel()
            await asyncio.wait({beating})
        self.state = node.ONLINE

    async def run(self) -> None:
        """Beat until cancelled."""
        await self._heartbeat.run()

    async def begin_leaving(self, event: str) -> None:
        """`pause` or `close`: refuse prewrites from now on and say so. Raises `Rejected` in a wrong state."""
        target = node.LIFECYCLE.get((self.state, event))
        if target is None:
            raise Rejected(f"this pump's state is {self.state}, apply {event} failed!")
        self.state = target
        await self._heartbeat.change_state(target)

    async def leave(self) -> None:
        """The last entry: paused, or offline if it was closing."""
        self.state = node.LIFECYCLE.get((self.state, "stop"), self.state)
        await self._heartbeat.leave(self.state)

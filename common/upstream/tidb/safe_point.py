"""Service safe point: what PD keeps from being collected because somebody still reads it."""

from __future__ import annotations

from common.upstream.tidb.pd import PdClient


class ServiceSafePoint:
    """GarbageHold of a real cluster. A hold that comes too late is not stored by PD."""

    def __init__(self, pd: PdClient) -> None:
        self._pd = pd

    async def hold(self, name: str, ts: int, ttl_s: int) -> int:
        """See `GarbageHold`."""
        return await self._pd.update_safe_point(name, ttl_s, ts)

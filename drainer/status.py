"""Status: one document that says where this Drainer is and what it waits for."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from common import tso
from common.clock import Clock
from drainer.applier import Applier
from drainer.collector import Collector
from drainer.server import NodeState

PACE_S: Final = 1.0


class Status:
    """Reads the rooms when asked; `run` only notes since when nothing has changed."""

    def __init__(
        self, applier: Applier, collector: Collector, state: NodeState, clock: Clock, synced_after_s: float
    ) -> None:
        self._applier = applier
        self._collector = collector
        self._state = state
        self._clock = clock
        self._synced_after_s = synced_after_s
        self._seen = 0
        self._changed_s = clock.monotonic_s()

    @property
    def stored_ts(self) -> int:
        return self._applier.stored_ts

    async def run(self) -> None:
        """Note when the last transaction was seen."""
        while True:
            await asyncio.sleep(PACE_S)
            if self._applier.transactions != self._seen:
                self._seen = self._applier.transactions
                self._changed_s = self._clock.monotonic_s()

    def document(self) -> dict[str, Any]:
        """The Go drainer's keys first, then ours."""
        applier = self._applier
        idle_s = self._clock.monotonic_s() - self._changed_s
        return {
            "PumpPos": self._collector.positions(),
            "Synced": idle_s >= self._synced_after_s,
            "LastTS": applier.stored_ts,
            "TsMap": "",
            "AppliedTS": applier.resolved_ts,
            "LagSeconds": round(max(0.0, tso.age_s(applier.resolved_ts, self._clock.wall_s())), 3),
            "NodeID": self._state.node_id,
            "State": self._state.state,
            "Doing": applier.doing,
            "WaitsFor": self._collector.waits_for,
            "Transactions": applier.transactions,
            "Rows": applier.rows,
            "Lanes": applier.lane_states(),
            "Pumps": self._collector.states(),
        }

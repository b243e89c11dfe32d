"""Sends a recorded scenario to real Pumps, as the database did: same payloads, a possible order of arrival.

Drives  raw `WriteBinlog` calls, one Pump per recording; the standalone upstream's history, outcomes and clock
Owns    the calls in flight
Stops   when everything is acknowledged and the clock stands at the largest recorded timestamp
Never   sends the end of a transaction before every earlier prewrite of that Pump is acknowledged (a commit
        timestamp tells a Pump that each prewrite that comes later commits later), or moves the clock past a
        record that is not
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from common import rpc
from common.binlog import COMMIT, PREWRITE
from common.errors import BinlogError, Rejected, Unavailable
from common.upstream import Committed, RolledBack
from common.upstream.standalone import StandaloneUpstream
from common.wire import pump_pb2
from deploy.playground.arrival import AckedPrefix, Arrival, arrival_order
from deploy.playground.scenario import Scenario

WRITE_PATH: Final = "/binlog.Pump/WriteBinlog"
WRITE_TIMEOUT_S: Final = 10.0
RETRY_S: Final = 0.1
GIVE_UP_S: Final = 60.0
IN_FLIGHT_MAX: Final = 64


class Replay:
    """One scenario on its way. `sent` of `total` records are acknowledged."""

    def __init__(self, scenario: Scenario, upstream: StandaloneUpstream, addresses: Sequence[str]) -> None:
        assert len(addresses) >= len(scenario.files)
        self._scenario = scenario
        self._upstream = upstream
        self._clients = [rpc.Client(address) for address in addresses[: len(scenario.files)]]
        self._order = arrival_order(scenario.files)
        self._acked = AckedPrefix(self._order)
        self._outcomes = _outcomes(scenario)
        # Prewrites on their way, by Pump: what ends a transaction waits for those sent before it.
        self._prewrites: list[set[asyncio.Event]] = [set() for _ in scenario.files]
        self._progressed = asyncio.Event()
        self.gate = asyncio.Event()
        """While it is clear no further record is sent; those in flight go on."""
        self.gate.set()
        self.total = len(self._order)
        self.sent = 0

    @staticmethod
    async def prepare(scenario: Scenario, upstream: StandaloneUpstream) -> None:
        """Before the Pumps start: the DDL history, and a clock that stands before the first record."""
        await upstream.oracle.pin(max(1, scenario.first_ts - 1))
        for _, raw in scenario.jobs:
            await upstream.history.add(raw)

    async def run(self) -> None:
        """Send everything. Raises `Rejected` or `Unavailable` for a payload that a Pump does not take."""
        slots = asyncio.Semaphore(IN_FLIGHT_MAX)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._move_clock())
            for position, arrival in enumerate(self._order):
                await slots.acquire()
                await self.gate.wait()
                group.create_task(self._deliver(position, arrival, self._begin(arrival), slots))

    def _begin(self, arrival: Arrival) -> list[asyncio.Event]:
        """For a prewrite its own mark of being on the way; for an end those of the prewrites before it."""
        under_way = self._prewrites[arrival.pump]
        if arrival.record.tp != PREWRITE:
            return list(under_way)
        mark = asyncio.Event()
        under_way.add(mark)
        return [mark]

    async def close(self) -> None:
        for client in self._clients:
            await client.close()

    async def _deliver(
        self, position: int, arrival: Arrival, marks: list[asyncio.Event], slots: asyncio.Semaphore
    ) -> None:
        record = arrival.record
        try:
            if record.tp == PREWRITE:
                # A Pump may ask at any time from now on; what it gets told must be what happened.
                outcome = self._outcomes.get(record.start_ts)
                if outcome is not None:
                    await self._upstream.transactions.record(record.start_ts, outcome)
                await self._write(arrival)
                (mark,) = marks
                mark.set()
                self._prewrites[arrival.pump].discard(mark)
            else:
                for mark in marks:
                    await mark.wait()
                await self._write(arrival)
        finally:
            slots.release()
        self.sent += 1
        self._acked.ack(position)
        self._progressed.set()

    async def _write(self, arrival: Arrival) -> None:
        """Until the Pump has it: a killed one gets the same payload again; a duplicate does no harm."""
        request = pump_pb2.WriteBinlogReq(
            clusterID=self._scenario.cluster_id, payload=arrival.record.payload
        ).SerializeToString()
        client = self._clients[arrival.pump]
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + GIVE_UP_S
        while True:
            try:
                reply = pump_pb2.WriteBinlogResp.FromString(
                    await client.unary(WRITE_PATH, request, WRITE_TIMEOUT_S)
                )
                if not reply.errmsg:
                    return
                error: BinlogError = Rejected(f"Pump {client.address} refuses a payload: {reply.errmsg}")
            except (Unavailable, rpc.RpcStatus) as failure:
                error = failure
            if loop.time() > give_up_s:
                raise error
            await asyncio.sleep(RETRY_S)

    async def _move_clock(self) -> None:
        """Let the clock follow the acknowledged beginning."""
        shown = 0
        while True:
            complete = self._acked.complete
            if self._acked.clock_ts > shown:
                shown = self._acked.clock_ts
                await self._upstream.oracle.pin(shown)
            if complete:
                break
            await self._progressed.wait()
            self._progressed.clear()
        # Commits that only the upstream knows of may be later than any record.
        await self._upstream.oracle.pin(max(shown, self._scenario.last_commit_ts))


def _outcomes(scenario: Scenario) -> dict[int, Committed | RolledBack]:
    """What became of every transaction, from the recorded ends and the outcomes of those without."""
    found: dict[int, Committed | RolledBack] = {}
    for records in scenario.files:
        for record in records:
            if record.tp != PREWRITE:
                committed = record.tp == COMMIT
                found[record.start_ts] = Committed(record.commit_ts) if committed else RolledBack()
    for start_ts, commit_ts in scenario.outcomes.items():
        found[start_ts] = RolledBack() if commit_ts is None else Committed(commit_ts)
    return found

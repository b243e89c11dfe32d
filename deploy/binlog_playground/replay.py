"""Replay: sends a recorded scenario to real Pumps, as the database did: in a possible order of arrival.

Drives  raw `WriteBinlog` calls, one Pump per recording; the standalone upstream's history, outcomes and clock
Owns    the calls in flight
Stops   when everything is acknowledged and the clock stands at the largest recorded timestamp
Never   sends the end of a transaction before every earlier prewrite is acknowledged, whichever Pump has it (a
        commit timestamp tells all Pumps that each prewrite that comes later commits later), tells an outcome
        before that time, or moves the clock past a record that is not acknowledged
Tests   tests/deploy/binlog_playground/test_scenario.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from binlog_playground.arrival import AckedPrefix, Arrival, arrival_order
from binlog_playground.scenario import Scenario
from tidb_binlog import rpc, tso
from tidb_binlog.binlog import COMMIT, PREWRITE
from tidb_binlog.errors import BinlogError, Rejected, Unavailable
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.standalone import StandaloneUpstream
from tidb_binlog.upstream_port import Committed, RolledBack
from tidb_binlog.wire import pump_pb2

WRITE_PATH: Final = "/binlog.Pump/WriteBinlog"
WRITE_TIMEOUT_S: Final = 10.0
RETRY_S: Final = 0.1
GIVE_UP_S: Final = 60.0
IN_FLIGHT_MAX: Final = 64
HELD_S: Final = 3600.0
LEASE_MS: Final = 3000


class Replay:
    """One scenario on its way. `sent` of `total` records are acknowledged."""

    def __init__(self, scenario: Scenario, upstream: StandaloneUpstream, addresses: Sequence[str]) -> None:
        assert len(addresses) >= len(scenario.files)
        self._scenario = scenario
        self._upstream = upstream
        self._clients = [rpc.Client(address) for address in addresses[: len(scenario.files)]]
        self._order = arrival_order(scenario.files)
        self._acked = AckedPrefix(self._order)  # how far the clock may be
        self._untold = untold_outcomes(scenario)  # by the clock value from which each is known; told ones go
        # Prewrites on their way: what ends a transaction waits for those sent before it.
        self._prewrites: set[asyncio.Event] = set()
        self._progressed = asyncio.Event()  # set by every acknowledgement
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
        if arrival.record.tp != PREWRITE:
            return list(self._prewrites)
        mark = asyncio.Event()
        self._prewrites.add(mark)
        return [mark]

    async def close(self) -> None:
        """End the connections."""
        for client in self._clients:
            await client.close()

    async def _deliver(
        self, position: int, arrival: Arrival, marks: list[asyncio.Event], slots: asyncio.Semaphore
    ) -> None:
        record = arrival.record
        try:
            if record.tp == PREWRITE:
                # A Pump may ask from now on: the transaction is open until its end comes.
                await self._upstream.transactions.hold(record.start_ts, HELD_S)
                await self._write(arrival)
                (mark,) = marks
                mark.set()
                self._prewrites.discard(mark)
            else:
                for mark in marks:
                    await mark.wait()
                if record.tp == COMMIT:
                    await self._upstream.transactions.record(record.start_ts, Committed(record.commit_ts))
                else:
                    await self._upstream.transactions.record(record.start_ts, RolledBack())
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
        """Let the clock follow the acknowledged beginning, and tell the outcomes that are then known."""
        shown = 0
        while True:
            complete = self._acked.complete
            if self._acked.clock_ts > shown:
                shown = self._acked.clock_ts
                await self._upstream.oracle.pin(shown)
                await self._tell_outcomes(shown)
            if complete:
                break
            await self._progressed.wait()
            self._progressed.clear()
        # Commits that only the upstream knows of may be later than any record.
        await self._upstream.oracle.pin(max(shown, self._scenario.last_commit_ts))
        await self._tell_outcomes(tso.TS_MAX)

    async def _tell_outcomes(self, clock_ts: Ts) -> None:
        """Record what became of transactions without a recorded end, as far as the clock has come."""
        while self._untold and self._untold[0][0] <= clock_ts:
            _, start_ts, outcome = self._untold.pop(0)
            await self._upstream.transactions.record(start_ts, outcome)


def untold_outcomes(scenario: Scenario) -> list[tuple[int, int, Committed | RolledBack]]:
    """(clock value from which it is known, start_ts, outcome) of transactions without a recorded end, sorted.

    A commit is known from its commit timestamp on, a rollback when its lease would have run out.
    """
    outcomes: list[tuple[int, int, Committed | RolledBack]] = []
    for start_ts, commit_ts in scenario.outcomes.items():
        if commit_ts is None:
            outcomes.append((start_ts + tso.compose(LEASE_MS), start_ts, RolledBack()))
        else:
            outcomes.append((commit_ts, start_ts, Committed(commit_ts)))
    return sorted(outcomes, key=lambda item: item[:2])

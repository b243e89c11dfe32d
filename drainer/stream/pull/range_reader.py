"""Range reader: what the Pumps of a cluster have between two timestamps, merged, for a thread that blocks.

Drives   a collector over the Pumps that were there when the range was planned
Holds    as the collector: each transaction once, in order, none missing. Pumps of before and Go Pumps, which
         do not know where a range ends, are read until they have passed it
Never    follows the registry: who planned the range knows that no Pump is missing, and plans it anew when one
         does not answer (`Unavailable`, after `SILENCE_S` without a word)
Tests    tests/drainer/stream/pull/test_range_reader.py
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import tempfile
from collections.abc import AsyncIterator, Generator, Mapping
from typing import Final

from drainer.stream.pull.collector import Collector
from drainer.stream.pull.merged import Merged, MergedBatch
from drainer.stream.pull.pump_source import PullChoice
from drainer.stream.pull.spill import SpillDirectory
from tidb_binlog import rpc
from tidb_binlog.clock import SystemClock
from tidb_binlog.cluster.registry import ClusterView, NodeEntry
from tidb_binlog.errors import Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.tso import Ts

QUEUE_BYTES: Final = 16 << 20
SILENCE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class PumpSet:
    """The Pumps of a cluster, by node id, as the registry had them at one moment; travels to tasks."""

    cluster_id: int
    pumps: Mapping[str, NodeEntry]
    tls: TlsConfig | None = None


class _FixedRegistry:
    def __init__(self, pumps: PumpSet) -> None:
        self._view = ClusterView(0, pumps.pumps, {})

    async def view(self) -> ClusterView:
        return self._view

    async def watch(self) -> AsyncIterator[ClusterView]:
        yield self._view
        await asyncio.Event().wait()


class _Reading:
    """A collector that runs while its next batch is waited for. Made on the loop."""

    def __init__(self, pumps: PumpSet, after_ts: Ts, choice: PullChoice, directory: str) -> None:
        self._collector = Collector(
            _FixedRegistry(pumps),
            None,
            cluster_id=pumps.cluster_id,
            after_ts=after_ts,
            clock=SystemClock(),
            queue_bytes_max=QUEUE_BYTES,
            spill=SpillDirectory(directory),
            connect=functools.partial(rpc.Client, tls=pumps.tls),
            choice=choice,
        )
        self._running = asyncio.create_task(self._collector.run())

    async def next(self) -> MergedBatch | None:
        """The next batch. Raises what ended the collector, `Unavailable` when it waits too long."""
        try:
            async with asyncio.timeout(SILENCE_S):
                batch = await self._collector.next_batch()
        except TimeoutError:
            raise Unavailable(
                f"the range waits for {self._collector.waits_for or 'its end'}",
                hint="`binlogctl -cmd pumps` shows the state of each Pump",
            ) from None
        if batch is None:
            await self._running
        return batch

    async def close(self) -> None:
        """End it."""
        self._running.cancel()
        await asyncio.wait({self._running})
        with contextlib.suppress(asyncio.CancelledError):
            self._running.exception()


async def _open(pumps: PumpSet, after_ts: Ts, choice: PullChoice, directory: str) -> _Reading:
    return _Reading(pumps, after_ts, choice, directory)


def merged_range(
    pumps: PumpSet, after_ts: Ts, until_ts: Ts, table_ids: tuple[int, ...] = ()
) -> Generator[Merged, None, None]:
    """Everything with `after_ts` < commit_ts <= `until_ts`, without the jobs of DDL. Where `table_ids` are
    given, Pumps may leave out other tables' transactions. What lies on disk is to be read before the next
    entry is asked for. Raises `Corruption`, `Unavailable`."""
    if after_ts >= until_ts:
        return
    choice = PullChoice(until_ts, table_ids)
    with asyncio.Runner() as runner, tempfile.TemporaryDirectory(prefix="binlog-range-") as directory:
        # Not by `runner.run`: it takes the signal handler anew each time, which prints the whole batch.
        run = runner.get_loop().run_until_complete
        reading = run(_open(pumps, after_ts, choice, directory))
        try:
            while (batch := run(reading.next())) is not None:
                for entry in batch.entries:
                    if entry.commit_ts > until_ts:
                        return
                    yield entry
                    if entry.spilled is not None:
                        entry.spilled.release()
                if batch.watermark >= until_ts:
                    return
        finally:
            run(reading.close())

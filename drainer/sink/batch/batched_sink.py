"""Batched sink: the port to a downstream (`drainer.sink`), kept by a batch sink of somebody's.

Owns    how far the stream is, what of it is written, the savepoint
Order   one batch is written at a time, the next one gathers meanwhile; then the savepoint follows
Holds   a sink that stores its position is asked for it, and the savepoint is a copy; one that stores none
        begins at the savepoint, and may be given again what it wrote last
Stops   what was given is written, the position is stored; a sink that fails or hangs then keeps what it has,
        and the next start brings the rest

Tests  tests/drainer/sink/batch/test_batched_sink.py, tests/contract/test_batch_sink.py
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final

from drainer import metrics
from drainer.checkpoint.fencing import WentBack
from drainer.checkpoint.savepoint import Savepoint
from drainer.ddl.policy import Policy
from drainer.ddl.rules import APPLY, REWRITE, STOP, Rule
from drainer.points.rows.snapshot_position import SnapshotPosition
from drainer.sink import Sink
from drainer.sink.background import Background
from drainer.sink.batch.batching import Batch, Batching
from drainer.sink.batch.protocol import BATCH_BYTES, BATCH_ROWS
from drainer.sink.batch.sink_writer import GaveUp, SinkWriter
from drainer.sink.ddl_text import stopped
from drainer.sink.savepoint_keeper import SavepointKeeper
from drainer.txn import Ddl, LargeTransaction, Transaction
from tidb_binlog.clock import Clock
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("drainer.batched_sink")

WAITING_BYTES_MAX: Final = 16 << 20
POSITION_S: Final = 1.0
"""A sink that stores its position, and has nothing to write, is told of another one at that pace."""


class BatchedSink(Sink):
    """`stores_position`: `start_ts` is what the sink's own store says."""

    verb = "writing"
    reads_large = True
    rebuilt_after = (WentBack,)
    start_ts = 0

    def __init__(
        self,
        writer: SinkWriter,
        start_ts: Ts,
        schema_version: int,
        savepoint: Savepoint,
        policy: Policy,
        clock: Clock,
        *,
        stores_position: bool,
        waiting_bytes_max: int = 0,
        position_s: float = POSITION_S,
    ) -> None:
        self.background = Background()
        self._writer = writer
        self._savepoint = SavepointKeeper(savepoint, start_ts, clock)
        self._policy = policy
        self._clock = clock
        self._stores_position = stores_position
        bytes_max = getattr(writer.sink, "batch_bytes", BATCH_BYTES)
        self._waiting_bytes_max = waiting_bytes_max or max(WAITING_BYTES_MAX, 2 * bytes_max)
        self._position_s = position_s
        self._interval_s: float = getattr(writer.sink, "batch_interval_s", 0.0)
        self._batching = Batching(
            start_ts,
            rows_max=getattr(writer.sink, "batch_rows", BATCH_ROWS),
            bytes_max=bytes_max,
        )
        self.start_ts = self._resolved_ts = self._written_ts = start_ts
        self._versions = deque([(start_ts, schema_version)])  # of the schema, from which commit_ts on
        self._position_written_s = self._written_s = clock.monotonic_s()
        self._position_due = self._is_writing = self._stopping = self._gave_up = self._is_whole = False
        self._hurries = False

    # -- where it is -------------------------------------------------------------------------------

    @property
    def stored_ts(self) -> Ts:
        return self._savepoint.stored_ts

    @property
    def resolved_ts(self) -> Ts:
        return self._resolved_ts

    @property
    def handed_over_ts(self) -> Ts:
        return self._batching.given_ts

    @property
    def held_up(self) -> str:
        return self._writer.held_up

    def facts(self) -> dict[str, Any]:
        trouble = self._writer.trouble
        return {
            "Sink": {
                "name": self._writer.name,
                "stores_position": self._stores_position,
                "waiting_bytes": self._batching.size_bytes,
                "writing_s": round(self._writer.busy_s, 1),
                "error": trouble.text if trouble else "",
                "held": bool(trouble and trouble.held),
                "attempts": trouble.attempts if trouble else 0,
            }
        }

    # -- what it is given --------------------------------------------------------------------------

    async def take(self, transaction: Transaction) -> Transaction | None:
        if transaction.commit_ts <= self.start_ts:  # it is there
            return None
        if transaction.tables:
            self._batching.add(transaction)
        else:
            self._batching.reaches(transaction.commit_ts)
        return transaction

    async def take_large(self, large: LargeTransaction) -> None:
        if large.commit_ts <= self.start_ts:
            return
        self._batching.add(large)
        self.background.wake()
        await self.background.until(lambda: self._resolved_ts >= large.commit_ts or self._stopping)

    async def take_snapshot(self, rows: LargeTransaction, *, is_end: bool) -> None:
        position = rows.commit_ts if is_end else self._batching.given_ts
        if self._stores_position:  # how many rows it has tells what it has; that is below any commit_ts
            mark = position if is_end else SnapshotPosition.of(rows.snapshot).rows
            if mark > self._writer.stands_at:
                await self._writer.write(Batch((rows,), mark), self._writer.stands_at)
        else:
            await self._writer.write(Batch((rows,), position), None)
        self._batching.reaches(position)
        self._resolved_ts = self._written_ts = position

    async def take_ddl(self, ddl: Ddl) -> None:
        if ddl.commit_ts > self.start_ts:
            ruling = self._policy.rule(ddl)
            if ruling.action == STOP or (ddl.refused and ruling.action == APPLY):
                raise stopped(ddl, ddl.refused or ruling.reason)
            if ruling.action in (APPLY, REWRITE):
                self._batching.add(_rewritten(ddl, ruling.text))
                metrics.EVENTS.labels("DDL").inc()
            else:
                logger.info("DDL left out", job_id=ddl.job_id, commit_ts=ddl.commit_ts, reason=ruling.reason)
                self._batching.reaches(ddl.commit_ts)
        self._versions.append((ddl.commit_ts, max(self._versions[-1][1], ddl.schema_version)))
        await self.flush()

    def watermark(self, ts: Ts) -> None:
        self._batching.reaches(ts)

    async def flush(self) -> None:
        if self._is_idle:
            self._resolved_ts = self._batching.given_ts
        self.background.wake()

    async def ready(self) -> None:
        await asyncio.sleep(0)
        await self.background.until(
            lambda: self._batching.size_bytes < self._waiting_bytes_max or self._stopping
        )

    def set_ddl_rules(self, rules: Sequence[Rule]) -> None:
        self._policy = Policy(rules)

    def try_again(self) -> None:
        self._writer.try_again()

    async def store_rules(self, rules: str) -> None:
        """Rules are not stored: what is written is not written again."""
        self._hurries = True
        await self.flush()
        await self.background.until(lambda: self._is_idle or self._stopping)
        self._hurries = False
        await self.save()

    # -- beside the stream -------------------------------------------------------------------------

    @property
    def _is_idle(self) -> bool:
        return not self._is_writing and not self._batching

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {"sink": self._write_all()}

    async def _write_all(self) -> None:
        try:
            while True:
                await self.background.until(lambda: bool(self._batching) or self._position_due)
                await self._gathered()
                await self._write(self._batching.next())
                self._written_s = self._clock.monotonic_s()
        except GaveUp:
            self._gave_up = True
            self.background.wake()
        except Exception as error:
            self.background.fail(error)

    async def _gathered(self) -> None:
        """Until the next batch is due."""
        pause_s = self._written_s + self._interval_s - self._clock.monotonic_s()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(pause_s, 0.0)):
                await self.background.until(
                    lambda: pause_s <= 0 or self._hurries or self._position_due or self._batching.is_complete
                )

    async def _write(self, batch: Batch) -> None:
        self._is_writing, self._position_due = True, False
        began_s = self._clock.monotonic_s()
        if batch.items or (self._stores_position and batch.position > self._written_ts):
            await self._writer.write(batch, self._written_ts if self._stores_position else None)
            self._written_ts = batch.position
            self._position_written_s = self._clock.monotonic_s()
            metrics.SINK_WRITE_SECONDS.observe(self._position_written_s - began_s)
        self._resolved_ts = batch.position
        self._is_writing = False  # not of a batch that was given up: it is not there
        if not self._batching:
            self._resolved_ts = self._batching.given_ts
        self.background.wake()

    async def save(self) -> None:
        if self._stores_position and self._is_idle and self._written_ts < self._resolved_ts:
            now_s = self._clock.monotonic_s()
            if now_s - self._position_written_s >= self._position_s:
                self._position_due = True
                self.background.wake()
        await self._save(consistent=False)

    async def _save(self, *, consistent: bool) -> None:
        if self._stores_position and not self._writer.stands_at:  # a copy of nothing yet
            return
        ts = self._written_ts if self._stores_position else self._resolved_ts
        while len(self._versions) > 1 and self._versions[1][0] <= ts:
            self._versions.popleft()
        await self._savepoint.save(ts, self._versions[0][1], consistent=consistent)

    # -- the end -----------------------------------------------------------------------------------

    def stop(self) -> None:
        self._stopping = True
        self._writer.stop()

    async def finish(self, *, broken: bool) -> None:
        if broken:
            return
        self._position_due, self._hurries = self._stores_position, True
        self.background.wake()
        await self.background.until(lambda: (self._is_idle and not self._position_due) or self._gave_up)
        await self._save(consistent=not self._gave_up)
        self._is_whole = not self._gave_up

    async def close(self, *, finished: bool) -> bool:
        await self._writer.end()
        return finished and self._is_whole


def _rewritten(ddl: Ddl, text: str) -> Ddl:
    return replace(ddl, query=text, instead=(text,)) if text else ddl

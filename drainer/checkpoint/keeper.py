"""Keeper: when the checkpoint is stored, what is in it, and what is checked downstream meanwhile.

Owns    that thread; the version of the schema and the end of safe mode that go into the row
Holds   what is stored never falls and never passes uncommitted work. A downstream that is away is waited
        for, without a limit of tries; a call that waits here raises the failure of a lane
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, TypeVar

from drainer import metrics
from drainer.checkpoint.resume import Start
from drainer.checkpoint.store import CheckpointStore
from drainer.checkpoint.value import Checkpoint, Intent
from drainer.mysql.errors import SessionError, StatementRefused, final_error, safe_text
from drainer.mysql.rows.change import Position
from tidb_binlog import tso
from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import Clock
from tidb_binlog.errors import Unavailable
from tidb_binlog.observe import log, trace
from tidb_binlog.tso import Ts

logger = log.get("drainer.checkpoint_keeper")
T = TypeVar("T")

MAP_INTERVAL_S: Final = 60.0


class CheckpointKeeper:
    """`failure` is the future that a failed lane breaks. `always_safe`: the configuration's `safe-mode`.

    `maps`: the downstream is a TiDB, whose position is a timestamp. Comparing tools find in `ts-map` at which
    two timestamps upstream and downstream were equal. The position of a MySQL is an offset in a file of its
    own and would mean nothing to them.
    """

    def __init__(
        self,
        store: CheckpointStore,
        start: Start,
        failure: asyncio.Future[None],
        clock: Clock,
        *,
        always_safe: bool,
        maps: bool = False,
    ) -> None:
        self._maps = maps
        self._map_due_s = 0.0
        self.store = store
        self._failure = failure
        self._clock = clock
        self.safe_mode = start.safe_mode.if_set(always=always_safe)
        self._ts_map = start.checkpoint.ts_map if start.checkpoint else None
        self.schema_version = start.checkpoint.schema_version if start.checkpoint else 0
        self.schema_ts = 0
        """Where `schema_version` is of: the last DDL that the stream brought, 0 for none so far."""
        self.stored_ts = start.floor_ts
        self.highest_ts = max(start.safe_mode.until_ts, *(position.commit_ts for position in start.positions))
        """Up to here rows may have been downstream at the start: of our lanes, or of another program."""
        self.floor: Callable[[], tuple[int, int] | None] = lambda: None
        self._storing = asyncio.Lock()  # what is stored second must be the later one
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")

    def checkpoint(self, commit_ts: Ts, *, consistent: bool = False) -> Checkpoint:
        """What to store where everything at or below `commit_ts` is applied but for what waits.

        `floor` gives the highest (commit_ts, schema version) allowed while something waits.
        """
        reached = commit_ts, self.schema_version
        floor = self.floor()
        if floor is not None:
            reached, consistent = min(reached, floor), False
        return Checkpoint(
            commit_ts=reached[0],
            consistent=consistent,
            schema_version=reached[1],
            epoch=self.store.epoch,
            safe_until=self.safe_mode.until_ts,
            ts_map=self._ts_map,
        )

    async def save(self, resolved_ts: Ts) -> None:
        """Store that everything at or below `resolved_ts` is applied, if that is news."""
        async with self._storing:
            checkpoint = self.checkpoint(resolved_ts)
            if checkpoint.commit_ts > self.stored_ts:
                with trace.span("stores the checkpoint", "checkpoint", commit_ts=checkpoint.commit_ts):
                    await self.call(self.store.save, checkpoint)
                self._note_stored(checkpoint.commit_ts)

    async def begin_ddl(self, intent: Intent) -> None:
        """A DDL is about to run; everything before it is applied."""
        await self._store(functools.partial(self.store.begin_ddl, intent), intent.commit_ts - 1)

    async def end_ddl(self, commit_ts: Ts) -> None:
        """A DDL is done, and every lane stands after it."""
        await self._store(functools.partial(self.store.end_ddl, lanes_at=commit_ts), commit_ts)

    async def settle(self, resolved_ts: Ts) -> None:
        """All lanes are drained and end here: downstream equals upstream at `resolved_ts`.

        Not before the stream has come to where the foremost lane, or the drainer before us, was at the start:
        lanes that were put back would apply rows again, and the downstream is ahead of `resolved_ts`.
        """
        if resolved_ts < self.highest_ts:
            await self.save(resolved_ts)
        else:
            settle = functools.partial(self.store.settle, lanes_at=resolved_ts)
            await self._store(settle, resolved_ts, consistent=True)

    async def together(self, work: Callable[[Any], None], *, lanes_at: int | Position, upto_ts: Ts) -> None:
        """`work` in one transaction with all lanes at `lanes_at` and the checkpoint for `upto_ts`."""
        together = self.store.together
        await self._store(lambda given: together(work, lanes_at=lanes_at, checkpoint=given), upto_ts)

    async def _store(
        self, write: Callable[[Checkpoint], None], upto_ts: Ts, *, consistent: bool = False
    ) -> None:
        async with self._storing:
            checkpoint = self.checkpoint(upto_ts, consistent=consistent)
            await self.call(write, checkpoint)
            self._note_stored(checkpoint.commit_ts)

    @property
    def map_is_due(self) -> bool:
        """Whether `map_downstream` is to be called at the next drained point."""
        return self._maps and self._clock.monotonic_s() >= self._map_due_s

    async def map_downstream(self, resolved_ts: Ts) -> None:
        """Store that the downstream as it is now is the upstream at `resolved_ts`; nothing may be applied
        meanwhile. Not while something waits, since then it is not."""
        self._map_due_s = self._clock.monotonic_s() + MAP_INTERVAL_S
        if self.floor() is not None:
            return
        async with self._storing:
            position = await self.call(self.store.downstream_position)
            if position:
                checkpoint = self.checkpoint(resolved_ts)
                self._ts_map = checkpoint.mapped(position)
                await self.call(self.store.save, replace(checkpoint, ts_map=self._ts_map))
                self._note_stored(resolved_ts)

    def _note_stored(self, commit_ts: Ts) -> None:
        self.stored_ts = commit_ts
        metrics.CHECKPOINT_TSO.set(tso.physical_ms(commit_ts))
        metrics.CHECKPOINT_DELAY_SECONDS.observe(max(0.0, tso.age_s(commit_ts, self._clock.wall_s())))
        metrics.EVENTS.labels("savepoint").inc()

    async def call(self, function: Callable[..., T], *arguments: Any, thread: Executor | None = None) -> T:
        """Run on the store's thread, or another, until the downstream has taken it.

        Raises what is not a passing error. A refusal is looked into first: a server that went back in time,
        or was emptied, refuses for that reason alone what it would take (`WentBack`).
        """
        loop = asyncio.get_running_loop()
        backoff = Backoff(0.1, 2.0)
        while True:
            try:
                return await loop.run_in_executor(thread or self.thread, function, *arguments)
            except (SessionError, Unavailable) as error:
                if isinstance(error, StatementRefused):
                    if function != self.store.confirm:
                        await self.call(self.store.confirm)
                    raise final_error(error, "storing the checkpoint") from None
                if not backoff.attempts:
                    logger.warning("checkpoint waits for the downstream", reason=safe_text(error))
                if self._failure.done():
                    await self._failure
                await asyncio.sleep(backoff.next_s())

    async def close(self, *others: Callable[[], None]) -> None:
        """Close the store, and what else was used on its thread."""
        loop = asyncio.get_running_loop()
        for close in (self.store.close, *others):
            await loop.run_in_executor(self.thread, close)
        self.thread.shutdown(wait=False)


PURGE_S: Final = 60.0
"""How often tables that were dropped upstream, and are kept for a while, are purged."""
HOLD_S: Final = 5.0
"""How often a drainer checks that the downstream has not gone back, which shows that it lives."""


class CheckpointUpkeep:
    """What is checked downstream at intervals while rows are applied. `purge` blocks, and is given what is
    stored: a DDL that waits may want what was dropped before it."""

    def __init__(self, keeper: CheckpointKeeper, purge: Callable[[int], None], clock: Clock) -> None:
        self._keeper = keeper
        self._purge = purge
        self._clock = clock
        self._purged_s = self._held_s = clock.monotonic_s()

    async def run_due(self) -> None:
        """Raises what makes storing impossible."""
        now_s = self._clock.monotonic_s()
        if now_s - self._held_s >= HOLD_S:
            self._held_s = now_s
            await self._keeper.call(self._keeper.store.hold)
        if now_s - self._purged_s >= PURGE_S:
            self._purged_s = now_s
            await self._keeper.call(self._purge, self._keeper.stored_ts)

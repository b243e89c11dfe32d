"""DDL barrier: what happens to one DDL while all lanes are drained.

Drives  the DDL runner and the checkpoint store, on the store's thread
Holds   the intent is durable before the statement runs; the checkpoint that passes the DDL is stored with
        its end, in one transaction. After a crash the shape of the downstream decides whether it had run
"""

from __future__ import annotations

from collections.abc import Callable

from common import log
from common.clock import Clock
from common.errors import DownstreamError
from drainer import metrics
from drainer.checkpoint import Intent
from drainer.checkpoint_keeper import CheckpointKeeper
from drainer.ddl_apply import DdlRunner
from drainer.txn import Ddl

logger = log.get(__name__)


class DdlBarrier:
    """`pending`: the intent that the last life of this drainer left. `keep_schema` is told of every DDL."""

    def __init__(
        self,
        runner: DdlRunner,
        keeper: CheckpointKeeper,
        pending: Intent | None,
        clock: Clock,
        keep_schema: Callable[[int], None],
    ) -> None:
        self._keep_schema = keep_schema
        self._runner = runner
        self._keeper = keeper
        self._pending = pending
        self._clock = clock
        self.doing = ""

    async def apply(self, ddl: Ddl) -> None:
        """Run it, or pass over it; the stored checkpoint stands behind it then."""
        keeper = self._keeper
        if ddl.skip:
            logger.info("DDL not applied", job_id=ddl.job_id, commit_ts=ddl.commit_ts, reason=ddl.skip)
            keeper.schema_version = max(keeper.schema_version, ddl.schema_version)
            self._keep_schema(ddl.commit_ts)
            return
        self.doing = f"running DDL job {ddl.job_id}"
        started_s = self._clock.monotonic_s()
        await self._execute(ddl)
        metrics.DDL_SECONDS.observe(self._clock.monotonic_s() - started_s)
        metrics.EVENTS.labels("DDL").inc()
        keeper.schema_version = max(keeper.schema_version, ddl.schema_version)
        self._keep_schema(ddl.commit_ts)
        await keeper.end_ddl(ddl.commit_ts)
        self.doing = ""
        logger.info("DDL applied", job_id=ddl.job_id, commit_ts=ddl.commit_ts)

    async def _execute(self, ddl: Ddl) -> None:
        if ddl.refused:  # what the downstream would make of it loses rows
            raise DownstreamError(
                f"DDL job {ddl.job_id} at commit_ts {ddl.commit_ts} cannot run: {ddl.refused}",
                hint=f"to pass over it, list {ddl.commit_ts} in ignore-txn-commit-ts",
            )
        runner, call = self._runner, self._keeper.call
        intent, self._pending = self._pending, None
        if intent is not None and intent.commit_ts == ddl.commit_ts:
            if await call(runner.had_run, intent, ddl):
                logger.info("DDL had run before the last stop", job_id=ddl.job_id)
                return
        else:
            before = await call(runner.before, ddl)
            intent = Intent(ddl.commit_ts, ddl.job_id, ddl.query, before)
            await call(self._keeper.store.begin_ddl, intent)
        try:
            await call(runner.run, ddl)
        except DownstreamError:
            # The statement of a crashed run may have ended while this one waited for its locks.
            if await call(runner.had_run, intent, ddl):
                return
            if ddl.commit_ts <= self._keeper.safe_until and await call(runner.already_done, ddl):
                logger.warning("DDL was downstream already", job_id=ddl.job_id)
                return
            raise

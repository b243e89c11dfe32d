"""DDL barrier: what happens to one DDL while all lanes are drained.

Holds   the intent is durable before the statement runs; the checkpoint that passes the DDL is stored with
        its end, in one transaction. After a crash the shape of the downstream decides whether it had run
"""

from __future__ import annotations

from drainer import metrics
from drainer.checkpoint.keeper import CheckpointKeeper
from drainer.checkpoint.value import Intent
from drainer.ddl.quarantine.controller import QuarantineController
from drainer.ddl.quarantine.early_drop import EarlyDrops
from drainer.ddl.rules import APPLY, REWRITE
from drainer.ddl.run.progress import told
from drainer.ddl.run.runner import DdlRunner
from drainer.ddl.run.takes_long import Beside
from drainer.sink.mysql.lane_feed import LaneFeed
from drainer.sink.mysql.settings import ApplierSettings
from drainer.txn import Ddl
from tidb_binlog.clock import Clock
from tidb_binlog.errors import DownstreamError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log

logger = log.get("drainer.ddl_barrier")


@dataclass(eq=False)
class DdlBarrier:
    """One DDL at a time."""

    _runner: DdlRunner
    _keeper: CheckpointKeeper
    _pending: Intent | None  # that the last life of this drainer left; None after the first DDL
    _clock: Clock
    _settings: ApplierSettings
    _quarantine: QuarantineController
    _feed: LaneFeed
    _early: EarlyDrops | None = None  # of an upstream that can be asked about a job that is half done
    doing: str = ""  # while a statement runs
    progress: str = ""  # how far the statement under way is, in the downstream's words

    async def apply(self, ddl: Ddl) -> bool:
        """Run it, pass over it, or let its tables wait; then the stream continues after it. Whether it ran:
        then all lanes stand at it, stored."""
        keeper = self._keeper
        if ddl.half_done and self._early is not None:
            await self._early.half_done(ddl.job_id)
        ruling = await self._quarantine.judge(ddl, keeper.schema_version)
        ran = False
        if ruling.action in (APPLY, REWRITE):
            self.doing = f"running DDL job {ddl.job_id}"
            started_s = self._clock.monotonic_s()
            try:
                async with told(lambda: self._runner.progress(ddl), self._note_progress):
                    ran = await self._execute(ddl, ruling.text or None)
            finally:
                self.doing = ""
            metrics.DDL_SECONDS.observe(self._clock.monotonic_s() - started_s)
        else:
            logger.info("DDL not applied", job_id=ddl.job_id, commit_ts=ddl.commit_ts, reason=ruling.reason)
        keeper.schema_version = max(keeper.schema_version, ddl.schema_version)
        keeper.schema_ts = ddl.commit_ts
        self._settings.keep_schema(ddl.commit_ts)
        if not ran:
            return False
        metrics.EVENTS.labels("DDL").inc()
        await keeper.end_ddl(ddl.commit_ts)
        logger.info("DDL applied", job_id=ddl.job_id, commit_ts=ddl.commit_ts)
        return True

    @property
    def _beside(self) -> Beside:
        lanes = self._keeper.store.lane_table()
        return Beside(self._settings.beside_rows, (lanes.schema, f"spare_{lanes.cluster_id}"))

    def _note_progress(self, said: str) -> None:
        self.progress = said

    async def _execute(self, ddl: Ddl, text: str | None) -> bool:
        """Whether it has taken effect; else its tables wait."""
        runner, call = self._runner, self._keeper.call
        intent, self._pending = self._pending, None
        if intent is not None and intent.commit_ts == ddl.commit_ts:
            if await call(runner.had_run, intent, ddl, text):
                logger.info("DDL had run before the last stop", job_id=ddl.job_id)
                return True
        else:
            reason = ddl.refused or self._quarantine.dependencies.in_the_way(ddl)
            if reason and text is None:  # what the downstream would make of it loses rows
                before = await call(runner.before, ddl)
                await self._feed.log_kept(ddl)
                await self._quarantine.refused(ddl, self._keeper.schema_version, before, reason)
                return False
            if self._keeper.safe_mode.covers(ddl.commit_ts) and await call(runner.already_done, ddl):
                logger.warning("DDL was downstream already", job_id=ddl.job_id)
                return True
            if (
                text is None
                and self._quarantine.may_wait
                and (what := await call(runner.takes_long, ddl, self._beside))
            ):
                await self._feed.log_kept(ddl)
                reason = f"runs beside the stream: {what}"
                await self._quarantine.run_beside(ddl, self._keeper.schema_version, reason)
                return False
            before = await call(runner.before, ddl)
            intent = Intent(ddl.commit_ts, ddl.job_id, ddl.query, before)
            await self._feed.log_ddl(ddl, text)
            await self._keeper.begin_ddl(intent)
        try:
            await call(runner.run, ddl, text)
        except DownstreamError as error:
            await self._quarantine.refused(ddl, self._keeper.schema_version, intent.before, error.message)
            return False
        return True

"""Archive applier: ordered binlogs in, an archive out. Does what `applier` does for a database.

Drives  the translator (core), the archive, the savepoint
Owns    where in the stream it is; `keep` is called behind every DDL
Order   records are in the order of the stream; data is synced, then the savepoint moves
Holds   nothing is left out and nothing is written twice: what the archive has tells where it goes on
Stops   `stop` takes no further item, syncs what was appended, stores `consistent = true`. A transaction that
        came in pieces and is not whole is cut off at the next start, and comes again
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from common import tso
from common.backoff import Backoff
from common.clock import Clock
from common.errors import DownstreamError
from common.observe import log
from drainer import metrics
from drainer.checkpoint.savepoint import Savepoint
from drainer.checkpoint.value import Checkpoint
from drainer.control.pause_and_reload import Control
from drainer.ddl.derive.render import NotDerivable
from drainer.ddl.policy import APPLY, REWRITE, STOP, Policy
from drainer.ddl.rules import Rule
from drainer.formats.binlog_directory import NO_ROOM
from drainer.pull.merged import Merged, MergedBatch, Spilled
from drainer.rules.rule_change import RuleChange
from drainer.rules.rule_set import Rules
from drainer.sink.file.archive import BUFFERED_BYTES_MAX, Archive
from drainer.sink.file.ddl import ddl_texts, ruling_of
from drainer.sink.runner import BatchTaking
from drainer.txn import Ddl, Item, Transaction

logger = log.get(__name__)

SWEEP_S: Final = 3600.0
COMPRESS_S: Final = 2.0


class ItemSource(Protocol):
    """The translator, as the archive applier sees it."""

    def translate(self, merged: Merged) -> Item: ...

    def pieces(self, spilled: Spilled) -> Iterator[Transaction]: ...

    def route(self, schema: str, table: str = "") -> tuple[str, str]: ...


@dataclass(frozen=True, slots=True)
class ArchiveStart:
    """Where the stream goes on: behind `commit_ts`, at that schema version (0: not known)."""

    commit_ts: int
    schema_version: int = 0


def where_to_go_on(archive_ts: int, stored: Checkpoint | None, initial_ts: int) -> ArchiveStart:
    """`archive_ts`: of the last record that is there. The savepoint may be behind it, or ahead of it where
    nothing came that belongs into an archive."""
    if stored is not None and stored.commit_ts and stored.commit_ts >= archive_ts:
        return ArchiveStart(stored.commit_ts, stored.schema_version)
    return ArchiveStart(archive_ts or initial_ts)


class ArchiveApplier:
    """`settings`: seconds between savepoints, days for which segments are kept (0: for ever).
    `upstream`: the upstream's clock."""

    def __init__(
        self,
        start: ArchiveStart,
        archive: Archive,
        savepoint: Savepoint,
        translator: ItemSource,
        policy: Policy,
        clock: Clock,
        control: Control | None = None,
        *,
        checkpoint_interval_s: float = 0.5,
        retention_days: int = 0,
        compresses: bool = False,
        rules: RuleChange | None = None,
        upstream: Clock | None = None,
    ) -> None:
        self._archive = archive
        self._savepoint = savepoint
        self._translator = translator
        self._policy = policy
        self._clock = clock
        self._upstream = upstream or clock
        self._control = control or Control(clock)
        self._interval_s = checkpoint_interval_s
        self._retention_days = retention_days
        self._compresses = compresses
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way: asyncio.Future[None] | None = None
        self._storing = asyncio.Lock()
        self._broken = False
        self._taking = BatchTaking()
        self._changed = asyncio.Event()
        self._control.on_change = self._changed.set
        self._change = rules or RuleChange(None, Rules(), None)
        self._finished = asyncio.Event()
        self._doing = "starting"
        self._start_ts = self._last_ts = self._synced = start.commit_ts
        self._version = self._synced_version = start.schema_version
        self._more = False  # was appended since the sync that is under way began
        self._kinds: list[int] = []
        self.stored_ts = start.commit_ts
        """The stored checkpoint."""
        self.transactions = 0
        self.rows = 0

    # -- what others may ask ---------------------------------------------------------------------

    @property
    def doing(self) -> str:
        return self._doing

    @property
    def resolved_ts(self) -> int:
        """Everything at or below it is in the archive, on the medium."""
        return self._synced

    @property
    def handed_over_ts(self) -> int:
        return self._last_ts

    @property
    def start_ts(self) -> int:
        """From where to pull."""
        return self._start_ts

    def lane_states(self) -> list[dict[str, Any]]:
        return []

    def drift(self) -> dict[str, int]:
        return {}

    def foreign_texts(self) -> dict[str, dict[str, int]]:
        return {}

    def facts(self) -> dict[str, Any]:
        """For /status."""
        return {"Archive": {"waiting_for": self._archive.waiting_for, "last_commit_ts": self._last_ts}}

    def change_pace(self, *, checkpoint_interval_s: float) -> None:
        self._interval_s = checkpoint_interval_s

    def set_rules(self, rules: Sequence[Rule]) -> None:
        """Other rules, for every DDL from now on."""
        self._policy = Policy(rules)

    def check_rules(self, rules: Rules) -> None:
        """Raises `ConfigError` for rules that contradict each other."""
        self._change.check(rules, lambda _schema, _table: False)

    async def change_rules(self, rules: Rules) -> int:
        """Take rules that `check_rules` let pass between two transactions, when all before is in the archive
        and the savepoint; the commit_ts behind which they are in force. Raises `Rejected`."""
        return await self._change.asked_for(rules, self._wake, lambda: self._doing)

    def _wake(self) -> None:
        self._taking.wake()
        self._changed.set()

    async def _take_rules(self) -> None:
        with self._change.taking(self._last_ts, self._last_ts) as history:
            await self._settled()
            await self._hand_over()
            await self._settled()
            await self.save_checkpoint()
            self._change.take(history)

    # -- tasks of the daemon ---------------------------------------------------------------------

    async def run(self, batches: AsyncIterator[MergedBatch]) -> None:
        """Write until stopped. Raises what made it impossible to go on."""
        try:
            while (batch := await self._next_batch(batches)) is not None:
                await self._apply(batch)
        except BaseException:
            self._broken = True
            raise
        finally:
            self._finished.set()

    async def _next_batch(self, batches: AsyncIterator[MergedBatch]) -> MergedBatch | None:
        if not self._taking.is_stopping():
            self._doing = "waiting for binlogs"
        return await self._taking.take(batches)

    async def watch(self) -> None:
        """Ends with what made writing impossible, whoever waits."""
        await asyncio.shield(self._failure)

    async def keep_checkpoint(self) -> None:
        """Store the savepoint whenever it has moved, at most once an interval."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.save_checkpoint()

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        """What runs beside it, by name; to be called once."""
        found: dict[str, Coroutine[Any, Any, None]] = {}
        if self._retention_days > 0:
            found["retention"] = self._keep_retention()
        if self._compresses:
            found["compression"] = self._keep_compressing()
        return found

    async def _keep_retention(self) -> None:
        """Remove what is older than wanted, once an hour."""
        while True:
            await self._archive.remove_older(self._retention_days, self._upstream.wall_s())
            await asyncio.sleep(SWEEP_S)

    async def _keep_compressing(self) -> None:
        while True:
            await self._archive.compress()
            await asyncio.sleep(COMPRESS_S)

    async def save_checkpoint(self, *, consistent: bool = False) -> None:
        async with self._storing:
            commit_ts, version = self._synced, self._synced_version
            if commit_ts <= self.stored_ts and not consistent:
                return
            await self._store(Checkpoint(commit_ts, consistent, version))
            self.stored_ts = commit_ts
        metrics.CHECKPOINT_TSO.set(tso.physical_ms(commit_ts))
        metrics.CHECKPOINT_DELAY_SECONDS.observe(max(0.0, tso.age_s(commit_ts, self._clock.wall_s())))
        metrics.EVENTS.labels("savepoint").inc()

    async def _store(self, checkpoint: Checkpoint) -> None:
        backoff = Backoff(0.1, 2.0)
        while True:
            try:
                await asyncio.to_thread(self._savepoint.save, checkpoint)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                if not backoff.attempts:
                    logger.warning("savepoint waits for room on its disk", reason=str(error))
                await asyncio.sleep(backoff.next_s())
            else:
                return

    async def stop(self, deadline_s: float) -> bool:
        """Finish what was begun. True if the archive now has all up to the stored checkpoint, no more.

        Raises what made writing impossible.
        """
        self._taking.stop()
        self._control.let_go()
        drained = False
        try:
            async with asyncio.timeout(deadline_s):
                await self._finished.wait()
                await self._settled()
                if not self._broken:
                    await self._archive.close()
                    await self.save_checkpoint(consistent=True)
                    drained = True
        except TimeoutError:
            logger.warning("archive was not synced in time", deadline_s=deadline_s)
        finally:
            await asyncio.to_thread(self._archive.let_go)
        return drained

    # -- writing ---------------------------------------------------------------------------------

    async def _apply(self, batch: MergedBatch) -> None:
        self._doing = "archiving"
        for merged in batch.entries:
            if self._control.holds and self._control.paused:
                await self._pause()
            if merged.spilled is not None:
                await self._apply_large(merged.spilled)
            else:
                item = self._translator.translate(merged)
                if isinstance(item, Ddl):
                    await self._apply_ddl(item)
                else:
                    if self._control.holds:
                        await self._admit(item)
                    self._take(item)
                    if self._archive.waiting >= BUFFERED_BYTES_MAX:
                        await self._hand_over()
            if self._taking.is_stopping():
                break
        else:
            self._last_ts = max(self._last_ts, batch.watermark)
        await self._hand_over()
        await asyncio.sleep(0)
        if self._change.asked and not self._taking.is_stopping():
            await self._take_rules()

    async def _pause(self) -> None:
        """Nothing is translated meanwhile: other rules may come."""
        await self._hand_over()
        self._doing = "held back by the operator"
        while self._control.holds and self._control.paused:
            if self._change.asked:
                await self._take_rules()
            self._changed.clear()
            await self._changed.wait()
        self._doing = "archiving"

    async def _admit(self, transaction: Transaction) -> None:
        await self._hand_over()
        self._doing = "held back by the operator"
        rows = sum(len(events.rows) for events in transaction.tables)
        await self._control.admit(rows, transaction.size_bytes)
        self._doing = "archiving"

    def _take(self, transaction: Transaction) -> None:
        """A transaction, or the next piece of one."""
        if transaction.commit_ts <= self._start_ts:  # it is there
            return
        self._archive.append(transaction)
        if transaction.last:
            self._last_ts = transaction.commit_ts
            self.transactions += 1
        for events in transaction.tables:
            self._kinds += events.kinds

    async def _apply_large(self, spilled: Spilled) -> None:
        """Piece by piece; reading the file and looking it over is done on a thread."""
        self._doing = f"archiving the large transaction of commit_ts {spilled.commit_ts}"
        await self._settled()
        pieces = await asyncio.to_thread(self._translator.pieces, spilled)
        while (
            piece := await asyncio.to_thread(next, pieces, None)
        ) is not None and not self._taking.is_stopping():
            if self._control.holds:
                await self._admit(piece)
            self._take(piece)
            if self._archive.waiting >= BUFFERED_BYTES_MAX and not piece.last:
                await self._archive.write()
        self._doing = "archiving"

    async def _apply_ddl(self, ddl: Ddl) -> None:
        if ddl.commit_ts > self._start_ts:
            ruling = ruling_of(self._policy, ddl)
            if ruling.action == STOP or (ddl.refused and ruling.action == APPLY):
                raise _stopped(ddl, ddl.refused or ruling.reason)
            if self._control.holds:
                await self._control.admit(1, len(ddl.query))
            if self._taking.is_stopping():
                return
            if ruling.action in (APPLY, REWRITE):
                try:
                    texts = ddl_texts(ddl, ruling.text or None, self._translator.route)
                except NotDerivable as error:
                    raise _stopped(ddl, str(error)) from None
                self._archive.append_ddl(ddl, *texts)
                metrics.EVENTS.labels("DDL").inc()
                logger.info("DDL archived", job_id=ddl.job_id, commit_ts=ddl.commit_ts)
            else:
                logger.info("DDL left out", job_id=ddl.job_id, commit_ts=ddl.commit_ts, reason=ruling.reason)
        self._version = max(self._version, ddl.schema_version)
        self._last_ts = max(self._last_ts, ddl.commit_ts)

    async def _hand_over(self) -> None:
        """Bring what was appended to the medium: now, or behind the sync that is under way.

        Waits only where much waits already.
        """
        if self._kinds:
            for kind, metric in enumerate(metrics.ROW_EVENTS):
                metric.inc(self._kinds.count(kind))
            self.rows += len(self._kinds)
            self._kinds.clear()
        if self._archive.waiting >= BUFFERED_BYTES_MAX:
            await self._settled()
        if self._under_way is not None and self._under_way.done():
            await self._settled()
        self._more = True
        if self._under_way is None:
            self._under_way = asyncio.ensure_future(self._sync())
            self._under_way.add_done_callback(self._note)

    async def _sync(self) -> None:
        while self._more:
            self._more = False
            upto_ts, version = self._last_ts, self._version
            if self._archive.waiting:
                await self._archive.sync()
            self._synced, self._synced_version = upto_ts, version

    def _note(self, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None and not self._failure.done():
            self._failure.set_exception(error)

    async def _settled(self) -> None:
        """What was handed over is on the medium."""
        if self._under_way is not None:
            await asyncio.shield(self._under_way)
            self._under_way = None


def _stopped(ddl: Ddl, reason: str) -> DownstreamError:
    return DownstreamError(
        f"DDL job {ddl.job_id} at commit_ts {ddl.commit_ts} stops the drainer: {reason}; statement in"
        f" `{ddl.schema}`: {ddl.query}",
        hint="change or write a rule for it (syncer.ddl-rule) and start again; the checkpoint is before the"
        " statement",
    )

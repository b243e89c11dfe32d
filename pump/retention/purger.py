"""Purger: removes the log files that the retention policy lets go, and warns of it before.

Owns    one loop; what walks over log files have found so far
Order   (1) every record of the files is read, so that no footer is believed blindly and no transaction is cut
        in two; (2) the purged timestamp is on the medium; (3) index entries that point into the files are
        deleted; (4) the files are unlinked. What a crash interrupts between two steps the next run finishes:
        files below the purged timestamp go in any case
Why     entries are found by the file that they point into: an open prewrite, or one whose commit came late,
        lies in a file that stays and keeps its entry however old it is. The first run also deletes entries of
        files that are gone already: LevelDB may forget deletes that a crash overtook
Pace    reading and deleting run in pieces of milliseconds with as long a pause after each
Stops   at once; closing the storage waits for a piece under way
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any, Final

from pump import metrics
from pump.log.record import ValuePointer
from pump.log.value_log import ClosedFile, RecordBatch
from pump.retention.age_clock import AgeClock
from pump.retention.policy import (
    DISK,
    Alarms,
    DrainerState,
    Outlook,
    Policy,
    PurgePlan,
    PurgeReason,
    Situation,
    Straddlers,
    Survey,
    candidates,
    decide,
    outlook,
)
from pump.storage.storage import Storage
from tidb_binlog.clock import Clock
from tidb_binlog.cluster.registry import Registry
from tidb_binlog.errors import BinlogError, Corruption, Unavailable
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.notify.events import Condition, Type
from tidb_binlog.observe import log
from tidb_binlog.quantities import span
from tidb_binlog.status.pump import PurgeOutlook, RetentionStatus
from tidb_binlog.tso import TS_MAX, Ts, physical_ms
from tidb_binlog.upstream_port import TimestampOracle

_FILES_MAX: Final = 8  # that go in one round
_KNOWN_MAX: Final = 1 << 17  # transactions remembered from walks
_ANSWER_S: Final = 10.0
_logger = log.get("retention")


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between runs."""

    first_s: float = 30.0
    every_s: float = 600.0
    poll_s: float = 3.0  # between two checks of the free space
    short_s: float = 10.0
    """While space is short, for the file system frees blocks in its own time; and after a run that something
    held up, which is told until the next one."""


class _Walk:
    """A walk over one file: what it has found, how far it has come."""

    def __init__(self, fid: int, earlier_ts: Ts) -> None:
        self.survey = Survey(fid, earlier_ts)
        self.cursor = ValuePointer(fid, 0)
        self.finished = False

    def advance(self, record_batches: Iterator[RecordBatch]) -> bool:
        """Take the next records of the file, on a thread; False at its end."""
        batch = next(record_batches, None)
        if batch is not None:
            self.survey.feed(batch.records)
            self.cursor = batch.after
        return batch is not None


class Purger:
    """The purger of one storage. `free_bytes` asks the file system."""

    def __init__(
        self,
        storage: Storage,
        oracle: TimestampOracle,
        registry: Registry,
        free_bytes: Callable[[], Awaitable[int]],
        policy: Policy,
        clock: Clock,
        *,
        pace: Pace | None = None,
        ages: AgeClock | None = None,
        keep_anchor: Callable[[str], None] = lambda _: None,
        boot_s: Callable[[], float] | None = None,
    ) -> None:
        """`boot_s`: seconds since the host was started; `keep_anchor` makes an anchor of `ages` durable."""
        self._storage = storage
        self._oracle = oracle
        self._registry = registry
        self._free_bytes = free_bytes
        self.policy = policy
        self._clock = clock
        self._pace = pace or Pace()
        self._ages = ages or AgeClock()
        self._keep_anchor = keep_anchor
        self._boot_s = boot_s or clock.monotonic_s
        self._alarms: Alarms[tuple[str, bool]] = Alarms()
        self._trouble_alarms: Alarms[str] = Alarms()
        self._walks: dict[int, _Walk] = {}
        self._swept = False
        self._wake = asyncio.Event()
        self._working = False
        self._short_again_s = clock.monotonic_s() + self._pace.first_s
        self._ended_s: float | None = None
        self._outlook: list[Outlook] = []
        self._trouble: dict[str, BinlogError | OSError] = {}
        self.purged_bytes = 0
        self.purged_files = 0

    # -- when ------------------------------------------------------------------------------------

    def change_policy(self, policy: Policy) -> None:
        """From the next run on, which begins now."""
        self.policy = policy
        self._wake.set()

    async def run(self) -> None:
        """PurgePlan again and again; until cancelled."""
        await self._wait(self._pace.first_s)
        while True:
            await self.work()
            await self._wait(self._pace.short_s if self._trouble else self._pace.every_s)

    def trigger(self) -> bool:
        """Let the next run begin now; False if one is under way."""
        if not self._working:
            self._wake.set()
        return not self._working

    async def _wait(self, seconds: float) -> None:
        due_s = self._clock.monotonic_s() + seconds
        while (left_s := due_s - self._clock.monotonic_s()) > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), min(self._pace.poll_s, left_s))
            if self._wake.is_set() or await self._is_short():
                break
        self._wake.clear()

    async def _is_short(self) -> bool:
        if not self.policy.free_bytes_min or self._clock.monotonic_s() < self._short_again_s:
            return False
        with suppress(OSError):  # the disk guard says so
            return await self._free_bytes() < self.policy.free_bytes_min
        return False

    async def work(self) -> None:
        """One run: everything that may go now. An error ends it, and is logged."""
        self._working = True
        self._trouble = {}
        before = self.purged_files
        try:
            await self._sweep()
            while await self._round():
                pass
            if self.purged_files > before and (now := await self._situation()) is not None:
                self._warn(now)
        except (BinlogError, OSError) as error:
            metrics.PURGE_ERRORS.inc()
            self._trouble["purge"] = error
        finally:
            self._working = False
            self._ended_s = self._clock.monotonic_s()
            self._short_again_s = self._ended_s + self._pace.short_s
        self._report_trouble()

    # -- what ------------------------------------------------------------------------------------

    async def _situation(self) -> Situation | None:
        """Everything as it is now; None when the oracle does not answer: then nothing is known of ages."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                drawn_ts = await self._oracle.timestamp()
        except (Unavailable, TimeoutError) as error:
            self._trouble["oracle"] = Unavailable(
                f"timestamp oracle does not answer, nothing is purged: {error}"
            )
            return None
        now_ts = await self._believed(drawn_ts)
        storage = self._storage
        settled = storage.settled_place
        files = await storage.in_thread(storage.value_log.closed_files)
        return Situation(
            now_ts=now_ts,
            files=[self._as_walked(file) for file in files],
            active_bytes=storage.value_log.end.offset,
            free_bytes=await self._free_bytes(),
            settled_fid=settled.fid,
            watermark=storage.watermark,
            gc_ts=storage.gc_ts,
            drainers=await self._drainers(),
        )

    async def _believed(self, now_ts: Ts) -> int:
        """What ages are reckoned from."""
        aged = self._ages.reckon(now_ts, self._boot_s(), self._clock.wall_s())
        if aged.anchor:
            await self._storage.in_thread(self._keep_anchor, aged.anchor)
        if aged.ahead_s > 0:
            self._trouble["clock"] = Unavailable(
                f"the upstream's clock is {span(aged.ahead_s)} ahead of the time that has passed here: ages "
                "are reckoned without that",
                hint="`binlogctl doctor` compares all clocks; if upstream's is right, stop this pump and "
                "remove .age in its data directory",
            )
        return aged.ts

    async def _drainers(self) -> list[DrainerState] | None:
        try:
            async with asyncio.timeout(_ANSWER_S):
                view = await self._registry.view()
        except (BinlogError, TimeoutError) as error:
            self._trouble["registry"] = Unavailable(
                f"registry does not answer, nothing is purged that a drainer may need: {error}"
            )
            return None
        return [
            DrainerState(
                node_id, entry.status.state, entry.alive, entry.status.max_commit_ts, entry.status.update_ts
            )
            for node_id, entry in sorted(view.drainers.items())
        ]

    def _as_walked(self, file: ClosedFile) -> ClosedFile:
        walk = self._walks.get(file.fid)
        return replace(file, max_ts=walk.survey.max_ts) if walk is not None and walk.finished else file

    async def _round(self) -> bool:
        """Remove some files; False when nothing more goes now."""
        now = await self._situation()
        if now is None:
            return False
        self._warn(now)
        end = self._storage.value_log.end
        walked: list[Survey] = []
        for candidate in candidates(self.policy, now)[:_FILES_MAX]:
            walk = await self._walk(candidate.file.fid, end)
            if walk is None:
                break
            walked.append(walk.survey)
        straddlers = await self._straddlers(walked, end) if walked else None
        # Reading took its time: drainers may have come and gone.
        now = await self._situation()
        if straddlers is None or now is None:
            return False
        files = candidates(self.policy, now)[: len(walked)]
        purge = decide(files, straddlers.straddlers, now.gc_ts)
        if purge is None:
            return False
        await self._remove(purge, [file for file in walked if file.fid <= purge.upto_fid], now)
        return PurgeReason.SPACE not in purge.reasons

    # -- (1) reading -----------------------------------------------------------------------------

    async def _walk(
        self, fid: int, end: ValuePointer, enough: Callable[[Survey], bool] = lambda _: False
    ) -> _Walk | None:
        """Walk a file on, to its end or `end`, or until `enough`; None if it is damaged."""
        walk = self._walks.get(fid)
        if walk is None:
            walk = self._walks[fid] = _Walk(fid, await self._storage.in_thread(self._earlier_ts, fid))
        stop = end if fid == end.fid else ValuePointer(fid + 1, 0)
        record_batches = self._storage.value_log.record_batches(walk.cursor, stop)
        try:
            while not enough(walk.survey):
                if not await self._piece(walk.advance, record_batches):
                    break
            else:
                return walk
        except Corruption as error:
            self._trouble["damage"] = error
            return None
        if fid != end.fid:
            walk.finished = True
            walk.survey.finish()
        return walk

    def _earlier_ts(self, fid: int) -> Ts:
        """The largest timestamp of the files before one; where a file does not say its own, it may be any."""
        files = map(self._as_walked, self._storage.value_log.closed_files())
        earlier = [file.max_ts for file in files if file.fid < fid]
        return max((TS_MAX if ts is None else ts for ts in earlier), default=0)

    async def _straddlers(self, walked: list[Survey], end: ValuePointer) -> Straddlers | None:
        """Where the transactions end that begin in these files; None if that cannot be read."""
        straddlers = Straddlers()
        for survey in walked:
            straddlers.feed(survey)
        for fid in range(walked[-1].fid + 1, end.fid + 1):
            walk = await self._walk(fid, end, straddlers.take)
            if walk is None:
                return None
            if straddlers.take(walk.survey):
                break
        while sum(walk.survey.entries for walk in self._walks.values()) > _KNOWN_MAX:
            del self._walks[max(self._walks)]
        return straddlers

    async def _piece(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """A short job on a thread, and a pause as long."""
        began_s = self._clock.monotonic_s()
        result = await self._storage.in_thread(function, *arguments)
        await asyncio.sleep(self._clock.monotonic_s() - began_s)
        return result

    # -- (2) to (4) removing ---------------------------------------------------------------------

    async def _remove(self, purge: PurgePlan, walked: list[Survey], now: Situation) -> None:
        storage = self._storage
        began_s = self._clock.monotonic_s()
        live = [entry for entry in now.drainers or () if now.is_live(entry)]
        missed = [entry for entry in live if now.gc_ts <= entry.checkpoint < purge.ts]
        if missed:
            _logger.error(
                "space is short: binlogs go that live drainers have not applied",
                drainers=[entry.node_id for entry in missed],
                purged_to=purge.ts,
                available=now.free_bytes,
                wanted=self.policy.free_bytes_min,
            )
        await storage.in_thread(storage.purged_to, purge.ts, purge.upto_fid + 1)
        for drainer in missed:
            metrics.DRAINER_PURGED.labels(drainer.node_id).inc()
        await self._delete_entries(min(survey.min_ts for survey in walked), purge.ts, purge.upto_fid)
        removed = await storage.in_thread(storage.value_log.remove, purge.upto_fid)
        self._walks = {fid: walk for fid, walk in self._walks.items() if fid > purge.upto_fid}
        self.purged_bytes += removed
        self.purged_files += len(walked)
        metrics.PURGED_BYTES.inc(removed)
        _logger.info(
            "value log files removed",
            upto=f"{purge.upto_fid:06d}.vlog",
            files=len(walked),
            bytes=removed,
            gc_ts=purge.ts,
            because=", ".join(purge.reasons),
            seconds=round(self._clock.monotonic_s() - began_s, 3),
        )

    async def _delete_entries(self, first_ts: Ts, last_ts: Ts, upto_fid: int) -> None:
        at: int | None = min(first_ts, last_ts)
        while at is not None:
            deleted, at = await self._piece(self._storage.index.purge, at, last_ts, upto_fid)
            metrics.DELETED_KEYS.inc(deleted)
            metrics.DONE_GC_TS.set(physical_ms(last_ts if at is None else at))

    async def _sweep(self) -> None:
        """Once after a start: entries below the purged timestamp whose files are gone."""
        if not self._swept:
            await self._delete_entries(0, self._storage.gc_ts, self._storage.value_log.first_fid - 1)
            self._swept = True

    # -- warning ---------------------------------------------------------------------------------

    def _warn(self, now: Situation) -> None:
        """Warn of drainers that retention comes near to, before anything goes."""
        if now.drainers is None:
            return
        self._outlook = outlook(self.policy, now)
        metrics.DRAINER_LEFT_SECONDS.clear()
        alarms = {}
        for entry in self._outlook:
            metrics.DRAINER_LEFT_SECONDS.labels(entry.drainer.node_id).set(entry.left_s)
            if entry.alarm or entry.lost:
                alarms[entry.drainer.node_id, entry.lost] = entry
        due, ended = self._alarms.update(alarms, self._clock.monotonic_s())
        for name in due:
            self._report(alarms[name], now)
        for node_id, lost in ended:
            if lost:
                _logger.info("drainer no longer waits for what was purged", node_id=node_id)
            elif (node_id, True) not in alarms:
                _logger.info("retention comes no longer near to what this drainer needs", node_id=node_id)

    def _report(self, outlook: Outlook, now: Situation) -> None:
        drainer = outlook.drainer
        if outlook.lost:
            log_at_level = _logger.error if outlook.live else _logger.warning
            log_at_level(
                "binlogs that this drainer has not applied were purged: it needs a new snapshot of the "
                "upstream; mark it offline if it never comes back",
                node_id=drainer.node_id,
                checkpoint=drainer.checkpoint,
                gc_ts=now.gc_ts,
                live=outlook.live,
            )
            return
        _logger.warning(
            "retention comes near to binlogs that this drainer has not applied",
            node_id=drainer.node_id,
            checkpoint=drainer.checkpoint,
            hours_left=round(outlook.left_s / 3600, 1),
            limit=outlook.reason,
            live=outlook.live,
            then=self._what_then(outlook),
        )

    def _what_then(self, outlook: Outlook) -> str:
        """What happens to them when the time is over."""
        policy = self.policy
        if not outlook.live or (outlook.reason == PurgeReason.SPACE and policy.protects == DISK):
            return "they are purged"
        if policy.protects == DISK and policy.free_bytes_min:
            return f"they stay while it lives and {policy.free_bytes_min} bytes are free"
        return "they stay while it lives; with a full disk prewrites are refused"

    def _report_trouble(self) -> None:
        due, ended = self._trouble_alarms.update(self._trouble, self._clock.monotonic_s())
        for name in due:
            _logger.error("retention is held up", by=name, error=self._trouble[name])
        for name in ended:
            _logger.info("retention is no longer held up", by=name)

    def facts(self) -> RetentionStatus:
        """For people: what was done, what holds it up, how long each drainer has."""
        ended_s = self._ended_s
        return RetentionStatus(
            working=self._working,
            age_s=self.policy.age_s,
            alarm_s=self.policy.alarm_s,
            last_run_s_ago=None if ended_s is None else round(self._clock.monotonic_s() - ended_s, 3),
            gc_ts=self._storage.gc_ts,
            first_file=f"{self._storage.value_log.first_fid:06d}.vlog",
            purged_files=self.purged_files,
            purged_bytes=self.purged_bytes,
            held_up_by=[str(error) for error in self._trouble.values()],
            drainers=[
                PurgeOutlook(
                    node_id=outlook.drainer.node_id,
                    checkpoint=outlook.drainer.checkpoint,
                    live=outlook.live,
                    lost=outlook.lost,
                    alarm=outlook.alarm,
                    left_s=round(outlook.left_s, 3),
                    limit=str(outlook.reason),
                )
                for outlook in self._outlook
            ],
        )


# Conditions of a pump: what of its retention an operator is told of by `notify-url`.


def conditions(retention: RetentionStatus) -> Iterator[Condition]:
    """A purge that reaches, or has reached, what a drainer has not applied."""
    for drainer in retention.drainers:
        if drainer.alarm or drainer.lost:
            yield _purge(drainer)


def _purge(outlook: PurgeOutlook) -> Condition:
    left_s = outlook.left_s or 0.0
    message = (
        f"binlogs that drainer {outlook.node_id} has not applied are purged"
        if outlook.lost
        else f"retention reaches in {left_s / 3600:.1f} hours what drainer {outlook.node_id} has not applied"
    )
    return Condition(
        Type.PURGE_AHEAD,
        outlook.node_id,
        message,
        "start the drainer, raise gc (a reload takes it), or remove the drainer: binlogctl forget",
        {
            "checkpoint": outlook.checkpoint,
            "left_s": left_s,
            "limit": outlook.limit,
            "live": outlook.live,
            "lost": outlook.lost,
        },
    )

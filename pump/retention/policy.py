"""Retention policy: what of the value log may be purged, and which drainers will miss it, from numbers alone.

In     the closed files, a timestamp drawn now, free space, drainers with their checkpoints, the watermark,
       the place up to which everything is settled; then what a walk over the files found (`Survey`)
Out    `candidates`: a prefix of the closed files; `decide`: how much of it goes, and up to which timestamp
       positions are purged then; `outlook`: how long each drainer has left
Why    a transaction is purged whole or not at all: its prewrite may lie in a file that goes and its commit in
       one that stays. So the purged timestamp reaches every commit whose prewrite goes, and a file stays
       when that would be further than its reason allows
Holds  what a live drainer has not applied stays, except (`protects` = "disk") when free space runs out;
       everything from the settled place on stays; the purged timestamp stays below the watermark
Never  reads the local clock: ages are differences of timestamps

A prewrite in front of the settled place has been settled. If no end of it follows it in the log, its end
came before it (a client repeated the prewrite) and goes with it, or was a rollback that was not stored (Go
pumps do not). Either way no reader will need it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from enum import StrEnum
from typing import Final, Generic, TypeVar

from pump.log.record import LogRecord
from pump.log.value_log import ClosedFile
from tidb_binlog.binlog import PREWRITE
from tidb_binlog.cluster import node
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import LOGICAL_BITS, TS_MAX, Ts

DRAINERS: Final = "drainers"
DISK: Final = "disk"

_ENDED_MAX: Final = 1 << 16
Name = TypeVar("Name", bound=Hashable)


def _ts(seconds: float) -> Ts:
    """A span of time as a difference of timestamps."""
    return int(seconds * 1000) << LOGICAL_BITS


def _s(ts: Ts) -> float:
    return (ts >> LOGICAL_BITS) / 1000


# A transaction may take this long from prewrite to commit without keeping a file back, and this much below
# its published checkpoint a drainer may start again.
MARGIN_TS: Final = _ts(600)
# A drainer that showed itself this recently counts as live, lease or not: it may be restarting.
LIVE_TS: Final = _ts(3600)


class PurgeReason(StrEnum):
    """Why a file goes."""

    PURGED = "purged before"  # a purge that was not finished, or nothing in it is served any more
    AGE = "age"
    BYTES = "bytes"
    SPACE = "free space"


@dataclass(frozen=True, slots=True)
class Policy:
    """What the operator wants. Seconds and bytes; 0 bytes: no such limit."""

    age_s: float
    bytes_max: int = 0
    free_bytes_min: int = 0
    protects: str = DISK
    alarm_s: float = 20 * 3600.0


@dataclass(frozen=True, slots=True)
class DrainerState:
    """A drainer as the registry has it. `checkpoint`: everything at or below it is applied; 0: not known."""

    node_id: str
    state: str
    alive: bool | None  # its lease is held, is gone, or it never had one
    checkpoint: int
    update_ts: Ts


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything a decision needs. `drainers` is None when the registry does not answer."""

    now_ts: Ts
    files: Sequence[ClosedFile]
    active_bytes: int
    free_bytes: int
    settled_fid: int
    watermark: int
    gc_ts: Ts
    drainers: Sequence[DrainerState] | None

    def is_live(self, drainer: DrainerState) -> bool:
        fresh = self.now_ts - drainer.update_ts < LIVE_TS
        return drainer.state != node.OFFLINE and (drainer.alive is True or fresh)

    def has_lost(self, drainer: DrainerState) -> bool:
        """Whether what it needs next was purged; it cannot continue from its checkpoint."""
        return 0 < drainer.checkpoint < self.gc_ts

    @property
    def free_of_drainers(self) -> int:
        """Largest timestamp that no live drainer needs any more; below zero: nothing is free."""
        if self.drainers is None:
            return -1
        holding = (entry for entry in self.drainers if self.is_live(entry) and not self.has_lost(entry))
        return min((entry.checkpoint - MARGIN_TS for entry in holding), default=TS_MAX)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may go. `ceiling`: the purged timestamp may become this large if it goes."""

    file: ClosedFile
    reason: PurgeReason
    ceiling: int


def candidates(policy: Policy, now: Situation) -> list[Candidate]:
    """Files that may go, oldest first; one without a `max_ts` may, as long as no walk has given it one."""
    below = now.watermark - 1
    free = min(now.free_of_drainers, below)
    in_need = below if policy.protects == DISK else free
    aged = now.now_ts - _ts(policy.age_s)
    log_bytes = now.active_bytes + sum(file.size for file in now.files)
    free_bytes = now.free_bytes
    files: list[Candidate] = []
    ceiling = now.gc_ts
    for file in now.files:
        max_ts, limit = file.max_ts or 0, now.gc_ts
        if file.fid >= now.settled_fid:
            break
        if max_ts <= min(aged - MARGIN_TS, free):
            reason, limit = PurgeReason.AGE, min(aged, free)
        elif policy.bytes_max and log_bytes > policy.bytes_max and max_ts <= free:
            reason, limit = PurgeReason.BYTES, min(max_ts + MARGIN_TS, free)
        elif free_bytes < policy.free_bytes_min and max_ts <= in_need:
            reason, limit = PurgeReason.SPACE, min(max_ts + MARGIN_TS, in_need)
        elif max_ts > now.gc_ts:
            break
        if max_ts <= now.gc_ts:  # what reaches beyond it goes by the limit that it has besides, if it has one
            reason = PurgeReason.PURGED
        ceiling = max(ceiling, limit)
        files.append(Candidate(file, reason, ceiling))
        log_bytes -= file.size
        free_bytes += file.size
    return files


class Survey:
    """What a walk over one file found: its timestamps, and the transactions that reach beyond it.

    `earlier_ts`: the largest timestamp of the files before it. A prewrite that is not above it may be the
    repetition of one in those files, whose end is the one that stands here."""

    def __init__(self, fid: int, earlier_ts: Ts) -> None:
        self.fid = fid
        self._earlier_ts = earlier_ts
        self.min_ts = TS_MAX  # of what the index knows
        self.max_ts = 0
        self.open: dict[int, None] = {}  # start_ts of prewrites without a later end in this file
        # start_ts: commit_ts (0: rolled back) of ends whose prewrite stands in an earlier file, or may do so
        self.ends: dict[int, int] = {}
        self._ended: set[int] = set()  # of the latest, in two generations as in the sorter
        self._ended_before: set[int] = set()

    def feed(self, records: Iterable[LogRecord]) -> None:
        """The next records of the file, in order."""
        for record in records:
            ts, start_ts = record.index_ts, record.start_ts
            if ts > self.max_ts:
                self.max_ts = ts
            if 0 < ts < self.min_ts:
                self.min_ts = ts
            if record.tp == PREWRITE:
                if not self._has_ended(start_ts):
                    self.open[start_ts] = None
            elif start_ts != record.commit_ts:
                begins_here = self.open.pop(start_ts, False) is None and start_ts > self._earlier_ts
                if not begins_here and not self._has_ended(start_ts):
                    self.ends[start_ts] = record.commit_ts
                self._ended.add(start_ts)
                if len(self._ended) >= _ENDED_MAX:
                    self._ended, self._ended_before = set(), self._ended

    def finish(self) -> None:
        """The file has been walked to its end."""
        self._ended, self._ended_before = set(), set()

    def _has_ended(self, start_ts: Ts) -> bool:
        return start_ts in self._ended or start_ts in self._ended_before

    @property
    def entries(self) -> int:
        """Measure of its memory."""
        return len(self.open) + len(self.ends)


@dataclass(frozen=True, slots=True)
class Straddler:
    """A transaction whose prewrite lies in file `fid` and whose commit in a later one."""

    fid: int
    start_ts: Ts
    commit_ts: Ts


class Straddlers:
    """Follows the prewrites of files that may go to their ends, file by file in order."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self.straddlers: list[Straddler] = []

    def feed(self, survey: Survey) -> None:
        """A file that may go, walked to its end."""
        self.take(survey)
        for start_ts in survey.open:
            self._open.setdefault(start_ts, survey.fid)

    def take(self, survey: Survey) -> bool:
        """What a walk over a later file has found so far; whether more has nothing to add."""
        for start_ts in self._open.keys() & survey.ends.keys():
            self.straddlers.append(Straddler(self._open.pop(start_ts), start_ts, survey.ends[start_ts]))
        return not self._open


@dataclass(frozen=True, slots=True)
class PurgePlan:
    """What goes: files up to `upto_fid`. Positions below `ts` are purged then, all others complete."""

    upto_fid: int
    ts: Ts
    bytes: int
    reasons: tuple[PurgeReason, ...]


def decide(files: Sequence[Candidate], straddlers: Sequence[Straddler], gc_ts: Ts) -> PurgePlan | None:
    """As many of the candidates as can go whole; their `max_ts` are those of a walk."""
    going = list(files)
    while going:
        last = going[-1]
        begun = [straddler for straddler in straddlers if straddler.fid <= last.file.fid]
        too_late = [straddler.fid for straddler in begun if straddler.commit_ts > last.ceiling]
        if not too_late:
            break
        going = [candidate for candidate in going if candidate.file.fid < min(too_late)]
    if not going:
        return None
    upto_fid = going[-1].file.fid
    gone = [candidate.file.max_ts or 0 for candidate in going]
    gone += [straddler.commit_ts for straddler in straddlers if straddler.fid <= upto_fid]
    reasons = tuple(dict.fromkeys(candidate.reason for candidate in going))
    return PurgePlan(upto_fid, max(gc_ts, *gone), sum(candidate.file.size for candidate in going), reasons)


@dataclass(frozen=True, slots=True)
class Outlook:
    """One drainer's prospect. `left_s`: until retention reaches what it needs next, at the present growth."""

    drainer: DrainerState
    live: bool
    lost: bool
    alarm: bool
    left_s: float
    reason: PurgeReason


def outlook(policy: Policy, now: Situation) -> list[Outlook]:
    """Every drainer that is not offline and has a checkpoint, held for or not."""
    prospects = []
    for drainer in now.drainers or ():
        if drainer.state == node.OFFLINE or not drainer.checkpoint:
            continue
        left_s, reason, alarm = math.inf, PurgeReason.AGE, False
        for cause, left, span in _spans(policy, now, drainer.checkpoint):
            # With a short retention a drainer that is up to date must not raise the alarm.
            alarm = alarm or left < min(policy.alarm_s, span / 2)
            if left < left_s:
                left_s, reason = left, cause
        lost = now.has_lost(drainer)
        prospects.append(
            Outlook(drainer, now.is_live(drainer), lost, alarm, 0.0 if lost else max(left_s, 0.0), reason)
        )
    return prospects


def _spans(policy: Policy, now: Situation, checkpoint: int) -> list[tuple[PurgeReason, float, float]]:
    """For each limit: seconds until it reaches the checkpoint, and what they are for the newest record."""
    spans = [(PurgeReason.AGE, policy.age_s - _s(now.now_ts - checkpoint), policy.age_s)]
    dated = [(file.max_ts, file.size) for file in now.files if file.max_ts is not None]
    if not dated:
        return spans
    oldest_ts, oldest_bytes = dated[0]
    applied = sum(size for max_ts, size in dated if max_ts <= checkpoint)
    whole = now.active_bytes + sum(file.size for file in now.files)
    since_s, grown = _s(now.now_ts - oldest_ts), whole - oldest_bytes
    if since_s <= 0 or not grown:
        return spans
    rate = grown / since_s  # bytes a second since the oldest file was full
    if policy.bytes_max:
        left = (policy.bytes_max - whole + applied) / rate
        spans.append((PurgeReason.BYTES, left, policy.bytes_max / rate))
    if policy.free_bytes_min:
        spare = now.free_bytes - policy.free_bytes_min
        all_closed = whole - now.active_bytes
        spans.append((PurgeReason.SPACE, (spare + applied) / rate, (max(spare, 0) + all_closed) / rate))
    return spans


class Alarms(Generic[Name]):
    """Which alarms are on: each is reported when it begins, hourly while it lasts, and when it ends."""

    def __init__(self, *, again_s: float = 3600.0) -> None:
        self._again_s = again_s
        self._reported_s: dict[Name, float] = {}

    def update(self, names: Iterable[Name], now_s: float) -> tuple[list[Name], list[Name]]:
        """The alarms that are on now; which to report, and which have ended."""
        on = list(dict.fromkeys(names))
        ended = [name for name in self._reported_s if name not in on]
        for name in ended:
            del self._reported_s[name]
        due = [name for name in on if now_s - self._reported_s.get(name, -math.inf) >= self._again_s]
        self._reported_s.update(dict.fromkeys(due, now_s))
        return due, ended

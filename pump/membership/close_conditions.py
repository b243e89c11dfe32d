"""Close conditions: when may a pump that an operator closes leave for good?

In     `drawn(ts)` for a time mark stored durably, `observe(snapshot)` again and again, `force()`
Out    `DrawMark` (draw a timestamp, store a time mark with it), `Leave`
Why    binlogs that no drainer has read are nowhere else. So: the first mark follows every prewrite that was
       admitted before the pump refused them; once the watermark has reached it and no prewrite is open,
       nothing is missing any more. The second mark follows all of it, and a drainer whose checkpoint has
       reached that one has read everything
Holds  `Leave` only when every drainer that has not left for good itself has everything, and there is at
       least one; or when forced. A paused or dead drainer will want its data when it comes back: the pump
       waits for it, and names it. A prewrite that turns up open after the marks starts all over: `TABLE`
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import Enum, StrEnum, auto
from typing import Final

from tidb_binlog import tso
from tidb_binlog.cluster import node
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.status.pump import AwaitedDrainer, LeavingStatus
from tidb_binlog.tso import Ts

_WINDOW_S: Final = 30.0  # over which a drainer's pace is measured


class Stage(StrEnum):
    """What an operator is shown."""

    SETTLING = "settling"  # prewrites are open, or not known to be settled
    READING = "reading"  # drainers read what is left
    LEAVING = "leaving"


@dataclass(frozen=True, slots=True)
class Reader:
    """A drainer's entry. `alive` as in `tidb_binlog.cluster.registry.NodeEntry`."""

    state: str
    alive: bool | None
    checkpoint: int


@dataclass(frozen=True, slots=True)
class CloseSnapshot:
    """The pump and the registry at one time. `drainers`: None while the registry does not answer.
    `trouble`: why no time mark can be stored; "" if it can."""

    now_s: float
    watermark: int
    open_count: int
    oldest_open: int  # start_ts, 0 without any
    drainers: Mapping[str, Reader] | None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class DrawMark:
    """Draw a timestamp, store a time mark with it, then call `drawn`."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Every drainer has read everything, or the operator does not wait for that."""


Effect = DrawMark | Leave


class Step(Enum):
    BEGUN = auto()
    FIRST_MARK = auto()  # is being drawn
    SETTLING = auto()
    SECOND_MARK = auto()  # is being drawn
    READING = auto()
    LEFT = auto()


class Event(Enum):
    OPEN = auto()  # prewrites are open
    WAITING = auto()  # none is, but what the step waits for has not come
    REACHED = auto()  # settling: the first mark, by the watermark; reading: the second, by every drainer too
    DRAWN = auto()  # the mark that was asked for is durable
    FORCED = auto()


_DRAW: Final[list[Effect]] = [DrawMark()]
_LEAVE: Final[list[Effect]] = [Leave()]
TABLE: Final[Mapping[tuple[Step, Event], tuple[Step, list[Effect]]]] = {
    (Step.BEGUN, Event.OPEN): (Step.FIRST_MARK, _DRAW),
    (Step.BEGUN, Event.WAITING): (Step.FIRST_MARK, _DRAW),
    (Step.BEGUN, Event.FORCED): (Step.LEFT, _LEAVE),
    (Step.FIRST_MARK, Event.OPEN): (Step.FIRST_MARK, []),
    (Step.FIRST_MARK, Event.WAITING): (Step.FIRST_MARK, []),
    (Step.FIRST_MARK, Event.DRAWN): (Step.SETTLING, []),
    (Step.FIRST_MARK, Event.FORCED): (Step.LEFT, _LEAVE),
    (Step.SETTLING, Event.OPEN): (Step.SETTLING, []),
    (Step.SETTLING, Event.WAITING): (Step.SETTLING, []),
    (Step.SETTLING, Event.REACHED): (Step.SECOND_MARK, _DRAW),
    (Step.SETTLING, Event.FORCED): (Step.LEFT, _LEAVE),
    (Step.SECOND_MARK, Event.OPEN): (Step.FIRST_MARK, []),  # the mark under way is the first one then
    (Step.SECOND_MARK, Event.WAITING): (Step.SECOND_MARK, []),
    (Step.SECOND_MARK, Event.DRAWN): (Step.READING, []),
    (Step.SECOND_MARK, Event.FORCED): (Step.LEFT, _LEAVE),
    (Step.READING, Event.OPEN): (Step.FIRST_MARK, _DRAW),
    (Step.READING, Event.WAITING): (Step.READING, []),
    (Step.READING, Event.REACHED): (Step.LEFT, _LEAVE),
    (Step.READING, Event.FORCED): (Step.LEFT, _LEAVE),
    (Step.LEFT, Event.OPEN): (Step.LEFT, []),
    (Step.LEFT, Event.WAITING): (Step.LEFT, []),
    (Step.LEFT, Event.FORCED): (Step.LEFT, []),
}
_STAGES: Final = {
    Step.SECOND_MARK: Stage.READING,
    Step.READING: Stage.READING,
    Step.LEFT: Stage.LEAVING,
}


@dataclass(slots=True)
class _Pace:
    """A drainer's checkpoint over the last seconds."""

    samples: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, now_s: float, checkpoint: int) -> None:
        self.samples.append((now_s, checkpoint))
        while self.samples[0][0] < now_s - _WINDOW_S:
            self.samples.popleft()

    @property
    def upstream_s_per_s(self) -> float:
        """Seconds of upstream time a second."""
        if not self.samples:
            return 0.0
        (first_s, first), (last_s, last) = self.samples[0], self.samples[-1]
        return _seconds(first, last) / (last_s - first_s) if last_s > first_s else 0.0


@dataclass(frozen=True, slots=True)
class Blocker:
    """A drainer that has not read everything. `left_s`: about how long it needs; None if it does not move."""

    node_id: str
    state: str
    alive: bool | None
    checkpoint: int
    behind_s: float
    left_s: float | None

    def __str__(self) -> str:
        why = f"is {self.behind_s:.1f} s behind" if self.checkpoint else "has said no checkpoint yet"
        if self.alive is False:
            why += ", its process is gone"
        elif self.state != node.ONLINE:
            why += f", it is {self.state}"
        elif self.left_s is None:
            why += " and does not move"
        else:
            why += f", about {self.left_s:.0f} s left"
        return f"{self.node_id} {why}"


class CloseConditions:
    """See the head of this file."""

    def __init__(self, began_s: float) -> None:
        self._began_s = began_s
        self.step = Step.BEGUN
        self.forced = False
        self._mark = self._target = 0
        self._latest: CloseSnapshot | None = None
        self._readers: dict[str, Reader] = {}
        self._paces: dict[str, _Pace] = {}

    @property
    def stage(self) -> Stage:
        return _STAGES.get(self.step, Stage.SETTLING)

    @property
    def target_ts(self) -> Ts:
        """The second mark, which every drainer has to reach; 0 while it is not known."""
        return self._target

    def force(self) -> None:
        """Wait for nothing any more."""
        self.forced = True

    def drawn(self, ts: Ts) -> None:
        """A time mark with this timestamp is durable."""
        self._take(Event.DRAWN)
        if self.step is Step.SETTLING:
            self._mark = ts
        else:
            self._target = ts

    def observe(self, snapshot: CloseSnapshot) -> list[Effect]:
        """What follows from the state of things."""
        if self.step is not Step.LEFT:
            self._note(snapshot)
        return self._take(self._event(snapshot))

    def _event(self, snapshot: CloseSnapshot) -> Event:
        if self.forced:
            return Event.FORCED
        if snapshot.open_count:
            return Event.OPEN
        if self.step is Step.SETTLING and snapshot.watermark >= self._mark:
            return Event.REACHED
        if self.step is Step.READING and snapshot.watermark >= self._target:
            is_read = snapshot.drainers is not None and self._readers and not self.blockers
            return Event.REACHED if is_read else Event.WAITING
        return Event.WAITING

    def _take(self, event: Event) -> list[Effect]:
        assert (self.step, event) in TABLE, (self.step, event)
        self.step, effects = TABLE[self.step, event]
        if self.step is Step.FIRST_MARK:
            self._target = 0
        return effects

    def _note(self, seen: CloseSnapshot) -> None:
        self._latest = seen
        if seen.drainers is None:
            return
        self._readers = {
            node_id: reader for node_id, reader in seen.drainers.items() if reader.state != node.OFFLINE
        }
        self._paces = {node_id: self._paces.get(node_id, _Pace()) for node_id in self._readers}
        for node_id, reader in self._readers.items():
            if reader.checkpoint:  # 0: it has not reported one yet
                self._paces[node_id].add(seen.now_s, reader.checkpoint)

    # -- shown -----------------------------------------------------------------------------------

    @property
    def blockers(self) -> list[Blocker]:
        """Drainers that have not reached the target: those that do not move first, then the slowest."""
        blockers: list[Blocker] = []
        for node_id, reader in self._readers.items():
            if reader.checkpoint >= self._target:
                continue
            behind_s = max(0.0, _seconds(reader.checkpoint, self._target))
            pace = self._paces[node_id].upstream_s_per_s
            left_s = behind_s / pace if pace > 0 and reader.alive is not False else None
            blockers.append(Blocker(node_id, reader.state, reader.alive, reader.checkpoint, behind_s, left_s))
        return sorted(
            blockers,
            key=lambda blocker: (blocker.left_s is not None, -(blocker.left_s or 0.0), blocker.node_id),
        )

    @property
    def waits_for(self) -> str:
        """One line; "" when nothing is waited for."""
        seen = self._latest
        if self.stage is Stage.LEAVING or seen is None:
            return ""
        if seen.trouble:
            return f"a time mark that cannot be stored: {seen.trouble}"
        if seen.open_count:
            return f"{seen.open_count} open prewrites, the oldest of start_ts {seen.oldest_open}"
        if not self._target or seen.watermark < self._target:
            return "the watermark, until everything stored is settled"
        if seen.drainers is None:
            return "the registry, which does not answer"
        if not self._readers:
            return "a drainer: none is registered, so what is stored here would never be read"
        return "drainers: " + "; ".join(map(str, self.blockers))

    def facts(self) -> LeavingStatus:
        """For `/status`: times in seconds, timestamps as the upstream counts them."""
        seen = self._latest
        blockers = self.blockers if self._target else []
        lefts = [blocker.left_s for blocker in blockers]
        finite = [left_s for left_s in lefts if left_s is not None]
        return LeavingStatus(
            stage=self.stage.value,
            forced=self.forced,
            since_s=0.0 if seen is None else round(seen.now_s - self._began_s, 3),
            target_ts=self._target,
            open_prewrites=0 if seen is None else seen.open_count,
            waits_for=self.waits_for,
            left_s=round(max(finite), 1) if finite and len(finite) == len(lefts) else None,
            drainers=[
                AwaitedDrainer(
                    node_id=blocker.node_id,
                    state=blocker.state,
                    alive=blocker.alive,
                    checkpoint=blocker.checkpoint,
                    behind_s=blocker.behind_s,
                    left_s=None if blocker.left_s is None else round(blocker.left_s, 1),
                )
                for blocker in blockers
            ],
        )


def _seconds(ts_from: int, ts_to: int) -> float:
    return (tso.physical_ms(ts_to) - tso.physical_ms(ts_from)) / 1000

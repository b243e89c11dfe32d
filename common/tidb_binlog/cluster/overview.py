"""Overview: what a cluster's nodes say, on one page: where each is, and what needs the operator.

Holds  what a node does not say is not guessed: a Go node gives a position and nothing else
Never  trusts a document's form: what is not what it should be counts as not said
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidb_binlog import time_text, tso
from tidb_binlog.cluster.node import CLOSING, OFFLINE, ONLINE, PAUSED, PAUSING
from tidb_binlog.cluster.registry import DRAINERS, PUMPS, life
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.status.codec import read
from tidb_binlog.status.drainer import DrainerDocument, LagStatus
from tidb_binlog.status.drainer_conditions import of_drainer
from tidb_binlog.status.pump import PumpDocument, PumpStatus, RetentionStatus
from tidb_binlog.status.pump_conditions import of_pump
from tidb_binlog.status.troubles import ERROR, WARNING, Trouble
from tidb_binlog.tso import Ts

EQUAL: Final = "equal"
QUIET_S: Final = 5.0
"""So old may be what quiet nodes have said: pumps store time marks 3 s apart. They are up to date."""
STAGES: Final = ("write", "sort_wait", "pull", "queue", "apply")


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """A node. `alive` as in `tidb_binlog.cluster.registry`; `told_ts`: its position by the registry;
    `update_ts`: when it said so; `document`: its /status, else `error` says why there is none. `reader`: a
    program."""

    kind: str
    node_id: str
    address: str
    state: str
    alive: bool | None
    told_ts: Ts
    update_ts: Ts
    document: Mapping[str, Any] | None
    error: str = ""
    reader: bool = False

    @property
    def label(self) -> str:
        """Name it for a sentence."""
        return label(self.kind, self.node_id, reader=self.reader)


def label(kind: str, node_id: str, *, reader: bool) -> str:
    """As a sentence, and `Trouble.node`, names a node."""
    return f"{'reader' if reader else kind[:-1]} {node_id}"


@dataclass(frozen=True, slots=True)
class Kept:
    """Where a drainer stands between what a pump has purged, `left_s` away, and now, `behind_s` away."""

    node_id: str
    left_s: float
    behind_s: float


@dataclass(frozen=True, slots=True)
class NodeLine:
    """What is shown of a node. `behind_s`: of the upstream, by what it says itself where its position is not
    older than a quiet stream makes it; `stages_s`: of a drainer's lag, all of STAGES or none; `kept`: by a
    pump, who is next to lose something first."""

    kind: str
    node_id: str
    address: str
    state: str
    alive: bool | None
    answers: bool
    position_ts: Ts
    behind_s: float | None
    stages_s: Mapping[str, float]
    doing: str
    reader: bool = False
    rows_per_s: float | None = None
    kept: tuple[Kept, ...] = ()

    @property
    def label(self) -> str:
        """As troubles name it."""
        return label(self.kind, self.node_id, reader=self.reader)

    @property
    def state_text(self) -> str:
        """The registry's word, and what speaks against it."""
        alive = life(self.state, self.alive)
        if alive == "dead":
            return f"{self.state}, dead"
        return self.state if self.answers or alive == "no" else f"{self.state}, no answer"


@dataclass(frozen=True, slots=True)
class Overview:
    now_ts: Ts
    nodes: tuple[NodeLine, ...]
    troubles: tuple[Trouble, ...]

    @property
    def worst(self) -> str:
        """The highest severity, "" for none."""
        severities = {trouble.severity for trouble in self.troubles}
        return next((severity for severity in (ERROR, WARNING) if severity in severities), "")


def build(nodes: Sequence[NodeSnapshot], now_s: float) -> Overview:
    """`now_s`: seconds since 1970 on this host, used where no node tells the upstream's time."""
    clocks = [read(seen.document, PumpDocument).commit_ts for seen in nodes if seen.kind == PUMPS]
    now_ts = max(clocks, default=0) or tso.from_wall_s(now_s)
    told = {seen.node_id: seen.told_ts for seen in nodes if seen.kind != PUMPS}
    lines = tuple(_line(seen, now_ts, told) for seen in nodes)
    troubles = [trouble for seen in nodes for trouble in _troubles(seen, now_ts)]
    return with_troubles(Overview(now_ts, lines, ()), [*troubles, *_of_all(nodes)])


def with_troubles(seen: Overview, troubles: Sequence[Trouble]) -> Overview:
    """The same with these besides, which no node says."""
    every = [*seen.troubles, *troubles]
    every.sort(key=lambda trouble: (trouble.severity != ERROR, trouble.node))
    return replace(seen, troubles=tuple(every))


def _seconds(now_ts: Ts, ts: Ts) -> float:
    return max(0.0, tso.physical_s(now_ts) - tso.physical_s(ts))


# Lines -----------------------------------------------------------------------------------------------------


def _line(seen: NodeSnapshot, now_ts: Ts, told: Mapping[str, Ts]) -> NodeLine:
    stages: dict[str, float] = {}
    said_s: float | None = None
    rows_per_s: float | None = None
    kept: tuple[Kept, ...] = ()
    if seen.kind == PUMPS:
        pump = read(seen.document, PumpDocument).pump
        position, doing = (0, "") if pump is None else (pump.watermark, _pump_doing(pump))
        lag_s = None if pump is None else pump.stages.sorted.lag_s
        said_s = lag_s if isinstance(lag_s, float) else None
        kept = () if pump is None else _kept(pump, now_ts, told)
    else:
        drainer = read(seen.document, DrainerDocument)
        position, doing = drainer.applied_ts or drainer.last_ts, _drainer_doing(drainer)
        if drainer.lag:
            stages, said_s = _stages(drainer.lag), drainer.lag.behind_s
            rows_per_s = drainer.lag.rows_per_s
    position = position or seen.told_ts
    behind_s = _seconds(now_ts, position) if position and seen.state != OFFLINE else None
    if behind_s is not None and behind_s < QUIET_S and said_s is not None:
        behind_s = said_s
    return NodeLine(
        seen.kind,
        seen.node_id,
        seen.address,
        seen.state,
        seen.alive,
        seen.document is not None,
        position,
        behind_s,
        stages,
        doing,
        seen.reader,
        rows_per_s,
        kept,
    )


def _kept(pump: PumpStatus, now_ts: Ts, told: Mapping[str, Ts]) -> tuple[Kept, ...]:
    """By the drainers' checkpoints of now: `told`, by the registry. A pump looks every ten minutes."""
    retention = pump.retention or RetentionStatus()
    kept = []
    for outlook in retention.drainers:
        if outlook.left_s is None or not 0 < outlook.checkpoint <= tso.TS_MAX:
            continue
        behind_s = _seconds(now_ts, max(outlook.checkpoint, told.get(outlook.node_id, 0)))
        behind_then_s = _seconds(now_ts, outlook.checkpoint) - (retention.last_run_s_ago or 0.0)
        left_s = 0.0 if outlook.lost else max(0.0, outlook.left_s + behind_then_s - behind_s)
        kept.append(Kept(outlook.node_id, left_s, behind_s))
    return tuple(sorted(kept, key=lambda drainer: drainer.left_s))


def _stages(lag: LagStatus) -> dict[str, float]:
    """All of STAGES, or none."""
    stages = {name: getattr(lag, f"{name}_s") for name in STAGES}
    return {} if None in stages.values() else stages


def _pump_doing(pump: PumpStatus) -> str:
    if pump.leaving is not None and pump.leaving.waits_for:
        return f"closing: waits for {pump.leaving.waits_for}"
    return f"{pump.open_prewrites} open prewrites"


def _drainer_doing(drainer: DrainerDocument) -> str:
    if not drainer.lag:
        return drainer.doing
    said = [f"{drainer.lag.rows_per_s:,.0f} rows/s", drainer.doing]
    if drainer.verify and drainer.verify.state == EQUAL:
        said.append(f"equal at {time_text.utc(drainer.verify.ts)}")
    return ", ".join(filter(None, said))


# Troubles --------------------------------------------------------------------------------------------------


def _troubles(seen: NodeSnapshot, now_ts: Ts) -> list[Trouble]:
    label = seen.label
    if seen.state == OFFLINE:
        return []
    if absent := _absence(seen, label, now_ts):
        return [absent]
    if seen.kind == PUMPS:
        troubles = of_pump(read(seen.document, PumpDocument), label)
    else:
        troubles = of_drainer(read(seen.document, DrainerDocument), label)
    if seen.state in (PAUSING, CLOSING) and seen.kind == DRAINERS:
        troubles.append(Trouble(WARNING, label, f"is {seen.state}"))
    return troubles


def _absence(seen: NodeSnapshot, label: str, now_ts: Ts) -> Trouble | None:
    """A node that is not there."""
    pump = seen.kind == PUMPS
    waits = (
        "drainers wait for what it holds" if pump else "pumps keep what it has not read as long as they can"
    )
    back = "start it again; if it never comes back: `binlogctl forget " + seen.node_id + "`"
    if seen.state == PAUSED and seen.document is None:
        # A reader is a program that ended in order; what it holds or loses the pumps say.
        return None if seen.reader else Trouble(ERROR, label, f"is paused: {waits}", back)
    if seen.alive is False:
        return Trouble(ERROR, label, f"is dead: {waits}", back)
    if seen.document is None:
        renewed = (
            "" if seen.alive else f"; it last renewed its entry {_seconds(now_ts, seen.update_ts):.0f} s ago"
        )
        where = f"is {seen.state} but does not answer at {seen.address}: {seen.error}{renewed}"
        return Trouble(ERROR, label, where, "see its log; can this host reach it?")
    return None


def _of_all(nodes: Sequence[NodeSnapshot]) -> list[Trouble]:
    troubles = _twins(nodes)
    living = [seen for seen in nodes if seen.alive is not False]
    if not any(seen.kind == PUMPS and seen.state == ONLINE for seen in living):
        troubles.append(Trouble(ERROR, "cluster", "no pump is online: no binlogs are taken", "start a pump"))
    if not any(seen.kind == DRAINERS and seen.state == ONLINE for seen in living):
        troubles.append(
            Trouble(ERROR, "cluster", "no drainer is online: nothing is replicated", "start a drainer")
        )
    return troubles


def _twins(nodes: Sequence[NodeSnapshot]) -> list[Trouble]:
    """Two entries with one address: one process answers for both, and one of them never comes back."""
    sharing: dict[str, list[NodeSnapshot]] = {}
    for seen in nodes:
        if seen.state != OFFLINE and seen.address:
            sharing.setdefault(seen.address, []).append(seen)
    hint = "one process answers there; take the other one out: `binlogctl forget NODE`"
    named = {
        address: " and ".join(twin.label for twin in twins)
        for address, twins in sharing.items()
        if len(twins) > 1
    }
    return [
        Trouble(ERROR, "cluster", f"{names} are both registered at {address}", hint)
        for address, names in named.items()
    ]

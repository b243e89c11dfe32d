"""Resume: where a starting drainer begins, decided from everything that is stored.

Out    `Start`, or the reason for which it must not start
Holds  nothing is applied again that the lanes have recorded; nothing is left out in any case

    the row                                  our state      written last by   begins at
    none                                     none           no program        `initial_ts`
    none                                     any            this program      the lanes, our checkpoint
    without `epoch`                          any            another program   the row, safe mode up to now
    with `epoch`                             no checkpoint  another program   the row, safe mode up to now
    of a newer epoch, or not what we stored  any            another program   the row, safe mode up to now
    the same, on a server of its own         any            this program      the lanes, our checkpoint
    what we stored                           any            this program      the lanes, our checkpoint

A lane below the checkpoint stands at the checkpoint. "Another program" may be a Go drainer or a person; the
lanes are outdated then, and `consistent` is not believed: a Go drainer clears it with its first save, not at
its start. On a server of its own the row is written after the downstream: one that is ahead says that the
downstream went back in time, and where its rows are is in the lanes.

Never  guesses: what another drainer works on, a cluster that is new here beside known ones, and a checkpoint
       above the upstream's time are refused
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from drainer.checkpoint.fencing import check_owner, next_epoch
from drainer.checkpoint.lane_basis import HASH_VERSION, StoredBasis
from drainer.checkpoint.safe_mode import SafeMode
from drainer.checkpoint.value import Checkpoint, Intent
from drainer.mysql.rows.change import COMPLETE, Position
from tidb_binlog.errors import Conflict, Corruption
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.tso import Ts


@dataclass(frozen=True, slots=True)
class DrainerState:
    """What a drainer of ours keeps beside the lanes. `owner` is the node id of the last one."""

    epoch: int
    owner: str
    checkpoint: Checkpoint | None
    intent: Intent | None

    @classmethod
    def from_row(cls, epoch: Any, owner: Any, checkpoint: str | None, intent: str | None) -> DrainerState:
        """Of a row of `drainer_state`. Raises `Corruption`."""
        return cls(
            int(epoch),
            str(owner),
            Checkpoint.from_json(checkpoint) if checkpoint else None,
            Intent.from_json(intent) if intent else None,
        )


@dataclass(frozen=True, slots=True)
class StoredState:
    """Everything stored for a cluster. `lanes` may be empty, parts of it may be missing.

    `elsewhere`: the row lives on a server of its own and may lag behind the state by the last save. `basis`:
    what is stored of what the lanes' positions belong to.
    """

    row: Checkpoint | None
    state: DrainerState | None = None
    lanes: tuple[Position, ...] = ()
    other_clusters: tuple[int, ...] = ()
    elsewhere: bool = False
    basis: StoredBasis | None = None


@dataclass(frozen=True, slots=True)
class StarterInfo:
    """The starting drainer. `now_ts` is a timestamp drawn now; `living` are node ids whose lease is held.

    `initial_ts` is where a cluster without a checkpoint begins; `initial_is_given`: it is in the
    configuration.
    """

    cluster_id: int
    lane_count: int
    initial_ts: Ts
    now_ts: Ts
    initial_is_given: bool = True
    owner: str = ""
    living: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """What a starting drainer finds, after it has fenced off its predecessors.

    `checkpoint` is what was stored, None when the cluster had nothing. `positions` has one entry a lane,
    never below `floor_ts`, the checkpoint's commit_ts. `foreign`: another program wrote the checkpoint last.
    `basis`: what the positions belong to, None where it is not known or does not count any more.
    """

    epoch: int
    checkpoint: Checkpoint | None
    positions: tuple[Position, ...]
    intent: Intent | None
    safe_mode: SafeMode = field(default_factory=SafeMode)
    floor_ts: Ts = 0
    foreign: bool = False
    basis: StoredBasis | None = None

    @property
    def past_ts(self) -> Ts:
        """Rows and DDL up to here may have gone downstream before this start."""
        return max(*(position.commit_ts for position in self.positions), self.intent_ts)

    @property
    def intent_ts(self) -> Ts:
        """commit_ts of the DDL that was under way; 0 if none was."""
        return self.intent.commit_ts if self.intent is not None else 0

    @property
    def drained(self) -> bool:
        """All lanes stand at the same position, between two transactions."""
        return len(set(self.positions)) == 1 and self.positions[0].rows == COMPLETE


def resume_point(stored: StoredState, starter: StarterInfo) -> Start:
    """Raises `Conflict` when the checkpoint is another drainer's, `Corruption` when it cannot be right."""
    state = stored.state
    check_owner(starter.cluster_id, state.owner if state else "", starter.owner, starter.living)
    _check_clusters(stored, starter)
    foreign = is_foreign(stored)
    checkpoint = stored.row if foreign or state is None else state.checkpoint
    floor_ts = checkpoint.commit_ts if checkpoint and checkpoint.commit_ts else starter.initial_ts
    floor = Position(floor_ts)
    positions = () if foreign else tuple(max(lane, floor, key=Position.order_key) for lane in stored.lanes)
    if checkpoint is not None:
        _check_future(max((floor, *positions), key=Position.order_key), starter)
    positions = positions or (floor,)
    if len(set(positions)) == 1 and positions[0].rows == COMPLETE:
        positions = (positions[0],) * starter.lane_count
    start = Start(
        epoch=next_epoch(state.epoch if state else 0, starter.now_ts),
        checkpoint=checkpoint,
        positions=positions,
        intent=state.intent if state else None,
        safe_mode=SafeMode.at_start(
            checkpoint.safe_until if checkpoint else 0, starter.now_ts, foreign=foreign
        ),
        floor_ts=floor_ts,
        foreign=foreign,
    )
    return replace(start, basis=None if foreign else _basis(stored.basis, drained=start.drained))


def _basis(stored: StoredBasis | None, *, drained: bool) -> StoredBasis | None:
    """What is stored of it, as far as it counts: of lanes at one position only the rules do."""
    if stored is None or (drained and not stored.is_known):
        return None
    if not stored.is_known:
        raise Corruption(
            f"the lanes' positions are those of another release (hash version {stored.hash_version}, known is"
            f" {HASH_VERSION}): rows between them would be applied twice or not at all",
            hint="start that release again and stop it gracefully: all lanes then stand at one position,"
            " from which this one can resume",
        )
    return replace(stored, tables={}) if drained else stored


def is_foreign(stored: StoredState) -> bool:
    """Whether another program, or a person, wrote the row since our last save."""
    row, state = stored.row, stored.state
    if row is None:
        return False
    if row.epoch is None or state is None or state.checkpoint is None:
        return True
    if stored.elsewhere:
        return False
    return row.epoch > state.epoch or row.commit_ts != state.checkpoint.commit_ts


def _check_clusters(stored: StoredState, starter: StarterInfo) -> None:
    """A new cluster id beside known ones is more often a wrong upstream than a second one."""
    if stored.row is None and stored.state is None and stored.other_clusters and not starter.initial_is_given:
        others = ", ".join(str(cluster_id) for cluster_id in stored.other_clusters[:4])
        raise Conflict(
            f"the checkpoint table has nothing of cluster {starter.cluster_id}, but of cluster {others}",
            hint="check pd-urls; for a second upstream set initial-commit-ts, or another"
            " syncer.to.checkpoint.schema",
        )


class AheadOfUpstream(Corruption):
    """The checkpoint has a timestamp that the upstream has not reached."""


def _check_future(highest: Position, starter: StarterInfo) -> None:
    if highest.commit_ts > starter.now_ts:
        raise AheadOfUpstream(
            f"the checkpoint of cluster {starter.cluster_id} is at {highest.commit_ts}, but the upstream is"
            f" at {starter.now_ts}: it went back in time, or is another one with the same id",
            hint="check pd-urls; after restoring the upstream, restore the downstream to the same time and"
            " delete the rows of this cluster from the checkpoint's tables",
        )

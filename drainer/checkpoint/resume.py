"""Takeover: where a starting drainer goes on, decided from everything that is stored.

In     `Found`: the Go-format row, our state beside the lanes, the lanes' rows, other clusters' rows
Out    `Start`, or the reason for which it must not start
Holds  nothing applied is applied again where the lanes can tell; nothing is left out in any case
Why    three programs may have written last. *We*: lanes are the truth, the row is what we stored. *Another
       program* (no `epoch` in the row, or a newer one than our state's, or not the value that we stored): the
       row is the truth, the lanes are outdated, and rows up to now may be downstream already (safe mode).
       *Nobody*: `initial_ts`. `consistent` of another program's row is not believed: a Go drainer clears it
       with its first save, not at its start.
Never  begins quietly elsewhere than where somebody stopped: clashes are refused, see `check_owner` and below
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from common.errors import Conflict, Corruption
from drainer.checkpoint.lane_basis import HASH_VERSION, StoredBasis
from drainer.checkpoint.value import Checkpoint, Intent
from drainer.sink.mysql.change import COMPLETE, Position


@dataclass(frozen=True, slots=True)
class State:
    """What a drainer of ours keeps beside the lanes. `owner` is the node id of the last one."""

    epoch: int
    owner: str
    checkpoint: Checkpoint | None
    intent: Intent | None


@dataclass(frozen=True, slots=True)
class Found:
    """Everything stored for a cluster. `lanes` may be empty, parts of it may be missing.

    `elsewhere`: the row lives on a server of its own and may lag behind the state by the last save. `basis`:
    what is stored of what the lanes' positions belong to.
    """

    row: Checkpoint | None
    state: State | None = None
    lanes: tuple[Position, ...] = ()
    other_clusters: tuple[int, ...] = ()
    elsewhere: bool = False
    basis: StoredBasis | None = None


@dataclass(frozen=True, slots=True)
class Beginner:
    """The starting drainer. `now_ts` is a timestamp drawn now; `living` are node ids whose lease is held.

    `initial_ts` is where a cluster without a checkpoint begins; `initial_is_given`: somebody chose it.
    """

    cluster_id: int
    lane_count: int
    initial_ts: int
    now_ts: int
    initial_is_given: bool = True
    owner: str = ""
    living: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """What a starting drainer finds, after it has fenced off its predecessors.

    `checkpoint` is what was stored, None when the cluster had nothing. `positions` has one entry a lane,
    never below `floor_ts`, the checkpoint's place. `safe_until`: rows up to this commit_ts may already be
    downstream. `foreign`: another program wrote the checkpoint last. `basis`: what the positions belong to,
    None where it is not known, or nobody's any more.
    """

    epoch: int
    checkpoint: Checkpoint | None
    positions: tuple[Position, ...]
    intent: Intent | None
    safe_until: int
    floor_ts: int = 0
    foreign: bool = False
    basis: StoredBasis | None = None

    @property
    def past_ts(self) -> int:
        """Rows and DDL up to here may have gone downstream before this start."""
        return max(*(position.commit_ts for position in self.positions), self.intent_ts)

    @property
    def intent_ts(self) -> int:
        """commit_ts of the DDL that was under way; 0 if none was."""
        return self.intent.commit_ts if self.intent is not None else 0

    @property
    def drained(self) -> bool:
        """All lanes stand at the same place, between two transactions."""
        return len(set(self.positions)) == 1 and self.positions[0].rows == COMPLETE


def take_over(found: Found, beginner: Beginner) -> Start:
    """Raises `Conflict` when the place belongs to somebody else, `Corruption` when it cannot be right."""
    check_owner(found.state.owner if found.state else "", beginner)
    _check_clusters(found, beginner)
    foreign = is_foreign(found)
    checkpoint = found.row if foreign or found.state is None else found.state.checkpoint
    floor_ts = checkpoint.commit_ts if checkpoint and checkpoint.commit_ts else beginner.initial_ts
    floor = Position(floor_ts)
    positions = () if foreign else tuple(max(lane, floor, key=place) for lane in found.lanes)
    if checkpoint is not None:
        _check_future(max((floor, *positions), key=place), beginner)
    positions = positions or (floor,)
    if len(set(positions)) == 1 and positions[0].rows == COMPLETE:
        positions = (positions[0],) * beginner.lane_count
    start = Start(
        epoch=next_epoch(found.state, beginner),
        checkpoint=checkpoint,
        positions=positions,
        intent=found.state.intent if found.state else None,
        safe_until=beginner.now_ts if foreign else checkpoint.safe_until if checkpoint else 0,
        floor_ts=floor_ts,
        foreign=foreign,
    )
    return replace(start, basis=None if foreign else _basis(found.basis, drained=start.drained))


def _basis(found: StoredBasis | None, *, drained: bool) -> StoredBasis | None:
    """What is stored of it, as far as it counts: of lanes at one place only the rules do."""
    if found is None or (drained and not found.is_known):
        return None
    if not found.is_known:
        raise Corruption(
            f"the lanes' positions are those of another release (hash version {found.hash_version}, known is"
            f" {HASH_VERSION}): rows between them would be applied twice or not at all",
            hint="start that release again and stop it gracefully: all lanes then stand at one place, from"
            " where this one can go on",
        )
    return replace(found, tables={}) if drained else found


def next_epoch(state: State | None, beginner: Beginner) -> int:
    """Never one that any start had before, on whatever server: timestamps are drawn once. A server that went
    back in time would give a mere count a second time."""
    return max((state.epoch if state else 0) + 1, beginner.now_ts)


def is_foreign(found: Found) -> bool:
    """Whether another program, or a person, wrote the row since our last save.

    On a server of its own a row of ours is never ahead of the downstream, which is written first: one that is
    says that the downstream went back in time, and where its rows are is in the lanes.
    """
    row, state = found.row, found.state
    if row is None:
        return False
    if row.epoch is None or state is None or state.checkpoint is None:
        return True
    if found.elsewhere:
        return False
    return row.epoch > state.epoch or row.commit_ts != state.checkpoint.commit_ts


def place(position: Position) -> tuple[int, int]:
    """Order of positions: a complete transaction is behind any part of it."""
    return (position.commit_ts, position.rows if position.rows != COMPLETE else 1 << 62)


def check_owner(owner: str, beginner: Beginner) -> None:
    """Raises `Conflict` if the last drainer has another id and is running."""
    if owner and beginner.owner and owner != beginner.owner and owner in beginner.living:
        raise Conflict(
            f"drainer {owner} is running and works on the checkpoint of cluster {beginner.cluster_id}, which"
            f" drainer {beginner.owner} is to use",
            hint=f"stop {owner} first, or give this one its own syncer.to.checkpoint.schema",
        )


def _check_clusters(found: Found, beginner: Beginner) -> None:
    """A new cluster id beside known ones is more often a wrong upstream than a second one."""
    if found.row is None and found.state is None and found.other_clusters and not beginner.initial_is_given:
        known = ", ".join(str(cluster_id) for cluster_id in found.other_clusters[:4])
        raise Conflict(
            f"the checkpoint table has nothing of cluster {beginner.cluster_id}, but of cluster {known}",
            hint="check pd-urls; for a second upstream set initial-commit-ts, or another"
            " syncer.to.checkpoint.schema",
        )


class AheadOfUpstream(Corruption):
    """The checkpoint has a timestamp that the upstream has not reached."""


def _check_future(highest: Position, beginner: Beginner) -> None:
    if highest.commit_ts > beginner.now_ts:
        raise AheadOfUpstream(
            f"the checkpoint of cluster {beginner.cluster_id} is at {highest.commit_ts}, but the upstream is"
            f" at {beginner.now_ts}: it went back in time, or is another one with the same id",
            hint="check pd-urls; after restoring the upstream, restore the downstream to the same moment and"
            " delete the rows of this cluster from the checkpoint's tables",
        )

"""Recovery: what to believe of the files found at start, decided from numbers alone.

In     sizes of the log files, the positions remembered in the index, what a scan of the newest file found
Out    `RecoveryPlan`: where to verify and where to replay from; `judge_tear`: cut or refuse
Why    the index is written after the records it names are on the medium, so everything up to its head
       must be valid. After the head, one writer with one fdatasync a group leaves at most the last group
       unsynced: only there may bytes be torn, and only in the newest file
Never  reads a file; `storage` does what is decided here
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pump.log.record import START, ValuePointer
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.record import VALUE_HEADER_SIZE

_LOST = "restore the missing file, or remove the directory `kv` to accept the loss and rebuild the index"


@dataclass(frozen=True, slots=True)
class FoundSegment:
    """One log file: its number and its size in bytes."""

    fid: int
    size: int


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """`verify_from` lies in the newest file; `replay_from` is where index and sorter continue."""

    verify_from: ValuePointer
    replay_from: ValuePointer


def plan(segments: Sequence[FoundSegment], head: ValuePointer, handle: ValuePointer) -> RecoveryPlan:
    """Where to continue. `segments` ascending and not empty; `Corruption` if files or bytes are missing.

    `head`: last record in the index. `handle`: last record that the sorter had decided with all before it.
    """
    assert segments
    for before, after in itertools.pairwise(segments):
        if after.fid != before.fid + 1:
            raise Corruption(
                f"value log file {before.fid + 1:06d}.vlog is missing: "
                f"{before.fid:06d} and {after.fid:06d} are there",
                hint="restore the file from a backup",
            )
    first, last = segments[0], segments[-1]
    for name, pointer in (("index", head), ("sorter position", handle)):
        beyond = pointer.fid > last.fid or (
            pointer.fid == last.fid and pointer.offset + VALUE_HEADER_SIZE > last.size
        )
        if pointer != START and beyond:
            raise Corruption(
                f"the {name} knows a record at {pointer.fid:06d}.vlog offset {pointer.offset}, "
                f"but the value log ends at {last.fid:06d}.vlog offset {last.size}",
                hint=_LOST,
            )
    beginning = ValuePointer(first.fid, 0)
    verify_from = head if head.fid == last.fid else ValuePointer(last.fid, 0)
    return RecoveryPlan(verify_from, max(beginning, min(head, handle)))


@dataclass(frozen=True, slots=True)
class Tear:
    """The newest file holds no whole record at `offset`; `later`: a valid record after it, if any,
    one that lies further away than a group if there is one; `pair_after`: a prewrite follows and, later,
    the end of its transaction."""

    offset: int
    size: int
    reason: str
    later: int | None
    pair_after: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """Drop everything from `offset` on; `suspect` if valid-looking records are lost with it."""

    offset: int
    suspect: bool


@dataclass(frozen=True, slots=True)
class RefuseStart:
    """Do not start: acknowledged bytes are damaged at `offset`."""

    offset: int
    reason: str


def judge_tear(
    tear: Tear, *, acknowledged_to: int, group_bytes_max: int, loss_accepted: bool = False
) -> Cut | RefuseStart:
    """What to do about a tear.

    `acknowledged_to`: offset in this file before which everything was certainly acknowledged.
    `group_bytes_max`: most bytes that one unsynced group of several records can hold.
    """
    if loss_accepted:
        return Cut(tear.offset, tear.later is not None)
    if tear.offset < acknowledged_to:
        return RefuseStart(tear.offset, f"{tear.reason}; it had been acknowledged")
    if tear.later is not None and tear.later - tear.offset > group_bytes_max:
        return RefuseStart(tear.offset, f"{tear.reason}; a valid record follows at offset {tear.later}")
    if tear.pair_after:
        # An end is sent when its prewrite was acknowledged: what lies in front of the prewrite was synced.
        # Go pumps leave such files: they append after what a kill tore.
        return RefuseStart(tear.offset, f"{tear.reason}; a transaction stands after it with its end")
    return Cut(tear.offset, tear.later is not None)

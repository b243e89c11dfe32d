"""Admission: may this write enter?

Out    `Store`, `Probe` (answer yes, store nothing) or `Refuse(reason, text)`
Why    a prewrite opens work and needs a node that stays and a disk with space; its end is taken in every
       state and from the reserve below the disk floor, because refusing it would leave the prewrite open.
       No write gets the last of the reserve: a log that ran into a full disk takes nothing until a restart,
       while a refused end is sent again. No timestamp from the future is taken: what is acknowledged has to
       arrive soon. A prewrite takes memory until it ends, which may have to be asked for at its key: so many
       may be open, and the key is one that a store can have
Never  changes the texts: old clients match on them. They give up at once what is too large for any pump, and
       only that: a full disk must not read so
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from pump.index.sorter import NO_PREWRITES, Prewrites
from tidb_binlog import time_text
from tidb_binlog.binlog import KEY_BYTES_MAX, PREWRITE, Head
from tidb_binlog.cluster import node
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import TS_MAX, Ts

PAYLOAD_BYTES_MAX: Final = (1 << 31) - 1 - (1 << 20)
"""Joined with its end and wrapped for a drainer, a prewrite must fit a message of gRPC: 31 bits."""
_RESERVE_LEFT_SHARE: Final = 16


class Reason(StrEnum):
    CLUSTER = "cluster"
    PAYLOAD = "payload"
    STATE = "state"
    DISK = "disk"
    WRITER = "writer"
    SIZE = "size"
    TIMESTAMP = "timestamp"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Store:
    """Write it to the log."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The client only asks whether this pump would take a prewrite."""


@dataclass(frozen=True, slots=True)
class Refuse:
    reason: Reason
    text: str


Verdict = Store | Probe | Refuse

STORE = Store()
PROBE = Probe()


@dataclass(frozen=True, slots=True)
class Disk:
    """Free bytes of the data directory's file system, and the floor below which no prewrite enters."""

    available: int
    floor: int

    @property
    def is_full(self) -> bool:
        """No prewrite enters."""
        return self.available <= self.floor

    @property
    def is_exhausted(self) -> bool:
        """No end enters either: of the reserve below the floor a sixteenth is left."""
        return self.available <= self.floor // _RESERVE_LEFT_SHARE


def cluster(requested: int, own: int) -> Refuse | None:
    """A request of another cluster is refused before anything of it is read."""
    if requested == own:
        return None
    return Refuse(Reason.CLUSTER, f"cluster ID are mismatch, {requested} vs {own}")


def admit(
    head: Head,
    size: int,
    state: str,
    disk: Disk,
    limit_ts: Ts = TS_MAX,
    *,
    prewrites: Prewrites = NO_PREWRITES,
    key_bytes: int = 1,
) -> Verdict:
    """What to do with a decoded write of `size` bytes. No timestamp above `limit_ts` can have been drawn.
    `key_bytes`: how long its key is, 0 without one."""
    tp, start_ts, commit_ts = head
    if tp == PREWRITE and state != node.ONLINE:
        return Refuse(Reason.STATE, f"no online: {state}")
    if disk.is_full and (tp == PREWRITE or disk.is_exhausted):
        return Refuse(
            Reason.DISK,
            f"no available space, available: {disk.available}, StopWriteAtAvailableSpace: {disk.floor}",
        )
    if size > PAYLOAD_BYTES_MAX:
        return Refuse(Reason.SIZE, f"grpc: received message larger than max ({size} vs. {PAYLOAD_BYTES_MAX})")
    if start_ts == 0 and commit_ts == 0:
        return PROBE
    if start_ts <= 0 or commit_ts < 0:
        text = (
            f"start_ts {start_ts}, commit_ts {commit_ts}: no oracle gives them, and no reader could get them"
        )
        return Refuse(Reason.PAYLOAD, text)
    if start_ts > limit_ts or commit_ts > limit_ts:
        return Refuse(
            Reason.TIMESTAMP,
            f"start_ts {start_ts}, commit_ts {commit_ts}: the upstream cannot have given a timestamp above "
            f"{limit_ts} ({time_text.utc(limit_ts)}) yet; draw timestamps from the oracle of this cluster",
        )
    if tp == PREWRITE:
        return _admit_prewrite(prewrites, key_bytes)
    return STORE


def _admit_prewrite(prewrites: Prewrites, key_bytes: int) -> Verdict:
    if key_bytes > KEY_BYTES_MAX:
        text = (
            f"prewrite_key has {key_bytes} bytes, {KEY_BYTES_MAX} at most are taken: no store has such a key"
        )
        return Refuse(Reason.PAYLOAD, text)
    if not key_bytes and prewrites.need_keys:
        return Refuse(Reason.PAYLOAD, "prewrite_key is missing: the end of a transaction is asked for there")
    if prewrites.are_full:
        return Refuse(
            Reason.OPEN,
            f"too many open prewrites: {prewrites.open} wait for their end here, {prewrites.most} may; end "
            "transactions with a commit or a rollback, or use another pump; see `oldest` in /status",
        )
    return STORE


def are_drawn(heads: Sequence[Head], limit_ts: Ts) -> bool:
    """Whether none of them is a probe, or has a timestamp that no oracle can have given."""
    return not [1 for _, start, commit in heads if not (0 < start <= limit_ts and 0 <= commit <= limit_ts)]


def takes_all(size: int, state: str, disk: Disk, prewrites: Prewrites = NO_PREWRITES) -> bool:
    """Whether every write that is no probe is stored, of at most `size` bytes each, if `binlog.keys_fit`."""
    return state == node.ONLINE and not disk.is_full and size <= PAYLOAD_BYTES_MAX and not prewrites.are_full

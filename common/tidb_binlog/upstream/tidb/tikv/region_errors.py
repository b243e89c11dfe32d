"""Region errors: what to do about each answer "not here, not now" of TiKV.

Out    what to change in what is known of regions and stores, how long to wait, whether to continue at all
Why    such an error comes inside a successful reply; it is the normal way to learn that a region has moved
Holds  nothing but the pauses handed out so far, for one operation
Never  retries for ever without a pause: after a few changes of place in a row each costs a short one
"""

from __future__ import annotations

import random
from enum import Enum
from typing import Final

from tidb_binlog.backoff import Backoff
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.upstream.tidb.tikv.regions import Peer, Region, peer_of_message, region_of_message
from tidb_binlog.wire import errorpb_pb2

AT_ONCE_MAX: Final = 3


class CacheChange(Enum):
    """What the error says about what is known."""

    NOTHING = "ask the same peer again"
    LEADER = "ask the peer that leads now"
    REGIONS = "take the regions that are there now"
    DROP_REGION = "ask PD where the key is"
    DROP_STORE = "ask PD where the key and the store are"
    FAIL = "asking again is pointless"


@dataclass(frozen=True, slots=True)
class Pause:
    """How long to wait before the next try: doubling steps from `first_s` to `max_s`."""

    first_s: float
    max_s: float


PLACE: Final = Pause(0.002, 0.5)
COMMAND: Final = Pause(0.002, 1.0)
READY: Final = Pause(0.002, 2.0)
BUSY: Final = Pause(2.0, 10.0)
FULL: Final = Pause(0.5, 5.0)
RECOVERY: Final = Pause(0.1, 10.0)
WITNESS: Final = Pause(1.0, 10.0)
NETWORK: Final = Pause(0.1, 2.0)


@dataclass(frozen=True, slots=True)
class Decision:
    """`pause` None: at once. `least_s`: the server's own wish."""

    kind: str
    change: CacheChange
    pause: Pause | None = None
    leader: Peer | None = None
    regions: tuple[Region, ...] = ()
    least_s: float = 0.0


_TABLE: Final[dict[str, tuple[CacheChange, Pause | None]]] = {
    "region_not_found": (CacheChange.DROP_REGION, PLACE),
    "key_not_in_region": (CacheChange.DROP_REGION, PLACE),
    "server_is_busy": (CacheChange.NOTHING, BUSY),
    "stale_command": (CacheChange.NOTHING, COMMAND),
    "store_not_match": (CacheChange.DROP_STORE, None),
    "raft_entry_too_large": (CacheChange.FAIL, None),
    "max_timestamp_not_synced": (CacheChange.NOTHING, PLACE),
    "read_index_not_ready": (CacheChange.NOTHING, PLACE),
    "proposal_in_merging_mode": (CacheChange.NOTHING, PLACE),
    "data_is_not_ready": (CacheChange.NOTHING, READY),
    "region_not_initialized": (CacheChange.NOTHING, COMMAND),
    "disk_full": (CacheChange.NOTHING, FULL),
    "RecoveryInProgress": (CacheChange.NOTHING, RECOVERY),
    # Go clients fail; it passes, and a drainer would end because of it.
    "FlashbackInProgress": (CacheChange.NOTHING, RECOVERY),
    "FlashbackNotPrepared": (CacheChange.FAIL, None),
    "is_witness": (CacheChange.DROP_REGION, WITNESS),
    "mismatch_peer_id": (CacheChange.DROP_REGION, PLACE),
    "bucket_version_not_match": (CacheChange.DROP_REGION, PLACE),
    "undetermined_result": (CacheChange.DROP_REGION, PLACE),
}
UNKNOWN: Final = "unknown region error"


def decide(error: errorpb_pb2.Error) -> Decision:
    """What a region error asks for. Raises `Corruption` for boundaries that are no keys."""
    kind = next((field.name for field, _ in error.ListFields() if field.name != "message"), UNKNOWN)
    if kind == "not_leader":
        if error.not_leader.leader.id:
            leader = peer_of_message(error.not_leader.leader)
            return Decision(kind, CacheChange.LEADER, leader=leader)
        return Decision(kind, CacheChange.DROP_REGION, PLACE)
    if kind == "epoch_not_match":
        regions = tuple(map(region_of_message, error.epoch_not_match.current_regions))
        return Decision(kind, CacheChange.REGIONS, regions=regions)
    change, pause = _TABLE.get(kind, (CacheChange.DROP_REGION, PLACE))
    least_s = error.server_is_busy.backoff_ms / 1000 if kind == "server_is_busy" else 0.0
    return Decision(kind, change, pause, least_s=least_s)


class Pauses:
    """The pauses of one operation; each kind of error has its own growing steps."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng
        self._steps: dict[Pause, Backoff] = {}
        self._at_once = 0

    def next_s(self, pause: Pause | None, least_s: float = 0.0) -> float:
        """Seconds to wait now; 0 at once."""
        if pause is None:
            self._at_once += 1
            if self._at_once <= AT_ONCE_MAX:
                return least_s
            pause = PLACE
        steps = self._steps.get(pause)
        if steps is None:
            steps = self._steps[pause] = Backoff(pause.first_s, pause.max_s, self._rng)
        return max(steps.next_s(), least_s)

"""Garbage hold: the schema at the checkpoint stays readable upstream while a drainer runs.

Drives  `tidb_binlog.upstream.garbage_hold`
In      where the checkpoint is
Why     a start has the schema that is stored with the checkpoint; the upstream's is for a start that cannot
        use that
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidb_binlog.upstream.garbage_hold import BACK_MAX_S, Held, Hold
from tidb_binlog.upstream.upstream_time import UpstreamTime
from tidb_binlog.upstream_port import GarbageHold

__all__ = ["BACK_MAX_S", "RENEW_S", "TTL_S", "CheckpointHold"]

TTL_S: Final = 300
RENEW_S: Final = 150.0
_SCHEMA: Final = Held(
    what="the schema at the checkpoint",
    is_old="the checkpoint is more than a day back, its schema is not held any more",
    is_late="the schema at the checkpoint is collected already",
    hint="a start that cannot use the schema stored with the checkpoint reads the whole DDL history",
)


class CheckpointHold(Hold):
    """`position` is the commit_ts of the stored checkpoint, 0 while there is none."""

    def __init__(self, garbage: GarbageHold, position: Callable[[], int], time: UpstreamTime) -> None:
        name = f"drainer_{int(time.now_s() * 1e9)}"
        super().__init__(garbage, name, position, time, _SCHEMA, ttl_s=TTL_S, renew_s=RENEW_S)

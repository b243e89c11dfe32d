"""What a benchmark is told, and the cluster most of them run on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from binlog_playground.cluster.cluster import Cluster
from tidb_binlog.clock import SystemClock


@dataclass(frozen=True, slots=True)
class Settings:
    """`seconds`: how long a benchmark measures, set-up apart; `recording`: of `drain.sysbench`.

    `backlog_bytes`: what `drain.memory` stores before the drainer starts; `peer`: directory of Go's programs,
    to be measured in turns with ours.
    """

    seconds: float = 6.0
    recording: Path | None = None
    backlog_bytes: int = 1 << 30
    peer: Path | None = None


@asynccontextmanager
async def private_cluster() -> AsyncIterator[Cluster]:
    """A cluster of which nothing is started yet; nothing is left of it afterwards."""
    cluster = Cluster(SystemClock())
    try:
        yield cluster
    finally:
        await cluster.close()
        cluster.stop(at_once=True)
        cluster.remove()

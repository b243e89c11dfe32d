"""Sink context: what a class of somebody's that implements the whole port (`drainer.sink`) is made with.

Tests  tests/drainer/app/test_build_own.py
"""

from __future__ import annotations

from typing import Any

from drainer.checkpoint.savepoint import Savepoint
from drainer.ddl.policy import Policy
from tidb_binlog.clock import Clock
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.tso import Ts


@dataclass(frozen=True, slots=True)
class SinkContext:
    """`savepoint` is the file in `data_dir`, at `savepoint_ts` (0: none yet).

    `start_ts` is that, or where the configuration lets a first start begin: a sink that knows better has
    another `start_ts`. `policy` says what becomes of a DDL. `clock` is the upstream's.
    """

    options: dict[str, Any] = field(repr=False)
    savepoint: Savepoint
    savepoint_ts: Ts
    start_ts: Ts
    cluster_id: int
    data_dir: str
    policy: Policy
    clock: Clock

"""Settings: how the MySQL sink applies rows, as one value.

Tests  tests/drainer/sink/mysql/test_mysql_sink_modes.py
"""

from __future__ import annotations

from collections.abc import Callable

from drainer.config.options import BESIDE_ROWS, DrainerConfig
from drainer.mysql.rows.column_match import FULL
from drainer.sink.mysql.lane import LaneSettings
from drainer.sink.row_mismatch import Drift
from tidb_binlog.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ApplierSettings:
    """`sync_mode` as in `column_match`. `lanes_max`: so many lanes at most are tried; 0: their number stays.
    `whole_transactions`: one lane, and no transaction is ever cut.

    `maps_positions` as `maps` of the keeper. `keep_schema` is called with the commit_ts of every DDL, before
    its checkpoint is stored. `beside_rows`: from which size of a table on (`Beside`) a DDL that takes long
    runs beside the stream.
    """

    lane: LaneSettings
    safe_mode: bool = False
    sync_mode: int = FULL
    lanes_max: int = 0
    whole_transactions: bool = False
    maps_positions: bool = False
    keep_schema: Callable[[int], None] = lambda _commit_ts: None
    beside_rows: int = BESIDE_ROWS


def applier_settings(
    settings: DrainerConfig,
    keep_schema: Callable[[int], None],
    drift: Drift,
) -> ApplierSettings:
    """How rows are applied, from the stream or from the relay log."""
    sync_mode = settings.to_sync_mode or FULL
    return ApplierSettings(
        LaneSettings(
            batch_rows=settings.txn_batch,
            queue_bytes_max=settings.lane_queue_bytes,
            strict=settings.strict,
            log_values=settings.log_values,
            sync_mode=sync_mode,
            drift=drift,
            rows_may_wait=settings.rows_may_wait,
        ),
        sync_mode=sync_mode,
        safe_mode=settings.safe_mode,
        maps_positions=settings.db_type == "tidb",
        keep_schema=keep_schema,
        lanes_max=0 if settings.dispatches_whole else settings.worker_count,
        whole_transactions=settings.dispatches_whole,
        beside_rows=settings.ddl_beside_rows,
    )

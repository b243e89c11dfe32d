"""Metrics of a Drainer. Names without a room are those of the Go drainer, kept for its dashboards."""

from __future__ import annotations

from typing import Final

from common.metrics import counter, gauge, histogram

EVENTS: Final = counter("binlog_drainer_event", "Row events and DDL handed to the sink, by type.", ["type"])
CHECKPOINT_TSO: Final = gauge(
    "binlog_drainer_checkpoint_tso", "Physical milliseconds of the stored checkpoint."
)
CHECKPOINT_DELAY_SECONDS: Final = histogram(
    "binlog_drainer_checkpoint_delay_seconds", "Age of the resolved position at each progress."
)
QUERY_SECONDS: Final = histogram(
    "binlog_drainer_query_duration_time", "Downstream statements (exec) and commits, a batch each.", ["type"]
)
QUEUE_BYTES: Final = gauge("binlog_drainer_lane_queue_bytes", "Encoded rows waiting in a lane.", ["lane"])
LANE_RETRIES: Final = counter("binlog_drainer_lane_retries_total", "Batches tried again.")
LANE_BATCH_ROWS: Final = histogram(
    "binlog_drainer_lane_batch_rows",
    "Row changes in one downstream transaction.",
    buckets=[1, 4, 16, 64, 256, 1024, 4096, 16384],
)
DRIFT_ROWS: Final = counter(
    "binlog_drainer_drift_rows_total",
    "Rows that a statement should have touched and did not, or the reverse.",
)
DDL_SECONDS: Final = histogram("binlog_drainer_ddl_execute_seconds", "Run time of DDL downstream.")

CONTROL_PAUSED: Final = gauge("binlog_drainer_control_paused_count", "1 while an operator holds rows back.")
CONTROL_RATE_ROWS: Final = gauge(
    "binlog_drainer_control_rate_rows", "Row changes a second that may go downstream; 0: unlimited."
)
CONTROL_RATE_BYTES: Final = gauge(
    "binlog_drainer_control_rate_bytes", "Encoded bytes a second that may go downstream; 0: unlimited."
)
CONTROL_WAITED_SECONDS: Final = gauge(
    "binlog_drainer_control_waited_seconds", "How long rows have waited for the rate limit in all."
)

STANDBY_WAITING: Final = gauge(
    "binlog_drainer_standby_waiting_count", "1 while this process waits for the active drainer to end."
)
STANDBY_TROUBLE: Final = gauge(
    "binlog_drainer_standby_trouble_count", "1 while this process waits and could not take over: see its log."
)

"""Metrics of a Drainer. Where the Go drainer has a metric, its name is kept for its dashboards.

Tests  tests/architecture/test_metrics_declared.py, tests/architecture/test_alert_rules.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidb_binlog import tso
from tidb_binlog.observe.metrics import counter, gauge, histogram, tally_histogram
from tidb_binlog.tso import Ts

EVENTS: Final = counter("binlog_drainer_event", "Row events and DDL handed to the sink, by type.", ["type"])
ROW_EVENTS: Final = tuple(EVENTS.labels(kind) for kind in ("Insert", "Update", "Delete"))
"""By row kind (`drainer.txn`); counted once per lane feed: a call each would cost as much as dispatching."""
ERRORS: Final = counter(
    "binlog_drainer_error_count", "Binlogs that could not be decoded; the drainer ends.", ["type"]
)
UNDECODABLE: Final = ERRORS.labels("unmarshal_binlog")
DISORDER: Final = counter(
    "binlog_drainer_disorder_binlog_count",
    "Binlogs that came below what a pump had promised, or that pumps have differently; the drainer ends.",
)
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
LANE_RETRIES: Final = counter(
    "binlog_drainer_lane_retries_total", "Batches tried again, by what was in the way.", ["reason"]
)
LANE_BATCH_ROWS: Final = histogram(
    "binlog_drainer_lane_batch_rows",
    "Row changes in one downstream transaction.",
    buckets=[1, 4, 16, 64, 256, 1024, 4096, 16384],
)
DRIFT_ROWS: Final = counter(
    "binlog_drainer_drift_rows_total",
    "Rows that a statement should have touched and did not, or the reverse.",
    ["table"],
)
FOREIGN_TEXT: Final = counter(
    "binlog_drainer_drift_text_values_total",
    "Texts that the column's character set downstream does not have.",
    ["table", "column"],
)
MARKS_MISSING: Final = counter(
    "binlog_drainer_loopback_marks_missing_total",
    "Transactions whose lane had no mark row downstream; it was written with them.",
)
LOOPBACK_TRANSACTIONS: Final = gauge(
    "binlog_drainer_loopback_transactions",
    "Transactions dropped because a drainer of the same channel wrote them upstream.",
)
WENT_BACK: Final = counter(
    "binlog_drainer_downstream_went_back_total",
    "How often the downstream did not have what it had confirmed; the stream was pulled again from there.",
)
DDL_SECONDS: Final = histogram("binlog_drainer_ddl_execute_seconds", "Run time of DDL downstream.")
SINK_ERRORS: Final = counter(
    "binlog_drainer_sink_errors_total", "Exceptions of a batch sink, by what followed: retry, hold.", ["what"]
)
SINK_HELD: Final = gauge("binlog_drainer_sink_held_count", "1 while an exception of the sink holds all back.")
SINK_WRITE_SECONDS: Final = histogram(
    "binlog_drainer_sink_write_seconds", "A batch of a batch sink, with all attempts."
)

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
HOLD_SECONDS: Final = histogram(
    "binlog_drainer_hold_seconds", "How long rows were held still so that snapshots could be opened."
)
VERIFY_WRONG_ROWS: Final = gauge(
    "binlog_drainer_verify_wrong_rows", "Rows that differed when this drainer last compared all tables."
)
VERIFY_NOT_COMPARED: Final = gauge(
    "binlog_drainer_verify_not_compared_tables", "Tables that the last comparison could not compare."
)
VERIFY_FAILURES: Final = gauge(
    "binlog_drainer_verify_failures_count", "Comparisons since the last one that came to an end."
)

STANDBY_WAITING: Final = gauge(
    "binlog_drainer_standby_waiting_count", "1 while this process waits for the active drainer to end."
)
STANDBY_TROUBLE: Final = gauge(
    "binlog_drainer_standby_trouble_count", "1 while this process waits and could not take over: see its log."
)

# The first 18 bounds are the Go drainer's; a drainer that lags needs more.
REACH_SECONDS: Final = tally_histogram(
    "binlog_drainer_binlog_reach_duration_time",
    "From the commit of a binlog to its arrival here; the last one of each message.",
    ["nodeID"],
    buckets=[5e-5 * 2**power for power in range(30)],
)
READ_BINLOG_BYTES: Final = tally_histogram(
    "binlog_drainer_read_binlog_size",
    "Bytes of a binlog that arrived.",
    ["nodeID"],
    buckets=[16 * 2**power for power in range(25)],
)


def note_arrival(node_id: str, sizes: Sequence[int], last_ts: Ts, now_s: float) -> None:
    """Binlogs of these sizes, the last one committed at `last_ts`, have arrived at the wall time `now_s`."""
    READ_BINLOG_BYTES.labels(node_id).observe_each(sizes)
    REACH_SECONDS.labels(node_id).observe(max(0.0, tso.age_s(last_ts, now_s)))


LAG_SECONDS: Final = gauge(
    "binlog_drainer_lag_seconds",
    "How far behind the upstream, by stage.",
    ["stage"],
)
LAG_ETA_SECONDS: Final = gauge(
    "binlog_drainer_lag_eta_seconds", "Until caught up at the present rate; +Inf if never."
)
QUEUE_SIZE: Final = gauge("binlog_drainer_queue_size", "Batches in the queue before the lanes.", ["name"])

FILE_SIZES: Final = tuple(16.0 * 2**n for n in range(20))
_FILE_SECONDS: Final = [0.00005 * 2**n for n in range(18)]
RELAY_RECORD_BYTES: Final = tally_histogram(
    "binlog_binlogfile_write_binlog_size", "Bytes of each record written.", ["label"], FILE_SIZES
).labels("local")
RELAY_WRITE_SECONDS: Final = tally_histogram(
    "binlog_binlogfile_write_binlog_duration_time",
    "Writing and syncing a group of records.",
    ["label"],
    _FILE_SECONDS,
).labels("local")
RELAY_READ_SECONDS: Final = tally_histogram(
    "binlog_binlogfile_read_binlog_duration_time", "Reading a record.", ["label"], _FILE_SECONDS
).labels("local")
RELAY_CORRUPTION: Final = counter(
    "binlog_binlogfile_corruption_binlog_count", "Damaged records found in binlog files."
)
QUARANTINE_TABLES: Final = gauge(
    "binlog_drainer_quarantine_tables", "Tables that wait for a decision about a DDL."
)
QUARANTINE_BYTES: Final = gauge("binlog_drainer_quarantine_bytes", "Rows of waiting tables kept on disk.")
QUARANTINE_DECISIONS: Final = counter(
    "binlog_drainer_quarantine_decisions_total", "Decisions about waiting DDL, by kind.", ["decision"]
)

# As far as a downstream may take that is away for a while; the first 18 bounds are the Go drainer's.
EXECUTE_SECONDS: Final = histogram(
    "binlog_drainer_execute_duration_time",
    "A batch of a lane from its first statement to its commit, with all tries.",
    buckets=[5e-5 * 2**power for power in range(26)],
)

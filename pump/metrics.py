"""Metrics of the pump. Names that Go pumps export keep their spelling; dashboards know them so.

Not everything a Go pump exports has a meaning here. `write_binlog_duration_time` of type `to_disk` (a flush
of its write buffer) is the same as `batch`: a group is written at once. `slow_chaser_count` of type
`recovery` stays 0: there is no second mode that stops the writers. `go_*` describes Go's runtime: instead of
`go_memstats_heap_inuse_bytes` see `process_resident_memory_bytes`, and instead of `go_goroutines`
`binlog_pump_puller_streams_count` and the door's connections. An `error_count` of type `feed_pre_write_value`
(a prewrite that cannot be read for its commit) counts as `read_value`, as every record that cannot be read.

Tests  tests/architecture/test_metrics_declared.py
"""

from __future__ import annotations

from typing import Final

from tidb_binlog.observe import metrics

_BYTES: Final = tuple(float(16 << power) for power in range(25))
_LONG_SECONDS: Final = tuple(5e-5 * 2**power for power in range(20))
_RECORDS: Final = tuple(float(1 << power) for power in range(14))

# Known from Go pumps.
RPC_SECONDS = metrics.tally_histogram(
    "binlog_pump_rpc_duration_seconds", "Time of an RPC by method and result", ("method", "label")
)
LOST = metrics.counter("binlog_pump_loss_binlog_count", "Writes that failed after the cluster check")
GC_TS = metrics.gauge("binlog_pump_storage_gc_ts", "Accepted gc timestamp, milliseconds")
DONE_GC_TS = metrics.gauge(
    "binlog_pump_storage_done_gc_ts", "How far index entries of purged binlogs are deleted, milliseconds"
)
DELETED_KEYS = metrics.counter("binlog_pump_storage_deleted_kv_total", "Index entries that a purge deleted")
DRAINER_PURGED = metrics.counter(
    "binlog_pump_detected_drainer_binlog_purge_count",
    "Purges that took binlogs which a live drainer had not applied",
    ("id",),
)
SIZE_BYTES = metrics.gauge(
    "binlog_pump_storage_storage_size_bytes", "File system of the data directory", ("type",)
)
MAX_COMMIT_TS = metrics.gauge("binlog_pump_storage_max_commit_ts", "Watermark, milliseconds")
STORAGE_ERRORS = metrics.counter("binlog_pump_storage_error_count", "Errors of storage", ("type",))
WRITE_SIZE = metrics.tally_histogram(
    "binlog_pump_storage_write_binlog_size", "Bytes of a payload or of a group", ("type",), buckets=_BYTES
)
WRITE_SECONDS = metrics.tally_histogram(
    "binlog_pump_storage_write_binlog_duration_time",
    "Time of a group with the wait of its first write (single), without it (batch), of its sync (fsync), "
    "of a write that began a new file (rotate)",
    ("type",),
    buckets=_LONG_SECONDS,
)

QUERIES = metrics.counter(
    "binlog_pump_storage_query_tikv_count", "Questions to the upstream about open prewrites"
)
SLOW_CHASER = metrics.counter(
    "binlog_pump_storage_slow_chaser_count", "The index fell behind memory, caught up again", ("type",)
)
CATCH_UP_SECONDS = metrics.histogram(
    "binlog_drainer_slow_chaser_catchup_time_seconds",
    "Time until the index had caught up; a pump's, whatever the name says",
    buckets=tuple(0.001 * 2**power for power in range(22)),
)

# Series that alerts watch for a change are there from the start: one that appears with its first error is no
# change to Prometheus.
for _type in (
    "write_binlog",
    "write_binlog_batch",
    "batch_write_kv",
    "read_value",
    "feed_pre_write_value",
    "same_commit_ts",
):
    STORAGE_ERRORS.labels(_type)
for _type in ("turned_on", "turned_off", "catch_up", "recovery"):
    SLOW_CHASER.labels(_type)

# Ours.
GROUP_RECORDS = metrics.tally_histogram(
    "binlog_pump_group_commit_records", "Records that share one sync", buckets=_RECORDS
)
LATE_COMMITS = metrics.counter(
    "binlog_pump_sorter_late_commits_total", "Commits at or below the published watermark"
)
OPEN_PREWRITES = metrics.gauge("binlog_pump_sorter_open_prewrites_count", "Prewrites without an end")
OLDEST_OPEN_SECONDS = metrics.gauge(
    "binlog_pump_sorter_oldest_open_seconds", "How long the longest open prewrite is open; 0 if none is"
)
OLDEST_OPEN_START_TS = metrics.gauge(
    "binlog_pump_sorter_oldest_open_start_ts", "Its start_ts in milliseconds; 0 if none is open"
)
RESOLVED = metrics.counter(
    "binlog_pump_resolver_outcomes_total", "Answers of the upstream about open prewrites", ("outcome",)
)
STAGE_LAG_BYTES = metrics.gauge(
    "binlog_pump_stage_lag_bytes", "Bytes in front of a stage: accepted, indexed, sorted", ("stage",)
)
STAGE_LAG_SECONDS = metrics.gauge(
    "binlog_pump_stage_lag_seconds", "Age of the oldest durable record in front of a stage", ("stage",)
)
STUCK_TABLE_ID = metrics.gauge(
    "binlog_pump_stuck_table_id", "Table of the open prewrite that was reported as stuck; 0: none, or a DDL"
)
UPSTREAM_SILENT_SECONDS = metrics.gauge(
    "binlog_pump_resolver_unavailable_seconds", "Since when no question was answered; 0: they are"
)
INDEX_LAG_BYTES = metrics.gauge("binlog_pump_indexer_lag_bytes", "Durable log that is not in the index yet")
CHASING = metrics.gauge("binlog_pump_slow_chaser_active_count", "1 while the index is fed from the log")
WRITE_QUEUE_BYTES = metrics.gauge("binlog_pump_writer_queue_bytes", "Payloads waiting for the writer")
WRITER_FAILED = metrics.gauge("binlog_pump_writer_failed_count", "1 after a failed write or sync")
RECENT_BYTES = metrics.gauge("binlog_pump_recent_commits_held_bytes", "Payloads kept in memory for pullers")
PULLERS = metrics.gauge("binlog_pump_puller_streams_count", "Open pull streams", ("protocol",))
PULLED_BYTES = metrics.counter(
    "binlog_pump_puller_sent_bytes_total", "Payload bytes sent to drainers", ("protocol",)
)
DRAWN = metrics.counter("binlog_pump_idle_watermark_drawn_total", "Timestamps drawn because a puller waited")
REFUSED = metrics.counter("binlog_pump_admission_refused_total", "Writes refused, by reason", ("reason",))
for _reason in ("cluster", "payload", "state", "disk", "writer", "size", "timestamp", "open"):
    REFUSED.labels(_reason)
WRITERS = metrics.gauge("binlog_pump_batch_writes_streams_count", "Open write streams")
PURGED_BYTES = metrics.counter(
    "binlog_pump_retention_purged_bytes_total", "Bytes of log files that were removed"
)
PASSED_OVER = metrics.counter(
    "binlog_pump_accepted_losses_total", "Binlogs that pullers do not get because their loss was accepted"
)
PURGE_ERRORS = metrics.counter(
    "binlog_pump_retention_errors_total", "Purges that were broken off by an error"
)
DRAINER_LEFT_SECONDS = metrics.gauge(
    "binlog_pump_retention_drainer_left_seconds",
    "Until retention reaches what this drainer needs, at the present growth; 0: it has",
    ("id",),
)


def refused(reason: str, count: int = 1) -> None:
    """Count writes refused or failed. Those of another cluster are not lost: they were never ours."""
    REFUSED.labels(reason).inc(count)
    if reason != "cluster":
        LOST.inc(count)

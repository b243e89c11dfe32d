"""Metrics of the pump. Names that Go pumps export keep their spelling; dashboards know them so."""

from __future__ import annotations

from typing import Final

from common import metrics

_BYTES: Final = tuple(float(16 << power) for power in range(25))
_LONG_SECONDS: Final = tuple(5e-5 * 2**power for power in range(20))
_RECORDS: Final = tuple(float(1 << power) for power in range(14))

# Known from Go pumps.
RPC_SECONDS = metrics.tally_histogram(
    "binlog_pump_rpc_duration_seconds", "Time of an RPC by method and result", ("method", "label")
)
LOST = metrics.counter("binlog_pump_loss_binlog_count", "Writes that failed after the cluster check")
GC_TS = metrics.gauge("binlog_pump_storage_gc_ts", "Accepted gc timestamp, milliseconds")
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
    "Time of a group with the wait of its first write (single), without it (batch), of its sync (fsync)",
    ("type",),
    buckets=_LONG_SECONDS,
)

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

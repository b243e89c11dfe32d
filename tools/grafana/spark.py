"""The dashboard of jobs of binlog-spark, which leave their metrics with `--metrics`.

Tests  tests/deploy/prometheus/test_dashboards.py
"""

from __future__ import annotations

from typing import Final

from tools.grafana.panels import NUMBER, TABLE, Dashboard, Panel, Query, Row

NAME: Final = 'name=~"$name"'
LEGEND: Final = "{{command}} {{name}}"

JOBS: Final = [
    Panel(
        "Jobs",
        "Exit code of the last run. 0: done, nothing found; 17 to 23: what an audit found.",
        "short",
        [Query(f"binlog_spark_job_exit_code{{{NAME}}}", LEGEND)],
        TABLE,
        red=1,
    ),
    Panel(
        "Running",
        "Jobs that run now. One that was killed stays at 1: look at the time of its last sign of life.",
        "short",
        [Query(f"binlog_spark_job_running_count{{{NAME}}}", LEGEND)],
    ),
    Panel(
        "Since The Last Success",
        "Since a job last ended with exit code 0.",
        "s",
        [Query(f"time() - binlog_spark_job_last_success_seconds{{{NAME}}}", LEGEND)],
        orange=86400,
        red=2 * 86400,
    ),
    Panel(
        "Duration",
        "How long the last run took, or has taken until now.",
        "s",
        [Query(f"binlog_spark_job_duration_seconds{{{NAME}}}", LEGEND)],
    ),
    Panel(
        "Rows Written",
        "Keys that a replay wrote, rows that an export wrote.",
        "short",
        [Query(f"binlog_spark_job_rows{{{NAME}}}", LEGEND)],
    ),
    Panel(
        "Archive Read",
        "Bytes of the archive in the range of a replay.",
        "bytes",
        [Query(f"binlog_spark_job_read_bytes{{{NAME}}}", LEGEND)],
    ),
    Panel(
        "Drift",
        "Rows downstream that a replay found not as they should be.",
        "short",
        [Query(f"binlog_spark_job_drift_rows{{{NAME}}}", LEGEND)],
        NUMBER,
        red=1,
    ),
]

STREAMS: Final = [
    Panel(
        "Stream Lag",
        "Age of the last transaction of a batch when it was applied.",
        "s",
        [Query(f"binlog_spark_stream_lag_seconds{{{NAME}}}", LEGEND)],
        orange=60,
        red=300,
    ),
    Panel(
        "Stream Position",
        "Time of the last transaction that is applied.",
        "dateTimeAsIso",
        [Query(f"binlog_spark_stream_position_milliseconds{{{NAME}}}", LEGEND)],
        NUMBER,
    ),
    Panel(
        "Stream Rows",
        "Keys that batches write, a second.",
        "ops",
        [Query(f"rate(binlog_spark_stream_rows_total{{{NAME}}}[$__rate_interval])", LEGEND)],
    ),
    Panel(
        "Stream Batches",
        "Batches a second.",
        "ops",
        [Query(f"rate(binlog_spark_stream_batches_total{{{NAME}}}[$__rate_interval])", LEGEND)],
    ),
    Panel(
        "Batch Time",
        "Mean time of a batch.",
        "s",
        [
            Query(
                f"rate(binlog_spark_stream_batch_seconds_sum{{{NAME}}}[$__rate_interval])"
                f" / rate(binlog_spark_stream_batch_seconds_count{{{NAME}}}[$__rate_interval])",
                LEGEND,
            )
        ],
    ),
    Panel(
        "Stream Drift",
        "Rows downstream that were not as batches expected them.",
        "short",
        [Query(f"binlog_spark_stream_drift_rows_total{{{NAME}}}", LEGEND)],
        NUMBER,
        red=1,
    ),
]

SPARK: Final = Dashboard(
    "tidb-binlog-spark",
    "TiDB Binlog: Spark jobs",
    "Jobs of binlog-spark: how each last run ended, and how far streams are.",
    [Row("Jobs", JOBS), Row("Streams", STREAMS)],
    {"name": "label_values(binlog_spark_job_start_seconds, name)"},
)

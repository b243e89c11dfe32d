"""The dashboard of Pumps. Titles of the first row are those of the Go system's dashboard.

Tests  tests/deploy/prometheus/test_dashboards.py
"""

from __future__ import annotations

from typing import Final

from tools.grafana.panels import NUMBER, Dashboard, Panel, Query, Row

INSTANCE: Final = 'instance=~"$instance"'
RATE: Final = "[$__rate_interval]"


def _quantile(share: str, histogram: str, labels: str, by: str) -> str:
    """Of a histogram; `labels`: more of the selector."""
    chosen = f"{INSTANCE},{labels}" if labels else INSTANCE
    return f"histogram_quantile({share}, sum(rate({histogram}_bucket{{{chosen}}}{RATE})) by (le, {by}))"


def _quantiles(histogram: str, labels: str, by: str, legend: str) -> list[Query]:
    return [
        Query(_quantile(share, histogram, labels, by), f"{legend} {name}")
        for share, name in (("0.99", "p99"), ("0.95", "p95"))
    ]


AS_BEFORE: Final = [
    Panel(
        "Storage Size",
        "Size of the file system of data-dir, and what is free of it. Below 20 GiB an alert fires; below"
        " stop-write-at-available-space prewrites are refused.",
        "bytes",
        [Query(f"binlog_pump_storage_storage_size_bytes{{{INSTANCE}}}", "{{instance}} {{type}}")],
        red=20 * 2**30,
        falls=True,
    ),
    Panel(
        "Metadata",
        "gc_tso: what is older may be purged; 1970: nothing yet. max_commit_tso: the Pump knows every commit"
        " at or below it.",
        "dateTimeAsIso",
        [
            Query(f"binlog_pump_storage_gc_ts{{{INSTANCE}}}", "{{instance}} gc_tso"),
            Query(f"binlog_pump_storage_max_commit_ts{{{INSTANCE}}}", "{{instance}} max_commit_tso"),
        ],
    ),
    Panel(
        "Write Binlog QPS by Instance",
        "Write requests a second, by result. TiDB sends a binlog a request, our client many.",
        "reqps",
        [
            Query(
                f'sum(rate(binlog_pump_rpc_duration_seconds_count{{{INSTANCE},method=~"WriteBinlogs?"}}{RATE}))'
                " by (instance, label)",
                "{{instance}} {{label}}",
            )
        ],
    ),
    Panel(
        "Write Binlog Latency",
        "From a write request to its reply. The commit upstream waits as long.",
        "s",
        _quantiles(
            "binlog_pump_rpc_duration_seconds",
            'method=~"WriteBinlogs?"',
            "instance, method",
            "{{instance}} {{method}}",
        ),
        orange=0.2,
        red=1,
    ),
    Panel(
        "Storage Write Binlog Size",
        "Bytes of a payload (single) and of a group that shares one sync (batch).",
        "bytes",
        _quantiles("binlog_pump_storage_write_binlog_size", "", "instance, type", "{{instance}} {{type}}"),
    ),
    Panel(
        "Storage Write Binlog Latency",
        "single: a group with the wait of its first write; batch: without it; fsync: its sync alone.",
        "s",
        _quantiles(
            "binlog_pump_storage_write_binlog_duration_time", "", "instance, type", "{{instance}} {{type}}"
        ),
        orange=0.2,
        red=1,
    ),
    Panel(
        "Pump Storage Error By Type",
        "Errors of the storage a second. Any is an emergency.",
        "short",
        [
            Query(
                f"sum(rate(binlog_pump_storage_error_count{{{INSTANCE}}}{RATE})) by (instance, type)",
                "{{instance}} {{type}}",
            )
        ],
        red=0.001,
    ),
    Panel(
        "Query Tikv",
        "Questions to TiKV, or the store of a standalone cluster, about transactions without an end.",
        "short",
        [Query(f"binlog_pump_storage_query_tikv_count{{{INSTANCE}}}")],
    ),
    Panel(
        "TiDB Server Skip Binlog Count",
        "A metric of TiDB: how often it gave up a binlog (ignore-error). What it committed since then is"
        " missing downstream.",
        "short",
        [Query("tidb_server_critical_error_total")],
        red=1,
    ),
]

STATE: Final = [
    Panel(
        "Stage Lag",
        "Age of the oldest record that waits in front of the index and of the sorter.",
        "s",
        [Query(f"binlog_pump_stage_lag_seconds{{{INSTANCE}}}", "{{instance}} {{stage}}")],
        orange=10,
        red=60,
    ),
    Panel(
        "Stage Backlog",
        "Bytes that wait in front of each stage.",
        "bytes",
        [Query(f"binlog_pump_stage_lag_bytes{{{INSTANCE}}}", "{{instance}} {{stage}}")],
    ),
    Panel(
        "Oldest Open Transaction",
        "How long the longest prewrite waits for its end. All Drainers wait for it.",
        "s",
        [Query(f"binlog_pump_sorter_oldest_open_seconds{{{INSTANCE}}}")],
        orange=30,
        red=60,
    ),
    Panel(
        "Open Prewrites",
        "Prewrites without an end.",
        "short",
        [Query(f"binlog_pump_sorter_open_prewrites_count{{{INSTANCE}}}")],
    ),
    Panel(
        "Upstream Silent",
        "For how long no question about an open transaction was answered; 0: they are.",
        "s",
        [Query(f"binlog_pump_resolver_unavailable_seconds{{{INSTANCE}}}")],
        red=30,
    ),
    Panel(
        "Refused Writes By Reason",
        "disk: too little space; writer: a write failed; state: the Pump pauses or closes.",
        "short",
        [
            Query(
                f"sum(rate(binlog_pump_admission_refused_total{{{INSTANCE}}}{RATE})) by (instance, reason)",
                "{{instance}} {{reason}}",
            )
        ],
        red=0.001,
    ),
    Panel(
        "Writer Failed",
        "1 after a failed write or sync: the Pump stores nothing until it is restarted.",
        "short",
        [Query(f"binlog_pump_writer_failed_count{{{INSTANCE}}}")],
        NUMBER,
        red=1,
    ),
    Panel(
        "Group Commit",
        "Records that share one sync.",
        "short",
        _quantiles("binlog_pump_group_commit_records", "", "instance", "{{instance}}"),
    ),
    Panel(
        "Slow Chaser",
        "Whether the index is fed from the log, since it fell behind what memory holds.",
        "short",
        [Query(f"binlog_pump_slow_chaser_active_count{{{INSTANCE}}}")],
    ),
]

READING: Final = [
    Panel(
        "Pull Streams",
        "Open streams to Drainers, by protocol.",
        "short",
        [Query(f"binlog_pump_puller_streams_count{{{INSTANCE}}}", "{{instance}} {{protocol}}")],
    ),
    Panel(
        "Sent To Drainers",
        "Payload bytes a second.",
        "Bps",
        [
            Query(
                f"sum(rate(binlog_pump_puller_sent_bytes_total{{{INSTANCE}}}{RATE})) by (instance, protocol)",
                "{{instance}} {{protocol}}",
            )
        ],
    ),
    Panel(
        "Retention Left By Drainer",
        "How long until retention reaches what a Drainer still needs, at the present growth.",
        "s",
        [Query(f"binlog_pump_retention_drainer_left_seconds{{{INSTANCE}}}", "{{instance}} {{id}}")],
        orange=8 * 3600,
        red=4 * 3600,
        falls=True,
    ),
    Panel(
        "Purged",
        "Bytes of log files that retention removed, a second.",
        "Bps",
        [Query(f"rate(binlog_pump_retention_purged_bytes_total{{{INSTANCE}}}{RATE})")],
    ),
    Panel(
        "Purge Errors",
        "Purges that were broken off by an error.",
        "short",
        [Query(f"increase(binlog_pump_retention_errors_total{{{INSTANCE}}}[1h])")],
        red=1,
    ),
    Panel(
        "Accepted Losses",
        "Binlogs that Drainers do not get, since an operator accepted their loss.",
        "short",
        [Query(f"binlog_pump_accepted_losses_total{{{INSTANCE}}}")],
        red=1,
    ),
]

PUMP: Final = Dashboard(
    "tidb-binlog-pump",
    "TiDB Binlog: Pump",
    "Writes, storage, open transactions and retention of Pumps.",
    [
        Row("Pump", AS_BEFORE),
        Row("State", STATE),
        Row("Drainers and retention", READING),
    ],
    {"instance": "label_values(binlog_pump_storage_max_commit_ts, instance)"},
)

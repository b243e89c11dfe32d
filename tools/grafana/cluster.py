"""The dashboard of a cluster: what an operator looks at first.

Tests  tests/deploy/prometheus/test_dashboards.py
"""

from __future__ import annotations

from typing import Final

from tools.grafana.panels import NUMBER, TABLE, Dashboard, Panel, Query, Row

JOBS: Final = 'job=~".*(pump|drainer).*"'

NOW: Final = [
    Panel(
        "Alerts Firing",
        "Each has its place in docs/alerts.md.",
        "short",
        [Query('sum(ALERTS{alertname=~"Binlog.*",alertstate="firing"}) or vector(0)', "alerts")],
        NUMBER,
        red=1,
    ),
    Panel(
        "Lag",
        "Seconds from a commit upstream until it is downstream, of the Drainer that is furthest behind.",
        "s",
        [Query("max(instance:binlog_drainer_lag_seconds:sum)", "lag")],
        NUMBER,
        orange=60,
        red=300,
    ),
    Panel(
        "Nodes",
        "1: answers Prometheus.",
        "short",
        [Query(f"up{{{JOBS}}}", "{{job}} {{instance}}")],
        TABLE,
        red=1,
        falls=True,
    ),
    Panel(
        "Waiting For A Decision",
        "Tables of a DDL that could not be carried out. `binlogctl ddl list` shows it.",
        "short",
        [Query("sum(binlog_drainer_quarantine_tables)", "tables")],
        NUMBER,
        red=1,
    ),
    Panel(
        "Rows That Differ",
        "Found by the last comparison of the whole downstream.",
        "short",
        [Query("sum(binlog_drainer_verify_wrong_rows)", "rows")],
        NUMBER,
        red=1,
    ),
    Panel(
        "Drainers That Stand By",
        "Ready to take over.",
        "short",
        [Query("sum(job:binlog_drainer_standbys:sum)", "standbys")],
        NUMBER,
    ),
]

FLOW: Final = [
    Panel(
        "Written To Pumps",
        "Write requests a second.",
        "reqps",
        [Query("instance:binlog_pump_writes:rate1m")],
        stacked=True,
    ),
    Panel(
        "Written Bytes",
        "Bytes a second in the logs of Pumps.",
        "Bps",
        [Query("instance:binlog_pump_written_bytes:rate1m")],
        stacked=True,
    ),
    Panel(
        "Applied Downstream",
        "Row changes a second.",
        "ops",
        [Query("instance:binlog_drainer_rows:rate1m")],
    ),
    Panel(
        "Lag By Stage",
        "Where the time between upstream and downstream goes.",
        "s",
        [Query("max(binlog_drainer_lag_seconds) by (stage)", "{{stage}}")],
        stacked=True,
        orange=60,
        red=300,
    ),
    Panel(
        "Write Latency",
        "99 of 100 writes are on disk after this time.",
        "s",
        [Query("instance:binlog_pump_write_seconds:p99_5m")],
        orange=0.2,
        red=1,
    ),
    Panel(
        "Apply Latency",
        "99 of 100 batches are committed downstream after this time.",
        "s",
        [Query("instance:binlog_drainer_execute_seconds:p99_5m")],
        orange=2,
        red=10,
    ),
]

NODES: Final = [
    Panel(
        "Space Used",
        "Of the file systems of the Pumps.",
        "percentunit",
        [Query("instance:binlog_pump_space_used:ratio")],
        orange=0.8,
        red=0.9,
    ),
    Panel(
        "Retention Left",
        "Until retention reaches what the Drainer that is furthest behind still needs.",
        "s",
        [Query("min(binlog_pump_retention_drainer_left_seconds) by (id)", "{{id}}")],
        orange=8 * 3600,
        red=4 * 3600,
        falls=True,
    ),
    Panel(
        "Oldest Open Transaction",
        "Every Drainer waits for its end.",
        "s",
        [Query("max(binlog_pump_sorter_oldest_open_seconds)", "oldest")],
        orange=30,
        red=60,
    ),
    Panel(
        "CPU",
        "Cores that a process uses.",
        "short",
        [Query(f"rate(process_cpu_seconds_total{{{JOBS}}}[$__rate_interval])", "{{job}} {{instance}}")],
    ),
    Panel(
        "Memory",
        "Resident memory of a process.",
        "bytes",
        [Query(f"process_resident_memory_bytes{{{JOBS}}}", "{{job}} {{instance}}")],
    ),
    Panel(
        "Starts",
        "Of a process within the last hour, but the first one.",
        "short",
        [Query(f"changes(process_start_time_seconds{{{JOBS}}}[1h])", "{{job}} {{instance}}")],
        orange=1,
        red=3,
    ),
    Panel(
        "Open Files",
        "File descriptors of a process, as part of its limit.",
        "percentunit",
        [Query(f"process_open_fds{{{JOBS}}} / process_max_fds{{{JOBS}}}", "{{job}} {{instance}}")],
        orange=0.7,
        red=0.9,
    ),
    Panel(
        "Connections",
        "Open connections by protocol.",
        "short",
        [Query("binlog_common_door_connections_count", "{{instance}} {{protocol}}")],
    ),
    Panel(
        "Failed TLS Handshakes",
        "Peers without a certificate that a node accepts, a second.",
        "short",
        [Query("rate(binlog_common_door_failed_handshakes_total[$__rate_interval])")],
        orange=0.01,
    ),
]

CLUSTER: Final = Dashboard(
    "tidb-binlog-cluster",
    "TiDB Binlog: Cluster",
    "All nodes of a cluster: what is wrong, how far behind the downstream is, and how much flows.",
    [Row("Now", NOW), Row("Flow", FLOW), Row("Nodes", NODES)],
)

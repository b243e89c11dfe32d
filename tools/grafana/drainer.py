"""The dashboard of Drainers. Titles of the first row are those of the Go system's dashboard.

Tests  tests/deploy/prometheus/test_dashboards.py
"""

from __future__ import annotations

from typing import Final

from tools.grafana.panels import NUMBER, Dashboard, Panel, Query, Row

INSTANCE: Final = 'instance=~"$instance"'
RATE: Final = "[$__rate_interval]"


def _quantile(share: str, histogram: str, by: str) -> str:
    return f"histogram_quantile({share}, sum(rate({histogram}_bucket{{{INSTANCE}}}{RATE})) by (le, {by}))"


AS_BEFORE: Final = [
    Panel(
        "Checkpoint TSO",
        "Time of the stored checkpoint: everything at or below it is downstream. Empty for a standby.",
        "dateTimeAsIso",
        [Query(f"binlog_drainer_checkpoint_tso{{{INSTANCE}}} > 0")],
        NUMBER,
    ),
    Panel(
        "Pump Handle TSO",
        "Up to where everything of a Pump has arrived. The lowest one holds the stream up.",
        "dateTimeAsIso",
        [Query(f"binlog_drainer_pump_position{{{INSTANCE}}}", "{{instance}} {{nodeID}}")],
    ),
    Panel(
        "Pull Binlog QPS by Pump NodeID",
        "Binlogs a second that arrive from each Pump.",
        "ops",
        [
            Query(
                f"sum(rate(binlog_drainer_read_binlog_size_count{{{INSTANCE}}}{RATE})) by (instance, nodeID)",
                "{{instance}} {{nodeID}}",
            )
        ],
    ),
    Panel(
        "95% Binlog Reach Duration By Pump",
        "From the commit of a binlog to its arrival here.",
        "s",
        [
            Query(
                _quantile("0.95", "binlog_drainer_binlog_reach_duration_time", "instance, nodeID"),
                "{{instance}} {{nodeID}}",
            )
        ],
        orange=10,
        red=60,
    ),
    Panel(
        "Error By Type",
        "Binlogs that could not be decoded, and binlogs out of order. The Drainer ends with either.",
        "short",
        [
            Query(f"binlog_drainer_error_count{{{INSTANCE}}}", "{{instance}} {{type}}"),
            Query(f"binlog_drainer_disorder_binlog_count{{{INSTANCE}}}", "{{instance}} disorder"),
        ],
        red=1,
    ),
    Panel(
        "Drainer Event",
        "Row changes and DDL a second that are handed to the sink, by type.",
        "ops",
        [
            Query(
                f"sum(rate(binlog_drainer_event{{{INSTANCE}}}{RATE})) by (instance, type)",
                "{{instance}} {{type}}",
            )
        ],
    ),
    Panel(
        "99% Execute Time",
        "A batch of a lane from its first statement to its commit, with all tries.",
        "s",
        [Query(_quantile("0.99", "binlog_drainer_execute_duration_time", "instance"))],
        orange=2,
        red=10,
    ),
    Panel(
        "99% sql query Time",
        "Statements (exec) and commits of a batch.",
        "s",
        [
            Query(
                _quantile("0.99", "binlog_drainer_query_duration_time", "instance, type"),
                "{{instance}} {{type}}",
            )
        ],
        orange=1,
        red=5,
    ),
    Panel(
        "95% Binlog Size",
        "Bytes of a binlog that arrived.",
        "bytes",
        [
            Query(
                _quantile("0.95", "binlog_drainer_read_binlog_size", "instance, nodeID"),
                "{{instance}} {{nodeID}}",
            )
        ],
    ),
    Panel(
        "DDL Job Count",
        "DDL passed on with its job.",
        "short",
        [Query(f"binlog_drainer_ddl_jobs_total{{{INSTANCE}}}")],
    ),
    Panel(
        "queue size",
        "Batches in the queue before the lanes.",
        "short",
        [Query(f"binlog_drainer_queue_size{{{INSTANCE}}}", "{{instance}} {{name}}")],
    ),
]

LAG: Final = [
    Panel(
        "Lag By Stage",
        "Seconds behind the upstream. write, sort_wait: a Pump; pull: network; queue, apply: downstream.",
        "s",
        [Query(f"binlog_drainer_lag_seconds{{{INSTANCE}}}", "{{instance}} {{stage}}")],
        stacked=True,
        orange=60,
        red=300,
    ),
    Panel(
        "Time Until Caught Up",
        "At the present rate; no line while it does not catch up.",
        "s",
        [Query(f"binlog_drainer_lag_eta_seconds{{{INSTANCE}}}")],
        orange=600,
        red=3600,
    ),
    Panel(
        "Checkpoint Age",
        "How old the stored checkpoint is. It must stay well below the retention of the Pumps.",
        "s",
        [Query(f"time() - (binlog_drainer_checkpoint_tso{{{INSTANCE}}} > 0) / 1000")],
        orange=600,
        red=3600,
    ),
    Panel(
        "Rows Applied",
        "Row changes a second.",
        "ops",
        [Query(f"instance:binlog_drainer_rows:rate1m{{{INSTANCE}}}")],
    ),
    Panel(
        "Pulled",
        "Payload bytes a second from each Pump.",
        "Bps",
        [
            Query(
                f"sum(rate(binlog_drainer_collector_pulled_bytes_total{{{INSTANCE}}}{RATE}))"
                " by (instance, nodeID)",
                "{{instance}} {{nodeID}}",
            )
        ],
    ),
    Panel(
        "Held For Other Pumps",
        "Bytes of a Pump that wait until the other Pumps have promised as much.",
        "bytes",
        [Query(f"binlog_drainer_collector_held_bytes{{{INSTANCE}}}", "{{instance}} {{nodeID}}")],
    ),
]

DOWNSTREAM: Final = [
    Panel(
        "Lane Queues",
        "Encoded rows that wait in each lane. One that is full alone has most of the changes of a hot key.",
        "bytes",
        [Query(f"binlog_drainer_lane_queue_bytes{{{INSTANCE}}}", "{{instance}} lane {{lane}}")],
    ),
    Panel(
        "Batch Rows",
        "Row changes in one downstream transaction.",
        "short",
        [Query(_quantile("0.95", "binlog_drainer_lane_batch_rows", "instance"), "{{instance}} p95")],
    ),
    Panel(
        "Retries By Reason",
        "Batches that are tried again, a second.",
        "short",
        [
            Query(
                f"sum(rate(binlog_drainer_lane_retries_total{{{INSTANCE}}}{RATE})) by (instance, reason)",
                "{{instance}} {{reason}}",
            )
        ],
        orange=0.2,
    ),
    Panel(
        "DDL Time",
        "Run time of DDL downstream.",
        "s",
        [Query(_quantile("0.99", "binlog_drainer_ddl_execute_seconds", "instance"), "{{instance}} p99")],
    ),
    Panel(
        "Tables That Wait For A Decision",
        "`binlogctl ddl list` shows the DDL and the reason.",
        "short",
        [Query(f"binlog_drainer_quarantine_tables{{{INSTANCE}}}")],
        red=1,
    ),
    Panel(
        "Rows Kept Of Waiting Tables",
        "On the disk of the Drainer.",
        "bytes",
        [Query(f"binlog_drainer_quarantine_bytes{{{INSTANCE}}}")],
    ),
    Panel(
        "Drift",
        "Rows downstream that were not as they should have been, within the last hour, by table.",
        "short",
        [
            Query(
                f"sum(increase(binlog_drainer_drift_rows_total{{{INSTANCE}}}[1h])) by (instance, table)"
                " or vector(0)",
                "{{instance}} {{table}}",
            )
        ],
        red=1,
    ),
    Panel(
        "Rows That Differ",
        "Found by the last comparison of the whole downstream (syncer.verify).",
        "short",
        [Query(f"binlog_drainer_verify_wrong_rows{{{INSTANCE}}}")],
        NUMBER,
        red=1,
    ),
    Panel(
        "Downstream Went Back",
        "How often the downstream lost what it had confirmed.",
        "short",
        [Query(f"binlog_drainer_downstream_went_back_total{{{INSTANCE}}}")],
        NUMBER,
        red=1,
    ),
]

OPERATION: Final = [
    Panel(
        "Paused",
        "1 while an operator holds rows back.",
        "short",
        [Query(f"binlog_drainer_control_paused_count{{{INSTANCE}}}")],
        orange=1,
    ),
    Panel(
        "Rate Limit",
        "Rows a second that may go downstream; 0: unlimited.",
        "ops",
        [Query(f"binlog_drainer_control_rate_rows{{{INSTANCE}}}")],
    ),
    Panel(
        "Standby",
        "1: waits for the active Drainer to end.",
        "short",
        [
            Query(f"binlog_drainer_standby_waiting_count{{{INSTANCE}}}", "{{instance}} waits"),
            Query(f"binlog_drainer_standby_trouble_count{{{INSTANCE}}}", "{{instance}} could not take over"),
        ],
    ),
    Panel(
        "Large Transactions On Disk",
        "Bytes of transactions above syncer.spill-above.",
        "bytes",
        [Query(f"binlog_drainer_spill_bytes{{{INSTANCE}}}")],
    ),
    Panel(
        "Relay Log Write",
        "Writing and syncing a group of records. No line without a relay log.",
        "s",
        [
            Query(
                f"rate(binlog_binlogfile_write_binlog_duration_time_sum{{{INSTANCE}}}{RATE})"
                f" / rate(binlog_binlogfile_write_binlog_duration_time_count{{{INSTANCE}}}{RATE})",
                "{{instance}} mean",
            )
        ],
        orange=0.5,
    ),
    Panel(
        "Sink Held",
        "1 while an exception of a sink of your own holds everything back.",
        "short",
        [Query(f"binlog_drainer_sink_held_count{{{INSTANCE}}}")],
        red=1,
    ),
]

DRAINER: Final = Dashboard(
    "tidb-binlog-drainer",
    "TiDB Binlog: Drainer",
    "Position, lag, downstream and operation of Drainers.",
    [
        Row("Drainer", AS_BEFORE),
        Row("Lag", LAG),
        Row("Downstream", DOWNSTREAM),
        Row("Operation", OPERATION),
    ],
    {"instance": "label_values(binlog_drainer_checkpoint_tso, instance)"},
)

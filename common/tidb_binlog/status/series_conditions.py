"""Series conditions: what no document of a node says: it takes a series of scrapes, or the node is not there.

Why    apart from the others: a node does without this module
Tests  tests/deploy/prometheus/test_shown.py
"""

from __future__ import annotations

from typing import Final

from tidb_binlog.status.troubles import ERROR, WARNING, Condition, Rule

_GONE: Final = "the node does not answer, which `binlogctl status` and doctor say from the registry"
_ENDS: Final = "the drainer ends: it does not answer then"
_TREND: Final = "a quantile, an increase or a trend of some minutes, which only a series of scrapes has"
_JOB: Final = "of jobs, which have no /status"

PUMP: Final[tuple[Condition[object], ...]] = (
    Condition(
        "BinlogPumpWriteRpcSlow",
        WARNING,
        "One write in ten takes a pump more than a second",
        unsaid=_TREND,
        rule=Rule(
            "histogram_quantile(0.9, sum(rate("
            'binlog_pump_rpc_duration_seconds_bucket{method="WriteBinlog"}[5m])) by (le, job, instance)) > 1',
            "{{ $value | humanizeDuration }}. Compare with write_binlog_duration_time of type fsync: a slow"
            " disk, or too many clients.",
            pause="1m",
        ),
    ),
    Condition(
        "BinlogPumpWriteSlow",
        WARNING,
        "The disk of a pump takes more than a second for a group of binlogs",
        unsaid=_TREND,
        rule=Rule(
            "histogram_quantile(0.9, sum(rate("
            'binlog_pump_storage_write_binlog_duration_time_bucket{type="batch"}[5m]))'
            " by (le, job, instance)) > 1",
            "{{ $value | humanizeDuration }} for one group in ten. Check the disk, and what else works on"
            " it.",
            pause="1m",
        ),
    ),
    Condition(
        "BinlogPumpDown",
        ERROR,
        "A pump does not answer",
        unsaid=_GONE,
        rule=Rule(
            'up{job=~".*pump.*"} == 0',
            "does not answer Prometheus. Drainers wait for it and apply nothing newer; clients write to other"
            " pumps.",
            pause="1m",
        ),
    ),
    Condition(
        "BinlogPumpSpaceRunsOut",
        WARNING,
        "The disk of a pump will be full within four hours",
        unsaid=_TREND,
        rule=Rule(
            'predict_linear(binlog_pump_storage_storage_size_bytes{type="available"}[1h], 4 * 3600) < 0',
            "at the growth of the last hour no space is left in four hours.",
            pause="15m",
        ),
    ),
    Condition(
        "BinlogPumpPurgeFails",
        WARNING,
        "A pump cannot remove old files",
        unsaid=_TREND,
        rule=Rule(
            "increase(binlog_pump_retention_errors_total[1h]) > 0",
            "{{ $value | humanize }} purges failed within an hour. The log names the file and the error.",
        ),
    ),
)

DRAINER: Final[tuple[Condition[object], ...]] = (
    Condition(
        "BinlogDrainerExecuteSlow",
        WARNING,
        "One batch in ten takes the downstream more than ten seconds",
        unsaid=_TREND,
        rule=Rule(
            "histogram_quantile(0.9, sum(rate(binlog_drainer_execute_duration_time_bucket[1m]))"
            " by (le, job, instance)) > 10",
            "{{ $value | humanizeDuration }}. Check the downstream: locks, disk, processlist. Lanes in GET"
            " /status name a lane that waits.",
            pause="1m",
        ),
    ),
    Condition(
        "BinlogDrainerDown",
        ERROR,
        "A drainer does not answer",
        unsaid=_GONE,
        rule=Rule(
            'up{job=~".*drainer.*"} == 0',
            "does not answer Prometheus. Without a standby nothing is applied; pumps keep what it needs.",
            pause="1m",
        ),
    ),
    Condition(
        "BinlogDrainerStandbyLost",
        WARNING,
        "A standby is gone",
        unsaid=_TREND,
        rule=Rule(
            "job:binlog_drainer_standbys:sum < max_over_time(job:binlog_drainer_standbys:sum[1d])",
            "{{ $value }} drainers stand by, fewer than in the last day. Start the missing one again: after a"
            " takeover nothing else stands behind the active drainer.",
            pause="5m",
            of="job",
        ),
    ),
    Condition(
        "BinlogDrainerUndecodable",
        ERROR,
        "A binlog cannot be decoded",
        unsaid=_ENDS,
        rule=Rule(
            "increase(binlog_drainer_error_count[10m]) > 0",
            "{{ $labels.type }}. The drainer ends with exit code 6; its last line names the pump and the"
            " place.",
        ),
    ),
    Condition(
        "BinlogDrainerDisorder",
        ERROR,
        "A pump broke the order of its binlogs",
        unsaid=_ENDS,
        rule=Rule(
            "increase(binlog_drainer_disorder_binlog_count[10m]) > 0",
            "nothing is dropped, the drainer ends with exit code 6; its last line names the pump and both"
            " timestamps.",
        ),
    ),
    Condition(
        "BinlogDrainerRelayDamaged",
        ERROR,
        "A relay log has damaged records",
        unsaid=_TREND,
        rule=Rule(
            "increase(binlog_binlogfile_corruption_binlog_count[10m]) > 0",
            "{{ $value | humanize }} records in ten minutes. Check the disk of syncer.relay.log-dir; the log"
            " names file and offset.",
        ),
    ),
)

NODE: Final[tuple[Condition[object], ...]] = (
    Condition(
        "BinlogNodeRestarts",
        ERROR,
        "A node is started again and again",
        unsaid=_TREND,
        rule=Rule(
            'changes(process_start_time_seconds{job=~".*(pump|drainer).*"}[15m]) > 2',
            "{{ $value }} starts in 15 minutes. Its last line before each end says why; the exit code is in"
            " `systemctl status`.",
        ),
    ),
    Condition(
        "BinlogNodeHandshakesFail",
        WARNING,
        "Peers come without a certificate that a node accepts",
        unsaid=_TREND,
        rule=Rule(
            "increase(binlog_common_door_failed_handshakes_total[5m]) > 3",
            "{{ $value | humanize }} TLS handshakes failed in five minutes. The log names the peers: an"
            " expired certificate, another authority, or no TLS at all.",
            pause="5m",
        ),
    ),
    Condition(
        "BinlogNodeLimitsReached",
        WARNING,
        "A node ends connections or calls at one of its limits",
        unsaid=_TREND,
        rule=Rule(
            "sum(increase(binlog_common_door_refused_total[5m])) by (job, instance, limit) > 0 or"
            " sum(binlog_common_door_refused_total > 0 unless binlog_common_door_refused_total offset 5m)"
            " by (job, instance, limit)",
            "{{ $value | humanize }} in five minutes, by limit {{ $labels.limit }}. The log names the peers;"
            " [door] in the configuration has the limits.",
        ),
    ),
    Condition(
        "BinlogNodeEventsLost",
        WARNING,
        "Events do not reach notify-url",
        unsaid=_TREND,
        rule=Rule(
            'increase(binlog_common_notify_events_total{result!="sent"}[15m]) > 0',
            "{{ $value | humanize }} events were {{ $labels.result }} within 15 minutes. The log has the"
            " receiver's answer.",
        ),
    ),
)

SPARK: Final[tuple[Condition[object], ...]] = (
    Condition(
        "BinlogSparkJobFailed",
        WARNING,
        "The last run of a Spark job failed, or an audit found something",
        unsaid=_JOB,
        rule=Rule(
            "binlog_spark_job_exit_code > 0",
            "{{ $labels.name }} ({{ $labels.command }}) ended with exit code {{ $value }}; 17 to 23: findings"
            " of an audit.",
        ),
    ),
    Condition(
        "BinlogSparkStreamBehind",
        WARNING,
        "A stream of Spark lags more than five minutes",
        unsaid=_JOB,
        rule=Rule(
            "binlog_spark_stream_lag_seconds > 300",
            "the last batch of {{ $labels.name }} was {{ $value | humanizeDuration }} old when it was"
            " applied.",
            pause="5m",
        ),
    ),
)

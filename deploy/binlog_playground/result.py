"""What a run prints at its end: text from figures, and how to look at a cluster that stays.

Tests  tests/deploy/binlog_playground/test_options.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from binlog_playground.check.statistics import Statistics, quantile
from binlog_playground.check.verify import Report
from binlog_playground.cluster.cluster import Cluster
from binlog_playground.options import Options
from binlog_playground.workload.limits import MARIADB, MISPLACED, MISPLACED_REASON

DIFFERENCES_MAX: Final = 1000


def lines(report: Report, statistics: Statistics, subscribed: Report | None = None) -> list[str]:
    """Differences, limits, what was not compared, the verdict and the summary. `subscribed`: of the program
    that subscribes."""
    text = [str(difference) for difference in report.differences[:DIFFERENCES_MAX]]
    if len(report.differences) > DIFFERENCES_MAX:
        text.append(f"... and {len(report.differences) - DIFFERENCES_MAX} more differences")
    reasons = {MISPLACED: MISPLACED_REASON, **{limit.name: limit.reason for limit in MARIADB}}
    for name, count in sorted(report.limited.items()):
        text.append(f"limit of the downstream, {count} rows: {name} ({reasons[name]})")
    if report.not_compared:
        names = ", ".join(report.not_compared)
        text.append(f"not compared: {len(report.not_compared)} views and sequences: {names}")
    if report.equal:
        text.append(f"verified: {report.tables} tables, {report.rows_identical} rows identical")
    else:
        text.append(
            f"DIFFERENT: {len(report.differences)} differences in {report.tables} tables,"
            f" {report.rows_identical} rows identical"
        )
    if subscribed is not None:
        text += _subscribed(subscribed, statistics)
    return [*text, summary(statistics)]


def kept_lines(cluster: Cluster) -> list[str]:
    """How to look at a cluster that stays: commands to paste, addresses, files."""
    server, endpoint = cluster.mariadb, cluster.etcd_endpoint
    program = Path(sys.executable).with_name("binlogctl")
    if program.is_relative_to(Path.cwd()):
        program = program.relative_to(Path.cwd())
    config = f" -drainer-config {cluster.config_of(cluster.drainer.name)}" if cluster.drainer else ""
    return [
        f"status:   {program} status -pd-urls {endpoint}",
        f"rows:     {program} tail -from oldest -pd-urls {endpoint}",
        f"doctor:   {program} doctor -pd-urls {endpoint}{config}",
        f"MariaDB:  mariadb -h {server.host} -P {server.port} -u {server.user} -p{server.password}",
        f"etcd:     {endpoint}",
        *(
            f"{node.name + ':':9} {node.address}, status page http://{node.address}/"
            for node in cluster.nodes
        ),
        f"files:    {cluster.directory}",
        "Ctrl-C ends everything",
    ]


def _subscribed(report: Report, statistics: Statistics) -> list[str]:
    found = [f"subscriber: {difference}" for difference in report.differences[:DIFFERENCES_MAX]]
    verdict = "verified" if report.equal else f"DIFFERENT: {len(report.differences)} differences,"
    found.append(
        f"subscriber {verdict}: {report.tables} tables, {report.rows_identical} rows identical after"
        f" {statistics.subscribed} row changes"
    )
    return found


def summary(statistics: Statistics) -> str:
    """Rates and lag in one line."""
    parts = []
    if statistics.replayed:
        parts.append(f"{statistics.replayed} recorded binlogs in {statistics.replay_s:.1f} s")
    if statistics.transactions:
        transactions_per_s, rows_per_s = statistics.overall_rates()
        parts += [
            f"{statistics.transactions} transactions ({transactions_per_s:.0f}/s)",
            f"{statistics.rows} row changes ({rows_per_s:.0f}/s)",
            f"{statistics.ddl} DDL ({statistics.type_changes} of types, {statistics.shard_ddl} of shards)",
            f"{statistics.rolled_back} rolled back",
            f"{statistics.abandoned} never finished",
        ]
    parts += [f"{count} times {fault}" for fault, count in sorted(statistics.faults.items())]
    if statistics.lag_s:
        parts.append(f"lag p50 {statistics.lag_ms(0.5):.0f} ms, p99 {statistics.lag_ms(0.99):.0f} ms")
    if statistics.quiet_lag_s:
        parts.append(f"quiet: {quantile(statistics.quiet_lag_s, 0.5):.1f} s behind")
    if statistics.first_row_s:
        parts.append(f"first row after {statistics.first_row_s:.1f} s")
    return "summary: " + ", ".join(parts or ["nothing was measured"])


def result_json(
    report: Report, statistics: Statistics, options: Options, subscribed: Report | None = None
) -> str:
    """The whole result as one JSON object."""
    transactions_per_s, rows_per_s = statistics.overall_rates()
    return json.dumps(
        {
            "equal": report.equal and (subscribed is None or subscribed.equal),
            "subscriber": None
            if subscribed is None
            else {
                "equal": subscribed.equal,
                "tables": subscribed.tables,
                "rows_identical": subscribed.rows_identical,
                "rows": statistics.subscribed,
                "differences": [str(difference) for difference in subscribed.differences],
            },
            "tables": report.tables,
            "rows_identical": report.rows_identical,
            "differences": [str(difference) for difference in report.differences],
            "limited": dict(report.limited),
            "not_compared": report.not_compared,
            "transactions": statistics.transactions,
            "rows": statistics.rows,
            "transactions_per_s": round(transactions_per_s, 1),
            "rows_per_s": round(rows_per_s, 1),
            "rolled_back": statistics.rolled_back,
            "abandoned": statistics.abandoned,
            "ddl": statistics.ddl,
            "type_changes": statistics.type_changes,
            "shard_ddl": statistics.shard_ddl,
            "kills": statistics.kills,
            "faults": dict(statistics.faults),
            "replayed": statistics.replayed,
            "replay_s": round(statistics.replay_s, 2),
            "lag_p50_ms": round(statistics.lag_ms(0.5), 1),
            "lag_p99_ms": round(statistics.lag_ms(0.99), 1),
            "quiet_lag_s": round(quantile(statistics.quiet_lag_s, 0.5), 3),
            "first_row_s": round(statistics.first_row_s, 2),
            "seed": options.seed,
        },
        ensure_ascii=False,
    )

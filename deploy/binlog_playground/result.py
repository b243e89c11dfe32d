"""Result: what a run prints at its end: text from figures, and how to look at a cluster that stays.

Tests  tests/deploy/binlog_playground/test_options.py
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from binlog_playground.check.statistics import Statistics, quantile
from binlog_playground.check.verify import Report
from binlog_playground.cluster.cluster import Cluster

DIFFERENCES_MAX: Final = 1000


def lines(
    report: Report, statistics: Statistics, reasons: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Differences, limits with their `reasons`, what was not compared, the verdict and the summary."""
    text = [str(difference) for difference in report.differences[:DIFFERENCES_MAX]]
    if len(report.differences) > DIFFERENCES_MAX:
        text.append(f"... and {len(report.differences) - DIFFERENCES_MAX} more differences")
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


def summary(statistics: Statistics) -> str:
    """Rates and lag in one line."""
    told = []
    if statistics.replayed:
        told.append(f"{statistics.replayed} recorded binlogs in {statistics.replay_s:.1f} s")
    if statistics.transactions:
        transactions_per_s, rows_per_s = statistics.overall_rates()
        told += [
            f"{statistics.transactions} transactions ({transactions_per_s:.0f}/s)",
            f"{statistics.rows} row changes ({rows_per_s:.0f}/s)",
            f"{statistics.ddl} DDL",
            f"{statistics.rolled_back} rolled back",
        ]
    told += [f"{count} times {fault}" for fault, count in sorted(statistics.faults.items())]
    if statistics.lag_s:
        told.append(f"lag p50 {statistics.lag_ms(0.5):.0f} ms, p99 {statistics.lag_ms(0.99):.0f} ms")
    if statistics.quiet_lag_s:
        told.append(f"quiet: {quantile(statistics.quiet_lag_s, 0.5):.1f} s behind")
    if statistics.first_row_s:
        told.append(f"first row after {statistics.first_row_s:.1f} s")
    return "summary: " + ", ".join(told or ["nothing was measured"])


def document(report: Report, statistics: Statistics, seed: int) -> dict[str, Any]:
    """The whole result, for JSON."""
    transactions_per_s, rows_per_s = statistics.overall_rates()
    return {
        "equal": report.equal,
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
        "ddl": statistics.ddl,
        "replayed": statistics.replayed,
        "replay_s": round(statistics.replay_s, 2),
        "lag_p50_ms": round(statistics.lag_ms(0.5), 1),
        "lag_p99_ms": round(statistics.lag_ms(0.99), 1),
        "quiet_lag_s": round(quantile(statistics.quiet_lag_s, 0.5), 3),
        "first_row_s": round(statistics.first_row_s, 2),
        "seed": seed,
    }


def json_text(document: Mapping[str, Any]) -> str:
    """One JSON object in one line."""
    return json.dumps(document, ensure_ascii=False)

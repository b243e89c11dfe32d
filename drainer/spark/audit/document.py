"""Document: the outcome of an audit as JSON, for programs.

Out    the facts that the page of `report` shows
Tests  tests/spark/audit/test_report.py
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from drainer.spark.audit.auditing import Outcome
from drainer.spark.audit.checks.figures import Figures
from drainer.spark.audit.checks.findings import exit_code
from tidb_binlog import time_text, tso


def document(outcome: Outcome, audited_s: float) -> dict[str, Any]:
    """All that can be written as JSON."""
    figures = outcome.figures
    facts: dict[str, Any] = {
        "archive": outcome.archive,
        "kind": outcome.kind,
        "audited": time_text.utc(tso.from_wall_s(audited_s)),
        "exit_code": exit_code(outcome.findings),
        "at": outcome.at_ts,
        "compared_with": outcome.compared_with,
        "first_commit_ts": figures.first_ts,
        "last_commit_ts": figures.last_ts,
        "files": figures.files,
        "bytes": figures.size,
        "transactions": figures.transactions,
        "ddl": figures.ddl,
        "rows": figures.rows,
        "checks": {check: findings.to_json() for check, findings in outcome.findings.items()},
        "age_s": age_s(figures, audited_s),
        "lags": [asdict(lag) for lag in figures.lags],
        "changes": [asdict(change) for change in figures.changes],
        "rows_per_transaction": _powers(figures.rows_per_transaction),
        "bytes_per_transaction": _powers(figures.bytes_per_transaction),
    }
    if outcome.chains is not None:
        facts["links"] = outcome.chains.links
        facts["beginnings"] = outcome.chains.beginnings
    if outcome.contents is not None:
        facts["tables"] = [
            {
                **asdict(table),
                "expected_sum": f"{table.expected_sum:016x}",
                "actual_sum": f"{table.actual_sum:016x}",
            }
            for table in outcome.contents.tables
        ]
    return facts


def _powers(counts: dict[int, int]) -> list[dict[str, int]]:
    """Numbers of transactions by the largest size that is counted there."""
    return [{"up_to": 1 << power, "transactions": number} for power, number in sorted(counts.items())]


def age_s(figures: Figures, audited_s: float) -> int:
    return max(0, int(tso.age_s(figures.last_ts, audited_s))) if figures.last_ts else 0

"""Conditions of a drainer: what of its status an operator is told of by `notify-url`.

Tests  tests/drainer/operate/status/test_conditions.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidb_binlog.notify.events import Condition, Type
from tidb_binlog.status.codec import read
from tidb_binlog.status.drainer import DdlStatus, DrainerDocument, VerifyStatus, WaitingDdl

DIFFERS = "differs"


def conditions(document: Mapping[str, Any]) -> Iterator[Condition]:
    """`document`: of a drainer that applies; what it does not say does not hold."""
    status = read(document, DrainerDocument)
    if isinstance(status.ddl, DdlStatus):
        for entry in status.ddl.waiting:
            if not entry.decision and not entry.goes_on:
                yield _waiting(entry)
    if status.sink and status.sink.held:
        yield Condition(
            Type.SINK_HELD,
            status.sink.name,
            f"the sink {status.sink.name} holds the stream: {status.sink.error}",
            "PUT /apply/resume tries again, once the cause is gone",
        )
    if isinstance(status.verify, VerifyStatus) and status.verify.state == DIFFERS:
        yield _differs(status.verify)


def _waiting(entry: WaitingDdl) -> Condition:
    tables = ", ".join(entry.tables)
    details = {
        "job_id": entry.job_id,
        "commit_ts": entry.commit_ts,
        "tables": entry.tables,
        "query": entry.query,
        "reason": entry.reason,
    }
    what = "a DDL waits" if entry.query else "refused rows wait"
    return Condition(
        Type.DDL_WAITS if entry.query else Type.ROWS_WAIT,
        str(entry.job_id),
        f"{what} for a decision, and {tables} with it: {entry.reason}",
        "binlogctl ddl list shows it; binlogctl ddl decides",
        details,
    )


def _differs(verify: VerifyStatus) -> Condition:
    return Condition(
        Type.VERIFY_DIFFERS,
        "verify",
        f"the downstream differs from the upstream in {verify.wrong} rows",
        "binlogctl verify shows them; docs/verify.md mends them",
        {"rows": verify.wrong, "tables": verify.wrong_rows, "ts": verify.ts},
    )


def took_over(name: str) -> Condition:
    """A standby has the node id now."""
    return Condition(
        Type.TOOK_OVER,
        name,
        f"a standby took over as {name}",
        "look for why the other drainer ended; start it again with standby = true",
    )

"""Verify record: what the comparisons of this Drainer have found, and when the next one is due.

Out    `VerifyStatus`, for /status and for the file that outlives the process
Holds  a comparison that came to no end takes nothing away from what the last one found. It is made again
       soon, and later each time it fails, but never later than one that had not failed
"""

from __future__ import annotations

from typing import Any, Final

from tidb_binlog.status.codec import read
from tidb_binlog.status.drainer import VerifyStatus

FIRST_S: Final = 60.0
"""After the start, so that a drainer that begins is not burdened."""
AGAIN_S: Final = 60.0
LISTED_MAX: Final = 20
NOT_COMPARABLE: Final = "not comparable"
KINDS: Final = ("missing", "extra", "changed")


def at_start(stored: object, every_s: float, now_s: float) -> VerifyStatus:
    """`stored`: what the file has, anything else is nothing."""
    status = read(stored, VerifyStatus)
    status.running_since_s, status.progress, status.grid = 0.0, "", []
    last_s = min(max(status.began_s, 0.0), now_s)
    status.next_s = max(now_s + min(FIRST_S, every_s), last_s + every_s if last_s else 0.0)
    return status


def begun(status: VerifyStatus, now_s: float) -> None:
    """Note that a comparison runs."""
    status.running_since_s = now_s


def ended(status: VerifyStatus, document: dict[str, Any], every_s: float, now_s: float) -> None:
    """`document`: as `drainer.compare.report.json_document` makes it."""
    tables: list[dict[str, Any]] = document["tables"]
    status.state, status.ts = str(document["state"]), int(document["ts"])
    status.began_s, status.ended_s = status.running_since_s, now_s
    status.rows, status.tables = int(document["rows"]), len(tables)
    wrong = {entry["downstream"]: sum(int(entry[kind]) for kind in KINDS) for entry in tables}
    worst = sorted((table for table in wrong if wrong[table]), key=lambda table: -wrong[table])
    left_out = {
        entry["downstream"]: str(entry["why"]) for entry in tables if entry["state"] == NOT_COMPARABLE
    }
    status.wrong, status.left_out = int(document["wrong"]), len(left_out)
    status.wrong_rows = {table: wrong[table] for table in worst[:LISTED_MAX]}
    status.not_compared = dict(sorted(left_out.items())[:LISTED_MAX])
    status.held_ms = float(document["held_ms"])
    status.failures, status.trouble = 0, ""
    _rest(status, status.began_s + every_s, now_s)


def failed(status: VerifyStatus, why: str, every_s: float, now_s: float) -> None:
    """Note why a comparison did not end, and when the next one begins."""
    status.failures += 1
    status.trouble = why
    pause_s = min(AGAIN_S * 2.0 ** min(status.failures - 1, 20), every_s)
    _rest(status, now_s + pause_s, now_s)


def _rest(status: VerifyStatus, next_s: float, now_s: float) -> None:
    status.running_since_s, status.progress, status.grid = 0.0, "", []
    status.next_s = max(now_s, next_s)

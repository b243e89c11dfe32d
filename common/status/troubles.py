"""Troubles: what needs the operator, from what a node says of itself.

In     the document of one node, as far as it could be read
Out    troubles by severity: an error is what holds replication up or loses something; a warning what will, or
       what an operator does himself
Why    `binlogctl status` and the node's own page say the same of it, in the same words
Tests  tests/deploy/ctl/cluster/test_overview.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from common.status import clock_skew
from common.status.drainer import DrainerDocument, LagStatus, VerifyStatus
from common.status.pump import PumpDocument, PumpStatus, RetentionStatus

ERROR: Final = "error"
WARNING: Final = "warning"
STUCK_S: Final = 10.0
"""An open transaction or a lag is worth a word from here on, as in the nodes' own logs."""
RETENTION_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that needs the operator."""

    severity: str
    node: str
    text: str
    hint: str = ""


def of_pump(document: PumpDocument, label: str) -> list[Trouble]:
    """`label`: as the node is called in the text of another."""
    pump = document.pump or PumpStatus()
    found: list[Trouble] = []
    if document.error:
        found.append(Trouble(WARNING, label, f"is cut off: {document.error}", "see to etcd or PD"))
    if pump.writer == "failed":
        text = f"stores nothing any more: {pump.writer_error or ''}"
        found.append(Trouble(ERROR, label, text, "repair its disk, then restart it"))
    available = pump.disk.available
    if available is not None and available <= (pump.disk.floor or 0):
        free = f"{available / (1 << 30):.1f} GiB free"
        text = f"refuses prewrites: {free}, below the floor of its disk"
        found.append(
            Trouble(ERROR, label, text, "free space, or lower storage.stop-write-at-available-space")
        )
    if pump.index_error:
        found.append(Trouble(ERROR, label, f"its index fails: {pump.index_error}", "see its log"))
    if pump.leaving is not None and pump.leaving.waits_for:
        found.append(Trouble(WARNING, label, f"is closing and waits for {pump.leaving.waits_for}"))
    for oldest in pump.oldest[:1]:
        if oldest.age_s >= STUCK_S:
            which = f"the transaction with start_ts {oldest.start_ts}"
            text = f"{which} has been open for {oldest.age_s:.0f} s and holds replication up"
            found.append(Trouble(ERROR, label, text, oldest.next))
    if apart := clock_skew.of(pump.upstream_time):
        found.append(Trouble(WARNING, label, apart, clock_skew.HINT))
    return found + _of_retention(pump.retention or RetentionStatus(), label)


def _of_retention(retention: RetentionStatus, label: str) -> list[Trouble]:
    found: list[Trouble] = []
    if held_up_by := retention.held_up_by:
        found.append(Trouble(WARNING, label, f"purges less than it should: {'; '.join(held_up_by)}"))
    for drainer in retention.drainers:
        left_s = drainer.left_s or 0.0
        if drainer.lost:
            text = f"has purged binlogs that drainer {drainer.node_id} has not applied"
            found.append(Trouble(ERROR, label, text, "copy the data anew and start it from there"))
        elif left_s < (retention.alarm_s or RETENTION_S):
            text = f"purges what drainer {drainer.node_id} has not applied in {max(left_s, 0) / 3600:.1f} h"
            found.append(Trouble(WARNING, label, text, "bring that drainer on, or raise gc"))
    return found


def of_drainer(document: DrainerDocument, node_id: str, label: str) -> list[Trouble]:
    found: list[Trouble] = []
    if document.control and document.control.paused:
        hint = f"`binlogctl resume {node_id}`"
        found.append(Trouble(ERROR, label, "holds applying back, because an operator said so", hint))
    if document.ddl and (waiting := document.ddl.waiting):
        jobs = ", ".join(str(one.job_id) for one in waiting[:5])
        text = f"{len(waiting)} DDL and the rows of their tables wait for a decision: job {jobs}"
        found.append(Trouble(ERROR, label, text, "`binlogctl ddl list`"))
    if document.verify:
        found += _of_verify(document.verify, label)
    if document.upstream_time and (apart := clock_skew.of(document.upstream_time)):
        found.append(Trouble(WARNING, label, apart, clock_skew.HINT))
    lag = document.lag or LagStatus()
    if lag.total_s >= STUCK_S and not any(trouble.severity == ERROR for trouble in found):
        text = f"is {lag.total_s:.0f} s behind" + (f": {lag.reason}" if lag.reason else "")
        found.append(Trouble(ERROR if lag.eta_s is None else WARNING, label, text))
    return found


def _of_verify(verify: VerifyStatus, label: str) -> list[Trouble]:
    """What the comparisons that a drainer makes by itself have found."""
    found: list[Trouble] = []
    if verify.wrong:
        tables = ", ".join(f"{table} ({rows})" for table, rows in list(verify.wrong_rows.items())[:5])
        text = f"its downstream differs from the upstream in {verify.wrong} rows: {tables}"
        hint = "`binlogctl verify -drainer-config FILE` shows them, and writes SQL that mends them"
        found.append(Trouble(ERROR, label, text, hint))
    if verify.failures:
        text = f"could not compare its downstream with the upstream: {verify.trouble}"
        found.append(Trouble(WARNING, label, text, "it is tried again by itself"))
    return found

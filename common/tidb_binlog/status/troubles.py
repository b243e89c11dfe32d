"""Troubles: what needs the operator, from what a node says of itself.

In     the document of one node, as far as it could be read
Out    troubles by severity: an error is what holds replication up or loses something; a warning what will, or
       what an operator does himself
Why    `binlogctl status`, `doctor` and the node's own page say the same of it, in the same words; each alert
       of deploy/prometheus has a trouble here, or a reason why not (tests/deploy/prometheus/test_shown.py)
Tests  tests/deploy/binlogctl/cluster/test_overview.py
"""

from __future__ import annotations

from typing import Final

from msgspec import UnsetType

from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.status import clock_skew
from tidb_binlog.status.drainer import DrainerDocument, LagStatus, MismatchStatus, VerifyStatus
from tidb_binlog.status.pump import DiskStatus, PumpDocument, PumpStatus, RetentionStatus
from tidb_binlog.status.reload import ReloadStatus

ERROR: Final = "error"
WARNING: Final = "warning"
STUCK_S: Final = 10.0
"""An open transaction or a lag is worth a word from here on, as in the nodes' own logs."""
RETENTION_S: Final = 3600.0
# As the alerts of deploy/prometheus have them.
RECENT_S: Final = 600.0
INDEX_BEHIND_S: Final = 60.0
SILENT_S: Final = 30.0
SPACE_LOW_BYTES: Final = 20 << 30


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that needs the operator. `is_past`: it is over, and told for what it left."""

    severity: str
    node: str
    text: str
    hint: str = ""
    is_past: bool = False


def of_pump(document: PumpDocument, label: str) -> list[Trouble]:
    """`label`: as the node is called in the text of another."""
    pump = document.pump or PumpStatus()
    troubles: list[Trouble] = []
    if document.error:
        troubles.append(Trouble(WARNING, label, f"is cut off: {document.error}", "see to etcd or PD"))
    if pump.writer == "failed":
        text = f"stores nothing any more: {pump.writer_error or ''}"
        troubles.append(Trouble(ERROR, label, text, "repair its disk, then restart it"))
    troubles += _of_disk(pump.disk, label)
    if pump.index_error:
        troubles.append(Trouble(ERROR, label, f"its index fails: {pump.index_error}", "see its log"))
    elif (lag_s := pump.stages.indexed.lag_s or 0.0) > INDEX_BEHIND_S:
        text = f"its index is {lag_s:.0f} s behind: drainers get nothing newer"
        troubles.append(Trouble(WARNING, label, text, "it catches up by itself"))
    if pump.resolver.unavailable_s > SILENT_S:
        silent = (
            f"has no answer from the upstream on open transactions for {pump.resolver.unavailable_s:.0f} s"
        )
        troubles.append(Trouble(ERROR, label, silent, "the upstream must answer this pump: see its log"))
    if late := pump.late.commits:
        severity = ERROR if (pump.time_s or 0.0) - pump.late.last_s < RECENT_S else WARNING
        text = f"took {late} commits below its watermark since its start: drainers beyond do not have them"
        troubles.append(Trouble(severity, label, text, "`binlogctl verify` the downstream", is_past=True))
    if pump.leaving is not None and pump.leaving.waits_for:
        troubles.append(Trouble(WARNING, label, f"is closing and waits for {pump.leaving.waits_for}"))
    for oldest in pump.oldest[:1]:
        if oldest.age_s >= STUCK_S:
            which = f"the transaction with start_ts {oldest.start_ts}"
            text = f"{which} has been open for {oldest.age_s:.0f} s and holds replication up"
            troubles.append(Trouble(ERROR, label, text, oldest.next))
    if apart := clock_skew.of(pump.upstream_time):
        troubles.append(Trouble(WARNING, label, apart, clock_skew.HINT))
    return (
        troubles
        + _of_retention(pump.retention or RetentionStatus(), label)
        + _of_reload(pump.configuration, label)
    )


def _of_disk(disk: DiskStatus, label: str) -> list[Trouble]:
    if disk.available is None:
        return []
    free = f"{disk.available / (1 << 30):.1f} GiB free"
    if disk.available <= (disk.floor or 0):
        text, hint = (
            "below the floor of its disk",
            "free space, or lower storage.stop-write-at-available-space",
        )
        return [Trouble(ERROR, label, f"refuses prewrites: {free}, {text}", hint)]
    if disk.available < SPACE_LOW_BYTES:
        return [Trouble(WARNING, label, f"has {free} on its disk", "free space, or keep less (gc)")]
    return []


def _of_reload(configuration: ReloadStatus | UnsetType | None, label: str) -> list[Trouble]:
    if not configuration or configuration.ok:
        return []
    text = f"did not take its configuration when it was told to read it again: {configuration.error}"
    return [
        Trouble(WARNING, label, text, "mend the file, then SIGHUP or PUT /reload; a start would refuse it")
    ]


def _of_retention(retention: RetentionStatus, label: str) -> list[Trouble]:
    troubles: list[Trouble] = []
    if held_up_by := retention.held_up_by:
        troubles.append(Trouble(WARNING, label, f"purges less than it should: {'; '.join(held_up_by)}"))
    for drainer in retention.drainers:
        left_s = drainer.left_s or 0.0
        if drainer.lost:
            text = f"has purged binlogs that drainer {drainer.node_id} has not applied"
            troubles.append(Trouble(ERROR, label, text, "copy the data anew and start it from there"))
        elif left_s < (retention.alarm_s or RETENTION_S):
            text = f"purges what drainer {drainer.node_id} has not applied in {max(left_s, 0) / 3600:.1f} h"
            troubles.append(Trouble(WARNING, label, text, "bring that drainer on, or raise gc"))
    return troubles


def of_drainer(document: DrainerDocument, node_id: str, label: str) -> list[Trouble]:
    """`node_id`: as commands name it; `label`: as the node is called in the text of another."""
    troubles: list[Trouble] = []
    if document.control and document.control.paused:
        hint = f"`binlogctl resume {node_id}`"
        troubles.append(Trouble(ERROR, label, "holds applying back, because an operator said so", hint))
    if document.ddl and (waiting := document.ddl.waiting):
        jobs = ", ".join(str(entry.job_id) for entry in waiting[:5])
        text = f"{len(waiting)} DDL and the rows of their tables wait for a decision: job {jobs}"
        troubles.append(Trouble(ERROR, label, text, "`binlogctl ddl list`"))
    if document.sink and document.sink.held:
        text = f"its sink {document.sink.name} holds the stream: {document.sink.error}"
        troubles.append(Trouble(ERROR, label, text, "PUT /apply/resume tries again, once the cause is gone"))
    verify = document.verify or VerifyStatus()
    troubles += _of_verify(verify, label)
    troubles += _of_downstream(document, verify, label)
    if document.upstream_time and (apart := clock_skew.of(document.upstream_time)):
        troubles.append(Trouble(WARNING, label, apart, clock_skew.HINT))
    if document.standby and document.standby.trouble:
        text = f"stands by and could not take over now: {document.standby.trouble}"
        troubles.append(Trouble(WARNING, label, text, "see its log"))
    troubles += _of_reload(document.configuration, label)
    lag = document.lag or LagStatus()
    if lag.total_s >= STUCK_S and not any(trouble.severity == ERROR for trouble in troubles):
        text = f"is {lag.total_s:.0f} s behind" + (f": {lag.reason}" if lag.reason else "")
        troubles.append(Trouble(ERROR if lag.eta_s is None else WARNING, label, text))
    return troubles


def _of_downstream(document: DrainerDocument, verify: VerifyStatus, label: str) -> list[Trouble]:
    """What the downstream was not, or did not have. It is an error for a while, as the alerts have it, and
    told until a comparison finds the downstream equal."""
    troubles: list[Trouble] = []
    now_s = document.time or 0.0
    if document.held_up_s >= STUCK_S and not (document.sink and document.sink.held):
        text = f"cannot write, for {document.held_up_s:.0f} s: {document.held_up}"
        troubles.append(Trouble(WARNING, label, text, "see to the downstream"))
    drift = document.drift or MismatchStatus()
    shown_equal = verify.state == "equal" and verify.began_s > drift.last_s
    if drift.rows and not shown_equal:
        tables = ", ".join(f"{table} ({rows})" for table, rows in list(drift.rows.items())[:5])
        severity = ERROR if now_s - drift.last_s < RECENT_S else WARNING
        text = f"rows downstream were not as they should have been, since its start: {tables}"
        hint = "`binlogctl verify` the tables; does another program write?"
        troubles.append(Trouble(severity, label, text, hint, is_past=True))
    if drift.texts:
        columns = ", ".join(f"{table}.{column}" for table, of in drift.texts.items() for column in of)
        text = f"the downstream's character set does not have some texts of {columns}"
        troubles.append(Trouble(WARNING, label, text, "give the columns utf8mb4", is_past=True))
    for back in document.went_back or ():
        if now_s - back.time < RECENT_S:
            text = f"its downstream lost what it had confirmed, which is pulled again: {back.why}"
            hint = "find out why it went back: what others wrote is gone"
            troubles.append(Trouble(ERROR, label, text, hint, is_past=True))
    return troubles


def _of_verify(verify: VerifyStatus, label: str) -> list[Trouble]:
    """What the comparisons that a drainer makes by itself have found."""
    troubles: list[Trouble] = []
    if verify.wrong:
        tables = ", ".join(f"{table} ({rows})" for table, rows in list(verify.wrong_rows.items())[:5])
        text = f"its downstream differs from the upstream in {verify.wrong} rows: {tables}"
        hint = "`binlogctl verify -drainer-config FILE` shows them, and writes SQL that mends them"
        troubles.append(Trouble(ERROR, label, text, hint))
    if verify.failures:
        text = f"could not compare its downstream with the upstream: {verify.trouble}"
        troubles.append(Trouble(WARNING, label, text, "it is tried again by itself"))
    return troubles

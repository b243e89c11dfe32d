"""Drainer conditions: what may be wrong with a drainer, and how that shows in its document and its series.

Tests  tests/deploy/prometheus/test_shown.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidb_binlog import tso
from tidb_binlog.quantities import count
from tidb_binlog.status import clock_skew
from tidb_binlog.status.drainer import DrainerDocument, LagStatus, MismatchStatus, VerifyStatus
from tidb_binlog.status.pump_conditions import (
    RELOAD_MEANS,
    RELOAD_MEND,
    RELOAD_RULE,
    reload_refused,
    skew,
)
from tidb_binlog.status.troubles import (
    ERROR,
    RECENT_S,
    STUCK_S,
    WARNING,
    Condition,
    Rule,
    Said,
    Trouble,
    stopped,
    troubles,
)

OLD_CHECKPOINT_S: Final = 3600
BEHIND_S: Final = 300
SORT_WAIT_S: Final = 60
_SHOWN: Final = 5
"""So many tables, jobs or columns are named."""


def of_drainer(document: DrainerDocument, label: str) -> list[Trouble]:
    """`label`: as the node is called in the text of another."""
    return troubles(CONDITIONS, document, label)


def stopped_drainer(document: DrainerDocument) -> str:
    """Why it does not apply, as far as its document says; "" if it does."""
    return stopped(CONDITIONS, document)


def _paused(document: DrainerDocument) -> Iterator[Said]:
    if document.control and document.control.paused:
        hint = f"`binlogctl resume {document.node_id or 'NODE'}`"
        yield Said("holds applying back, because an operator said so", hint, stops=True)


def _ddl_waits(document: DrainerDocument) -> Iterator[Said]:
    if document.ddl and (waiting := [entry for entry in document.ddl.waiting if not entry.goes_on]):
        jobs = ", ".join(str(entry.job_id) for entry in waiting[:_SHOWN])
        refused = sum(not entry.query for entry in waiting)
        what = (
            [f"{len(waiting) - refused} DDL and the rows of their tables"] if refused < len(waiting) else []
        )
        what += [f"refused rows of {count(refused, 'table')}"] if refused else []
        yield Said(f"{' and '.join(what)} wait for a decision: job {jobs}")


def _sink_held(document: DrainerDocument) -> Iterator[Said]:
    if document.sink and document.sink.held:
        text = f"its sink {document.sink.name} holds the stream: {document.sink.error}"
        yield Said(text, stops=True)


def _cannot_write(document: DrainerDocument) -> Iterator[Said]:
    if document.held_up_s >= STUCK_S and not (document.sink and document.sink.held):
        text = f"cannot write, for {document.held_up_s:.0f} s: {document.held_up}"
        yield Said(text, stops=True)


def _differs(document: DrainerDocument) -> Iterator[Said]:
    verify = document.verify
    if verify and verify.wrong:
        text = f"its downstream differs from the upstream in {verify.wrong} rows: {_rows(verify.wrong_rows)}"
        yield Said(text)


def _not_verified(document: DrainerDocument) -> Iterator[Said]:
    if document.verify and document.verify.failures:
        yield Said(f"could not compare its downstream with the upstream: {document.verify.trouble}")


def _drift(document: DrainerDocument) -> Iterator[Said]:
    """An error for a while, as the alert has it, and told until a comparison finds the downstream equal."""
    drift = document.drift or MismatchStatus()
    if drift.rows and not _equal_since(document, drift.last_s):
        is_recent = (document.time or 0.0) - drift.last_s < RECENT_S
        text = f"has met rows downstream that were not as they should be: {_rows(drift.rows)}"
        yield Said(text, severity="" if is_recent else WARNING, is_past=True)


def _equal_since(document: DrainerDocument, last_s: float) -> bool:
    """Whether a comparison that began after that came upon no difference."""
    verify = document.verify or VerifyStatus()
    return verify.state == "equal" and verify.began_s > last_s


def _rows(of: dict[str, int]) -> str:
    return ", ".join(f"{table} ({rows})" for table, rows in list(of.items())[:_SHOWN])


def _text_lost(document: DrainerDocument) -> Iterator[Said]:
    """Told until a comparison finds the downstream equal."""
    if document.drift and document.drift.texts and not _equal_since(document, document.drift.texts_last_s):
        columns = [f"{table}.{column}" for table, of in document.drift.texts.items() for column in of]
        text = f"the downstream's character set does not have some texts of {', '.join(columns)}"
        yield Said(text, is_past=True)


def _early_rows(document: DrainerDocument) -> Iterator[Said]:
    """Told until a comparison finds the downstream equal."""
    if early := [ddl for ddl in document.early_rows or () if not _equal_since(document, ddl.last_s)]:
        tables = ", ".join(dict.fromkeys(table for ddl in early for table in ddl.tables[:1]))
        text = f"rows that were written during an ALTER TABLE may lack values, or be gone: {tables}"
        yield Said(text, is_past=True)


def _went_back(document: DrainerDocument) -> Iterator[Said]:
    for back in document.went_back or ():
        if (document.time or 0.0) - back.time < RECENT_S:
            text = f"its downstream lost what it had confirmed, which is pulled again: {back.why}"
            yield Said(text, is_past=True)


def _standby_cannot(document: DrainerDocument) -> Iterator[Said]:
    if document.standby and document.standby.trouble:
        yield Said(f"stands by and could not take over now: {document.standby.trouble}")


def _pump_away(document: DrainerDocument) -> Iterator[Said]:
    for node_id, pump in (document.pumps or {}).items():
        if not pump.connected and pump.error:
            yield Said(f"does not reach pump {node_id}: {pump.error}")


def _old_checkpoint(document: DrainerDocument) -> Iterator[Said]:
    clock = document.upstream_time or None
    now_s = tso.physical_s(clock.ts) if clock else document.time or 0.0
    age_s = tso.age_s(document.last_ts, now_s) if document.last_ts and now_s else 0.0
    if document.lag and age_s > OLD_CHECKPOINT_S:
        yield Said(f"its checkpoint is {age_s / 3600:.1f} h old")


def _sort_wait(document: DrainerDocument) -> Iterator[Said]:
    lag = document.lag or LagStatus()
    if (lag.sort_wait_s or 0.0) > SORT_WAIT_S:
        yield Said(f"has waited {lag.sort_wait_s:.0f} s for {_why(lag)}")


def _why(lag: LagStatus) -> str:
    return lag.reason or (f"pump {lag.pump}" if lag.pump else "a pump that promises nothing")


def _behind(document: DrainerDocument, *, shrinks: bool) -> Iterator[Said]:
    """What it waits for says more than how long, where that is known."""
    lag = document.lag or LagStatus()
    reasons = (_paused, _ddl_waits, _sink_held, _old_checkpoint, _sort_wait)
    if lag.total_s < STUCK_S or shrinks is (lag.eta_s is None) or any(any(why(document)) for why in reasons):
        return
    yield Said(f"is {lag.total_s:.0f} s behind" + (f": {lag.reason}" if lag.reason else ""))


CONDITIONS: Final[tuple[Condition[DrainerDocument], ...]] = (
    Condition(
        "BinlogDrainerPaused",
        WARNING,
        "An operator holds rows back for more than 15 minutes",
        _paused,
        rule=Rule("binlog_drainer_control_paused_count > 0", "PUT /apply/resume lets them go.", pause="15m"),
    ),
    Condition(
        "BinlogDrainerDdlWaits",
        ERROR,
        "A DDL waits for a decision",
        _ddl_waits,
        "`binlogctl ddl list`",
        Rule(
            "binlog_drainer_quarantine_tables > 0",
            "{{ $value }} tables wait, others go on. `binlogctl ddl list` shows the statement and the reason;"
            " retry, skip or rewrite decides.",
            pause="1m",
        ),
    ),
    Condition(
        "BinlogDrainerSinkHeld",
        ERROR,
        "An exception of the sink holds everything back",
        _sink_held,
        "PUT /apply/resume tries again, once the cause is gone",
        Rule(
            "binlog_drainer_sink_held_count > 0",
            "Sink.error in GET /status; once its reason is gone: PUT /apply/resume.",
            pause="1m",
        ),
    ),
    Condition(
        "BinlogDrainerDownstreamDiffers",
        ERROR,
        "The downstream differs from the upstream",
        _differs,
        "`binlogctl verify -drainer-config FILE` shows them, and writes SQL that mends them",
        Rule(
            "binlog_drainer_verify_wrong_rows > 0",
            "{{ $value }} rows differ. Verify.wrong_rows in GET /status names tables; binlogctl verify shows"
            " rows and writes what mends them.",
        ),
    ),
    Condition(
        "BinlogDrainerNotVerified",
        WARNING,
        "The downstream could not be compared with the upstream",
        _not_verified,
        "it is tried again by itself",
        Rule(
            "binlog_drainer_verify_failures_count > 2",
            "{{ $value }} comparisons in a row came to no end. Verify.trouble in GET /status says why.",
        ),
    ),
    Condition(
        "BinlogDrainerDownstreamRetries",
        WARNING,
        "Batches fail and are tried again, not for locks",
        _cannot_write,
        "see to the downstream",
        Rule(
            'sum(rate(binlog_drainer_lane_retries_total{reason!="deadlock or lock wait"}[5m]))'
            " by (job, instance) > 0.2",
            "{{ $value | humanize }} a second. Lanes in GET /status say why: the downstream is away,"
            " read-only, or short of connections or space.",
            pause="5m",
        ),
    ),
    Condition(
        "BinlogDrainerDrift",
        ERROR,
        "Rows downstream were not as they should have been",
        _drift,
        "`binlogctl verify` the tables; does another program write?",
        Rule(
            "sum(increase(binlog_drainer_drift_rows_total[10m])) by (job, instance, table) > 0 or"
            " sum(binlog_drainer_drift_rows_total > 0 unless binlog_drainer_drift_rows_total offset 10m)"
            " by (job, instance, table)",
            "{{ $value | humanize }} rows of {{ $labels.table }} in ten minutes. Another program writes"
            " there, or it was not equal at the start: verify the table.",
        ),
    ),
    Condition(
        "BinlogDrainerTextLost",
        WARNING,
        "The downstream's character set does not have some texts",
        _text_lost,
        "give the columns utf8mb4",
        Rule(
            "sum(increase(binlog_drainer_drift_text_values_total[10m])) by (job, instance, table, column) > 0"
            " or sum(binlog_drainer_drift_text_values_total > 0 unless binlog_drainer_drift_text_values_total"
            " offset 10m) by (job, instance, table, column)",
            "{{ $value | humanize }} values of {{ $labels.table }}, column {{ $labels.column }}, in ten"
            " minutes.",
        ),
    ),
    Condition(
        "DrainerEarlyRows",
        WARNING,
        "Rows were written before the binlog of the ALTER TABLE that had changed their columns or partition",
        _early_rows,
        "`binlogctl verify -repair-now` writes what is missing; archives and topics do not have them",
    ),
    Condition(
        "BinlogDrainerDownstreamWentBack",
        ERROR,
        "The downstream lost what it had confirmed; it is pulled again",
        _went_back,
        "find out why it went back: what others wrote is gone",
        Rule(
            "increase(binlog_drainer_downstream_went_back_total[10m]) > 0",
            "{{ $value | humanize }} times in ten minutes. WentBack in GET /status. What others wrote there"
            " since is gone: find out why it went back.",
        ),
    ),
    Condition(
        "DrainerClockSkew",
        WARNING,
        "The clocks of the upstream and of a node differ",
        lambda document: skew(document.upstream_time),
        clock_skew.HINT,
    ),
    Condition(
        "BinlogDrainerStandbyCannot",
        WARNING,
        "A standby could not take over now",
        _standby_cannot,
        "see its log",
        Rule(
            "binlog_drainer_standby_trouble_count > 0",
            "Standby.trouble in its GET /status says why.",
            pause="1m",
        ),
    ),
    Condition(
        "DrainerPumpAway", WARNING, "A drainer does not reach a pump", _pump_away, "see that pump's log"
    ),
    Condition(
        "BinlogNodeReloadFailed",
        WARNING,
        RELOAD_MEANS,
        lambda document: reload_refused(document.configuration),
        RELOAD_MEND,
        RELOAD_RULE,
    ),
    Condition(
        "BinlogDrainerCheckpointHighDelay",
        ERROR,
        "The stored checkpoint of a drainer is more than an hour old",
        _old_checkpoint,
        "pumps must keep what lies above it: what holds it up?",
        Rule(
            f"(time() - binlog_drainer_checkpoint_tso / 1000) > {OLD_CHECKPOINT_S}"
            " and binlog_drainer_checkpoint_tso > 0",
            "{{ $value | humanizeDuration }} old. Lag.reason in GET /status says what holds it; retention of"
            " the pumps must outlast it.",
            pause="1m",
        ),
    ),
    # An idle stream moves too: watermarks follow the clock.
    Condition(
        "BinlogDrainerCheckpointStands",
        WARNING,
        "The stored checkpoint of a drainer has not moved for a minute",
        unsaid="BinlogDrainerDownstreamRetries, BinlogDrainerPaused, BinlogDrainerDdlWaits",
        rule=Rule(
            "changes(binlog_drainer_checkpoint_tso[1m]) < 1"
            " unless on (job, instance) binlog_drainer_standby_waiting_count > 0",
            "Lag.reason in GET /status says why, /readyz what a drainer waits for that does not replicate"
            " yet. A paused drainer does not move its checkpoint.",
            pause="1m",
        ),
    ),
    Condition(
        "BinlogDrainerSortWait",
        ERROR,
        "A drainer waits for a pump that has promised nothing",
        _sort_wait,
        "look at that pump",
        Rule(
            f'binlog_drainer_lag_seconds{{stage="sort_wait"}} > {SORT_WAIT_S}',
            "for {{ $value | humanizeDuration }}. Lag.pump and Lag.start_ts in GET /status name it; /status"
            " of that pump says what to do next.",
            pause="1m",
        ),
    ),
    Condition(
        "BinlogDrainerBehind",
        WARNING,
        "A drainer lags more than five minutes",
        lambda document: _behind(document, shrinks=True),
        rule=Rule(
            f"instance:binlog_drainer_lag_seconds:sum > {BEHIND_S}",
            "{{ $value | humanizeDuration }} behind the upstream. Lag in GET /status: seconds by stage, the"
            " reason, and when it will have caught up.",
            pause="5m",
        ),
    ),
    Condition(
        "BinlogDrainerNeverCatchesUp",
        ERROR,
        "A drainer lags, and the lag does not shrink",
        lambda document: _behind(document, shrinks=False),
        rule=Rule(
            "binlog_drainer_lag_eta_seconds == +Inf"
            " unless on (job, instance) binlog_drainer_control_paused_count > 0",
            "if the downstream is the reason: more lanes (worker-count), or less load on it.",
            pause="10m",
        ),
    ),
)

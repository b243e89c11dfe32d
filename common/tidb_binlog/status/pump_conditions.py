"""Pump conditions: what may be wrong with a pump, and how that shows in its document and in its series.

Tests  tests/deploy/prometheus/test_shown.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import UnsetType

from tidb_binlog.quantities import size
from tidb_binlog.status import clock_skew
from tidb_binlog.status.pump import ClockStatus, PumpDocument, PumpStatus, RetentionStatus
from tidb_binlog.status.reload import ReloadStatus
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

DEFAULT_FLOOR: Final = 10 << 30
"""Free bytes below which a pump refuses prewrites unless its configuration says otherwise; Go's, too."""
LOW_FLOORS: Final = 2
"""Space is low below so many times the floor: 20 GiB by default, as rules of TiDB have it."""
_DISK: Final = "binlog_pump_storage_storage_size_bytes"
OPEN_S: Final = 60
SILENT_S: Final = 30
INDEX_BEHIND_S: Final = 60
LOSES_H: Final = 4
ALARM_S: Final = 20 * 3600.0
"""So long before a purge a word is due, where a pump does not say otherwise."""
OF_DISKS: Final = ("BinlogPumpRefusesWrites", "BinlogPumpSpaceLow")
_NOTHING: Final = PumpStatus()


def of_pump(document: PumpDocument, label: str) -> list[Trouble]:
    """`label`: as the node is called in the text of another."""
    return troubles(CONDITIONS, document, label)


def stopped_pump(document: PumpDocument) -> str:
    """Why it takes no prewrites, as far as its document says; "" if it does."""
    return stopped(CONDITIONS, document)


def _cut_off(document: PumpDocument) -> Iterator[Said]:
    if document.error:
        yield Said(f"is cut off: {document.error}")


def _writer(document: PumpDocument) -> Iterator[Said]:
    pump = document.pump or _NOTHING
    if pump.writer == "failed":
        yield Said(f"stores nothing any more: {pump.writer_error or ''}", stops=True)


def _index_fails(document: PumpDocument) -> Iterator[Said]:
    if error := (document.pump or _NOTHING).index_error:
        yield Said(f"its index fails: {error}")


def _refuses(document: PumpDocument) -> Iterator[Said]:
    disk = (document.pump or _NOTHING).disk
    if disk.available is not None and disk.available <= (disk.floor or 0):
        text = f"refuses prewrites: {size(disk.available)} free, the floor is {size(disk.floor or 0)}"
        yield Said(text, stops=True)


def _space(document: PumpDocument) -> Iterator[Said]:
    disk = (document.pump or _NOTHING).disk
    low = LOW_FLOORS * (disk.floor or DEFAULT_FLOOR)
    if disk.available is not None and (disk.floor or 0) < disk.available < low:
        yield Said(f"has {size(disk.available)} free on its disk")


def _index_behind(document: PumpDocument) -> Iterator[Said]:
    pump = document.pump or _NOTHING
    if not pump.index_error and (lag_s := pump.stages.indexed.lag_s or 0.0) > INDEX_BEHIND_S:
        yield Said(f"its index is {lag_s:.0f} s behind: drainers get nothing newer")


def _silent(document: PumpDocument) -> Iterator[Said]:
    silent_s = (document.pump or _NOTHING).resolver.unavailable_s
    if silent_s > SILENT_S:
        yield Said(f"has no answer from the upstream on open transactions for {silent_s:.0f} s")


def _late(document: PumpDocument) -> Iterator[Said]:
    pump = document.pump or _NOTHING
    if late := pump.late.commits:
        text = f"took {late} commits below its watermark: drainers beyond do not have them"
        is_recent = (pump.time_s or 0.0) - pump.late.last_s < RECENT_S
        yield Said(text, severity="" if is_recent else WARNING, is_past=True)


def _stuck(document: PumpDocument) -> Iterator[Said]:
    for oldest in (document.pump or _NOTHING).oldest[:1]:
        if oldest.age_s >= STUCK_S:
            which = f"the transaction with start_ts {oldest.start_ts}"
            text = f"{which} has been open for {oldest.age_s:.0f} s and holds replication up"
            yield Said(text, oldest.next, severity="" if oldest.age_s > OPEN_S else WARNING)


def _leaving(document: PumpDocument) -> Iterator[Said]:
    leaving = (document.pump or _NOTHING).leaving
    if leaving is not None and leaving.waits_for:
        yield Said(f"is closing and waits for {leaving.waits_for}")


def _purge_held(document: PumpDocument) -> Iterator[Said]:
    if by := _retention(document).held_up_by:
        yield Said(f"purges less than it should: {'; '.join(by)}")


def _lost(document: PumpDocument) -> Iterator[Said]:
    for drainer in _retention(document).drainers:
        if drainer.lost:
            yield Said(f"has purged binlogs that drainer {drainer.node_id} has not applied")


def _loses(document: PumpDocument) -> Iterator[Said]:
    """With a short retention a drainer that is up to date is no trouble."""
    retention = _retention(document)
    half_s = ALARM_S if retention.age_s is None else retention.age_s / 2
    for drainer in retention.drainers:
        left_s = drainer.left_s
        if left_s is None or drainer.lost or left_s >= min(retention.alarm_s or ALARM_S, half_s):
            continue
        text = f"purges what drainer {drainer.node_id} has not applied in {max(left_s, 0) / 3600:.1f} h"
        yield Said(text, severity="" if left_s < min(LOSES_H * 3600, half_s) else WARNING)


def _retention(document: PumpDocument) -> RetentionStatus:
    return (document.pump or _NOTHING).retention or RetentionStatus()


def skew(upstream_time: ClockStatus | UnsetType | None) -> Iterator[Said]:
    """The clocks of the upstream and of a node."""
    if upstream_time and (apart := clock_skew.of(upstream_time)):
        yield Said(apart)


def reload_refused(configuration: ReloadStatus | UnsetType | None) -> Iterator[Said]:
    """The file that a node was told to read again."""
    if configuration and not configuration.ok:
        error = configuration.error
        yield Said(f"did not take its configuration when it was told to read it again: {error}")


RELOAD_RULE: Final = Rule(
    "binlog_common_config_last_reload_successful == 0",
    "goes on with the configuration before. The next start would refuse the file; the log names file, line"
    " and key.",
)
RELOAD_MEANS: Final = "A node did not take its configuration when it was told to read it again"
RELOAD_MEND: Final = "mend the file, then SIGHUP or PUT /reload; a start would refuse it"

CONDITIONS: Final[tuple[Condition[PumpDocument], ...]] = (
    Condition("PumpCutOff", WARNING, "A pump does not reach etcd or PD", _cut_off, "see to etcd or PD"),
    Condition(
        "BinlogPumpWriterFailed",
        ERROR,
        "A pump stores nothing until it is restarted",
        _writer,
        "repair its disk, then restart it",
        Rule(
            "binlog_pump_writer_failed_count > 0",
            "a write or sync failed. writer_error in GET /status names the file and the error: repair the"
            " disk, restart the pump.",
            level="emergency",
        ),
    ),
    Condition(
        "BinlogPumpRefusesWrites",
        ERROR,
        "A pump refuses writes",
        _refuses,
        "free space, or lower storage.stop-write-at-available-space",
        Rule(
            'increase(binlog_pump_admission_refused_total{reason=~"disk|writer|size|timestamp|open"}[5m])'
            " > 0",
            "{{ $value | humanize }} writes were refused in five minutes, by reason: {{ $labels.reason }}.",
        ),
    ),
    Condition(
        "BinlogPumpSpaceLow",
        WARNING,
        "A pump has less than twice the space at which it refuses prewrites",
        _space,
        "free space, or keep less (gc)",
        Rule(
            f'{_DISK}{{type="available"}} < ignoring(type) {LOW_FLOORS} * ({_DISK}{{type="floor"}} > 0)'
            f' or ({_DISK}{{type="available"}} unless ignoring(type) {_DISK}{{type="floor"}} > 0)'
            f" < {LOW_FLOORS * DEFAULT_FLOOR}",
            "{{ $value | humanize1024 }}B are left. Prewrites are refused below stop-write-at-available-space"
            ": free space, or keep less (gc).",
            pause="10s",
        ),
    ),
    Condition(
        "BinlogPumpStorageError",
        ERROR,
        "The storage of a pump fails",
        _index_fails,
        "see its log",
        Rule(
            "changes(binlog_pump_storage_error_count[1m]) > 0",
            "{{ $value }} changes of the count of {{ $labels.type }} in a minute. Look at writer_error and"
            " index_error in GET /status, and at the log.",
            level="emergency",
        ),
    ),
    Condition(
        "BinlogPumpIndexBehind",
        WARNING,
        "The index of a pump lags, drainers get nothing newer",
        _index_behind,
        "it catches up by itself",
        Rule(
            f'binlog_pump_stage_lag_seconds{{stage="indexed"}} > {INDEX_BEHIND_S}',
            "{{ $value | humanizeDuration }} behind. index_error and stages in GET /status; writes go on, the"
            " index catches up by itself.",
            pause="1m",
        ),
    ),
    Condition(
        "BinlogPumpUpstreamSilent",
        ERROR,
        "The upstream does not say what became of open transactions",
        _silent,
        "the upstream must answer this pump: see its log",
        Rule(
            f"binlog_pump_resolver_unavailable_seconds > {SILENT_S}",
            "no answer for {{ $value | humanizeDuration }}. TiKV must answer this pump; resolver in GET"
            " /status counts the questions.",
        ),
    ),
    Condition(
        "BinlogPumpLateCommit",
        ERROR,
        "A commit came at or below the published watermark",
        _late,
        "`binlogctl verify` the downstream",
        Rule(
            "increase(binlog_pump_sorter_late_commits_total[10m]) > 0",
            "{{ $value | humanize }} in ten minutes; the log names them. Drainers beyond them do not have"
            " them: verify the downstream.",
            level="emergency",
        ),
    ),
    Condition("PumpCloses", WARNING, "A pump closes and waits for drainers", _leaving),
    Condition(
        "BinlogPumpTransactionStuck",
        ERROR,
        "An open transaction holds all drainers up",
        _stuck,
        rule=Rule(
            f"binlog_pump_sorter_oldest_open_seconds > {OPEN_S}",
            "a transaction is open for {{ $value | humanizeDuration }}. oldest_open in GET /status names it,"
            " its table, what the upstream says and what to do next.",
        ),
    ),
    Condition(
        "PumpClockSkew",
        WARNING,
        "The clocks of the upstream and of a node differ",
        lambda document: skew((document.pump or _NOTHING).upstream_time),
        clock_skew.HINT,
    ),
    Condition("PumpPurgesLess", WARNING, "A pump keeps more than it is to keep", _purge_held),
    Condition(
        "BinlogPumpDrainerHasLost",
        ERROR,
        "Binlogs were purged that a drainer had not applied",
        _lost,
        "copy the data anew and start it from there",
        Rule(
            "binlog_pump_detected_drainer_binlog_purge_count > 0",
            "drainer {{ $labels.id }}, {{ $value }} purges. It needs a new snapshot of the upstream. The"
            " alert ends with a restart of the pump.",
            level="emergency",
        ),
    ),
    Condition(
        "BinlogPumpDrainerWouldLose",
        ERROR,
        "Retention comes near to what a drainer still needs",
        _loses,
        "bring that drainer on, or raise gc",
        Rule(
            f"binlog_pump_retention_drainer_left_seconds < {LOSES_H} * 3600",
            "purges what drainer {{ $labels.id }} needs in {{ $value | humanizeDuration }}. Get the drainer"
            " to run, keep more (gc, space), or mark a drainer that is gone as offline.",
        ),
    ),
    Condition(
        "BinlogNodeReloadFailed",
        WARNING,
        RELOAD_MEANS,
        lambda document: reload_refused((document.pump or _NOTHING).configuration),
        RELOAD_MEND,
        RELOAD_RULE,
    ),
)

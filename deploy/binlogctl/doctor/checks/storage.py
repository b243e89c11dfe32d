"""Storage: disks of pumps against their floors, and retention against the checkpoints of drainers.

Out    findings: volumes that can never work, that are full or nearly so; drainers that binlogs were purged
       for, or soon will be
Tests  tests/deploy/binlogctl/doctor/checks/test_checks.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from binlogctl.doctor.facts import NodeFacts
from binlogctl.doctor.findings import Check, Finding, Severity, all_of
from tidb_binlog import tso
from tidb_binlog.cluster import node as states
from tidb_binlog.cluster.registry import DRAINERS, PUMPS
from tidb_binlog.status.pump import DiskStatus, PumpDocument, PumpStatus, RetentionStatus
from tidb_binlog.status.pump_conditions import ALARM_S, DEFAULT_FLOOR, LOSES_H, of_pump
from tidb_binlog.status.troubles import ERROR

_KEY: Final = "storage.stop-write-at-available-space"


def check_disk(subject: str, disk: DiskStatus, capacity: int | None) -> list[Finding]:
    """One pump's file system. `capacity`: bytes of the whole volume."""
    assert disk.available is not None
    floor = disk.floor if disk.floor is not None else DEFAULT_FLOOR
    guess = " (assumed, the default)" if disk.floor is None else ""
    seen = f"{_size(disk.available)} free" + (f" of {_size(capacity)}" if capacity else "")
    seen += f", prewrites are refused below {_size(floor)}{guess}"
    if capacity is not None and capacity <= floor:
        return Check("pump.disk", subject).error(
            seen,
            "the whole volume is smaller than the free space that is asked"
            " for: this pump never takes a write, and TiDB with it cannot commit",
            f'set {_KEY} = "{_size(max(capacity // 10, 1 << 20))}" and reload the pump (SIGHUP),'
            " or give it a larger volume",
        )
    said = of_pump(PumpDocument(pump=PumpStatus(disk=DiskStatus(available=disk.available, floor=floor))), "")
    if any(trouble.severity == ERROR for trouble in said):
        return Check("pump.disk", subject).error(
            seen,
            "the pump refuses prewrites now; when all do, TiDB cannot commit",
            "free or add space; or lower gc, or set storage.retention-free-space above"
            f" {_size(floor)} so that the oldest binlogs go first",
        )
    if said:
        return Check("pump.disk", subject).warning(
            seen, "little is left until prewrites are refused", "free or add space, or lower gc"
        )
    return Check("pump.disk", subject).ok(seen)


def check_disks(nodes: Sequence[NodeFacts]) -> list[Finding]:
    """All pumps that answer."""
    findings: list[Finding] = []
    for node in nodes:
        if node.kind != PUMPS or node.state == states.OFFLINE or node.answer is None:
            continue
        disk = node.answer.pump.disk
        if disk.available is None:
            findings += Check("pump.disk", node.label).unchecked(
                "does not tell its free space",
                "a full disk stops TiDB's transactions",
                f"{node.curl('/metrics')} | grep size_bytes",
            )
        else:
            findings += check_disk(node.label, disk, node.answer.capacity)
    return findings


def check_retention(nodes: Sequence[NodeFacts], now_s: float) -> list[Finding]:
    """Each drainer that is not offline against each pump that answers."""
    all_pumps = [node for node in nodes if node.kind == PUMPS and node.state != states.OFFLINE]
    pumps = [node for node in all_pumps if node.answer is not None]
    silent = [pump for pump in all_pumps if pump.answer is None or pump.answer.pump.gc_ts is None]
    drainers = [node for node in nodes if node.kind == DRAINERS and node.state != states.OFFLINE]
    findings: list[Finding] = []
    for drainer in drainers:
        if drainer.max_commit_ts <= 0:
            findings += Check("retention", drainer.label).info("has no checkpoint yet")
            continue
        lacking = all_of(_pair(pump, drainer, now_s) for pump in pumps)
        findings += lacking
        if pumps and not lacking and not silent:
            findings += Check("retention", drainer.label).ok("pumps hold all that it needs")
    unknown = [pump for pump in pumps if _retention(pump).age_s is None]
    if silent and drainers:
        findings += Check("retention", ", ".join(pump.label for pump in silent)).unchecked(
            "does not tell what it has purged",
            "a drainer that has lost binlogs is not noticed",
            "; ".join(pump.curl("/status") for pump in silent),
        )
    if unknown and drainers:
        findings += Check("retention", ", ".join(pump.label for pump in unknown)).unchecked(
            "does not tell how long it keeps binlogs",
            "a drainer that is about to lose binlogs is not noticed",
            "compare gc of its configuration with the age of each drainer's checkpoint",
        )
    return findings


def _pair(pump: NodeFacts, drainer: NodeFacts, now_s: float) -> list[Finding]:
    answer = pump.answer
    assert answer is not None
    gc_ts = answer.pump.gc_ts
    if gc_ts is not None and drainer.max_commit_ts < gc_ts:
        return Check("retention", drainer.label).error(
            f"its checkpoint {drainer.max_commit_ts} lies before {gc_ts},"
            f" up to which {pump.label} has purged",
            "binlogs that it has not applied are gone: going on would leave a hole",
            f"copy the data of the upstream anew and start {drainer.node_id} from that copy's timestamp,"
            f" or {drainer.forget}",
        )
    age_s, alarm_s = _retention(pump).age_s, _retention(pump).alarm_s
    if age_s is None:
        return []
    left_s = _left_s(_retention(pump), drainer.node_id, age_s - tso.age_s(drainer.max_commit_ts, now_s))
    # With a short retention a drainer that is up to date must not raise the alarm.
    if left_s >= min(ALARM_S if alarm_s is None else alarm_s, age_s / 2):
        return []
    behind_s = tso.age_s(drainer.max_commit_ts, now_s)
    idle = drainer.answer is None
    is_near = left_s < min(LOSES_H * 3600, age_s / 2)
    return Check("retention", drainer.label).finding(
        Severity.ERROR if is_near else Severity.WARNING,
        f"{behind_s / 3600:.1f} h behind; {pump.label} keeps binlogs for"
        f" {age_s / 3600:.1f} h" + (", and the drainer does not run" if idle else ""),
        "binlogs that it needs are purged soon, or, while it counts as live, fill the pump's disk",
        f"start or speed up {drainer.node_id}; raise gc of the pumps for the time being; if it is not"
        f" needed any more: {drainer.forget}",
    )


def _retention(pump: NodeFacts) -> RetentionStatus:
    return (pump.answer and pump.answer.pump.retention) or RetentionStatus()


def _left_s(retention: RetentionStatus, node_id: str, by_age_s: float) -> float:
    """The pump's own word counts where it is worse."""
    told = (drainer for drainer in retention.drainers if drainer.node_id == node_id and not drainer.lost)
    return min((by_age_s, *(drainer.left_s for drainer in told if drainer.left_s is not None)))


def _size(size: int) -> str:
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20)):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size} B"

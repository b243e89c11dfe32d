"""Clocks: every clock of the cluster against this host's.

Out    a finding for each clock that is off; one about this host when all the others agree against it
Tests  tests/deploy/binlogctl/doctor/checks/test_checks.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from binlogctl.doctor.facts import ClockFacts
from binlogctl.doctor.findings import Check, Finding, Severity, all_of
from tidb_binlog.quantities import span

WARN_S: Final = 2.0
ERROR_S: Final = 60.0
_MEND: Final = (
    "chronyc tracking || timedatectl timesync-status   # on that host; then: systemctl enable --now chronyd"
)


def certain_s(clock: ClockFacts) -> float:
    """The part of an offset that the measurement cannot explain; 0 within its slack."""
    beyond = abs(clock.offset_s) - clock.slack_s
    return beyond if beyond > 0 else 0.0


def check_clocks(clocks: Sequence[ClockFacts]) -> list[Finding]:
    """Say which clocks are off, or that none is."""
    off = [clock for clock in clocks if certain_s(clock) >= WARN_S]
    if not off:
        if not clocks:
            return []
        widest = max(certain_s(clock) for clock in clocks)
        return Check("clock.skew", "cluster").ok(
            f"{len(clocks)} clocks agree with this host's to {widest:.1f} s"
        )
    if len(clocks) > 1 and len(off) == len(clocks) and _agree(clocks):
        middle = sorted(clock.offset_s for clock in clocks)[len(clocks) // 2]
        return Check("clock.skew", "this host").info(
            f"its clock is {_by(-middle)} all {len(clocks)} others",
            "only ages that are shown here are wrong: the cluster agrees with itself",
            _MEND,
        )
    return all_of(_off(clock) for clock in off)


def _agree(clocks: Sequence[ClockFacts]) -> bool:
    return (
        max(clock.offset_s - clock.slack_s for clock in clocks)
        - min(clock.offset_s + clock.slack_s for clock in clocks)
        < WARN_S
    )


def _off(clock: ClockFacts) -> list[Finding]:
    severity = Severity.ERROR if certain_s(clock) >= ERROR_S else Severity.WARNING
    return Check("clock.skew", clock.who).finding(
        severity,
        f"its clock is {_by(clock.offset_s)} this host's",
        "lag, ages of open transactions and the life of nodes are reckoned from clocks: alarms come late or"
        " falsely, and an upstream clock that jumps holds up timestamps",
        _MEND,
    )


def _by(offset_s: float) -> str:
    return f"{span(abs(offset_s))} {'ahead of' if offset_s > 0 else 'behind'}"

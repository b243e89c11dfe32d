"""Findings: what an examination says. Values only.

Holds  a warning or an error says why it matters and what mends it, as a command or SQL that can be copied; a
       check that could not be made says what it would take
Never  holds a secret or a row value: the caller passes texts that may be shown
Tests  tests/deploy/binlogctl/doctor/checks/test_checks.py
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from itertools import chain
from typing import Any, Final

from binlogctl.cli.commands import NOT_WELL, SOON
from tidb_binlog.late_dataclass import asdict, dataclass


class Severity(StrEnum):
    """From best to worst."""

    OK = "ok"
    INFO = "info"
    UNCHECKED = "unchecked"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """Count from the best, 0."""
        return _RANKS[self]


_RANKS: Final = {severity: rank for rank, severity in enumerate(Severity)}
EXIT_WARNING: Final = SOON
EXIT_ERROR: Final = NOT_WELL
EXIT_CODES: Final = {Severity.WARNING: EXIT_WARNING, Severity.ERROR: EXIT_ERROR}
"""Of the worst finding; everything milder is 0."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `check` is a stable name (`pump.disk`), `subject` what it is about."""

    severity: Severity
    check: str
    subject: str
    seen: str
    why: str = ""
    mend: str = ""

    def __post_init__(self) -> None:
        if self.severity.rank >= Severity.UNCHECKED.rank:
            assert self.why, f"{self.check} does not say why it matters"
            assert self.mend, f"{self.check} does not say what mends it"


@dataclass(frozen=True, slots=True)
class Check:
    """What is looked at, and of whom. Each method returns a list of one: checks add lists up."""

    name: str
    subject: str

    def finding(self, severity: Severity, seen: str, why: str = "", mend: str = "") -> list[Finding]:
        """Say how bad it is."""
        return [Finding(severity, self.name, self.subject, seen, why, mend)]

    def ok(self, seen: str) -> list[Finding]:
        """Say that it is as it should be."""
        return self.finding(Severity.OK, seen)

    def info(self, seen: str, why: str = "", mend: str = "") -> list[Finding]:
        """Say what is good to know."""
        return self.finding(Severity.INFO, seen, why, mend)

    def unchecked(self, seen: str, why: str, mend: str) -> list[Finding]:
        """Say which check could not be made: `why` says what stays unknown, `mend` what it takes."""
        return self.finding(Severity.UNCHECKED, seen, why, mend)

    def warning(self, seen: str, why: str, mend: str) -> list[Finding]:
        """Say what will need the operator."""
        return self.finding(Severity.WARNING, seen, why, mend)

    def error(self, seen: str, why: str, mend: str) -> list[Finding]:
        """Say what holds replication up, or loses something."""
        return self.finding(Severity.ERROR, seen, why, mend)


def all_of(lists: Iterable[list[Finding]]) -> list[Finding]:
    """Add up what is said of several subjects."""
    return list(chain.from_iterable(lists))


@dataclass(frozen=True, slots=True)
class Report:
    """All findings, worst first; of equal severity in the order in which things were looked at."""

    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> Report:
        """Sort findings; what was said twice is there once."""
        unique = dict.fromkeys(findings)
        return cls(tuple(sorted(unique, key=lambda finding: -finding.severity.rank)))

    @property
    def worst(self) -> Severity:
        """Find the worst severity."""
        return max(
            (finding.severity for finding in self.findings), key=_RANKS.__getitem__, default=Severity.OK
        )

    @property
    def exit_code(self) -> int:
        """Translate it into the command's exit code."""
        return EXIT_CODES.get(self.worst, 0)

    def count(self, severity: Severity) -> int:
        """Count the findings of a severity."""
        return sum(finding.severity is severity for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """For programs. Keys stay as they are between releases."""
        return {
            "worst": str(self.worst),
            "exit_code": self.exit_code,
            "counts": {str(severity): self.count(severity) for severity in Severity},
            "findings": [asdict(finding) | {"severity": str(finding.severity)} for finding in self.findings],
        }

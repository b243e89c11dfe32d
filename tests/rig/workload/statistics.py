"""Figures of the rig's runs: the demo's, faults, and what only the rig's sessions do."""

from __future__ import annotations

from collections import Counter

from binlog_playground.check.statistics import Statistics
from tidb_binlog.late_dataclass import dataclass, field

KILL = "kill -9"


@dataclass(slots=True)
class RigStatistics(Statistics):
    """`subscribed`: row changes of the subscribing program."""

    abandoned: int = 0
    lost_by_lease: int = 0
    type_changes: int = 0
    shard_ddl: int = 0
    subscribed: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    @property
    def kills(self) -> int:
        return sum(count for fault, count in self.faults.items() if fault.startswith(KILL))

    def killed(self, process: str) -> None:
        """By kill -9. `process`: its name, whose number does not count."""
        self.faults[f"{KILL} of {process.rstrip('-0123456789')}"] += 1

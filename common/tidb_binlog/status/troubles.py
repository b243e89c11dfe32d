"""Troubles: what needs the operator, as conditions that a node's document meets or does not.

Out    troubles by severity: an error is what holds replication up or loses something; a warning what will, or
       what an operator does himself
Why    one table (`pump_conditions`, `drainer_conditions`, `series_conditions`) makes the alert rules of
       deploy/prometheus (`python -m tools.alert_rules`), `binlogctl status`, doctor, the node's page and
       `/readyz`, so that none of them says what another does not
Tests  tests/deploy/prometheus/test_shown.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

from tidb_binlog.late_dataclass import dataclass

ERROR: Final = "error"
WARNING: Final = "warning"
STUCK_S: Final = 10.0
"""An open transaction or a lag is worth a word from here on, as in the nodes' own logs."""
RECENT_S: Final = 600.0
"""So long what is over is as bad as it was: the range of the alerts' increases."""

D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that needs the operator. `name`: of its condition; `is_past`: it is over, and told for what
    it left."""

    severity: str
    node: str
    text: str
    hint: str = ""
    is_past: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """An alert of Prometheus. `pause`: how long `expression` holds before it fires; `level`: as rules of TiDB
    have it, where it is not that of the severity; `of`: the label that the description begins with."""

    expression: str
    description: str
    pause: str = ""
    level: str = ""
    of: str = "instance"


@dataclass(frozen=True, slots=True)
class Said:
    """One thing that meets a condition. `severity` and `hint` where they are not the condition's; `stops`:
    the node does not do its work as long as this holds."""

    text: str
    hint: str = ""
    severity: str = ""
    is_past: bool = False
    stops: bool = False


@dataclass(frozen=True, slots=True)
class Condition(Generic[D]):
    """`name`: of its alert, and of its heading in docs/alerts.md; `means`: one line; `holds`: what of a
    document meets it; `mend`: what to do about it. `unsaid`: why no document can say it, or what says it."""

    name: str
    severity: str
    means: str
    holds: Callable[[D], Iterable[Said]] | None = None
    mend: str = ""
    rule: Rule | None = None
    unsaid: str = ""


def troubles(conditions: Sequence[Condition[D]], document: D, node: str) -> list[Trouble]:
    """`node`: as it is called in the text of another."""
    return [
        Trouble(
            said.severity or condition.severity,
            node,
            said.text,
            said.hint or condition.mend,
            said.is_past,
            condition.name,
        )
        for condition in conditions
        if condition.holds is not None
        for said in condition.holds(document)
    ]


def stopped(conditions: Sequence[Condition[D]], document: D) -> str:
    """Why a node does not do its work; "" if it does."""
    holding = (entry for condition in conditions if condition.holds for entry in condition.holds(document))
    return next((entry.text for entry in holding if entry.stops), "")

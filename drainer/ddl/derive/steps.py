"""Steps of a derived DDL: statements in order, and what each one's refusal means.

Values only: `ddl_derive` makes them, `ddl_apply` runs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """Statements that count as one; several run in one transaction.

    Refused: `instead` is run in its place, if there is any; then or without it, `lacks` is what the
    downstream does not have. With neither, nothing more can be derived.
    """

    statements: tuple[str, ...]
    lacks: str = ""
    instead: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Derived:
    """`missing`: what the downstream cannot have, known without trying; one line each."""

    steps: tuple[Step, ...] = ()
    missing: tuple[str, ...] = ()

    def __add__(self, other: Derived) -> Derived:
        return Derived(self.steps + other.steps, self.missing + other.missing)


def step(*statements: str, lacks: str = "") -> Step:
    return Step(statements, lacks)


def choice(*statements: tuple[str, str]) -> Step:
    """(statement, what it lacks compared to the first): the first that is accepted."""
    made: tuple[Step, ...] = ()
    for number in reversed(range(len(statements))):
        text = statements[number][0]
        after = statements[number + 1][1] if number + 1 < len(statements) else ""
        made = (Step((text,), after, made),)
    return made[0]


def of(steps: Sequence[Step], missing: Sequence[str] = ()) -> Derived:
    return Derived(tuple(steps), tuple(missing))

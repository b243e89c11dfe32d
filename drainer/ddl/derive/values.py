"""Values of derivation: one table that a DDL changes, and the steps that bring it there downstream.

`derive` makes steps of alterations, `ddl.run.runner` runs them in order; each says what its refusal means.
Tests  tests/drainer/ddl/derive/test_derive.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from drainer.ddl.derive.compare import Present
from drainer.ddl.derive.definition import Definition
from drainer.ddl.derive.render import Server
from tidb_binlog.late_dataclass import dataclass

Route = Callable[[str, str], tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Alteration:
    """`before` None: the table is new upstream. `table` is its (schema, name) downstream. `modified`: the
    job changed column types, so a column that is not in `apart` may have got a new id. `ran`: steps have run,
    the last maybe not. `rebased`: the next number of AUTO_INCREMENT is another one, `forced`: or a lower one.
    """

    before: Definition | None
    after: Definition
    present: Present
    table: tuple[str, str]
    server: Server
    route: Route
    ran: bool = False
    modified: bool = False
    apart: frozenset[str] = frozenset()
    rebased: bool = False
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """Statements that count as one; several run in one transaction.

    Refused: `instead` is run in its place, if there is any; then or without it, `lacks` is what the
    downstream does not have. With neither, nothing more can be derived. `local`: they are to run in the time
    zone of the job, since they turn instants into local times or back; all others run in UTC.
    """

    statements: tuple[str, ...]
    lacks: str = ""
    instead: tuple[Step, ...] = ()
    local: bool = False


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
    steps: tuple[Step, ...] = ()
    for number in reversed(range(len(statements))):
        text = statements[number][0]
        after = statements[number + 1][1] if number + 1 < len(statements) else ""
        steps = (Step((text,), after, steps),)
    return steps[0]


def of(steps: Sequence[Step], missing: Sequence[str] = ()) -> Derived:
    return Derived(tuple(steps), tuple(missing))

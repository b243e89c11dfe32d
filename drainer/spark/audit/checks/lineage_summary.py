"""Lineage summary: what the steps of each lineage are, by a count of them.

In     counts of steps, put together by a runner
Out    of each lineage, up to a timestamp, after it or in all: name, definitions and keys of its rows; changes
       by time for the report
Tests  tests/spark/audit/test_auditing.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from drainer.spark.audit.checks.figures import TableChanges
from tidb_binlog.tso import Ts

Name = tuple[str, str]


class StepGroup(NamedTuple):
    """Steps of one lineage, name, definition, key and stretch of time (`bucket`: its first second).

    `changes`: a change that moves a key is one, and two steps."""

    lineage: int
    schema: str
    table: str
    definition: int
    key_id: int
    bucket: int
    is_until: bool
    changes: int
    last_ts: Ts


@dataclass(slots=True)
class Profile:
    """Of one lineage. `name`, `last_definition`: of its last row."""

    name: Name
    last_ts: Ts = -1
    last_definition: int = 0
    definitions: set[int] = field(default_factory=set)
    key_ids: set[int] = field(default_factory=set)

    def add(self, name: Name, last_ts: Ts, definition: int, key_id: int) -> None:
        self.definitions.add(definition)
        self.key_ids.add(key_id)
        if last_ts > self.last_ts:
            self.last_ts, self.last_definition, self.name = last_ts, definition, name


class Profiles:
    """By lineage. `until_ts`: what was committed up to it is counted apart from what came after."""

    def __init__(self, until_ts: Ts) -> None:
        self.until_ts = until_ts
        self.all: dict[int, Profile] = {}
        self.until: dict[int, Profile] = {}
        self.after: dict[int, Profile] = {}
        self._changes: Counter[tuple[str, int]] = Counter()

    @classmethod
    def of(cls, until_ts: Ts, groups: Iterable[StepGroup]) -> Profiles:
        found = cls(until_ts)
        for one in sorted(groups):
            found._add(one)
        return found

    def _add(self, group: StepGroup) -> None:
        name = (group.schema, group.table)
        self._changes[".".join(name), group.bucket] += group.changes
        for profiles in (self.all, self.until if group.is_until else self.after):
            one = profiles.setdefault(group.lineage, Profile(name))
            one.add(name, group.last_ts, group.definition, group.key_id)

    @property
    def last_ts(self) -> Ts:
        return max((one.last_ts for one in self.all.values()), default=0)

    @property
    def changes(self) -> list[TableChanges]:
        return [TableChanges(table, at, number) for (table, at), number in sorted(self._changes.items())]

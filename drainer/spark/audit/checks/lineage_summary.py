"""Lineage summary: what the steps of each lineage are, by a count of them.

Out    of each lineage, up to a timestamp, after it or in all: name, definitions and keys of its rows; changes
       by time for the report
Tests  tests/spark/audit/test_auditing.py
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from drainer.reading.archive.decode.definitions import Definitions
from drainer.spark.audit.checks.figures import TableChanges
from drainer.spark.audit.rows.row_steps import RowStep
from tidb_binlog import tso
from tidb_binlog.late_dataclass import dataclass, field
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


@dataclass(frozen=True, slots=True)
class StepCounts:
    """What tasks do with steps in any order."""

    definitions: Definitions
    until_ts: Ts
    bucket_s: int

    def __call__(self, steps: Iterable[RowStep]) -> Iterator[StepGroup]:
        groups: dict[tuple[int, int, int, int, bool], list[int]] = {}
        last_ts, bucket, is_until = -1, 0, False
        for lineage, key_id, _, commit_ts, order, definition, *_ in steps:
            if commit_ts != last_ts:
                last_ts, is_until = commit_ts, commit_ts <= self.until_ts
                bucket = math.floor((commit_ts >> tso.LOGICAL_BITS) / 1000 / self.bucket_s) * self.bucket_s
            key = (lineage, definition, key_id, bucket, is_until)
            group = groups.get(key)
            if group is None:
                group = groups[key] = [0, 0]
            group[0] += not order & 1
            if commit_ts > group[1]:
                group[1] = commit_ts
        for (lineage, definition, key_id, bucket, is_until), (changes, newest_ts) in groups.items():
            name = self.definitions.version(definition).downstream
            yield StepGroup(lineage, *name, definition, key_id, bucket, is_until, changes, newest_ts)


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
        profiles = cls(until_ts)
        for group in sorted(groups):
            profiles._add(group)
        return profiles

    def _add(self, group: StepGroup) -> None:
        name = (group.schema, group.table)
        self._changes[".".join(name), group.bucket] += group.changes
        for profiles in (self.all, self.until if group.is_until else self.after):
            profile = profiles.setdefault(group.lineage, Profile(name))
            profile.add(name, group.last_ts, group.definition, group.key_id)

    @property
    def last_ts(self) -> Ts:
        return max((profile.last_ts for profile in self.all.values()), default=0)

    @property
    def changes(self) -> list[TableChanges]:
        return [TableChanges(table, at, number) for (table, at), number in sorted(self._changes.items())]

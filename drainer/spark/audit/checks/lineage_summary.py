"""Lineage summary: what the steps of each lineage are, by a count of them.

In     steps with their lineage
Out    of each lineage, up to a timestamp, after it or in all: name, definitions and keys of its rows; changes
       by time for the report
Tests  tests/spark/audit/test_auditing.py
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from common import tso
from drainer.spark.audit.checks.figures import TableChanges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Name = tuple[str, str]


@dataclass(slots=True)
class Profile:
    """Of one lineage. `name`, `last_definition`: of its last row."""

    name: Name
    last_ts: int = -1
    last_definition: int = 0
    definitions: set[int] = field(default_factory=set)
    key_ids: set[int] = field(default_factory=set)

    def add(self, name: Name, last_ts: int, definition: int, key_id: int) -> None:
        self.definitions.add(definition)
        self.key_ids.add(key_id)
        if last_ts > self.last_ts:
            self.last_ts, self.last_definition, self.name = last_ts, definition, name


class Profiles:
    """By lineage. `until_ts`: what was committed up to it is counted apart from what came after."""

    def __init__(self, until_ts: int) -> None:
        self.until_ts = until_ts
        self.all: dict[int, Profile] = {}
        self.until: dict[int, Profile] = {}
        self.after: dict[int, Profile] = {}
        self._changes: Counter[tuple[str, int]] = Counter()

    @classmethod
    def of(cls, steps: DataFrame, until_ts: int, bucket_s: int) -> Profiles:
        """One pass over all steps."""
        found = cls(until_ts)
        seconds = f.shiftright(f.col("commit_ts"), tso.LOGICAL_BITS) / 1000
        bucket = f.floor(seconds / bucket_s) * bucket_s
        is_until = f.col("commit_ts") <= until_ts
        kinds = ("lineage", "schema", "table", "definition", "key_id")
        for row in (
            steps.groupBy(*kinds, bucket.alias("bucket"), is_until.alias("is_until"))
            .agg(f.count_if(f.col("part") == 0).alias("changes"), f.max("commit_ts").alias("last_ts"))
            .collect()
        ):
            found._add(row)
        return found

    def _add(self, row: Any) -> None:
        name = (row.schema, row.table)
        self._changes[".".join(name), int(row.bucket)] += row.changes
        for profiles in (self.all, self.until if row.is_until else self.after):
            one = profiles.setdefault(row.lineage, Profile(name))
            one.add(name, row.last_ts, row.definition, row.key_id)

    @property
    def last_ts(self) -> int:
        return max((one.last_ts for one in self.all.values()), default=0)

    @property
    def changes(self) -> list[TableChanges]:
        return [TableChanges(table, at, number) for (table, at), number in sorted(self._changes.items())]

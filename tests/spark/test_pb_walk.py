"""pb walk: rows of events are the rows that were written, whatever their types, the fast and the slow way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from common.rowcodec import compile_table
from common.rowcodec.plan import TablePlan
from drainer.pb_archive import PbEncoder
from drainer.spark.pb_walk import PbWalker, Shape
from drainer.spark.records import Row
from drainer.txn import DELETE, INSERT, Ddl, TableVersion, Transaction
from tests.drainer import recorded
from tests.drainer.relay_world import items

MAX = (1 << 63) - 1


class Current:
    """The definitions of one transaction."""

    def __init__(self) -> None:
        self.versions: dict[tuple[str, str], TableVersion] = {}

    def take(self, transaction: Transaction) -> None:
        self.versions = {events.table.downstream: events.table for events in transaction.tables}

    def find(
        self,
        schema: str,
        table: str,
        commit_ts: int,
        column_names: Sequence[str],
        fits: Callable[[TableVersion], bool],
    ) -> TableVersion | None:
        return self.versions.get((schema, table))

    def guess(self, schema: str, table: str, shape: Shape) -> TableVersion:
        raise AssertionError(f"{schema}.{table}: {shape}")

    def valid(self, commit_ts: int) -> tuple[int, int]:
        return commit_ts, commit_ts


class Plans:
    def __init__(self) -> None:
        self._plans: dict[TableVersion, TablePlan] = {}

    def of(self, version: TableVersion) -> TablePlan:
        return self._plans.get(version) or self._plans.setdefault(version, compile_table(version.info))

    def values(self, row: Row) -> tuple[Any, Any]:
        version, _, before, after = row
        read = self.of(version).decode_delete
        return None if before is None else read(before), None if after is None else read(after)

    def written(self, version: TableVersion, kind: int, row: bytes) -> tuple[Any, Any]:
        plan = self.of(version)
        if kind == INSERT:
            return None, plan.decode_insert(row)
        if kind == DELETE:
            return plan.decode_delete(row), None
        return plan.decode_update(row)


@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
def test_images_of_recorded_rows_hold_what_the_rows_held(scenario: str) -> None:
    encoder, current, plans = PbEncoder(), Current(), Plans()
    walker = PbWalker(current)
    for item in items(scenario):
        if isinstance(item, Ddl) or not item.tables:
            continue
        current.take(item)
        runs = walker.rows(encoder.transaction(item), item.commit_ts)
        assert [first for first, _ in runs] == [0]
        found = [(row[0], row[1], *plans.values(row)) for row in runs[0][1]]
        wanted = [
            (events.table, kind, *plans.written(events.table, kind, row))
            for events in item.tables
            for kind, row in zip(events.kinds, events.rows, strict=True)
        ]
        assert found == wanted

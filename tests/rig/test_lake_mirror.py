"""What differs between a mirror and the model of its workload is seen."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from tests.rig.lake_mirror import SCHEMA, Rows, differing


def test_each_row_is_compared(tmp_path: Path) -> None:
    customers: list[dict[str, Any]] = [{"id": number, "name": f"customer {number}"} for number in (1, 2, 3)]
    orders: list[dict[str, Any]] = [{"id": 7, "customer": 1, "amount": Decimal("2.50"), "state": "open"}]
    for table, rows in (("customers", customers), ("orders", orders)):
        invalid = pa.array([None] * len(rows), pa.string())
        mirror = pa.Table.from_pylist(rows).append_column("_invalid", invalid)
        write_deltalake(tmp_path / SCHEMA / table, mirror)
    equal: Rows = {"customers": {row["id"]: row for row in customers}, "orders": {7: orders[0]}}
    answer, differences = differing(equal, tmp_path)
    assert "2.50" in answer
    assert differences == []

    changed = equal["customers"] | {2: {"id": 2, "name": "another"}, 4: {"id": 4, "name": "new"}}
    del changed[3]
    _, differences = differing({"customers": changed, "orders": {}}, tmp_path)
    assert sorted(differences) == [
        "customers has (2, 'customer 2', None)",
        "customers has (3, 'customer 3', None)",
        "customers lacks (2, 'another', None)",
        "customers lacks (4, 'new', None)",
        "orders has (7, 1, Decimal('2.50'), 'open', None)",
    ]
    short = {"orders": {7: {"id": 7, "customer": 1, "amount": Decimal("2.50")}}}
    assert len(differing(equal | short, tmp_path)[1]) == 2, "a column too many"

"""Histories of a table whose key is one whole number, which is not its first column."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from drainer.txn import DELETE, INSERT, UPDATE, TableEvents, TableVersion, Transaction
from tests.drainer.support.apply_life import column
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import FLAG_NOT_NULL, FLAG_PRIMARY, FLAG_UNSIGNED, LONGLONG, VARCHAR, TableInfo

KEY = FLAG_NOT_NULL | FLAG_PRIMARY


def table(unsigned: bool) -> TableVersion:
    flags = KEY | (FLAG_UNSIGNED if unsigned else 0)
    columns = (column(1, "v", VARCHAR), column(2, "id", LONGLONG, flags), column(3, "n", LONGLONG))
    return TableVersion(TableInfo(7, "t", columns, pk_is_handle=True), "d", "t", 1)


def history(version: TableVersion, rng: random.Random, unsigned: bool) -> Iterator[Transaction]:
    """Every kind of row; keys that come again, and at the ends of their range; NULLs, values of all sizes."""
    encoder = RowEncoder(version.info)
    edges = [0, 1, 127, 128, (1 << 63) - 1, *((1 << 63, (1 << 64) - 1) if unsigned else (-1, -(1 << 63)))]
    keys = edges + [rng.randrange(1 << 40) for _ in range(20)]
    there: dict[int, dict[str, Any]] = {}
    for number in range(60):
        kinds, images = [], []
        for _ in range(rng.randrange(1, 6)):
            key = rng.choice(keys)
            value = rng.choice([None, "", "a", "b" * rng.choice([31, 32, 63, 64, 200, 5000])])
            new = {"v": value, "id": key, "n": rng.choice([None, 0, -5, 1 << 62])}
            old = there.get(key)
            if old is None:
                kinds.append(INSERT)
                images.append(encoder.insert(new))
                there[key] = new
            elif rng.random() < 0.3:
                kinds.append(DELETE)
                images.append(encoder.delete(there.pop(key)))
            else:
                kinds.append(UPDATE)
                images.append(encoder.update(old, new))
                there[key] = new
        yield Transaction(0, (number + 1) << 30, (TableEvents(version, kinds, images, 0),), 0)

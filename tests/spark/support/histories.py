"""Histories of rows, as effects are folded and merged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pyarrow as pa

from drainer.reading.archive.decode.images import Images
from drainer.reading.archive.decode.records import Changes, Row
from drainer.spark.effects.batches import ARROW, places
from drainer.spark.effects.operations import Operations, RowEffect, effects_in_order
from drainer.txn import DELETE, INSERT, UPDATE, TableEvents, TableVersion
from tests.drainer.support.apply_life import column
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import FLAG_NOT_NULL, FLAG_PRIMARY, LONG, VARCHAR, Index, IndexColumn, TableInfo

_KEY = FLAG_NOT_NULL | FLAG_PRIMARY


def versions(number: int) -> tuple[TableVersion, TableVersion, TableVersion]:
    """Keyed by a number, keyed by text, without a key."""
    by_number = TableInfo(1, "n", (column(1, "id", LONG, _KEY), column(2, "b", VARCHAR)), pk_is_handle=True)
    primary = Index(1, "PRIMARY", (IndexColumn("id", 0),), unique=True, primary=True)
    by_text = TableInfo(2, "t", (column(1, "id", VARCHAR, _KEY), column(2, "b", VARCHAR)), (primary,))
    without = TableInfo(3, "k", (column(1, "a", LONG), column(2, "b", VARCHAR)))
    made = [TableVersion(info, f"d{number}", info.name, 1) for info in (by_number, by_text, without)]
    return made[0], made[1], made[2]


def history(number: int, length: int) -> list[Changes]:
    """Valid changes: rows are there before they are changed; keys move, go and come back."""
    pick, images, transactions = Random(number), Images(), []
    tables = versions(number)
    encoders = [RowEncoder(version.info) for version in tables]
    there: list[dict[object, str]] = [{}, {}, {}]
    for at in range(length):
        rows: list[Row] = []
        for seq in range(pick.randrange(1, 5)):
            place = pick.randrange(3)
            key = pick.randrange(-3, 6) if place != 1 else pick.choice(["a", "A", "b", "é"])
            value = str(pick.randrange(3))
            known, encoder = there[place], encoders[place]
            before = known.get(key)
            if before is None:
                known[key], event = value, (INSERT, encoder.insert((key, value), 1 if place else None))
            elif pick.random() < 0.3:
                del known[key]
                event = DELETE, encoder.delete((key, before), 1 if place else None)
            else:
                free = [one for one in ((0, 1, 2) if place != 1 else ("a", "A")) if one not in known]
                target = pick.choice(free) if free and pick.random() < 0.4 else key
                del known[key]
                known[target] = value
                event = UPDATE, encoder.update((key, before), (target, value), 1 if place else None)
            rows += images.rows(TableEvents(tables[place], (event[0],), [event[1]], seq))
        transactions.append(Changes(100 + at, 0, "f", at, 0, rows))
    return transactions


def by_key(effects: list[RowEffect]) -> dict[tuple[int, bytes], RowEffect]:
    return {(effect.table, effect.key): effect for effect in effects}


def number_of(version: TableVersion) -> int:
    return version.info.id


def in_pieces(transactions: list[Changes], pick: Random) -> list[RowEffect]:
    """Effects as several readers give them."""
    cuts = sorted(pick.sample(range(1, len(transactions)), 3))
    found: list[RowEffect] = []
    for start, end in zip([0, *cuts], [*cuts, len(transactions)], strict=True):
        operations = Operations(number_of, None)
        for changes in transactions[start:end]:
            operations.add(changes)
        found += effects_in_order(operations.take())
    return found


def histories(pick: Random, count: int) -> tuple[list[RowEffect], list[RowEffect], set[int]]:
    """Of several: (as one piece, as several, tables whose keys are whole numbers)."""
    whole: list[RowEffect] = []
    pieces: list[RowEffect] = []
    digits: set[int] = set()
    for number in range(count):
        transactions = history(number, 12)
        operations = Operations(number_of, None)
        for changes in transactions:
            operations.add(changes)
        whole += effects_in_order(operations.take())
        digits |= operations.digits
        pieces += in_pieces(transactions, pick)
    return whole, pieces, digits


Placed = Callable[[int], int]


def batches(effects: list[RowEffect], place_of: Placed, pick: Random, *, rows_max: int) -> Iterator[Any]:
    """Record batches of random lengths, none among them too."""
    found = [(place_of(int(places([one.key], one.table, 8, digits=False)[0])), *one) for one in effects]
    while True:
        some, found = found[: (rows := pick.randrange(rows_max))], found[rows:]
        columns = zip(*some, strict=True) if some else [[] for _ in ARROW]
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, ARROW, strict=True)],
            schema=ARROW,
        )
        if not found:
            return

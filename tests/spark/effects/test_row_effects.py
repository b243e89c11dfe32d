"""Effects found for all rows of a table at once are those that are found row by row."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.images import Images
from drainer.reading.archive.decode.records import Changes
from drainer.spark.effects.batches import batches
from drainer.spark.effects.merge import merged
from drainer.spark.effects.operations import Operations
from drainer.spark.effects.row_effects import RowEffects
from drainer.txn import INSERT, UPDATE, TableEvents, TableVersion, Transaction
from tests.drainer.support import recorded
from tests.drainer.support.relay_world import items
from tests.spark.support.number_keys import history, table
from tidb_binlog.rowcodec.encoder import RowEncoder

SCENARIOS = sorted(path.name for path in recorded.ROOT.iterdir() if path.is_dir())
BUCKETS = 16


def row_by_row(stream: Iterable[Transaction], known: Definitions) -> list[Any]:
    operations, images = Operations(known.number_of), Images()
    for item in stream:
        for first_seq, rows in images.runs(item, known):
            operations.add(Changes(item.commit_ts, 0, "", 0, first_seq, rows))
    return list(batches(operations.take(), operations.digits, BUCKETS))


def at_once(stream: list[Transaction], known: Definitions) -> tuple[list[Any], list[Transaction]]:
    return RowEffects(known, known.number_of, frozenset(), BUCKETS).read(stream)


def net(some: list[Any]) -> list[dict[str, Any]]:
    """One row a key, in the order in which it is written."""
    rows = pa.Table.from_batches(some).sort_by("place").combine_chunks().to_batches() if some else []
    return [row for batch in merged(rows) for row in batch.to_pylist()]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_of_recorded_streams(scenario: str) -> None:
    known = Definitions()
    for is_rows, some in itertools.groupby(items(scenario), lambda item: isinstance(item, Transaction)):
        if is_rows:
            stream = [item for item in some if isinstance(item, Transaction)]
            found, left = at_once(stream, known)
            assert net(found + row_by_row(left, known)) == net(row_by_row(stream, known))


def test_most_recorded_types_are_found_at_once() -> None:
    """What is left has JSON, or no key that is one number."""
    stream = [item for item in items("types") if isinstance(item, Transaction)]
    _, left = at_once(stream, Definitions())
    rows, rest = ({e.table.name for item in some for e in item.tables} for some in (stream, left))
    assert len(rest) < len(rows) / 2


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_of_random_histories(seed: int, unsigned: bool) -> None:
    """Rows of another table lie between, so the places of rows in their transactions matter."""
    first, second = table(unsigned), table(not unsigned)
    second = replace(second, info=replace(second.info, id=8, name="u"), name="u")
    both = zip(
        history(first, random.Random(seed), unsigned),
        history(second, random.Random(seed + 100), not unsigned),
        strict=True,
    )
    stream = []
    for one, two in both:
        (ours,), (theirs,) = one.tables, two.tables
        after = TableEvents(theirs.table, theirs.kinds, theirs.rows, len(ours.rows) + 3)
        stream.append(replace(one, tables=(ours, after)))
    known = Definitions()
    found, left = at_once(stream, known)
    assert not left
    assert net(found) == net(row_by_row(stream, known))


def single(version: TableVersion, kind: int, *rows: bytes) -> list[Transaction]:
    return [Transaction(0, 1 << 30, (TableEvents(version, [kind] * len(rows), list(rows), 0),), 0)]


def test_a_key_that_moves_is_taken_row_by_row() -> None:
    version = table(unsigned=False)
    row = RowEncoder(version.info).update({"v": "a", "id": 1, "n": 1}, {"v": "a", "id": 2, "n": 1})
    assert at_once(single(version, UPDATE, row), Definitions())[1]


def test_odd_rows_are_taken_row_by_row() -> None:
    """Cut off anywhere, or with any byte changed: then the readers of rows say what it is."""
    version = table(unsigned=False)
    encoder, known = RowEncoder(version.info), Definitions()
    right = encoder.insert({"v": "abc", "id": 300, "n": 1 << 62})
    cut = [right[:end] for end in range(len(right))]
    changed = [
        right[:place] + bytes([byte]) + right[place + 1 :]
        for place in range(len(right))
        for byte in (0x00, 0x01, 0x7F, 0x80, 0xFF)
    ]
    taken = 0
    for odd in cut + changed:
        stream = single(version, INSERT, odd)
        found, left = at_once(stream, known)
        if not left:
            taken += 1
            assert net(found) == net(row_by_row(stream, known)), odd
    assert 0 < taken < len(cut + changed) / 2


def test_of_tables_whose_former_images_are_needed_rows_are_taken_one_by_one() -> None:
    version = table(unsigned=False)
    known = Definitions()
    stream = single(version, INSERT, RowEncoder(version.info).insert({"v": "a", "id": 1, "n": 1}))
    (batch,), _ = at_once(stream, known)
    before_of = frozenset(batch.column("table").to_pylist())
    assert RowEffects(known, known.number_of, before_of, BUCKETS).read(stream) == ([], stream)

"""Effects found for many records at once are those that are found row by row."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from drainer.places.place import Place
from drainer.reading.archive.decode import definitions, reading
from drainer.reading.archive.decode.definitions import Definitions, KnownTables
from drainer.reading.archive.decode.reading import PbReader
from drainer.reading.archive.decode.records import Changes
from drainer.reading.archive.files.segments import Slice, survey
from drainer.reading.archive.files.selection import Selection
from drainer.spark.effects.batches import batches
from drainer.spark.effects.operations import Operations
from drainer.spark.effects.pb_effects import PbEffects
from drainer.txn import UPDATE, TableEvents, Transaction
from tests.drainer.reading.archive.support import corpus
from tests.drainer.support import recorded
from tests.drainer.support.relay_world import items
from tests.spark.support.number_keys import history, table
from tidb_binlog.rowcodec.encoder import RowEncoder

BUCKETS = 16


def at_once(location: Place, part: Slice, selection: Selection, known: Definitions) -> list[Any] | None:
    reader = PbReader(part, selection, known, location.path_of(part.name))
    number_of = KnownTables(known).number_of
    found = PbEffects(reader.walker, number_of, frozenset(), selection.wants_table, known.is_one, BUCKETS)
    return found.read(list(reading.pieces(location, part, reader)))


def row_by_row(location: Place, part: Slice, selection: Selection, known: Definitions) -> list[Any]:
    operations = Operations(KnownTables(known).number_of)
    for record in reading.read(location, part, selection, known):
        if isinstance(record, Changes):
            operations.add(record)
    return list(batches(operations.take(), operations.digits, BUCKETS))


def rows(found: list[Any]) -> list[dict[str, Any]]:
    return sorted(
        (row for batch in found for row in batch.to_pylist()), key=lambda row: (row["table"], row["key"])
    )


@pytest.mark.parametrize("scenario", recorded.VARIED)
def test_of_recorded_tables(scenario: str, tmp_path: Path) -> None:
    location = corpus.our_archive(items(scenario), tmp_path)
    seen = survey(location)
    known = definitions.of_archive(location, seen)
    for name in sorted({(one.schema, one.table) for one in known}):
        selection = Selection(tables=(".".join(name),))
        for part in seen.plan(selection):
            found = at_once(location, part, selection, known)
            if found is not None:
                assert rows(found) == rows(row_by_row(location, part, selection, known)), name


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_of_random_histories(seed: int, unsigned: bool, tmp_path: Path) -> None:
    version = table(unsigned)
    stream = list(history(version, random.Random(seed), unsigned))
    location = corpus.our_archive(stream, tmp_path, 1 << 30)
    seen = survey(location)
    known = definitions.of_archive(location, seen)
    (part,) = seen.plan(Selection())
    found = at_once(location, part, Selection(), known)
    assert found is not None
    assert len(found) == 3
    assert rows(found) == rows(row_by_row(location, part, Selection(), known))


def test_a_key_that_moves_is_taken_row_by_row(tmp_path: Path) -> None:
    version = table(unsigned=False)
    encoder = RowEncoder(version.info)
    row = encoder.update({"v": "a", "id": 1, "n": 1}, {"v": "a", "id": 2, "n": 1})
    stream = [Transaction(0, 1 << 30, (TableEvents(version, [UPDATE], [row], 0),), 0)]
    location = corpus.our_archive(stream, tmp_path, 1 << 30)
    seen = survey(location)
    (part,) = seen.plan(Selection())
    assert at_once(location, part, Selection(), definitions.of_archive(location, seen)) is None

"""Effect merge: pieces of histories, cut anywhere, become what one piece would have given."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from drainer.spark.effects.batches import ARROW, PLACE_BITS, digit_places
from drainer.spark.effects.merge import merged, taken_together
from drainer.spark.effects.operations import RowEffect
from tests.spark.support.histories import Placed, batches, by_key, histories


def effects_of(rows: list[dict[str, Any]]) -> list[RowEffect]:
    return [RowEffect(*(row[name] for name in RowEffect._fields)) for row in rows]


@pytest.mark.parametrize("place_of", [lambda place: place, lambda place: place % 7], ids=["own", "shared"])
@pytest.mark.parametrize("seed", range(4))
def test_it_does_not_matter_where_pieces_and_batches_are_cut(place_of: Placed, seed: int) -> None:
    pick = Random(seed)
    whole, pieces, _ = histories(pick, 30)
    pick.shuffle(pieces)
    held_bytes = 1 << 14 + 2 * seed
    nearer = list(taken_together(batches(pieces, place_of, pick, rows_max=90), held_bytes))
    assert all(batch.schema == ARROW for batch in nearer)
    left = sum(batch.num_rows for batch in nearer)
    assert left == len(whole) if held_bytes > 1 << 19 else len(whole) <= left <= len(pieces)
    table = pa.Table.from_batches(nearer).sort_by("place").combine_chunks()
    rows = pa.Table.from_batches(merged(table.to_batches(pick.randrange(1, 60))), ARROW).to_pylist()
    order = [(row["place"], row["table"], row["key"]) for row in rows]
    assert order == sorted(set(order))
    found = by_key(effects_of(rows))
    assert len(found) == len(rows) == len(whole)
    for key, effect in by_key(whole).items():
        if effect.first_order & 7 > 4:  # without a key all that counts is how often
            assert found[key].times == effect.times
            continue
        was_there = effect.first_order & 7 > 1
        assert found[key]._replace(reborn=False) == effect._replace(reborn=False)
        assert not was_there or found[key].reborn == effect.reborn


def test_what_hardly_repeats_is_left_as_it_is() -> None:
    pick = Random(1)
    whole, _, _ = histories(pick, 30)
    given = list(batches(whole, lambda place: place, pick, rows_max=50))
    left = list(taken_together(iter(given), 1 << 30))
    assert [batch for batch in left if batch.num_rows] == [batch for batch in given if batch.num_rows]


def test_tables_do_not_meet_at_their_small_numbers() -> None:
    numbers = pa.array(range(2000), pa.int64()).to_numpy()
    for buckets in (1, 8):
        found = [set(digit_places(numbers, table, buckets).tolist()) for table in (5, 6, 1 << 62)]
        assert all(len(one) == 2000 for one in found)
        assert len(set.union(*found)) == 6000
        assert all(0 <= place >> PLACE_BITS < buckets for one in found for place in one)

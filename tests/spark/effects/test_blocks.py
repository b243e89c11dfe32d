"""Effect blocks: packed by bucket and put together again, effects are what they were, by place."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa
import pytest

from drainer.spark.effects.batches import ARROW
from drainer.spark.effects.blocks import by_bucket, by_place, effects_in, folded, packed
from drainer.spark.effects.merge import merged
from tests.spark.support.histories import batches, histories

_IN_ORDER: Final = [("place", "ascending"), ("table", "ascending"), ("key", "ascending")]


@pytest.mark.parametrize("seed", range(4))
def test_blocks_of_several_readers_become_what_rows_in_order_would(seed: int) -> None:
    pick = Random(seed)
    _, pieces, _ = histories(pick, 30)
    pick.shuffle(pieces)
    given = list(batches(pieces, lambda place: place, pick, rows_max=90))
    middle = len(given) // 2
    readers = [given[:middle], given[middle:]]
    blocks = [block for some in readers for block in packed(some, 1 << 12 + 2 * seed)]
    shuffled = pa.Table.from_batches(blocks).sort_by("bucket").combine_chunks()
    assert len(set(shuffled["bucket"].to_pylist())) == 8 < shuffled.num_rows
    found = list(by_place(shuffled.to_batches(pick.randrange(1, 9))))
    places = [place for batch in found for place in batch.column("place").to_pylist()]
    assert places == sorted(places)
    in_order = pa.Table.from_batches(given).sort_by("place").combine_chunks()
    wanted = pa.Table.from_batches(merged(in_order.to_batches()), ARROW)
    assert pa.Table.from_batches(merged(found), ARROW).equals(wanted)
    by_definition = pa.Table.from_batches(folded(shuffled.to_batches(3)))
    for number, keys, block in zip(*by_definition.to_pydict().values(), strict=True):
        (rows,) = effects_in([pa.scalar(block, pa.binary())])
        assert (set(rows["definition"].to_pylist()), rows.num_rows) == ({number}, keys)
    rows = pa.Table.from_batches(effects_in(by_definition["block"]), ARROW).sort_by(_IN_ORDER)
    assert rows.equals(wanted.sort_by(_IN_ORDER))
    tables = set(in_order["table"].to_pylist()[::97])
    some = pa.Table.from_batches(by_place(shuffled.to_batches(3), tables), ARROW)
    assert set(some["table"].to_pylist()) == tables
    assert some.num_rows == sum(table in tables for table in in_order["table"].to_pylist())


def test_no_effects_are_no_blocks() -> None:
    assert list(packed([], 1)) == []
    nothing = pa.RecordBatch.from_pylist([], ARROW)
    assert list(packed([nothing], 1)) == []
    assert list(by_place([])) == []


def test_pyspark_4_0_places_buckets_by_their_hash() -> None:
    """It has no `repartitionById`; a bucket is in one partition all the same."""
    asked: list[object] = []
    sorted_frame = SimpleNamespace(sortWithinPartitions=lambda *by: asked.append(by) or "frame")
    frame = SimpleNamespace(repartition=lambda *how: asked.append(how) or sorted_frame)
    spark: Any = SimpleNamespace(range=lambda *_: SimpleNamespace(mapInArrow=lambda *_: frame))
    reading: Any = SimpleNamespace(shares=[1, 2])
    assert by_bucket(spark, reading, 8) == "frame"
    assert asked == [(8, "bucket"), ("bucket",)]

"""Fold: random histories in pieces, put together by Spark, give what one piece would have given."""

from __future__ import annotations

from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession

from drainer.spark.effects import fold
from drainer.spark.effects.batches import COLUMNS, PLACE_BITS, places
from drainer.spark.effects.operations import RowEffect, table_id
from tests.spark.support.histories import by_key, histories, versions

_BUCKETS = 8


def frame_of(spark: SparkSession, effects: list[RowEffect], digits: set[int]) -> DataFrame:
    rows = [
        (int(places([effect.key], effect.table, _BUCKETS, digits=effect.table in digits)[0]), *effect)
        for effect in effects
    ]
    return spark.createDataFrame(rows, COLUMNS).repartition(3)


@pytest.fixture(scope="module")
def put_together(spark: SparkSession) -> tuple[list[RowEffect], list[RowEffect], list[int]]:
    """(as one piece, by Spark from pieces, places in the order in which they came)."""
    whole, pieces, digits = histories(Random(5), 40)
    frame = fold.folded(frame_of(spark, pieces, digits), 3)
    rows = [tuple(row) for row in frame.collect()]
    effects = [RowEffect(*row[1:3], *row[3:]) for row in rows]
    return whole, [effect._replace(key=bytes(effect.key)) for effect in effects], [row[0] for row in rows]


def test_pieces_put_together_by_spark_are_what_one_piece_is(
    put_together: tuple[list[RowEffect], list[RowEffect], list[int]],
) -> None:
    whole, together, _ = put_together
    assert len(together) == len(by_key(together)) == len(whole)
    for key, effect in by_key(whole).items():
        found = by_key(together)[key]
        keyless = effect.times or found.times or effect.first_order & 7 > 4
        if keyless:
            assert (found.times, bytes(found.image or b"")) == (effect.times, effect.image), key
            continue
        assert found._replace(before=None, image=None, reborn=False) == effect._replace(
            before=None, image=None, reborn=False
        )
        assert (found.before and bytes(found.before)) == effect.before
        assert (found.image and bytes(found.image)) == effect.image
        was_there = effect.first_order & 7 > 1
        assert not was_there or found.reborn == effect.reborn


def test_a_bucket_comes_in_one_piece_and_in_order(
    put_together: tuple[list[RowEffect], list[RowEffect], list[int]],
) -> None:
    found = put_together[2]
    buckets = [place >> PLACE_BITS for place in found]
    runs = [bucket for at, bucket in enumerate(buckets) if not at or buckets[at - 1] != bucket]
    assert len(runs) == len(set(runs))
    for bucket in runs:
        inside = [place for place in found if place >> PLACE_BITS == bucket]
        assert inside == sorted(inside)


def test_neighbours_share_a_bucket_and_lie_side_by_side() -> None:
    keys = [b"%d" % number for number in range(5000)]
    found = places(keys, 77, 64, digits=True)
    buckets = [int(place) >> PLACE_BITS for place in found]
    assert len(set(buckets[:1024])) == 1
    assert len(set(buckets)) > 1
    assert list(found[:1024]) == sorted(found[:1024])


def test_unsigned_and_negative_keys_have_a_place() -> None:
    found = places([b"18446744073709551615", b"-5"], table_id(versions(0)[0]), 8, digits=True)
    assert all(0 <= int(place) >> PLACE_BITS < 8 for place in found)


def test_a_key_has_one_place_whatever_came_with_it() -> None:
    (alone,) = places([b"-5"], 77, 64, digits=True)
    assert places([b"18446744073709551615", b"-5"], 77, 64, digits=True)[1] == alone

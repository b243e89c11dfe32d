"""Fold: random histories in pieces, put together by Spark, give what one piece would have given."""

from __future__ import annotations

from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession

from drainer.reading.archive.decode.images import Images
from drainer.reading.archive.decode.records import Changes, Row
from drainer.spark.effects import fold
from drainer.spark.effects.batches import COLUMNS, PLACE_BITS, places
from drainer.spark.effects.operations import Operations, RowEffect, effects_in_order, table_id
from drainer.txn import DELETE, INSERT, UPDATE, TableEvents, TableVersion
from tests.drainer.support.apply_life import column
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import FLAG_NOT_NULL, FLAG_PRIMARY, LONG, VARCHAR, Index, IndexColumn, TableInfo

_KEY = FLAG_NOT_NULL | FLAG_PRIMARY
_BUCKETS = 8


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

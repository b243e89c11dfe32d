"""Engine: a job finds the same in this process and in Spark's tasks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import pytest
from pyspark.sql import SparkSession

from drainer.spark import engine as engines
from drainer.spark.engine import Engine, Executors, Here

COLUMNS = "name string, key binary, turn long"


@pytest.fixture(params=["here", "spark"])
def engine(request: pytest.FixtureRequest, spark: SparkSession) -> Engine:
    return Here() if request.param == "here" else Executors(spark)


def rows(seeds: Iterator[int]) -> Iterator[tuple[Any, ...]]:
    for seed in seeds:
        rng = random.Random(seed)
        for _ in range(50):
            key = rng.choice((None, b"", b"\x00", b"\x7f", b"\x80", b"\xff\x00"))
            yield rng.choice("aäz"), key, rng.choice((None, 1, 2))


def ordered(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    yield from ((name, key, list(map(itemgetter(2), some))) for (name, key), some in groupby(rows, NAMED))


NAMED = itemgetter(0, 1)


def test_rows_of_a_name_come_together_in_their_order_null_first(engine: Engine) -> None:
    both = engine.over([1, 2, 3], rows, COLUMNS).plus(engine.over(range(4, 9), rows, COLUMNS, together=True))
    found = both.together(("name", "key"), ("turn",)).gather(ordered)
    of_name: dict[Any, list[int | None]] = {}
    for name, key, turn in rows(iter(range(1, 9))):
        of_name.setdefault((name, key), []).append(turn)
    assert len(found) == len(of_name)
    for name, key, turns in found:
        assert turns == sorted(of_name[name, key], key=lambda turn: turn or 0)


def test_what_follows_is_done_with_every_row_once(engine: Engine) -> None:
    doubled = engine.over([1, 2], rows, COLUMNS).then(
        lambda some: ((f"{name}!", key, turn) for name, key, turn in some for _ in range(2)), COLUMNS
    )
    with doubled.together(("name",), ("key",)).kept() as kept:
        assert sum(kept.gather(lambda some: [sum(1 for _ in some)])) == 200
        assert sum(kept.gather(lambda some: [sum(name == "a!" for name, *_ in some)])) > 0
    assert engine.over([], rows, COLUMNS).gather(iter) == []


def test_values_of_any_kind_come_back(engine: Engine) -> None:
    assert sorted(engine.over([{1}, {2, 3}], lambda sets: sets).gather(iter), key=len) == [{1}, {2, 3}]


def test_without_a_session_it_is_this_process(spark: SparkSession) -> None:
    assert engines.engine_for(None).is_here
    assert not engines.engine_for(lambda: spark).is_here

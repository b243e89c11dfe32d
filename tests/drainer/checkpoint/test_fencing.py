"""Fencing: which drainer may write, over all small epochs, positions and owners."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

import pytest

from drainer.checkpoint.fencing import SPARK_OWNER, Fence, WentBack, check_owner, next_epoch
from drainer.mysql.rows.change import COMPLETE, Position
from tests.cases import case
from tidb_binlog.errors import Conflict

CLUSTER = 41
IDS = ("", "a", "b")


def is_refused(check: Callable[[], None]) -> type[Exception] | None:
    try:
        check()
    except Conflict as error:
        return type(error)
    return None


@pytest.mark.parametrize("own", range(1, 5))
def test_an_epoch_is_ours_or_newer_or_lost(own: int) -> None:
    """Every stored epoch, and none: the table of the module."""
    fence = Fence(CLUSTER, own)
    for stored in (None, *range(7)):
        expected = WentBack if stored is None or stored < own else Conflict if stored > own else None
        assert is_refused(lambda stored=stored: fence.check_epoch(stored)) is expected, stored


def test_of_all_starts_only_the_one_with_the_highest_epoch_may_write() -> None:
    """Epochs as starts draw them, whatever their clocks say: each is above all before it."""
    for epochs in product(range(1, 6), repeat=3):
        with case(epochs):
            stored, fences = 0, []
            for now_ts in epochs:
                stored = next_epoch(stored, now_ts)
                fences.append(Fence(CLUSTER, stored))
            assert len({fence.epoch for fence in fences}) == len(fences)
            refusals = [is_refused(partial(fence.check_epoch, stored)) for fence in fences]
            assert refusals == [Conflict] * (len(fences) - 1) + [None]


def test_an_epoch_is_the_next_number_where_the_clock_does_not_say_more() -> None:
    assert [next_epoch(last, 5) for last in range(3, 8)] == [5, 5, 6, 7, 8]


def test_a_stream_of_spark_is_waited_for_though_it_is_not_seen_to_live() -> None:
    check_owner(CLUSTER, SPARK_OWNER + "s", SPARK_OWNER + "s", ())
    for ours in ("", "a", SPARK_OWNER + "t"):
        with pytest.raises(Conflict, match=r"binlog-spark stream s works"):
            check_owner(CLUSTER, SPARK_OWNER + "s", ours, ())


def test_what_is_missing_is_said() -> None:
    fence = Fence(CLUSTER, 5)
    for stored, said in ((None, "nothing of this cluster"), (4, "it has epoch 4,")):
        with pytest.raises(WentBack, match=said):
            fence.check_epoch(stored)
    with pytest.raises(WentBack, match=r"lane 1 stands at 6:0, 7 was committed"):
        fence.check_position("lane 1", Position(7, COMPLETE), Position(6, 0))
    with pytest.raises(WentBack, match=r"lane 1 stands at nothing, 7:1 was committed"):
        fence.check_position("lane 1", Position(7, 1), None)


def test_only_a_living_drainer_of_another_id_is_not_replaced() -> None:
    for last, ours, living in product(("", "a", "b"), ("", "a", "b"), ((), ("a",), ("b",), ("a", "b"))):
        with case(last, ours, living):
            is_mistake = last in living and ours not in ("", last)
            assert (is_refused(partial(check_owner, CLUSTER, last, ours, living)) is Conflict) is is_mistake


def test_a_position_may_only_be_higher_than_the_confirmed_one() -> None:
    fence = Fence(CLUSTER, 5)
    places = [Position(7, 0), Position(7, 3), Position(7, COMPLETE), Position(8, 1)]  # in order
    for (first, confirmed), (second, stored) in product(enumerate(places), repeat=2):
        refusal = is_refused(lambda c=confirmed, s=stored: fence.check_position("lane 1", c, s))
        assert refusal is (WentBack if second < first else None), (confirmed, stored)
    assert is_refused(lambda: fence.check_position("lane 1", None, None)) is None
    assert is_refused(lambda: fence.check_position("lane 1", places[0], None)) is WentBack


def test_writes_are_counted() -> None:
    fence = Fence(CLUSTER, 5)
    found = [is_refused(lambda stored=stored: fence.check_writes(3, stored)) for stored in (None, 2, 3, 4)]
    assert found == [WentBack, WentBack, None, None]

"""The joining rules hold in every order, planted faults are found, and the real collector does the same."""

from __future__ import annotations

import pytest

from tests.fakes import virtual_time
from tests.model.bounds import SMALL, WALKED
from tests.model.collector_replay import Replay
from tests.model.explorer import Explorer, Found
from tests.model.faults import FAULTS
from tests.model.joining import Bounds, World

WALKS, STEPS = 20, 80


@pytest.mark.parametrize("bounds", SMALL, ids=str)
def test_every_order_keeps_every_promise(bounds: Bounds) -> None:
    explorer = Explorer(World(bounds))
    assert explorer.run() > 1000
    assert explorer.steps > 2000


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: type[World]) -> None:
    with pytest.raises(Found):
        Explorer(fault(FAULTS[fault])).run()


def test_the_real_collector_lets_out_what_the_model_does() -> None:
    world = World(WALKED)
    for seed in range(WALKS):
        virtual_time.run(Replay(world, seed).run(STEPS))

"""A sample of DDL of every kind, by seed: rows are TiDB's afterwards, or the table waits, or it is named."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from drainer.mysql.connection import Target
from tests.drainer.ddl.generated.downstream import SERVERS, run
from tests.drainer.ddl.generated.kinds import KINDS
from tests.drainer.support.apply_life import clean

pytestmark = pytest.mark.integration


@pytest.fixture
def left_empty(server_not_tidb: Target) -> Iterator[Target]:
    yield server_not_tidb
    clean(server_not_tidb)


@pytest.mark.parametrize("seed", range(len(SERVERS)))
async def test_nothing_is_silent(seed: int, left_empty: Target) -> None:
    chance = random.Random(seed)
    makes = [one for kind in KINDS.values() for one in chance.sample([*kind()], 5)]
    makes += list(itertools.islice(KINDS["partition"](), 2))
    outcomes, wrong = await run(left_empty, seed, makes)
    assert not wrong, "\n".join(wrong)
    assert outcomes["equal"] > 15, outcomes

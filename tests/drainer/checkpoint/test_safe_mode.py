"""Safe mode: every small combination of what is stored, who stored it, where the relay log ends."""

from __future__ import annotations

from itertools import product

import pytest

from drainer.checkpoint.safe_mode import SafeMode
from drainer.checkpoint.value import Checkpoint

NOW = 5
TIMES = range(8)


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("foreign", [False, True])
def test_every_start(foreign: bool, always: bool) -> None:
    """A transaction is covered unless it cannot be downstream: the table of the module."""
    for stored, last, commit_ts in product(TIMES, (None, *TIMES), range(1, 8)):
        mode = SafeMode.at_start(stored, NOW, foreign=foreign).if_set(always=always)
        if last is not None:
            mode = mode.until(last)
        end = NOW if foreign else stored
        expected = always or (commit_ts <= end and (last is None or commit_ts <= last))
        assert mode.covers(commit_ts) is expected, (stored, last, commit_ts)


def test_none_is_needed_where_nothing_was_stored() -> None:
    assert not any(SafeMode().covers(commit_ts) for commit_ts in range(1, 8))
    assert SafeMode.at_start(0, NOW, foreign=False) == SafeMode()


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("until_ts", TIMES)
def test_it_is_stored_until_the_checkpoint_has_reached_its_end(until_ts: int, always: bool) -> None:
    """A restart at any checkpoint has the safe mode of before, or none where no transaction needs it. What
    the configuration asked for meanwhile ends with the configuration."""
    mode = SafeMode(until_ts)
    keeper = mode.if_set(always=always)
    for commit_ts in TIMES:
        text = Checkpoint(commit_ts, False, 1, 3, keeper.until_ts).to_json()
        again = SafeMode.at_start(Checkpoint.from_json(text).safe_until, NOW, foreign=False)
        assert ("safe-until" in text) is any(mode.covers(later) for later in range(commit_ts + 1, 9))
        for later in range(commit_ts + 1, 9):
            assert again.covers(later) is mode.covers(later)

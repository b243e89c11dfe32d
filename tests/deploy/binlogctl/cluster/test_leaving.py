"""Is a node there yet: every state, lease and answer, against what an operator would say."""

from __future__ import annotations

from itertools import product

import pytest

from binlogctl.cluster.leaving import CLOSE, PAUSE, TARGETS, Arrived, Astray, Waits, progress
from tidb_binlog.cluster.node import CLOSING, OFFLINE, ONLINE, PAUSED, PAUSING, STATES, NodeStatus
from tidb_binlog.cluster.registry import NodeEntry

ANSWERS = (None, {}, {"pump": {"leaving": None}}, {"Doing": "writes rows"}, {"pump": 7})


def entry(state: str, alive: bool | None) -> NodeEntry:
    return NodeEntry(NodeStatus("n", "h:1", state), 1, alive)


@pytest.mark.parametrize("action", [PAUSE, CLOSE])
def test_every_case(action: str) -> None:
    for state, alive, document in product(STATES, (True, False, None), ANSWERS):
        seen = progress(action, entry(state, alive), document)
        at_the_end = state == TARGETS[action]
        is_gone = alive is False or (alive is None and document is None and state in (PAUSED, OFFLINE))
        if at_the_end and not alive:
            assert seen == Arrived(), (state, alive, document)
        elif is_gone:
            assert isinstance(seen, Astray), (state, alive, document)
        else:
            assert isinstance(seen, Waits), (state, alive, document)
            assert seen.what


def test_the_reason_is_the_nodes() -> None:
    leaving = {"waits_for": "drainers: d is 3.0 s behind", "left_s": 5}
    assert progress(CLOSE, entry(CLOSING, True), {"pump": {"leaving": leaving}}) == Waits(
        "drainers: d is 3.0 s behind", 5.0
    )
    assert progress(PAUSE, entry(PAUSING, True), {"Doing": "writes rows"}) == Waits(
        "what it has begun: writes rows"
    )
    assert progress(PAUSE, entry(ONLINE, True), {}) == Waits("its word that it is pausing")
    assert progress(CLOSE, None, None) == Arrived()
    assert isinstance(progress(PAUSE, None, None), Astray)

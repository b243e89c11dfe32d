"""Identity: whose place a pump without a name takes, in every small registry."""

from __future__ import annotations

import itertools

import pytest

from pump.membership import registration
from tidb_binlog.cluster import node
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import NodeEntry
from tidb_binlog.errors import ConfigError, Conflict

HERE, DEFAULT = "h:8250", "h:8250"
KINDS = list(itertools.product(("h:8250", "other:1"), node.STATES, (True, False, None)))


@pytest.mark.parametrize("has_log", [True, False])
@pytest.mark.parametrize("default_is_there", [True, False])
def test_every_registry_of_two(has_log: bool, default_is_there: bool) -> None:
    for first, second in itertools.product(KINDS, repeat=2):
        pumps = {
            name: NodeEntry(NodeStatus(name, host, state), 1, alive)
            for name, (host, state, alive) in (("a", first), ("b", second))
        }
        if default_is_there:
            pumps[DEFAULT] = NodeEntry(NodeStatus(DEFAULT, HERE, node.ONLINE), 1, False)
        places = [
            name
            for name, entry in pumps.items()
            if name != DEFAULT
            and entry.status.host == HERE
            and entry.status.state != node.OFFLINE
            and entry.alive is not True
        ]
        if not places or default_is_there:
            assert registration.place_of(pumps, HERE, DEFAULT, has_log=has_log) is None
        elif len(places) == 1 and has_log:
            assert [registration.place_of(pumps, HERE, DEFAULT, has_log=True)] == places
        else:
            with pytest.raises(ConfigError) as caught:
                registration.place_of(pumps, HERE, DEFAULT, has_log=has_log)
            assert f"--node-id={places[0]}" in caught.value.hint


@pytest.mark.parametrize(("state", "alive"), list(itertools.product(node.STATES, (True, False, None))))
def test_one_that_drainers_wait_for_does_not_begin_with_nothing(state: str, alive: bool | None) -> None:
    pumps = {"a": NodeEntry(NodeStatus("a", HERE, state), 1, alive)}
    registration.check_new(pumps, "b", "/data")
    if state == node.OFFLINE:  # nobody waits
        registration.check_new(pumps, "a", "/data")
    else:
        with pytest.raises(
            Conflict if alive else ConfigError, match=f"is new, and pump a is registered as {state}"
        ):
            registration.check_new(pumps, "a", "/data")

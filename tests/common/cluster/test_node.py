"""Registry entries and the lifecycle: the recorded JSON byte by byte, and every pair of state and event."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from tidb_binlog.cluster import node
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.errors import Corruption

REGISTRY = Path(__file__).resolve().parents[2] / "golden" / "corpus" / "basic" / "registry.json"


def test_recorded_entries_survive_byte_by_byte() -> None:
    entries = json.loads(REGISTRY.read_text())
    assert len(entries) == 3
    for entry in entries:
        status = NodeStatus.from_json(entry["value"].encode())
        assert status.state == node.ONLINE
        assert status.to_json() == entry["value"].encode()


def test_missing_keys_are_zero_and_unknown_ones_ignored() -> None:
    status = NodeStatus.from_json(b'{"nodeId":"a","future":1}')
    assert status == NodeStatus("a", "", "")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff",
        b'{"nodeId":"a","maxCommitTS":"x"}',
        b'{"nodeId":"a","maxCommitTS":1e999}',
        b'{"nodeId":"a","maxCommitTS":9223372036854775808}',
        b'{"nodeId":"a","updateTS":-1}',
        b'{"nodeId":"a","host":"\\ud800:1"}',
        b'{"nodeId":"a","label":[]}',
    ],
)
def test_broken_entries_are_named(data: bytes) -> None:
    with pytest.raises(Corruption, match="/pumps/p1"):
        NodeStatus.from_json(data, where="/pumps/p1")


def test_every_pair_of_state_and_event_is_listed_or_refused() -> None:
    events = {event for _, event in node.LIFECYCLE}
    for state, event in itertools.product(node.STATES, events):
        following = node.LIFECYCLE.get((state, event))
        if event == "start":
            assert following == node.ONLINE
        elif event in ("pause", "close"):
            assert (following is not None) == (state == node.ONLINE)
        elif event == "interrupt":
            assert following == (node.OFFLINE if state == node.OFFLINE else node.PAUSED)
        else:
            left = node.OFFLINE if state in (node.CLOSING, node.OFFLINE) else node.PAUSED
            assert following == left

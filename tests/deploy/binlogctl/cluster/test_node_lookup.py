"""Which node is meant, and what is lost with it: every small registry against the plain rule."""

from __future__ import annotations

from itertools import product

import pytest

from binlogctl.cluster import forget_consequences
from binlogctl.cluster.node_lookup import RegisteredNode, find
from tidb_binlog.cluster.node import OFFLINE, ONLINE, NodeStatus
from tidb_binlog.cluster.registry import DRAINERS, PUMPS, ClusterView, NodeEntry
from tidb_binlog.errors import FlagError, Rejected

IDS = ("a", "ab", "abc", "b")


def entry(node_id: str, ts: int = 0, state: str = ONLINE) -> NodeEntry:
    return NodeEntry(NodeStatus(node_id, "h:1", state, ts), 1, False)


def view(pumps: list[str], drainers: list[str]) -> ClusterView:
    return ClusterView(1, {name: entry(name) for name in pumps}, {name: entry(name) for name in drainers})


def test_every_small_registry() -> None:
    for chosen in product((False, True), repeat=2 * len(IDS)):
        pumps = [name for name, there in zip(IDS, chosen, strict=False) if there]
        drainers = [name for name, there in zip(IDS, chosen[len(IDS) :], strict=True) if there]
        nodes = [(PUMPS, name) for name in pumps] + [(DRAINERS, name) for name in drainers]
        for wanted, kind in product(("a", "ab", "abcd", "b"), ("", "pump", "drainers")):
            of_kind = [one for one in nodes if not kind or one[0].startswith(kind.rstrip("s"))]
            exact = [one for one in of_kind if one[1] == wanted]
            meant = exact or [one for one in of_kind if one[1].startswith(wanted)]
            if len(meant) == 1:
                found = find(view(pumps, drainers), wanted, kind)
                assert (found.kind, found.node_id) == meant[0]
            else:
                with pytest.raises(Rejected):
                    find(view(pumps, drainers), wanted, kind)


def test_refusals_help() -> None:
    with pytest.raises(Rejected, match=r"may be pump ab, pump abc \(give more of the id\)"):
        find(view(["ab", "abc"], []), "a")
    with pytest.raises(Rejected, match=r"may be pump a, drainer a \(pass -kind"):
        find(view(["a"], ["a"]), "a")
    with pytest.raises(Rejected, match="did you mean pump-1"):
        find(view(["pump-1"], []), "pumb-1")
    with pytest.raises(FlagError):
        find(view([], []), "a", "tikv")
    with pytest.raises(FlagError, match="no node is named"):
        find(view(["only"], []), "")


def test_what_is_lost_with_a_pump() -> None:
    def loss(*drainers: NodeEntry, state: str = ONLINE) -> forget_consequences.Loss:
        gone = entry("p", 100 << 18, state)
        found = ClusterView(1, {"p": gone}, {one.status.node_id: one for one in drainers})
        return forget_consequences.loss(found, RegisteredNode(PUMPS, gone))

    behind, current = entry("d", 99 << 18), entry("d", 100 << 18)
    assert loss(behind).is_needed
    assert "drainer d has applied up to" in loss(behind).lines[0]
    assert not loss(current).is_needed
    assert loss(current, entry("e", 0)).is_needed, "one that never said where it is"
    assert not loss(entry("d", 0, OFFLINE)).is_needed, "it left for good"
    assert not loss(behind, state=OFFLINE).is_needed
    assert "after that is lost" in loss(current).lines[-1]


def test_what_is_lost_with_a_drainer() -> None:
    found = forget_consequences.loss(view([], ["d"]), RegisteredNode(DRAINERS, entry("d", 7)))
    assert not found.is_needed
    assert "applied up to 7" in found.lines[0]

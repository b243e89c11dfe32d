"""Nodes: the cluster as the registry has it, with links to each node's page.

Holds  whoever is dead or not online comes before who is well: a long list is cut at its end
Never  links to anything but `//HOST:PORT`, whatever an entry of the registry says
Tests  tests/common/page/test_sections.py
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from tidb_binlog import tso
from tidb_binlog.cluster.node import OFFLINE, ONLINE
from tidb_binlog.cluster.overview import QUIET_S
from tidb_binlog.cluster.registry import KINDS, PUMPS, ClusterView, NodeEntry, clock_s, life
from tidb_binlog.page.markup import Markup, behind, element, join, place, table
from tidb_binlog.tso import Ts

_ADDRESS: Final = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}")
_HEADS: Final = ("node", "kind", "state", "alive", "behind", "address", "position", "told")


def section(
    view: ClusterView | None, why_none: str, kind: str, node_id: str, now_ts: Ts, wall_s: float
) -> Markup:
    """`why_none`: of the registry; `kind`, `node_id`: of the node whose page it is; `wall_s`: this host's."""
    if view is None:
        return element("p", f"The registry cannot be read: {why_none}", class_="wrong")
    own = view.of(kind).get(node_id)
    entries = [(node_kind, entry) for node_kind in KINDS for entry in view.of(node_kind).values()]
    entries.sort(key=lambda pair: (_rank(pair[1]), pair[0] != PUMPS, pair[1].status.node_id))
    clocks = {node_kind: tso.from_wall_s(clock_s(view.of(node_kind).values(), wall_s)) for node_kind in KINDS}
    rows = (_row(node_kind, entry, entry is own, now_ts, clocks[node_kind]) for node_kind, entry in entries)
    return join(element("p", _summary(entries), class_="soft"), table("Nodes", _HEADS, rows, len(entries)))


def _rank(entry: NodeEntry) -> int:
    state = entry.status.state
    if state == OFFLINE:
        return 2
    return 1 if state == ONLINE and entry.alive is not False else 0


def _summary(entries: list[tuple[str, NodeEntry]]) -> str:
    """How many of each kind, and how many of them are not well."""
    kinds = Counter(_kind(node_kind, entry) for node_kind, entry in entries if entry.status.state != OFFLINE)
    said = [f"{number:,} {kind}{'' if number == 1 else 's'}" for kind, number in kinds.items()]
    dead = sum(life(entry.status.state, entry.alive) == "dead" for _, entry in entries)
    left = sum(entry.status.state == OFFLINE for _, entry in entries)
    said += [f"{dead:,} dead"] if dead else []
    said += [f"{left:,} offline"] if left else []
    return ", ".join(said) or "No node is registered."


def _kind(kind: str, entry: NodeEntry) -> str:
    return "reader" if entry.status.is_reader else kind[:-1]


def _row(kind: str, entry: NodeEntry, is_own: bool, now_ts: Ts, clock_ts: Ts) -> tuple[object, ...]:
    status = entry.status
    name = element("strong", status.node_id) if is_own else _link(entry)
    alive = life(status.state, entry.alive)
    is_well = status.state == ONLINE and alive != "dead"
    left = status.state == OFFLINE
    # Of one that lives, as of when it said so.
    as_of_ts = status.update_ts if alive == "yes" and status.update_ts else now_ts
    return (
        join(name, " (this page)" if is_own else "", _labels(entry)),
        _kind(kind, entry),
        element("span", status.state, class_=None if is_well or left else "wrong"),
        element("span", alive, class_="wrong" if alive == "dead" else None),
        "-" if left else behind(as_of_ts, status.max_commit_ts, least_s=QUIET_S),
        status.host,
        place(status.max_commit_ts),
        "-" if left else f"{behind(clock_ts, status.update_ts)} ago",
    )


def _labels(entry: NodeEntry) -> object:
    """Of a pump: its zone, say."""
    labels = {} if entry.status.is_reader else entry.status.labels
    said = ", ".join(f"{name}={value}" for name, value in sorted(labels.items()))
    return element("span", f" {said}", class_="soft") if said else ""


def _link(entry: NodeEntry) -> object:
    """To its page; of a node that keeps no lease, as Go nodes do, to its /status, which it has for sure."""
    status = entry.status
    if status.is_reader or status.state == OFFLINE:
        return status.node_id
    return link(status.node_id, status.host, "/status" if entry.alive is None else "/")


def link(node_id: str, address: str, path: str) -> object:
    """To a node, unless its address is none."""
    if not _ADDRESS.fullmatch(address):
        return node_id
    return element("a", node_id, href=f"//{address}{path}", rel="noreferrer")

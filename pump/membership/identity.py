"""Identity: the node id of a pump whose directory has none and that was given none.

Out    the id of the pump whose place this is, None without one
Why    a Go pump that was run with -node-id leaves no trace of it in its directory. Under its default id our
       pump would stand beside the old entry: two with one address, both waited for and both pulled from here,
       and nothing says that one of them will never come back
Holds  a place is taken only with a log in the directory, and only if it is a single one: an empty directory
       in the place of a pump that drainers wait for would be a loss without a word
"""

from __future__ import annotations

from collections.abc import Mapping

from tidb_binlog.cluster import node
from tidb_binlog.cluster.registry import NodeEntry
from tidb_binlog.errors import ConfigError


def twins(pumps: Mapping[str, NodeEntry], address: str) -> list[str]:
    """Ids of pumps that are registered at an address and have not left for good."""
    return sorted(
        node_id
        for node_id, entry in pumps.items()
        if entry.status.host == address and entry.status.state != node.OFFLINE
    )


def place_of(pumps: Mapping[str, NodeEntry], address: str, default_id: str, *, has_log: bool) -> str | None:
    """Raises `ConfigError` where an operator has to say which it is."""
    free = [name for name in twins(pumps, address) if name != default_id and pumps[name].alive is not True]
    if not free or default_id in pumps:
        return None
    if has_log and len(free) == 1:
        return free[0]
    names = " and ".join(free)
    why = "the data directory is empty" if not has_log else "only one of them can have been here"
    raise ConfigError(
        f"pump {names} is registered at {address}, which is this pump's address, and {why}",
        hint=f"start with --node-id={free[0]} to take its place with its data, or with another --node-id; "
        f"take one that never comes back out with `binlogctl forget {free[0]}`",
    )

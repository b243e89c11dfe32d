"""Registry: who is there. The port, its values and the layout of keys.

    /tidb-binlog/v1/pumps/<node id>              status JSON (`tidb_binlog.cluster.node`), as Go nodes have it
    /tidb-binlog/v1/drainers/<node id>
    /tidb-binlog/alive/v1/<kind>/<node id>       owner JSON under a lease: there while the process lives
    /tidb-binlog/announced/v1/<kind>/<node id>   written together with a status by nodes that keep a lease

The last two lie outside the old tree because an old node's listing fails on every entry that is not a
status. `announced` has the status's revision exactly as long as its last writer was a node that keeps a
lease; a Go node that takes over writes the status alone, and its missing lease then means nothing.

Every write is compare-and-set on the entry's revision; no process overwrites what it has not seen.

Tests  tests/common/etcd/test_registry.py
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final, Protocol

from tidb_binlog import tso
from tidb_binlog.cluster.node import OFFLINE, PAUSED, NodeStatus
from tidb_binlog.errors import ConfigError, Conflict
from tidb_binlog.late_dataclass import dataclass

PUMPS: Final = "pumps"
DRAINERS: Final = "drainers"
KINDS: Final = (PUMPS, DRAINERS)
ROOT: Final = "/tidb-binlog/"


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """One node. `alive`: its lease is held, is gone, or (None) it never announced one, as a Go node."""

    status: NodeStatus
    mod_revision: int
    alive: bool | None


@dataclass(frozen=True, slots=True)
class ClusterView:
    """All nodes by id, as they were at one revision of the store."""

    revision: int
    pumps: Mapping[str, NodeEntry]
    drainers: Mapping[str, NodeEntry]

    def of(self, kind: str) -> Mapping[str, NodeEntry]:
        """The entries of `pumps` or of `drainers`."""
        return self.pumps if kind == PUMPS else self.drainers


class EntryChanged(Conflict):
    """An entry is not at the expected revision but at `revision`, 0 if there is none."""

    def __init__(self, message: str, revision: int = 0, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.revision = revision


class Announcement(Protocol):
    """A lease that says: this process is alive."""

    async def keep_alive(self) -> None:
        """Extend it once; announces anew if it had run out.

        Raises `Conflict` when another process has the id by now, `Unavailable`.
        """
        ...

    async def withdraw(self) -> None:
        """End it now. Idempotent. Raises `Unavailable`; it runs out by itself then."""
        ...


class Registry(Protocol):
    """Where nodes find each other."""

    async def view(self) -> ClusterView:
        """Everything, at one revision. Raises `Unavailable`."""
        ...

    def watch(self) -> AsyncIterator[ClusterView]:
        """The current view, then one after every change. Heals itself after errors; ends by `aclose`."""
        ...

    async def put(self, kind: str, status: NodeStatus, expected: int | None) -> int:
        """Write an entry if its revision is `expected` (None or 0: it must not exist); the new revision.

        Raises `EntryChanged` when it is not, `ConfigError` for an impossible node id, `Unavailable`.
        """
        ...

    async def announce(self, kind: str, node_id: str, ttl_s: int) -> Announcement:
        """Say that this process lives. Raises `Conflict` if another living one has the id, `Unavailable`."""
        ...

    async def is_held(self, kind: str, node_id: str) -> bool:
        """Whether a process that may be alive has announced this id now. Raises `Unavailable`."""
        ...

    async def close(self) -> None:
        """End connections; announcements end too."""
        ...


def check_node_id(node_id: str) -> None:
    """Refuse ids that would break listings or keys."""
    if not node_id or "/" in node_id or not node_id.isprintable() or node_id != node_id.strip():
        raise ConfigError(
            f"node id {node_id!r} is not possible: it must not be empty, nor hold '/', spaces around it or "
            "control characters",
            hint="choose another --node-id",
        )


def status_key(kind: str, node_id: str) -> bytes:
    assert kind in KINDS
    return f"{ROOT}v1/{kind}/{node_id}".encode()


def alive_key(kind: str, node_id: str) -> bytes:
    assert kind in KINDS
    return f"{ROOT}alive/v1/{kind}/{node_id}".encode()


def announced_key(kind: str, node_id: str) -> bytes:
    assert kind in KINDS
    return f"{ROOT}announced/v1/{kind}/{node_id}".encode()


# Liveness: what the registry's entries say of who lives, and by which clock.

BEAT_MAX_S: Final = 30.0
"""The entry of a node that lives is not older than that, by the clock that it goes by."""
_LEFT: Final = (PAUSED, OFFLINE)
"""Who says so is not dead: his process ended in order."""


def life(state: str, held: bool | None) -> str:
    """What a node's lease says: yes, no (left in order), dead, or ? where there never was one."""
    if held is None:
        return "?"
    return "yes" if held else "no" if state in _LEFT else "dead"


def clock_s(entries: Iterable[NodeEntry], wall_s: float) -> float:
    """What time it is for nodes of a kind: this host's time, unless none that lives has ever seen it. They go
    by the upstream's clock."""
    beats = [
        tso.physical_s(entry.status.update_ts) for entry in entries if entry.alive and entry.status.update_ts
    ]
    return wall_s if not beats or abs(max(beats) - wall_s) <= BEAT_MAX_S else max(beats)

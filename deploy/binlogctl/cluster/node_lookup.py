"""Node lookup: which node an operator means by an id, or by the beginning of one.

Holds  an exact id wins over ids that begin with it; what fits more than one node is refused
"""

from __future__ import annotations

from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import DRAINERS, KINDS, PUMPS, ClusterView, NodeEntry
from tidb_binlog.errors import FlagError, Rejected
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.similar import similar


def role(kind: str, status: NodeStatus) -> str:
    """What a node is, in words: a pump, a drainer, or a reader, which is registered as drainers are."""
    return "reader" if status.is_reader else kind[:-1]


@dataclass(frozen=True, slots=True)
class RegisteredNode:
    """One node. `kind` as in `tidb_binlog.cluster.registry`."""

    kind: str
    entry: NodeEntry

    @property
    def node_id(self) -> str:
        """Give its whole id."""
        return self.entry.status.node_id

    @property
    def label(self) -> str:
        """Name it for a sentence."""
        return f"{role(self.kind, self.entry.status)} {self.node_id}"


def kinds(kind: str) -> tuple[str, ...]:
    """The kinds that `-kind` names; "" all. Raises `FlagError`."""
    if not kind:
        return KINDS
    by_name = {"pump": PUMPS, "drainer": DRAINERS, PUMPS: PUMPS, DRAINERS: DRAINERS}
    if kind not in by_name:
        raise FlagError(f"kind {kind!r} is unknown", hint="use pump or drainer")
    return (by_name[kind],)


def find(view: ClusterView, name: str, kind: str = "") -> RegisteredNode:
    """The node that is meant. Raises `Rejected` for none and for several, `FlagError` for the kind and for no
    name: it begins every node's, so that of a script without a value the only node would be closed."""
    if not name:
        raise FlagError("no node is named", hint="`binlogctl nodes` lists them")
    nodes = [
        RegisteredNode(plural, entry)
        for plural in kinds(kind)
        for _, entry in sorted(view.of(plural).items())
    ]
    exact = [node for node in nodes if node.node_id == name]
    fitting = exact or [node for node in nodes if node.node_id.startswith(name)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        hint = "pass -kind pump or -kind drainer" if exact else "give more of the id"
        raise Rejected(f"{name!r} may be " + ", ".join(node.label for node in fitting), hint=hint)
    near = similar(name, [node.node_id for node in nodes])
    hint = f"did you mean {near}?" if near else "`binlogctl nodes` lists them"
    raise Rejected(f"there is no {kind or 'node'} {name!r}", hint=hint)

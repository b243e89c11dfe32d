"""What a node reports of itself, and which states it may go through.

Source of layout and states: `/tidb-binlog/v1/{pumps,drainers}/<nodeID>` in PD's etcd, JSON with the keys
below in this order. `isAlive` is not written today and kept for old readers. `score` and `label` are a
pump's; Go nodes read and show them, and no TiDB goes by them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from tidb_binlog.errors import Corruption
from tidb_binlog.foreign_document import UNREADABLE
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.tso import Ts

ONLINE: Final = "online"
PAUSING: Final = "pausing"
PAUSED: Final = "paused"
CLOSING: Final = "closing"
OFFLINE: Final = "offline"
STATES: Final = (ONLINE, PAUSING, PAUSED, CLOSING, OFFLINE)
READER: Final = {"labels": {"kind": "reader"}}
"""Label of a drainer's entry that is a program's, which reads the stream under a name. In the form that Go
nodes read; to them it is a drainer."""

# (state, event) -> state. Anything not listed is refused without effect.
#   start   the process is up and ready to serve; it wins over all that was left
#   pause   leave for a while: stop taking prewrites, keep the data, come back
#   close   leave for good: stop taking prewrites, wait until every drainer has read everything
#   stop    the process ends; what it becomes depends on why
#   interrupt   it ends before a close came to its end: it will have to come back
LIFECYCLE: Final[dict[tuple[str, str], str]] = {
    **{(state, "start"): ONLINE for state in STATES},
    (ONLINE, "pause"): PAUSING,
    (ONLINE, "close"): CLOSING,
    (ONLINE, "stop"): PAUSED,
    (PAUSING, "stop"): PAUSED,
    (PAUSED, "stop"): PAUSED,
    (CLOSING, "stop"): OFFLINE,
    (OFFLINE, "stop"): OFFLINE,
    **{(state, "interrupt"): PAUSED for state in (ONLINE, PAUSING, PAUSED, CLOSING)},
    (OFFLINE, "interrupt"): OFFLINE,
}


def label_of(labels: Mapping[str, str]) -> dict[str, Any] | None:
    """The `label` of an entry, as Go nodes have it; None without any."""
    return {"labels": dict(labels)} if labels else None


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node's registry entry."""

    node_id: str
    host: str
    state: str
    max_commit_ts: Ts = 0
    update_ts: Ts = 0
    is_alive: bool = False
    score: int = 0
    label: dict[str, Any] | None = field(default=None, hash=False)

    def with_state(self, state: str) -> NodeStatus:
        """The same node, in another state."""
        assert state in STATES
        return replace(self, state=state)

    @property
    def labels(self) -> dict[str, str]:
        """Its labels, name to value; what is not text to text is left out."""
        labels = (self.label or {}).get("labels")
        pairs = labels.items() if isinstance(labels, dict) else ()
        return {name: value for name, value in pairs if isinstance(value, str)}

    @property
    def is_reader(self) -> bool:
        """Whether a program reads the stream under this name; no Drainer does."""
        return self.labels.get("kind") == "reader"

    def to_json(self) -> bytes:
        """Encode the entry as Go nodes do."""
        document = {
            "nodeId": self.node_id,
            "host": self.host,
            "state": self.state,
            "isAlive": self.is_alive,
            "score": self.score,
            "label": self.label,
            "maxCommitTS": self.max_commit_ts,
            "updateTS": self.update_ts,
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes, *, where: str = "") -> NodeStatus:
        """Decode an entry; missing keys read as zero, unknown ones are ignored. Raises `Corruption`."""
        try:
            status = _DECODER.decode(data)
        except UNREADABLE as error:
            raise Corruption(f"registry entry {where or 'of a node'} is not a node status: {error}") from None
        return cls(
            node_id=status.nodeId,
            host=status.host or "",
            state=status.state or "",
            max_commit_ts=status.maxCommitTS or 0,
            update_ts=status.updateTS or 0,
            is_alive=bool(status.isAlive),
            score=status.score or 0,
            label=status.label,
        )


_Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Timestamp = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class _Entry(msgspec.Struct):
    """The JSON of an entry with Go's types: a value of another type is no entry, null reads as zero."""

    nodeId: str
    host: str | None = ""
    state: str | None = ""
    isAlive: bool | None = False
    score: _Int64 | None = 0
    label: dict[str, Any] | None = None
    maxCommitTS: _Timestamp | None = 0
    updateTS: _Timestamp | None = 0


_DECODER: Final = msgspec.json.Decoder(_Entry)

"""Answers: what a pump or a drainer says of itself over HTTP, ours or the Go one's, as facts.

In     the bodies of /status and /metrics
Out    `Answer`; None for what no node says
Why    a Go node tells little: no id of its own, no cluster, no version. Its metrics have the disk and what it
       purged, under the names that ours have too
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from common.tso import LOGICAL_BITS
from deploy.ctl.doctor.facts import Answer, DiskSeen

_SAMPLE: Final = re.compile(
    r"^(?P<name>[a-z_]+)(?:\{(?P<labels>[^}]*)\})? (?P<value>[-+0-9.eE]+)", re.MULTILINE
)
_SIZE: Final = "binlog_pump_storage_storage_size_bytes"
_GC: Final = "binlog_pump_storage_gc_ts"


def read_pump(status: bytes, exposition: bytes = b"") -> Answer | None:
    """A pump's. None if the status is not a pump's."""
    document = _document(status)
    if document is None or "CommitTS" not in document or "Checkpoint" not in document:
        return None
    listed = document.get("status")
    known = frozenset(map(str, listed)) if isinstance(listed, dict) else None
    sizes = _samples(exposition)
    capacity = sizes.get(f'{_SIZE}{{type="capacity"}}')
    available = sizes.get(f'{_SIZE}{{type="available"}}')
    own = document.get("pump")
    if not isinstance(own, dict):
        disk = None if available is None else DiskSeen(int(available), _whole(capacity))
        purged_ms = sizes.get(_GC)
        gc_ts = None if purged_ms is None else int(purged_ms) << LOGICAL_BITS
        return Answer(foreign=True, known=known, disk=disk, gc_ts=gc_ts)
    space = own.get("disk") or {}
    retention = own.get("retention") or {}
    return Answer(
        foreign=False,
        node_id=_text(own.get("node_id")),
        cluster_id=_whole(own.get("cluster_id")),
        version=_text(own.get("version")),
        time_s=_number(own.get("time_s")),
        known=known,
        disk=DiskSeen(int(space["available"]), _whole(capacity), _whole(space.get("floor")))
        if "available" in space
        else None,
        gc_ts=_whole(own.get("gc_ts")),
        age_s=_number(retention.get("age_s")),
        alarm_s=_number(retention.get("alarm_s")),
        left_s={
            str(one["node_id"]): float(one["left_s"])
            for one in retention.get("drainers") or ()
            if not one.get("lost")
        },
        troubles=_pump_troubles(own, retention),
    )


def read_drainer(status: bytes) -> Answer | None:
    """A drainer's. None if the status is not a drainer's."""
    document = _document(status)
    if document is None or "LastTS" not in document:
        return None
    if "NodeID" not in document:
        return Answer(foreign=True)
    control = document.get("Control") or {}
    pumps = document.get("Pumps") or {}
    troubles = ["applying is paused by an operator"] if control.get("paused") else []
    troubles += [
        f"pump {node_id}: {one['error']}"
        for node_id, one in pumps.items()
        if not one.get("connected") and one.get("error")
    ]
    return Answer(
        foreign=False,
        node_id=_text(document.get("NodeID")),
        cluster_id=_whole(document.get("ClusterID")),
        version=_text(document.get("Version")),
        time_s=_number(document.get("Time")),
        troubles=tuple(troubles),
    )


def _pump_troubles(own: dict[str, Any], retention: dict[str, Any]) -> tuple[str, ...]:
    found = [own.get("writer_error"), own.get("index_error"), *(retention.get("held_up_by") or ())]
    return tuple(str(one) for one in found if one)


def _document(body: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _samples(exposition: bytes) -> dict[str, float]:
    text = exposition.decode("utf-8", "replace")
    found: dict[str, float] = {}
    for match in _SAMPLE.finditer(text):
        name = match["name"]
        if name in (_SIZE, _GC):
            labels = f"{{{match['labels']}}}" if match["labels"] else ""
            found[f"{name}{labels}"] = float(match["value"])
    return found


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

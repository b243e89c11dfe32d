"""Answers: what a pump or a drainer says of itself over HTTP, ours or the Go one's, as facts.

In     the bodies of /status and /metrics
Out    `Answer`; None for what no node says
Why    a Go node tells little: no id of its own, no cluster, no version. Its metrics have the disk and what it
       purged, under the names that ours have too
Tests  tests/deploy/ctl/doctor/checks/test_checks.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from common.foreign_document import UNREADABLE
from common.tso import LOGICAL_BITS
from deploy.ctl.cluster import clock_skew as skew
from deploy.ctl.cluster.node_document import items, number, part, whole, words
from deploy.ctl.doctor.facts import Answer, DiskSeen

_SAMPLE: Final = re.compile(
    r"^(?P<name>[a-z_]+)(?:\{(?P<labels>[^}]*)\})? (?P<value>-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]{1,2})?)\s*$",
    re.MULTILINE,
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
    told = sizes.get(f'{_SIZE}{{type="capacity"}}')
    capacity = None if told is None else int(told)
    available = sizes.get(f'{_SIZE}{{type="available"}}')
    own = part(document, "pump")
    if not own:
        disk = None if available is None else DiskSeen(int(available), capacity)
        purged_ms = sizes.get(_GC)
        gc_ts = None if purged_ms is None else int(purged_ms) << LOGICAL_BITS
        return Answer(foreign=True, known=known, disk=disk, gc_ts=gc_ts)
    space, retention = part(own, "disk"), part(own, "retention")
    free = whole(space, "available")
    return Answer(
        foreign=False,
        node_id=words(own, "node_id") or None,
        cluster_id=whole(own, "cluster_id"),
        version=words(own, "version") or None,
        time_s=number(own, "time_s"),
        known=known,
        disk=None if free is None else DiskSeen(free, capacity, whole(space, "floor")),
        gc_ts=whole(own, "gc_ts"),
        age_s=number(retention, "age_s"),
        alarm_s=number(retention, "alarm_s"),
        left_s={
            words(one, "node_id"): left_s
            for one in items(retention, "drainers")
            if not one.get("lost") and (left_s := number(one, "left_s")) is not None
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
    pumps = {node_id: part(document, "Pumps", node_id) for node_id in part(document, "Pumps")}
    troubles = ["applying is paused by an operator"] if part(document, "Control").get("paused") else []
    troubles += [apart] if (apart := skew.of(part(document, "UpstreamTime"))) else []
    troubles += [
        f"pump {node_id}: {trouble}"
        for node_id, one in pumps.items()
        if not one.get("connected") and (trouble := words(one, "error"))
    ]
    return Answer(
        foreign=False,
        node_id=words(document, "NodeID") or None,
        cluster_id=whole(document, "ClusterID"),
        version=words(document, "Version") or None,
        time_s=number(document, "Time"),
        troubles=tuple(troubles),
    )


def _pump_troubles(own: Mapping[str, Any], retention: Mapping[str, Any]) -> tuple[str, ...]:
    held_up_by = retention.get("held_up_by")
    found = [words(own, "writer_error"), words(own, "index_error")]
    found += [str(one) for one in held_up_by] if isinstance(held_up_by, list) else []
    found.append(skew.of(part(own, "upstream_time")))
    return tuple(one for one in found if one)


def _document(body: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(body)
    except UNREADABLE:
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

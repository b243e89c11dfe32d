"""Answers: what a pump, a drainer or a TiDB server says of itself over HTTP, ours or the Go one's, as facts.

Out    `Answer`; None for what no node says
Why    a Go node tells little: no id of its own, no cluster, no version. Its metrics have the disk and what it
       purged, under the names that ours have too
Tests  tests/deploy/binlogctl/doctor/checks/test_checks.py
"""

from __future__ import annotations

import json
import re
from typing import Final

from binlogctl.doctor.facts import Answer, TidbFacts
from tidb_binlog.foreign_document import UNREADABLE, json_object
from tidb_binlog.status.codec import read
from tidb_binlog.status.drainer import DrainerDocument
from tidb_binlog.status.drainer_conditions import of_drainer
from tidb_binlog.status.pump import DiskStatus, PumpDocument, PumpStatus
from tidb_binlog.status.pump_conditions import of_pump
from tidb_binlog.tso import LOGICAL_BITS

_SAMPLE: Final = re.compile(
    r"^(?P<name>[a-z_]+)(?:\{(?P<labels>[^}]*)\})? (?P<value>-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]{1,2})?)\s*$",
    re.MULTILINE,
)
_SIZE: Final = "binlog_pump_storage_storage_size_bytes"
_GC: Final = "binlog_pump_storage_gc_ts"


def read_pump(status: bytes, exposition: bytes = b"") -> Answer | None:
    """A pump's. None if the status is not a pump's."""
    document = json_object(status)
    if document is None or "CommitTS" not in document or "Checkpoint" not in document:
        return None
    listed = document.get("status")
    registered = frozenset(map(str, listed)) if isinstance(listed, dict) else None
    samples = _samples(exposition)
    size = samples.get(f'{_SIZE}{{type="capacity"}}')
    capacity = None if size is None else int(size)
    pump = read(document, PumpDocument).pump
    if pump is None:
        available, purged_ms = samples.get(f'{_SIZE}{{type="available"}}'), samples.get(_GC)
        told = PumpStatus(
            disk=DiskStatus(available=None if available is None else int(available)),
            gc_ts=None if purged_ms is None else int(purged_ms) << LOGICAL_BITS,
        )
        return Answer(foreign=True, registered=registered, pump=told, capacity=capacity)
    return Answer(
        foreign=False,
        node_id=pump.node_id or None,
        cluster_id=pump.cluster_id,
        version=pump.version or None,
        time_s=pump.time_s,
        registered=registered,
        pump=pump,
        capacity=capacity,
        troubles=tuple(of_pump(read(document, PumpDocument), pump.node_id)),
    )


def read_drainer(status: bytes) -> Answer | None:
    """A drainer's. None if the status is not a drainer's."""
    raw = json_object(status)
    if raw is None or "LastTS" not in raw:
        return None
    if "NodeID" not in raw:
        return Answer(foreign=True)
    document = read(raw, DrainerDocument)
    return Answer(
        foreign=False,
        node_id=document.node_id or None,
        cluster_id=document.cluster_id or None,
        version=document.version or None,
        time_s=document.time or None,
        troubles=tuple(of_drainer(document, document.node_id)),
    )


def read_tidb(value: bytes) -> TidbFacts | None:
    """A TiDB server as it registers itself, and as /info tells it."""
    try:
        document = json.loads(value)
        address = f"{document['ip']}:{int(document['status_port'])}"
        return TidbFacts(
            address, binlog=document.get("binlog_status"), version=str(document.get("version") or "")
        )
    except UNREADABLE:
        return None


def read_skipping(body: bytes) -> bool | None:
    """Whether a TiDB server writes no binlogs; None if it does not say."""
    skipped = (json_object(body) or {}).get("Skipped")
    return skipped if isinstance(skipped, bool) else None


def _samples(exposition: bytes) -> dict[str, float]:
    text = exposition.decode("utf-8", "replace")
    samples: dict[str, float] = {}
    for match in _SAMPLE.finditer(text):
        name = match["name"]
        if name in (_SIZE, _GC):
            labels = f"{{{match['labels']}}}" if match["labels"] else ""
            samples[f"{name}{labels}"] = float(match["value"])
    return samples

"""Node table: registry entries for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from common import moment, show, tso
from common.clock import SystemClock
from common.node import OFFLINE, PAUSED
from common.quantities import span
from common.registry import NodeEntry

_GONE: Final = (PAUSED, OFFLINE)
"""Who says so is not dead: his process ended in order."""
_HEADINGS: Final = ("kind", "node id", "address", "state", "alive", "position", "of", "updated")


def alive(state: str, held: bool | None) -> str:
    """What the lease says: yes, no (left in order), dead, or ? where there never was one."""
    if held is None:
        return "?"
    return "yes" if held else "no" if state in _GONE else "dead"


def document(kind: str, entry: NodeEntry, now_s: float) -> dict[str, Any]:
    """One entry: the registry's keys, and what they mean."""
    status = entry.status
    return {
        **json.loads(status.to_json()),
        "kind": kind[:-1],
        "alive": entry.alive,
        "updated_s_ago": round(now_s - tso.physical_s(status.update_ts), 3) if status.update_ts else None,
    }


def print_documents(nodes: Mapping[str, Iterable[NodeEntry]]) -> None:
    """As JSON, by kind."""
    now_s = SystemClock().wall_s()
    show.print_json(
        {kind: [document(kind, entry, now_s) for entry in entries] for kind, entries in nodes.items()}
    )


def print_entries(entries: Sequence[tuple[str, NodeEntry]], title: str) -> None:
    """As a table."""
    now_s = SystemClock().wall_s()
    show.print_table(title, _HEADINGS, [_row(kind, entry, now_s) for kind, entry in entries])


def _row(kind: str, entry: NodeEntry, now_s: float) -> tuple[str, ...]:
    status = entry.status
    updated = f"{span(tso.age_s(status.update_ts, now_s))} ago" if status.update_ts else "never"
    return (
        kind[:-1],
        status.node_id,
        status.host,
        status.state,
        alive(status.state, entry.alive),
        str(status.max_commit_ts),
        moment.local(status.max_commit_ts) if status.max_commit_ts else "",
        updated,
    )

"""Node table: registry entries for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from binlogctl.cluster.node_lookup import role
from tidb_binlog import time_text, tso
from tidb_binlog.clock import SystemClock
from tidb_binlog.cluster.registry import PUMPS, NodeEntry, clock_s, life
from tidb_binlog.observe import show
from tidb_binlog.quantities import span

_HEADINGS: Final = ("kind", "node id", "address", "state", "alive", "position", "of", "updated")
_WIDE: Final = 110
"""Where a terminal is narrower, the position is there as a time alone."""
_OF_PUMPS: Final = ("label", "score")
"""Where a pump has labels: the table is wide enough. JSON always has both."""


def document(kind: str, entry: NodeEntry, now_s: float) -> dict[str, Any]:
    """One entry: the registry's keys, and what they mean."""
    status = entry.status
    return {
        **json.loads(status.to_json()),
        "kind": kind[:-1],
        **({"reader": True} if status.is_reader else {}),
        "alive": entry.alive,
        "updated_s_ago": round(now_s - tso.physical_s(status.update_ts), 3) if status.update_ts else None,
    }


def print_documents(nodes: Mapping[str, Iterable[NodeEntry]]) -> None:
    """As JSON, by kind."""
    wall_s = SystemClock().wall_s()
    listed = {kind: list(entries) for kind, entries in nodes.items()}
    show.print_json(
        {
            kind: [document(kind, entry, clock_s(entries, wall_s)) for entry in entries]
            for kind, entries in listed.items()
        }
    )


def print_entries(entries: Sequence[tuple[str, NodeEntry]], title: str) -> None:
    """As a table."""
    wall_s = SystemClock().wall_s()
    times = {kind: clock_s([entry for of, entry in entries if of == kind], wall_s) for kind, _ in entries}
    rows = [_row(kind, entry, times[kind]) for kind, entry in entries]
    headings: tuple[str, ...] = _HEADINGS
    if any(entry.status.labels for kind, entry in entries if kind == PUMPS):
        headings += _OF_PUMPS
        rows = [row + _of_pump(kind, entry) for row, (kind, entry) in zip(rows, entries, strict=True)]
    if show.console().width < _WIDE:
        shown = [place for place, heading in enumerate(headings) if heading != "position"]
        headings, rows = _of(headings, shown), [_of(row, shown) for row in rows]
    show.print_table(title, headings, rows)
    for kind, now_s in times.items():
        if now_s != wall_s:
            apart = f"{span(abs(now_s - wall_s))} {'ahead of' if now_s > wall_s else 'behind'}"
            show.print_lines(
                f"the clock that {kind} go by is {apart} this host's: `binlogctl doctor` compares all clocks"
            )


def _of(cells: Sequence[str], places: Sequence[int]) -> tuple[str, ...]:
    return tuple(cells[place] for place in places)


def _row(kind: str, entry: NodeEntry, now_s: float) -> tuple[str, ...]:
    status = entry.status
    age_s = max(0.0, tso.age_s(status.update_ts, now_s))
    updated = f"{span(age_s)} ago" if status.update_ts else "never"
    return (
        role(kind, status),
        status.node_id,
        status.host,
        status.state,
        life(status.state, entry.alive),
        str(status.max_commit_ts),
        time_text.local(status.max_commit_ts) if status.max_commit_ts else "",
        updated,
    )


def _of_pump(kind: str, entry: NodeEntry) -> tuple[str, str]:
    if kind != PUMPS:
        return "", ""
    status = entry.status
    label = ", ".join(f"{name}={value}" for name, value in sorted(status.labels.items()))
    return label, str(status.score) if status.score else ""

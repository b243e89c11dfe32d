"""Estimate: what a load would do, without doing any of it: sizes, chunks, time.

Drives  the upstream's history and SQL, the downstream's; nothing is written, nothing is locked
Holds   what would refuse the load refuses the estimate
Tests   tests/drainer/points/load/test_load.py
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Final

from drainer.checkpoint.load_progress import LoadProgress
from drainer.config.downstream import target_of
from drainer.config.options import DrainerConfig
from drainer.config.upstream import upstream_target_of
from drainer.mysql.session import DownstreamSession
from drainer.points.load import upstream_schema
from drainer.points.load.begin import to_go_on_with
from drainer.points.load.contents import Contents, contents_of
from drainer.points.load.job import blocking
from drainer.points.load.preparing import copied, look
from drainer.points.load.reconcile import Mode
from drainer.points.load.table_copy import check_columns, rows_wanted
from drainer.points.load.upstream_tables import UpstreamTables
from drainer.stream.rules.rule_set import read_rules
from tidb_binlog.cluster.registry import Registry
from tidb_binlog.upstream_port import Upstream

ROWS_A_SECOND: Final = 100_000
BYTES_A_SECOND: Final = 25_000_000
"""What a server on two cores takes in; a guess for the time."""


@dataclass(frozen=True, slots=True)
class TableEstimate:
    """`rows` and `size_bytes` as the upstream's statistics have them."""

    name: str
    target: str
    rows: int
    size_bytes: int
    chunks: int
    way: str


@dataclass(frozen=True, slots=True)
class Estimate:
    ts: int
    tables: tuple[TableEstimate, ...]
    views: int
    sequences: int
    seconds: float


async def estimate(
    settings: DrainerConfig, upstream: Upstream, nodes: Registry, *, mode: Mode, rate_rows: int = 0
) -> Estimate:
    """Raises as `Load.run`."""
    known = await blocking(target_of(settings), to_go_on_with, settings, upstream.cluster_id, mode)
    if known is not None and not known.is_unfinished:
        return Estimate(known.ts, (), 0, 0, 0.0)
    ts = await upstream.oracle.timestamp()
    version = await upstream_schema.newest_version(upstream.history) if settings.from_outcome_table else 0
    tracker = await upstream_schema.schema_at(upstream.history, ts, version)
    contents = contents_of(tracker, read_rules(settings))
    tables = await blocking(target_of(settings), _tables, settings, upstream.cluster_id, contents, mode)
    rows, size = sum(one.rows for one in tables), sum(one.size_bytes for one in tables)
    seconds = max(rows / (rate_rows or ROWS_A_SECOND), size / BYTES_A_SECOND)
    return Estimate(ts, tuple(tables), len(contents.views), len(contents.sequences), seconds)


def _tables(settings: DrainerConfig, cluster_id: int, contents: Contents, mode: Mode) -> list[TableEstimate]:
    progress = LoadProgress(settings.checkpoint_schema, cluster_id)
    session = DownstreamSession(target_of(settings))
    try:
        found = look(session.open(), progress, contents, mode, same_ts=True)
    finally:
        session.close()
    listed = []
    with contextlib.closing(UpstreamTables(upstream_target_of(settings), None)) as upstream:
        for source, _ in copied(found.all):
            check_columns(source, upstream.table(source.name))
            size = upstream.size(source.name)
            way = "by row rules" if source.edit is not None else ""
            listed.append(
                TableEstimate(
                    source.label,
                    ".".join(source.target),
                    size.rows,
                    size.size_bytes,
                    size.chunks(rows_wanted(size)),
                    way,
                )
            )
    return listed

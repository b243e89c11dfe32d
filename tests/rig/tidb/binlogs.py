"""Binlogs: what TiDB wrote into the logs of its Pumps, read from their files while they run.

Tests  tests/rig/tidb/test_binlogs.py
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.pump.support import go_layout
from tidb_binlog.rowcodec import datum
from tidb_binlog.table_info import ROWID_COLUMN_ID
from tidb_binlog.wire.binlog_pb2 import Binlog, BinlogType, MutationType, PrewriteValue


def binlogs(directories: Iterable[Path]) -> list[Binlog]:
    """All of them, of some data directories."""
    files = (file for directory in directories for file in go_layout.log_files(directory))
    return [Binlog.FromString(record.payload) for file in files for record in file.records]


def unfinished(binlogs: Iterable[Binlog]) -> list[tuple[int, bytes]]:
    """(start_ts, primary key) of transactions of which no binlog says how they ended."""
    begun: dict[int, bytes] = {}
    ended: set[int] = set()
    for binlog in binlogs:
        if binlog.tp == BinlogType.Prewrite:
            begun[binlog.start_ts] = binlog.prewrite_key
        else:
            ended.add(binlog.start_ts)
    return [(start_ts, key) for start_ts, key in begun.items() if start_ts not in ended]


class Change(NamedTuple):
    """One row of a binlog. `rowid` is the hidden one, None of a table that has none."""

    commit_ts: int
    kind: int
    """A MutationType."""
    rowid: int | None


class Overwritten(NamedTuple):
    """A row that TiDB put another one in the place of: its binlog has both to the end."""

    rowid: int
    first_ts: int
    again_ts: int


def changes(binlogs: Collection[Binlog], ids: Collection[int]) -> Iterator[Change]:
    """Those of some tables or partitions, as they were committed."""
    commits = {one.start_ts: one.commit_ts for one in binlogs if one.tp == BinlogType.Commit}
    prewrites = {one.start_ts: one for one in binlogs if one.tp == BinlogType.Prewrite and not one.ddl_job_id}
    for start_ts in sorted(commits.keys() & prewrites.keys(), key=commits.__getitem__):
        for mutation in PrewriteValue.FromString(prewrites[start_ts].prewrite_value).mutations:
            if mutation.table_id in ids:
                rows = {
                    MutationType.Insert: iter(mutation.inserted_rows),
                    MutationType.Update: iter(mutation.updated_rows),
                    MutationType.DeleteRow: iter(mutation.deleted_rows),
                }
                for kind in mutation.sequence:
                    row = next(rows[kind])
                    yield Change(
                        commits[start_ts], kind, _handle(row) if kind == MutationType.Insert else _rowid(row)
                    )


def _handle(row: bytes) -> int | None:
    """Of an INSERT; None of a clustered key that is no number."""
    return datum.read_handle(row, 0)[0] if row[0] == datum.VARINT else None


def _rowid(image: bytes) -> int | None:
    """Of an image as DELETE and UPDATE have it: column ids, each with its value."""
    at = 0
    while at < len(image):
        column, at = datum.read_int(image, at)
        if column == ROWID_COLUMN_ID:
            return datum.read_int(image, at)[0]
        at = datum.skip(image, at)
    return None


def overwritten(changes: Iterable[Change]) -> list[Overwritten]:
    """Where the binlog of a table without key contradicts itself: two INSERTs with one rowid, and no DELETE
    between them. TiDB keeps one row then, and has none after a DELETE; its binlog has one more."""
    inserts: defaultdict[int, list[int]] = defaultdict(list)
    told: defaultdict[int, list[Overwritten]] = defaultdict(list)
    for commit_ts, kind, rowid in changes:
        if rowid is None:
            continue
        if kind == MutationType.Insert:
            if inserts[rowid]:
                told[rowid].append(Overwritten(rowid, inserts[rowid][-1], commit_ts))
            inserts[rowid].append(commit_ts)
        elif kind == MutationType.DeleteRow:
            inserts[rowid].clear()
    return [one for rows in told.values() for one in rows]

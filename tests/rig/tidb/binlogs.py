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


def contradicted(binlogs: Collection[Binlog]) -> set[int]:
    """The start_ts of transactions that TiDB committed though its storage had called them rolled back. The
    stand-in does so: in a key's history, a lock that was committed without a value is a rollback."""
    committed = {binlog.start_ts for binlog in binlogs if binlog.tp == BinlogType.Commit}
    return committed & {binlog.start_ts for binlog in binlogs if binlog.settled}


class Change(NamedTuple):
    """One row of a binlog. `rowid` is the hidden one, None of a table that has none."""

    commit_ts: int
    kind: int
    """A MutationType."""
    rowid: int | None
    images: tuple[dict[int, bytes], ...] = ()
    """Of a DELETE the old one, of an UPDATE both: datums by the columns' ids."""


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
                    yield _change(commits[start_ts], kind, next(rows[kind]))


def _change(commit_ts: int, kind: int, row: bytes) -> Change:
    if kind == MutationType.Insert:  # the handle comes first; a clustered key may be no number
        handle = datum.read_handle(row, 0)[0] if row[0] == datum.VARINT else None
        return Change(commit_ts, kind, handle)
    images: list[dict[int, bytes]] = [{}]
    at = 0
    while at < len(row):
        column, at = datum.read_int(row, at)
        if column in images[-1]:
            images.append({})
        end = datum.skip(row, at)
        images[-1][column], at = row[at:end], end
    rowid = images[0].pop(ROWID_COLUMN_ID, None)
    return Change(commit_ts, kind, datum.read_int(rowid, 0)[0] if rowid else None, tuple(images))


def overwritten(changes: Iterable[Change]) -> list[Overwritten]:
    """Where the binlog of a table without key contradicts itself: two INSERTs with one rowid, and no DELETE
    between them, of which TiDB keeps one row; or a row is changed, and then changed or deleted as it was
    before: by one transaction, or by a later batch of a statement that read the row earlier."""
    inserts: defaultdict[int, list[int]] = defaultdict(list)
    updated: dict[int, tuple[int, dict[int, bytes]]] = {}
    told: list[Overwritten] = []
    for commit_ts, kind, rowid, images in changes:
        if rowid is None:
            continue
        if kind == MutationType.Insert:
            if inserts[rowid]:
                told.append(Overwritten(rowid, inserts[rowid][-1], commit_ts))
            inserts[rowid].append(commit_ts)
            updated.pop(rowid, None)
            continue
        first_ts, left = updated.pop(rowid, (commit_ts, {}))
        if any(images[0].get(column, value) != value for column, value in left.items()):
            told.append(Overwritten(rowid, first_ts, commit_ts))
        if kind == MutationType.DeleteRow:
            inserts[rowid].clear()
        else:
            updated[rowid] = commit_ts, images[-1]
    return told

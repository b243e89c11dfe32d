"""First rows: what the upstream's tables have, before the stream of a sink that keeps a savepoint (`--load`).

Owns    the file `snapshot` of the data directory: up to where rows are stored, from before the first one on
Order   the position and where the next chunk ends; rows of that chunk; at the end the savepoint, then the
        file is gone. What comes again after a crash is that chunk, with the same rows
Holds   it happens once: where there is a savepoint, and no such file, only the stream follows
Never   goes on at another timestamp than the one that rows were given of: they are in the topic already
Tests   tests/drainer/app/test_first_rows.py, tests/integration/sinks/test_snapshot_first.py
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import Final

from drainer.app.build import BuildContext
from drainer.checkpoint.savepoint import SNAPSHOT_NAME
from drainer.checkpoint.value import Checkpoint
from drainer.points.rows.snapshot_position import SnapshotPosition, SnapshotRequest
from drainer.points.rows.snapshot_rows import SnapshotRows, open_snapshot
from drainer.points.snapshot.sessions import SnapshotLost, SnapshotTooOld
from drainer.sink.runner import TakeRows
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.txn import LargeTransaction
from tidb_binlog import checked
from tidb_binlog.errors import ConfigError, Corruption, Rejected
from tidb_binlog.filesystem import read_file, replace_file
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("drainer.first_rows")

_ANEW: Final = "begin anew with an empty data-dir, and another topic or warehouse, or an empty store"


class FirstRows:
    """Made by `open_first_rows`."""

    def __init__(self, rows: SnapshotRows, tracker: SchemaTracker, path: str) -> None:
        self.ts: Ts = rows.begin.ts
        self.tracker = tracker
        self._rows = rows
        self._path = path
        self._stopping = False

    async def give(self, take: TakeRows, save: Callable[[], Awaitable[None]]) -> None:
        """All that are left, or until `close`. Raises `SnapshotLost`, and what the sink does."""
        done, is_under_way = self._rows.begin, False
        try:
            while (chunk := await self._rows.next()) is not None:
                _store(self._path, done, chunk.position)
                is_under_way = True
                rows = LargeTransaction(
                    self.ts, self.ts, chunk.size_bytes, chunk.pieces, chunk.position.text()
                )
                await take(rows, chunk.count, is_end=chunk.position.is_end)
                done, is_under_way = chunk.position, False
        except Exception as error:
            if not self._stopping:
                raise
            logger.info("the end comes before that of the snapshot", rows_given=done.rows, reason=str(error))
        if done.is_end:
            await save()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
            logger.info("the snapshot is given", ts=self.ts)
        elif done.table and not is_under_way:  # else the sink may have it, and its answer is lost
            _store(self._path, done)

    async def close(self) -> None:
        """Idempotent."""
        self._stopping = True
        await self._rows.close()


async def open_first_rows(
    context: BuildContext, rules: Rules, stored: Checkpoint | None, stands_at: int | None = None
) -> FirstRows | None:
    """None where there is nothing to give, or nothing more. `stands_at`: what a sink says that stores its
    position with the rows, 0 for none yet: their number, at the end T. Raises `Rejected`, and as
    `open_snapshot`."""
    settings = context.settings
    path = os.path.join(settings.data_dir, SNAPSHOT_NAME)
    position, planned = (*_stored(path), None, None)[:2]
    stream_ts = max(stored.commit_ts if stored is not None else 0, stands_at or 0)
    has_stream = stream_ts >= (position.ts if position is not None else 1)
    if has_stream or (position is None and not settings.load):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return None
    row_counts = [place.rows for place in (position, planned) if place is not None]
    if stands_at is not None and row_counts and stands_at not in row_counts:
        raise Rejected(
            f"the snapshot cannot go on: the sink has {stands_at} rows of it, not {row_counts[0]}", hint=_ANEW
        )
    settings.check_upstream()
    request = SnapshotRequest(
        settings,
        context.upstream,
        rules,
        position or SnapshotPosition(),
        f"drainer_snapshot_{settings.name}",
        settings.data_dir,
        planned,
    )

    async def opened() -> tuple[SnapshotRows, SchemaTracker]:
        try:
            return await open_snapshot(request)
        except (SnapshotLost, SnapshotTooOld) as error:
            if position is None:
                raise
            raise Rejected(f"the snapshot cannot go on: {error.message}", hint=_ANEW) from None

    rows, tracker = await context.operating.wait_for(opened)
    context.ends.push_async_callback(rows.close)
    if not rows.is_empty:
        _store(path, *([rows.begin, planned] if planned is not None else [rows.begin]))
    logger.info("a snapshot comes first", ts=rows.begin.ts, rows_given=rows.begin.rows)
    return FirstRows(rows, tracker, path)


def _stored(path: str) -> list[SnapshotPosition]:
    """What is done, and what was to be done next, as far as they are known."""
    try:
        text = checked.read_text(read_file(path).decode())
        return [SnapshotPosition.of(line) for line in text.splitlines()]
    except FileNotFoundError:
        return []
    except (ValueError, ConfigError) as error:
        raise Corruption(f"{path} cannot be read: {error}", hint=_ANEW) from None


def _store(path: str, *positions: SnapshotPosition) -> None:
    replace_file(path, checked.text("".join(f"{position.text()}\n" for position in positions)).encode())

"""First rows: the rows of a snapshot as items of a stream, before those that follow its timestamp.

Out     a transaction of each chunk; a large one where its rows lie on disk
Tests   tests/integration/subscribe/test_subscribe_snapshot.py
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from drainer.points.rows.snapshot_position import SnapshotPosition, SnapshotRequest
from drainer.points.rows.snapshot_rows import SnapshotRows, open_snapshot
from drainer.points.snapshot import sessions
from drainer.points.worker_pool import Ended
from drainer.reading.errors import SnapshotLost, StreamEnded
from drainer.reading.subscribe.live_stream import Large
from drainer.stream.schema.tracker import SchemaTracker
from drainer.txn import Transaction


class FirstRows:
    """Made by `open_first_rows`."""

    def __init__(self, rows: SnapshotRows) -> None:
        self._rows = rows
        self.begin = rows.begin
        self.is_empty = rows.is_empty

    async def next(self) -> tuple[Transaction | Large, SnapshotPosition] | None:
        """The rows of the next chunk, and where they end. Raises `SnapshotLost`, and what opening it does."""
        with _told():
            chunk = await self._rows.next()
        if chunk is None:
            return None
        ts = chunk.position.ts
        if chunk.is_large:
            return Large(ts, ts, chunk.pieces(), chunk.position.text()), chunk.position
        return next(chunk.pieces()), chunk.position

    async def close(self) -> None:
        """Idempotent."""
        await self._rows.close()


async def open_first_rows(request: SnapshotRequest) -> tuple[FirstRows, SchemaTracker]:
    """Raises `SnapshotLost`, `Unavailable`, `Rejected`, `ConfigError`, `DownstreamError`."""
    request.settings.check_upstream()
    with _told():
        rows, tracker = await open_snapshot(request)
    return FirstRows(rows), tracker


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (sessions.SnapshotLost, sessions.SnapshotTooOld) as error:
        raise SnapshotLost(
            f"the snapshot cannot go on: {error.message}",
            hint="remove the rows that you have of it, then begin anew with start=0",
        ) from None
    except Ended:
        raise StreamEnded("the stream is closed", hint="open another one") from None

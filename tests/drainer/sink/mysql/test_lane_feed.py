"""Lane feed: a large transaction is in the relay log before any of it goes on, whole or not at all; no place
counts as reached before."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from drainer.checkpoint.safe_mode import SafeMode
from drainer.checkpoint.store import CheckpointStore
from drainer.config.relay_format import FORMATS
from drainer.mysql.connection import Target
from drainer.mysql.rows.change import Position
from drainer.relay.relay_log import Entry, RelayFiles
from drainer.sink.mysql.lane import LaneSettings
from drainer.sink.mysql.lane_feed import LaneFeed
from drainer.sink.mysql.lane_set import LaneSet
from drainer.txn import Transaction
from tests.drainer.relay.relay_logs import items, opened, timestamps, transaction
from tests.drainer.support.payloads import spilled
from tidb_binlog.clock import SystemClock


async def given(pieces: Sequence[Transaction]) -> AsyncIterator[Transaction]:
    for piece in pieces:
        yield piece


WHOLE = transaction(3, 60)
PIECES = [transaction(3, 20, first=first, last=first == 40) for first in (0, 20, 40)]


@pytest.mark.parametrize("form", FORMATS)
async def test_it_is_there_when_the_first_piece_goes_on(tmp_path: Path, form: str) -> None:
    log = opened(tmp_path, 1 << 20, form=form)
    feed = LaneFeed(log, lambda error: None)
    feed.append(transaction(1))
    await feed.log_large(spilled(WHOLE), given(PIECES))
    with pytest.raises(StopIteration):  # nothing is left to wait for
        log.sync().send(None)
    await feed.close()
    small, large = items(tmp_path)
    assert (small.commit_ts, large.commit_ts) == (1, 3)
    assert isinstance(large, Transaction)
    assert [row for events in large.tables for row in events.rows] == list(WHOLE.tables[0].rows)


@pytest.mark.parametrize("form", FORMATS)
async def test_a_stream_that_stops_within_it_leaves_no_record(tmp_path: Path, form: str) -> None:
    log = opened(tmp_path, 1 << 20, form=form)
    feed = LaneFeed(log, lambda error: None)
    await feed.log_large(spilled(WHOLE), given(PIECES[:2]))
    await feed.close()
    assert timestamps(tmp_path) == []


async def test_one_of_which_nothing_replicates_leaves_no_record(tmp_path: Path) -> None:
    log = opened(tmp_path)
    feed = LaneFeed(log, lambda error: None)
    await feed.log_large(spilled(WHOLE), given([replace(WHOLE, tables=())]))
    await feed.close()
    assert timestamps(tmp_path) == []


async def test_a_place_without_changes_for_the_lanes_is_reached_when_the_log_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that were set aside are in no chunk: no lane commits anything that would wait for the log."""
    sync, synced = RelayFiles.sync, threading.Event()

    def held(files: RelayFiles, entries: Sequence[Entry] = ()) -> tuple[tuple[int, ...], int]:
        synced.wait()
        return sync(files, entries)

    monkeypatch.setattr(RelayFiles, "sync", held)
    target = Target("127.0.0.1", 1, "nobody", "")
    lanes = LaneSet(
        [Position(0)],
        target,
        CheckpointStore(target, 1).lane_table(),
        LaneSettings(),
        SystemClock(),
        safe_mode=SafeMode(),
        whole=False,
        on_progress=lambda: None,
        on_failed=lambda error: None,
    )
    feed = LaneFeed(opened(tmp_path, 1 << 20), lambda error: None)
    feed.append(transaction(1))
    await feed.give(lanes, 1)
    await asyncio.sleep(0)
    before_ts = lanes.resolved_ts
    synced.set()
    assert before_ts == 0
    await feed.settled()
    assert lanes.resolved_ts == 1
    await feed.close()
    await lanes.end(drained=True)


async def test_without_a_relay_log_nothing_of_it_is_read_twice() -> None:
    feed = LaneFeed(None, lambda error: None)
    pieces = given(PIECES)
    await feed.log_large(spilled(WHOLE), pieces)
    assert [piece.last async for piece in pieces] == [False, False, True]

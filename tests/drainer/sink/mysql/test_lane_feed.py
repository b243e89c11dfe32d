"""Lane feed: a large transaction is in the relay log before any of it goes on, whole or not at all; no place
counts as reached before."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drainer.checkpoint.safe_mode import SafeMode
from drainer.checkpoint.store import CheckpointStore
from drainer.config.relay_format import FORMATS
from drainer.formats.binlog_directory import Broken
from drainer.mysql.connection import Target
from drainer.mysql.rows.change import Chunk, Position
from drainer.relay.relay_log import Entry, RelayFiles
from drainer.sink.mysql.lane import LaneSettings
from drainer.sink.mysql.lane_feed import ROWS, LaneFeed, Settling
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


class Parts:
    """A relay log whose syncs end when they may, lanes, and what stores where they stand. All is noted."""

    keeps_payloads, has_room, waiting_for = True, False, "a disk"

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.may_end = asyncio.Semaphore(0)
        self.failure: Exception | None = None
        self.cuts: list[list[tuple[int, Chunk]]] = []
        self.drained, self.reached, self.resolved_ts = False, Position(9), 2

    def __getattr__(self, name: str) -> Any:
        return lambda *of: self.said.append((name, *of))

    async def sync(self, upto_ts: int = 0) -> None:
        self.said.append(("sync", upto_ts))
        await self.may_end.acquire()
        if self.failure:
            raise self.failure
        self.said.append("synced")

    def cut(self) -> list[tuple[int, Chunk]]:
        return self.cuts.pop(0) if self.cuts else []

    async def until(self, condition: Callable[[], bool]) -> None:
        assert not condition()
        self.drained = True
        assert condition()
        self.said.append("drained")

    async def together(self, work: object, *, lanes_at: Position, upto_ts: int) -> None:
        self.said.append((work, lanes_at, upto_ts))

    async def meanwhile(self) -> list[Any]:
        """What is said until everybody waits."""
        for _ in range(9):
            await asyncio.sleep(0)
        said, self.said = self.said, []
        return said


def feed_of(parts: Any, on_failed: Callable[[BaseException], None] = lambda error: None) -> LaneFeed:
    return LaneFeed(parts, on_failed)


async def test_what_is_cut_goes_on_at_once_and_a_place_once_the_log_has_it_one_lot_after_the_other() -> None:
    parts: Any = Parts()
    feed = feed_of(parts, print)
    cut = [(lane, Chunk(1, [], 5, Position(at_ts), 0, False)) for lane, at_ts in ((0, 4), (1, 6), (0, 5))]
    parts.cuts = [cut]
    await feed.give(parts, 7)
    assert await parts.meanwhile() == [("watch", print), ("offer", cut, 7), ("sync", 6)]
    second = asyncio.ensure_future(feed.give(parts, 8))
    assert await parts.meanwhile() == [], "the first lot is not in the log"
    parts.may_end.release()
    await second
    assert await parts.meanwhile() == ["synced", ("sync", 0)]
    parts.may_end.release()
    await feed.settled()
    assert await parts.meanwhile() == ["synced", ("offer", [], 8)]
    await feed.settled()


async def test_a_log_that_fails_is_told_of_at_once_and_to_whoever_waits() -> None:
    parts, failures = Parts(), list[BaseException]()
    feed = feed_of(parts, failures.append)
    parts.failure = Broken("disk")
    await feed.give(cast(Any, parts), 7)
    parts.may_end.release()
    await parts.meanwhile()
    assert failures == [parts.failure]
    with pytest.raises(Broken):
        await feed.settled()


async def test_what_is_to_run_is_in_the_log_before() -> None:
    parts, ddl = Parts(), cast(Any, "DDL")
    feed = feed_of(parts)
    for logging, text in ((feed.log_ddl(ddl, "x"), "x"), (feed.log_kept(ddl), None)):
        task = asyncio.ensure_future(logging)
        assert (await parts.meanwhile())[-2:] == [("append", ddl, text), ("sync", 0)]
        assert not task.done()
        parts.may_end.release()
        await task
        parts.said.clear()
    large = asyncio.ensure_future(feed.log_large(spilled(WHOLE), given(PIECES)))
    (_, _, tables, rows), sync = await parts.meanwhile()
    assert (len(tables), rows, sync, large.done()) == (1, 60, ("sync", 0), False)
    parts.keeps_payloads = False
    parts.may_end = asyncio.Semaphore(9)
    await feed.log_large(spilled(WHOLE), given(PIECES))
    in_pieces = [of for piece in PIECES for of in (("append", piece), ("sync", 0), "synced")]
    assert await parts.meanwhile() == [*in_pieces, ("sync", 0), "synced"], "no more than there is room for"
    feed.done(5)
    assert await parts.meanwhile() == [("done", 5)]
    assert (feed.logs, feed.waiting_for) == (True, "a disk")


@pytest.mark.parametrize(
    ("reached", "last_ts", "highest_ts", "place"),
    [
        (Position(9, 3), 12, 10, Position(9, 3)),
        (Position(9), 12, 10, Position(12)),
        (Position(9), 12, 20, Position(20)),
    ],
)
async def test_a_place_is_stored_when_all_up_to_it_is_logged_and_committed(
    reached: Position, last_ts: int, highest_ts: int, place: Position
) -> None:
    parts: Any = Parts()
    parts.reached, parts.may_end = reached, asyncio.Semaphore(9)
    settling = Settling(feed_of(parts), cast(Any, SimpleNamespace(now=parts)), parts, parts, highest_ts)
    assert settling.last_ts == parts.resolved_ts
    settling.last_ts = last_ts
    parts.said.clear()
    assert await settling.settle(print) == place
    stored = (print, place, place.complete_ts)
    assert await parts.meanwhile() == [("sync", 0), "synced", ("offer", [], last_ts), "drained", stored]


async def test_without_a_relay_log_nothing_of_it_is_read_twice() -> None:
    feed, parts = LaneFeed(None, lambda error: None), cast(Any, Parts())
    pieces = given(PIECES)
    await feed.log_large(spilled(WHOLE), pieces)
    assert [piece.last async for piece in pieces] == [False, False, True]
    await feed.give(parts, 7)
    assert parts.said == [("hand_over", 7)]
    await feed.log_kept(parts)
    feed.done(5)
    assert (feed.logs, feed.waiting_for, feed.rows) == (False, "", ROWS)

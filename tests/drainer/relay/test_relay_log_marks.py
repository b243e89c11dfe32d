"""Relay log: what lanes that wait for it are told, how much it takes before a sync, and where files end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import pytest

from drainer.config.relay_format import OBINLOG, PAYLOAD
from drainer.formats.binlog_directory import BinlogDirectory, Broken, DiskFull
from drainer.mysql.connection import Target
from drainer.relay.downstream_definitions import RelayTables
from drainer.relay.relay_log import BUFFERED_BYTES_MAX, Entry, LogMark, RelayFiles
from drainer.relay.source import RelaySource
from drainer.txn import Transaction
from tests.drainer.relay.relay_logs import opened, payloads, timestamps, transaction
from tests.waiting import PATIENCE_S
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import Corruption

LONG_S = 3600.0


class Ended(threading.Event):
    """`asked`: who waits has looked whether it is set, and waits."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()

    def is_set(self) -> bool:
        self.asked.set()
        return super().is_set()


def test_a_mark_never_falls_and_stands_for_all_at_or_below_it() -> None:
    mark = LogMark()
    assert [mark.has(ts) for ts in (0, 1)] == [True, False]
    mark.reach(5)
    mark.reach(3)
    mark.wake()
    assert [mark.has(ts) for ts in (5, 6)] == [True, False]
    assert mark.wait(5, threading.Event(), LONG_S)
    ended = threading.Event()
    ended.set()
    assert mark.wait(6, ended, LONG_S) is False
    assert mark.wait(6, threading.Event(), 0.0) is False


@pytest.mark.parametrize("reaches", [True, False])
def test_who_waits_for_a_mark_is_woken(reaches: bool) -> None:
    """By what it waits for, or to see that it is to end."""
    mark, ended, found = LogMark(), Ended(), SimpleQueue[bool]()
    waiting = threading.Thread(target=lambda: found.put(mark.wait(7, ended, LONG_S)), daemon=True)
    waiting.start()
    assert ended.asked.wait(PATIENCE_S)
    if reaches:
        mark.reach(7)
    else:
        ended.set()
        mark.wake()
    assert found.get(timeout=PATIENCE_S) is reaches
    assert mark.has(1) is reaches


async def test_lanes_hear_of_a_sync_from_its_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop may be busy. Where nothing new was appended, it tells them."""
    log = opened(tmp_path)
    told: list[tuple[int, bool]] = []
    reach = log.mark.reach

    def noted(durable_ts: int) -> None:
        told.append((durable_ts, threading.current_thread() is threading.main_thread()))
        reach(durable_ts)

    monkeypatch.setattr(log.mark, "reach", noted)
    log.append(transaction(5))
    await log.sync(5)
    log.append(transaction(6))
    await log.sync(0)
    await log.sync(9)
    assert told == [(5, False), (5, True), (5, False), (0, True), (9, True)]
    assert log.mark.has(9)
    await log.close()


async def test_there_is_room_again_once_it_is_synced(tmp_path: Path) -> None:
    log = opened(tmp_path, 1 << 20)
    assert log.has_room is True
    log.append(replace(transaction(1), size_bytes=BUFFERED_BYTES_MAX - 1))
    assert log.has_room is True
    log.append(replace(transaction(2), size_bytes=1))
    assert log.has_room is False
    await log.sync()
    assert log.has_room is True
    await log.close()


async def test_a_size_of_files_that_is_none_is_the_default(tmp_path: Path) -> None:
    for size, files in ((0, 1), (1, 3)):
        log = opened(tmp_path / str(size), size)
        for ts in (1, 2, 3):
            log.append(transaction(ts))
        await log.close()
        assert len(list(filter(None, payloads(tmp_path / str(size))))) == files


async def test_a_last_piece_without_rows_ends_its_transaction(tmp_path: Path) -> None:
    log = opened(tmp_path, 1 << 20, form=OBINLOG)
    log.append(transaction(3, 30, last=False))
    log.append(Transaction(2, 3, (), 0))
    log.append(Transaction(3, 4, (), 0))
    log.append(transaction(5))
    await log.close()
    assert timestamps(tmp_path) == [3, 5]


async def test_after_a_start_a_file_stays_as_long_as_one_in_it_is_needed(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for ts in range(1, 30):
        log.append(transaction(ts))
    await log.close()
    first = [ts for ts in timestamps(tmp_path) if ts in range(1, 1 + len(payloads(tmp_path)[0]))]
    for done_ts, there in ((first[-1] - 1, True), (first[-1], False)):
        log = opened(tmp_path)
        log.done(done_ts)
        await log.close()
        assert (1 in timestamps(tmp_path)) is there


async def test_a_file_of_the_other_format_that_is_cut_is_damaged(tmp_path: Path) -> None:
    """The one that is begun after a change of the option knows its size."""
    for form, first in ((OBINLOG, 1), (PAYLOAD, 3)):
        log = opened(tmp_path, 1 << 20, form=form)
        for ts in (first, first + 1):
            log.append(transaction(ts))
        await log.close()
    directory = BinlogDirectory(str(tmp_path), ManualClock())
    cut = directory.places[0][-1].record
    directory.close()
    file = min(tmp_path.glob("binlog-*"))
    file.write_bytes(file.read_bytes()[:cut])
    directory = BinlogDirectory(str(tmp_path), ManualClock())
    with pytest.raises(Corruption, match=f"{file.name}: offset {cut}: the file ends here, and "):
        RelaySource(directory, RelayTables(Target("nowhere", 0, "", "")), ManualClock()).survey()
    directory.close()


async def test_a_full_disk_is_asked_again_after_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    given: list[Entry] = []
    sync = RelayFiles.sync

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    def full(self: RelayFiles, entries: Sequence[Entry] = ()) -> tuple[tuple[int, ...], int]:
        given.extend(entries)
        if len(pauses) < 3:
            raise DiskFull("no space left", hint="make room")
        return sync(self, given)

    log = opened(tmp_path)
    log.append(transaction(1))
    with monkeypatch.context() as patch:
        patch.setattr(RelayFiles, "sync", full)
        patch.setattr(asyncio, "sleep", pause)
        await log.sync()
    assert all(0 < seconds <= 2 for seconds in pauses)
    await log.close()
    assert timestamps(tmp_path) == [1]


async def test_a_log_that_has_failed_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: RelayFiles, entries: Sequence[Entry] = ()) -> tuple[tuple[int, ...], int]:
        raise Broken("input/output error", hint="check the disk")

    log = opened(tmp_path)
    monkeypatch.setattr(RelayFiles, "sync", broken)
    log.append(transaction(1))
    with pytest.raises(Broken):
        await log.sync()
    log.done(1)
    assert len(asyncio.all_tasks()) == 1
    await log.let_go()


async def test_nothing_is_removed_while_something_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread does both."""
    begun, goes_on = threading.Event(), threading.Event()
    sync = RelayFiles.sync

    def slow(self: RelayFiles, entries: Sequence[Entry] = ()) -> tuple[tuple[int, ...], int]:
        begun.set()
        assert goes_on.wait(PATIENCE_S)
        return sync(self, entries)

    monkeypatch.setattr(RelayFiles, "sync", slow)
    log = opened(tmp_path)
    log.append(transaction(1))
    syncing = asyncio.create_task(log.sync())
    assert await asyncio.to_thread(begun.wait, PATIENCE_S)
    log.done(1)
    await asyncio.to_thread(str)  # by then it was asked for
    assert sum(thread.name.startswith("relay") for thread in threading.enumerate()) == 1
    goes_on.set()
    await syncing
    await log.close()


async def test_a_failure_to_remove_is_raised_by_the_next_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: RelayFiles, resolved_ts: int) -> None:
        raise Broken("input/output error", hint="check the disk")

    log = opened(tmp_path)
    monkeypatch.setattr(RelayFiles, "remove", broken)
    heard = asyncio.get_running_loop().create_future()
    log.watch(heard.set_result)
    log.done(1)
    assert isinstance(await heard, Broken)
    with pytest.raises(Broken, match="input/output error"):
        await log.sync()
    await log.let_go()

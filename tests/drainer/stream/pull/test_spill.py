"""Spill: files without names, room on the disk, parts of a pump, messages of an old one."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from drainer.stream.pull.merged import Merged, Spilled
from drainer.stream.pull.merger import Merger
from drainer.stream.pull.pull_message import Arrival
from drainer.stream.pull.pump_source import PumpSource
from drainer.stream.pull.spill import Account, SpillDirectory
from tests.drainer.support.scripted_pump import Connection, ScriptedPump, ddl_payload, row_payload
from tests.waiting import settle, until
from tidb_binlog import binlog
from tidb_binlog.errors import Corruption, Unavailable
from tidb_binlog.record import crc32c
from tidb_binlog.wire import pump_pb2

ABOVE = 1000


def account() -> Account:
    return Account(lambda: None)


class Disk:
    """`os.pwrite`, but for a disk that is full or takes only a little at once."""

    def __init__(self) -> None:
        self.full = False
        self.at_once = 1 << 30
        self.refused = 0

    def write(self, descriptor: int, data: bytes, offset: int) -> int:
        if self.full:
            self.refused += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.pwrite(descriptor, data[: self.at_once], offset)


def open_files() -> set[tuple[int, int]]:
    """What this process holds open, as (device, inode): a number alone is soon another file's."""
    found = set()
    for entry in os.scandir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the scan's own, and what other threads close
            about = os.stat(entry.path)
            found.add((about.st_dev, about.st_ino))
    return found


# -- files ----------------------------------------------------------------------------------------------


async def test_a_file_has_no_name_and_goes_with_its_last_reader(tmp_path: Path) -> None:
    spill = SpillDirectory(str(tmp_path / "spill"))
    owner = account()
    payload = row_payload(8, 9, size=5000)
    file = await spill.keep(owner, memoryview(payload))
    assert list((tmp_path / "spill").iterdir()) == []
    spilled = file.spilled(8, 9)
    begin = binlog.contents_offset(payload)
    assert (spilled.size, spilled.contents) == (
        len(payload),
        (8, len(payload) - begin, crc32c(payload[begin:])),
    )
    about = os.fstat(file._descriptor)
    identity = (about.st_dev, about.st_ino)
    assert identity in open_files()
    del file
    assert spilled.read(0, 1 << 20) == payload
    assert spilled.read(10, 5) == payload[10:15]
    assert (spilled.read(len(payload), 5), spilled.read(len(payload) + 9, 5)) == (b"", b"")
    assert owner.bytes == len(payload)
    del spilled
    await asyncio.get_running_loop().shutdown_default_executor()  # its thread may still hold what it returned
    gc.collect()
    assert owner.bytes == 0
    assert identity not in open_files()


async def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    SpillDirectory(str(tmp_path / "not there")).clean()
    (tmp_path / "spill-abc").write_bytes(b"left")
    (tmp_path / "kept").write_bytes(b"kept")
    SpillDirectory(str(tmp_path)).clean()
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


async def test_a_full_disk_is_waited_for_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk()
    spill = SpillDirectory(str(tmp_path), retry_s=0.001, write=disk.write)
    file = await spill.begin(account())
    payload = row_payload(8, 9, size=5000)
    disk.at_once = 700
    await spill.append(file, payload[:2000])
    disk.full = True
    task = asyncio.create_task(spill.append(file, payload[2000:]))
    await until(lambda: disk.refused >= 3)
    assert spill.waiting == f"room in {tmp_path}: No space left on device"
    disk.full = False
    await task
    assert spill.waiting == ""
    assert file.read(0, 1 << 20) == payload
    begin = binlog.contents_offset(payload)
    assert file.spilled(8, 9).checksum == crc32c(payload[begin:])
    assert sum("cannot be put on disk" in record.message for record in caplog.records) == 1


# -- the merger ---------------------------------------------------------------------------------------


def kept(payload: bytes, commit_ts: int = 9) -> Merged:
    begin = binlog.contents_offset(payload)
    spilled = Spilled(commit_ts, 8, len(payload), begin, crc32c(payload[begin:]), lambda *_: b"")
    return Merged(commit_ts, b"", None, spilled)


@pytest.mark.parametrize("both", [False, True])
def test_one_large_transaction_from_two_pumps_is_one(both: bool) -> None:
    payload = row_payload(8, 9, size=5000)
    message = binlog.parse(payload)
    message.ClearField("prewrite_key")  # a pump that asked the store writes the commit without a key
    merger = Merger(0)
    for name, entry in (("a", kept(payload)), ("b", kept(message.SerializeToString()))):
        merger.add_source(name, 0)
        merger.push(name, [entry if both or name == "a" else Merged(9, message.SerializeToString())], 9)
    assert [entry.commit_ts for entry in merger.pop(1 << 20).entries] == [9]


def test_different_large_transactions_of_one_commit_ts_stop_and_name_both_pumps() -> None:
    merger = Merger(0)
    for name, row in (("left", 5000), ("right", 5001)):
        merger.add_source(name, 0)
        merger.push(name, [kept(row_payload(8, 9, size=row))], 9)
    with pytest.raises(
        Corruption, match=r"left \(start_ts 8, 50\d\d bytes\) and right \(start_ts 8, 50\d\d bytes\)"
    ):
        merger.pop(1 << 20)


# -- a pump that sends parts --------------------------------------------------------------------------------


class Reading:
    """A source with a spill directory, and what it delivered."""

    def __init__(self, pump: ScriptedPump, spill: SpillDirectory, credit: int, silence_max_s: float) -> None:
        self.arrivals: list[Arrival] = []
        self.source = PumpSource(
            "p1",
            pump.address,
            cluster_id=77,
            after_ts=5,
            credit_bytes=credit,
            connect=pump.client,
            deliver=self.arrivals.append,
            spill=spill,
            silence_max_s=silence_max_s,
        )
        pump.on_connect = self.source.retry_now

    @property
    def entries(self) -> list[Merged]:
        return [entry for one in self.arrivals for entry in one.entries]

    async def delivered(self, count: int) -> None:
        await until(lambda: len(self.entries) >= count)


@contextlib.asynccontextmanager
async def reading(
    pump: ScriptedPump, path: Path, *, credit: int = 4000, silence_max_s: float = 60.0, ahead: int = 1 << 30
) -> AsyncIterator[Reading]:
    spill = SpillDirectory(str(path / "spill"), above_bytes=ABOVE, ahead_bytes=ahead)
    found = Reading(pump, spill, credit, silence_max_s)
    task = asyncio.create_task(found.source.run())
    try:
        yield found
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def send_parts(connection: Connection, payload: bytes, commit_ts: int, sizes: int = 700) -> None:
    for at in range(0, len(payload), sizes):
        data = payload[at : at + sizes]
        part = pump_pb2.Part(commit_ts=commit_ts, size=len(payload), offset=at, data=data)
        watermark = commit_ts - (at + len(data) < len(payload))
        connection.replies.put_nowait(
            pump_pb2.PullBatchesResp(part=part, watermark=watermark).SerializeToString()
        )


async def test_parts_become_one_binlog_that_takes_no_credit(tmp_path: Path) -> None:
    pump = ScriptedPump()
    payload = row_payload(11, 12, size=9000)
    async with reading(pump, tmp_path) as found:
        connection = await pump.connected()
        assert connection.batch_requests()[0].parts_above == ABOVE
        connection.send([row_payload(9, 10)], 11)
        send_parts(connection, payload, 12)
        connection.send([row_payload(13, 14)], 14)
        await found.delivered(3)
        assert [entry.commit_ts for entry in found.entries] == [10, 12, 14]
        spilled = found.entries[1].spilled
        assert spilled is not None
        assert spilled.read(0, 1 << 20) == payload
        assert (found.entries[1].payload, spilled.commit_ts, spilled.start_ts) == (b"", 12, 11)
        assert found.source.held_bytes == len(row_payload(9, 10)) + len(row_payload(13, 14))
        assert found.source.spilled_bytes == len(payload)
        given = sum(request.credit_bytes for request in connection.batch_requests())
        assert given >= 4000 + len(payload) - 4000 // 8
        assert found.source.position == 14


async def test_others_wait_for_an_unfinished_binlog_at_its_place_only(tmp_path: Path) -> None:
    pump = ScriptedPump()
    payload = row_payload(11, 12, size=9000)
    async with reading(pump, tmp_path) as found:
        connection = await pump.connected()
        part = pump_pb2.Part(commit_ts=12, size=len(payload), data=payload[:700])
        connection.replies.put_nowait(pump_pb2.PullBatchesResp(part=part, watermark=11).SerializeToString())
        await until(lambda: found.source.spilled_bytes >= 700)
        assert found.source.position == 11
        assert found.arrivals[-1].watermark == 11
        connection.fail(Unavailable("connection reset"))
        again = await pump.connected(2)
        assert again.batch_requests()[0].after_ts == 11
        send_parts(again, payload, 12)
        await found.delivered(1)
        assert found.source.spilled_bytes == len(payload), "what had come before was let go"


@pytest.mark.parametrize(
    "parts",
    [
        [(12, 5000, 700)],
        [(12, 5000, 0), (12, 5000, 701)],
        [(12, 5000, 0), (13, 5000, 700)],
        [(12, 5000, 0), (12, 5001, 700)],
        [(12, 699, 0)],
    ],
)
async def test_parts_that_do_not_follow_each_other_stop(
    tmp_path: Path, parts: list[tuple[int, int, int]]
) -> None:
    pump = ScriptedPump()
    payload = row_payload(11, 12, size=9000)
    found = Reading(pump, SpillDirectory(str(tmp_path)), 4000, 60.0)
    task = asyncio.create_task(found.source.run())
    connection = await pump.connected()
    for commit_ts, size, offset in parts:
        part = pump_pb2.Part(commit_ts=commit_ts, size=size, offset=offset, data=payload[:700])
        connection.replies.put_nowait(pump_pb2.PullBatchesResp(part=part, watermark=11).SerializeToString())
    with pytest.raises(Corruption, match=r"pump p1 .* does not follow on what it sent before"):
        await task


async def test_a_binlog_under_the_name_of_another_stops(tmp_path: Path) -> None:
    pump = ScriptedPump()
    found = Reading(pump, SpillDirectory(str(tmp_path)), 4000, 60.0)
    task = asyncio.create_task(found.source.run())
    send_parts(await pump.connected(), row_payload(11, 12, size=9000), 13)
    with pytest.raises(Corruption, match=r"pump p1 .* commit_ts 12 as that of 13"):
        await task


@pytest.mark.parametrize("payload", [b"\xff" * 3000, b"\x08\x01\x10\x0b\x18\x0c\x2a" + bytes(3000) + b"\xff"])
async def test_a_large_binlog_that_is_none_stops_and_names_the_pump(tmp_path: Path, payload: bytes) -> None:
    pump = ScriptedPump()
    found = Reading(pump, SpillDirectory(str(tmp_path)), 4000, 60.0)
    task = asyncio.create_task(found.source.run())
    send_parts(await pump.connected(), payload, 12)
    with pytest.raises(Corruption, match=r"pump p1 .* large binlog after commit_ts 11 that cannot be read"):
        await task


async def test_a_large_ddl_is_kept_in_memory(tmp_path: Path) -> None:
    """Its text is needed as a whole, and its job must be looked up."""
    pump = ScriptedPump()
    payload = ddl_payload(12, 40, "CREATE TABLE t (" + "c INT," * 1000)
    async with reading(pump, tmp_path) as found:
        send_parts(await pump.connected(), payload, 12)
        await found.delivered(1)
        assert found.entries == [Merged(12, payload)]
        assert [mark.job_id for one in found.arrivals for mark in one.ddl] == [40]


async def test_a_pump_of_which_too_much_is_on_disk_is_not_read_until_some_of_it_went(tmp_path: Path) -> None:
    pump = ScriptedPump()
    async with reading(pump, tmp_path, ahead=15_000) as found:
        connection = await pump.connected()
        for ts in (12, 14, 16):
            send_parts(connection, row_payload(ts - 1, ts, size=9000), ts)
        await found.delivered(2)
        await settle()
        assert len(found.entries) == 2
        assert connection.replies.qsize() > 0
        found.arrivals.clear()  # applied
        gc.collect()
        await found.delivered(1)
        assert [entry.commit_ts for entry in found.entries] == [16]


async def test_a_full_disk_delays_and_loses_nothing(tmp_path: Path) -> None:
    disk = Disk()
    pump = ScriptedPump()
    spill = SpillDirectory(str(tmp_path), above_bytes=ABOVE, retry_s=0.001, write=disk.write)
    found = Reading(pump, spill, 4000, 60.0)
    task = asyncio.create_task(found.source.run())
    payload = row_payload(11, 12, size=9000)
    disk.full = True
    send_parts(await pump.connected(), payload, 12)
    await until(lambda: disk.refused >= 3)
    assert spill.waiting
    disk.full = False
    await found.delivered(1)
    assert spill.waiting == ""
    spilled = found.entries[0].spilled
    assert spilled is not None
    assert spilled.read(0, 1 << 20) == payload
    task.cancel()


# -- an old pump -------------------------------------------------------------------------------------------


async def test_a_large_binlog_of_an_old_pump_goes_to_disk_as_soon_as_it_is_there(tmp_path: Path) -> None:
    pump = ScriptedPump(serves_batches=False)
    payload = row_payload(11, 12, size=3 << 20)
    async with reading(pump, tmp_path) as found:
        await pump.connected()
        connection = await pump.connected()
        connection.send_entity(row_payload(9, 10))
        connection.send_entity(payload)
        connection.send_entity(row_payload(13, 14))
        await found.delivered(3)
        spilled = found.entries[1].spilled
        assert spilled is not None
        assert spilled.read(0, 4 << 20) == payload
        assert found.source.held_bytes == len(row_payload(9, 10)) + len(row_payload(13, 14))


async def test_a_large_message_that_is_none_stops(tmp_path: Path) -> None:
    for message in (b"\xff" * 2000, b"\x12" + b"\xd0\x0f" + bytes(2000)):
        pump = ScriptedPump(serves_batches=False)
        found = Reading(pump, SpillDirectory(str(tmp_path), above_bytes=ABOVE), 4000, 60.0)
        task = asyncio.create_task(found.source.run())
        (await pump.connected()).replies.put_nowait(message)
        with pytest.raises(
            Corruption, match=r"message of \d+ bytes after commit_ts 5 that cannot be decoded"
        ):
            await task


# -- silence ------------------------------------------------------------------------------------------------


async def test_a_connection_on_which_nothing_comes_is_taken_for_cut(tmp_path: Path) -> None:
    pump = ScriptedPump()
    async with reading(pump, tmp_path, silence_max_s=0.03) as found:
        first = await pump.connected()
        assert first.batch_requests()[0].silence_ms * 10 <= 60_000
        await until(lambda: len(pump.connections) >= 2)
        assert first.closed
        assert found.source.error.startswith("nothing was heard for 0.03 s")


async def test_who_holds_the_watermark_is_kept_until_it_moves(tmp_path: Path) -> None:
    pump = ScriptedPump()
    async with reading(pump, tmp_path) as found:
        connection = await pump.connected()
        for held_by in (70, 0):
            reply = pump_pb2.PullBatchesResp(watermark=9, waits_for_start_ts=held_by)
            connection.replies.put_nowait(reply.SerializeToString())
            count = len(found.arrivals) + 1
            await until(lambda: len(found.arrivals) >= count)  # noqa: B023
            assert found.source.waits_for_start_ts == held_by

"""Relay log: durable before anything goes on, removed when done, whole over restarts, pieces, full disks."""

from __future__ import annotations

import asyncio
import errno
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from drainer import metrics
from drainer.config.relay_format import FORMATS, OBINLOG, PAYLOAD
from drainer.formats import binlog_directory
from drainer.formats.binlog_directory import BinlogDirectory, Broken
from drainer.formats.obinlog import reader as obinlog_read
from drainer.formats.relay_payload import commit_ts_of, record_head
from drainer.mysql.connection import Target
from drainer.relay import relay_log
from drainer.relay.downstream_definitions import RelayTables
from drainer.relay.record_readers import RecordReaders
from drainer.relay.relay_log import RelayFiles, RelayLog
from drainer.relay.source import RelaySource
from drainer.txn import INSERT, Ddl, TableEvents, TableVersion, Transaction
from tests.crash.faults import disk
from tests.crash.faults.disk import ERROR, FREEZE, ROOT, Disk, Fault
from tests.drainer.relay.relay_logs import (
    INFO,
    TABLE,
    items,
    opened,
    payloads,
    reading,
    timestamps,
    transaction,
)
from tests.drainer.support.payloads import log_large
from tests.waiting import PATIENCE_S, until
from tidb_binlog import filesystem
from tidb_binlog.clock import ManualClock, SystemClock
from tidb_binlog.errors import BinlogError, ConfigError, Corruption, DirectoryLocked, ForeignDirectory
from tidb_binlog.record import FILE_OVERHEAD, encode_file
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.wire import secondary_binlog_pb2 as pb


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_what_was_synced_is_there(tmp_path: Path, form: str) -> None:
    log = opened(tmp_path / "log", form=form)
    for ts in range(1, 30):
        log.append(transaction(ts))
        if ts % 4 == 0:
            await log.sync()
            copy = shutil.copytree(tmp_path / "log", tmp_path / f"copy-{ts}")
            assert timestamps(copy) == list(range(1, ts + 1))
    await log.close()
    assert timestamps(tmp_path / "log") == list(range(1, 30))
    assert len(list((tmp_path / "log").glob("binlog-*"))) > 2


async def test_rules_that_are_gone_are_told_before_the_first_row_goes_out(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(transaction(1))
    log.rules_now = lambda: json.dumps(
        {"row_rule": [{"db-name": "shop", "tbl-name": "t", "python": "a_module_that_is_gone:function"}]}
    )
    log.append(transaction(2))
    await log.close()
    directory = BinlogDirectory(str(tmp_path), ManualClock())
    source = RelaySource(directory, RelayTables(Target("nowhere", 0, "", "")), ManualClock())
    source.survey()
    source.take(2, 2)
    with pytest.raises(ConfigError, match="a_module_that_is_gone"):
        source.take(0, 2)
    directory.close()


async def test_a_file_that_is_cut_between_two_records_is_damaged(tmp_path: Path) -> None:
    """The one after it knows its size, also where another process went on with it."""
    for first, end in ((1, 41), (41, 78)):
        log = opened(tmp_path)
        for ts in range(first, end):
            log.append(transaction(ts))
        await log.close()
    files = sorted(tmp_path.glob("binlog-*"))
    assert len(files) > 4
    assert files[-1].stat().st_size, "it has a record that says how large the one before is"

    def surveyed() -> int:
        directory = BinlogDirectory(str(tmp_path), ManualClock())
        source = RelaySource(directory, RelayTables(Target("nowhere", 0, "", "")), ManualClock())
        try:
            source.survey()
        finally:
            directory.close()
        return source.records

    assert surveyed() == 77
    for file in files[:-1]:
        whole = file.read_bytes()
        for end in (0, FILE_OVERHEAD + int.from_bytes(whole[4:12], "little")):
            file.write_bytes(whole[:end])
            with pytest.raises(Corruption, match=f"{file.name}: offset {end}: the file ends here, and "):
                surveyed()
        file.write_bytes(whole)
    assert surveyed() == 77


async def test_syncs_are_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Whoever asks while a sync runs waits for the next one, together with all others."""
    log = opened(tmp_path, 1 << 20, form=form)
    before = sum(metrics.RELAY_RECORD_BYTES.counts)
    syncs = 0
    sync = BinlogDirectory.sync

    def counted(self: BinlogDirectory, whole: int | None = None) -> None:
        nonlocal syncs
        syncs += 1
        sync(self, whole)

    monkeypatch.setattr(BinlogDirectory, "sync", counted)

    async def one(ts: int) -> None:
        log.append(transaction(ts))
        await log.sync()

    await asyncio.gather(*(one(ts) for ts in range(1, 200)))
    assert syncs <= 2
    assert sum(metrics.RELAY_RECORD_BYTES.counts) == before + 199
    await log.close()
    assert timestamps(tmp_path) == list(range(1, 200))


async def test_every_file_is_read_without_another(tmp_path: Path, form: str) -> None:
    log = opened(tmp_path, form=form)
    for ts in range(1, 40):
        log.append(transaction(ts))
    await log.close()
    assert len(payloads(tmp_path)) > 2
    for item in items(tmp_path):
        assert isinstance(item, Transaction)
        (events,) = item.tables
        assert events.table.name == ("t" if item.commit_ts % 2 else "u")


async def test_a_start_in_the_middle_of_a_file_defines_its_tables_anew(tmp_path: Path, form: str) -> None:
    """Numbers of definitions begin again: rows of before go by those of before."""
    for first in (1, 2, 4):
        log = opened(tmp_path, 1 << 20, form=form)
        for ts in (first, first + 1) if first == 2 else (first,):
            log.append(transaction(ts))
        await log.close()
    assert len(payloads(tmp_path)) == 1
    names = [
        (item.commit_ts, item.tables[0].table.name)
        for item in items(tmp_path)
        if isinstance(item, Transaction)
    ]
    assert names == [(1, "t"), (2, "u"), (3, "t"), (4, "u")]


async def test_transactions_without_rows_and_ddl(tmp_path: Path, form: str) -> None:
    log = opened(tmp_path, form=form)
    log.append(Transaction(1, 2, (), 10))
    log.append(Ddl(3, 1, 3, "shop", "CREATE TABLE t (a INT)", (("shop", "t"),), 1))
    log.append(Ddl(4, 2, 3, "shop", "CREATE TABLE u (a INT)", (("shop", "u"),), 2), "CREATE TABLE v (a INT)")
    log.append(Ddl(5, 3, 3, "a", "no", (("a", "u"),), 3, instead=("DROP TABLE x", "DROP TABLE y")))
    await log.close()
    found = items(tmp_path)
    assert [item.commit_ts for item in found] == [3, 4, 5]
    assert isinstance(found[2], Ddl)
    assert found[2].instead == ("DROP TABLE x", "DROP TABLE y")
    if form == OBINLOG:  # what a Go drainer is to run
        records = [pb.Binlog.FromString(record) for file in payloads(tmp_path) for record in file]
        assert [record.ddl_data.ddl_query for record in records] == [
            b"CREATE TABLE t (a INT)",
            b"CREATE TABLE v (a INT)",
            b"DROP TABLE x; DROP TABLE y",
        ]


async def test_rules_are_noted_where_they_change_and_in_every_file(tmp_path: Path) -> None:
    log = opened(tmp_path)
    rules = ""
    log.rules_now = lambda: rules
    for ts in range(1, 40):
        rules = "a" if ts < 15 else "b"
        log.append(transaction(ts))
    await log.close()
    for file in payloads(tmp_path):
        heads = [record_head(reading(record), len(record)) for record in file]
        noted = [(head.commit_ts, head.rules) for head in heads if head.rules is not None]
        assert noted[0] == (heads[0].commit_ts, "a" if heads[0].commit_ts < 15 else "b")
        assert noted[1:] == ([(15, "b")] if heads[0].commit_ts < 15 <= heads[-1].commit_ts else [])


@pytest.mark.parametrize("forms", [(OBINLOG, PAYLOAD), (PAYLOAD, OBINLOG)])
async def test_after_a_change_of_the_option_both_formats_are_there(
    tmp_path: Path, forms: tuple[str, str]
) -> None:
    """A file of each: nothing is appended to a file of the other format."""
    for number, form in enumerate((*forms, forms[1])):
        log = opened(tmp_path, 1 << 20, form=form)
        log.append(transaction(number + 1))
        await log.close()
    first, second = payloads(tmp_path)
    assert [record[0] for record in (*first, *second)] == [
        0x08 if form == OBINLOG else 0xB7 for form in (*forms, forms[1])
    ]
    assert [item.commit_ts for item in items(tmp_path)] == [1, 2, 3]


async def test_a_format_of_a_later_release_is_refused(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(transaction(1))
    await log.close()
    directory = BinlogDirectory(str(tmp_path), ManualClock())
    ((place,),) = directory.places.values()
    record = bytearray(directory.newest.payload(place))
    directory.cut(0)
    record[1] = 2
    directory.append([encode_file(bytes(record))])
    directory.sync()
    directory.close()
    with pytest.raises(ConfigError, match="format version 2, and this release knows version 1") as found:
        opened(tmp_path)
    assert found.value.hint
    BinlogDirectory(str(tmp_path), ManualClock()).close()  # its lock is free


async def test_files_go_when_all_in_them_is_done(tmp_path: Path, form: str) -> None:
    log = opened(tmp_path, form=form)
    for ts in range(1, 60):
        log.append(transaction(ts))
        await log.sync()
    log.done(20)
    log.done(30)
    await log.close()
    left = timestamps(tmp_path)
    assert 1 not in left
    assert set(range(31, 60)) <= set(left)


@pytest.mark.parametrize("after_ts", [29, 30, 45])
async def test_a_stream_that_begins_below_what_was_removed_begins_the_log_anew(
    tmp_path: Path, after_ts: int
) -> None:
    """The downstream went back in time: what is left would seem whole, with a gap before it."""
    log = opened(tmp_path)
    for ts in range(1, 60):
        log.append(transaction(ts))
        await log.sync()
    log.done(30)
    await log.close()
    left = timestamps(tmp_path)
    log = opened(tmp_path, after_ts=after_ts)
    log.append(transaction(after_ts + 1))
    await log.close()
    assert timestamps(tmp_path) == ([30] if after_ts == 29 else [*left, after_ts + 1])
    directory = BinlogDirectory(str(tmp_path), SystemClock())
    assert directory.purged_ts == min(after_ts, 30)
    directory.close()


@pytest.mark.parametrize(("after_ts", "purged_ts"), [(19, 0), (20, 0), (21, 21)])
async def test_a_stream_that_begins_above_the_last_record_notes_the_gap(
    tmp_path: Path, after_ts: int, purged_ts: int
) -> None:
    """A standby was at work meanwhile, with a log of its own: a recovery from below would lack its rows."""
    log = opened(tmp_path)
    for ts in (10, 20):
        log.append(transaction(ts))
    await log.close()
    await opened(tmp_path, after_ts=after_ts).close()
    directory = BinlogDirectory(str(tmp_path), SystemClock())
    assert directory.purged_ts == purged_ts
    directory.close()


async def test_the_newest_file_stays_and_old_ones_go_after_a_restart(tmp_path: Path) -> None:
    for start in (1, 40):
        log = opened(tmp_path)
        for ts in range(start, start + 30):
            log.append(transaction(ts))
        await log.close()
    log = opened(tmp_path)
    before = sorted(path.name for path in tmp_path.glob("binlog-*"))
    log.done(10_000)
    await log.close()
    assert [path.name for path in tmp_path.glob("binlog-*")] == before[-1:]


async def test_a_file_stays_for_what_was_written_anew(tmp_path: Path) -> None:
    """After a restart from an older checkpoint timestamps begin again: a file's largest one counts."""
    log = opened(tmp_path, 4000)
    for ts in [*range(1, 20), *range(5, 40)]:
        log.append(transaction(ts))
    await log.sync()
    log.done(18)
    await log.close()
    assert set(range(19, 40)) <= set(timestamps(tmp_path))


async def test_pieces_are_one_record(tmp_path: Path) -> None:
    log = opened(tmp_path, 1 << 20, form=OBINLOG)
    log.append(transaction(1))
    whole = transaction(3, 90)
    for first in range(0, 90, 30):
        log.append(transaction(3, 30, first=first, last=first == 60))
        await log.sync()
        if first < 60:
            await log.sync()
            assert len(sorted(tmp_path.glob("binlog-*"))) == 1
    log.append(transaction(4))
    await log.close()
    records = [pb.Binlog.FromString(record) for file in payloads(tmp_path) for record in file]
    one, large, two = records
    assert (one.commit_ts, large.commit_ts, two.commit_ts) == (1, 3, 4)
    rows = [mutation.row for piece in large.dml_data.tables for mutation in piece.mutations]
    assert [row.columns[0].int64_value for row in rows] == [3000 + n for n in range(90)]
    assert [piece.first_ordinal for piece in large.dml_data.tables] == [0, 30, 60]
    payload = large.SerializeToString()
    head = obinlog_read.head(reading(payload), len(payload))
    known = {number: obinlog_read.definition(one) for number, one in head.definitions.items()}
    reader = obinlog_read.ObinlogReader(known or {1: TABLE}, lambda foreign: TABLE)
    back = reader.transaction(reading(payload), head, str)
    assert sum(len(events.rows) for events in back.tables) == len(whole.tables[0].rows)


async def test_a_large_payload_is_one_record(tmp_path: Path) -> None:
    log = opened(tmp_path, 1 << 20)
    log.append(transaction(1))
    await log_large(log, [transaction(3, 9000, last=False), transaction(3, 9000, first=9000)])
    log.append(transaction(4))
    await log.close()
    (first, large), (last,) = payloads(tmp_path)
    assert list(map(commit_ts_of, (first, large, last))) == [1, 3, 4]
    assert record_head(reading(large), len(large)).rows == 18_000
    readers = RecordReaders(lambda foreign: TABLE)
    readers.of(reading(first), len(first))
    _, reader = readers.of(reading(large), len(large))
    pieces = list(reader.pieces(reading(large), len(large)))
    rows = [row for piece in pieces for events in piece.tables for row in events.rows]
    assert rows == list(transaction(3, 18_000).tables[0].rows)
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]


async def test_a_transaction_whose_last_piece_is_missing_is_no_record(tmp_path: Path) -> None:
    log = opened(tmp_path, 1 << 20, form=OBINLOG)
    log.append(transaction(1))
    log.append(transaction(3, 30, last=False))
    await log.sync()
    await log.close()
    assert timestamps(tmp_path) == [1]
    log = opened(tmp_path, 1 << 20, form=OBINLOG)
    log.append(transaction(3, 60))
    await log.close()
    assert timestamps(tmp_path) == [1, 3]


async def test_a_large_record_is_not_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_log, "BUFFERED_BYTES_MAX", 100_000)
    log = opened(tmp_path, 1 << 20, form=OBINLOG)
    waited = 0
    for first in range(0, 10_000, 500):
        log.append(transaction(3, 500, first=first, last=first == 9_500))
        if not log.has_room:
            await log.sync()
            waited += 1
    assert waited >= 5
    await log.close()
    assert timestamps(tmp_path) == [3]


async def test_a_directory_belongs_to_one_cluster(tmp_path: Path) -> None:
    for cluster_id in (7, 7):
        log = RelayLog.open(str(tmp_path), 1000, ManualClock(), cluster_id=cluster_id)
        await log.close()
    with pytest.raises(ForeignDirectory, match="cluster 7"):
        RelayLog.open(str(tmp_path), 1000, ManualClock(), cluster_id=8)


def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    directory = BinlogDirectory(str(tmp_path / "log"), ManualClock())
    with pytest.raises(DirectoryLocked, match="another drainer uses it"):
        opened(tmp_path / "log")
    directory.close()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        opened(tmp_path / "file" / "log")


async def test_a_log_that_is_let_go_is_free_for_the_next_one(tmp_path: Path) -> None:
    """Of a drainer that is built anew in its process; once more does no harm."""
    for _ in range(2):
        log = opened(tmp_path)
        log.append(transaction(1))
        await log.let_go()
        await log.let_go()
    assert timestamps(tmp_path) == []


async def test_a_row_that_cannot_be_right(tmp_path: Path) -> None:
    """Where rows are encoded it is found before they go on."""
    log = opened(tmp_path, form=OBINLOG)
    failures: list[BaseException] = []
    log.watch(failures.append)
    log.append(Transaction(0, 1, (TableEvents(TableVersion(INFO, "s", "t", 1), [INSERT], [b"\xff"], 0),), 9))
    for _ in range(2):
        with pytest.raises(RowError):
            await log.sync()
    with pytest.raises(RowError):
        await log.close()
    assert len(failures) == 1


async def test_what_nobody_expects_is_final_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path)
    log.append(transaction(1))

    def broken(self: RelayFiles, entries: Sequence[object] = ()) -> None:
        raise ValueError("x")

    monkeypatch.setattr(RelayFiles, "sync", broken)
    with pytest.raises(Broken, match=r"ValueError\('x'\)") as found:
        await log.sync()
    assert found.value.hint
    with pytest.raises(Broken):
        await log.close()


async def test_a_sync_has_what_was_appended_before_it(tmp_path: Path, form: str) -> None:
    """A caller that knows of a sync finds what was appended before it asked, whatever came in between."""
    log = opened(tmp_path / "log", 1500, form=form)
    acknowledged: list[int] = []

    async def synced(ts: int) -> None:
        await log.sync()
        acknowledged.append(ts)
        copy = shutil.copytree(tmp_path / "log", tmp_path / f"copy-{ts}")
        assert set(range(max(ts - 20, 1), ts + 1)) <= set(timestamps(copy))

    tasks = []
    for ts in range(1, 61):
        log.append(transaction(ts))
        if ts % 3 == 0:
            tasks.append(asyncio.create_task(synced(ts)))
            await asyncio.sleep(0)
        if ts > 20 and ts % 5 == 0:
            await asyncio.gather(*tasks)
            log.done(max(acknowledged) - 20)
    await asyncio.gather(*tasks)
    assert sorted(acknowledged) == list(range(3, 61, 3))
    await log.close()
    assert 1 not in timestamps(tmp_path / "log")


# -- a disk in memory -----------------------------------------------------------------------------------


@pytest.fixture
def mount(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Disk], None]]:
    for module in (binlog_directory, filesystem):
        monkeypatch.setattr(module, "os", disk.calls)
    locks = SimpleNamespace(flock=lambda descriptor, how: None, LOCK_EX=0, LOCK_NB=0, LOCK_UN=0)
    monkeypatch.setattr(filesystem, "fcntl", locks)
    monkeypatch.setattr(relay_log, "Backoff", lambda *pauses: SimpleNamespace(next_s=lambda: 0.001))

    def put(found: Disk) -> None:
        disk.calls.disk = found

    yield put
    disk.calls.disk = None


async def live(found: Disk, synced: list[int], form: str) -> None:
    """Appends and syncs; `synced` gets what a lane might have been given by then."""
    log = opened(ROOT + "/relay", 1200, form=form)
    try:
        for ts in range(1, 17):
            if ts == 7:
                await log_large(
                    log, [transaction(ts, 10, first=first, last=first == 30) for first in range(0, 40, 10)]
                )
            else:
                log.append(transaction(ts))
            if ts % 3 == 0:
                await log.sync()
                synced[:] = range(1, ts + 1)
                log.done(ts - 6)
        await log.close()
    finally:
        await log.let_go()


async def test_nothing_goes_on_that_a_power_cut_could_take(mount: Callable[[Disk], None], form: str) -> None:
    """At every call: what a sync returned for is there after the worst cut, unless it was done."""
    whole = Disk()
    mount(whole)
    await live(whole, [], form)
    for at in range(len(whole.calls)):
        dead, synced = Disk({at: Fault(FREEZE)}), list[int]()
        mount(dead)
        try:
            await live(dead, synced, form)
        except (BinlogError, OSError):
            pass
        for left in (dead.after_kill(), dead.after_power_cut("nothing"), dead.after_power_cut("holes")):
            mount(left)
            found = timestamps(ROOT + "/relay")
            last = synced[-1] if synced else 0
            assert set(range(max(last - 5, 1), last + 1)) <= set(found)
            assert found == sorted(found)


async def test_a_full_disk_is_waited_for_visibly(mount: Callable[[Disk], None], form: str) -> None:
    class Full(Disk):
        """No space until it was seen."""

        room = False

        def writev(self, descriptor: int, buffers: list[bytes]) -> int:
            path = disk.opened_files[descriptor][1]
            if not self.room and "binlog-" in path:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            return super().writev(descriptor, buffers)

    full = Full()
    mount(full)
    log = opened(ROOT + "/relay", 1200, form=form)
    log.append(transaction(1))
    waiting = asyncio.create_task(log.sync())
    await until(lambda: log.waiting_for)
    assert "No space left" in log.waiting_for
    assert not waiting.done()
    log.append(transaction(2))
    full.room = True
    await waiting
    assert log.waiting_for == ""
    await log.close()
    assert timestamps(ROOT + "/relay") == [1, 2]


class SmallDisk(Disk):
    """So many bytes of binlog files fit."""

    capacity = 12_000

    def writev(self, descriptor: int, buffers: list[bytes]) -> int:
        used = sum(len(inode.data) for inode in self._entries.values() if inode is not None)
        if used + sum(map(len, buffers)) > self.capacity:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().writev(descriptor, buffers)


async def test_files_that_are_done_make_room_on_a_full_disk(mount: Callable[[Disk], None], form: str) -> None:
    """Removing does not wait for what waits for space; what was asked meanwhile is done in its order."""
    mount(SmallDisk())
    log = opened(ROOT + "/relay", 1500, form=form)
    ts = 0
    async with asyncio.timeout(PATIENCE_S):
        while not log.waiting_for:
            ts += 1
            log.append(transaction(ts))
            waiting = asyncio.create_task(log.sync())
            await until(lambda: waiting.done() or log.waiting_for)  # noqa: B023
        assert "No space left" in log.waiting_for
        log.append(transaction(ts + 1))
        later = asyncio.create_task(log.sync())
        log.done(ts - 2)
        await waiting
        await later
    assert log.waiting_for == ""
    await log.close()
    found = timestamps(ROOT + "/relay")
    assert set(range(ts - 1, ts + 2)) <= set(found)
    assert 1 not in found


class FullToTheLastByte(SmallDisk):
    """Nothing grows and nothing is made any more, small files neither; what is there may be overwritten."""

    full = False

    def _refuse(self, path: str) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device", path)

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        if path not in self._entries:
            self._refuse(path)
        return super().open(path, flags, mode)

    def writev(self, descriptor: int, buffers: list[bytes]) -> int:
        try:
            return super().writev(descriptor, buffers)
        except OSError:
            self.full = True
            raise

    def write(self, descriptor: int, data: bytes) -> int:
        self._refuse("")
        return super().write(descriptor, data)

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        if offset + len(data) > self.fstat(descriptor).st_size:
            self._refuse("")
        return super().pwrite(descriptor, data, offset)


@pytest.mark.parametrize("again", [False, True])
async def test_a_disk_that_is_full_to_the_last_byte_is_made_room_on(
    mount: Callable[[Disk], None], monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """What is done can be removed, by this process and by one that starts on the full disk."""
    full = FullToTheLastByte()
    mount(full)
    log = opened(ROOT + "/relay", 1500)
    ts = 0
    async with asyncio.timeout(PATIENCE_S):
        while not log.waiting_for:
            ts += 1
            log.append(transaction(ts))
            waiting = asyncio.create_task(log.sync())
            await until(lambda: waiting.done() or log.waiting_for)  # noqa: B023
        if again:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await log.let_go()
            log = opened(ROOT + "/relay", 1500)
            log.append(transaction(ts))
            waiting = asyncio.create_task(log.sync())
        assert full.full
        log.done(ts - 2)
        await until(lambda: log._removing is None)
        full.full = False  # the files that are gone made room
        await waiting
    await log.close()
    found = timestamps(ROOT + "/relay")
    assert {ts - 1, ts} <= set(found)
    assert 1 not in found


async def test_what_cannot_be_noted_stays_until_there_is_room(mount: Callable[[Disk], None]) -> None:
    """The log of an older release, which made no place for the note."""
    full = FullToTheLastByte()
    full.capacity = 1 << 30
    mount(full)
    log = opened(ROOT + "/relay", 1500)
    for ts in range(1, 30):
        log.append(transaction(ts))
        await log.sync()
    full.unlink(ROOT + "/relay/.purged")
    full.full = True
    log.done(20)
    async with asyncio.timeout(PATIENCE_S):
        await until(lambda: log._removing is None)
        assert ".purged: No space left" in log.waiting_for
        full.full = False
        log.done(21)
        await until(lambda: log._removing is None)
    await log.close()
    assert 1 not in timestamps(ROOT + "/relay")


async def test_a_large_record_that_the_disk_has_no_room_for_goes_on_where_it_stopped(
    mount: Callable[[Disk], None],
) -> None:
    small = SmallDisk()
    mount(small)
    small.capacity = 1_500_000
    log = opened(ROOT + "/relay", 1500)
    log.append(transaction(1))
    waiting = asyncio.create_task(log_large(log, [transaction(2, 25_000)]))
    async with asyncio.timeout(PATIENCE_S):
        await until(lambda: log.waiting_for)
        small.capacity = 1 << 30
        await waiting
    await log.close()
    (_, large), _ = payloads(ROOT + "/relay")
    head = record_head(reading(large), len(large))
    assert large[head.body :] == transaction(2, 25_000).payload


async def test_a_disk_that_stays_full_does_not_hold_up_the_end(mount: Callable[[Disk], None]) -> None:
    small = SmallDisk()
    mount(small)
    log = opened(ROOT + "/relay", 1500)
    small.capacity = 0
    log.append(transaction(1))
    waiting = asyncio.create_task(log.sync())
    async with asyncio.timeout(PATIENCE_S):
        await until(lambda: log.waiting_for)
        waiting.cancel()
        closing = asyncio.create_task(log.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(waiting, closing, return_exceptions=True)
    assert timestamps(ROOT + "/relay") == []


async def test_any_other_failure_is_final(mount: Callable[[Disk], None]) -> None:
    found = Disk()
    mount(found)
    log = opened(ROOT + "/relay", 1200)
    found.faults[len(found.calls) + 1] = Fault(ERROR)  # the write goes well, its sync fails
    log.append(transaction(1))
    for _ in range(2):
        with pytest.raises(Broken, match="cannot be written"):
            await log.sync()
    log.append(transaction(2))
    with pytest.raises(Broken):
        await log.close()

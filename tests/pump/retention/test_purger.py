"""Purges of real files: what goes goes whole, what is left is served, and late drainers are named."""

from __future__ import annotations

import asyncio
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pump.log.delivery import Delivery
from pump.log.log_file import OsLogDirectory
from pump.retention.age_clock import AgeClock
from pump.retention.policy import DISK, DRAINERS, Policy
from pump.retention.purger import Pace, Purger
from pump.storage.data_dir import DataDir
from pump.storage.history import PositionPurged
from pump.storage.storage import Storage
from tests.pump.support import corpus
from tests.pump.support.payloads import filed, opened, pull, put, put_pair, wait_watermark
from tests.pump.support.purging import HOUR, LIMITS, MINUTE, World, fill
from tests.waiting import PATIENCE_S, settle, until
from tidb_binlog import binlog
from tidb_binlog.cluster import node
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import DRAINERS as DRAINER_KIND
from tidb_binlog.cluster.registry import Registry
from tidb_binlog.etcd.registry import connect_registry
from tidb_binlog.observe import metrics
from tidb_binlog.tso import TS_MAX, physical_s

pytestmark = pytest.mark.usefixtures("each_index")


@pytest.fixture
def world() -> World:
    return World()


@dataclass
class Line:
    level: str
    message: str
    fields: dict[str, Any]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[Line]]:
    """What retention logged since the last call, except what went."""
    caplog.set_level("INFO")

    def take() -> list[Line]:
        lines = [
            Line(record.levelname, record.message, getattr(record, "fields", {}))
            for record in caplog.records
            if record.name.endswith(".retention") and record.message != "value log files removed"
        ]
        caplog.clear()
        return lines

    return take


async def check_served(storage: Storage, written: list[Delivery]) -> None:
    """Each position is either served completely or refused; nothing that is served leads nowhere."""
    gc_ts = storage.gc_ts
    for position in [0, *(one.commit_ts for one in written)]:
        if position < gc_ts:
            with pytest.raises(
                PositionPurged, match=f"position {position} is below the gc timestamp {gc_ts} "
            ):
                await pull(storage, position, from_disk=True)
    left = [one for one in written if one.commit_ts > gc_ts]
    assert await pull(storage, gc_ts, from_disk=True) == left
    for position in (left[0].commit_ts, left[-1].commit_ts):
        assert await pull(storage, position, from_disk=True) == [
            one for one in left if one.commit_ts > position
        ]
    files = {place.fid for _, place in filed(storage.index, gc_ts, TS_MAX)}
    assert min(files) >= storage.value_log.first_fid


def entries_into_nothing(storage: Storage) -> list[int]:
    first_fid = storage.value_log.first_fid
    return [ts for ts, place in filed(storage.index, 0, TS_MAX) if place.fid < first_fid]


def files_of(path: Path) -> list[str]:
    return sorted(file.name for file in (path / "value").iterdir())


async def test_old_files_go_and_a_late_drainer_is_told_now_after_a_restart_and_without_the_index(
    tmp_path: Path, world: World
) -> None:
    async with opened(tmp_path, limits=LIMITS) as storage:
        written = await fill(storage, range(1, 60))
        before = files_of(tmp_path)
        world.oracle.now_ts = 100 * MINUTE  # nothing newer than 30 minutes may go
        purger = world.purger(storage)
        await purger.work()
        assert 25 * MINUTE < storage.gc_ts <= 30 * MINUTE + 1
        assert files_of(tmp_path) == before[purger.purged_files :]
        assert purger.purged_files >= 3
        assert entries_into_nothing(storage) == []
        await check_served(storage, written)
        told = storage.gc_ts
    async with opened(tmp_path, limits=LIMITS) as storage:
        assert storage.gc_ts == told
        await check_served(storage, written)
    shutil.rmtree(tmp_path / "kv")
    async with opened(tmp_path, limits=LIMITS) as storage:
        assert storage.gc_ts == told
        await check_served(storage, written)
        await world.purger(storage).work()
        await check_served(storage, written)


class Fuse:
    """Breaks the purge off at its n-th step that lasts, before it or right behind it."""

    def __init__(self, at: int, *, behind: bool) -> None:
        self.at = at
        self.behind = behind
        self.steps: list[str] = []

    def on(self, owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def step(*arguments: Any, **more: Any) -> Any:
            self.steps.append(name)
            now = len(self.steps) == self.at + 1
            if now and not self.behind:
                raise Broken
            result = real(*arguments, **more)
            if now:
                raise Broken
            return result

        setattr(owner, name, step)


class Broken(Exception):
    """The process died here."""


class SmallSteps(OsLogDirectory):
    """A directory whose steps can be broken off."""


async def run_until(fuse: Fuse, path: Path, world: World) -> None:
    directory, data_dir = SmallSteps(str(path / "value")), DataDir(str(path))
    async with opened(path, limits=LIMITS, abandon=True, directory=directory, data_dir=data_dir) as storage:
        fuse.on(directory, "remove")
        fuse.on(directory, "sync")
        fuse.on(data_dir, "keep_purged")
        fuse.on(storage.index, "set_gc_ts")
        real = storage.index.purge
        storage.index.purge = lambda *a: real(*a, records_max=12)  # type: ignore[method-assign]
        fuse.on(storage.index, "purge")
        await world.purger(storage).work()


async def test_a_purge_broken_off_at_any_step_serves_what_is_left_and_is_completed_by_the_next_run(
    tmp_path: Path, world: World
) -> None:
    world.oracle.now_ts = 85 * MINUTE
    async with opened(tmp_path / "first", limits=LIMITS) as storage:
        written = await fill(storage, range(1, 40))

    def fresh(name: str) -> Path:
        return Path(shutil.copytree(tmp_path / "first", tmp_path / name))

    whole = Fuse(-1, behind=False)
    await run_until(whole, fresh("whole"), world)
    expected = files_of(tmp_path / "whole")
    kinds = {"remove", "sync", "keep_purged", "set_gc_ts", "purge"}
    assert set(whole.steps) == kinds
    assert whole.steps.count("purge") > 2
    assert whole.steps.count("remove") > 1
    for at in range(len(whole.steps)):
        for behind in (False, True):
            path = fresh(f"cut-{at}-{behind}")
            with pytest.raises(Broken):
                await run_until(Fuse(at, behind=behind), path, world)
            async with opened(path, limits=LIMITS) as storage:
                await check_served(storage, written)
                await world.purger(storage).work()
                assert files_of(path) == expected
                assert entries_into_nothing(storage) == []
                await check_served(storage, written)
            shutil.rmtree(path)


async def test_a_purge_that_was_announced_is_completed_even_if_more_is_to_be_kept_by_now(
    tmp_path: Path, world: World
) -> None:
    world.oracle.now_ts = 85 * MINUTE
    async with opened(tmp_path, limits=LIMITS) as storage:
        await fill(storage, range(1, 40))
        first = storage.value_log.first_fid
        storage.purged_to(10 * MINUTE + 1)
        await world.purger(storage, Policy(1e6)).work()
        assert storage.value_log.first_fid > first
        assert storage.gc_ts == 10 * MINUTE + 1


async def test_deletes_that_leveldb_forgot_are_made_again(tmp_path: Path, world: World) -> None:
    world.oracle.now_ts = 85 * MINUTE
    async with opened(tmp_path, limits=LIMITS) as storage:
        written = await fill(storage, range(1, 40))
    async with opened(tmp_path, limits=LIMITS) as storage:
        pass
    shutil.copytree(tmp_path / "kv", tmp_path / "earlier")
    async with opened(tmp_path, limits=LIMITS, abandon=True) as storage:
        await world.purger(storage).work()
        assert storage.gc_ts > 0
    shutil.rmtree(tmp_path / "kv")
    shutil.move(tmp_path / "earlier", tmp_path / "kv")
    async with opened(tmp_path, limits=LIMITS) as storage:
        await check_served(storage, written)
        assert len(entries_into_nothing(storage)) > 10
        await world.purger(storage, Policy(1e6)).work()
        assert entries_into_nothing(storage) == []
        await check_served(storage, written)


async def test_a_long_transaction_is_purged_whole_or_not_at_all(tmp_path: Path, world: World) -> None:
    async with opened(tmp_path, limits=LIMITS) as storage:
        first = binlog.prewrite(1 * MINUTE, b"key", b"long")
        await put(storage, first)
        for minute in range(2, 60):
            await put_pair(storage, minute * MINUTE, minute * MINUTE + 1, bytes(500))
        last = binlog.commit(1 * MINUTE, 70 * MINUTE, b"key")
        world.oracle.now_ts = 110 * MINUTE
        await world.purger(storage).work()
        assert (storage.gc_ts, storage.value_log.first_fid) == (
            0,
            0,
        )  # open: everything behind it is unsettled
        await put(storage, last)
        await fill(storage, range(71, 90))
        await world.purger(storage).work()
        assert (storage.gc_ts, storage.value_log.first_fid) == (0, 0)  # ended, but its commit is young
        found = {one.commit_ts: one for one in await pull(storage, from_disk=True)}
        assert found[70 * MINUTE].payload == binlog.join(first, last)
        world.oracle.now_ts = 131 * MINUTE
        await world.purger(storage).work()
        assert storage.gc_ts == 70 * MINUTE
        assert storage.value_log.first_fid > 5
        assert [one.commit_ts for one in await pull(storage, 70 * MINUTE, from_disk=True)] == [
            minute * MINUTE + 1 for minute in range(71, 90)
        ]
        assert entries_into_nothing(storage) == []


async def test_an_old_prewrite_in_a_file_that_stays_keeps_its_index_entry(
    tmp_path: Path, world: World
) -> None:
    async with opened(tmp_path, limits=LIMITS) as storage:
        await fill(storage, range(10, 40))
        start_ts = 15 * MINUTE + 7
        late = binlog.prewrite(
            start_ts, b"key", b"late"
        )  # begun before most of them, written behind them all
        await put(storage, late)
        end = binlog.commit(start_ts, 50 * MINUTE, b"key")
        await put(storage, end)
        await fill(storage, range(51, 60))
        world.oracle.now_ts = 105 * MINUTE
        await world.purger(storage).work()
        assert start_ts < storage.gc_ts < 50 * MINUTE
        (found,) = [
            one for one in await pull(storage, storage.gc_ts, from_disk=True) if one.start_ts == start_ts
        ]
        assert found.payload == binlog.join(late, end)


async def test_the_local_clock_has_no_part_in_it(tmp_path: Path, world: World) -> None:
    async with opened(tmp_path, limits=LIMITS, clock=world.clock) as storage:
        written = await fill(storage, range(1, 40))
        world.oracle.now_ts = 45 * MINUTE
        purger = world.purger(storage)
        for jump_s in (8 * 86400.0, -30 * 86400.0, 6 * 86400.0 + 22 * 3600.0):
            world.clock.advance(jump_s)
            await purger.work()
        assert storage.gc_ts == 0
        await check_served(storage, written)


async def test_without_the_oracle_nothing_goes_and_it_is_said(tmp_path: Path, world: World) -> None:
    policy = Policy(1.0, 1, 1 << 60)
    async with opened(tmp_path, limits=LIMITS) as storage:
        await fill(storage, range(1, 40))
        purger = world.purger(storage, policy)
        world.oracle.silent = True
        await purger.work()
        assert storage.gc_ts == 0
        (held_up,) = purger.facts().held_up_by
        assert "timestamp oracle does not answer, nothing is purged" in held_up
        world.oracle.silent = False
        await purger.work()
        assert storage.gc_ts > 0
        assert purger.facts().held_up_by == []


async def test_what_held_a_run_up_is_not_told_for_long_after_it_is_over(tmp_path: Path, world: World) -> None:
    async with opened(tmp_path, limits=LIMITS) as storage:
        purger = world.purger(storage, Policy(3600.0, 0, 0), pace=Pace(30.0, 600.0, 0.001, 10.0))
        running = asyncio.create_task(purger.run())

        world.oracle.silent = True
        await settle()
        world.clock.advance(30.0)
        await until(lambda: len(purger.facts().held_up_by) == 1)
        world.oracle.silent = False
        world.clock.advance(10.0)
        await until(lambda: len(purger.facts().held_up_by) == 0)
        running.cancel()
        await asyncio.wait({running})


@pytest.mark.parametrize("protects", [DISK, DRAINERS])
async def test_what_a_live_drainer_needs_stays_unless_the_disk_is_protected_and_short(
    tmp_path: Path, world: World, protects: str, told: Callable[[], list[Line]]
) -> None:
    def counted() -> float:
        name = "binlog_pump_detected_drainer_binlog_purge_count"
        return metrics.REGISTRY.get_sample_value(name, {"id": f"live-{protects}"}) or 0.0

    before = counted()
    world.drainers.seen(f"live-{protects}", 20 * MINUTE)
    world.drainers.seen("dead", 15 * MINUTE, alive=False)
    async with opened(tmp_path, limits=LIMITS) as storage:
        written = await fill(storage, range(1, 60))
        purger = world.purger(storage, Policy(60.0, 1, 10_000, protects))
        await purger.work()
        assert 5 * MINUTE < storage.gc_ts <= 10 * MINUTE + 1
        assert counted() == before
        world.free = 0
        told()
        await purger.work()
        lines = told()
        loud = [line for line in lines if "binlogs go that live drainers have not applied" in line.message]
        if protects == DRAINERS:
            assert storage.gc_ts <= 10 * MINUTE + 1
            assert (counted(), loud) == (before, [])
        else:
            assert storage.gc_ts > 20 * MINUTE
            assert counted() == before + 1
            (line,) = loud
            assert (line.level, line.fields["drainers"]) == ("ERROR", ["live-disk"])
            lost = [line for line in lines if "were purged: it needs a new snapshot" in line.message]
            assert [(line.level, line.fields["node_id"]) for line in lost] == [
                ("WARNING", "dead"),
                ("ERROR", "live-disk"),
            ]
            world.free = 1 << 40
            await purger.work()
            assert storage.gc_ts > 30 * MINUTE  # nobody holds what he can no longer use
            assert counted() == before + 1
            assert told() == []
            assert {one.node_id: one.lost for one in purger.facts().drainers} == {
                "dead": True,
                "live-disk": True,
            }
        await check_served(storage, written)


async def test_alarms_begin_come_back_every_hour_and_end(
    tmp_path: Path, world: World, told: Callable[[], list[Line]]
) -> None:
    async with opened(tmp_path, limits=LIMITS) as storage:
        await fill(storage, range(1, 10))
        purger = world.purger(storage, Policy(10 * 3600.0, alarm_s=3 * 3600.0))
        world.drainers.seen("d", world.oracle.now_ts - 8 * HOUR)
        await purger.work()
        (line,) = told()
        assert line.level == "WARNING"
        assert line.message == "retention comes near to binlogs that this drainer has not applied"
        assert line.fields == {
            "node_id": "d",
            "checkpoint": 2 * HOUR,
            "hours_left": 2.0,
            "limit": "age",
            "live": True,
            "then": "they stay while it lives; with a full disk prewrites are refused",
        }
        world.clock.advance(600.0)
        await purger.work()
        assert told() == []
        world.clock.advance(3000.0)
        await purger.work()
        assert len(told()) == 1
        world.drainers.seen("d", world.oracle.now_ts)
        await purger.work()
        (line,) = told()
        assert (line.level, line.fields) == ("INFO", {"node_id": "d"})
        assert line.message == "retention comes no longer near to what this drainer needs"
        left = "binlog_pump_retention_drainer_left_seconds"
        assert metrics.REGISTRY.get_sample_value(left, {"id": "d"}) == 36000.0


async def test_a_registry_that_is_silent_neither_frees_data_nor_ends_alarms(
    tmp_path: Path, world: World, told: Callable[[], list[Line]]
) -> None:
    async with opened(tmp_path, limits=LIMITS) as storage:
        await fill(storage, range(1, 40))
        purger = world.purger(storage, Policy(60.0, 1))
        world.drainers.seen("d", 5)
        await purger.work()
        assert len(told()) == 1
        world.drainers.silent = True
        for _ in range(2):
            await purger.work()
        assert storage.gc_ts == 0
        (line,) = told()
        assert (line.message, line.fields["by"]) == ("retention is held up", "registry")
        assert "nothing is purged that a drainer may need" in str(line.fields["error"])
        world.drainers.silent = False
        world.drainers.entries.clear()
        await purger.work()
        assert storage.gc_ts > 0


async def test_a_damaged_file_stays_with_all_behind_it_and_is_named(tmp_path: Path, world: World) -> None:
    async with opened(tmp_path, limits=LIMITS) as storage:
        await fill(storage, range(1, 60))
    path = tmp_path / "value" / "000002.vlog"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    async with opened(tmp_path, limits=LIMITS) as storage:
        purger = world.purger(storage)
        await purger.work()
        assert files_of(tmp_path)[0] in ("000001.vlog", "000002.vlog")
        (held_up,) = purger.facts().held_up_by
        assert "000002.vlog: offset" in held_up


async def test_a_footer_that_claims_less_than_the_records_hold_is_not_believed(
    tmp_path: Path, world: World
) -> None:
    async with opened(tmp_path, limits=LIMITS) as storage:
        written = await fill(storage, range(1, 40))
    path = tmp_path / "value" / "000000.vlog"
    path.write_bytes(path.read_bytes()[:-12] + struct.pack("<qI", MINUTE, 0x123AB922))
    async with opened(tmp_path, limits=LIMITS) as storage:
        world.oracle.now_ts = 75 * MINUTE  # nothing newer than 5 minutes may go
        await world.purger(storage).work()
        assert (storage.gc_ts, storage.value_log.first_fid) == (0, 0)
        await check_served(storage, written)


@pytest.mark.parametrize(
    "recording",
    [one for one in corpus.recordings(killed=False) if one.scenario in ("orphans", "multi-pump", "types")],
    ids=lambda recording: recording.name,
)
async def test_a_go_pump_s_files_go_too_with_prewrites_whose_rollback_it_did_not_store(
    recording: corpus.Recording, tmp_path: Path, world: World
) -> None:
    directory = recording.unpack(tmp_path)
    newest = max(entry.commit_ts for entry in corpus.entries(recording.written))
    async with opened(directory, limits=LIMITS) as storage:
        began = storage.watermark
        await put_pair(storage, newest + HOUR, newest + HOUR + 1)
        await wait_watermark(storage, newest + HOUR + 1)
        world.oracle.now_ts = newest + HOUR + 2
        world.clock.now_s = physical_s(world.oracle.now_ts)
        assert len(files_of(directory)) == 2
        purger = world.purger(storage, Policy(1800.0))
        await purger.work()
        assert files_of(directory) == ["000001.vlog"]
        assert purger.facts().held_up_by == []
        assert entries_into_nothing(storage) == []
        assert began <= storage.gc_ts < newest + HOUR
        with pytest.raises(PositionPurged):
            await pull(storage, storage.gc_ts - 1, from_disk=True)
        assert [one.commit_ts for one in await pull(storage, storage.gc_ts, from_disk=True)] == [
            newest + HOUR + 1
        ]


async def test_an_upstream_clock_that_jumps_ahead_makes_nothing_old_and_forgets_no_drainer(
    tmp_path: Path, world: World
) -> None:
    """Nor after a restart of the pump; real time does."""
    kept: list[str] = [""]
    up_s = 0.0

    def purger(storage: Storage) -> Purger:
        ages = AgeClock(kept[-1], "boot 1")
        return world.purger(storage, ages=ages, keep_anchor=kept.append, boot_s=lambda: up_s)

    async with opened(tmp_path, limits=LIMITS) as storage:
        await fill(storage, range(1, 60))
        world.oracle.now_ts = 60 * MINUTE
        first = purger(storage)
        await first.work()
        assert (first.purged_files, first.facts().held_up_by) == (0, [])
        paused = {"alive": False, "state": node.PAUSED, "update_ts": 59 * MINUTE}
        world.drainers.seen("stopped a minute ago", 20 * MINUTE, **paused)
        world.oracle.now_ts += 8 * 24 * HOUR
        for one in (first, purger(storage)):
            up_s += 60
            await one.work()
            assert one.purged_files == 0
            assert "ahead of the time that has passed here" in one.facts().held_up_by[0]
            assert one.facts().drainers[0].live
    async with opened(tmp_path, limits=LIMITS) as storage:
        again = purger(storage)
        up_s += 600
        await again.work()
        assert storage.gc_ts <= 20 * MINUTE
        assert again.facts().drainers[0].live
        up_s += 3600
        await again.work()
        assert storage.gc_ts > 20 * MINUTE, "two hours have passed"
        assert len(kept) == 2, "one anchor a boot"


async def test_a_page_that_a_purge_overtakes_is_refused_and_never_has_a_gap(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, limits=LIMITS) as storage:
        await fill(storage, range(1, 40))
        history = storage.history()
        real = storage.index.runs

        def overtaken(*arguments: Any) -> Any:
            storage.purged_to(20 * MINUTE + 1)
            storage.index.purge(0, 20 * MINUTE + 1, 99)
            return real(*arguments)

        monkeypatch.setattr(storage.index, "runs", overtaken)
        with pytest.raises(PositionPurged, match=f"position 5 is below the gc timestamp {20 * MINUTE + 1} "):
            history.page(5, storage.watermark, bytes_max=1 << 20)


async def test_pullers_that_read_while_files_go_get_everything_or_are_told(
    tmp_path: Path, world: World
) -> None:
    policy = Policy(1e6, bytes_max=1)
    async with opened(tmp_path, limits=LIMITS) as storage:
        written = await fill(storage, range(1, 200))
        world.oracle.now_ts = 200 * MINUTE
        outcomes = {"whole": 0, "told": 0}
        purged = asyncio.Event()

        async def read_on() -> None:
            while not purged.is_set() or not outcomes["told"]:
                history, position, found = storage.history(), 0, list[Delivery]()
                try:
                    while position < storage.watermark:
                        at, watermark = position, storage.watermark
                        page = await storage.in_thread(
                            lambda: history.page(at, watermark, bytes_max=4000)  # noqa: B023
                        )
                        found += page.deliveries
                        position = page.covered
                    assert found == written
                    outcomes["whole"] += 1
                except PositionPurged:
                    assert found == written[: len(found)]
                    outcomes["told"] += 1

        readers = [asyncio.create_task(read_on()) for _ in range(3)]
        async with asyncio.timeout(PATIENCE_S):
            await until(lambda: outcomes["whole"])
            await world.purger(storage, policy).work()
            purged.set()
            await asyncio.gather(*readers)
        assert storage.value_log.first_fid > 20
        await check_served(storage, written)


async def test_runs_come_by_themselves_when_asked_for_and_when_space_is_short(
    tmp_path: Path, world: World
) -> None:
    async with opened(tmp_path, limits=LIMITS) as storage:
        await fill(storage, range(1, 60))
        world.oracle.now_ts = 60 * MINUTE
        policy = Policy(3600.0, 0, 1000)
        pace = Pace(30.0, 600.0, 0.001, 10.0)
        purger = world.purger(storage, policy, pace=pace, boot_s=lambda: physical_s(world.oracle.now_ts))
        running = asyncio.create_task(purger.run())

        def runs() -> float | None:
            ago: float | None = purger.facts().last_run_s_ago
            return ago

        await settle()
        assert runs() is None
        world.clock.advance(30.0)  # the first run
        await until(lambda: runs() == 0)
        assert purger.purged_files == 0
        world.clock.advance(5.0)
        world.oracle.now_ts = 100 * MINUTE
        await settle()
        assert runs() == 5.0
        assert purger.trigger()
        await until(lambda: purger.purged_files > 0 and runs() == 0)
        before = purger.purged_files
        world.free = 999
        world.clock.advance(10.0)
        await until(lambda: purger.purged_files > before and runs() == 0)
        assert purger.purged_files == before + 1  # its space may take a moment to show
        world.free = 1 << 40
        world.clock.advance(600.0)
        await until(lambda: runs() == 0)
        running.cancel()
        await asyncio.wait({running})


async def test_only_one_run_at_a_time(tmp_path: Path, world: World) -> None:
    async with opened(tmp_path, limits=LIMITS) as storage:
        await fill(storage, range(1, 40))
        purger = world.purger(storage)
        working = asyncio.create_task(purger.work())
        await asyncio.sleep(0)
        assert purger.facts().working
        assert not purger.trigger()
        await working
        assert purger.trigger()


async def test_what_is_done_is_counted(tmp_path: Path, world: World) -> None:
    def value(name: str) -> float:
        return metrics.REGISTRY.get_sample_value(name) or 0.0

    keys, size = "binlog_pump_storage_deleted_kv_total", "binlog_pump_retention_purged_bytes_total"
    async with opened(tmp_path, limits=LIMITS) as storage:
        await fill(storage, range(1, 60))
        entries = len(filed(storage.index, 0, TS_MAX))
        before = value(keys), value(size)
        taken = sum(file.stat().st_size for file in (tmp_path / "value").iterdir())
        await world.purger(storage, Policy(1e6, 8000)).work()
        assert value(keys) - before[0] == entries - len(filed(storage.index, 0, TS_MAX)) > 20
        assert value("binlog_pump_storage_done_gc_ts") == storage.gc_ts >> 18
        left = sum(file.stat().st_size for file in (tmp_path / "value").iterdir())
        assert left <= 8000 + 100
        assert abs(taken - left - (value(size) - before[1])) < 100 * 12


async def test_drainers_are_found_in_the_registry_old_ones_too(
    tmp_path: Path, world: World, etcd_clean: str
) -> None:
    registry: Registry = await connect_registry(etcd_clean)
    await registry.announce(DRAINER_KIND, "ours", 10)
    await registry.put(DRAINER_KIND, NodeStatus("ours", "h:1", node.ONLINE, 40 * MINUTE, 0), None)
    stale = NodeStatus("old", "h:2", node.PAUSED, 20 * MINUTE, world.oracle.now_ts - 2 * HOUR)
    revision = await registry.put(DRAINER_KIND, stale, None)
    async with opened(tmp_path, limits=LIMITS) as storage:
        await fill(storage, range(1, 60))
        purger = world.purger(storage, Policy(60.0), registry=registry)
        beating = NodeStatus("old", "h:2", node.ONLINE, 20 * MINUTE, world.oracle.now_ts - MINUTE)
        revision = await registry.put(DRAINER_KIND, beating, revision)
        await purger.work()
        assert 5 * MINUTE < storage.gc_ts <= 10 * MINUTE + 1
        await registry.put(DRAINER_KIND, stale, revision)
        await purger.work()
        assert 20 * MINUTE < storage.gc_ts <= 30 * MINUTE + 1
        live = {one.node_id: one.live for one in purger.facts().drainers}
        assert live == {"old": False, "ours": True}
    await registry.close()

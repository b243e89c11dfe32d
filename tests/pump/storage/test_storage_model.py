"""The storage against a list: writes alone and in batches, rotation, a stalled index, chasing, retention,
pulls from every position, kills, power cuts, flipped bits, a lost or damaged index, restarts, in every order.

    PUMP_MODEL_EXAMPLES=5000 PUMP_MODEL_SEED=7 python -m pytest tests/pump/test_storage_model.py

Always: what was acknowledged is there, byte for byte; a pull gives exactly the commits in (position,
watermark], ascending, none twice; the watermark stays below every commit that is still to come, and is where
the list says as soon as the index has caught up; what was purged is refused, never passed over.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pump.index import index, indexer
from pump.index.store import IndexDamaged
from pump.log.record import ValuePointer
from pump.retention.policy import Policy
from pump.retention.purger import Pace, Purger
from pump.storage.data_dir import DataDir
from pump.storage.history import PositionPurged
from pump.storage.opening import StorageLimits
from pump.storage.storage import Storage
from tests.crash.faults import disk
from tests.crash.faults.disk import CUTS, FREEZE, TEAR, Disk, Fault
from tests.crash.faults.index_damage import SECTOR, Damage
from tests.pump.support.payloads import header, is_replayed, opened, pull, put, wait_watermark
from tests.pump.support.storage_model import Model, Stored
from tests.waiting import PATIENCE_S
from tidb_binlog import binlog
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import Corruption

EXAMPLES = int(os.environ.get("PUMP_MODEL_EXAMPLES", "200"))
SEED = os.environ.get("PUMP_MODEL_SEED")
STEP = 20_000 << 18  # the oracle moves by 20 seconds
LIMITS = StorageLimits(
    segment_bytes_max=1500,
    group_bytes_max=1000,
    group_records_max=16,
    index_queue_bytes_max=1500,
    recent_bytes_max=2500,
)
T = TypeVar("T")
some = st.integers(0, 1000)
sizes = st.sampled_from([0, 1, 40, 40, 300, 1200])
_real_write = index.Index.write


class Gate:
    """In front of the index's writes: open, shut, failing, or the process behind it is dead."""

    def __init__(self) -> None:
        self.state = "open"
        self._changed = threading.Condition()

    def set(self, state: str) -> None:
        with self._changed:
            self.state = state
            self._changed.notify_all()

    def __call__(self, written: index.Index, *arguments: Any) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.state != "shut", PATIENCE_S), "nobody opened the gate"
            if self.state != "open":
                raise OSError(f"index is {self.state}")
        _real_write(written, *arguments)


class StorageMachine(RuleBasedStateMachine):
    gate: Gate

    @initialize()
    def begin_life(self) -> None:
        shared = Path("/dev/shm")  # LevelDB syncs at every opening
        self.scratch = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
        self.path = self.scratch / "pump"
        self.loop = asyncio.new_event_loop()
        self.mounting = disk.mounted()
        self.mount = self.mounting.__enter__()
        self.gate = Gate()
        gate = self.gate
        index.Index.write = lambda *arguments: gate(*arguments)  # type: ignore[method-assign]
        self.retry_s, indexer._RETRY_S = indexer._RETRY_S, 0.001
        self.disk = Disk()
        self.model = Model()
        self.oracle_answers = True
        self.ts = STEP
        self.drawn: dict[int, int] = {}  # commit timestamps that transactions still open have drawn
        self.told = 0  # largest watermark ever seen
        self.do(self.open())

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, PATIENCE_S))

    def draw_ts(self) -> int:
        self.ts += STEP
        return self.ts

    async def open(self) -> None:
        self.data_dir = DataDir(str(self.path))
        try:
            storage = await Storage.open(
                self.data_dir,
                clock=SystemClock(),
                directory=self.mount(self.disk),
                limits=LIMITS,
            )
            self.following = asyncio.create_task(storage.run())
            try:
                await is_replayed(storage, self.following)
            except BaseException:
                await storage.close(abandon=True)
                raise
        except BaseException:
            self.data_dir.close()
            raise
        self.storage, self.is_open = storage, True
        self.opened_at = storage.watermark

    # -- writing ---------------------------------------------------------------------------------

    async def store(self, payloads: list[bytes], *, many: bool) -> None:
        if many:
            await self.storage.write_many(payloads, [header(payload) for payload in payloads])
        else:
            await asyncio.gather(*(self.storage.write(payload, header(payload)) for payload in payloads))
        stored = list(map(Stored.of, payloads))
        self.model.log += stored
        if self.oracle_answers and any(one.commit_ts for one in stored):
            self.draw_mark()  # as a Pump does that was told of commits

    def draw_mark(self) -> None:
        ts = self.draw_ts()
        self.storage.mark(ts)
        self.model.marks.append((len(self.model.log), ts))

    @rule()
    def oracle_comes_or_goes(self) -> None:
        self.oracle_answers = not self.oracle_answers

    def prewrite(self, size: int) -> bytes:
        start_ts = self.draw_ts()
        return binlog.prewrite(start_ts, b"key", (b"%d " % start_ts) * (size // 20))

    def open_one(self, which: int) -> int:
        """An open transaction; 0 if there is none."""
        found = self.model.open()
        return found[which % len(found)] if found else 0

    @rule(many=st.booleans(), size=st.lists(sizes, min_size=1, max_size=6))
    def write_prewrites(self, size: list[int], many: bool) -> None:
        self.do(self.store([self.prewrite(one) for one in size], many=many))

    @rule(which=some)
    def draw_commit_ts(self, which: int) -> None:
        start_ts = self.open_one(which)
        if start_ts and start_ts not in self.drawn:
            self.drawn[start_ts] = self.draw_ts()

    def end_of(self, start_ts: int, rolls_back: bool) -> bytes:
        if rolls_back and start_ts not in self.drawn:
            return binlog.rollback(start_ts, b"key")
        commit_ts = self.drawn.pop(start_ts, 0) or self.draw_ts()
        return binlog.commit(start_ts, commit_ts, b"key")

    @rule(which=some, rolls_back=st.booleans())
    def end_transaction(self, which: int, rolls_back: bool) -> None:
        if start_ts := self.open_one(which):
            self.do(self.store([self.end_of(start_ts, rolls_back)], many=False))

    @rule(size=st.lists(sizes, min_size=1, max_size=12), many=st.booleans())
    def write_transactions(self, size: list[int], many: bool) -> None:
        payloads = [self.prewrite(one) for one in size]
        self.do(self.store(payloads, many=many))
        starts = [Stored.of(payload).start_ts for payload in payloads]
        self.do(self.store([self.end_of(start_ts, False) for start_ts in starts], many=many))

    @rule(rolls_back=st.booleans())
    def catch_up(self, rolls_back: bool) -> None:
        """Nothing is open any more, and a mark passes all."""
        ends = [self.end_of(start_ts, rolls_back) for start_ts in self.model.open()]
        self.do(self.store(ends, many=False))
        self.mark()

    @rule(which=some)
    def repeat_prewrite(self, which: int) -> None:
        """A client that got no answer sends it again."""
        if start_ts := self.open_one(which):
            self.do(self.store([self.model.prewrites()[start_ts]], many=False))

    @rule(which=some)
    def repeat_end(self, which: int) -> None:
        ends = [one.payload for one in self.model.log[self.model.purged :] if one.tp != binlog.PREWRITE]
        if ends:
            payload = ends[-1 - which % min(len(ends), 5)]
            end = Stored.of(payload)
            if end.start_ts == end.commit_ts or end.start_ts in self.served_prewrites():
                self.do(self.store([payload], many=False))

    def served_prewrites(self) -> set[int]:
        kept = self.model.log[self.model.purged :]
        return {one.start_ts for one in kept if one.tp == binlog.PREWRITE}

    @rule()
    def write_time_mark(self) -> None:
        self.do(self.store([binlog.fake(self.draw_ts())], many=False))

    @rule(mark_first=st.booleans())
    def write_time_mark_of_a_transaction(self, mark_first: bool) -> None:
        """An oracle that stands still gives both the same."""
        first = self.prewrite(1)
        self.do(self.store([first], many=False))
        end = self.end_of(Stored.of(first).start_ts, False)
        both = [end, binlog.fake(Stored.of(end).commit_ts)]
        self.do(self.store(both[::-1] if mark_first else both, many=False))

    @rule()
    def mark(self) -> None:
        self.draw_mark()
        if self.gate.state == "open":
            self.settle_and_compare()

    # -- the index -------------------------------------------------------------------------------

    @precondition(lambda self: self.gate.state == "open")
    @rule(state=st.sampled_from(["shut", "failing"]))
    def stall_index(self, state: str) -> None:
        self.gate.set(state)

    @precondition(lambda self: self.gate.state != "open")
    @rule()
    def let_index_go(self) -> None:
        self.gate.set("open")
        self.settle_and_compare()

    def settle_and_compare(self) -> None:
        async def settled() -> None:
            while self.storage.index_lag_bytes or self.storage.is_chasing:
                await asyncio.sleep(0)
            await asyncio.sleep(0)

        self.gate.set("open")
        self.do(settled())
        # Marks are not stored: what an earlier life told may be above what this one knows, never below.
        watermark = self.storage.watermark
        assert self.model.watermark() <= watermark <= max(self.model.watermark(), self.told)
        self.told = max(self.told, watermark)
        assert [one.start_ts for one in self.storage.open_prewrites()] == self.model.open()
        self.compare(self.storage.gc_ts, 1 << 20, from_disk=True)
        # A drainer that keeps up goes on where it was before the start.
        self.compare(max(self.opened_at, self.storage.gc_ts), 1 << 20, from_disk=False)

    # -- reading ---------------------------------------------------------------------------------

    @invariant()
    def watermark_is_below_all_that_is_to_come(self) -> None:
        if not hasattr(self, "storage"):
            return
        self.told = max(self.told, self.storage.watermark)
        for start_ts in self.model.open():
            # Without a drawn timestamp its commit comes above everything drawn so far.
            assert self.storage.watermark < self.drawn.get(start_ts, self.ts + 1)

    @rule(which=some, off=st.sampled_from([-1, 0, 0]), page_bytes=st.sampled_from([1, 100, 2000, 1 << 20]))
    def pull(self, which: int, off: int, page_bytes: int) -> None:
        """From a timestamp that means something, or from just below it; from memory and from disk."""
        known = [1, self.storage.gc_ts, self.storage.watermark, *(one.commit_ts for one in self.model.log)]
        position = max(known[which % len(known)] + off, 0)
        for from_disk in (False, True):
            self.compare(position, page_bytes, from_disk=from_disk)

    def compare(self, position: int, page_bytes: int, *, from_disk: bool) -> None:
        storage, at = self.storage, position
        history, found = storage.history(), []
        try:
            while at < storage.watermark:
                if from_disk:
                    page = history.page(at, storage.watermark, bytes_max=page_bytes)
                else:
                    page = self.do(storage.page(history, at, page_bytes))
                assert page.covered > at
                assert all(at < one.commit_ts <= page.covered for one in page.deliveries)
                found += page.deliveries
                at = page.covered
        except PositionPurged:
            assert position < storage.gc_ts, "refused, though nothing above this position was purged"
        else:
            assert not from_disk or position >= min(storage.gc_ts, storage.watermark), (
                "a purged range was passed"
            )
        assert found == self.model.between(position, at)

    # -- ends ------------------------------------------------------------------------------------

    async def die(self, payloads: list[bytes], fault: Fault, calls: int) -> int:
        """Write, and stop the disk on the way; returns how many were acknowledged."""
        self.disk.faults = {len(self.disk.calls) + calls: fault}
        writes = [self.storage.write(payload, header(payload)) for payload in payloads]
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        self.disk.freeze()
        self.gate.set("dead")
        self.following.cancel()
        with suppress(asyncio.CancelledError, Corruption):
            await self.following
        await self.storage.close(abandon=True)
        self.data_dir.close()
        acknowledged = [one is None for one in outcomes]
        assert acknowledged == sorted(acknowledged, reverse=True), "acknowledged out of order"
        return sum(acknowledged)

    def crash(self, sizes_: list[int], fault: Fault, calls: int) -> int:
        payloads = [self.prewrite(size) for size in sizes_]
        payloads += [self.end_of(start_ts, False) for start_ts in self.model.open()[:3]]
        sure = len(self.model.log)
        acknowledged = self.do(self.die(payloads, fault, calls))
        self.model.log += map(Stored.of, payloads)
        return sure + acknowledged

    def reopen(self, acknowledged: int) -> None:
        self.gate.set("open")
        self.do(self.open())
        self.model.survived(map(self.storage.value_log.read, self.places()), acknowledged)
        # A mark that took effect while the process died is filed with the index, seen by us or not.
        self.told = max(self.told, self.model.watermark())
        self.model.marks.clear()
        drawn = {one.start_ts: one.commit_ts for one in self.model.log if one.tp == binlog.COMMIT}
        self.drawn = {ts: drawn_ts for ts, drawn_ts in self.drawn.items() if ts not in drawn}
        self.settle_open_twice()
        self.settle_and_compare()

    def places(self) -> list[ValuePointer]:
        """Of all records that are there."""
        log = self.storage.value_log
        record_batches = log.record_batches(ValuePointer(log.first_fid, 0), log.end)
        return [record.place for records, _ in record_batches for record in records]

    def settle_open_twice(self) -> None:
        """What ended before the place where sorting goes on, and was repeated behind it, is asked about."""
        known, ends = set(self.model.open()), {}
        for one in self.model.log:
            if one.tp != binlog.PREWRITE:
                ends[one.start_ts] = one.payload
        again = [one.start_ts for one in self.storage.open_prewrites() if one.start_ts not in known]
        if again:
            self.do(self.store([ends[start_ts] for start_ts in again], many=False))

    in_flight = st.lists(sizes, max_size=5)
    stops = st.builds(Fault, st.sampled_from([FREEZE, TEAR]))

    @rule(size=in_flight, fault=stops, calls=st.integers(0, 6))
    def kill(self, size: list[int], fault: Fault, calls: int) -> None:
        acknowledged = self.crash(size, fault, calls)
        self.disk = self.disk.after_kill()
        self.reopen(acknowledged)

    @rule(size=in_flight, fault=stops, calls=st.integers(0, 6), how=st.sampled_from(CUTS), kept=some)
    def cut_power(self, size: list[int], fault: Fault, calls: int, how: str, kept: int) -> None:
        """The index is not synced: it loses an end of any length of its last writes, or some before."""
        acknowledged = self.crash(size, fault, calls)
        self.disk = self.disk.after_power_cut(how, kept)
        for file in (self.path / "kv").glob("*.log"):
            at = file.stat().st_size * kept // 1000
            if how == "holes":
                Damage("zero", file.name, at, SECTOR).apply(file.parent)
            else:
                os.truncate(file, at)
        self.reopen(acknowledged)

    @rule(without_index=st.booleans(), rolls_back=st.booleans())
    def restart(self, without_index: bool, rolls_back: bool) -> None:
        """`rolls_back`: what was written last, and alone is read again, is no commit."""
        self.gate.set("open")
        if rolls_back:
            payload = self.prewrite(0)
            self.do(self.store([payload], many=False))
            self.do(self.store([self.end_of(Stored.of(payload).start_ts, True)], many=False))
        self.stop()
        if without_index:
            shutil.rmtree(self.path / "kv")
        before = self.storage.watermark
        self.reopen(len(self.model.log))
        if not without_index:
            assert self.storage.watermark >= before, "the watermark fell"

    @rule(what=st.sampled_from(["flip", "zero", "blank", "cut", "remove"]), which=some, where=some, bit=some)
    def damage_index(self, what: str, which: int, where: int, bit: int) -> None:
        """Any damage of any file of the index, between a stop and a start that may have to be done twice."""
        self.gate.set("open")
        self.stop()
        files = [file for file in sorted((self.path / "kv").iterdir()) if file.stat().st_size]
        file = files[which % len(files)]
        at, size = where * (file.stat().st_size - 1) // 1000, bit % 8 if what == "flip" else SECTOR
        Damage(what, file.name, at, size).apply(file.parent)
        self.is_open = False
        try:
            self.reopen(len(self.model.log))
            assert (
                sum(len(run) for run, _ in self.storage.index.runs(0, (1 << 63) - 1)) >= 0
            )  # all of it is read
        except IndexDamaged as error:
            if self.is_open:  # whoever reads it ends the pump
                with pytest.raises(IndexDamaged), self.storage._noticing_damage():
                    raise error
                with pytest.raises(IndexDamaged):
                    self.stop()
            self.reopen(len(self.model.log))

    def stop(self) -> None:
        async def close() -> None:
            await self.storage.close()
            await self.following

        try:
            self.do(close())
        finally:
            self.told = max(self.told, self.storage.watermark)
            self.data_dir.close()

    @rule(where=some, bit=st.integers(0, 7), which=some)
    def flip_a_bit(self, where: int, bit: int, which: int) -> None:
        """After a clean stop: refused at start, told to whoever reads, or of no effect; never other data."""
        self.gate.set("open")
        self.stop()
        files, aside = sorted(self.disk.after_kill().files()), self.scratch / "flipped"
        damaged = self.disk.after_kill()
        data = damaged.files()[files[which % len(files)]].data
        if data:
            data[where * (len(data) - 1) // 1000] ^= 1 << bit
        shutil.copytree(self.path, aside)
        path, self.path, whole, self.disk = self.path, aside, self.disk, damaged
        try:
            self.do(self.open())
        except Corruption as error:
            refused = error.message
        else:
            refused = ".vlog"
            with suppress(Corruption):
                self.compare(self.storage.gc_ts, 1 << 20, from_disk=True)
            self.stop()
        shutil.rmtree(aside)
        self.path, self.disk = path, whole
        self.reopen(len(self.model.log))
        assert ".vlog" in refused, "refused, and the file is not named"

    @rule(jump=st.booleans(), age_steps=st.integers(0, 40))
    def retain(self, jump: bool, age_steps: int) -> None:
        if jump:
            self.ts += 100 * STEP
        oracle = SimpleNamespace(timestamp=self.now)
        registry = SimpleNamespace(view=self.nobody)
        purger = Purger(
            self.storage,
            oracle,
            registry,  # type: ignore[arg-type]
            self.plenty,
            Policy(age_s=age_steps * 20),
            SystemClock(),
            pace=Pace(),
        )
        before = self.storage.gc_ts
        self.do(purger.work())
        assert self.storage.gc_ts >= before
        # The watermark of a life whose index is lost comes back with the next timestamp that is drawn.
        assert self.storage.gc_ts <= max(self.storage.watermark, before)
        gone = len(self.model.log) - len(self.places())
        purged = self.model.log[:gone]
        assert all(one.commit_ts <= self.storage.gc_ts for one in purged), "purged, and pullers are not told"
        assert not {one.start_ts for one in purged} & set(self.model.open()), "an open prewrite was purged"
        self.model.purged = gone
        self.compare(0, 1 << 20, from_disk=True)

    async def now(self) -> int:
        return self.draw_ts()

    async def nobody(self) -> Any:
        return SimpleNamespace(drainers={})

    async def plenty(self) -> int:
        return 1 << 40

    def teardown(self) -> None:
        try:
            self.settle_and_compare()
        finally:
            self.gate.set("open")
            with suppress(Exception):
                self.stop()
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            self.mounting.__exit__(None, None, None)
            index.Index.write = _real_write  # type: ignore[method-assign]
            indexer._RETRY_S = self.retry_s
            shutil.rmtree(self.scratch)


_machine = seed(int(SEED))(StorageMachine) if SEED else StorageMachine
TestStorageModel = _machine.TestCase
TestStorageModel.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=int(os.environ.get("PUMP_MODEL_STEPS", "20")),
    deadline=None,
    database=None,
    derandomize=SEED is None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
TestStorageModel = pytest.mark.timeout(0 if SEED else 600)(TestStorageModel)


async def test_a_time_mark_repeated_behind_an_open_prewrite_is_served_once(tmp_path: Path) -> None:
    """Memory keeps both until the prewrite ends; random orders meet this too rarely."""
    async with opened(tmp_path) as storage:
        await put(storage, binlog.prewrite(10, b"key", b"value"))
        for payload in (binlog.fake(20), binlog.fake(20), binlog.commit(10, 40, b"key")):
            await put(storage, payload)
        await wait_watermark(storage, 40)
        for from_disk in (False, True):
            assert [one.commit_ts for one in await pull(storage, from_disk=from_disk)] == [20, 40]

"""The downstream at one timestamp while rows go on, and what makes the opening of it go wrong."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from drainer.mysql.connection import Target, connect
from drainer.mysql.errors import StatementRefused
from drainer.points.snapshot.downstream import (
    DownstreamSnapshot,
    Patience,
    look,
    persistently,
)
from drainer.points.snapshot.drainer_hold import DrainerHold, HeldAt, LetGo, locate_drainer
from drainer.stream.pull.merged import MergedBatch
from pumpclient.testing import MemoryRegistry
from tests.drainer.points.snapshot.opening import open_downstream
from tests.drainer.support.apply_life import Life, run
from tests.drainer.support.held_life import TwoTables, hold_of, settings_of
from tests.waiting import PATIENCE_S
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import DownstreamError, Rejected, Unavailable
from tidb_binlog.net.http_client import Page

pytestmark = pytest.mark.integration
ROWS = range(1000, 5000, 10)
AT_ONCE = Patience(all_s=0.0)


def numbers(snapshot: DownstreamSnapshot, table: str) -> list[int]:
    with snapshot.session() as session:
        return [int(a) for (a,) in session.rows(b"SELECT a FROM d.%s ORDER BY a" % table.encode())]


@contextlib.asynccontextmanager
async def running(target: Target, gate: asyncio.Semaphore | None = None) -> AsyncIterator[Life]:
    """A stream that goes on until it is left; `gate`: a batch for each that it lets in."""
    life = Life(TwoTables().recording(ROWS), target, batch_rows=20)

    async def batches() -> AsyncIterator[MergedBatch]:
        async for batch in life.batches(7):
            if gate is not None:
                await gate.acquire()
            yield batch
            await asyncio.sleep(0.001)
        await asyncio.Event().wait()

    task = asyncio.create_task(life.runner.run(batches()))
    while life.runner.resolved_ts < ROWS[0]:
        await asyncio.sleep(0.001)
    yield life
    assert await life.runner.stop(PATIENCE_S)
    await task


async def test_sessions_show_all_up_to_t_while_rows_go_on(target: Target) -> None:
    gate = asyncio.Semaphore(5)  # of 58 batches: on a busy machine, too, the end is not reached
    async with running(target, gate) as life:
        drainer, settings = hold_of(life.control.hold), settings_of(target)
        found = []
        for _ in range(5):
            for _ in range(5):
                gate.release()
            found.append(await open_downstream(settings, drainer, 2))
            gate.release()
            while life.runner.resolved_ts <= found[-1].ts:
                await asyncio.sleep(0.001)
        stamps = [snapshot.ts for snapshot in found]
        assert stamps == sorted(set(stamps)), "rows went on between them"
        assert stamps[-1] < ROWS[-1]
    for snapshot in found:
        expected = [row for row in ROWS if row <= snapshot.ts]
        with snapshot.session() as one, snapshot.session() as other:
            assert one.rows(b"SELECT COUNT(*) FROM d.t") == other.rows(b"SELECT COUNT(*) FROM d.t")
        assert numbers(snapshot, "t") == numbers(snapshot, "u") == expected
        assert snapshot.held_ms > 0
        await snapshot.close()


class Interrupted(DrainerHold):
    """The hold ends before the snapshot is open, so many times."""

    def __init__(self, life: Life, times: int) -> None:
        self._inner = hold_of(life.control.hold)
        self._state = life.control.hold.state
        self._times = times

    async def hold(self, *, limit_s: float, wait_s: float) -> HeldAt:
        held = await self._inner.hold(limit_s=limit_s, wait_s=wait_s)
        if self._times:
            self._times -= 1
            self._state.lose(held.token, "the stream ended", 0.0)
        return held

    async def release(self, token: str) -> LetGo:
        return await self._inner.release(token)


async def test_a_hold_that_was_over_too_soon_makes_no_snapshot_and_is_tried_again(target: Target) -> None:
    async with running(target) as life:
        settings = settings_of(target)
        with pytest.raises(
            Unavailable, match="went on before the snapshot was open: the stream ended"
        ) as found:
            await open_downstream(settings, Interrupted(life, 1), 1, AT_ONCE)
        assert "within 0 s" in found.value.message
        snapshot = await open_downstream(settings, Interrupted(life, 1), 1)
        assert numbers(snapshot, "t") == [row for row in ROWS if row <= snapshot.ts]
        await snapshot.close()
        held = await life.control.hold.ask()
        assert life.control.hold.release(held.token).valid, "nothing is left of it"


async def test_what_the_downstream_refuses_is_not_tried_again() -> None:
    async def refused() -> None:
        raise StatementRefused(1105, "can not get 'tikv_gc_safe_point'")

    with pytest.raises(DownstreamError, match="no snapshot: the downstream says 1105: can not get"):
        await persistently(refused, 60.0, "no snapshot")


async def test_what_was_written_meanwhile_is_seen_in_the_snapshot_itself(target: Target) -> None:
    life = Life(TwoTables().recording(ROWS[:5]), target)
    assert await life.run()
    at = HeldAt("", ROWS[4], 4711, life.store.epoch, ())
    with contextlib.closing(connect(target)) as session:
        session.run(b"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        session.run(b"START TRANSACTION WITH CONSISTENT SNAPSHOT")
        look(session, "tidb_binlog", at, is_past=False)
        with pytest.raises(Unavailable, match=f"rows above {ROWS[4] - 1} were written"):
            look(session, "tidb_binlog", replace(at, ts=ROWS[4] - 1), is_past=False)
        with pytest.raises(Unavailable, match="another drainer took over"):
            look(session, "tidb_binlog", replace(at, epoch=at.epoch - 1), is_past=False)
        with pytest.raises(Rejected, match="drainer's tables in nowhere downstream cannot be read"):
            look(session, "nowhere", at, is_past=False)
        run(target, "ALTER TABLE tidb_binlog.lanes FORCE", "SELECT 1")  # it holds no lock on a definition


# -- what a drainer answers -------------------------------------------------------------------------------


def answering(*pages: tuple[int, str]) -> tuple[DrainerHold, list[str]]:
    asked: list[str] = []
    answers = iter(pages)

    async def ask(address: str, path: str, _timeout_s: float) -> Page:
        asked.append(f"{address}{path}")
        status, body = next(answers)
        return Page(status, body.encode(), 0.0, 0.0, None)

    async def locate() -> str:
        return "d:1"

    return DrainerHold(locate, None, SystemClock(), ask), asked


HELD = '{"message": "", "data": {"token": "t", "ts": 7, "cluster_id": 2, "epoch": 3, "waiting": ["shop.t"]}}'


async def test_what_is_asked_of_a_drainer() -> None:
    drainer, asked = answering((200, '{"message": "", "data": {"token": "t"}}'), (200, HELD), (200, HELD))
    assert await drainer.arm(limit_s=2.0, wait_s=1.5) == "t"
    assert await drainer.go_on("t", 7, wait_s=60.0) == HeldAt("t", 7, 2, 3, ("shop.t",))
    await drainer.hold(limit_s=0.5, wait_s=1.0)
    assert asked == [
        "d:1/apply/hold?arm=1&limit_ms=2000&wait_ms=1500",
        "d:1/apply/hold?token=t&at=7&wait_ms=60000",
        "d:1/apply/hold?limit_ms=500&wait_ms=1000",
    ]


@pytest.mark.parametrize(
    ("status", "body", "error", "message"),
    [
        (503, '{"message": "no rows are applied"}', Unavailable, "the drainer at d:1: no rows are applied"),
        (409, '{"message": "another one holds"}', Unavailable, "another one holds"),
        (403, "forbidden", Rejected, "from its own host, over mutual TLS"),
        (404, "404 page not found", Rejected, "an older release, or a Go drainer"),
        (400, '{"message": "hold: wait_ms"}', Rejected, "refused: hold: wait_ms"),
    ],
)
async def test_what_passes_by_itself_is_not_what_is_refused(
    status: int, body: str, error: type[Exception], message: str
) -> None:
    drainer, _ = answering((status, body))
    with pytest.raises(error, match=message):
        await drainer.hold(limit_s=1.0, wait_s=1.0)


async def test_a_drainer_is_looked_for_by_its_name() -> None:
    nodes = MemoryRegistry()
    with pytest.raises(Unavailable, match="no drainer d1 is running"):
        await locate_drainer(nodes, "d1")()

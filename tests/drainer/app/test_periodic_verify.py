"""A child that compares for its drainer: what it asks, what it answers, how it ends."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from drainer.app import verify_child, verify_link
from drainer.app.periodic_verify import FILE, PeriodicVerify
from drainer.app.verify_link import ChildLink
from drainer.compare.verify.table_work import Request, TableWork
from drainer.compare.verify.verifying import Progress
from drainer.mysql.chunks.chunk import Chunk
from drainer.operate.control.hold import Hold
from drainer.operate.control.hold_state import HoldPoint
from tests.drainer.support.held_life import settings_of
from tests.waiting import until
from tidb_binlog.clock import SystemClock
from tidb_binlog.status.codec import plain
from tidb_binlog.status.drainer import ChunkGrid

RESULT = {"state": "equal", "ts": 7, "rows": 5, "wrong": 0, "held_ms": 1.5, "tables": []}
CHILD = """
import asyncio, sys
from drainer.app.verify_link import ChildLink
from tidb_binlog.clock import SystemClock
from drainer.points.snapshot.drainer_hold import DrainerHold

link = ChildLink()
settings = link.settings()

async def locate():
    return ""

async def main():
    drainer = DrainerHold(locate, None, SystemClock(), link.ask)
    held = await drainer.hold(limit_s=5.0, wait_s=5.0)
    let_go = await drainer.release(held.token)
    link.say({"progress": "half of it", "grid": [{"table": "a.t", "cells": "=!", "chunks": 2}]})
    behind_s = await asyncio.to_thread(link.behind_s)
    assert behind_s == 2.5
    link.say({"result": RESULT | {"ts": held.ts, "rows": settings.verify_rows}})

RESULT = %r
%s
"""

FAILING = """
try:
    asyncio.run(main())
except Exception as error:
    why = str(error).partition(" to a database just now")[0]
    link.say({"failed": f"[{why}] {link.behind_s()} s behind"})
"""


def child(ending: str) -> tuple[str, ...]:
    return sys.executable, "-c", CHILD % (RESULT, ending)


def periodic(
    directory: Path, *command: str, hold: Hold | None = None, behind_s: Callable[[], float] = lambda: 2.5
) -> PeriodicVerify:
    target: object = type("T", (), {"host": "h", "port": 1, "user": "u", "password": "p"})
    settings = settings_of(target, verify_every_s=3600.0, verify_rows=11, data_dir=str(directory))  # type: ignore[arg-type]
    return PeriodicVerify(lambda: settings, hold or Hold(SystemClock()), SystemClock(), behind_s, command)


async def standing(hold: Hold, ts: int) -> None:
    """A stream that stands still whenever it is asked."""
    hold.state.open(0)
    asked = asyncio.Event()
    hold.on_change = asked.set

    async def hold_point() -> HoldPoint:
        return HoldPoint(ts)

    while True:
        await asked.wait()
        asked.clear()
        if hold.state.boundary_ts <= ts:
            await hold.keep(hold_point, until)


def test_the_child_tells_its_grid_with_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_child, "TELL_S", 0.0)
    outgoing = io.BytesIO()
    work = TableWork(Request((("up", "t"),), ("down", "t")), chunks=[Chunk(0)], is_cut=True)
    told = Progress("down.t", 0, 2, 5, 0, 0, 0, works=[work])
    verify_child.Teller(ChildLink(io.BytesIO(), outgoing)).tell(told)
    said = json.loads(outgoing.getvalue())
    assert said["progress"] == "0 of 2 tables, at down.t: 5 rows"
    assert said["grid"] == plain([ChunkGrid(table="down.t", cells=".", chunks=1, is_cut=True)])


async def test_it_holds_the_stream_and_says_what_it_found_by_the_settings_in_force(tmp_path: Path) -> None:
    hold = Hold(SystemClock())
    stream = asyncio.create_task(standing(hold, 42))
    progress = []
    grid: list[ChunkGrid] = []

    def behind_s() -> float:
        progress.append(verify.status.progress)
        grid.extend(verify.status.grid)
        return 2.5

    verify = periodic(tmp_path, *child("asyncio.run(main())"), hold=hold, behind_s=behind_s)
    await verify.once()
    assert progress == ["half of it"]
    assert grid == [ChunkGrid(table="a.t", cells="=!", chunks=2)]
    assert verify.status.grid == [], "it is over"
    stream.cancel()
    status = verify.status
    assert (status.state, status.ts, status.rows, status.failures) == ("equal", 42, 11, 0)
    assert status.next_s == status.began_s + 3600.0
    stored = json.loads((tmp_path / FILE).read_text())
    assert stored == plain(status)
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0
    again = periodic(tmp_path)
    assert again.status.ts == 42, "a restart remembers it"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys; sys.exit('no such module')", "ended with exit code 1: no such module"),
        ("""print('{"failed": "the upstream is away"}')""", "the upstream is away"),
        ("print('no json')", "Expecting value: line 1 column 1 (char 0)"),
        ("""print('{"result": {"state": "equal"}}')""", "tables"),
    ],
    ids=["exits", "fails", "nonsense", "half a result"],
)
async def test_a_comparison_without_a_result_is_said(tmp_path: Path, code: str, why: str) -> None:
    verify = periodic(tmp_path, sys.executable, "-c", code)
    await verify.once()
    assert (verify.status.failures, verify.status.state) == (1, "")
    assert why in verify.status.trouble


async def test_a_directory_that_takes_no_file_does_not_end_the_drainer(tmp_path: Path) -> None:
    verify = periodic(tmp_path / "gone", sys.executable, "-c", f"print({json.dumps({'result': RESULT})!r})")
    await verify.once()
    assert (verify.status.state, verify.status.failures) == ("equal", 0)


async def test_without_a_stream_there_is_nothing_to_compare(tmp_path: Path) -> None:
    verify = periodic(tmp_path, *child(FAILING))
    await verify.once()
    assert verify.status.trouble == "[the drainer at : no rows are applied] 2.5 s behind"


async def test_the_end_of_the_drainer_ends_the_child(tmp_path: Path) -> None:
    started = tmp_path / "started"
    code = f"import os, time; open({str(started)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    verify = periodic(tmp_path, sys.executable, "-c", code)
    task = asyncio.create_task(verify.once())
    await until(lambda: started.exists() and started.read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)


def test_the_settings_come_whole() -> None:
    target: object = type("T", (), {"host": "h", "port": 1, "user": "u", "password": "geheim"})
    settings = settings_of(target, column_rule=({"db-name": "d"},))  # type: ignore[arg-type]
    link = ChildLink(io.BytesIO(verify_link.opening(settings)), io.BytesIO())
    assert link.settings() == settings

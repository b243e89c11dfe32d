"""What is handed to a thread is late by what the seed and the test's name draw, and only then."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import forked
from tests.cases import case
from tests.fakes.late_threads import SEED, Delays, LateThreads, late

PLACES = [f"place {'abcdefghijklmnopqrstuvwxyz'[number]}" for number in range(26)]


class Asked(Delays):
    """Notes where it was asked for a pause, and that what is late had not begun yet."""

    def __init__(self) -> None:
        super().__init__("")
        self.done: list[str] = []
        self.kinds: list[tuple[str, bool]] = []

    def pause(self, kind: str, name: str | None = None) -> None:
        self.kinds.append((kind, bool(self.done)))


def test_each_way_into_a_thread_is_late() -> None:
    def thread(done: Callable[[], None]) -> None:
        own = threading.Thread(target=done)
        own.start()
        own.join()

    def pool(done: Callable[[], None]) -> None:
        with ThreadPoolExecutor(1) as threads:
            threads.submit(done).result()

    def taken(done: Callable[[], None]) -> None:
        items: queue.SimpleQueue[int] = queue.SimpleQueue()
        items.put(1)
        assert items.get() == 1
        done()

    def waits(done: Callable[[], None]) -> None:
        assert not threading.Event().wait(0)
        done()

    def calls(done: Callable[[], None]) -> None:
        async def main() -> None:
            loop, called = asyncio.get_running_loop(), asyncio.Event()
            other = threading.Thread(target=lambda: loop.call_soon_threadsafe(lambda: (done(), called.set())))
            other.start()
            await called.wait()
            other.join()

        asyncio.run(main())

    def turns(done: Callable[[], None]) -> None:
        async def main() -> None:
            done()

        asyncio.run(main())

    def syncs(done: Callable[[], None]) -> None:
        for call in (os.fsync, os.fdatasync):
            with pytest.raises(ValueError, match="descriptor"):
                call(-1)
        done()

    ways = {"begin": thread, "work": pool, "queue": taken, "wait": waits, "call": calls, "turn": turns}
    for kind, way in {**ways, "sync": syncs}.items():
        with case(kind):
            asked = Asked()
            with late(asked):
                way(lambda done=asked.done: done.append(""))
            assert (kind, False) in asked.kinds, asked.kinds
            asked.kinds.clear()
            way(lambda: None)
            assert not asked.kinds, "once it is over, nothing is late"


def test_a_call_of_a_loop_s_own_thread_is_not_late() -> None:
    async def main() -> None:
        called = asyncio.Event()
        asyncio.get_running_loop().call_soon_threadsafe(called.set)
        await called.wait()

    asked = Asked()
    with late(asked):
        asyncio.run(main())
    assert "call" not in dict(asked.kinds)


def paused(draw: str) -> dict[str, list[float]]:
    slept_s: dict[str, list[float]] = {}
    for place in PLACES:
        delays = Delays(draw, slept_s.setdefault(place, []).append)
        for _ in range(200):
            delays.pause("queue", place)
    return slept_s


def test_delays_hang_on_the_draw_and_the_place_alone() -> None:
    slept_s = paused("7 a")
    assert slept_s == paused("7 a")
    assert slept_s != paused("7 b")
    assert len({tuple(each) for each in slept_s.values()}) == len(PLACES)
    assert 3 < sum(len(set(each)) == 1 for each in slept_s.values()) < 15, "some are late each time"
    assert all(sum(each) < 1.3 and max(each) <= 0.3 for each in slept_s.values()), "and not for ever"


class Item:
    nodeid = "a test"
    sections: tuple[str, ...] = ()

    def add_report_section(self, *section: str) -> None:
        self.sections = section


def test_the_report_of_a_test_names_what_was_late() -> None:
    plugin, item, fsync = LateThreads("7"), Item(), os.fsync
    around, call = plugin.pytest_runtest_protocol(item), plugin.pytest_runtest_call(item)  # type: ignore[arg-type]
    next(around)
    next(call)
    for _ in range(100):
        with pytest.raises(ValueError, match="descriptor"):
            os.fsync(-1)
    assert not list(call)
    assert item.sections[1] == f"{SEED}=7"
    assert item.sections[2].endswith(" s: sync of MainThread"), item.sections
    assert not list(around)
    assert os.fsync is fsync


def test_so_are_daemons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SEED, raising=False)
    program = tmp_path / "app" / "__main__.py"
    program.parent.mkdir()
    program.write_text("import os\n\ndef main():\n    print(os.fsync.__name__)\n")
    for environ, said in ({}, "fsync\n"), ({SEED: "7"}, "call\n"):
        assert forked.run("app", PYTHONPATH=str(tmp_path), **environ).stdout == said

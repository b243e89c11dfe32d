"""Threads of a world: one at a time, in an order that the seed draws, and none is left when it dies."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.fakes import virtual_time
from tests.sim.life import LIFE, Life
from tests.sim.scheduling import Killed, SimLock, SimLoop, SimQueue, SimThread, begin, end_all


def run(seed: int, main: Callable[[SimLoop], Coroutine[Any, Any, Any]]) -> Any:
    loop = SimLoop(random.Random(seed))
    begin(loop)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main(loop))


def test_two_threads_take_turns_as_drawn_and_a_lock_is_one_at_a_time() -> None:
    async def main(loop: SimLoop) -> str:
        said: list[str] = []
        lock = SimLock()

        def work(name: str) -> None:
            for _ in range(4):
                with lock:
                    said.append(name)
                    loop.baton.sleep(0.01)
                    said.append(name)
                loop.baton.sleep(loop.rng.random())

        threads = [SimThread(work, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        return "".join(said)

    orders = {run(seed, main) for seed in range(20)}
    assert len(orders) > 3
    assert all(a == b for order in orders for a, b in zip(order[::2], order[1::2], strict=True))
    assert run(7, main) == run(7, main)


def test_an_executor_of_one_does_its_jobs_in_order_and_a_queue_wakes_who_waits() -> None:
    async def main(loop: SimLoop) -> list[int]:
        done: list[int] = []
        queue = SimQueue[int]()
        executor = ThreadPoolExecutor(1)
        jobs = [loop.run_in_executor(executor, lambda: done.append(queue.get())) for _ in range(3)]
        for number in range(3):
            queue.put(number)
        await asyncio.gather(*jobs)
        return done

    assert run(1, main) == [0, 1, 2]


def test_a_life_that_ends_leaves_no_thread_and_no_task() -> None:
    async def main(loop: SimLoop) -> list[str]:
        said: list[str] = []
        life = Life("host")
        token = LIFE.set(life)

        def work() -> None:
            try:
                SimQueue[int]().get()
            except Killed:
                said.append("killed")
                raise

        async def stubborn() -> None:
            for _ in range(3):
                try:
                    await virtual_time.passes(100)
                except asyncio.CancelledError:
                    said.append("cancelled")

        SimThread(work).start()
        loop.create_task(stubborn())
        LIFE.reset(token)
        await virtual_time.passes(1)
        await end_all(life, loop.baton)
        assert not life.threads
        assert not life.tasks
        return said

    assert run(1, main) == ["killed", "cancelled", "cancelled", "cancelled"]

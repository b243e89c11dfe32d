"""Jobs on a thread of their own: in order, with their results and errors."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pump.index.worker_thread import WorkerThread


async def test_jobs_run_in_order_on_one_thread() -> None:
    worker = WorkerThread("worker-under-test")
    seen: list[tuple[int, str]] = []
    results = [
        worker.run(lambda n=number: seen.append((n, threading.current_thread().name)) or n * 2)
        for number in range(50)
    ]
    assert await asyncio.gather(*results) == [number * 2 for number in range(50)]
    assert seen == [(number, "worker-under-test") for number in range(50)]
    await worker.stop()
    await worker.stop()
    assert not any(thread.name == "worker-under-test" for thread in threading.enumerate())


async def test_an_error_reaches_who_waits_and_the_next_job_runs() -> None:
    worker = WorkerThread("worker-under-test")

    def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await worker.run(fail)
    assert await worker.run(sum, [1, 2]) == 3
    given_up = worker.run(sum, [3])
    given_up.cancel()
    assert await worker.run(sum, [4]) == 4
    await worker.stop()


async def test_what_was_given_is_done_before_the_end() -> None:
    worker = WorkerThread("worker-under-test")
    gate = threading.Event()
    first, second = worker.run(gate.wait, 5), worker.run(sum, [1])
    gate.set()
    await worker.stop()
    await asyncio.sleep(0)
    assert (first.result(), second.result()) == (True, 1)

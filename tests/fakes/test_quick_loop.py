"""A quick loop does as asyncio's does, in the same order, whatever is asked of it."""

from __future__ import annotations

import asyncio
import contextvars
from random import Random
from typing import Any

import pytest

from tests.fakes.quick_loop import QuickLoop
from tests.fakes.virtual_time import VirtualLoop, passes

WHO: contextvars.ContextVar[int] = contextvars.ContextVar("who", default=0)


async def story(seed: int) -> list[Any]:
    """Tasks that sleep, wait, are cancelled and fail, and timers that are cancelled; no two at one moment,
    whose order asyncio leaves open."""
    loop, rng, said = asyncio.get_running_loop(), Random(seed), []
    loop.set_exception_handler(lambda _, context: said.append(type(context["exception"]).__name__))
    event = asyncio.Event()

    def called(what: object) -> None:
        said.append((round(loop.time(), 9), WHO.get(), what))
        if what == 13:  # its timer
            raise ValueError

    async def work(number: int) -> None:
        WHO.set(number)
        for step in range(rng.randrange(8)):
            called(step)
            timer = loop.call_later(rng.random(), called, 10 + step)
            if rng.random() < 0.5:
                timer.cancel()
            try:
                async with asyncio.timeout(rng.choice((0.5, 5.0)) * rng.random()):
                    await (event.wait() if rng.random() < 0.4 else passes(rng.random()))
            except TimeoutError:
                called("timeout")
            loop.call_soon(called, "soon", context=contextvars.Context())

    tasks = [asyncio.create_task(work(number)) for number in range(30)]
    loop.call_at(1.0, event.set)
    loop.call_later(0.7, tasks[3].cancel)
    await asyncio.gather(*tasks, return_exceptions=True)
    await passes(100_000.0)
    return said


@pytest.mark.parametrize("seed", range(5))
def test_all_happens_when_and_in_the_order_in_which_it_does_in_asyncio(seed: int) -> None:
    def run(kind: type[VirtualLoop]) -> list[Any]:
        with asyncio.Runner(loop_factory=kind) as runner:
            return runner.run(story(seed))

    said = run(QuickLoop)
    assert said == run(VirtualLoop)
    assert len(said) > 50


def test_timers_that_are_cancelled_go() -> None:
    async def main(loop: QuickLoop) -> int:
        for _ in range(10_000):
            loop.call_later(3600.0, print).cancel()
        return len(loop._timers)

    loop = QuickLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert runner.run(main(loop)) < 300

"""The queue between the merge and the applier: its limits, its end, and callers that give up."""

from __future__ import annotations

import asyncio
import random

import pytest

from drainer.stream.pull.collector import BoundedQueue, QueueClosed
from tests.waiting import PATIENCE_S


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("sizes", "size", "waits"),
    [
        ((6,), 4, False),
        ((6,), 5, True),
        ((6, 4), 0, False),
        ((1, 1, 1), 0, True),  # as many items as may be
        ((), 100, False),  # an item larger than the queue passes alone
        ((100,), 1, True),
    ],
)
async def test_bytes_and_items_are_limits(sizes: tuple[int, ...], size: int, waits: bool) -> None:
    queue: BoundedQueue[int] = BoundedQueue(bytes_max=10, items_max=3)
    for number, before in enumerate(sizes):
        await queue.put(number, before)
    writer = asyncio.create_task(queue.put(9, size))
    await _settle()
    assert (len(queue), writer.done()) == (len(sizes) + (not waits), not waits)
    taken = [await queue.get() for _ in sizes]
    assert [*taken, await queue.get()] == [*range(len(sizes)), 9]
    await writer


async def test_close_wakes_the_reader() -> None:
    queue: BoundedQueue[int] = BoundedQueue(bytes_max=1, items_max=1)
    reader = asyncio.create_task(queue.get())
    await _settle()
    queue.close()
    with pytest.raises(QueueClosed):
        await reader


async def test_close_wakes_the_writer_and_what_is_left_is_read() -> None:
    queue: BoundedQueue[int] = BoundedQueue(bytes_max=1, items_max=1)
    await queue.put(1, 1)
    writer = asyncio.create_task(queue.put(2, 1))
    await _settle()
    queue.close()
    with pytest.raises(QueueClosed):
        await writer
    assert await queue.get() == 1
    with pytest.raises(QueueClosed):
        await queue.get()
    with pytest.raises(QueueClosed):
        await queue.put(3, 1)


async def test_a_cancelled_reader_loses_nothing() -> None:
    queue: BoundedQueue[int] = BoundedQueue(bytes_max=10, items_max=10)
    reader = asyncio.create_task(queue.get())
    await _settle()
    await queue.put(1, 1)
    reader.cancel()  # woken already, but it will not take the item
    await asyncio.wait({reader})
    assert reader.cancelled()
    assert await queue.get() == 1


@pytest.mark.parametrize("seed", range(20))
async def test_random_traffic_keeps_order_and_limits(seed: int) -> None:
    rng = random.Random(seed)
    queue: BoundedQueue[int] = BoundedQueue(bytes_max=20, items_max=4)
    seen: list[int] = []

    async def write() -> None:
        for number in range(90):
            await queue.put(number, rng.randrange(12))
            assert len(queue) <= 4
            if rng.random() < 0.3:
                await asyncio.sleep(0)
        queue.close()

    async def read() -> None:
        while True:
            try:
                seen.append(await queue.get())
            except QueueClosed:
                return
            if rng.random() < 0.3:
                await asyncio.sleep(0)

    await asyncio.wait_for(asyncio.gather(write(), read()), PATIENCE_S)
    assert seen == list(range(90))

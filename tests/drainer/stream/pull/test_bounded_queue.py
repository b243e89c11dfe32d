from __future__ import annotations

import asyncio
import random

import pytest

from drainer.stream.pull.bounded_queue import BoundedQueue, QueueClosed


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_bytes_and_items_are_limits() -> None:
    queue: BoundedQueue[str] = BoundedQueue(bytes_max=10, items_max=3)
    assert queue.put_nowait("a", 6)
    assert not queue.put_nowait("b", 5)
    assert queue.put_nowait("b", 4)
    assert (len(queue), queue.bytes_queued) == (2, 10)
    assert await queue.get() == "a"
    assert queue.put_nowait("c", 0)
    assert not queue.put_nowait("x", 7)
    assert queue.put_nowait("d", 1)
    assert not queue.put_nowait("x", 0)


async def test_an_item_larger_than_the_queue_passes_alone() -> None:
    queue: BoundedQueue[str] = BoundedQueue(bytes_max=10, items_max=3)
    assert queue.put_nowait("huge", 100)
    assert not queue.put_nowait("x", 1)
    assert await queue.get() == "huge"
    assert queue.bytes_queued == 0


async def test_put_waits_for_room_in_order() -> None:
    queue: BoundedQueue[int] = BoundedQueue(bytes_max=10, items_max=10)
    await queue.put(0, 10)
    writers = [asyncio.create_task(queue.put(number, 5)) for number in (1, 2, 3)]
    await _settle()
    assert not any(writer.done() for writer in writers)
    assert await queue.get() == 0
    await _settle()
    assert [writer.done() for writer in writers] == [True, True, False]
    assert [await queue.get() for _ in range(3)] == [1, 2, 3]
    await asyncio.gather(*writers)


async def test_get_batch_takes_what_is_there_within_limits() -> None:
    queue: BoundedQueue[int] = BoundedQueue(bytes_max=100, items_max=10)
    for number in range(5):
        await queue.put(number, 10)
    assert await queue.get_batch(bytes_max=25, items_max=10) == [0, 1]
    assert await queue.get_batch(bytes_max=1, items_max=10) == [2]
    assert await queue.get_batch(bytes_max=100, items_max=1) == [3]
    assert await queue.get_batch(bytes_max=100, items_max=9) == [4]
    assert queue.get_nowait() is None


async def test_close_wakes_readers_and_writers() -> None:
    queue: BoundedQueue[int] = BoundedQueue(bytes_max=1, items_max=1)
    reader = asyncio.create_task(queue.get())
    await _settle()
    queue.close()
    with pytest.raises(QueueClosed):
        await reader
    queue = BoundedQueue(bytes_max=1, items_max=1)
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
        queue.put_nowait(3, 1)
    assert queue.closed


async def test_a_cancelled_waiter_loses_nothing() -> None:
    queue: BoundedQueue[int] = BoundedQueue(bytes_max=10, items_max=10)
    readers = [asyncio.create_task(queue.get()) for _ in range(2)]
    await _settle()
    queue.put_nowait(1, 1)
    readers[0].cancel()  # woken already, but it will not take the item
    await _settle()
    assert await readers[1] == 1
    await asyncio.gather(*readers, return_exceptions=True)


@pytest.mark.parametrize("seed", range(20))
async def test_random_traffic_keeps_order_and_limits(seed: int) -> None:
    rng = random.Random(seed)
    queue: BoundedQueue[tuple[int, int]] = BoundedQueue(bytes_max=20, items_max=4)
    seen: list[tuple[int, int]] = []

    async def write(writer: int) -> None:
        for number in range(30):
            task = asyncio.create_task(queue.put((writer, number), rng.randrange(12)))
            if rng.random() < 0.3:
                await asyncio.sleep(0)
            await task
            assert len(queue) <= 4
            assert queue.bytes_queued <= 20

    async def read() -> None:
        while True:
            try:
                if rng.random() < 0.5:
                    seen.append(await queue.get())
                else:
                    seen.extend(await queue.get_batch(bytes_max=15, items_max=3))
            except QueueClosed:
                return
            if rng.random() < 0.3:
                await asyncio.sleep(0)

    readers = [asyncio.create_task(read()) for _ in range(2)]
    await asyncio.wait_for(asyncio.gather(*(write(writer) for writer in range(3))), 20)
    queue.close()
    await asyncio.wait_for(asyncio.gather(*readers), 20)
    assert sorted(seen) == [(writer, number) for writer in range(3) for number in range(30)]

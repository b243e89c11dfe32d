"""All streams together make so much in one turn of the event loop; the rest waits in line."""

from __future__ import annotations

import asyncio

from tests.waiting import PATIENCE_S
from tidb_binlog.door.server.fair_share import MESSAGE_BYTES_MIN, TURN_BYTES, FairShare


async def test_a_turn_is_shared_and_the_next_one_goes_on_in_order() -> None:
    fair_share = FairShare()
    free = 0
    while fair_share.take(None, 1) is None:
        free += 1
    assert free == -(-TURN_BYTES // MESSAGE_BYTES_MIN)
    order: list[int] = []

    async def make(number: int, messages: int) -> None:
        for _ in range(messages):
            turn = fair_share.take(number, 1)
            if turn is not None:
                await turn
            order.append(number)

    await asyncio.gather(*(make(number, free) for number in range(3)))
    assert len(order) == 3 * free
    # Nobody made all of theirs before another one had its first.
    assert max(order.index(number) for number in range(3)) <= 2 * free


async def test_a_write_comes_between() -> None:
    """Callbacks that become ready meanwhile run after one turn's work, not after all of it."""
    fair_share = FairShare()
    made = 0
    seen: list[int] = []

    async def stream() -> None:
        nonlocal made
        me = object()
        for _ in range(1000):
            turn = fair_share.take(me, 1)
            if turn is not None:
                await turn
            made += 1

    streams = [asyncio.create_task(stream()) for _ in range(10)]
    await asyncio.sleep(0)
    for _ in range(3):
        before = made
        done = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(done.set_result, None)
        await done
        seen.append(made - before)
    assert max(seen) <= 3 * (TURN_BYTES // MESSAGE_BYTES_MIN + 1)
    await asyncio.gather(*streams)
    assert made == 10_000


async def test_who_gives_up_waiting_takes_nothing() -> None:
    fair_share = FairShare()
    while (turn := fair_share.take(None, TURN_BYTES)) is None:
        pass
    turn.cancel()
    second = fair_share.take(None, 1)
    assert second is not None
    await asyncio.wait_for(second, PATIENCE_S)

"""What works beside a stream: the first failure stays, and ends every wait."""

from __future__ import annotations

import asyncio

import pytest

from drainer.sink.background import Background
from tidb_binlog.errors import DownstreamError, Unavailable


async def test_a_wait_ends_when_its_condition_is_true() -> None:
    background, done = Background(), list[int]()
    waiting = asyncio.create_task(background.until(lambda: bool(done)))
    await asyncio.sleep(0)
    background.wake()  # something else has changed
    await asyncio.sleep(0)
    assert not waiting.done()
    done.append(1)
    background.wake()
    await waiting


async def test_the_first_failure_ends_every_wait() -> None:
    background = Background()
    waits = [asyncio.create_task(background.until(lambda: False)), asyncio.create_task(background.watch())]
    await asyncio.sleep(0)
    background.fail(Unavailable("first"))
    background.fail(DownstreamError("second"))
    for wait in waits:
        with pytest.raises(Unavailable, match="first"):
            await wait
    with pytest.raises(Unavailable, match="first"):
        await background.until(lambda: False)
    await background.until(lambda: True)

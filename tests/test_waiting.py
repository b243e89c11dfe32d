"""A wait gives what it waited for, and says what did not come."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes import virtual_time
from tests.waiting import PATIENCE_S, until, until_here


def test_what_comes_is_given() -> None:
    async def main() -> None:
        loop, came = asyncio.get_running_loop(), [0]
        loop.call_later(PATIENCE_S / 2, came.append, 7)
        assert await until(lambda: came[-1]) == 7
        assert await until(lambda: asyncio.sleep(0, "slow")) == "slow"

    virtual_time.run(main())
    assert until_here(lambda: 8) == 8


@pytest.mark.parametrize(("what", "said"), [("", "never == 1"), ("the end", "come: the end$")])
def test_what_does_not_come_is_said(what: str, said: str) -> None:
    never = 0
    with pytest.raises(AssertionError, match=said):
        virtual_time.run(until(lambda: never == 1, what))
    with pytest.raises(AssertionError, match=said):
        until_here(lambda: never == 1, what, seconds=0)


def test_what_a_task_ended_with_is_raised_at_once() -> None:
    async def main() -> None:
        task = asyncio.create_task(asyncio.wait_for(asyncio.Event().wait(), 1.0))
        with pytest.raises(TimeoutError):
            await until(lambda: False, beside=[task])
        assert asyncio.get_running_loop().time() < 2.0

    virtual_time.run(main())

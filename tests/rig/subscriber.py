"""Subscriber: a program in a process of its own; it keeps a mirror of all tables.

    python -m binlog_playground.subscriber ENDPOINT FILE

Its position is in the mirror, with the rows; the registry has it too, so that pumps keep what it needs.

Tests  tests/deploy/binlog_playground/test_run.py
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

import drainer
from tests.rig.mirror import Mirror

NAME: Final = "subscriber"
QUIET_S: Final = 0.5


async def follow(endpoint: str, mirror: Mirror) -> None:
    """Until cancelled."""
    start = mirror.position or "oldest"
    async with drainer.subscribe(endpoint, start=start, name=NAME) as stream:
        while True:
            try:
                change = await asyncio.wait_for(anext(stream), QUIET_S)
            except TimeoutError:
                mirror.passed(stream.position)
                continue
            mirror.take(change)
            await stream.done(change)


def main(endpoint: str, path: str) -> None:
    asyncio.run(follow(endpoint, Mirror(Path(path))))


if __name__ == "__main__":
    main(*sys.argv[1:])

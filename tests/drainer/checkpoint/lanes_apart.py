"""A life that dies while one lane is held back, for tests of the start after it."""

from __future__ import annotations

import asyncio

from drainer.mysql.connection import Target
from drainer.stream.rules.rule_set import Rules
from tests.drainer.support.basis_world import Running, Upstream, held, lanes, routes


async def apart(
    upstream: Upstream,
    target: Target,
    blocker: str,
    ahead: int,
    rules: Rules | None = None,
    *,
    first_ts: int = 1000,
    upto_ts: int = 1 << 60,
) -> Running:
    """A life with all tables made and the other lane at the end, while `blocker` holds one back. Dead."""
    life = Running(upstream, target, rules or routes())
    life.give(first_ts)
    await life.applied()
    with held(target, blocker):
        life.give(upto_ts)
        await life.reaches(ahead, max(lanes(target)) + 1)
        last = [one.commit_ts for one in upstream.recording.entries if one.commit_ts <= upto_ts][-1]
        await asyncio.sleep(0.2)
        assert lanes(target)[1 - ahead] < last
        await life.kill()
    return life

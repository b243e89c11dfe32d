"""Insistence: a step that decides a transaction, asked again after a broken connection.

Drives  the step; what was decided gives the same answer
Stops   after `DECIDE_S`, and when the publisher closes
Never   takes the lack of an entry for a rollback once an attempt had no answer: that one may have committed,
        and what others have dropped since is not there any more
Tests   tests/pumpclient/publish/test_publisher_crashes.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from pumpclient.errors import OutcomeUnknown
from pumpclient.tasks import Pauses
from tidb_binlog.clock import Clock
from tidb_binlog.errors import Unavailable
from tidb_binlog.upstream.standalone import Forgotten

DECIDE_S: Final = 10.0
DECIDE_PAUSE_S: Final = 0.2


class Insistence:
    """One publisher's."""

    def __init__(self, clock: Clock, pauses: Pauses, stopping: asyncio.Event) -> None:
        self._clock = clock
        self._pauses = pauses
        self._stopping = stopping

    async def on(self, step: Callable[[], Awaitable[int]]) -> int:
        """What the step returns. Raises what it raises, and `OutcomeUnknown`."""
        give_up_s = self._clock.monotonic_s() + DECIDE_S
        unanswered: Unavailable | None = None
        while True:
            try:
                return await step()
            except Unavailable as error:
                unanswered = error
                if self._stopping.is_set() or self._clock.monotonic_s() + DECIDE_PAUSE_S > give_up_s:
                    raise
            except Forgotten as error:
                if unanswered is None:
                    raise
                raise OutcomeUnknown(
                    f"its commit had no answer ({unanswered.message}), and now: {error.message}",
                    hint="see downstream whether its rows are there before it is run again",
                ) from error
            await self._pauses.pause(DECIDE_PAUSE_S, self._stopping)

"""Batch taking: the merged stream, a batch at a time, until whoever takes is told to stop.

Owns    the wait for the next batch, which `stop` ends
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from drainer.merger import MergedBatch


class BatchTaking:
    """One consumer. Cancelling it for another reason than `stop` passes through."""

    def __init__(self) -> None:
        self._stopping = False
        self._next: asyncio.Future[MergedBatch] | None = None

    def is_stopping(self) -> bool:
        return self._stopping

    async def take(self, batches: AsyncIterator[MergedBatch]) -> MergedBatch | None:
        """The next batch; None when there is none or the taker is to stop."""
        if self.is_stopping():
            return None
        self._next = asyncio.ensure_future(anext(batches))
        try:
            return await self._next
        except StopAsyncIteration:
            return None
        except asyncio.CancelledError:
            if self.is_stopping():
                return None
            raise

    def stop(self) -> None:
        """No batch from now on; a wait for one ends."""
        self._stopping = True
        if self._next is not None:
            self._next.cancel()

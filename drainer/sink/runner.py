"""Batch taking: the merged stream, a batch at a time, until whoever takes is told to stop.

Owns    the wait for the next batch, which `stop` ends and `wake` interrupts: the batch comes with the next
        take
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from drainer.pull.merged import MergedBatch


class BatchTaking:
    """One consumer. Cancelling it for another reason than `stop` passes through."""

    def __init__(self) -> None:
        self._stopping = False
        self._next: asyncio.Future[MergedBatch] | None = None
        self._woken = asyncio.Event()

    def is_stopping(self) -> bool:
        return self._stopping

    async def take(self, batches: AsyncIterator[MergedBatch]) -> MergedBatch | None:
        """The next batch, an empty one after `wake`; None when there is none or the taker is to stop."""
        if self.is_stopping():
            return None
        following = self._next or asyncio.ensure_future(anext(batches))
        if following is not self._next:
            self._next = following
            following.add_done_callback(lambda _done: self._woken.set())
        try:
            await self._woken.wait()
            self._woken.clear()
            if not following.done():
                return MergedBatch([], 0)
            self._next = None
            return following.result()
        except StopAsyncIteration:
            return None
        except asyncio.CancelledError:
            if self.is_stopping():
                return None
            self._cancel()
            raise

    def wake(self) -> None:
        """Let a wait for a batch end with an empty one."""
        self._woken.set()

    def stop(self) -> None:
        """No batch from now on; a wait for one ends."""
        self._stopping = True
        self._cancel()

    def _cancel(self) -> None:
        if self._next is not None:
            self._next.cancel()

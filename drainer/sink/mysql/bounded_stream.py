"""Bounded stream: a stream that has an end goes through the MySQL sink, with what works beside it.

Out    whether all of it is downstream and stored
Stops  `stop` ends it early: what was begun is committed, lanes say where they are
Tests  tests/drainer/app/test_recovery.py, tests/drainer/reparo/test_applying.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Final

from drainer.mysql.refusal import RowsRefused
from drainer.sink.mysql.mysql_sink import MysqlSink
from drainer.sink.runner import Runner
from drainer.stream.pull.merged import MergedBatch

DEADLINE_S: Final = 600.0


async def run_to_end(
    runner: Runner[MysqlSink],
    batches: AsyncIterator[MergedBatch],
    *beside: Coroutine[Any, Any, None],
    stop: asyncio.Event | None = None,
    deadline_s: float = DEADLINE_S,
    stores_refused: bool = False,
) -> tuple[list[dict[str, Any]], bool]:
    """What still waits for a decision after the end, and whether the sink finished in `deadline_s`.

    `beside` does not end by itself. Raises the first error, after everything is closed. `stores_refused`:
    where rows were refused, that their table waits is stored before that is raised.
    """
    waiting: list[dict[str, Any]] = []

    async def through() -> None:
        await runner.run(batches)
        if stop is None or not stop.is_set():
            waiting[:] = await runner.sink.finish_waiting()

    works = [through(), runner.watch(), runner.keep_checkpoint(), runner.sink.quarantine.run(), *beside]
    if stop is not None:
        works.append(_set(stop))
    tasks: list[asyncio.Task[Any]] = [asyncio.create_task(work) for work in works]
    cause: BaseException | None = None
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        cause = next((error for task in done if (error := task.exception())), None)
    except asyncio.CancelledError as error:
        cause = error
    for task in tasks[1:]:
        task.cancel()
    await asyncio.gather(*tasks[1:], return_exceptions=True)
    if stores_refused and isinstance(cause, RowsRefused):
        tasks[0].cancel()
        await asyncio.gather(tasks[0], return_exceptions=True)
        await runner.sink.abandon(cause)
        raise cause
    try:
        drained = await runner.stop(deadline_s)
    except Exception as error:
        raise cause or error from None
    finally:
        await asyncio.gather(tasks[0], return_exceptions=True)
    if cause is not None:
        raise cause
    return waiting, drained


async def _set(event: asyncio.Event) -> None:
    await event.wait()

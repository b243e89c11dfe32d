"""Build of a batch sink, of the Drainer or of somebody: from its object to a stream that is written to it.

Order   the data directory's lock, so that one process writes there; the sink is opened and says where it is,
        or the savepoint does; then the schema of there, and what drives the sink

Tests  tests/drainer/app/test_build_own.py, tests/integration/sinks/test_own_sink.py
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

from drainer.app.build import BuildContext
from drainer.app.savepoint_start import Place, SavepointStart
from drainer.checkpoint.savepoint import SNAPSHOT_NAME
from drainer.checkpoint.value import Checkpoint
from drainer.points.rows.snapshot_position import ROWS_MAX
from drainer.reading.archive.decode.definitions import of_schema
from drainer.sink.batch.batched_sink import BatchedSink
from drainer.sink.batch.batching import Item
from drainer.sink.batch.sink_writer import Raised, SinkWriter, is_retriable, words_of
from drainer.sink.runner import Runner
from drainer.stream.translate.translator import Translator
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import Corruption, DirectoryLocked, DownstreamError, Unavailable
from tidb_binlog.filesystem import lock
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("drainer.build_batch")

LOCK_NAME: Final = "savepoint.lock"
LOCK_WAIT_S: Final = 15.0
LOCK_PAUSE_S: Final = 0.2

Convert = Callable[[Sequence[Item]], Sequence[Any]]


async def build_batch(
    context: BuildContext,
    sink: Any,
    name: str,
    convert: Convert,
    follow: Callable[[Translator], None] = lambda _translator: None,
    check_begin: Callable[[Sequence[tuple[str, str]], Ts], None] = lambda _names, _begin_ts: None,
) -> Runner[BatchedSink]:
    """`sink` is made, and not open yet; `follow` is told what translates. `check_begin`: whether a stream of
    which nothing is stored may begin now, with tables of these names downstream. Raises `DownstreamError`,
    `Unavailable`, `Corruption`, and as it."""
    clock = SystemClock()
    begin = SavepointStart(context)
    await lock_data_dir(context, clock)
    writer = SinkWriter(sink, name, convert, clock, ended=context.operating.end)
    context.ends.push_async_callback(writer.end)
    position = await context.operating.wait_for(lambda: _opened(writer))
    stored = await begin.stored()
    first = await begin.first_rows(stored, position)
    place = await begin.place(
        lambda initial_ts: (
            Place(first.ts - 1) if first is not None else where_to_begin(name, position, stored, initial_ts)
        ),
        f"the sink {name}",
        "check pd-urls; after restoring the upstream the sink's position has to be set back, too",
    )
    logger.info("sink", name=name, commit_ts=place.commit_ts, stores_position=position is not None)
    translator = await begin.translator(place)
    if stored is None and first is None and context.settings.initial_commit_ts == -1:
        names = [table.version.downstream for table in of_schema(begin.tracker, begin.rules)]
        check = functools.partial(asyncio.to_thread, check_begin, names, place.commit_ts)
        await context.operating.wait_for(check)
    follow(translator)
    batched = BatchedSink(
        writer,
        *place,
        begin.savepoint,
        begin.policy,
        clock,
        stores_position=position is not None,
    )
    return begin.runner(batched, translator)


async def _opened(writer: SinkWriter) -> int | None:
    try:
        return await writer.open()
    except Raised as raised:
        words = f"the sink {writer.name} cannot be opened: {words_of(raised.error)}"
        if is_retriable(writer.sink, raised.error):
            raise Unavailable(words, hint="start-wait says for how long it is tried") from None
        logger.failure("the sink cannot be opened", raised.error, sink=writer.name)
        raise DownstreamError(words, hint="the log shows where it was raised") from None


def where_to_begin(name: str, position: int | None, stored: Checkpoint | None, initial_ts: Ts) -> Place:
    """`position`: what the sink says; None: it stores none. Raises `Corruption`."""
    saved = Place(stored.commit_ts, stored.schema_version) if stored and stored.commit_ts else None
    if position is None:
        return saved or Place(initial_ts)
    if 0 < position < ROWS_MAX:
        raise Corruption(
            f"the sink {name} is in the middle of a snapshot that {SNAPSHOT_NAME} in data-dir does not know",
            hint="restore data-dir; or begin anew with an empty store and an empty data-dir",
        )
    if saved is None:
        return Place(position or initial_ts)
    if position == 0:
        raise Corruption(
            f"the sink {name} has no position, but was at {saved.commit_ts}: what it stored is gone",
            hint="restore its store; or begin anew with another data-dir (initial-commit-ts says where)",
        )
    if position < saved.commit_ts:
        logger.warning(
            "the sink's store went back in time: all after its position is written again",
            sink=name,
            position=position,
            savepoint=saved.commit_ts,
        )
    return saved if position == saved.commit_ts else Place(position)


async def lock_data_dir(context: BuildContext, clock: Clock) -> None:
    """Until the end of this build. Raises `DirectoryLocked` when another process holds it for too long."""
    path = os.path.join(context.settings.data_dir, LOCK_NAME)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    context.ends.callback(os.close, descriptor)
    end_s = clock.monotonic_s() + LOCK_WAIT_S
    while not lock(descriptor):
        if clock.monotonic_s() > end_s:
            raise DirectoryLocked(
                f"another drainer writes with the data directory {context.settings.data_dir}",
                hint="stop it, or give this one its own --data-dir",
            )
        await asyncio.sleep(LOCK_PAUSE_S)

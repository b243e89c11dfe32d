"""First lives of a drainer with a relay log, after which another one recovers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from drainer.checkpoint.inspection import inspect
from drainer.checkpoint.store import CheckpointStore
from drainer.config.relay_format import PAYLOAD
from drainer.ddl.run.runner import DdlRunner
from drainer.mysql.connection import Target, connect
from drainer.mysql.errors import SessionError
from drainer.operate.control.pause_and_reload import Control
from drainer.relay.relay_log import RelayLog
from drainer.relay.source import RelaySchema
from drainer.sink.mysql.lane import LaneSettings
from drainer.sink.mysql.mysql_sink import mysql_sink
from drainer.sink.mysql.settings import ApplierSettings
from drainer.sink.runner import Runner
from drainer.stream.pull.merged import Merged, MergedBatch
from drainer.txn import INSERT, Ddl, Item, TableEvents, TableVersion, Transaction
from tests.common.rowcodec.tables import kind, table
from tests.drainer.support import relay_world as world
from tests.drainer.support.payloads import sent
from tidb_binlog.clock import SystemClock
from tidb_binlog.rowcodec.encoder import RowEncoder

KEYLESS = table(("a", kind("bigint")), ("b", kind("varchar")), handle="rowid")

KEYLESS_TABLE = TableVersion(KEYLESS, "once", "t", 1)


def keyless_stream(transactions: int, rows: int) -> list[Item]:
    """A table without key: a row that is applied twice shows."""
    encoder = RowEncoder(KEYLESS)
    create = "CREATE TABLE t (a BIGINT, b VARCHAR(9))"
    stream: list[Item] = [
        Ddl(10, 1, 1, "", "CREATE DATABASE once", (("once", ""),), 1),
        Ddl(11, 2, 3, "once", create, (("once", "t"),), 2),
    ]
    for number in range(transactions):
        encoded = [encoder.insert((number * rows + n, "x"), 1) for n in range(rows)]
        events = TableEvents(KEYLESS_TABLE, [INSERT] * rows, encoded, 0)
        stream.append(sent(Transaction(0, 100 + number, (events,), rows * 20)))
    return stream


class Killed(Exception):
    """Of the process, at a chosen time."""


class Stream:
    """Items for an applier, which is killed at one of them."""

    def __init__(self, stream: list[Item]) -> None:
        self._stream = {item.commit_ts: item for item in stream}

    def translate(self, merged: Merged) -> Item:
        return self._stream[merged.commit_ts]

    def pieces(self, spilled: object) -> Iterator[Transaction]:
        raise AssertionError("nothing is spilled here")


async def first_life(
    target: Target,
    path: Path,
    stream: list[Item],
    *,
    killed_at: int,
    form: str = PAYLOAD,
    lanes: int = 2,
    rows_min: int = 0,
) -> None:
    """A drainer with a relay log; kill -9 at an item, whatever was committed by then, `rows_min` at least."""
    store = CheckpointStore(target, world.CLUSTER_ID, schema=world.SCHEMA)
    start = store.start(lanes, 1, stream[-1].commit_ts)
    log = RelayLog.open(str(path), 4000, SystemClock(), form=form)
    source = Stream(stream)
    sink = mysql_sink(
        start,
        store,
        target,
        DdlRunner(target, RelaySchema()),
        ApplierSettings(LaneSettings(batch_rows=7)),
        SystemClock(),
        world.quarantine_setup(store, start, target, RelaySchema(), path.parent),
        relay=log,
    )

    async def batches() -> AsyncIterator[MergedBatch]:
        for number, item in enumerate(stream):
            if number == killed_at:
                while rows_min and count(target)[0] < rows_min:
                    await asyncio.sleep(0.01)
                raise Killed
            yield MergedBatch([Merged(item.commit_ts, b"")], item.commit_ts)
            if number % 5 == 0:
                await sink.save()

    with pytest.raises(Killed):
        await Runner(sink, source, Control(SystemClock())).run(batches())
    await sink.lanes.now.end(drained=False)
    await sink.keeper.close()
    await log.close()
    store.close()


def count(target: Target) -> tuple[int, int]:
    connection = connect(target)
    ((rows, different),) = connection.rows(b"SELECT COUNT(*), COUNT(DISTINCT a) FROM once.t")
    connection.close()
    return int(rows), int(different)


def end_sessions(target: Target) -> None:
    connection = connect(target)
    for session in inspect(target, world.SCHEMA, world.CLUSTER_ID).sessions:
        with contextlib.suppress(SessionError):
            connection.run(b"KILL CONNECTION %d" % session)
    connection.close()

"""A row that cannot be read: the stream ends before it, whoever goes on reading."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drainer import txn
from drainer.changes.model import Row
from drainer.reading.subscribe.named_reader import NameTaken
from drainer.reading.subscribe.subscription import Change, Subscription
from tests.drainer.reading.subscribe.streams import Cluster
from tidb_binlog.errors import Corruption
from tidb_binlog.rowcodec.row_error import RowError

PLACE = 12
"""Of the transaction that is broken, among all items."""


async def one_by_one(stream: Subscription, changes: list[Change]) -> None:
    async for change in stream:
        list(getattr(change, "rows", ()))
        changes.append(change)


async def by_handfuls(stream: Subscription, changes: list[Change]) -> None:
    while found := await stream.take(1000):
        for change in found:
            list(getattr(change, "rows", ()))
            changes.append(change)


@pytest.mark.parametrize("read", [one_by_one, by_handfuls])
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
async def test_nothing_behind_a_broken_row_is_given(read: Any, seed: int, tmp_path: Path) -> None:
    """Large transactions are broken while they are iterated."""
    cluster = Cluster("basic", seed, tmp_path)
    serving = asyncio.create_task(cluster.serve())
    live = cluster.open(0)
    stream = Subscription(SimpleNamespace(live=live, ended=None))  # type: ignore[arg-type]
    whole = stream._reader.rows
    seen: list[int] = []

    def rows(events: txn.TableEvents) -> list[Row]:
        seen.append(len(seen))
        if len(seen) == PLACE:
            raise RowError("row of table t (7), column a: cut")
        return whole(events)

    stream._reader.rows = rows  # type: ignore[method-assign]
    changes: list[Change] = []
    try:
        for _ in range(3):
            with pytest.raises(Corruption, match=r"transaction with commit_ts \d+: row of table t"):
                await read(stream, changes)
        assert len(seen) == PLACE, "nothing behind it is read"
        last_ts = max(change.commit_ts for change in changes)
        assert last_ts <= live.position, "everything before it was given"
        with pytest.raises(Corruption) as raised:
            live.ready()
        assert str(live.position + 1) in raised.value.message, "the position is right before it"
    finally:
        await live.close()
        serving.cancel()


@pytest.mark.parametrize("read", [anext, lambda stream: stream.take(1)])
async def test_a_reader_that_lost_its_name_gives_nothing_more(read: Any) -> None:
    """Found out by the program's own `done`, before any beat."""
    stream = Subscription(SimpleNamespace(ended=NameTaken("search is another process's")))  # type: ignore[arg-type]
    with pytest.raises(NameTaken):
        await read(stream)

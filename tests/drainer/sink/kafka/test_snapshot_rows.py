"""Rows of a snapshot in Kafka: acknowledged when they count, sent again after a kill, whatever is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from drainer.formats.messages.message import open_format
from drainer.points.rows.snapshot_position import SnapshotPosition
from drainer.txn import INSERT, LargeTransaction
from tests.drainer.formats.messages.changes import ROW, VERSION, transaction
from tests.drainer.support.archive_life import Ready
from tests.drainer.support.kafka_life import TOPIC, Life
from tests.fakes.kafka import MockKafka


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    cluster = MockKafka()
    cluster.create(TOPIC)
    yield cluster
    cluster.close()


def chunk(first: int) -> LargeTransaction:
    """One row of a snapshot, which is its `first`."""
    row = transaction(VERSION, (INSERT, ROW), first=first)
    text = SnapshotPosition(row.commit_ts, first + 1).text()
    return LargeTransaction(row.commit_ts, row.commit_ts, 1, lambda: iter([replace(row, snapshot=text)]))


@pytest.mark.parametrize("name", ["", "canal-json"])
async def test_what_comes_again_is_sent_again(kafka: MockKafka, tmp_path: Path, name: str) -> None:
    """Other rows may have gone to the partition since the place where a killed drainer goes on."""
    for taken in ((0, 1), (0, 1, 2)):
        life = Life(kafka.servers, tmp_path, Ready([]), form=open_format(name) if name else None)
        await life.sink.open(TOPIC)
        for first in taken:
            await life.sink.take_snapshot(chunk(first), is_end=first == 2)
            assert life.sink.facts()["Kafka"]["unacknowledged"] == 0
        assert life.sink.handed_over_ts == (chunk(0).commit_ts if 2 in taken else 0)
        await life.sink.save()
        assert life.sink.stored_ts == life.sink.handed_over_ts
        await life.die()
    messages = kafka.messages(TOPIC)
    assert len(messages) == 5
    assert all(dict(message.headers)["snapshot"] == b"1" for message in messages)


async def test_its_end_is_stored_at_once_with_transactions(kafka: MockKafka, tmp_path: Path) -> None:
    """What says how far the snapshot came is removed then: without a savepoint it would begin again."""
    life = Life(kafka.servers, tmp_path, Ready([]), client={"transactional_id": "one"}, transactions=True)
    await life.sink.open(TOPIC)
    for first in range(2):
        assert life.sink.stored_ts == 0
        await life.sink.take_snapshot(chunk(first), is_end=first == 1)
        await life.sink.save()
    assert life.sink.stored_ts == chunk(0).commit_ts
    await life.die()
    assert len(kafka.messages(TOPIC)) == 2

"""Lives of a Kafka sink on ready-made items and a mock cluster: run, end anywhere, look at what is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from drainer.app import build_kafka
from drainer.checkpoint.savepoint import Savepoint
from drainer.ddl.policy import Policy
from drainer.formats.messages.message import MessageFormat
from drainer.formats.obinlog.writer import ObinlogWriter
from drainer.operate.control.pause_and_reload import Control
from drainer.sink.kafka.client import Client, TopicFacts
from drainer.sink.kafka.kafka_sink import KafkaSink
from drainer.sink.kafka.settings import ClientSettings, SinkSettings
from drainer.sink.kafka.window import Mark
from drainer.sink.runner import Runner
from drainer.stream.pull.merged import MergedBatch
from drainer.txn import Ddl, Item, Transaction
from tests.drainer.support.archive_life import Ready, merged_of
from tests.drainer.support.relay_world import items
from tests.fakes.kafka import Message
from tests.waiting import PATIENCE_S
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.wire import secondary_binlog_pb2 as pb

TOPIC = "changes"
EVER = 1 << 62
UNTOLD = TopicFacts()


def few(scenario: str = "basic", count: int = 60) -> list[Item]:
    return list(items(scenario))[:count]


def payloads(stream: Sequence[Item]) -> list[bytes]:
    """What the Go drainer sends."""
    writer = ObinlogWriter(bare=True)
    found = []
    for item in stream:
        if isinstance(item, Ddl):
            if not item.skip:
                found.append(writer.ddl(item, item.query))
        elif item.tables:
            found.append(writer.transaction(item))
    return found


def values(messages: Sequence[Message]) -> list[bytes]:
    return [message.value for message in messages]


def tables_of(messages: Sequence[Message]) -> list[Any]:
    """(commit_ts, schema, table, mutations) in order, tables that a cut went through joined again."""
    found: list[Any] = []
    for message in messages:
        binlog = pb.Binlog.FromString(message.value)
        for table in binlog.dml_data.tables:
            name = (binlog.commit_ts, table.schema_name, table.table_name)
            mutations = [one.SerializeToString() for one in table.mutations]
            if found and found[-1][0] == name:
                found[-1][1].extend(mutations)
            else:
                found.append((name, mutations))
    return found


def with_large_one() -> tuple[list[Item], Transaction]:
    stream: list[Item] = [one for one in items("txn") if isinstance(one, Transaction) and one.tables]
    large = max((one for one in stream if isinstance(one, Transaction)), key=lambda one: one.size_bytes)
    small = [one for one in stream if isinstance(one, Transaction) and one.size_bytes < 5000]
    before = [one for one in small if one.commit_ts < large.commit_ts]
    after = [one for one in small if one.commit_ts > large.commit_ts]
    return [*before[-5:], large, *after[:5]], large


class Life:
    """One run, from the savepoint in `directory`. `client`: more settings of it. `facts` are what brokers say
    of each topic, None: they are asked, which the mock cluster does not know."""

    def __init__(
        self,
        servers: str,
        directory: Path,
        source: Ready,
        *,
        topic: str = TOPIC,
        client: dict[str, Any] | None = None,
        clock: Clock | None = None,
        form: MessageFormat | None = None,
        claim_check: str = "",
        past_ts: int = EVER,
        facts: TopicFacts | None = UNTOLD,
        **settings: Any,
    ) -> None:
        self.source = source
        savepoint = Savepoint(str(directory))
        stored = savepoint.load()
        start = Mark(stored.commit_ts, stored.schema_version) if stored else Mark(0, 0)
        line = build_kafka.Line()
        self.client = Client(ClientSettings(servers, **(client or {})), line.answered, line.trouble)
        if facts is not None:
            self.client.topic_facts = lambda topic: facts  # type: ignore[method-assign]
        if settings.get("transactions"):
            self.client.begin_producing()
        self.sink: KafkaSink = build_kafka.assembled(
            start,
            self.client,
            line,
            savepoint,
            source.route,
            Policy(),
            clock or SystemClock(),
            SinkSettings(topic, **settings),
            data_dir=str(directory),
            form=form,
            claim_check=claim_check,
            past_ts=past_ts,
        )
        self.start_ts = start.commit_ts
        self.runner = Runner(self.sink, source, Control(SystemClock()))

    async def batches(self, size: int = 10) -> AsyncIterator[MergedBatch]:
        rest = [item.commit_ts for item in self.source.stream if item.commit_ts > self.start_ts]
        for at in range(0, len(rest), size):
            entries = [merged_of(self.source, commit_ts) for commit_ts in rest[at : at + size]]
            yield MergedBatch(entries, entries[-1].commit_ts)

    async def run(self, size: int = 10) -> None:
        """To the end of the stream, or to the first error of the stream or beside it."""
        running = asyncio.ensure_future(self.runner.run(self.batches(size)))
        watching = asyncio.ensure_future(self.runner.watch())
        try:
            done, _ = await asyncio.wait([running, watching], return_when=asyncio.FIRST_COMPLETED)
        finally:
            running.cancel()
            watching.cancel()
            await asyncio.gather(running, watching, return_exceptions=True)
        for task in done:
            task.result()

    async def whole(self, size: int = 10) -> None:
        """To the end of the stream, and a graceful stop."""
        await self.run(size)
        assert await self.runner.stop(PATIENCE_S)

    async def die(self) -> None:
        """What is under way is given up."""
        await asyncio.to_thread(self.client.close, wait_s=0.0)


async def until_dead(life: Life, count: int) -> None:
    """Let it send so many messages, then nothing; what is under way is given up."""
    sent, send = 0, life.client.send
    over = asyncio.Event()

    def some(*arguments: Any) -> None:
        nonlocal sent
        sent += 1
        if sent <= count:
            send(*arguments)
        else:
            over.set()

    life.client.send = some  # type: ignore[method-assign]
    running = asyncio.ensure_future(life.run(size=3))
    waiting = asyncio.ensure_future(over.wait())
    await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
    running.cancel()
    waiting.cancel()
    await asyncio.gather(running, waiting, return_exceptions=True)
    await life.die()

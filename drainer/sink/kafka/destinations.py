"""Destinations: topics as the sink knows them: how many partitions each has, and what is in them already.

Owns    which topics are open, what their partitions had when the sink began
Order   a topic is asked for when the first message for it comes; while brokers are away that is waited for
Holds   what an earlier life stored is found in the partition where this one would send it

Tests  tests/drainer/sink/kafka/test_kafka_sink.py
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from drainer.sink.kafka.client import Denied
from drainer.sink.kafka.position import NOTHING, Position
from drainer.sink.kafka.routing import Topics, partition_of
from tidb_binlog import checked
from tidb_binlog.backoff import Backoff
from tidb_binlog.errors import ConfigError, DownstreamError, Unavailable
from tidb_binlog.filesystem import replace_file
from tidb_binlog.foreign_document import UNREADABLE
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

if TYPE_CHECKING:
    from drainer.sink.kafka.client import Client


logger = log.get("drainer.kafka")

PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 2.0
T = TypeVar("T")


class Place(NamedTuple):
    """`stored`: what the partition had when the sink began. `limit` of a message in bytes. `compacted`: what
    has no key is refused, and a key whose last message has no value is forgotten.
    """

    topic: str
    partition: int
    stored: Position
    limit: int
    compacted: bool


@dataclass(slots=True)
class Topic:
    """`grown`: the number of partitions to be in use after the next place without messages."""

    name: str
    count: int
    limit: int
    compacted: bool
    ends: dict[int, Position] = field(default_factory=dict)
    grown: int | None = None

    def place(self, partition: int) -> Place:
        stored = self.ends.get(partition, NOTHING)
        return Place(self.name, partition, stored, self.limit, self.compacted)


class Destinations:
    """`limit` of a message in bytes, less where a topic's is. `past_ts`: nothing above it was sent by an
    earlier life. `insists`: without knowing what is there nothing is sent. `report` is told what is waited
    for, "" when it is over."""

    def __init__(
        self,
        brokers: Client,
        topics: Topics,
        counts: PartitionCounts,
        by: str,
        *,
        limit: int,
        past_ts: Ts,
        insists: bool,
        report: Callable[[str], None],
    ) -> None:
        self._brokers = brokers
        self._topics = topics
        self._counts = counts
        self._by = by
        self._limit = limit
        self.past_ts = past_ts
        self._insists = insists
        self._report = report
        self._open: dict[str, Topic] = {}

    @property
    def opened(self) -> list[Topic]:
        return list(self._open.values())

    @property
    def grown(self) -> bool:
        return any(topic.grown is not None for topic in self._open.values())

    async def place(self, schema: str, table: str, key: bytes | None, commit_ts: Ts) -> Place:
        """Where a message goes. Raises `DownstreamError`, `Denied`."""
        name = self._topics.of(schema, table)
        topic = self._open.get(name) or await self.topic(name, commit_ts)
        return topic.place(partition_of(self._by, topic.count, schema, table, key, commit_ts))

    async def topic(self, name: str, commit_ts: Ts) -> Topic:
        topic = self._open.get(name)
        if topic is None:
            topic = await self._opened(name, is_past=commit_ts <= self.past_ts)
            self._open[name] = topic
        return topic

    async def _opened(self, name: str, *, is_past: bool) -> Topic:
        partitions = await self._patiently(lambda: self._brokers.partitions(name))
        kept = self._counts.of(name)
        count = min(kept or partitions, partitions) if self._by else 1
        facts = await asyncio.to_thread(self._brokers.topic_facts, name)
        limit = min(self._limit, facts.limit or self._limit)
        topic = Topic(
            name, count, limit, facts.compacted, grown=partitions if self._by and partitions > count else None
        )
        if kept is not None and partitions < kept:
            logger.warning("a topic has fewer partitions than it had", topic=name, had=kept, has=partitions)
        if self._by and kept != count:
            await asyncio.to_thread(self._counts.store, name, count)
        if is_past:
            topic.ends = await self._ends(topic)
        logger.info(
            "topic",
            topic=name,
            partitions=count,
            ends=len(topic.ends),
            limit=limit,
            compacted=facts.compacted,
        )
        return topic

    async def _ends(self, topic: Topic) -> dict[int, Position]:
        try:
            ends = await self._patiently(lambda: self._brokers.ends(topic.name, topic.count))
        except Denied as error:
            if self._insists:
                raise
            logger.warning(
                "the end of a topic may not be read: what was not in the checkpoint yet comes again",
                topic=topic.name,
                reason=error.message,
            )
            return {}
        foreign = [end for end in ends if end.position is None]
        if foreign and self._insists:
            raise DownstreamError(
                f"topic {topic.name}, partition {foreign[0].partition}, ends with a message that no drainer"
                f" wrote (offset {foreign[0].offset}): what is there cannot be known",
                hint="use a topic of the drainer's own, or set syncer.to.exactly-once = false",
            )
        for end in foreign:
            logger.warning(
                "a partition ends with a foreign message: what the checkpoint had not comes again",
                topic=topic.name,
                partition=end.partition,
                offset=end.offset,
            )
        return {end.partition: end.position for end in ends if end.position is not None}

    async def _patiently(self, ask: Callable[[], T]) -> T:
        backoff = Backoff(PAUSE_S, PAUSE_MAX_S)
        while True:
            try:
                answer = await asyncio.to_thread(ask)
            except Unavailable as error:
                self._report(error.message)
                await asyncio.sleep(backoff.next_s())
                continue
            self._report("")
            return answer

    async def every_topic(self) -> list[Topic]:
        """Every topic that this life or an earlier one sent something to."""
        for name in self._counts.topics:
            await self.topic(name, 0)
        return self.opened

    async def answer(self) -> bool:
        """Whether brokers answer for every topic."""
        try:
            for topic in self.opened:
                await asyncio.to_thread(self._brokers.partitions, topic.name)
        except (Unavailable, DownstreamError):
            return False
        return True

    # -- topics that grow ----------------------------------------------------------------------------

    async def look(self) -> None:
        """Find out which topics have grown. Brokers that are away are asked another time."""
        if not self._by:
            return
        for topic in self.opened:
            try:
                partitions = await asyncio.to_thread(self._brokers.partitions, topic.name)
            except Unavailable:
                return
            if partitions > topic.count:
                topic.grown = partitions

    async def spread(self) -> None:
        """Everything sent is acknowledged, and the checkpoint stored: use what has grown."""
        for topic in self.opened:
            if topic.grown is not None:
                await asyncio.to_thread(self._counts.store, topic.name, topic.grown)
                logger.info("a topic has grown", topic=topic.name, had=topic.count, partitions=topic.grown)
                topic.count, topic.grown = topic.grown, None

    def leave_past(self) -> None:
        """Nothing that comes was sent by an earlier life."""
        for topic in self._open.values():
            topic.ends = {}


# Partition counts: how many partitions of each topic are in use, as it stays until a place without messages.
#     DATA-DIR/kafka-partitions.json    {"topic": count}, and a checksum
# Why    a key's partition depends on their number. A topic that grows is spread anew only where everything
#        sent before is acknowledged and the checkpoint is behind it: so what comes again after a crash goes
#        to the partition where it may be already, and changes of a key are stored in their order
# Holds  the file is written before the first message under a new number

NAME: Final = "kafka-partitions.json"


class PartitionCounts:
    """Raises `ConfigError` for a file that cannot be read."""

    def __init__(self, data_dir: str) -> None:
        self._path = os.path.join(data_dir, NAME)
        self._counts: dict[str, int] = {}
        try:
            with open(self._path, encoding="utf-8") as file:
                counts = json.loads(checked.read_text(file.read()))
            self._counts = {str(topic): int(count) for topic, count in counts.items()}
        except FileNotFoundError:
            pass
        except (OSError, AttributeError, TypeError, *UNREADABLE) as error:
            raise ConfigError(
                f"{self._path} cannot be read: {error}",
                hint="restore it; without it keys of topics that have grown may move to other partitions",
            ) from None

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self._counts)

    def of(self, topic: str) -> int | None:
        return self._counts.get(topic)

    def store(self, topic: str, count: int) -> None:
        """Durable when it returns. Raises `OSError`."""
        counts = {**self._counts, topic: count}
        replace_file(self._path, checked.text(json.dumps(counts, indent=1) + "\n").encode(), 0o644)
        self._counts = counts

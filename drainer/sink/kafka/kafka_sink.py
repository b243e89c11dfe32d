"""Kafka sink: what the stream brings goes into topics, as messages.

Owns    where in the stream it is, and the large transaction that is under way
Order   messages of a partition are in the order of the stream; a DDL follows when all before it is
        acknowledged, and is acknowledged before what follows it. The savepoint moves behind acknowledgements
Holds   what is in a partition is not sent to it again: its last message says where it stands. Bytes and
        messages under way are bounded. Brokers that are away are waited for, without an end
Stops   waits for what was sent, stores `consistent = true`. A message that is given up ends the stream: it
        begins again, from what is stored, with another client

Tests  tests/drainer/sink/kafka/test_kafka_sink.py, tests/contract/test_sink.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from drainer import metrics
from drainer.ddl.derive.values import Route
from drainer.ddl.policy import Policy
from drainer.ddl.rules import Rule
from drainer.sink import Sink
from drainer.sink.background import Background
from drainer.sink.ddl_text import statements_of
from drainer.sink.kafka.client import Answered, DeliveryBroken
from drainer.sink.kafka.destinations import Destinations, Place
from drainer.sink.kafka.feed import Feed, Sendable
from drainer.sink.kafka.messages import Envelope
from drainer.sink.kafka.settings import BATCH_BYTES, SinkSettings
from drainer.sink.kafka.window import Mark, Window
from drainer.sink.savepoint_keeper import SavepointKeeper
from drainer.stream.pull.merged import Spilled
from drainer.txn import Ddl, LargeTransaction, Transaction
from tidb_binlog.clock import Clock
from tidb_binlog.errors import BinlogError
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

if TYPE_CHECKING:
    from drainer.sink.kafka.client import Client


logger = log.get("drainer.kafka")

LOOK_S: Final = 60.0
STUCK_S: Final = 120.0
"""So long brokers answer and acknowledge nothing until the client is replaced: librdkafka can stay with a
partition's former leader for ever. More than its requests take at most."""


class KafkaSink(Sink):
    """`route` says where a table goes. The client tells `answered` and `trouble` on its own thread."""

    verb = "producing"
    rebuilt_after = (DeliveryBroken,)

    def __init__(
        self,
        start: Mark,
        client: Client,
        destinations: Destinations,
        feed: Feed,
        savepoint: SavepointKeeper,
        route: Route,
        policy: Policy,
        clock: Clock,
        settings: SinkSettings,
        background: Background,
    ) -> None:
        self.background = background
        self._client = client
        self._destinations = destinations
        self._feed = feed
        self._savepoint = savepoint
        self._route = route
        self._policy = policy
        self._clock = clock
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._window = Window(start)
        self._start = start
        self._committed = start
        self._batches: dict[tuple[str, int], tuple[int, int]] = {}
        self._in_transaction = False
        self._in_large = False
        self._stopping = False
        self._watermark_s = clock.monotonic_s()
        self._watermark_ts = 0
        self._progress_s = clock.monotonic_s()
        self._trouble = ""

    # -- what it tells -----------------------------------------------------------------------------

    @property
    def _reached(self) -> Mark:
        return self._committed if self._settings.transactions else self._window.reached

    @property
    def start_ts(self) -> Ts:
        return self._start.commit_ts

    @property
    def stored_ts(self) -> Ts:
        return self._savepoint.stored_ts

    @property
    def resolved_ts(self) -> Ts:
        return self._reached.commit_ts

    @property
    def handed_over_ts(self) -> Ts:
        return self._window.last.commit_ts

    @property
    def held_up(self) -> str:
        return f"waits for Kafka: {self._trouble}" if self._trouble else ""

    def facts(self) -> dict[str, Any]:
        return {
            "Kafka": {
                "waiting_for": self._trouble,
                "unacknowledged": self._window.unacknowledged,
                "unacknowledged_bytes": self._window.bytes,
                "topics": {topic.name: topic.count for topic in self._destinations.opened},
            }
        }

    def set_ddl_rules(self, rules: Sequence[Rule]) -> None:
        self._policy = Policy(rules)

    # -- what the client tells -----------------------------------------------------------------------

    def answered(self, answers: Sequence[Answered]) -> None:
        """On the client's thread, which may outlive the loop by a moment."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take_answers, answers)

    def trouble(self, text: str, error: BinlogError | None) -> None:
        """On the client's thread. `error`: it cannot go on with this client."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._note_trouble, text, error)

    def _take_answers(self, answers: Sequence[Answered]) -> None:
        self._progress_s = self._clock.monotonic_s()
        for number, error in answers:
            if error is None:
                self._window.acknowledged(number)
            else:
                self.background.fail(error)
        self.waits("")
        self.background.wake()

    def _note_trouble(self, text: str, error: BinlogError | None) -> None:
        if error is not None:
            self.background.fail(error)
        if not self._window.is_empty:
            self.waits(text)

    def waits(self, text: str) -> None:
        """What is waited for, "" when it is over."""
        if text and not self._trouble:
            logger.warning("waits for Kafka", reason=text, unacknowledged=self._window.unacknowledged)
        elif self._trouble and not text:
            logger.info("Kafka is there again")
        self._trouble = text

    # -- the stream ----------------------------------------------------------------------------------

    async def open(self, topic: str) -> None:
        """Before the stream begins, where there is one topic."""
        await self._destinations.topic(topic, 0)

    async def take(self, transaction: Transaction) -> Transaction | None:
        if transaction.commit_ts <= self._start.commit_ts:
            return None
        await self._send_all(self._feed.transaction(transaction))
        self._window.mark(transaction.commit_ts, 0)
        return transaction

    async def begin_large(self, spilled: Spilled, pieces: AsyncIterator[Transaction]) -> None:
        self._in_large = True
        await self._feed.begin_large(pieces)

    async def take_piece(self, piece: Transaction) -> Transaction | None:
        if piece.commit_ts <= self._start.commit_ts:
            return None
        await self._send_all(self._feed.piece(piece))
        if piece.last:
            self._in_large = False
            self._window.mark(piece.commit_ts, 0)
        return piece

    async def take_snapshot(self, rows: LargeTransaction, *, is_end: bool) -> None:
        pieces = rows.pieces()
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            await self._send_all(self._feed.transaction(piece), again=True)
        if is_end:
            self._window.mark(rows.commit_ts, 0)
        await self._drained()

    async def take_ddl(self, ddl: Ddl) -> None:
        if ddl.commit_ts > self._start.commit_ts:
            statements, reason = statements_of(ddl, self._policy, self._route)
            if reason:
                logger.info("DDL left out", job_id=ddl.job_id, commit_ts=ddl.commit_ts, reason=reason)
            else:
                await self._drained()
                await self._send_all(self._feed.ddl(ddl, statements, self._route))
                metrics.EVENTS.labels("DDL").inc()
                logger.info("DDL sent", job_id=ddl.job_id, commit_ts=ddl.commit_ts)
        self._window.mark(ddl.commit_ts, ddl.schema_version)
        await self._drained()

    def watermark(self, ts: Ts) -> None:
        self._window.mark(ts, 0)

    async def _send_all(self, messages: AsyncIterator[Sendable], *, again: bool = False) -> None:
        """`again`: what a partition may have already, too."""
        async for place, envelope in messages:
            if again or envelope.position > place.stored:
                if not self._has_room():
                    await self.background.until(self._may_send)
                if self._settings.transactions and not self._in_transaction:
                    await asyncio.to_thread(self._client.begin)
                    self._in_transaction = True
                is_small = place.limit < min(BATCH_BYTES, self._settings.message_bytes)
                together = await self._together(place, envelope.size) if is_small else 0
                if self._window.is_empty:
                    self._progress_s = self._clock.monotonic_s()
                number = self._window.sent(envelope.size)
                if is_small:
                    self._batches[place.topic, place.partition] = number, together
                while not self._sent(place, envelope, number):
                    await self._fewer_than(self._window.unacknowledged)

    async def _together(self, place: Place, size: int) -> int:
        """Bytes under way to a partition with the next message. They may become one batch, which brokers
        measure as if it were a message: it is waited for until they are within the topic's limit."""
        last, together = self._batches.get((place.topic, place.partition), (-1, 0))
        if together + size > place.limit:
            await self.background.until(lambda: self._window.is_acknowledged(last))
        return size if self._window.is_acknowledged(last) else together + size

    def _sent(self, place: Place, envelope: Envelope, number: int) -> bool:
        """False where the client's queue is full."""
        key, value, _, headers, *_ = envelope
        try:
            self._client.send(place.topic, place.partition, key, value, headers, number)
        except BufferError:
            return False
        return True

    def _has_room(self) -> bool:
        window, settings = self._window, self._settings
        return window.bytes < settings.in_flight_bytes and window.unacknowledged < settings.in_flight_messages

    def _may_send(self) -> bool:
        return self._stopping or self._has_room()

    async def _fewer_than(self, count: int) -> None:
        await self.background.until(lambda: self._window.unacknowledged < count)

    async def flush(self) -> None:
        if self._in_large:
            return
        await self._send_watermarks()
        if self._settings.transactions:
            await self._commit()

    async def _commit(self) -> None:
        upto = self._window.last
        if self._in_transaction:
            await asyncio.to_thread(self._client.commit)
            self._in_transaction = False
        self._committed = upto

    async def _send_watermarks(self) -> None:
        every_s, now_s, ts = self._settings.watermark_s, self._clock.monotonic_s(), self.handed_over_ts
        if not every_s or now_s < self._watermark_s or ts <= max(self._watermark_ts, self._start.commit_ts):
            return
        self._watermark_s, self._watermark_ts = now_s + every_s, ts
        await self._send_all(self._feed.watermark(ts))

    async def ready(self) -> None:
        await asyncio.sleep(0)
        await self.background.until(self._may_send)

    async def between_batches(self) -> None:
        destinations = self._destinations
        if self.handed_over_ts > destinations.past_ts:
            destinations.leave_past()
        if destinations.grown and self.handed_over_ts > destinations.past_ts:
            await self._drained()
            await self.save()
            await destinations.spread()

    async def _drained(self) -> None:
        """Everything sent is stored."""
        if self._settings.transactions and not self._in_large:
            await self._commit()
        await self.background.until(lambda: self._window.is_empty)

    async def store_rules(self, rules: str) -> None:
        """Rules are not stored: the checkpoint is behind everything that was sent under the old ones."""
        await self._drained()
        await self.save()

    # -- beside the stream, and its end ---------------------------------------------------------------

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {"partitions": self._look()}

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self._destinations.look()
            await self._look_for_progress()

    async def _look_for_progress(self) -> None:
        silent_s = self._clock.monotonic_s() - self._progress_s
        if self._window.is_empty or silent_s < LOOK_S:
            return
        text = f"no message was acknowledged for {silent_s:.0f} s"
        if not self._trouble:
            self.waits(text)
        if silent_s >= STUCK_S and await self._destinations.answer():
            self.background.fail(DeliveryBroken(f"Kafka: {text}, though brokers answer"))

    async def save(self) -> None:
        await self._savepoint.save(*self._reached)

    def stop(self) -> None:
        self._stopping = True

    async def finish(self, *, broken: bool) -> None:
        if not broken and not self._in_large:
            await self._drained()
            await self._savepoint.save(*self._reached, consistent=True)

    async def close(self, *, finished: bool) -> bool:
        await asyncio.to_thread(self._client.close, wait_s=0.0)
        return finished and self._window.is_empty and not self._in_large

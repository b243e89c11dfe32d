"""Row feed: messages of rows, in one of the formats that other programs know.

Holds   every message has headers about its place. An update that changes a row's key is two messages, a
        delete under the old key and an insert under the new one, each where its key goes. What is too large
        is refused by name, or sent as the key alone, or kept elsewhere before the message that says where.
        In a compacted topic a delete is followed by a message without a value, which ends the key, and what
        has no key in the format gets one

Tests  tests/drainer/sink/kafka/test_row_feed.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Final

from drainer.ddl.derive.values import Route
from drainer.formats.messages.message import Message, MessageFormat
from drainer.sink.ddl_text import Statement
from drainer.sink.kafka.claim_store import ClaimStore
from drainer.sink.kafka.destinations import Destinations, Place
from drainer.sink.kafka.feed import Sendable, concerned, to_all_partitions
from drainer.sink.kafka.messages import (
    CLAIM_CHECK,
    FAIL,
    HANDLE_KEY_ONLY,
    KIND,
    UNNAMED_WATERMARK,
    Envelope,
    named_watermark,
    size_of,
    snapshot_header,
)
from drainer.sink.kafka.position import WHOLE, Headers, Position, headers_of
from drainer.txn import Ddl, Transaction
from tidb_binlog.errors import DownstreamError
from tidb_binlog.tso import Ts

KEY_SHOWN: Final = 200


class RowFeed:
    """`oversize` says what becomes of messages over a topic's limit."""

    def __init__(
        self,
        form: MessageFormat,
        destinations: Destinations,
        claims: ClaimStore | None,
        *,
        oversize: str,
    ) -> None:
        self._form = form
        self._destinations = destinations
        self._claims = claims
        self._oversize = oversize

    async def transaction(self, transaction: Transaction) -> AsyncIterator[Sendable]:
        place_of = self._destinations.place
        ts = transaction.commit_ts
        for message, position in placed(self._form.rows(transaction)):
            place = await place_of(message.schema, message.table, message.spread, ts)
            ends_key = place.compacted and message.kind == "delete" and message.value is not None
            own = position._replace(half=position.half - 1) if ends_key else position
            headers = [*headers_of(own), *snapshot_header(transaction)]
            envelope = Envelope(message.key, message.value, own, headers)
            if place.compacted and message.key is None:
                raise _without_key(message, place.topic)
            if envelope.size > place.limit and (transaction.snapshot or own > place.stored):
                envelope = await self._smaller(transaction, message, place, envelope)
            yield place, envelope
            if ends_key:
                yield place, Envelope(message.key, None, position, headers_of(position))

    async def _smaller(
        self, transaction: Transaction, message: Message, place: Place, envelope: Envelope
    ) -> Envelope:
        """Raises `DownstreamError` where there is no smaller form."""
        location, small = "", None
        if self._oversize == CLAIM_CHECK and self._claims is not None:
            _, seq, half = envelope.position
            name = f"{message.commit_ts}-{seq}-{half}-{place.topic}-{place.partition}"
            claim = await asyncio.to_thread(self._claims.open, name)
            await asyncio.to_thread(claim.write, envelope.value or b"")
            location = await asyncio.to_thread(claim.close)
        if self._oversize != FAIL:
            small = self._form.handle_key(transaction, message, location)
        if small is None:
            forms = (
                '"claim-check"' if self._oversize == HANDLE_KEY_ONLY else '"handle-key-only" or "claim-check"'
            )
            more = "" if self._oversize == FAIL else ", which has no key"
            raise _refused(
                message, envelope.size, place.limit, more, f", or choose syncer.to.oversize = {forms}"
            )
        smaller = envelope._replace(value=small.value)
        if smaller.size > place.limit:
            raise _refused(message, smaller.size, place.limit, ", its key alone")
        return smaller

    async def begin_large(self, pieces: AsyncIterator[Transaction]) -> None:
        """Rows need not know of each other."""

    async def piece(self, piece: Transaction) -> AsyncIterator[Sendable]:
        async for sendable in self.transaction(piece):
            yield sendable

    async def ddl(self, ddl: Ddl, statements: Sequence[Statement], route: Route) -> AsyncIterator[Sendable]:
        told = [self._form.ddl(ddl, statement.text) for statement in statements]
        messages = [message for message in told if message is not None]
        places = {}
        for name in concerned(ddl, route) if messages else ():
            place = await self._destinations.place(*name, None, ddl.commit_ts)
            places[place.topic, place.partition] = place
        for place in places.values():
            for number, message in enumerate(messages):
                position = Position(ddl.commit_ts, number if len(messages) > 1 else WHOLE)
                headers: Headers = [*headers_of(position), (KIND, b"ddl")]
                key = message.key
                if key is None and place.compacted:
                    key = b'{"_tidb":"ddl","commitTs":%d,"seq":%d}' % (ddl.commit_ts, number)
                size = size_of(key, message.value, headers)
                if size > place.limit:
                    raise _refused(message, size, place.limit, ", a DDL")
                yield place, Envelope(key, message.value, position, headers)

    async def watermark(self, ts: Ts) -> AsyncIterator[Sendable]:
        message = self._form.watermark(ts)
        if message is not None:
            told = named_watermark(ts, message.key, message.value)
            async for place, envelope in to_all_partitions(self._destinations, told):
                if envelope.key is None and place.compacted:
                    envelope = envelope._replace(key=UNNAMED_WATERMARK)
                yield place, envelope


def _refused(message: Message, size: int, limit: int, more: str, other: str = "") -> DownstreamError:
    key = (message.key or b"none")[:KEY_SHOWN].decode(errors="replace")
    return DownstreamError(
        f"row {message.seq} of the transaction of commit_ts {message.commit_ts} in `{message.schema}`."
        f"`{message.table}`{more}, key {key}: a message of {size} bytes, the limit is {limit}",
        hint=f"raise the topic's max.message.bytes (and syncer.to.kafka-max-message-size){other}",
    )


def _without_key(message: Message, topic: str) -> DownstreamError:
    return DownstreamError(
        f"topic {topic} is compacted and takes nothing without a key: row {message.seq} of the transaction of"
        f" commit_ts {message.commit_ts} in `{message.schema}`.`{message.table}` has none",
        hint="give the table a primary key, leave it out by a filter, or set the topic's"
        " cleanup.policy = delete",
    )


def placed(messages: Iterable[Message]) -> Iterator[tuple[Message, Position]]:
    """Each with its position: of two messages with one `seq` the first says that there is more."""
    waiting: Message | None = None
    for message in messages:
        if waiting is not None:
            yield waiting, Position(waiting.commit_ts, waiting.seq, int(waiting.seq != message.seq))
        waiting = message
    if waiting is not None:
        yield waiting, Position(waiting.commit_ts, waiting.seq, 1)

"""Feed: what comes in becomes messages, each with the place where it goes, in the order of the stream.

Owns    the large transaction that is under way: whether its pieces become one message, several, or one value
        that is kept elsewhere
Holds   a value that is kept elsewhere is durable before the message that names it is sent

Tests  tests/drainer/sink/kafka/test_kafka_sink.py
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Final, Protocol

from drainer.ddl.derive.values import Route
from drainer.sink.ddl_text import Statement
from drainer.sink.kafka.claim_store import Claim, ClaimStore
from drainer.sink.kafka.destinations import Destinations, Place
from drainer.sink.kafka.messages import (
    CLAIM_CHECK,
    SPLIT,
    Envelope,
    ObinlogMessages,
    merged,
    rows_of,
    too_large,
)
from drainer.sink.kafka.position import NOTHING, Headers, Position
from drainer.txn import Ddl, Transaction
from tidb_binlog.tso import Ts

CLAIM_HEADER: Final = "claim-check"
Sendable = tuple[Place, Envelope]


class Feed(Protocol):
    """One form of messages."""

    def transaction(self, transaction: Transaction) -> AsyncIterator[Sendable]: ...

    async def begin_large(self, pieces: AsyncIterator[Transaction]) -> None:
        """A large transaction comes next; `pieces` are those that come."""

    def piece(self, piece: Transaction) -> AsyncIterator[Sendable]: ...

    def ddl(self, ddl: Ddl, statements: Sequence[Statement], route: Route) -> AsyncIterator[Sendable]: ...

    def watermark(self, ts: Ts) -> AsyncIterator[Sendable]: ...


def concerned(ddl: Ddl, route: Route) -> list[tuple[str, str]]:
    """The downstream names of what a DDL is about, the first one first; after a database its tables."""
    changed = [(table.schema, table.name) for table in (*ddl.before, *ddl.after)]
    names = *(ddl.tables or ((ddl.schema, ""),)), *(name for name in changed if name not in ddl.unread)
    return list(dict.fromkeys(route(*name) for name in names))


async def to_all_partitions(destinations: Destinations, envelope: Envelope) -> AsyncIterator[Sendable]:
    for topic in await destinations.every_topic():
        for partition in range(topic.count):
            yield topic.place(partition), envelope


class ObinlogFeed:
    """Messages as the Go drainer sends them. `claims` is None where nothing is kept elsewhere."""

    def __init__(
        self, messages: ObinlogMessages, destinations: Destinations, claims: ClaimStore | None
    ) -> None:
        self._messages = messages
        self._destinations = destinations
        self._claims = claims
        self._whole: list[Transaction] | None = None  # pieces that become one message
        self._waiting: Transaction | None = None  # a piece that may be the last one with rows
        self._claim: Claim | None = None
        self._size = 0

    async def transaction(self, transaction: Transaction) -> AsyncIterator[Sendable]:
        for sendable in await self._sendables(transaction, cut=False):
            yield sendable

    async def _sendables(self, transaction: Transaction, *, cut: bool) -> list[Sendable]:
        sendables = []
        for schema, table, part in self._messages.units(transaction):
            place = await self._destinations.place(schema, table, None, transaction.commit_ts)
            stored = NOTHING if transaction.snapshot else place.stored
            for envelope in self._messages.transaction(part, stored, place.limit, cut=cut):
                sent = await self._kept(place, envelope) if envelope.claim else envelope
                sendables.append((place, sent))
        return sendables

    async def _kept(self, place: Place, envelope: Envelope) -> Envelope:
        claim = await self._open_claim(place, envelope.position)
        await asyncio.to_thread(claim.write, envelope.value or b"")
        return await self._closed(claim, envelope)

    async def _open_claim(self, place: Place, position: Position) -> Claim:
        assert self._claims is not None
        name = f"{position.commit_ts}-{position.seq}-{place.topic}-{place.partition}"
        return await asyncio.to_thread(self._claims.open, name)

    async def _closed(self, claim: Claim, envelope: Envelope) -> Envelope:
        uri = await asyncio.to_thread(claim.close)
        headers: Headers = [*envelope.headers, (CLAIM_HEADER, uri.encode())]
        return Envelope(envelope.key, envelope.reference, envelope.position, headers)

    # -- large transactions ------------------------------------------------------------------------

    async def begin_large(self, pieces: AsyncIterator[Transaction]) -> None:
        messages = self._messages
        self._whole = self._waiting = self._claim = None
        if messages.by_table or messages.oversize == SPLIT:
            return
        sizes: Counter[tuple[str, str]] = Counter()
        total = rows = commit_ts = 0
        async for piece in pieces:
            total += messages.size_of_tables(piece)
            rows += rows_of(piece)
            commit_ts = piece.commit_ts
            for events in piece.tables:
                sizes[events.table.downstream] += sum(map(len, events.rows))
            await asyncio.sleep(0)
        self._size = total
        limit = (await self._destinations.place("", "", None, commit_ts)).limit
        if messages.fits(total, limit):
            self._whole = []
        elif messages.oversize != CLAIM_CHECK:
            raise too_large(commit_ts, total, limit, rows, sizes)

    async def piece(self, piece: Transaction) -> AsyncIterator[Sendable]:
        messages = self._messages
        if self._whole is not None:
            self._whole.append(piece)
            sendables = await self._sendables(merged(self._whole), cut=False) if piece.last else []
        elif messages.oversize == CLAIM_CHECK and not messages.by_table:
            sendables = await self._claimed(piece)
        else:
            sendables = await self._cut(piece)
        for sendable in sendables:
            yield sendable

    async def _cut(self, piece: Transaction) -> list[Sendable]:
        """Each piece with rows is held back until it is known whether it is the last one."""
        waiting, self._waiting = self._waiting, None
        if not piece.tables:
            if not piece.last:
                self._waiting = waiting
                return []
            piece = waiting = replace(waiting, last=True) if waiting else piece
            return await self._sendables(piece, cut=True)
        sendables = await self._sendables(waiting, cut=True) if waiting else []
        if piece.last:
            return sendables + await self._sendables(piece, cut=True)
        self._waiting = piece
        return sendables

    async def _claimed(self, piece: Transaction) -> list[Sendable]:
        messages = self._messages
        place = await self._destinations.place("", "", None, piece.commit_ts)
        position = Position(piece.commit_ts)
        if place.stored >= position:
            return []
        if self._claim is None:
            self._claim = await self._open_claim(place, position)
            await asyncio.to_thread(self._claim.write, messages.beginning(piece.commit_ts, self._size))
        await asyncio.to_thread(self._claim.write, messages.tables(piece))
        if not piece.last:
            return []
        claim, self._claim = self._claim, None
        return [(place, await self._closed(claim, messages.claimed(b"", position, [])))]

    # -- what else there is ------------------------------------------------------------------------

    async def ddl(self, ddl: Ddl, statements: Sequence[Statement], route: Route) -> AsyncIterator[Sendable]:
        names = concerned(ddl, route)
        schema = route(ddl.schema, "")[0] if ddl.schema else names[0][0]
        texts = [statement.text for statement in statements]
        places = {}
        for name in names if self._messages.by_table else [("", "")]:
            place = await self._destinations.place(*name, None, ddl.commit_ts)
            places[place.topic, place.partition] = place
        for place in places.values():
            for envelope in self._messages.ddl(ddl, schema, names[0][1], texts, place.limit):
                yield place, envelope

    async def watermark(self, ts: Ts) -> AsyncIterator[Sendable]:
        async for sendable in to_all_partitions(self._destinations, self._messages.watermark(ts)):
            yield sendable

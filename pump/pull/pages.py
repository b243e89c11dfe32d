"""Pull pages: what one pull stream reads, each time with a ticket for its octets before it is read.

Transactions that have no rows of the tables that a puller chose are left out here, before anything is made of
them; what is left out was read and is whole.

Owns    the stream's reader of history
Holds   of a stream that is not read, a page is in memory at most; a transaction larger than that is read
        alone, when there is memory for all of it
Tests   tests/pump/pull/test_parts.py
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from pump.log.delivery import Delivery, LargeDelivery, Oversized, Page
from pump.pull.session import PartMessage, PullSession
from pump.storage.readers import PartReader
from pump.storage.storage import Storage
from tidb_binlog import binlog
from tidb_binlog.budget import Ticket
from tidb_binlog.rpc import Caller
from tidb_binlog.tso import TS_MAX, Ts

ALONE_BYTES: Final = 1 << 20
"""A larger transaction is read by itself, or in parts. A page may be larger than asked for by one smaller."""

_RECORD_BYTES: Final = 200  # what a record of a page costs besides
_RECORDS_BYTES: Final = 1 << 20  # and all of them, before they are counted


class PullPages:
    """The pages of one stream. Each call gives a ticket too, to be closed by the caller whatever happens."""

    def __init__(
        self,
        storage: Storage,
        caller: Caller,
        *,
        copies: int = 1,
        until_ts: Ts = TS_MAX,
        tables: frozenset[int] | None = None,
    ) -> None:
        """`copies`: how often what was read is made into something else before the transport has it.
        `until_ts`: nothing above it is read. `tables`: rows of these alone; None: of all."""
        self._until_ts = until_ts
        self._tables = tables
        self._extra = copies - 1
        self._storage = storage
        self._caller = caller
        self._history = storage.history()
        self._parts: PartReader | None = None

    async def page(self, position: int, bytes_max: int, parts_above: int = 0) -> tuple[Page, Ticket]:
        """The next commits after `position`; one of more than `parts_above` bytes (0: none) is the page's
        `large`. Raises as `Storage.page`, but `Oversized`."""
        usual = bytes_max + 2 * ALONE_BYTES + _RECORDS_BYTES + self._extra * (bytes_max + ALONE_BYTES)
        single = ALONE_BYTES
        above = min(parts_above, ALONE_BYTES) if parts_above > 0 else ALONE_BYTES
        while True:
            ticket = await self._caller.room(usual + single - ALONE_BYTES)
            try:
                page = await self._storage.page(
                    self._history, position, bytes_max, above, single, self._until_ts
                )
                if self._tables is not None:
                    page = await self._storage.in_thread(self._chosen, page, position, self._tables)
                large = page.large
                if large is not None and not 0 < parts_above < large.size:
                    if page.deliveries:
                        page = Page(page.deliveries, page.covered - 1)
                    else:
                        ticket.close()
                        return await self._whole(large, position)
            except Oversized as oversized:
                ticket.close()
                single = oversized.size
                continue
            except BaseException:
                ticket.close()
                raise
            return page, ticket

    def _chosen(self, page: Page, position: int, tables: Set[int]) -> Page:
        """The page without what has no rows of the tables. Blocks."""
        deliveries = [delivery for delivery in page.deliveries if binlog.touches(tables, delivery.tail)]
        large = page.large
        if large is not None and self._history.passes_over(
            self._storage.part_reader(large), position, tables
        ):
            large = None
        return Page(deliveries, page.covered, large)

    async def _whole(self, large: LargeDelivery, position: int) -> tuple[Page, Ticket]:
        """The page of one large transaction."""
        ticket = await self._caller.room(large.size * (1 + self._extra))
        try:
            reader = self._storage.part_reader(large)
            payload = await self._storage.part(self._history, reader, position, large.size)
        except BaseException:
            ticket.close()
            raise
        start_ts = binlog.leading_header(large.head).start_ts
        return Page([Delivery(large.commit_ts, start_ts, payload)], large.commit_ts), ticket

    async def part(self, session: PullSession) -> tuple[PartMessage, Ticket] | None:
        """The next part of the session's large transaction; None while the puller has no credit."""
        large = session.large
        assert large is not None
        if self._parts is None or self._parts.large is not large:
            self._parts = self._storage.part_reader(large)
        parts = self._parts
        offset = parts.offset
        size = session.part_bytes(offset, parts.begin_bytes)
        if not size:
            return None
        ticket = await self._caller.room((2 + self._extra) * size)
        try:
            data = await self._storage.part(self._history, parts, session.position, size)
            return session.part(offset, data), ticket
        except BaseException:
            ticket.close()
            raise


def cost(deliveries: list[Delivery]) -> int:
    """What the deliveries of a page count."""
    return sum([len(head) + len(tail) for _, _, head, tail in deliveries]) + _RECORD_BYTES * len(deliveries)

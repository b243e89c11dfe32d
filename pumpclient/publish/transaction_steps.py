"""Transaction steps: how a publisher begins, decides and ends a transaction or a schema change.

Owns    the open transactions, weakly
Stops   a step that has no answer is asked again for `DECIDE_S`, or until the publisher closes
Never   takes the lack of an entry for a rollback once an attempt had no answer: that one may have committed,
        and what others have dropped since is not there any more
Tests   tests/pumpclient/publish/test_publisher_crashes.py
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final
from weakref import WeakValueDictionary

from pumpclient.client import PumpClient
from pumpclient.errors import ClientClosed, OutcomeUnknown, SchemaChanged, TransactionLost
from pumpclient.publish.followed_catalog import FollowedCatalog
from pumpclient.publish.outcome_delivery import OutcomeDelivery, Sending
from pumpclient.publish.settlement import Settlement, missing_database
from pumpclient.publish.transaction import Prewrite, Transaction
from pumpclient.publish.upstream_port import Transactions
from pumpclient.schema.catalog import Catalog, Fence
from pumpclient.tasks import Pauses
from tidb_binlog.clock import Clock
from tidb_binlog.errors import BinlogError, Conflict, Unavailable
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.standalone import Forgotten, SchemaMoved

logger: Final = logging.getLogger("pumpclient")

DECIDE_S: Final = 10.0
DECIDE_PAUSE_S: Final = 0.2


# Leases: which open transactions have to be kept alive, and when.
# Holds  a lease is due after a third of its time, so two renewals may fail before it runs out
# Never  renews anything; `publisher` drives it


@dataclass(frozen=True, slots=True)
class Renewal:
    """Renew the lease of this transaction for `ttl_s` seconds."""

    start_ts: Ts
    ttl_s: float


class Leases:
    def __init__(self) -> None:
        self._open: dict[int, tuple[float, float]] = {}  # start_ts -> (ttl_s, due_s)

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, start_ts: Ts, ttl_s: float, now_s: float) -> None:
        """A transaction began, or its lease was renewed."""
        self._open[start_ts] = (ttl_s, now_s + ttl_s / 3)

    def closed(self, start_ts: Ts) -> None:
        """The transaction needs its lease no longer."""
        self._open.pop(start_ts, None)

    def next_due_s(self) -> float | None:
        """When the next lease is due; None without open transactions."""
        return min((due_s for _, due_s in self._open.values()), default=None)

    def due(self, now_s: float) -> list[Renewal]:
        """Leases to renew now; each is put off by a third of its time."""
        renewals = [
            Renewal(start_ts, ttl_s) for start_ts, (ttl_s, due_s) in self._open.items() if due_s <= now_s
        ]
        for renewal in renewals:
            self.opened(renewal.start_ts, renewal.ttl_s, now_s)
        return renewals


@dataclass
class TransactionSteps:
    """One publisher's. `stopping`: no transaction begins any more, and no step is asked again."""

    client: PumpClient
    transactions: Transactions
    definitions: FollowedCatalog
    ends: OutcomeDelivery
    settlement: Settlement | None
    clock: Clock
    pauses: Pauses
    stopping: asyncio.Event
    leases: Leases = field(default_factory=Leases)
    """Of all that have begun and neither ended nor been given up."""
    open: WeakValueDictionary[int, Transaction] = field(default_factory=WeakValueDictionary)
    """By start_ts. Weakly: what its program has dropped is not kept alive."""
    _loop: asyncio.AbstractEventLoop | None = None
    """That of the transactions: a dropped one is told to it from any thread."""
    _lease_opened: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by each beginning: the wait for the next renewal is another one then."""

    @property
    def catalog(self) -> Catalog:
        """As the publisher knows it."""
        return self.definitions.catalog

    async def begin(self, ttl_s: float, transaction: Transaction | None) -> int:
        """Draw start_ts and open the entry; from here the lease is renewed."""
        if self.stopping.is_set():
            raise ClientClosed("the publisher is closed")
        self.client.require_loop()
        self._loop = asyncio.get_running_loop()
        start_ts = await self.transactions.begin(ttl_s)
        self.leases.opened(start_ts, ttl_s, self.clock.monotonic_s())
        if transaction is not None:
            self.open[start_ts] = transaction
        self._lease_opened.set()
        return start_ts

    async def commit(
        self, start_ts: Ts, key: bytes, fence: Fence, prewrite: Prewrite, *, deliver: bool = True
    ) -> int:
        """Decide for commit, then report it in the background."""

        async def step(revision: int | None) -> int:
            return await self.transactions.commit(start_ts, schema_revision=revision)

        commit_ts = await self.decide(start_ts, key, lambda: self._fenced(step, fence), prewrite)
        if deliver:
            self.report_commit(start_ts, commit_ts, key, prewrite)
        return commit_ts

    async def decide(
        self, start_ts: Ts, key: bytes, step: Callable[[], Awaitable[int]], prewrite: Prewrite
    ) -> int:
        """Carry out the step that commits, with its errors in the words of the host."""
        try:
            return await self._ask_again(step)
        except (SchemaMoved, SchemaChanged):
            with suppress(BinlogError):  # it cannot commit any more, and its lease runs out
                await self.roll_back(start_ts, key, prewrite)
            raise
        except Conflict as error:
            raise self._lost(start_ts, key, error, prewrite) from error
        except OutcomeUnknown:
            raise
        except Unavailable as error:
            # Whether it is decided is unknown: a rollback binlog would be believed and might be wrong.
            raise OutcomeUnknown(
                f"transaction {start_ts} may be committed: {error.message}",
                hint="ask the upstream for its outcome once etcd answers",
            ) from error
        finally:
            self.release(start_ts)

    async def _ask_again(self, step: Callable[[], Awaitable[int]]) -> int:
        """What the step returns, asked again after a broken connection: what was decided gives the same
        answer. Raises what it raises, and `OutcomeUnknown`."""
        give_up_s = self.clock.monotonic_s() + DECIDE_S
        unanswered: Unavailable | None = None
        while True:
            try:
                return await step()
            except Unavailable as error:
                unanswered = error
                if self.stopping.is_set() or self.clock.monotonic_s() + DECIDE_PAUSE_S > give_up_s:
                    raise
            except Forgotten as error:
                if unanswered is None:
                    raise
                raise OutcomeUnknown(
                    f"its commit had no answer ({unanswered.message}), and now: {error.message}",
                    hint="see downstream whether its rows are there before it is run again",
                ) from error
            await self.pauses.pause(DECIDE_PAUSE_S, self.stopping)

    async def prepare(self, start_ts: Ts, key: bytes, fence: Fence, prewrite: Prewrite, ttl_s: float) -> int:
        """Leave the decision to the application's database."""
        if self.settlement is None:
            raise missing_database()
        name = await self.settlement.name()

        async def step(revision: int | None) -> int:
            return await self.transactions.prepare(start_ts, name, ttl_s, schema_revision=revision)

        try:
            return await self._ask_again(lambda: self._fenced(step, fence))
        except SchemaChanged:
            raise
        except Conflict as error:
            self.release(start_ts)
            raise self._lost(start_ts, key, error, prewrite) from error

    def _lost(self, start_ts: Ts, key: bytes, error: Conflict, prewrite: Prewrite) -> TransactionLost:
        self._report_rollback(start_ts, key, prewrite)
        return TransactionLost(
            f"transaction {start_ts} was rolled back by others: {error.message}",
            hint="its lease ran out; run it again, with a longer ttl_s if this process was just slow",
        )

    async def _fenced(self, step: Callable[[int | None], Awaitable[int]], fence: Fence) -> int:
        """Take the step while the tables are what the rows were encoded for."""
        while True:
            # An altered table is no verdict before the step: asked again, that may have taken place.
            fence.altered(self.catalog)
            try:
                return await step(fence.revision if fence else None)
            except SchemaMoved:
                await self.definitions.refresh()
            table = fence.altered(self.catalog)
            if table is not None:
                raise SchemaChanged(
                    f"table {table.name} was altered after the rows were added",
                    hint="run the transaction again",
                )

    def committed(self, start_ts: Ts, commit_ts: Ts, key: bytes, prewrite: Prewrite) -> None:
        """The database has committed a prepared transaction: report it."""
        sending = _sending(prewrite, lambda: self.client.write_commit(start_ts, commit_ts, key))
        if not self.ends.report_decided(start_ts, sending, self.release):
            self.doubt(start_ts)

    async def roll_back(self, start_ts: Ts, key: bytes, prewrite: Prewrite, *, deliver: bool = True) -> None:
        """Decide for rollback, then report it in the background."""
        self.release(start_ts)
        try:
            await self.transactions.roll_back(start_ts)
        except BaseException:
            self.doubt(start_ts)  # it may be prepared
            raise
        if deliver:
            self._report_rollback(start_ts, key, prewrite)

    def _report_rollback(self, start_ts: Ts, key: bytes, prewrite: Prewrite) -> None:
        self.ends.report(start_ts, _sending(prewrite, lambda: self.client.write_rollback(start_ts, key)))

    def doubt(self, start_ts: Ts) -> None:
        """Only the database knows; ask it soon."""
        self.release(start_ts)
        if self.settlement is not None:
            self.settlement.doubt(start_ts)

    def dropped(self, start_ts: Ts) -> None:
        """Its program has dropped it without an end, and will never give one: the lease runs out, and
        the database is asked. For `Transaction`, from any thread."""
        with suppress(RuntimeError):  # the loop is closed: nothing is renewed any more
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._give_up, start_ts)

    def _give_up(self, start_ts: Ts) -> None:
        if not self.stopping.is_set():
            logger.warning("transaction %d was dropped without an end", start_ts)
            self.doubt(start_ts)

    def release(self, start_ts: Ts) -> None:
        """Renew the lease of this transaction no longer."""
        self.leases.closed(start_ts)
        self.open.pop(start_ts, None)

    def report_commit(self, start_ts: Ts, commit_ts: Ts, key: bytes, prewrite: Prewrite) -> None:
        """Tell the pump, then forget."""
        self.ends.report(
            start_ts, _sending(prewrite, lambda: self.client.write_commit(start_ts, commit_ts, key))
        )

    async def keep_leases(self) -> None:
        """Renew what is due; a transaction that others have rolled back learns it at its next step."""
        while True:
            self._lease_opened.clear()
            await asyncio.gather(*map(self._renew, self.leases.due(self.clock.monotonic_s())))
            await self.pauses.until(self.leases.next_due_s(), self._lease_opened)

    async def _renew(self, renewal: Renewal) -> None:
        try:
            await self.transactions.keep_alive(renewal.start_ts, renewal.ttl_s)
        except Conflict:
            transaction = self.open.get(renewal.start_ts)
            self.release(renewal.start_ts)
            if transaction is not None:
                transaction.lost = True
        except BinlogError as error:
            logger.warning("lease of transaction %d not renewed: %s", renewal.start_ts, error)


def _sending(prewrite: Prewrite, send: Callable[[], Sending]) -> Sending | None:
    """What sends an end to the pump that it concerns; None: there is none."""
    if prewrite is Prewrite.NONE:
        return None
    return send() if prewrite is Prewrite.STORED else _counted(send())


async def _counted(end: Sending) -> bool:
    """The client counts the end of a skipped transaction; no pump will ever ask about it."""
    await end
    return True

"""Publisher: an ordered transaction stream for programs that have no TiDB.

Drives  PumpClient, leases, and the standalone upstream (timestamps, transaction outcomes, DDL history)
Owns    a task that renews the leases of open transactions, one short task per end being delivered
Stops   `close` lets deliveries under way end for `drain_s` seconds, then abandons them: pumps ask the
        upstream for what they were not told
Never   decides an outcome twice: what the upstream recorded is the outcome, binlogs only report it

The order of one transaction, and why:

    1  start_ts drawn, open entry with a lease written   from here on pumps may ask about it
    2  prewrite acknowledged by a pump                   the rows are on disk
    3  commit_ts drawn, entry open -> committed          drawn after 2: nothing that a pump does not have
                                                         yet can get a timestamp below its watermark
    4  commit sent to that pump, in the background       spares the pump the question
    5  entry forgotten                                   only after 4: otherwise the answer is still needed

A schema change goes the same way, with its job written into the history between 2 and 3, so whoever reads
the commit finds the job.

    publisher = await pumpclient.open_publisher("127.0.0.1:2379")
    async with publisher:
        async with publisher.transaction() as txn:
            txn.insert(table_id, row)  # bytes from common.rowcodec.encoder
        assert txn.commit_ts > txn.start_ts
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Protocol, Self

from common import binlog
from common.clock import Clock, SystemClock
from common.errors import BinlogError, ConfigError, Conflict, Unavailable
from common.tls import TlsConfig
from common.upstream import TimestampOracle
from common.upstream.standalone import StandaloneUpstream
from pumpclient.client import PumpClient, connect
from pumpclient.errors import ClientClosed, InvalidBinlog, OutcomeUnknown, TransactionLost
from pumpclient.leases import Leases, Renewal
from pumpclient.options import Options
from pumpclient.pause import Pauses, Sleep
from pumpclient.transaction import Transaction, entry_key

logger: Final = logging.getLogger("pumpclient")

LEASE_TTL_S: Final = 3.0
DECIDE_S: Final = 10.0
DECIDE_PAUSE_S: Final = 0.2
DELIVERIES_MAX: Final = 10_000
"""Ends being delivered at once; past it an end is not sent and its pump asks the upstream."""


class Transactions(Protocol):
    """Outcomes, as the standalone upstream keeps them."""

    async def begin(self, ttl_s: float = ...) -> int: ...

    async def commit(self, start_ts: int) -> int: ...

    async def roll_back(self, start_ts: int) -> None: ...

    async def keep_alive(self, start_ts: int, ttl_s: float) -> None: ...

    async def forget(self, start_ts: int) -> None: ...


class History(Protocol):
    """Finished DDL jobs."""

    async def add(self, job_json: bytes) -> int: ...

    def pages(self) -> AsyncIterator[list[bytes]]: ...


class WritableUpstream(Protocol):
    """What a publisher needs of an upstream. `StandaloneUpstream` is one."""

    @property
    def cluster_id(self) -> int: ...

    @property
    def oracle(self) -> TimestampOracle: ...

    @property
    def transactions(self) -> Transactions: ...

    @property
    def history(self) -> History: ...

    async def close(self) -> None: ...


class Publisher:
    """Made by `open_publisher`; use it as an async context manager."""

    def __init__(
        self,
        client: PumpClient,
        upstream: WritableUpstream,
        *,
        clock: Clock | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.client = client
        self.schema_version = 0
        """Version given to transactions that name none: the newest job's in the history."""
        self._upstream = upstream
        self._clock = clock or SystemClock()
        self._pauses = Pauses(self._clock, sleep)
        self._leases = Leases()
        self._open: dict[int, Transaction] = {}
        self._lease_opened = asyncio.Event()
        self._deliveries: set[asyncio.Task[None]] = set()
        self._keeper: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        """Learn the newest schema version, begin to renew leases. `open_publisher` has done so."""
        async for page in self._upstream.history.pages():
            newest = max((_job_field(job, "SchemaVersion") for job in page), default=0)
            self.schema_version = max(self.schema_version, newest)
        self._keeper = asyncio.get_running_loop().create_task(self._keep_leases(), name="pumpclient leases")

    async def close(self, drain_s: float = 10.0) -> None:
        """Let deliveries end for `drain_s` seconds, then end all connections."""
        self._stopping.set()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self.flush(drain_s)
        deliveries = list(self._deliveries)
        for delivery in deliveries:
            delivery.cancel()
        await asyncio.gather(*deliveries, return_exceptions=True)
        await self.client.close()
        await self._upstream.close()

    async def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until every end begun so far was delivered or given up; False when time ran out first."""
        deliveries = set(self._deliveries)
        if not deliveries:
            return True
        _, pending = await asyncio.wait(deliveries, timeout=timeout_s)
        return not pending

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def transaction(
        self, *, ttl_s: float = LEASE_TTL_S, schema_version: int | None = None, key: bytes = b""
    ) -> Transaction:
        """A new transaction; enter it to begin. Raises `ConfigError` for a `ttl_s` not above zero.

        `ttl_s` is how long others wait before they roll it back when this process has died; it is renewed
        while the process lives. `schema_version` is that of the newest DDL the rows are encoded for.
        `key` becomes the binlog's prewrite key; by default it names the transaction's entry.
        """
        if ttl_s <= 0:
            raise ConfigError(f"ttl_s of a transaction is {ttl_s}", hint="give seconds above zero")
        version = self.schema_version if schema_version is None else schema_version
        return Transaction(self, ttl_s=ttl_s, schema_version=version, key=key)

    async def ddl(
        self,
        job_json: bytes,
        query: str,
        schema_state: int = binlog.SCHEMA_STATE_PUBLIC,
        *,
        ttl_s: float = LEASE_TTL_S,
    ) -> int:
        """Publish a finished schema change; its commit_ts.

        `job_json` is a TiDB DDL job (`pumpclient.ddl_job` makes some); its `id` and `binlog.SchemaVersion`
        are read, its `binlog.FinishedTS` must be 0, since it may not be below the commit_ts that is drawn
        here: a Drainer that starts later would take the job for done too early. Await it with no
        transaction on the touched tables open. Raises `InvalidBinlog` for a job without an id, and what
        `Transaction.commit` raises. A job whose commit failed stays in the history without a binlog, which
        does no harm; published again, it gets a new start_ts.
        """
        job_id = _job_field(job_json, "id")
        if job_id <= 0:
            raise InvalidBinlog("the DDL job has no id", hint="pass the JSON of a TiDB DDL job")
        start_ts = await self.begin(ttl_s, None)
        key = entry_key(start_ts)
        try:
            await self.client.write_ddl_prewrite(start_ts, key, query, job_id, schema_state)
            await self._upstream.history.add(job_json)
        except BaseException:
            with suppress(BinlogError):  # the first error is the one to report; the lease runs out
                await self.roll_back(start_ts, key, prewritten=True)
            raise
        commit_ts = await self.commit(start_ts, key, prewritten=True)
        self.schema_version = max(self.schema_version, _job_field(job_json, "SchemaVersion"))
        return commit_ts

    # What a transaction does through its publisher.

    async def begin(self, ttl_s: float, transaction: Transaction | None) -> int:
        """Draw start_ts and open the entry; from here the lease is renewed. For `Transaction`."""
        if self._stopping.is_set():
            raise ClientClosed("the publisher is closed")
        start_ts = await self._upstream.transactions.begin(ttl_s)
        self._leases.opened(start_ts, ttl_s, self._clock.monotonic_s())
        if transaction is not None:
            self._open[start_ts] = transaction
        self._lease_opened.set()
        return start_ts

    async def commit(self, start_ts: int, key: bytes, *, prewritten: bool, deliver: bool = True) -> int:
        """Decide for commit, then report it in the background. For `Transaction`."""
        try:
            commit_ts = await self._decide(start_ts)
        except Conflict as error:
            if prewritten and deliver:
                self._report(self._tell(start_ts, self.client.write_rollback(start_ts, key)))
            raise TransactionLost(
                f"transaction {start_ts} was rolled back by others: {error.message}",
                hint="its lease ran out; run it again, with a longer ttl_s if this process was just slow",
            ) from error
        except Unavailable as error:
            # Decided or not, nobody knows: a rollback binlog would be believed and might be wrong.
            raise OutcomeUnknown(
                f"transaction {start_ts} may be committed: {error.message}",
                hint="ask the upstream for its outcome once etcd answers",
            ) from error
        finally:
            self.release(start_ts)
        if deliver:
            told = self.client.write_commit(start_ts, commit_ts, key) if prewritten else None
            self._report(self._tell(start_ts, told))
        return commit_ts

    async def _decide(self, start_ts: int) -> int:
        """Commit at the upstream; asked again after a broken connection, it answers the same."""
        give_up_s = self._clock.monotonic_s() + DECIDE_S
        while True:
            try:
                return await self._upstream.transactions.commit(start_ts)
            except Unavailable:
                if self._stopping.is_set() or self._clock.monotonic_s() + DECIDE_PAUSE_S > give_up_s:
                    raise
            await self._pauses.pause(DECIDE_PAUSE_S, self._stopping)

    async def roll_back(self, start_ts: int, key: bytes, *, prewritten: bool, deliver: bool = True) -> None:
        """Decide for rollback, then report it in the background. For `Transaction`."""
        self.release(start_ts)
        await self._upstream.transactions.roll_back(start_ts)
        if deliver:
            told = self.client.write_rollback(start_ts, key) if prewritten else None
            self._report(self._tell(start_ts, told))

    def release(self, start_ts: int) -> None:
        """Renew the lease of this transaction no longer. For `Transaction`."""
        self._leases.closed(start_ts)
        self._open.pop(start_ts, None)

    # Background.

    def _report(self, work: Coroutine[Any, Any, None]) -> None:
        if len(self._deliveries) >= DELIVERIES_MAX:
            work.close()
            logger.warning("%d ends are being delivered already: one is left to the pump", DELIVERIES_MAX)
            return
        delivery = asyncio.get_running_loop().create_task(work, name="pumpclient end")
        self._deliveries.add(delivery)
        delivery.add_done_callback(self._deliveries.discard)

    async def _tell(self, start_ts: int, told: Coroutine[Any, Any, bool] | None) -> None:
        """Send the end (None: no pump has the prewrite), then drop the entry that answers for it."""
        if told is not None and not await told:
            return
        try:
            await self._upstream.transactions.forget(start_ts)
        except BinlogError as error:
            logger.warning("the entry of transaction %d stays in the upstream: %s", start_ts, error)

    async def _keep_leases(self) -> None:
        """Renew what is due; a transaction that others have rolled back learns it at its next step."""
        while True:
            self._lease_opened.clear()
            await asyncio.gather(*map(self._renew, self._leases.due(self._clock.monotonic_s())))
            await self._pauses.until(self._leases.next_due_s(), self._lease_opened)

    async def _renew(self, renewal: Renewal) -> None:
        try:
            await self._upstream.transactions.keep_alive(renewal.start_ts, renewal.ttl_s)
        except Conflict:
            transaction = self._open.get(renewal.start_ts)
            self.release(renewal.start_ts)
            if transaction is not None:
                transaction.lost = True
        except BinlogError as error:
            logger.warning("lease of transaction %d not renewed: %s", renewal.start_ts, error)


def _job_field(job_json: bytes, name: str) -> int:
    """`id`, or a field of `binlog`, of a DDL job; 0 where it is missing."""
    try:
        job = json.loads(job_json)
        found = job.get("id") if name == "id" else (job.get("binlog") or {}).get(name)
        return int(found or 0)
    except (ValueError, TypeError, AttributeError):
        raise InvalidBinlog(
            "the DDL job is not the JSON of a job", hint="pass the JSON of a TiDB DDL job"
        ) from None


async def open_publisher(
    endpoints: str,
    *,
    strategy: str = "range",
    options: Options | None = None,
    tls: TlsConfig | None = None,
    cluster_id: int | None = None,
) -> Publisher:
    """A publisher on the standalone upstream in etcd at `endpoints`, a comma list of host:port.

    `cluster_id` is checked against the upstream's, and becomes it where there is none yet. Raises what
    `connect` raises.
    """
    upstream = await StandaloneUpstream.connect(endpoints, tls=tls, cluster_id=cluster_id)
    try:
        client = await connect(
            endpoints, cluster_id=upstream.cluster_id, strategy=strategy, options=options, tls=tls
        )
    except BaseException:
        await upstream.close()
        raise
    publisher = Publisher(client, upstream)
    try:
        await publisher.start()
    except BaseException:
        await publisher.close(drain_s=0.0)
        raise
    return publisher

"""Publisher: an ordered transaction stream for programs that have no TiDB.

Owns    a task that renews the leases of open transactions, one that follows the catalogue, one that settles
        what is in doubt, one that drops ends no longer needed; one short task per end being delivered
Stops   `close` lets deliveries under way end for `drain_s` seconds, then abandons them: pumps ask the
        upstream for the ends that did not reach them
Never   decides an outcome twice: what the upstream recorded is the outcome, binlogs only report it

The order of one transaction, and why:

    1  start_ts drawn, open entry with a lease written   from here on pumps may ask about it
    2  prewrite acknowledged by a pump                   the rows are on disk
    3  commit_ts drawn, entry open -> committed          drawn after 2: nothing that a pump does not have
                                                         yet can get a timestamp below its watermark
    4  commit sent to that pump, in the background       spares the pump the question
    5  entry forgotten                                   only after 4: otherwise the answer is still needed

With a database of the application's own (`outcomes`) that database decides, and step 3 becomes

    3a  commit_ts drawn, entry open -> prepared          while the database's transaction holds its locks: who
                                                         gets them next draws a larger commit_ts
    3b  the database commits, with start_ts in its       what it did can be asked later, finally
        outcome table
    3c  entry prepared -> committed, in the background   spares all others that question

Before 3a a lease that has run out means rolled back, and then 3a fails and the application does not commit.
After 3a no timer means anything: a process that dies leaves the transaction prepared, the stream waits for
it, and the next publisher with the same `outcomes` asks the database. So rows arrive exactly if the database
committed them, in its order, whatever dies when. Between 3a and 5 etcd may be down: nothing waits for it.

A schema change goes the first way; in step 3 its job enters the history and the catalogue changes too. Step 3
of every transaction fails when a table that its rows are encoded for has changed.

    async with pumpclient.open_publisher("127.0.0.1:2379") as publisher:
        await publisher.create_database("shop")
        orders = [pumpclient.column("id", "int"), pumpclient.column("item", "varchar(40)")]
        await publisher.create_table("shop.orders", orders, primary_key=["id"])
        async with publisher.transaction() as txn:
            txn.insert("shop.orders", {"id": 1, "item": "pen"})
        assert txn.commit_ts > txn.start_ts
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from pumpclient.client import PumpClient, connect
from pumpclient.errors import InvalidBinlog, SchemaChanged
from pumpclient.opening import opening
from pumpclient.options import Options
from pumpclient.publish.followed_catalog import FollowedCatalog, job_last_id, job_number
from pumpclient.publish.outcome_delivery import OutcomeDelivery
from pumpclient.publish.outcome_table import Outcomes
from pumpclient.publish.settlement import SETTLE_EVERY_S, Settled, Settlement, missing_database
from pumpclient.publish.statements import Statements
from pumpclient.publish.transaction import Prewrite, Transaction, entry_key
from pumpclient.publish.transaction_steps import TransactionSteps
from pumpclient.publish.upstream_port import WritableUpstream
from pumpclient.schema.catalog import Catalog, Planner
from pumpclient.tasks import Background, Pauses, Sleep
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.ddl_job import state_after
from tidb_binlog.errors import BinlogError, ConfigError, Conflict
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.table_info import SchemaState
from tidb_binlog.upstream.standalone import CatalogChange, SchemaMoved, StandaloneUpstream

logger: Final = logging.getLogger("pumpclient")

LEASE_TTL_S: Final = 3.0
FOLLOW_EVERY_S: Final = 2.0
SWEEP_EVERY_S: Final = 60.0

IN_MEMORY: Final[dict[str, Callable[[Outcomes | None], Awaitable[Publisher]]]] = {}
"""Clusters of tests, by endpoint (`binlog_testing`)."""


class Publisher(Statements[Coroutine[Any, Any, int]]):
    """Made by `open_publisher`; use it as an async context manager."""

    def __init__(
        self,
        client: PumpClient,
        upstream: WritableUpstream,
        *,
        outcomes: Outcomes | None = None,
        clock: Clock | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.client = client
        self.outcomes = outcomes
        self._upstream = upstream
        clock = clock or SystemClock()
        self._pauses = Pauses(clock, sleep)
        self._background = Background()
        self._stopping = asyncio.Event()
        self._ends = OutcomeDelivery(upstream.transactions, self._pauses, self._stopping)
        self._settlement = Settlement(upstream.transactions, outcomes) if outcomes else None
        self._definitions = FollowedCatalog(upstream)
        self._steps = TransactionSteps(
            client,
            upstream.transactions,
            self._definitions,
            self._ends,
            self._settlement,
            clock,
            self._pauses,
            self._stopping,
        )
        self._schema = SchemaPublishing(client, upstream, self._definitions, self._steps)
        super().__init__(self._schema.publish)

    async def start(self) -> None:
        """Learn the schema, begin to renew leases and to settle. `open_publisher` has done so."""
        await self.refresh()
        if self._settlement is not None:
            await self._settlement.name()
            self._background.spawn(self._keep_settling(self._settlement), "pumpclient settlement")
        self._background.spawn(self._steps.keep_leases(), "pumpclient leases")
        follow = self._repeat(self._definitions.follow, FOLLOW_EVERY_S, "the catalogue is not read")
        self._background.spawn(follow, "pumpclient catalogue")
        sweep = self._repeat(self._sweep, SWEEP_EVERY_S, "ended transactions are not dropped")
        self._background.spawn(sweep, "pumpclient sweep")

    async def close(self, drain_s: float = 10.0) -> None:
        """Let deliveries end for `drain_s` seconds, then end all connections."""
        self._stopping.set()
        await self._background.end()
        if self._settlement is not None:
            await self._settlement.end()
        try:
            await self._ends.close(drain_s)
        finally:
            await self.client.close()
            await self._upstream.close()

    async def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until every end begun so far was delivered or given up; False when time ran out first."""
        return await self._ends.flush(timeout_s)

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

        `ttl_s` is how long others wait before they end it when this process has died; it is renewed while
        the process lives. `schema_version`, for rows that the host encodes itself, is that of the newest DDL
        they are encoded for. `key` becomes the binlog's prewrite key; by default it names the entry.
        """
        if ttl_s <= 0:
            raise ConfigError(f"ttl_s of a transaction is {ttl_s}", hint="give seconds above zero")
        return Transaction(self._steps, ttl_s=ttl_s, schema_version=schema_version, key=key)

    @property
    def catalog(self) -> Catalog:
        """Databases and tables as this publisher knows them; at most a second or two behind."""
        return self._definitions.catalog

    @property
    def schema_version(self) -> int:
        """Version given to transactions that name none: the newest that this publisher knows."""
        return self._definitions.catalog.version

    async def refresh(self) -> None:
        """Load the catalogue now, and found one where there is none. Raises `Unavailable`."""
        await self._definitions.load()

    async def settle(self, outcomes: Outcomes | None = None) -> Settled:
        """Ask the application's database about prepared transactions whose owners died, and write down the
        ends. A publisher opened with `outcomes` does so by itself, every few seconds.

        `outcomes` may be another database's. Raises `ConfigError` where there is none to ask, `Unavailable`.
        """
        if outcomes is not None:
            settlement = Settlement(self._upstream.transactions, outcomes)
            try:
                return await settlement.settle()
            finally:
                await settlement.end()
        if self._settlement is None:
            raise missing_database()
        return await self._settlement.settle(purge=True)

    async def ddl(
        self,
        job_json: bytes,
        query: str,
        schema_state: int = SchemaState.PUBLIC,
        *,
        ttl_s: float = LEASE_TTL_S,
    ) -> int:
        """Publish a finished schema change; its commit_ts.

        `job_json` is a TiDB DDL job (`pumpclient.schema.catalog` makes some), with ids and a schema version
        of the program's own; `create_table` and its like are the easier way. Its `binlog.FinishedTS` must
        be 0, since it may not be below the commit_ts that is drawn here: a Drainer that starts later would
        take the job for done too early. Await it with no transaction on the touched tables open.

        Raises `InvalidBinlog` for a job without an id, `Conflict` where another job has its id, and
        `WriteFailed`, `TransactionLost`, `OutcomeUnknown`.
        """
        return await self._schema.publish_job(job_json, query, schema_state, ttl_s)

    async def _repeat(self, work: Callable[[], Awaitable[None]], every_s: float, failed: str) -> None:
        while True:
            try:
                await work()
            except BinlogError as error:
                logger.warning("%s now: %s", failed, error)
            await self._pauses.pause(every_s, self._stopping)

    async def _sweep(self) -> None:
        """Drop the ends of those who died before they could: what all pumps have passed they ask no more."""
        if self.client.watermark:
            await self._upstream.transactions.sweep(self.client.watermark)

    async def _keep_settling(self, settlement: Settlement) -> None:
        """Settle what is in doubt, at once what is in doubt here. A database may take its time to answer."""
        for turn in itertools.count():
            await settlement.run_turn(turn)
            await self._pauses.pause(SETTLE_EVERY_S, settlement.due)


@opening
async def open_publisher(
    endpoints: str,
    *,
    strategy: str = "range",
    options: Options | None = None,
    tls: TlsConfig | None = None,
    cluster_id: int | None = None,
    outcomes: Outcomes | None = None,
    label: Mapping[str, str] | None = None,
) -> Publisher:
    """A publisher on the standalone upstream in etcd at `endpoints`, a comma list of host:port.

    `cluster_id` is checked against the upstream's, and becomes it where there is none yet. `outcomes`: the
    application's own database, whose commits decide (see `Transaction.prepare`). `label`: the pumps that come
    first, as for `connect`. Raises what `connect`
    raises, and what `outcomes.name()` raises.
    """
    in_memory = IN_MEMORY.get(endpoints)
    if in_memory is not None:
        return await in_memory(outcomes)
    upstream = await StandaloneUpstream.connect(endpoints, tls=tls, cluster_id=cluster_id)
    try:
        client = await connect(
            endpoints,
            cluster_id=upstream.cluster_id,
            strategy=strategy,
            options=options,
            tls=tls,
            label=label,
        )
    except BaseException:
        await upstream.close()
        raise
    publisher = Publisher(client, upstream, outcomes=outcomes)
    try:
        await publisher.start()
    except BaseException:
        await publisher.close(drain_s=0.0)
        raise
    return publisher


# Schema publishing: how a change of the catalogue becomes a DDL binlog.
# Order   begin; prewrite of the statement at a pump; one step in etcd: the commit, the job in the history,
#         the catalogue. Where another publisher changed the catalogue first, all of it again on top of that
# Never   gives an id or a version to two changes: both are counted in the head that the step compares

TTL_S: Final = 3.0
TRIES_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class SchemaPublishing:
    """One publisher's."""

    client: PumpClient
    upstream: WritableUpstream
    definitions: FollowedCatalog
    steps: TransactionSteps

    async def publish(self, planner: Planner) -> int:
        """Plan a change and publish it; its commit_ts, 0 where nothing is to be done."""
        self.client.require_loop()
        for _ in range(TRIES_MAX):
            await self.definitions.follow()
            plan = planner(self.definitions.catalog)
            if plan is None:
                return 0
            job = plan.job
            change = CatalogChange(
                self.definitions.catalog.revision, plan.head, job.id, job.to_json, plan.puts
            )
            try:
                return await self._publish(change, plan.query, state_after(job.action), TTL_S)
            except SchemaMoved:
                continue
        raise SchemaChanged(
            f"the catalogue changed {TRIES_MAX} times under this change", hint="publish from one program"
        )

    async def publish_job(self, job_json: bytes, query: str, schema_state: int, ttl_s: float) -> int:
        """See `Publisher.ddl`."""
        self.client.require_loop()
        job_id = job_number(job_json, "id")
        if job_id <= 0:
            raise InvalidBinlog("the DDL job has no id", hint="pass the JSON of a TiDB DDL job")
        if (await self.upstream.history.job(job_id)) not in (None, job_json):
            raise Conflict(f"DDL job {job_id} is in the history with other contents", hint="use a new job id")
        for _ in range(TRIES_MAX):
            await self.definitions.follow()
            before = self.definitions.catalog
            version = max(before.version, job_number(job_json, "SchemaVersion"))
            head = replace(before, version=version, last_id=max(before.last_id, job_last_id(job_json))).head()
            change = CatalogChange(before.revision, head, job_id, lambda _: job_json)
            try:
                return await self._publish(change, query, schema_state, ttl_s)
            except SchemaMoved:
                continue
        raise SchemaChanged(
            f"the catalogue changed {TRIES_MAX} times under this change", hint="publish from one program"
        )

    async def _publish(self, change: CatalogChange, query: str, schema_state: int, ttl_s: float) -> int:
        start_ts = await self.steps.begin(ttl_s, None)
        key = entry_key(start_ts)
        try:
            stored = await self.client.write_ddl_prewrite(start_ts, key, query, change.job_id, schema_state)
        except BaseException:
            with suppress(BinlogError):  # the first error is the one to report; the lease runs out
                await self.steps.roll_back(start_ts, key, Prewrite.NONE)
            raise
        prewrite = Prewrite.of(stored)

        async def step() -> int:
            return await self.upstream.catalog.commit(start_ts, change)

        commit_ts = await self.steps.decide(start_ts, key, step, prewrite)
        self.steps.report_commit(start_ts, commit_ts, key, prewrite)
        try:
            await self.definitions.refresh()
        except BinlogError as error:  # the change is published; `follow` sees it when etcd answers
            logger.warning("the catalogue is not read after a change of it: %s", error)
        return commit_ts

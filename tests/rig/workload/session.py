"""Sessions: run planned transactions and DDL against real Pumps through `pumpclient`.

Drives  `workload`, `evolution` and `model` (what), `pumpclient.Publisher` (how)
Owns    one task per session and one for DDL
Stops   at the time given, with every transaction of theirs ended
Never   guesses an outcome: an unknown one is asked of the upstream until it is known
Tests   tests/rig/test_rig.py
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from pumpclient.errors import OutcomeUnknown, TransactionLost, WriteFailed
from pumpclient.publish.publisher import Publisher
from pumpclient.publish.transaction import Transaction
from tests.rig.workload import evolution, job
from tests.rig.workload.encoding import RowImages
from tests.rig.workload.evolution import Ddl, Evolution
from tests.rig.workload.model import Model, TableState
from tests.rig.workload.model import Transaction as PlannedTransaction
from tests.rig.workload.statistics import RigStatistics
from tests.rig.workload.tables import SHARDS, SWAPPED, Table
from tests.rig.workload.workload import Ending, Plan, Workload
from tidb_binlog.clock import Clock
from tidb_binlog.ddl_job import ActionType, DdlJob
from tidb_binlog.errors import BinlogError
from tidb_binlog.upstream.standalone import StandaloneUpstream
from tidb_binlog.upstream_port import Committed, RolledBack, Undecided

LEASE_TTL_S = 10.0
ABANDONED_TTL_S = 0.05
POLL_S = 0.002
RETRY_S = 0.2
LOSING = "losing_key"
LOSES_EVERY = 4
PROBES_KEPT = 20


@dataclass(frozen=True, slots=True)
class Made:
    """A job and its JSON."""

    job: DdlJob
    text: bytes


class Writer:
    """What all sessions share: the connection, the model and the schema version."""

    def __init__(
        self,
        publisher: Publisher,
        upstream: StandaloneUpstream,
        model: Model,
        statistics: RigStatistics,
        ids: Iterator[int],
        schema_version: int,
    ) -> None:
        self.publisher = publisher
        self.upstream = upstream
        self.model = model
        self.statistics = statistics
        self.last_commit_ts = 0
        self.schema_id = next(ids)
        self._images = RowImages()
        self._ids = ids
        self._versions = itertools.count(schema_version + 1)
        self.schema_version = schema_version
        self._open = asyncio.Event()
        self._open.set()
        self._under_way = 0

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Nothing new begins, and what was begun has ended."""
        self._open.clear()
        try:
            while self._under_way:
                await asyncio.sleep(POLL_S)
            yield
        finally:
            await self._until_upstream_answers()
            self._open.set()

    async def _until_upstream_answers(self) -> None:
        """Through the connections that sessions use, which may still be pausing after an outage."""
        while True:
            try:
                transaction = self.publisher.transaction(ttl_s=LEASE_TTL_S)
                await transaction.begin()
                await transaction.roll_back()
                await self.upstream.transactions.outcomes([(1, b"")])
                return
            except BinlogError:
                await asyncio.sleep(RETRY_S)

    @asynccontextmanager
    async def _working(self) -> AsyncIterator[None]:
        await self._open.wait()
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    async def run(self, plan: Plan) -> bool:
        """Carry out one transaction; True when it committed. Its locks are released at the end."""
        transaction = plan.transaction
        committed = False
        try:
            async with self._working():
                committed = await self._run(plan)
        except WriteFailed:  # no Pump took it: rolled back, as an application would see it
            self.statistics.refused += 1
        finally:
            self.model.end(transaction, committed=committed)
        if committed:
            self.statistics.committed(len(transaction.changes))
        return committed

    async def _begin(self, plan: Plan, ttl_s: float) -> Transaction:
        """A transaction with the rows of the plan."""
        transaction = self.publisher.transaction(ttl_s=ttl_s, schema_version=self.schema_version)
        await transaction.begin()
        for table_id, kind, row in self._images.encode(plan.transaction.changes):
            transaction.add(table_id, kind, row)
        return transaction

    async def _run(self, plan: Plan) -> bool:
        ttl_s = ABANDONED_TTL_S if plan.ending is Ending.ABANDON else LEASE_TTL_S
        transaction = await self._begin(plan, ttl_s)
        if plan.ending is Ending.ABANDON:
            await transaction.abandon()
            self.statistics.abandoned += 1
            return False
        if plan.ending is Ending.ROLL_BACK:
            await transaction.prewrite()
            await transaction.roll_back()
            self.statistics.rolled_back += 1
            return False
        try:
            commit_ts = await transaction.commit(deliver=plan.ending is not Ending.LOSE_COMMIT)
        except TransactionLost:
            self.statistics.lost_by_lease += 1
            return False
        except OutcomeUnknown:
            found = await self._outcome(transaction.start_ts)
            if found is None:
                return False
            commit_ts = found
        self.last_commit_ts = max(self.last_commit_ts, commit_ts)
        return True

    async def _outcome(self, start_ts: int) -> int | None:
        """Ask until it is decided: the commit timestamp, None for rolled back."""
        while True:
            try:
                outcome = (await self.upstream.transactions.outcomes([(start_ts, b"")]))[0]
            except BinlogError:
                await asyncio.sleep(RETRY_S)
                continue
            match outcome:
                case Committed(commit_ts):
                    return commit_ts
                case RolledBack():
                    return None
                case Undecided(retry_after_s):
                    await asyncio.sleep(retry_after_s)

    async def run_ddl(self, ddl: Ddl) -> None:
        """Publish a DDL whose table is closed and idle, then change the model."""
        table = ddl.after or ddl.before
        assert table is not None
        async with self._working():
            await self._publish(await self._job(ddl.kind, ddl.query, table, ddl.before or table))
        evolution.apply(self.model, ddl)
        self.statistics.ddl += 1
        self.statistics.shard_ddl += table.name in SHARDS and ddl.before is not None
        self.statistics.type_changes += ddl.kind == ActionType.MODIFY_COLUMN

    async def give_up(self, ddl: Ddl) -> Made:
        """What TiDB does before a DDL that ends a constraint is done: its job can be seen, and nothing is
        checked any more. `finish` publishes it."""
        assert ddl.after is not None
        async with self._working():
            made = await self._job(ddl.kind, ddl.query, ddl.after, ddl.before)
            await self.upstream.history.add(made.text)
        evolution.apply(self.model, ddl)
        return made

    async def finish(self, made: Made) -> None:
        """Publish a DDL whose job is in the history; its table is closed and idle."""
        async with self._working():
            await self._publish(made)
        self.statistics.ddl += 1

    async def create_schema(self) -> None:
        query = f"CREATE DATABASE `{self.model.schema}`"
        await self._publish(await self._job(ActionType.CREATE_SCHEMA, query, None, None))

    async def swap(self, one: TableState, other: TableState) -> None:
        """Two tables that are closed and idle take each other's name, in one statement."""
        first, second = one.table, other.table
        between = f"{first.name}_"
        query = (
            f"RENAME TABLE `{first.name}` TO `{between}`, `{second.name}` TO `{first.name}`,"
            f" `{between}` TO `{second.name}`"
        )
        moved = replace(first, name=between), replace(second, name=first.name)
        tables = (*moved, replace(first, name=second.name))
        async with self._working():
            await self._publish(await self._job(ActionType.RENAME_TABLES, query, None, first, tables))
        for name, table in zip((first.name, second.name, between), tables, strict=True):
            self.model.rename(name, table)
        self.statistics.ddl += 1

    async def _job(
        self,
        kind: int,
        query: str,
        table: Table | None,
        before: Table | None,
        tables: Sequence[Table] = (),
    ) -> Made:
        version = next(self._versions)
        described = DdlJob(
            id=next(self._ids),
            action=kind,
            schema_id=self.schema_id,
            schema_name=self.model.schema,
            table_id=before.id if before is not None else 0,
            table_name=before.name if before is not None else "",
            query=query,
            schema_version=version,
        )
        start_ts = await self.upstream.oracle.timestamp()
        return Made(described, job.job_json(described, table, start_ts, tables))

    async def _publish(self, made: Made) -> None:
        for state in job.binlog_states(made.job):
            commit_ts = 0
            while not commit_ts:
                with contextlib.suppress(WriteFailed):  # no Pump took it: TiDB runs this step once more
                    query = made.job.query + ";"
                    commit_ts = await self.publisher.ddl(made.text, query, state, ttl_s=LEASE_TTL_S)
            self.last_commit_ts = max(self.last_commit_ts, commit_ts)
        self.schema_version = made.job.schema_version


async def run_session(
    writer: Writer, workload: Workload, interval_s: float, end_s: float, clock: Clock
) -> None:
    """One session: a transaction every `interval_s` (0: as fast as it goes) until `end_s` (monotonic).

    All sessions keep to one beat: they share round trips to etcd and fsyncs of the Pumps, which costs a
    quarter less CPU than spreading them. One that comes late (a Pump was down) leaves beats out.
    """
    due_s = clock.monotonic_s()
    while (now_s := clock.monotonic_s()) < end_s:
        if now_s < due_s:
            await asyncio.sleep(min(due_s, end_s) - now_s)
            continue
        if interval_s:
            due_s += interval_s * max(1.0, (now_s - due_s) // interval_s)
        plan = workload.next()
        if plan is None:
            await asyncio.sleep(POLL_S)
            continue
        await writer.run(plan)


async def run_evolution(
    writer: Writer,
    changes: Evolution,
    pause_s: float,
    end_s: float,
    clock: Clock,
) -> None:
    """One DDL after the other until `end_s`, `pause_s` between them."""
    turn = 0
    while clock.monotonic_s() + pause_s < end_s:
        await asyncio.sleep(pause_s)
        turn += 1
        if LOSING in writer.model.tables and turn % LOSES_EVERY == 0:
            await _lose_a_key(writer, changes, pause_s)
            continue
        if SHARDS[0] in writer.model.tables and turn % LOSES_EVERY == 2:
            await _change_shards(writer, changes, pause_s)
            continue
        if SWAPPED[0] in writer.model.tables and turn % LOSES_EVERY == 1:
            one, other = (writer.model.tables[name] for name in SWAPPED)
            async with _idle(one), _idle(other):
                await writer.swap(one, other)
            continue
        name = changes.choose()
        state = writer.model.tables.get(name)
        if state is None:
            await writer.run_ddl(changes.plan(name))
            continue
        async with _idle(state):
            await writer.run_ddl(changes.plan(name))


async def _change_shards(writer: Writer, changes: Evolution, pause_s: float) -> None:
    """Rows of both come between the DDL of one and that of the other, which always comes."""
    one, other = (writer.model.tables[name] for name in SHARDS)
    for ddl in changes.of_shards():
        async with _idle(one), _idle(other):
            await writer.run_ddl(ddl)
        await asyncio.sleep(pause_s)


async def _lose_a_key(writer: Writer, changes: Evolution, pause_s: float) -> None:
    """Rows that a unique key forbids are written before the DDL that drops it is published."""
    state = writer.model.tables[LOSING]
    gain, lose = changes.gained_and_lost(LOSING)
    async with _idle(state):
        for ddl in gain:
            await writer.run_ddl(ddl)
    await asyncio.sleep(pause_s)
    async with _idle(state):
        made = await writer.give_up(lose)
    await asyncio.sleep(pause_s / 2)
    async with _idle(state):
        await writer.finish(made)


@asynccontextmanager
async def _idle(state: TableState) -> AsyncIterator[None]:
    """Nothing is written to the table meanwhile."""
    state.closed = True
    try:
        while state.in_flight:
            await asyncio.sleep(POLL_S)
        yield
    finally:
        state.closed = False


async def run_rare_endings(
    writer: Writer, workload: Workload, endings: dict[Ending, float], end_s: float, clock: Clock
) -> None:
    """Transactions that are never ended, each form every so many seconds.

    They are rare on purpose: until such a transaction's lease has run out, nothing later may be applied.
    """
    due_s = {ending: clock.monotonic_s() + every_s / 2 for ending, every_s in endings.items()}
    while (now_s := clock.monotonic_s()) < end_s:
        for ending in [one for one, at_s in due_s.items() if at_s <= now_s]:
            due_s[ending] = now_s + endings[ending]
            plan = workload.next(ending)
            if plan is not None:
                await writer.run(plan)
        await asyncio.sleep(min(end_s - now_s, 0.1))


async def run_large(
    writer: Writer, workload: Workload, statements: int, every_s: float, end_s: float, clock: Clock
) -> None:
    """Transactions of so many statements, that often until `end_s`."""
    while clock.monotonic_s() + every_s < end_s:
        await asyncio.sleep(every_s)
        plan = workload.next(Ending.COMMIT, statements)
        if plan is not None:
            await writer.run(plan)


async def run_probe(writer: Writer, table: Table, number: int, sent_at: str) -> bool:
    """Commit the next probe: a row with the next number, without the one `PROBES_KEPT` before it."""
    transaction = PlannedTransaction()
    state = writer.model.tables[table.name]
    row_id = transaction.insert(state, (number, sent_at))
    assert row_id == number
    if number > PROBES_KEPT:
        transaction.delete(state, number - PROBES_KEPT)
    return await writer.run(Plan(transaction, Ending.COMMIT))

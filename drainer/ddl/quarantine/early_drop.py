"""Early drop: a constraint that the upstream has given up goes downstream before the DDL that drops it comes.

Drives  the upstream's jobs (finished ones, and the one under way), the DDL session, the list of decisions
Holds   nothing is dropped but what the table's next job ends for good; each drop is written down, with the
        job, before it is made and when it is. The job's own DDL comes later, finds the constraint gone, and
        does the rest
Why     TiDB stops checking some time before the job's binlog: rows of between would be refused here for
        ever. A lane with such a refusal has rolled back; it asks, and tries again when this has answered.
        Which lane a row goes to stays as it was: lanes learn of a table at drained points only
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from drainer.checkpoint.keeper import CheckpointKeeper
from drainer.ddl.derive.compare import PresentKey
from drainer.ddl.derive.render import Server, name_of
from drainer.ddl.quarantine.controller import QuarantineController
from drainer.ddl.quarantine.entry import SAME_KEY
from drainer.ddl.quarantine.store import Decided, QuarantineTable
from drainer.ddl.rules import APPLY
from drainer.ddl.run import downstream_schema
from drainer.ddl.run.connection import run_ddl
from drainer.ddl.run.runner import DdlRunner
from drainer.mysql.connection import Connection
from drainer.mysql.errors import StatementRefused, safe_text
from drainer.mysql.literal.plan import compile_sql
from drainer.mysql.refusal import Refusal
from drainer.mysql.rows.dialect import Dialect
from drainer.stream.schema.given_up import Constraint, Kind, Later, is_given_up
from drainer.txn import TableVersion
from tidb_binlog import ddl_job
from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import Clock
from tidb_binlog.errors import DownstreamError, Unavailable
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.observe import log
from tidb_binlog.upstream_port import SchemaHistory

logger = log.get("drainer.early_drop")
T = TypeVar("T")

LOOK_BACK: Final = 1000
"""A job's id is drawn some time before the job ends: so many older ids may end later."""


@dataclass(frozen=True, slots=True)
class UpstreamJobs:
    """`last_id`: of the jobs that the stream has brought. `table`: an id as its rows are written now, None
    for what does not replicate. `replicates`: whether such a statement on it runs downstream by the rules.
    """

    history: SchemaHistory
    last_id: Callable[[], int]
    table: Callable[[int], TableVersion | None]
    replicates: Callable[[TableVersion, int, str], bool]


@dataclass(frozen=True, slots=True)
class PresentConstraint:
    """A constraint that the downstream has. `parts` of a key: (column, prefix length or 0)."""

    constraint: Constraint
    parts: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, key: PresentKey) -> PresentConstraint:
        columns = [column for column, _ in key.parts]
        whole = frozenset(columns) if all(columns) else frozenset()
        return cls(Constraint(Kind.UNIQUE, key.name, whole), key.parts)


EARLY: Final = "early"
"""Besides what operators decide, in the list of decisions."""


class EarlyDrops:
    """On the event loop; `ask` from any thread."""

    def __init__(
        self,
        jobs: UpstreamJobs,
        keeper: CheckpointKeeper,
        runner: DdlRunner,
        table: QuarantineTable,
        clock: Clock,
    ) -> None:
        """`table`: of decisions."""
        self._jobs = jobs
        self._keeper = keeper
        self._runner = runner
        self._table = table
        self.controller: QuarantineController
        """Which decides what runs; set once, before the first `ask`."""
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._one_by_one = asyncio.Lock()

    def ask(self, refusal: Refusal) -> Future[bool]:
        """Whether the constraint that rows broke is gone now."""
        return asyncio.run_coroutine_threadsafe(self._resolve(refusal), self._loop)

    async def _resolve(self, refusal: Refusal) -> bool:
        version = refusal.table.version
        async with self._one_by_one:
            if not refusal.name:
                return await self._drop_all(version)
            present = await self._on_session(functools.partial(_broken, version.downstream, refusal))
            if present is None:
                return True  # it went meanwhile
            later = await self._later(version)
            if later is None or not is_given_up(present.constraint, version.info, later):
                return False
            return self._is_wanted(version, later) and await self._drop(version, present, later)

    async def _drop_all(self, version: TableVersion, *, passes_row_key: bool = False) -> bool:
        """Whatever the next job of the table ends for good; whether anything went."""
        later = await self._later(version)
        went = False
        if later is not None and self._is_wanted(version, later):
            for present in await self._on_session(functools.partial(_unique_keys, version.downstream)):
                if is_given_up(present.constraint, version.info, later):
                    if passes_row_key and _is_row_key(version, present):
                        continue  # its rows may never collide
                    went |= await self._drop(version, present, later)
        return went

    async def half_done(self, job_id: int) -> None:
        """A binlog says that a column is on its way out. All lanes are drained.

        Rows after it lack the column: all keys that the job ends go now.
        """
        async with self._one_by_one:
            table_id = await self._patiently(lambda: self._table_of(job_id))
            version = self._jobs.table(table_id) if table_id else None
            if version is not None:
                await self._drop_all(version, passes_row_key=True)

    def _is_wanted(self, version: TableVersion, later: Later) -> bool:
        """The job's own statement is to run downstream."""
        names = [(version.schema, version.name)]
        ruling = self.controller.explain(later.action, names, later.query)
        return ruling.action == APPLY and self._jobs.replicates(version, later.action, later.query)

    # -- the upstream ---------------------------------------------------------------------------------

    async def _later(self, version: TableVersion) -> Later | None:
        """The next definition of a table."""
        return await self._patiently(lambda: self._ask_upstream(version))

    async def _patiently(self, question: Callable[[], Awaitable[T]]) -> T:
        """Waits for an upstream that does not answer."""
        backoff = Backoff(0.1, 5.0)
        while True:
            try:
                return await question()
            except Unavailable as error:
                logger.warning("what a DDL job does to a table is not known yet", reason=str(error))
                await asyncio.sleep(backoff.next_s())

    async def _table_of(self, job_id: int) -> int:
        """0 where the upstream knows of no such job."""
        under_way = await self._jobs.history.under_way(job_id=job_id)
        data = under_way.job if under_way is not None else await self._jobs.history.job(job_id)
        return int(ddl_job.decode(data).get("table_id") or 0) if data else 0

    async def _ask_upstream(self, version: TableVersion) -> Later | None:
        # First: what ends meanwhile is a finished job.
        under_way = await self._jobs.history.under_way(table_id=version.id)
        later: Later | None = None
        first = 0
        async for page in self._jobs.history.pages(max(0, self._jobs.last_id() - LOOK_BACK)):
            for data in page:
                head = ddl_job.head(data) or ddl_job.parse(data)
                after = head.effective_version
                if head.table_id != version.id or after <= version.version or (later and after >= first):
                    continue
                job = ddl_job.decode(data)
                document = (job.get("binlog") or {}).get("TableInfo")
                if document:
                    later, first = Later(head.id, head.action, document, str(job.get("query") or "")), after
        if later is None and under_way is not None:
            job = ddl_job.decode(under_way.job)
            definition = ddl_job.decode(under_way.definition)
            later = Later(int(job["id"]), int(job["type"]), definition, str(job.get("query") or ""))
        return later

    # -- the downstream -------------------------------------------------------------------------------

    async def _drop(self, version: TableVersion, present: PresentConstraint, later: Later) -> bool:
        job_id, name = later.job_id, version.downstream
        if _is_row_key(version, present):
            key = ", ".join(sorted(present.constraint.columns))
            upstream = f"{version.schema}.{version.name}"
            raise DownstreamError(
                f"DDL job {job_id} ends the key ({key}) by which rows of {'.'.join(name)} are told apart, and"
                f" {SAME_KEY}",
                hint=f"`binlogctl load -tables {upstream} -replace` copies the table anew",
            )
        refused: DownstreamError | None = None
        for statement in await self._on_session(functools.partial(_statements, name, present)):
            noted = Decided(
                next(self.controller.numbers),
                job_id,
                int(self._clock.wall_s() * 1000),
                "upstream",
                EARLY,
                statement,
            )
            await self._note(noted)
            try:
                await self._on_session(functools.partial(_run, statement))
            except DownstreamError as error:
                refused = error
                await self._note(replace(noted, outcome=error.message))
                continue
            await self._note(replace(noted, outcome="ran, before its job's DDL"))
            logger.warning(
                "the upstream has given up a constraint: it goes before its DDL comes",
                job_id=job_id,
                table=".".join(name),
                constraint=present.constraint.name,
            )
            return True
        if refused is not None:
            logger.failure("a key that the upstream has given up stays", refused, job_id=job_id)
        return False

    async def _note(self, noted: Decided) -> None:
        """Durable when it returns."""
        store = self._keeper.store
        await self._keeper.call(store.together, lambda connection: self._table.decided(connection, noted))

    async def _on_session(self, work: Callable[[Connection, Server], T]) -> T:
        return await self._keeper.call(self._runner.on_session, work)


def _is_row_key(version: TableVersion, present: PresentConstraint) -> bool:
    key = {column.name.lower() for column in compile_sql(version.info).key_columns}
    return present.constraint.columns == key


def _run(statement: str, connection: Connection, server: Server) -> None:
    try:
        run_ddl(connection, statement.encode())
    except StatementRefused as error:
        raise DownstreamError(f"refused: {safe_text(error)}", hint="drop the key by hand") from None


def _unique_keys(name: tuple[str, str], connection: Connection, server: Server) -> list[PresentConstraint]:
    present = downstream_schema.read(connection, name, server)
    return [PresentConstraint.of(key) for key in present.keys if key.unique] if present is not None else []


def _broken(
    name: tuple[str, str], refusal: Refusal, connection: Connection, server: Server
) -> PresentConstraint | None:
    """The constraint that a server's text names; None where there is none any more."""
    if refusal.is_check:
        return PresentConstraint(Constraint(Kind.CHECK, refusal.name))
    keys = _unique_keys(name, connection, server)
    return next((key for key in keys if refusal.is_about(key.constraint.name)), None)


def _statements(
    name: tuple[str, str], present: PresentConstraint, connection: Connection, server: Server
) -> list[str]:
    """The first one that is taken will do. A key that something needs stays, and is no unique one."""
    table, called = f"ALTER TABLE {name_of(*name)}", present.constraint.name
    if present.constraint.kind is Kind.CHECK:
        return [
            f"{table} DROP {'CHECK' if server.dialect is Dialect.MYSQL else 'CONSTRAINT'} {name_of(called)}"
        ]
    if called.upper() == "PRIMARY":
        return [f"{table} DROP PRIMARY KEY"]
    drop = f"{table} DROP INDEX {name_of(called)}"
    if not present.constraint.columns:
        return [drop]
    parts = ", ".join(name_of(column) + (f"({length})" if length else "") for column, length in present.parts)
    return [drop, f"{drop}, ADD INDEX {name_of(called)} ({parts})"]

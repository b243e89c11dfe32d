"""DDL history and schema of a TiDB cluster, read from the meta keys.

Out     job JSON; the schema at a timestamp
Holds   a page of results, and the next one, which is read while the consumer works on the first
Why     `schema_at` gives the schema as the binlogs have it: a job that was under way at that time has
        changed definitions already (a column not visible yet, one that is on its way out), but its binlog
        comes later and brings the change. So what such a job works on is read as it was before the job's
        first step. Whether all that is still there is what the hold on garbage answers, before and after: PD
        decides what may be collected. The safe point that TiDB's own readers look up in etcd is what PD
        allowed some time ago, so it says nothing more
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Final, Protocol, Self

from tidb_binlog.errors import Corruption, Rejected, Unavailable
from tidb_binlog.foreign_document import UNREADABLE
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.tidb.meta import meta_keys
from tidb_binlog.upstream.tidb.tikv.key_errors import Collected
from tidb_binlog.upstream_port import GarbageHold, SchemaAt, SchemaPage, TimestampOracle, UnderWay

logger = log.get("tidb_binlog.upstream.tidb.history")

PAGE: Final = 1024
HOLD_S: Final = 300
LOOK_BACK: Final = 1000
"""A job's id is drawn some moments before the job can be seen: so many older ids may show up later."""
_DONE: Final = frozenset({3, 4, 5, 6})
"""States of a job (rolled back, done, cancelled, synced) whose last step is made."""
_ROLLS_BACK: Final = frozenset({2, 3, 5, 7})
"""States of a job (rolling back, rolled back, cancelled, being cancelled) that leaves things as they were."""
_NO_TABLE: Final = frozenset({1, 2, 26, 55, 63})
"""Types of jobs that work on a database."""


Page = list[tuple[bytes, bytes]]


class Snapshot(Protocol):
    """Everything as it was at a timestamp."""

    async def get(self, key: bytes) -> bytes | None: ...

    def scan(
        self, start: bytes, end: bytes, *, page: int = 1024, key_only: bool = False
    ) -> AsyncIterator[Page]: ...


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job under way at a timestamp. `began_ts`: everything was untouched by it then; 0: it has not
    begun."""

    id: int
    type: int
    done: bool
    schema_id: int
    table_id: int
    began_ts: Ts
    rolls_back: bool

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Raises `Corruption`."""
        try:
            job: dict[str, Any] = json.loads(data)
            return cls(
                id=int(job["id"]),
                type=int(job["type"]),
                done=int(job.get("state") or 0) in _DONE,
                schema_id=int(job.get("schema_id") or 0),
                table_id=int(job.get("table_id") or 0),
                began_ts=int(job.get("real_start_ts") or 0),
                rolls_back=int(job.get("state") or 0) in _ROLLS_BACK,
            )
        except UNREADABLE as error:
            raise Corruption(
                f"a DDL job under way cannot be read: {error!r}",
                hint="compare with `ADMIN SHOW DDL JOBS` of the upstream",
            ) from None


class TidbHistory:
    """`SchemaHistory` of a TiDB cluster."""

    def __init__(
        self, snapshot: Callable[[int], Snapshot], oracle: TimestampOracle, garbage: GarbageHold
    ) -> None:
        self._snapshot = snapshot
        self._oracle = oracle
        self._garbage = garbage

    async def job(self, job_id: int) -> bytes | None:
        """A finished job; where the meta keys do not have it, TiDB's own table of them may."""
        now = self._snapshot(await self._oracle.timestamp())
        text = await now.get(meta_keys.job_key(job_id))
        if text is None and (row := await now.get(meta_keys.history_row_key(job_id))):
            text = meta_keys.bytes_of(row, meta_keys.HISTORY_TABLE_META)
        return text or None

    async def pages(self, after_id: int = 0) -> AsyncIterator[list[bytes]]:
        """Finished jobs as of now."""
        now = self._snapshot(await self._oracle.timestamp())
        start, end = meta_keys.job_range(after_id)
        async with contextlib.aclosing(_ahead(now.scan(start, end, page=PAGE))) as pages:
            async for page in pages:
                yield [value for _, value in page]

    async def under_way(self, *, table_id: int = 0, job_id: int = 0) -> UnderWay | None:
        """The job and the definition are read at one timestamp of now."""
        now = self._snapshot(await self._oracle.timestamp())
        for data in await _running_jobs(now):
            job = RunningJob.read(data)
            if (job.id == job_id or job.table_id == table_id > 0) and not job.rolls_back:
                definition = await now.get(meta_keys.table_key(job.schema_id, job.table_id))
                if definition is not None:
                    return UnderWay(data, definition)
        return None

    async def schema_at(self, ts: Ts) -> SchemaAt | None:
        """The schema at `ts`. Its pages raise `Unavailable` if `ts` is collected while they are read."""
        hold = _Hold(self._garbage)
        try:
            schema = await self._schema_at(ts, hold)
        except Collected as error:
            logger.info("the schema at this timestamp is collected already", ts=ts, reason=str(error))
            schema = None
        except BaseException:
            await hold.end()
            raise
        if schema is None:
            await hold.end()
        return schema

    async def _schema_at(self, ts: Ts, hold: _Hold) -> SchemaAt | None:
        floor_ts = await hold.begin(ts)
        if floor_ts > ts:
            logger.info("the schema at this timestamp is collected already", ts=ts, kept_from=floor_ts)
            return None
        then = self._snapshot(ts)
        running = await _running(then)
        before: dict[bytes, bytes | None] = {}
        waiting = []
        for job in running:
            if job.done:
                continue
            waiting.append(job.id)
            if job.began_ts == 0:
                continue
            if job.began_ts < floor_ts:
                logger.info("what a job has changed is collected already", job_id=job.id, ts=job.began_ts)
                return None
            for key in _keys_of(job):
                before[key] = await self._snapshot(job.began_ts).get(key)
        newest_id = meta_keys.number(meta_keys.NEXT_GLOBAL_ID, await then.get(meta_keys.NEXT_GLOBAL_ID))
        history_after = min([newest_id, *(job.id - 1 for job in running)]) - LOOK_BACK
        return SchemaAt(
            version=await _version(then),
            pages=self._pages_of(then, before, hold),
            history_after=max(0, history_after),
            unfinished=frozenset(waiting),
        )

    async def _pages_of(
        self, then: Snapshot, before: dict[bytes, bytes | None], hold: _Hold
    ) -> AsyncGenerator[SchemaPage, None]:
        try:
            gone = {key for key, value in before.items() if value is None}
            left = {key: value for key, value in before.items() if value is not None}
            for span in (meta_keys.DATABASES, meta_keys.TABLES):
                async with contextlib.aclosing(_ahead(then.scan(*span, page=PAGE))) as pages:
                    async for page in pages:
                        pairs = [(key, left.pop(key, value)) for key, value in page if key not in gone]
                        yield _schema_page(pairs, span)
                behind = [(key, left.pop(key)) for key in list(left) if span[0] <= key < span[1]]
                yield _schema_page(behind, span)  # what is not there any more at this timestamp
            await hold.check()
        except Collected as error:
            raise Unavailable(f"the schema was collected while it was read: {error}") from None
        finally:
            await hold.end()


class _Hold:
    """Holds one timestamp readable."""

    def __init__(self, garbage: GarbageHold) -> None:
        self._garbage = garbage
        self._name = f"tidb-binlog-schema-{secrets.token_hex(8)}"
        self._ts = 0

    async def begin(self, ts: Ts) -> int:
        """From when on everything is there. A cluster that refuses holds says: nothing."""
        try:
            floor_ts = await self._garbage.hold(self._name, ts, HOLD_S)
        except Rejected as error:
            logger.warning("PD takes no safe point, so the schema comes from the history", reason=str(error))
            return ts + 1
        self._ts = ts
        return floor_ts

    async def check(self) -> None:
        """All that was read since `begin` was there."""
        floor_ts = await self._garbage.hold(self._name, self._ts, HOLD_S)
        if floor_ts > self._ts:
            raise Unavailable(f"the schema at {self._ts} was collected (up to {floor_ts}) while it was read")

    async def end(self) -> None:
        if self._ts:
            ts, self._ts = self._ts, 0
            with contextlib.suppress(Unavailable, Rejected):  # it ends by itself
                await self._garbage.hold(self._name, ts, 0)


async def _ahead(pages: AsyncIterator[Page]) -> AsyncGenerator[Page, None]:
    """The same pages, the next one under way while the consumer works on one."""

    async def following() -> Page | None:
        return await anext(pages, None)

    coming = asyncio.ensure_future(following())
    try:
        while (page := await coming) is not None:
            coming = asyncio.ensure_future(following())
            yield page
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)


async def _version(then: Snapshot) -> int:
    """The version whose change can be seen: it is drawn in a transaction before the one that changes."""
    version = meta_keys.number(meta_keys.SCHEMA_VERSION, await then.get(meta_keys.SCHEMA_VERSION))
    if version > 0 and await then.get(meta_keys.diff_key(version)) is None:
        version -= 1
    return version


async def _running(then: Snapshot) -> list[RunningJob]:
    return [RunningJob.read(job) for job in await _running_jobs(then)]


async def _running_jobs(then: Snapshot) -> list[bytes]:
    """Jobs under way, from the table of them and from the lists that older clusters have."""
    texts = []
    async for page in then.scan(*meta_keys.running_range()):
        texts += [meta_keys.bytes_of(row, meta_keys.JOB_TABLE_META) for _, row in page]
    for span in meta_keys.JOB_LISTS:
        async for page in then.scan(*span):
            texts += [value for _, value in page]
    return [job for job in texts if job]


def _keys_of(job: RunningJob) -> list[bytes]:
    """What a job changes before its last step."""
    if job.type in _NO_TABLE:
        return [meta_keys.database_key(job.schema_id)]
    return [meta_keys.table_key(job.schema_id, job.table_id)]


def _schema_page(pairs: list[tuple[bytes, bytes]], span: meta_keys.Range) -> SchemaPage:
    if span == meta_keys.DATABASES:
        return SchemaPage(tuple(value for _, value in pairs), ())
    tables = []
    for key, value in pairs:
        place = meta_keys.table_of(key)
        if place is not None:
            tables.append((place[0], value))
    return SchemaPage((), tuple(tables))

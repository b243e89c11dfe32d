"""Schema publishing: the catalogue as a publisher knows it, and how a change of it becomes a DDL binlog.

Drives  `catalog` (core), the upstream's catalogue, the pump client; the publisher's steps
Order   begin; prewrite of the statement at a pump; one step in etcd: the commit, the job in the history, the
        catalogue. Where another publisher changed the catalogue first, all of it again on top of that
Never   gives an id or a version to two changes: both are counted in the head that the step compares
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol

from pumpclient.client import PumpClient
from pumpclient.errors import InvalidBinlog, SchemaChanged
from pumpclient.publish.transaction import Prewrite, Transaction, entry_key
from pumpclient.publish.upstream_port import WritableUpstream
from pumpclient.schema import catalog
from pumpclient.schema.catalog import Catalog, Planner
from tidb_binlog.ddl_job import state_after
from tidb_binlog.errors import BinlogError, Conflict
from tidb_binlog.foreign_document import UNREADABLE
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.standalone import CatalogChange, SchemaMoved

logger: Final = logging.getLogger("pumpclient")

TTL_S: Final = 3.0
TRIES_MAX: Final = 20


class Steps(Protocol):
    """What a schema change needs of its publisher."""

    async def begin(self, ttl_s: float, transaction: Transaction | None) -> int: ...

    async def decide(
        self, start_ts: Ts, key: bytes, step: Callable[[], Awaitable[int]], prewrite: Prewrite
    ) -> int: ...

    async def roll_back(
        self, start_ts: Ts, key: bytes, prewrite: Prewrite, *, deliver: bool = True
    ) -> None: ...

    def report_commit(self, start_ts: Ts, commit_ts: Ts, key: bytes, prewrite: Prewrite) -> None: ...


class SchemaPublishing:
    """One publisher's. `catalog` is replaced, never changed."""

    def __init__(self, client: PumpClient, upstream: WritableUpstream, steps: Steps) -> None:
        self.catalog = Catalog(0)
        self._client = client
        self._upstream = upstream
        self._steps = steps

    async def load(self) -> None:
        """Load the catalogue; found one, above everything in the history, where there is none."""
        while True:
            await self.refresh()
            if self.catalog.revision:
                return
            version, last_id = 0, 0
            async for page in self._upstream.history.pages():
                for job in page:
                    version = max(version, _number(job, "SchemaVersion"))
                    last_id = max(last_id, _last_id(job))
            await self._upstream.catalog.found(Catalog(0, version, last_id).head())

    async def refresh(self) -> None:
        """Read everything. Raises `Unavailable`."""
        stored = await self._upstream.catalog.load()
        if stored.head is not None:
            self.catalog = catalog.read(stored.revision, stored.head, stored.named)

    async def follow(self) -> None:
        """Read everything if anything has changed. Raises `Unavailable`."""
        if await self._upstream.catalog.revision() != self.catalog.revision:
            await self.refresh()

    async def publish(self, planner: Planner) -> int:
        """Plan a change and publish it; its commit_ts, 0 where nothing is to be done."""
        for _ in range(TRIES_MAX):
            await self.follow()
            plan = planner(self.catalog)
            if plan is None:
                return 0
            job = plan.job
            change = CatalogChange(self.catalog.revision, plan.head, job.id, job.to_json, plan.puts)
            try:
                return await self._publish(change, plan.query, state_after(job.action), TTL_S)
            except SchemaMoved:
                continue
        raise SchemaChanged(
            f"the catalogue changed {TRIES_MAX} times under this change", hint="publish from one program"
        )

    async def publish_job(self, job_json: bytes, query: str, schema_state: int, ttl_s: float) -> int:
        """See `Publisher.ddl`."""
        job_id = _number(job_json, "id")
        if job_id <= 0:
            raise InvalidBinlog("the DDL job has no id", hint="pass the JSON of a TiDB DDL job")
        if (await self._upstream.history.job(job_id)) not in (None, job_json):
            raise Conflict(f"DDL job {job_id} is in the history with other contents", hint="use a new job id")
        for _ in range(TRIES_MAX):
            await self.follow()
            known = self.catalog
            version = max(known.version, _number(job_json, "SchemaVersion"))
            head = replace(known, version=version, last_id=max(known.last_id, _last_id(job_json))).head()
            change = CatalogChange(known.revision, head, job_id, lambda _: job_json)
            try:
                return await self._publish(change, query, schema_state, ttl_s)
            except SchemaMoved:
                continue
        raise SchemaChanged(
            f"the catalogue changed {TRIES_MAX} times under this change", hint="publish from one program"
        )

    async def _publish(self, change: CatalogChange, query: str, schema_state: int, ttl_s: float) -> int:
        start_ts = await self._steps.begin(ttl_s, None)
        key = entry_key(start_ts)
        try:
            stored = await self._client.write_ddl_prewrite(start_ts, key, query, change.job_id, schema_state)
        except BaseException:
            with suppress(BinlogError):  # the first error is the one to report; the lease runs out
                await self._steps.roll_back(start_ts, key, Prewrite.NONE)
            raise
        prewrite = Prewrite.of(stored)

        async def step() -> int:
            return await self._upstream.catalog.commit(start_ts, change)

        commit_ts = await self._steps.decide(start_ts, key, step, prewrite)
        self._steps.report_commit(start_ts, commit_ts, key, prewrite)
        try:
            await self.refresh()
        except BinlogError as error:  # the change is published; `follow` sees it when etcd answers
            logger.warning("the catalogue is not read after a change of it: %s", error)
        return commit_ts


def _number(job_json: bytes, name: str) -> int:
    """`id`, or a field of `binlog`, of a DDL job; 0 where it is missing."""
    try:
        job = json.loads(job_json)
        found = job.get(name) if name != "SchemaVersion" else (job.get("binlog") or {}).get(name)
        return int(found or 0)
    except UNREADABLE:
        raise InvalidBinlog(
            "the DDL job is not the JSON of a job", hint="pass the JSON of a TiDB DDL job"
        ) from None


def _last_id(job_json: bytes) -> int:
    """The largest id that a job uses."""
    table = ((json.loads(job_json).get("binlog") or {}).get("TableInfo") or {}).get("id") or 0
    return max(int(table), *(_number(job_json, name) for name in ("id", "schema_id", "table_id")))

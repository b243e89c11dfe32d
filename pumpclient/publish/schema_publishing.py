"""Schema publishing: how a change of the catalogue becomes a DDL binlog.

Order   begin; prewrite of the statement at a pump; one step in etcd: the commit, the job in the history, the
        catalogue. Where another publisher changed the catalogue first, all of it again on top of that
Never   gives an id or a version to two changes: both are counted in the head that the step compares
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

from pumpclient.client import PumpClient
from pumpclient.errors import InvalidBinlog, SchemaChanged
from pumpclient.publish.followed_catalog import FollowedCatalog, job_last_id, job_number
from pumpclient.publish.transaction import Prewrite, entry_key
from pumpclient.publish.transaction_steps import TransactionSteps
from pumpclient.publish.upstream_port import WritableUpstream
from pumpclient.schema.catalog import Planner
from tidb_binlog.ddl_job import state_after
from tidb_binlog.errors import BinlogError, Conflict
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.upstream.standalone import CatalogChange, SchemaMoved

logger: Final = logging.getLogger("pumpclient")

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

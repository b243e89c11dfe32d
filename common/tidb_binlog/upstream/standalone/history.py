"""DDL history in etcd: TiDB's job JSON by job id, for programs that stand in for TiDB.

Tests  tests/common/upstream/test_contract.py
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Final

from tidb_binlog.errors import Conflict, Rejected
from tidb_binlog.etcd import client as etcd
from tidb_binlog.etcd.client import EtcdClient
from tidb_binlog.foreign_document import UNREADABLE
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.standalone.layout import DDL, ddl_key
from tidb_binlog.upstream_port import SchemaAt, UnderWay

PAGE_JOBS: Final = 256
"""Of one read: a job may be as large as etcd takes, most have one or two kilobytes."""


class StandaloneHistory:
    """Finished jobs. A job is written once and never changes."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client

    async def add(self, job_json: bytes) -> int:
        """Store a finished job; returns its id. The same job again is fine.

        Raises `Rejected` if it is not a job, `Conflict` if another one has its id, `Unavailable`.
        """
        job_id = id_of_job(job_json)
        key = ddl_key(job_id)
        result = await self._client.txn([etcd.mod_is(key, 0)], [etcd.put(key, job_json)], [etcd.get(key)])
        if not result.succeeded and result.results[0].kvs[0].value != job_json:
            raise Conflict(f"DDL job {job_id} is in the history with other contents", hint="use a new job id")
        return job_id

    async def job(self, job_id: int) -> bytes | None:
        """The job's JSON, None while it is not there."""
        stored = await self._client.get(ddl_key(job_id))
        return stored.value if stored else None

    async def pages(self, after_id: int = 0) -> AsyncIterator[list[bytes]]:
        """Jobs with an id above `after_id`, ascending id, some at a time. Of those that are added meanwhile
        the ones with larger ids are among them."""
        first = ddl_key(after_id + 1)
        while True:
            _, pairs = await self._client.range(DDL, first, PAGE_JOBS)
            if pairs:
                yield [pair.value for pair in pairs]
            if len(pairs) < PAGE_JOBS:
                return
            first = pairs[-1].key + b"\0"

    async def schema_at(self, ts: Ts) -> SchemaAt | None:
        """None: nothing but the history is kept."""
        return None

    async def under_way(self, *, table_id: int = 0, job_id: int = 0) -> UnderWay | None:
        """None: a job is written when it is done."""
        return None


def id_of_job(job_json: bytes) -> int:
    """Raises `Rejected`."""
    try:
        job_id = json.loads(job_json)["id"]
    except UNREADABLE as error:
        raise Rejected(f"this is not a DDL job: {error!r}", hint="pass TiDB's model.Job as JSON") from None
    if not isinstance(job_id, int) or isinstance(job_id, bool) or job_id <= 0:
        raise Rejected(f"a DDL job needs a positive id, not {job_id!r}")
    return job_id

"""Catalogue in etcd: the databases and tables as they are now, for programs that publish their own DDL.

    .../schema              head: JSON, opaque here; changes with every schema change
    .../schema/<name>       one definition; opaque here

A schema change is one step: its transaction commits, its job enters the history, head and definitions
change. Two changes at once cannot both take place on the same head. A transaction that names the head's
revision at its own end is thereby encoded for the schema that stands at its commit_ts.

Tests  tests/pumpclient/publish/test_publisher_schema_publishing.py
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

from tidb_binlog.errors import Conflict, Rejected
from tidb_binlog.etcd import client as etcd
from tidb_binlog.etcd.client import EtcdClient
from tidb_binlog.foreign_document import UNREADABLE
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.standalone.layout import DDL, DEFINITIONS, SCHEMA, ddl_key
from tidb_binlog.upstream.standalone.transactions import StandaloneTransactions
from tidb_binlog.upstream_port import SchemaAt, UnderWay

DEFINITIONS_MAX: Final = 50
"""Changed by one step; etcd counts operations."""


@dataclass(frozen=True, slots=True)
class Definitions:
    """Everything at one revision of the head. `head` is None, `revision` 0 where nothing was founded yet."""

    revision: int
    head: bytes | None
    named: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """What a schema change writes, on top of the head at `revision`.

    `puts`: definitions by name, None removes one. `job` gives the job's JSON for a commit_ts.
    """

    revision: int
    head: bytes
    job_id: int
    job: Callable[[int], bytes]
    puts: Mapping[str, bytes | None] = field(default_factory=dict)


class StandaloneCatalog:
    """One event loop. Construct through `StandaloneUpstream`."""

    def __init__(self, client: EtcdClient, transactions: StandaloneTransactions) -> None:
        self._client = client
        self._transactions = transactions

    async def load(self) -> Definitions:
        """All of it at one revision. Raises `Unavailable`."""
        _, pairs = await self._client.range(SCHEMA)
        named = {pair.key[len(DEFINITIONS) :].decode(): pair.value for pair in pairs if pair.key != SCHEMA}
        head = next((pair for pair in pairs if pair.key == SCHEMA), None)
        return Definitions(head.mod_revision if head else 0, head.value if head else None, named)

    async def revision(self) -> int:
        """Of the head now; 0 without one. Raises `Unavailable`."""
        stored = await self._client.get(SCHEMA)
        return stored.mod_revision if stored else 0

    async def begin(self, head: bytes) -> bool:
        """Write the first head; False when another process did. Raises `Unavailable`."""
        return (await self._client.txn([etcd.mod_is(SCHEMA, 0)], [etcd.put(SCHEMA, head)])).succeeded

    async def fence(self) -> None:
        """Write the head as it is: a change under way is refused with `SchemaMoved`, and made anew at a later
        timestamp. So the history has every change with a commit_ts below one that was drawn before.

        Raises `Unavailable`.
        """
        while (head := await self._client.get(SCHEMA)) is not None:
            same = [etcd.mod_is(SCHEMA, head.mod_revision)]
            if (await self._client.txn(same, [etcd.put(SCHEMA, head.value)])).succeeded:
                return

    async def commit(self, start_ts: Ts, change: CatalogChange) -> int:
        """Commit the transaction `start_ts` and make the change, in one step; the commit_ts.

        Raises `SchemaMoved` when the head is at another revision: plan it anew. What else
        `StandaloneTransactions.commit` raises: after `Unavailable`, ask that one for the outcome.
        """
        if len(change.puts) > DEFINITIONS_MAX:
            raise Rejected(
                f"a schema change of {len(change.puts)} definitions is more than {DEFINITIONS_MAX}",
                hint="split it into several statements",
            )

        def writes(commit_ts: Ts) -> Sequence[Any]:
            ops = [etcd.put(SCHEMA, change.head), etcd.put(ddl_key(change.job_id), change.job(commit_ts))]
            for name, value in change.puts.items():
                key = DEFINITIONS + name.encode()
                ops.append(etcd.delete(key) if value is None else etcd.put(key, value))
            return ops

        return await self._transactions.commit(start_ts, schema_revision=change.revision, writes=writes)


# DDL history in etcd: TiDB's job JSON by job id, for programs that stand in for TiDB.

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

"""Catalogue in etcd: the databases and tables as they are now, for programs that publish their own DDL.

    .../schema              head: JSON, opaque here; changes with every schema change
    .../schema/<name>       one definition; opaque here

A schema change is one step: its transaction commits, its job enters the history, head and definitions
change. Two changes at once cannot both take place on the same head. A transaction that names the head's
revision at its own end is thereby encoded for the schema that stands at its commit_ts.

Tests  tests/pumpclient/publish/test_schema_publishing.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tidb_binlog.errors import Rejected
from tidb_binlog.etcd import client as etcd
from tidb_binlog.etcd.client import EtcdClient
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.standalone.layout import DEFINITIONS, SCHEMA, ddl_key
from tidb_binlog.upstream.standalone.transactions import StandaloneTransactions

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

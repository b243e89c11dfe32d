"""The standalone upstream: timestamps, transaction status and DDL history in etcd, no TiDB.

For programs that publish their own ordered transaction stream, for the playground and for tests.
"""

from __future__ import annotations

import secrets

from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import Conflict, Rejected
from tidb_binlog.etcd import client as etcd
from tidb_binlog.etcd.client import REQUEST_TIMEOUT_S, EtcdClient
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.standalone.catalog import (
    CatalogChange,
    Definitions,
    StandaloneCatalog,
    StandaloneHistory,
)
from tidb_binlog.upstream.standalone.layout import CLUSTER_ID, decode_number
from tidb_binlog.upstream.standalone.oracle import StandaloneOracle
from tidb_binlog.upstream.standalone.transactions import (
    GRACE_S,
    Forgotten,
    InDoubt,
    SchemaMoved,
    StandaloneTransactions,
)

__all__ = [
    "GRACE_S",
    "CatalogChange",
    "Definitions",
    "Forgotten",
    "InDoubt",
    "SchemaMoved",
    "StandaloneCatalog",
    "StandaloneHistory",
    "StandaloneOracle",
    "StandaloneTransactions",
    "StandaloneUpstream",
]


class NothingCollected:
    """The hold on garbage where none is collected: jobs and outcomes are kept for ever."""

    async def hold(self, name: str, ts: Ts, ttl_s: int) -> int:
        """Everything is there from `ts` on."""
        return ts


class StandaloneUpstream:
    """The ports of one cluster over one etcd connection. Construct through `connect`."""

    def __init__(self, client: EtcdClient, cluster_id: int, clock: Clock, grace_s: float) -> None:
        self._client = client
        self.cluster_id = cluster_id
        self.oracle = StandaloneOracle(client, clock)
        self.transactions = StandaloneTransactions(client, self.oracle, clock, grace_s=grace_s)
        self.history = StandaloneHistory(client)
        self.catalog = StandaloneCatalog(client, self.transactions)
        self.garbage = NothingCollected()

    @classmethod
    async def connect(
        cls,
        endpoints: str,
        *,
        tls: TlsConfig | None = None,
        create: bool = True,
        cluster_id: int | None = None,
        clock: Clock | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
        grace_s: float = GRACE_S,
    ) -> StandaloneUpstream:
        """Connect; `create` founds a cluster (with `cluster_id`, or a random one) where none is.

        Raises `Unavailable`, `Conflict` if the cluster there has another id, `Rejected` if there is none.
        """
        client = await EtcdClient.connect(endpoints, tls=tls, timeout_s=timeout_s)
        try:
            stored_id = await _cluster_id(client, create, cluster_id)
        except BaseException:
            await client.close()
            raise
        return cls(client, stored_id, clock or SystemClock(), grace_s)

    async def close(self) -> None:
        """End everything; those that still wait get `Unavailable`."""
        await self.transactions.close()
        await self.oracle.close()
        await self._client.close()


async def _cluster_id(client: EtcdClient, create: bool, expected: int | None) -> int:
    stored = await client.get(CLUSTER_ID)
    if stored is None and create:
        founded = expected or secrets.randbelow(1 << 62) + 1
        result = await client.txn(
            [etcd.mod_is(CLUSTER_ID, 0)], [etcd.put(CLUSTER_ID, b"%d" % founded)], [etcd.get(CLUSTER_ID)]
        )
        if result.succeeded:
            return founded
        stored = result.results[0].kvs[0]
    if stored is None:
        raise Rejected(
            f"etcd at {client.addresses} holds no standalone cluster",
            hint="start a pump, which makes it; or correct the address",
        )
    cluster_id = decode_number(CLUSTER_ID, stored.value)
    if expected is not None and expected != cluster_id:
        raise Conflict(
            f"etcd at {client.addresses} belongs to cluster {cluster_id}, not {expected}",
            hint="check the address",
        )
    return cluster_id

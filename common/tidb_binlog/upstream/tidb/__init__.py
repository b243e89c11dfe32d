"""The upstream of a real cluster: PD for timestamps and places, TiKV for transactions and DDL history.

What speaks with TiKV is loaded when PD has answered: a command at a plain etcd asks for PD first, and does
without it.
"""

from __future__ import annotations

from typing import Self

from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.etcd.client import REQUEST_TIMEOUT_S
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.upstream.tidb.pd.pd import NotPd, PdClient

__all__ = ["NotPd", "PdClient", "TidbUpstream"]


class TidbUpstream:
    """The ports of one cluster over one connection to each of its servers. Construct through `connect`."""

    def __init__(self, pd: PdClient, tls: TlsConfig | None, clock: Clock) -> None:
        from tidb_binlog.upstream.tidb.meta.history import TidbHistory
        from tidb_binlog.upstream.tidb.pd.oracle import PdOracle
        from tidb_binlog.upstream.tidb.pd.safe_point import CollectedUpTo, ServiceSafePoint
        from tidb_binlog.upstream.tidb.tikv.locks import LockResolver
        from tidb_binlog.upstream.tidb.tikv.snapshot import Snapshot
        from tidb_binlog.upstream.tidb.tikv.tikv import TikvClient
        from tidb_binlog.upstream.tidb.tikv.transactions import TikvTransactions

        self.pd = pd
        self.cluster_id = pd.cluster_id
        self.oracle = PdOracle(pd, clock)
        self.garbage = ServiceSafePoint(pd)
        self._tikv = TikvClient(pd, tls=tls, clock=clock)
        locks = LockResolver(self._tikv, self.oracle)
        self._collected = CollectedUpTo(pd)
        self.transactions = TikvTransactions(self._tikv, locks, self.oracle, self._collected)
        self.history = TidbHistory(lambda ts: Snapshot(self._tikv, locks, ts), self.oracle, self.garbage)

    @classmethod
    async def connect(
        cls,
        endpoints: str,
        *,
        tls: TlsConfig | None = None,
        clock: Clock | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Self:
        """Connect to PD; TiKV is found when it is needed. Raises as `PdClient.connect`."""
        pd = await PdClient.connect(endpoints, tls=tls, clock=clock, timeout_s=timeout_s)
        return cls(pd, tls, clock or SystemClock())

    async def close(self) -> None:
        """End everything; those that still wait get `Unavailable`."""
        await self._collected.close()
        await self._tikv.close()
        await self.oracle.close()
        await self.pd.close()

"""A real etcd that is emptied between tests."""

from __future__ import annotations

from tidb_binlog.etcd.client import EtcdClient, delete


async def remove_keys(client: EtcdClient, prefix: bytes) -> None:
    """All keys that begin so."""
    _, found = await client.range(prefix)
    for entry in found:
        await client.txn([], [delete(entry.key)])

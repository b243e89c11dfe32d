"""A real etcd that is emptied between tests."""

from __future__ import annotations

from tidb_binlog import rpc
from tidb_binlog.etcd.client import EtcdClient, delete, messages


async def remove_keys(client: EtcdClient, prefix: bytes) -> None:
    """All keys that begin so."""
    _, found = await client.range(prefix)
    for entry in found:
        await client.txn([], [delete(entry.key)])


async def lease_of(endpoint: str, key: bytes) -> int:
    client = rpc.Client(endpoint.removeprefix("http://"))
    request = messages.RangeRequest(key=key).SerializeToString()
    found = messages.RangeResponse.FromString(await client.unary("/etcdserverpb.KV/Range", request, 5))
    await client.close()
    return int(found.kvs[0].lease)

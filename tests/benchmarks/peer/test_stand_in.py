"""What Go's programs ask of PD and TiKV comes from the standalone cluster, and etcd's calls reach it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.benchmarks.door.children import Child
from tests.benchmarks.peer.stand_in import message, messages
from tidb_binlog import rpc
from tidb_binlog.etcd.client import EtcdClient
from tidb_binlog.upstream.standalone import StandaloneUpstream
from tidb_binlog.upstream.tidb.meta import meta_keys
from tidb_binlog.upstream.tidb.pd.oracle import PdOracle
from tidb_binlog.upstream.tidb.pd.pd import PdClient
from tidb_binlog.wire import kvrpcpb_pb2 as kv

JOBS = {number: json.dumps({"id": number}).encode() for number in (3, 300, 70_000)}


def test_fields_are_read_as_they_are_written() -> None:
    written = [(1, b""), (2, b"x" * 127), (9, b"y" * 128), (1, b"z" * 70_000)]
    data = b"".join(message(number, content) for number, content in written)
    assert messages(data) == [(number << 3 | 2, content) for number, content in written]


async def batch(address: str, number: int, request: bytes) -> list[tuple[int, bytes]]:
    """Sends one command as Go does; the fields of the reply."""
    sent = message(1, message(number, request)) + message(2, b"\x07")

    async def requests() -> AsyncIterator[bytes]:
        yield sent

    client = rpc.Client(address)
    try:
        (reply,) = [reply async for reply in client.bidi("/tikvpb.Tikv/BatchCommands", requests())]
    finally:
        await client.close()
    return messages(reply)


@pytest.mark.integration
async def test_a_standalone_cluster_looks_like_one_of_tidb(etcd_clean: str) -> None:
    upstream = await StandaloneUpstream.connect(etcd_clean)
    for job in JOBS.values():
        await upstream.history.add(job)
    with Child("peer.stand_in", etcd_clean) as child:
        address = child.said("listening")["address"]
        pd = await PdClient.connect(f"http://{address}")
        oracle = PdOracle(pd)
        before_ts = await upstream.oracle.timestamp()
        assert before_ts < await oracle.timestamp() < await upstream.oracle.timestamp()
        assert pd.cluster_id == upstream.cluster_id
        await oracle.close()
        await pd.close()

        through = await EtcdClient.connect(f"http://{address}")
        direct = await EtcdClient.connect(etcd_clean)
        await through.put(b"/written", b"through")
        written = await direct.get(b"/written")
        assert written is not None
        assert written.value == b"through"
        await through.close()
        await direct.close()

        begin, end = meta_keys.job_range(0)
        for reverse, limit in ((False, 9), (True, 9), (True, 2)):
            first, last = (end, begin) if reverse else (begin, end)
            scan = kv.ScanRequest(start_key=first, end_key=last, limit=limit, reverse=reverse)
            (_, answer), asked = await batch(address, 2, scan.SerializeToString())
            ((_, body),) = messages(answer)
            pairs = [(pair.key, pair.value) for pair in kv.ScanResponse.FromString(body).pairs]
            expected = [(meta_keys.job_key(number), job) for number, job in JOBS.items()]
            assert pairs == (expected[::-1] if reverse else expected)[:limit]
            assert asked == (2 << 3 | 2, b"\x07")
        for number in (300, 301):
            get = kv.GetRequest(key=meta_keys.job_key(number))
            ((_, answer), _) = await batch(address, 1, get.SerializeToString())
            ((_, body),) = messages(answer)
            reply = kv.GetResponse.FromString(body)
            assert (reply.value, reply.not_found) == (JOBS.get(number, b""), number not in JOBS)
    await upstream.oracle.pin(1 << 60)
    with Child("peer.stand_in", etcd_clean) as child:
        pd = await PdClient.connect(f"http://{child.said('listening')['address']}")
        oracle = PdOracle(pd)
        found = [await oracle.timestamp() for _ in range(3)]
        assert found == sorted(set(found))
        assert found[-1] < 1 << 60
        await oracle.close()
        await pd.close()
    await upstream.close()

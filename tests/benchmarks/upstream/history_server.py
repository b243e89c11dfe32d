"""A PD and a TiKV that hold nothing but a long DDL history, as a process of their own, until SIGTERM.

    python -m tests.benchmarks.upstream.history_server JOBS FILE

The pages are encoded once, into FILE. Prints {"event": "listening", "address", "bytes", "tables"} then.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import struct
import sys
from collections.abc import Iterator
from typing import IO, Final

import uvloop

from tests.benchmarks.upstream.history_jobs import LongHistory
from tests.fakes import grpcio_server
from tests.fakes.cluster import FakeCluster
from tests.fakes.pd import FakePd
from tidb_binlog import rpc
from tidb_binlog.rowcodec.keys import read_comparable_bytes
from tidb_binlog.upstream.tidb.meta import meta_keys
from tidb_binlog.upstream.tidb.meta.history import PAGE
from tidb_binlog.wire import kvrpcpb_pb2 as kv

_LENGTH: Final = struct.Struct(">Q")
_HISTORY: Final = len(meta_keys.job_range(0)[0]) - len(meta_keys.job_key(0)[-18:])


def write_pages(jobs: Iterator[tuple[int, bytes]], file: IO[bytes]) -> tuple[list[tuple[int, int]], int]:
    """Replies of KvScan behind each other, each with its length before it; (offset, size) of each, and bytes
    of JSON in all."""
    places, total = [], 0
    reply = kv.ScanResponse()
    for job_id, text in jobs:
        reply.pairs.add(key=meta_keys.job_key(job_id), value=text)
        total += len(text)
        if len(reply.pairs) == PAGE:
            places.append(_write(reply, file))
            reply = kv.ScanResponse()
    places.append(_write(reply, file))
    return places, total


def _write(reply: kv.ScanResponse, file: IO[bytes]) -> tuple[int, int]:
    data = reply.SerializeToString()
    file.write(_LENGTH.pack(len(data)))
    offset = file.tell()
    file.write(data)
    return offset, len(data)


def read_pages(path: str, every: int) -> Iterator[kv.ScanResponse]:
    """Some of the replies in such a file."""
    with open(path, "rb") as file:
        number = 0
        while head := file.read(_LENGTH.size):
            (size,) = _LENGTH.unpack(head)
            if number % every == 0:
                yield kv.ScanResponse.FromString(file.read(size))
            else:
                file.seek(size, os.SEEK_CUR)
            number += 1


async def run(count: int, path: str) -> None:
    history = LongHistory(count)
    with open(path, "wb") as file:
        places, total = write_pages(history.jobs(), file)
    pages = os.open(path, os.O_RDONLY)

    async def scan(data: bytes) -> bytes:
        request = kv.ScanRequest.FromString(bytes(data))
        field, _ = read_comparable_bytes(request.start_key, _HISTORY)
        behind = (
            len(request.start_key) > _HISTORY + 18
        )  # a cursor: the last key of the page before, and a zero
        first = int.from_bytes(field, "big") + behind
        offset, size = places[(first - 1) // PAGE]
        return os.pread(pages, size, offset)

    server = await grpcio_server.serve([rpc.Service("tikvpb.Tikv", unary={"KvScan": scan})], "127.0.0.1", 0)
    cluster = FakeCluster(stores=1)
    cluster.move_store(1, f"127.0.0.1:{server.port}")
    pd = await FakePd.start(cluster)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    said = {"address": pd.endpoints, "bytes": total, "tables": len(history.tables)}
    print(json.dumps({"event": "listening", **said}), flush=True)
    await stopped.wait()
    await pd.close()
    await server.stop(None)


if __name__ == "__main__":
    uvloop.run(run(int(sys.argv[1]), sys.argv[2]))

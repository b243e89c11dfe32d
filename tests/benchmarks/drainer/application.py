"""Background of `lag.load`: an application with a steady pace, as a process of its own.

    python -m tests.benchmarks.drainer.application ETCD_ENDPOINT SCHEMA_VERSION TRANSACTIONS_PER_S

Each transaction inserts two rows, changes one and removes one. Runs until its standard input ends; a line of
JSON then says how many were committed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Final

from pumpclient.publish.publisher import Publisher, open_publisher
from tests.benchmarks.drainer.shop import ORDERS, encoder
from tidb_binlog.errors import BinlogError

BEAT_S: Final = 0.01


class Application:
    def __init__(self, publisher: Publisher, schema_version: int) -> None:
        self._publisher = publisher
        self._version = schema_version
        self._encoder = encoder(ORDERS)
        self.committed = 0

    async def transaction(self, number: int) -> None:
        first = (2 * number, number, "made")
        second = (2 * number + 1, number, "made")
        encode = self._encoder
        async with self._publisher.transaction(ttl_s=10.0, schema_version=self._version) as one:
            one.insert(ORDERS.id, encode.insert(first))
            one.insert(ORDERS.id, encode.insert(second))
            one.update(ORDERS.id, encode.update(first, (2 * number, number + 1, "changed")))
            one.delete(ORDERS.id, encode.delete(second))
        self.committed += 1

    async def run(self, per_s: float, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        started = 0
        async with asyncio.TaskGroup() as group:
            while not stop.is_set():
                due = int((loop.time() - began_s) * per_s)
                while started < due:
                    started += 1
                    group.create_task(self.transaction(started))
                await asyncio.sleep(BEAT_S)


async def run(endpoint: str, schema_version: int, per_s: float) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, stop.set)
    async with await open_publisher(endpoint) as publisher:
        application = Application(publisher, schema_version)
        print(json.dumps({"event": "begin"}), flush=True)
        await application.run(per_s, stop)
    print(json.dumps({"event": "end", "committed": application.committed}), flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(run(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
    except BinlogError as error:
        sys.exit(f"application: {error}")

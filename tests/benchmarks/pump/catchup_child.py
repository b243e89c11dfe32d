"""Files a whole value log in an index that is not there, in this process: `Storage`, nothing around it.

    python -m tests.benchmarks.pump.catchup_child DATA_DIRECTORY WATERMARK

Says as JSON when it begins and, when the watermark is there, how long it took: `open_s` until `Storage.open`
returned, `seconds` until the end of the log was filed and sorted.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Final

import uvloop

from pump.storage.data_dir import DataDir
from pump.storage.storage import Storage
from tests.benchmarks.measure import peak_rss_mib
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import BinlogError, Unavailable

DEADLINE_S: Final = 300.0


async def _until(storage: Storage, watermark: int) -> None:
    with storage.listener() as risen:
        while storage.watermark < watermark:
            risen.clear()
            await risen.wait()


async def run(directory: str, watermark: int) -> None:
    data_dir = DataDir(directory)
    _say(event="begin")
    began_s = time.monotonic()
    spent_s = time.process_time()
    storage = await Storage.open(data_dir, clock=SystemClock())
    open_s = time.monotonic() - began_s
    following = asyncio.create_task(storage.run())
    arriving = asyncio.create_task(_until(storage, watermark))
    await asyncio.wait({following, arriving}, timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
    took_s = time.monotonic() - began_s
    spent_s = time.process_time() - spent_s
    if not arriving.done():
        raise Unavailable(f"the watermark is {storage.watermark}, not {watermark}")
    _say(event="end", open_s=open_s, seconds=took_s, cpu_s=spent_s, peak_rss_mib=peak_rss_mib("self"))
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await storage.close()
    data_dir.close()


def _say(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    try:
        uvloop.run(run(sys.argv[1], int(sys.argv[2])))
    except BinlogError as error:
        sys.exit(f"catch up: {error}")

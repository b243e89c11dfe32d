"""Reads a long DDL history as a drainer does at its start, as a process of its own.

    python -m tests.benchmarks.upstream.history_load ours ADDRESS|plain FILE

`plain`: no network, and nothing is made of the jobs; `json.loads` of every tenth page.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Final

import uvloop

from drainer.stream.schema.upstream_schema import read_whole
from tests.benchmarks.measure import peak_rss_mib
from tests.benchmarks.upstream.history_server import read_pages
from tidb_binlog.upstream.tidb import TidbUpstream

OURS: Final = "ours"
PLAIN: Final = "plain"
EVERY: Final = 10


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def ours(address: str) -> None:
    cpu_s, began_s = _cpu_s(), time.monotonic()
    upstream = await TidbUpstream.connect(address)
    tracker = await read_whole(upstream.history, 0, 1 << 62)
    cpu_s, took_s = _cpu_s() - cpu_s, time.monotonic() - began_s
    peak_mib = peak_rss_mib("self")
    await upstream.close()
    tables = len(tracker.names())
    print(json.dumps({"event": "end", "cpu_s": cpu_s, "took_s": took_s, "peak": peak_mib, "tables": tables}))


def plain(path: str) -> None:
    cpu_s, jobs = 0.0, 0
    for page in read_pages(path, EVERY):
        values = [pair.value for pair in page.pairs]
        began_s = _cpu_s()
        for value in values:
            json.loads(value)
        cpu_s += _cpu_s() - began_s
        jobs += len(values)
    print(json.dumps({"event": "end", "cpu_us": cpu_s / jobs * 1e6}))


if __name__ == "__main__":
    if sys.argv[1] == OURS:
        uvloop.run(ours(sys.argv[2]))
    else:
        plain(sys.argv[2])

"""A program that subscribes: what `subscribe.rows` and `subscribe.lag` start as a process of its own.

rows ENDPOINT STOP_TS   reads everything up to there; prints one JSON line: rows, transactions, seconds, CPU
lag ENDPOINT TABLE      reads what is committed from now on; prints `id monotonic_s` of each row
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import drainer
from tests.benchmarks.measure import peak_rss_mib


async def read_rows(endpoint: str, stop_ts: int) -> None:
    rows = transactions = values = 0
    began: tuple[float, float] | None = None
    async with drainer.subscribe(endpoint, start="oldest", stop=stop_ts) as stream:
        async for change in stream:
            if isinstance(change, drainer.Ddl):
                continue
            if began is None:
                began = time.monotonic(), time.process_time()
            transactions += 1
            for row in change.rows:
                rows += 1
                values += len(row.after or row.before or ())
        assert began is not None
        seconds, cpu_s = time.monotonic() - began[0], time.process_time() - began[1]
    found = {"rows": rows, "transactions": transactions, "values": values, "seconds": seconds, "cpu_s": cpu_s}
    print(json.dumps(found | {"peak_rss_mib": peak_rss_mib("self")}), flush=True)


async def read_lag(endpoint: str, table: str) -> None:
    async with drainer.subscribe(endpoint, tables=[table], start="now") as stream:
        print("ready", flush=True)
        async for change in stream:
            seen_s = time.monotonic()
            if isinstance(change, drainer.Transaction):
                for row in change.rows:
                    print(row.key_values[0], seen_s, flush=True)


def main(what: str, endpoint: str, argument: str) -> None:
    asyncio.run(read_rows(endpoint, int(argument)) if what == "rows" else read_lag(endpoint, argument))


if __name__ == "__main__":
    main(*sys.argv[1:])

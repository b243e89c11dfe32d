"""Micro-batches for pandas: every second, or every so many rows, the changes of a table as one DataFrame.

    .venv/bin/python examples/micro_batches.py --etcd 127.0.0.1:2379 --directory batches shop.orders

Each batch is a Parquet file that bears the commit_ts of its last transaction as its name, and is there as a
whole or not at all. So the newest file says where the stream begins after a kill.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pandas

import drainer

ROWS_MAX = 10_000
PAUSE_S = 1.0


async def batches(
    stream: drainer.Subscription,
) -> AsyncIterator[tuple[drainer.Transaction, pandas.DataFrame]]:
    """(the last transaction, its rows and those of the ones before): each is out at most `PAUSE_S` late."""
    loop = asyncio.get_running_loop()
    rows: list[dict[str, object]] = []
    last, due_s = None, 0.0
    following = asyncio.ensure_future(anext(stream))
    try:
        while True:
            await asyncio.wait([following], timeout=max(0.0, due_s - loop.time()) if rows else None)
            if following.done():
                change = following.result()
                following = asyncio.ensure_future(anext(stream))
                if isinstance(change, drainer.Transaction):
                    due_s = due_s if rows else loop.time() + PAUSE_S
                    last = change
                    for row in change.rows:
                        image = row.before if row.after is None else row.after
                        rows.append({"commit_ts": change.commit_ts, "kind": row.kind, **image})
            if len(rows) >= ROWS_MAX or (rows and loop.time() >= due_s):
                yield last, pandas.DataFrame(rows)
                rows = []
    finally:
        following.cancel()


def newest(directory: Path) -> int:
    """Commit timestamp of the last transaction that is stored, 0 without one."""
    directory.mkdir(parents=True, exist_ok=True)
    return max((int(path.stem) for path in directory.glob("*.parquet")), default=0)


def store(directory: Path, upto: int, frame: pandas.DataFrame) -> None:
    unfinished = directory / "unfinished"
    frame.to_parquet(unfinished)
    unfinished.rename(directory / f"{upto}.parquet")


async def write(etcd: str, directory: Path, table: str) -> None:
    """Until cancelled."""
    start = newest(directory) or "oldest"
    async with drainer.subscribe(etcd, tables=[table], start=start, name="batches") as stream:
        async for last, frame in batches(stream):
            await asyncio.to_thread(store, directory, last.commit_ts, frame)
            await stream.done(last)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--etcd", default="127.0.0.1:2379")
    parser.add_argument("--directory", type=Path, default=Path("batches"))
    parser.add_argument("table")
    options = parser.parse_args()
    asyncio.run(write(options.etcd, options.directory, options.table))


if __name__ == "__main__":
    main()

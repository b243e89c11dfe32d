"""Keeps a cache fresh: a committed row is in the key-value store a moment later, a deleted one is gone.

    .venv/bin/python examples/cache.py --etcd 127.0.0.1:2379 --store 127.0.0.1:6379 'shop.*'

The store is anything with the three methods of `Store`; `Redis` below speaks to a Redis server, or to what
speaks like one, without a client library. A row is `shop.orders:7` -> its columns as JSON. Tables need a
primary or a unique key.

Kill it where you like: a transaction that was not `done` comes again, and to set a key twice does no harm.
Where a schema change moves, takes or brings rows, the tables concerned leave the cache.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import socket
from collections.abc import Iterable, Iterator
from typing import Protocol

import drainer


class Store(Protocol):
    """A key-value store."""

    def set(self, key: str, value: str) -> None: ...

    def delete(self, key: str) -> None: ...

    def delete_prefix(self, prefix: str) -> None: ...


class Redis:
    """Three commands of the Redis protocol, over one connection."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._replies = self._socket.makefile("rb")

    def set(self, key: str, value: str) -> None:
        self._call("SET", key, value)

    def delete(self, key: str) -> None:
        self._call("DEL", key)

    def delete_prefix(self, prefix: str) -> None:
        cursor, pattern = b"0", re.sub(r"([\\*?\[\]])", r"\\\1", prefix) + "*"
        while True:
            cursor, keys = self._call("SCAN", cursor.decode(), "MATCH", pattern, "COUNT", "1000")
            for key in keys:
                self._call("DEL", key.decode())
            if cursor == b"0":
                return

    def _call(self, *words: str) -> list:
        encoded = [word.encode() for word in words]
        lines = [b"*%d" % len(encoded), *(b"$%d\r\n%s" % (len(word), word) for word in encoded), b""]
        self._socket.sendall(b"\r\n".join(lines))
        return self._reply()

    def _reply(self):
        line = self._replies.readline().rstrip()
        kind, rest = line[:1], line[1:]
        if kind == b"*":
            return [self._reply() for _ in range(int(rest))]
        if kind == b"$":
            return self._replies.read(int(rest) + 2)[:-2]
        if kind not in (b"+", b":"):
            raise OSError(f"the store answers {line!r}")
        return rest


def key_of(table: drainer.Table, values: Iterable[object]) -> str:
    if not table.key:
        raise ValueError(f"{table} has no key: its rows cannot be found in a cache")
    return f"{table}:{','.join(map(str, values))}"


def stale(ddl: drainer.Ddl) -> Iterator[drainer.Table]:
    """Tables whose entries are not right any more. What is not in a cache is asked of the database."""
    effect = ddl.effect
    for before, after in effect.moved:
        yield before
        yield after
    yield from effect.emptied
    yield from effect.reread
    now = {table.id: table for table in ddl.after}
    for before in ddl.before:  # rows with other columns, or under another key
        after = now.get(before.id)
        if after is not None and (before.columns, before.key) != (after.columns, after.key):
            yield before


def apply(store: Store, item: drainer.Transaction | drainer.Ddl) -> None:
    """What one item of the stream does to the store."""
    if isinstance(item, drainer.Ddl):
        for table in stale(item):
            store.delete_prefix(f"{table}:")
        if item.effect.everything:
            store.delete_prefix("")
        return
    for row in item.rows:
        if row.before is not None:
            old = key_of(row.table, (row.before[name] for name in row.table.key))
            if row.after is None or old != key_of(row.table, row.key_values):
                store.delete(old)
        if row.after is not None:
            store.set(key_of(row.table, row.key_values), json.dumps(row.after, default=drainer.json_value))


async def keep_fresh(etcd: str, store: Store, tables: list[str]) -> None:
    """Until cancelled. The first start begins with the oldest change there is, later ones where they were."""
    async with drainer.subscribe(etcd, tables=tables, start="oldest", name="cache") as stream:
        async for item in stream:
            apply(store, item)
            await stream.done(item)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--etcd", default="127.0.0.1:2379")
    parser.add_argument("--store", default="127.0.0.1:6379")
    parser.add_argument("tables", nargs="+")
    options = parser.parse_args()
    asyncio.run(keep_fresh(options.etcd, Redis(options.store), options.tables))


if __name__ == "__main__":
    main()

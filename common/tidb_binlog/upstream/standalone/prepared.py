"""The table of transactions as a whole, read and not touched: nothing is judged or ended by looking.

Tests  tests/pumpclient/publish/test_publisher_crashes.py
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from tidb_binlog.errors import Corruption
from tidb_binlog.etcd.client import EtcdClient, KeyValue
from tidb_binlog.upstream.standalone.layout import TXN, Entry, Prepared, decode_entry

PAGE_ENTRIES: Final = 1000


async def entries(client: EtcdClient) -> AsyncIterator[tuple[int, KeyValue, Entry]]:
    """(start_ts, pair, entry) of every transaction, ascending. Raises `Unavailable`, `Corruption`."""
    first = TXN
    while True:
        _, page = await client.range(TXN, first, PAGE_ENTRIES)
        for pair in page:
            yield int(pair.key[len(TXN) :]), pair, decode_entry(pair.key, pair.value)
        if len(page) < PAGE_ENTRIES:
            return
        first = page[-1].key + b"\0"


async def prepared(client: EtcdClient) -> dict[int, Prepared] | Corruption:
    """Those that only the application's database can end, by start_ts; empty in a cluster of TiDB. Damage of
    the table is a value: a reader of a whole cluster reports it, and continues. Raises `Unavailable`.
    """
    try:
        return {ts: entry async for ts, _, entry in entries(client) if isinstance(entry, Prepared)}
    except Corruption as error:
        return error

"""Keys and values of the standalone upstream in etcd.

    /tidb-binlog-standalone/v1/cluster-id          decimal
    /tidb-binlog-standalone/v1/tso                 decimal: the largest timestamp handed out or reserved
    /tidb-binlog-standalone/v1/pin                 decimal: the clock stands at this timestamp (replay)
    /tidb-binlog-standalone/v1/txn/<start_ts>      what became of a transaction, see below
    /tidb-binlog-standalone/v1/ddl/<job id>        TiDB's DDL job JSON, as given
    /tidb-binlog-standalone/v1/schema              the catalogue's head, see `catalog`
    /tidb-binlog-standalone/v1/schema/<name>       a definition in the catalogue, as given

start_ts and job id have 20 digits, so that keys sort as numbers. A transaction's value is one of

    open <deadline, ms since 1970> <lease, ms>
    prepared <deadline> <lease> <commit_ts> <database>
    committed <commit_ts>
    rolled_back

`open` may become any of the others, `prepared` one of the last two, by compare-and-set on the entry's
revision; these never change any more. What is `prepared` is decided by the named database alone: no process
rolls it back because its deadline has passed.

Tests  tests/common/upstream/standalone/test_transactions.py
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Final

from tidb_binlog.errors import Corruption
from tidb_binlog.etcd.client import EtcdClient, KeyValue
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import Committed, RolledBack

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


ROOT: Final = "/tidb-binlog-standalone/v1/"
CLUSTER_ID: Final = f"{ROOT}cluster-id".encode()
TSO: Final = f"{ROOT}tso".encode()
PIN: Final = f"{ROOT}pin".encode()
TXN: Final = f"{ROOT}txn/".encode()
DDL: Final = f"{ROOT}ddl/".encode()
SCHEMA: Final = f"{ROOT}schema".encode()
DEFINITIONS: Final = SCHEMA + b"/"

_DIGITS_MAX: Final = 20
DATABASE_NAME: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@dataclass(frozen=True, slots=True)
class Open:
    """Neither committed nor rolled back; may be rolled back by anyone once the deadline has passed."""

    deadline_ms: int
    lease_ms: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """Neither committed nor rolled back, and only `database` knows which; the commit_ts is drawn."""

    deadline_ms: int
    lease_ms: int
    commit_ts: Ts
    database: str


Entry = Open | Prepared | Committed | RolledBack


def txn_key(start_ts: Ts) -> bytes:
    return b"%s%020d" % (TXN, start_ts)


def ddl_key(job_id: int) -> bytes:
    return b"%s%020d" % (DDL, job_id)


def encode_entry(entry: Entry) -> bytes:
    if isinstance(entry, Open):
        return b"open %d %d" % (entry.deadline_ms, entry.lease_ms)
    if isinstance(entry, Prepared):
        numbers = (entry.deadline_ms, entry.lease_ms, entry.commit_ts)
        return b"prepared %d %d %d %s" % (*numbers, entry.database.encode())
    if isinstance(entry, Committed):
        return b"committed %d" % entry.commit_ts
    return b"rolled_back"


def decode_entry(key: bytes, value: bytes) -> Entry:
    """Raises `Corruption` naming the key."""
    words = value.split()
    try:
        if words[0] == b"open" and len(words) == 3:
            return Open(_number(words[1]), _number(words[2]))
        if words[0] == b"prepared" and len(words) == 5:
            return Prepared(_number(words[1]), _number(words[2]), _number(words[3]), words[4].decode())
        if words[0] == b"committed" and len(words) == 2:
            return Committed(_number(words[1]))
        if words == [b"rolled_back"]:
            return RolledBack()
    except (ValueError, IndexError):
        pass
    raise Corruption(
        f"etcd key {key.decode(errors='replace')} does not hold a transaction status: {value[:40]!r}",
        hint="somebody else writes below " + ROOT,
    )


def _number(digits: bytes) -> int:
    """Of 63 bits. Raises `ValueError`."""
    number = int(digits) if len(digits) <= _DIGITS_MAX else -1
    if not 0 <= number < 1 << 63:
        raise ValueError("no number of 63 bits")
    return number


def decode_number(key: bytes, value: bytes) -> int:
    """Raises `Corruption` naming the key."""
    try:
        return _number(value)
    except ValueError:
        raise Corruption(
            f"etcd key {key.decode(errors='replace')} does not hold a number: {value[:40]!r}",
            hint="somebody else writes below " + ROOT,
        ) from None

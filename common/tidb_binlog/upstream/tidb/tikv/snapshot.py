"""Snapshot: what TiKV's keys held at one timestamp.

Drives  point reads and scans over all regions that a range overlaps; locks go to `LockResolver`
Owns    which transactions are known to commit after the snapshot
Order   a page of a scan is complete before it is handed out: keys with a lock in the way are read again
Stops   with the consumer of a scan; each read, and each page, has a deadline of its own

An absent key and an empty value are the same, as in TiDB. Reads below the GC safe point give nothing
sensible: a reader of the past holds it (`GarbageHold`) and checks the safe point.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Final

from tidb_binlog.errors import Unavailable
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.tidb.tikv.key_errors import problem_of
from tidb_binlog.upstream.tidb.tikv.locks import NOT_FOUND, POINT_TIMEOUT_S, LockResolver, Reader
from tidb_binlog.upstream.tidb.tikv.regions import Region
from tidb_binlog.upstream.tidb.tikv.tikv import Deadline, TikvClient
from tidb_binlog.wire import kvrpcpb_pb2 as kv

DEADLINE_S: Final = 20.0
SCAN_TIMEOUT_S: Final = 20.0
SCAN_DEADLINE_S: Final = 60.0
PAGE: Final = 1024


class Snapshot:
    """Reads at `ts`, raw keys. All raise `Unavailable`, `Rejected` (`Collected` among them), `Corruption`."""

    def __init__(
        self, tikv: TikvClient, locks: LockResolver, ts: Ts, *, deadline_s: float | None = None
    ) -> None:
        self.ts = ts
        self._tikv = tikv
        self._locks = locks
        self._deadline_s = deadline_s
        self._later: set[int] = set()

    async def get(self, key: bytes) -> bytes | None:
        """The value; None if there is none."""
        reader = self._reader(DEADLINE_S)
        while True:
            reply, _ = await self._tikv.send(
                key,
                "KvGet",
                lambda _: kv.GetRequest(context=self._context(), key=key, version=self.ts),
                kv.GetResponse,
                timeout_s=POINT_TIMEOUT_S,
                deadline=reader.deadline,
            )
            if not reply.HasField("error"):
                return reply.value or None
            await self._settle([reply.error], reader)

    async def _batch_get(self, keys: Iterable[bytes], reader: Reader) -> dict[bytes, bytes]:
        """The values of those keys that have one."""
        values: dict[bytes, bytes] = {}
        rest = set(keys)
        while rest:
            errors: list[kv.KeyError] = []
            again: set[bytes] = set()
            async for asked, reply in self._tikv.send_by_region(
                rest,
                "KvBatchGet",
                lambda part: kv.BatchGetRequest(context=self._context(), keys=part, version=self.ts),
                kv.BatchGetResponse,
                timeout_s=POINT_TIMEOUT_S,
                deadline=reader.deadline,
            ):
                if reply.HasField("error"):
                    errors.append(reply.error)
                    again.update(asked)
                    continue
                for pair in reply.pairs:
                    if pair.HasField("error"):
                        errors.append(pair.error)
                        again.add(pair.key or pair.error.locked.key)
                    elif pair.value:
                        values[pair.key] = pair.value
            if errors:
                await self._settle(errors, reader)
            rest = again
        return values

    async def scan(
        self, start_key: bytes, end_key: bytes, *, page: int = PAGE, key_only: bool = False
    ) -> AsyncIterator[list[tuple[bytes, bytes]]]:
        """Keys of [start_key, end_key) with their values, ascending, in pages of 1 to `page`; an empty end
        is none. Only the keys with `key_only`; the values are then empty.
        """
        cursor: bytes | None = start_key
        while cursor is not None and (not end_key or cursor < end_key):
            pairs, cursor = await self._page(cursor, end_key, page, key_only)
            if pairs:
                yield pairs

    async def _page(
        self, start_key: bytes, end_key: bytes, limit: int, key_only: bool
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """The next page, of one region, and where the one after it begins; None if that was all."""

        def build(region: Region) -> kv.ScanRequest:
            ends = [end for end in (region.end_key, end_key) if end]
            return kv.ScanRequest(
                context=self._context(),
                start_key=start_key,
                end_key=min(ends, default=b""),
                limit=limit,
                version=self.ts,
                key_only=key_only,
            )

        reader = self._reader(SCAN_DEADLINE_S)
        while True:
            reply, region = await self._tikv.send(
                start_key,
                "KvScan",
                build,
                kv.ScanResponse,
                timeout_s=SCAN_TIMEOUT_S,
                deadline=reader.deadline,
            )
            if not reply.HasField("error"):
                break
            await self._settle([reply.error], reader)
        pairs = reply.pairs
        rows = [(pair.key, pair.value) for pair in pairs]
        errors = [(at, pair.error) for at, pair in enumerate(pairs) if pair.HasField("error")]
        if errors:
            rows = await self._with_locked(rows, errors, reader, key_only)
        if len(pairs) >= limit:
            last = pairs[-1]
            return rows, (last.key or last.error.locked.key) + b"\0"
        return rows, region.end_key or None

    async def _with_locked(
        self,
        rows: list[tuple[bytes, bytes]],
        errors: list[tuple[int, kv.KeyError]],
        reader: Reader,
        key_only: bool,
    ) -> list[tuple[bytes, bytes]]:
        """A page in which keys that were locked have their values, or are left out."""
        await self._settle([error for _, error in errors], reader)
        locked = {at: rows[at][0] or error.locked.key for at, error in errors}
        values = await self._batch_get(locked.values(), reader)
        complete = []
        for at, pair in enumerate(rows):
            key = locked.get(at)
            if key is None:
                complete.append(pair)
            elif key in values:
                complete.append((key, b"" if key_only else values[key]))
        return complete

    async def _settle(self, errors: list[kv.KeyError], reader: Reader) -> None:
        """See to it that a repetition makes sense, or raise."""
        locks = []
        again: Unavailable | None = None
        for error in errors:
            if error.HasField("locked"):
                locks.append(error.locked)
                continue
            problem = problem_of(error)
            if not isinstance(problem, Unavailable):
                raise problem
            again = problem
        if locks:
            await self._locks.settle(locks, reader)
        elif again is not None:
            pause_s = reader.pauses.next_s(NOT_FOUND)
            if pause_s >= reader.deadline.left_s:
                raise again
            await self._tikv.sleep(pause_s)

    def _context(self) -> kv.Context:
        return kv.Context(resolved_locks=sorted(self._later))

    def _reader(self, deadline_s: float) -> Reader:
        return Reader(self.ts, self._later, Deadline(self._tikv.clock, self._deadline_s or deadline_s))

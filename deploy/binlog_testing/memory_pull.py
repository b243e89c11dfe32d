"""Memory pull: a pump in memory as its readers see it, over `PullBatches`.

Drives  the pump's own cores: sorter, recent commits, pull session, replies
Does    each stream sorts what the pump has anew, with a timestamp drawn before it looks; prewrites without an
        end are asked for upstream, and the end is stored
Why     nothing is shared by two streams: they may run on event loops of different threads

Tests  tests/deploy/binlog_testing/test_cluster.py
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Final

from pump.index.recent_commits import RecentCommits
from pump.index.sorter import Advanced, Sorter
from pump.log.delivery import LargeDelivery, Page, large_among
from pump.log.record import LogRecord, ValuePointer
from pump.pull import replies
from pump.pull.session import PullSession
from pumpclient.testing.memory_pump import MemoryPump
from pumpclient.testing.memory_upstream import MemoryUpstream
from tidb_binlog import binlog, rpc
from tidb_binlog.errors import Unavailable
from tidb_binlog.tso import TS_MAX
from tidb_binlog.upstream_port import Committed, RolledBack
from tidb_binlog.wire import pump_pb2

OUT_OF_RANGE: Final = 11
ASK_S: Final = 0.02
"""How soon an open transaction is asked about again, and a pump that hangs is looked at."""


class MemoryPull:
    """A `PullClient`. `pump` finds the pump; without one there is no answer. `keeps`: nothing is purged."""

    def __init__(
        self,
        address: str,
        pump: Callable[[], MemoryPump | None],
        upstream: MemoryUpstream,
        *,
        keeps: bool = False,
    ) -> None:
        self._keeps = keeps
        self._address = address
        self._pump = pump
        self._upstream = upstream
        self._sorter = Sorter()
        self._recent = RecentCommits(0, bytes_max=sys.maxsize)
        self._taken = 0  # payloads of the pump that the sorter has
        self._sent, self._tail = 0, memoryview(b"")  # of a large transaction that is being sent

    def server_stream(self, path: str, request: bytes, *, gzip: bool) -> AsyncIterator[bytes]:
        """The old protocol, which nobody speaks with a pump that knows the other one."""
        raise rpc.RpcStatus(rpc.UNIMPLEMENTED, f"unknown method {path}")

    async def bidi(self, path: str, requests: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """`PullBatches`. Raises `RpcStatus`, `Unavailable`."""
        opening = pump_pb2.PullBatchesReq.FromString(await anext(requests))
        pump = self._reached()
        if opening.after_ts < pump.purged_ts and not self._keeps:
            raise rpc.RpcStatus(OUT_OF_RANGE, f"binlogs up to {pump.purged_ts} are purged")
        session = PullSession(opening.after_ts, opening.until_ts or TS_MAX)
        session.request(opening.credit_bytes, opening.wait_watermark, opening.given_ts)
        now_s, silence_s = asyncio.get_running_loop().time, opening.silence_ms / 1000
        said_s = now_s()
        with pump.stored.waiting() as wake:
            reading = asyncio.create_task(_read(requests, session, wake))
            try:
                while not session.is_over:
                    wake.clear()
                    if self._reached() is not pump:
                        raise Unavailable(f"pump at {self._address} is another one")
                    if not pump.hanging:
                        await self._take(pump)
                        while (message := self._message(session, opening.parts_above)) is not None:
                            yield message
                            said_s = now_s()
                        if silence_s and now_s() >= said_s + silence_s:
                            yield self._sign_of_life(session)
                            said_s = now_s()
                    soon = self._sorter.open_count or pump.hanging
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(ASK_S if soon else silence_s or None):
                            await wake.wait()
            finally:
                reading.cancel()
                await asyncio.wait({reading})

    async def close(self) -> None:
        """Nothing is open."""

    def _reached(self) -> MemoryPump:
        pump = self._pump()
        if pump is None:
            raise Unavailable(f"pump at {self._address} does not answer")
        return pump

    async def _take(self, pump: MemoryPump) -> None:
        """Sort what the pump has by now."""
        drawn_ts = await self._upstream.timestamp()
        self._feed(pump)
        opened = [entry.start_ts for entry in self._sorter.open_prewrites()]
        outcomes = await self._upstream.transactions.outcomes([(start_ts, b"") for start_ts in opened])
        for start_ts, outcome in zip(opened, outcomes, strict=True):
            if isinstance(outcome, Committed):
                pump.payloads.append(binlog.commit(start_ts, outcome.commit_ts))
            elif isinstance(outcome, RolledBack):
                pump.payloads.append(binlog.settled_rollback(start_ts))
        self._feed(pump)
        for effect in self._sorter.mark(drawn_ts):
            assert isinstance(effect, Advanced)
            self._recent.advance(effect.watermark)

    def _feed(self, pump: MemoryPump) -> None:
        payloads = pump.payloads[self._taken :]
        heads = [binlog.header(binlog.parse(payload)) for payload in payloads]
        records = [
            LogRecord(*head, ValuePointer(1, place)) for place, head in enumerate(heads, self._taken + 1)
        ]
        self._taken += len(payloads)
        self._recent.record(records, payloads)
        for effect in self._sorter.feed(records, 0.0):
            if isinstance(effect, Advanced):
                self._recent.advance(effect.watermark)

    def _message(self, session: PullSession, parts_above: int) -> bytes | None:
        """The next one, None while there is nothing to say."""
        message = None
        if session.large is None:
            if session.page_bytes and session.position < min(self._sorter.watermark, session.until_ts):
                message = session.page(self._page(session, parts_above))
            message = message or session.reached()
        if message is None:
            return self._part(session)
        return replies.batch(message.deliveries, message.watermark, message.waits_for_start_ts)

    def _sign_of_life(self, session: PullSession) -> bytes:
        held_by = next((entry.start_ts for entry in self._sorter.open_prewrites()), 0)
        message = session.sign_of_life(held_by)
        return replies.batch([], message.watermark, message.waits_for_start_ts)

    def _page(self, session: PullSession, parts_above: int) -> Page:
        deliveries = self._recent.after(session.position, session.page_bytes, session.until_ts) or []
        at = large_among(deliveries, parts_above) if parts_above > 0 else None
        if at == 0:
            commit_ts, _, head, tail = deliveries[0]
            self._sent, self._tail = 0, memoryview(tail)
            return Page([], commit_ts, LargeDelivery(commit_ts, head, tail, len(head) + len(tail)))
        if at is not None:
            return Page(deliveries[:at], deliveries[at].commit_ts - 1)
        whole = sum(delivery.size for delivery in deliveries) < session.page_bytes
        covered = min(self._sorter.watermark, session.until_ts) if whole else deliveries[-1].commit_ts
        return Page(deliveries, covered)

    def _part(self, session: PullSession) -> bytes | None:
        """Of the large transaction that is being sent; None without one, and while there is no credit."""
        large = session.large
        if large is None:
            return None
        size = session.part_bytes(self._sent, len(large.head))
        data = b"".join((large.head, self._tail))[self._sent : self._sent + size]
        if not data:
            return None
        message = session.part(self._sent, data)
        self._sent += len(data)
        return replies.part(message)


async def _read(requests: AsyncIterator[bytes], session: PullSession, wake: asyncio.Event) -> None:
    async for data in requests:
        request = pump_pb2.PullBatchesReq.FromString(data)
        session.request(request.credit_bytes, request.wait_watermark, request.given_ts)
        wake.set()

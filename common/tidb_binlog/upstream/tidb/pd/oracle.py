"""Timestamps of PD: one stream to the leader, one request at a time for all who wait when it is made.

Drives  the stream `/pdpb.PD/Tso`; a task that serves all that wait
Order   who comes while a request is on its way waits for the next one: the answer on its way may have been
        given before the caller began, and "drawn later is larger" would not hold
Owns    the largest timestamp ever received; what is not above it is never handed out
Stops   `close` fails all that wait

A caller waits at most about twice `DEADLINE_S`: until those before it have, then for itself. A caller that is
cancelled leaves its timestamp unused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from typing import Final

from tidb_binlog import rpc
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import BinlogError, Unavailable
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.tidb.pd import tso_batch
from tidb_binlog.upstream.tidb.pd.leadership import header_error
from tidb_binlog.upstream.tidb.pd.pd import PdClient
from tidb_binlog.upstream.tidb.pd.pd_servers import read, refusal
from tidb_binlog.wire import pdpb_pb2

DEADLINE_S: Final = 18.0  # as Go clients; PD takes up to 15 s to replace a leader that died
BATCH_MAX: Final = 10_000
SLOW_S: Final = 0.030
LOG_AGAIN_S: Final = 60.0
_TSO: Final = "/pdpb.PD/Tso"

_logger = log.get("tso")
_Caller = asyncio.Future[Ts]


class _Stream:
    """One stream to one server: a request, its reply, the next request."""

    def __init__(self, client: rpc.Client) -> None:
        self.client = client
        self.answered = False
        self._requests: asyncio.Queue[bytes] = asyncio.Queue()
        self._replies: AsyncGenerator[bytes, None] = client.bidi(_TSO, self._sent())

    async def _sent(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._requests.get()

    async def exchange(self, request: bytes) -> pdpb_pb2.TsoResponse:
        """Raises `Unavailable`, `Conflict`, `NotPd`; the stream is of no use then."""
        self._requests.put_nowait(request)
        try:
            reply = await anext(self._replies)
        except StopAsyncIteration:
            raise Unavailable(f"{self.client.address} ended the stream of timestamps") from None
        except rpc.RpcStatus as status:
            raise refusal(self.client.address, _TSO, status) from None
        self.answered = True
        return read(pdpb_pb2.TsoResponse, reply, self.client.address)

    async def close(self) -> None:
        await self._replies.aclose()


class PdOracle:
    """TimestampOracle of a real cluster. One event loop."""

    def __init__(self, pd: PdClient, clock: Clock | None = None) -> None:
        self._pd = pd
        self._clock = clock or SystemClock()
        self._waiting: deque[_Caller] = deque()
        self._asked = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._stream: _Stream | None = None
        self._last: Ts = 0
        self._last_asked_s = float("-inf")
        self._logged_s = float("-inf")
        self._closed = False

    async def timestamp(self) -> Ts:
        """See `TimestampOracle`. Raises `Corruption` if PD's timestamps do not grow."""
        if self._closed:
            raise _closed()
        loop = asyncio.get_running_loop()
        caller: _Caller = loop.create_future()
        self._waiting.append(caller)
        if self._worker is None or self._worker.done():
            self._worker = loop.create_task(self._work(), name="tso")
        self._asked.set()
        return await caller

    async def recent(self, max_age_s: float = 2.0) -> Ts:
        """The last timestamp if it was asked for at most `max_age_s` ago, otherwise a new one.

        For comparisons with clocks, such as the age of a lock: others may have drawn larger ones. Raises as
        `timestamp`.
        """
        if self._last and self._clock.monotonic_s() - self._last_asked_s <= max_age_s:
            return self._last
        return await self.timestamp()

    async def close(self) -> None:
        """Idempotent."""
        self._closed = True
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait({self._worker})
        await self._drop_stream()
        _fail(self._waiting, _closed())
        self._waiting.clear()

    async def _work(self) -> None:
        while True:
            await self._asked.wait()
            await asyncio.sleep(0)  # callers of the same turn of the loop belong together
            if not self._waiting:
                self._asked.clear()
                continue
            await self._serve()

    async def _serve(self) -> None:
        """One reply for all that wait. Repeated requests are also for those who came meanwhile."""
        first = tuple(self._waiting)
        group: list[_Caller] = []
        try:
            await self._pd.at_leader("Tso", lambda *where: self._attempt(group, *where), DEADLINE_S)
        except Unavailable as error:
            # Who came later has not waited long yet.
            _fail(first, error)
            self._waiting.extendleft(reversed([caller for caller in group if not caller.done()]))
        except BinlogError as error:
            _logger.error("no timestamps can be had from PD", error=error)
            await self._drop_stream()
            _fail(group or first, error)
        except BaseException:
            _fail(group, _closed())
            raise

    def _take(self, group: list[_Caller]) -> None:
        """Everybody who waits now, in the order in which they came."""
        group[:] = [caller for caller in group if not caller.done()]
        while self._waiting and len(group) < BATCH_MAX:
            caller = self._waiting.popleft()
            if not caller.done():
                group.append(caller)

    async def _attempt(self, group: list[_Caller], client: rpc.Client, timeout_s: float) -> None:
        if self._stream is not None and self._stream.client is not client:
            await self._drop_stream()
        stands = self._stream is not None and self._stream.answered
        try:
            async with asyncio.timeout(timeout_s):
                try:
                    await self._draw(group, client)
                except Unavailable:
                    if not stands:
                        raise
                    # A stream that stood idle may have ended long ago.
                    await self._drop_stream()
                    await self._draw(group, client)
        except TimeoutError:
            await self._drop_stream()
            raise Unavailable(f"{client.address} does not answer Tso within {timeout_s:.1f} s") from None
        except Unavailable:
            await self._drop_stream()
            raise

    async def _draw(self, group: list[_Caller], client: rpc.Client) -> None:
        if self._stream is None:
            self._stream = _Stream(client)
        self._take(group)
        if not group:
            return  # all of them were cancelled
        count = len(group)
        request = pdpb_pb2.TsoRequest(header=self._pd.header(), count=count)
        asked_s = self._clock.monotonic_s()
        reply = await self._stream.exchange(request.SerializeToString())
        if reply.header.error.type != pdpb_pb2.OK:
            raise Unavailable(f"{client.address} refuses Tso: {header_error(reply.header)}")
        if reply.count != count or not reply.HasField("timestamp"):
            raise Unavailable(f"{client.address} answered {reply.count} timestamps, {count} were asked for")
        stamp = reply.timestamp
        drawn = tso_batch.timestamps(stamp.physical, stamp.logical, stamp.suffix_bits, count, self._last)
        self._last, self._last_asked_s = drawn[-1], asked_s
        for caller, ts in zip(group, drawn, strict=True):
            if not caller.done():
                caller.set_result(ts)
        self._tell_slow(client, asked_s)

    def _tell_slow(self, client: rpc.Client, asked_s: float) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - asked_s > SLOW_S and now_s - self._logged_s >= LOG_AGAIN_S:
            self._logged_s = now_s
            _logger.warning(
                "PD is slow to give timestamps",
                took_ms=round((now_s - asked_s) * 1000),
                leader=client.address,
            )

    async def _drop_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            with suppress(BinlogError):
                await stream.close()


def _closed() -> Unavailable:
    return Unavailable("the timestamp oracle is closed")


def _fail(callers: Sequence[_Caller], error: BinlogError) -> None:
    for caller in callers:
        if not caller.done():
            # An exception of its own for each: tracebacks grow on shared ones.
            caller.set_exception(type(error)(error.message, hint=error.hint))

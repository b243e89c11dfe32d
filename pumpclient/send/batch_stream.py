"""Batch stream: one `WriteBinlogs` stream to one pump, with a future for each binlog.

Owns    the stream, and a task that checks whether answers are late
Stops   when the pump or the connection ends it, when an answer is late or wrong, or by `close`: everything
        unanswered fails then as UNREACHABLE (it may be stored), and `ended` says so to the owner
Why     a message costs grpcio as much as a call; shared by all who wait, it costs each next to nothing
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Final, Protocol

from google.protobuf.message import DecodeError

from pumpclient.send.batching import Outbox
from pumpclient.send.write_policy import Failure
from pumpclient.tasks import Sleep
from tidb_binlog import rpc
from tidb_binlog.clock import Clock
from tidb_binlog.errors import BinlogError, Unavailable
from tidb_binlog.wire import pump_pb2

WRITE_BINLOGS: Final = "/binlog.PumpBatch/WriteBinlogs"
# The pump's reason for a binlog that it did not store -> what kind of failure it is.
FAILURE_OF_REASON: Final[dict[int, Failure]] = {
    pump_pb2.WriteFailure.UNKNOWN: Failure.FAILED,
    pump_pb2.WriteFailure.PAYLOAD: Failure.FAILED,
    pump_pb2.WriteFailure.STATE: Failure.FAILED,
    pump_pb2.WriteFailure.DISK: Failure.FAILED,
    pump_pb2.WriteFailure.WRITER: Failure.FAILED,
    pump_pb2.WriteFailure.SIZE: Failure.TOO_LARGE,
}
# A stream that ends with one of these says nothing of the binlogs in it: each is asked for alone.
_ALONE: Final = frozenset({rpc.UNIMPLEMENTED, rpc.RESOURCE_EXHAUSTED})

Outcome = tuple[Failure | None, str] | None
"""None: stored. Otherwise the failure and its text; without a failure the binlog is to be sent alone."""


class BidiClient(Protocol):
    """What a stream needs of `tidb_binlog.rpc.Client`."""

    def bidi(self, path: str, requests: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]: ...


class BatchStream:
    """`ended` is called once, with the failure of what was unanswered and the gRPC status code of the end, if
    there is one. Open from the start; of no use once it has ended.
    """

    def __init__(
        self,
        client: BidiClient,
        cluster_id: int,
        *,
        clock: Clock,
        sleep: Sleep,
        ended: Callable[[Failure | None, int | None], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.cluster_id = cluster_id
        self._client = client
        self._clock = clock
        self._sleep = sleep
        self._ended = ended
        self._loop = loop
        self._outbox: Outbox[asyncio.Future[Outcome]] = Outbox()
        self._wake = asyncio.Event()
        self._busy = asyncio.Event()
        self._drained: Callable[[], None] | None = None
        self._is_awake = False
        self._is_over = False
        self._tasks = (
            loop.create_task(self._run(), name="pumpclient stream"),
            loop.create_task(self._watch(), name="pumpclient stream deadline"),
        )

    def submit(self, payload: bytes, deadline_s: float) -> asyncio.Future[Outcome]:
        """Queue one binlog; what became of it. Whoever cancels the future learns nothing."""
        future: asyncio.Future[Outcome] = self._loop.create_future()
        self._outbox.add(future, payload, deadline_s)
        if not self._is_awake:
            self._is_awake = True
            self._wake.set()
            self._busy.set()
        return future

    def drain(self, drained: Callable[[], None]) -> None:
        """No more is submitted: call this when everything is answered, now if it is."""
        self._drained = drained
        if not len(self._outbox):
            drained()

    def __len__(self) -> int:
        """How many binlogs are unanswered."""
        return len(self._outbox)

    async def close(self) -> None:
        """End it; what is unanswered fails. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        self._end(None, Failure.UNREACHABLE, "the connection was closed")

    async def _run(self) -> None:
        replies = self._client.bidi(WRITE_BINLOGS, self._messages())
        try:
            async for reply in replies:
                answer = pump_pb2.WriteBinlogsResp.FromString(reply)
                self._settle(answer)
                if self._outbox.is_ready:
                    self._wake.set()
                elif self._drained is not None and not len(self._outbox):
                    self._drained()
        except rpc.RpcStatus as error:
            failure = None if error.code in _ALONE else Failure.FAILED
            self._end(error.code, failure, str(error))
        except Unavailable as error:
            self._end(rpc.UNAVAILABLE, Failure.UNREACHABLE, str(error))
        except (BinlogError, DecodeError) as error:
            self._end(None, Failure.FAILED, f"answer of the pump: {error}")
        else:
            self._end(None, Failure.UNREACHABLE, "the pump ended the stream")
        finally:
            await replies.aclose()

    def _settle(self, answer: pump_pb2.WriteBinlogsResp) -> None:
        failures = {failure.number: failure for failure in answer.failures}
        stored, failed = self._outbox.answered(answer.answered, failures)
        for future in stored:
            if not future.done():
                future.set_result(None)
        for future, failure in failed:
            if not future.done():
                future.set_result((FAILURE_OF_REASON.get(failure.reason, Failure.FAILED), failure.text))

    async def _messages(self) -> AsyncIterator[bytes]:
        outbox, wake = self._outbox, self._wake
        while True:
            # A turn of the loop lies between `set` and here: all who were woken together write together.
            await wake.wait()
            wake.clear()
            self._is_awake = False
            while payloads := outbox.message():
                # Each has a message of its own: one that is used again keeps all that was ever in it.
                request = pump_pb2.WriteBinlogsReq(cluster_id=self.cluster_id, payloads=payloads)
                yield request.SerializeToString()

    async def _watch(self) -> None:
        """End the stream when an answer is late."""
        while True:
            due_s, now_s = self._outbox.deadline_s, self._clock.monotonic_s()
            if due_s is None:
                self._busy.clear()
                await self._busy.wait()
            elif due_s > now_s:
                await self._sleep(due_s - now_s)
            else:
                break
        self._end(None, Failure.UNREACHABLE, "no answer in time")
        self._tasks[0].cancel()

    def _end(self, code: int | None, failure: Failure | None, text: str) -> None:
        if self._is_over:
            return
        self._is_over = True
        for future in self._outbox.abandon():
            if not future.done():
                future.set_result((failure, text))
        self._tasks[1].cancel()
        self._ended(failure, code)

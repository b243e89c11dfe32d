"""Batch stream: the streams of `WriteBinlogs`, many binlogs a message.

Owns    a task per stream that reads its requests and queues what they hold, while answers leave
Order   a part is in the writer's queue before the next one is admitted, so that the log has the order of the
        stream; several messages may be queued while the first is being synced
Waits   for space in flight and in the writer's queue before the next message is read: the transport's flow
        control does the rest. And again before what it holds is queued: others may have been quicker
Holds   a message counts with the transport until all of it is in the writer's queue; what its failures take,
        until they are sent
Stops   `end` lets every stream answer what it has read, then ends it with UNAVAILABLE
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Final

from pump import metrics
from pump.log.group_commit import GroupCommit
from pump.log.writer import WriteFailed
from pump.storage.storage import Storage
from pump.write import admission, write_request
from pump.write.admission import Reason, Refuse, Store, Verdict
from pump.write.batch_session import IN_FLIGHT_BYTES_MAX, Acknowledgement, Part, WriteSession
from pump.write.disk_guard import DiskGuard
from tidb_binlog import binlog, rpc
from tidb_binlog.binlog import PREWRITE, Head
from tidb_binlog.clock import Clock
from tidb_binlog.errors import Rejected, Unavailable
from tidb_binlog.observe import log
from tidb_binlog.upstream.upstream_time import UpstreamTime
from tidb_binlog.wire import pump_pb2

_PAYLOAD_BYTES: Final = 400  # what one costs in memory besides its octets, and its failure
# What is admitted one by one before other streams have their turn.
_PARTS: Final = GroupCommit(bytes_max=1 << 20, records_max=1024)
_REASONS: Final = {
    Reason.PAYLOAD: pump_pb2.WriteFailure.PAYLOAD,
    Reason.STATE: pump_pb2.WriteFailure.STATE,
    Reason.DISK: pump_pb2.WriteFailure.DISK,
    Reason.WRITER: pump_pb2.WriteFailure.WRITER,
    Reason.SIZE: pump_pb2.WriteFailure.SIZE,
    Reason.TIMESTAMP: pump_pb2.WriteFailure.PAYLOAD,
    Reason.OPEN: pump_pb2.WriteFailure.DISK,  # no room either
}
_SUCCESS = metrics.RPC_SECONDS.labels("WriteBinlogs", "succ")
_FAILURE = metrics.RPC_SECONDS.labels("WriteBinlogs", "fail")
_SIZE = metrics.WRITE_SIZE.labels("message")
_logger = log.get("batch_writes")


class BatchWrites:
    """All write streams of one pump. `state` is the node's current state."""

    def __init__(
        self,
        storage: Storage,
        disk_guard: DiskGuard,
        cluster_id: int,
        state: Callable[[], str],
        clock: Clock,
        time: UpstreamTime,
        *,
        in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX,
    ) -> None:
        self.storage = storage
        self.disk_guard = disk_guard
        self.cluster_id = cluster_id
        self.state = state
        self.clock = clock
        self.time = time
        self._in_flight_bytes_max = in_flight_bytes_max
        self._streams: dict[_Stream, None] = {}  # in their order
        self.ending = False

    @property
    def streams(self) -> int:
        return len(self._streams)

    def end(self) -> None:
        """End all streams, after what each has read is answered."""
        self.ending = True
        for stream in self._streams:
            stream.changed.set()

    async def write_binlogs(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Answers as they can be given. Raises `RpcStatus`, `Unavailable`."""
        stream = _Stream(self, WriteSession(bytes_max=self._in_flight_bytes_max))
        self._streams[stream] = None
        metrics.WRITERS.inc()
        _logger.info("write stream opened")
        reader = asyncio.get_running_loop().create_task(stream.read(requests))
        reader.add_done_callback(lambda _: stream.changed.set())
        try:
            while True:
                stream.changed.clear()
                answer = stream.session.answer()
                if answer is not None:
                    stream.space.set()
                    stream.sent(len(answer.failures))
                    yield _encoded(answer)
                elif stream.session.is_idle and (reader.done() or (self.ending and not stream.busy)):
                    break
                else:
                    await stream.changed.wait()
            if not reader.done():
                raise _stopping()
            reader.result()
        finally:
            self._streams.pop(stream, None)
            metrics.WRITERS.dec()
            _logger.info("write stream ended", answered=stream.session.answered)
            reader.cancel()
            await asyncio.wait({reader})
            if not reader.cancelled():
                reader.exception()  # seen; the stream has ended anyway


class _Stream:
    """One stream: its reader's side."""

    def __init__(self, writes: BatchWrites, session: WriteSession) -> None:
        self._writes = writes
        self.session = session
        self.changed = asyncio.Event()  # a part ended, or the reader did
        self.space = asyncio.Event()  # an answer was made
        self.busy = False  # a message is being taken apart
        self._caller = rpc.caller()
        self._failed = 0  # of all payloads, when they were admitted
        self._failures = 0  # of these, not sent yet

    async def read(self, requests: AsyncIterator[bytes]) -> None:
        """Queue everything that comes, until the client ends its side."""
        storage, session, is_first = self._writes.storage, self.session, True
        while True:
            while session.is_full:
                self.space.clear()
                await self.space.wait()
            await storage.wait_for_write_space()
            data = await anext(requests, None)
            if data is None:
                return
            if self._writes.ending:
                raise _stopping()
            self.busy = True
            taken, data = [data], None  # it may be large, and is needed shortly only
            await self._message(taken, is_first)
            self._caller.done()
            self.busy = is_first = False

    def sent(self, failures: int) -> None:
        """An answer names so many failures; those of a failed disk were not counted."""
        failures = min(failures, self._failures)
        self._failures -= failures
        self._caller.give(_PAYLOAD_BYTES * failures)

    async def _message(self, taken: list[bytes], is_first: bool) -> None:
        """Queue what the one message in `taken` holds. Raises `RpcStatus`."""
        began_s = self._writes.clock.monotonic_s()
        data = taken.pop()
        _SIZE.observe(len(data))
        try:
            cluster_id, payloads = write_request.read_many(data)
        except Rejected as error:
            raise rpc.RpcStatus(rpc.INVALID_ARGUMENT, error.message, hint=error.hint) from None
        if is_first or cluster_id:
            refused = admission.cluster(cluster_id, self._writes.cluster_id)
            if refused is not None:
                metrics.refused(refused.reason)
                raise rpc.RpcStatus(rpc.UNKNOWN, refused.text)
        if not payloads:
            return
        size, heads = len(data), None
        if self._takes_all(size, len(payloads)):
            heads = write_request.heads_if_all_stored(data, len(payloads))
            if heads is not None and not (
                admission.are_drawn(heads, self._writes.time.limit_ts) and self._keys_fit(payloads, heads)
            ):
                heads = None
        del data
        self._caller.hold(_PAYLOAD_BYTES * len(payloads))
        before = self._failed
        if heads is not None:
            await self._writes.storage.wait_for_write_space()
            self._store(self.session.take(len(payloads), size), payloads, heads, began_s)
        else:
            await self._parts(payloads, began_s)
        self._caller.give(_PAYLOAD_BYTES * (len(payloads) - (self._failed - before)))

    async def _parts(self, payloads: list[bytes], began_s: float) -> None:
        """Admit payloads and queue them, one part after the other."""
        for first, after in _PARTS.cut(list(map(len, payloads))):
            await asyncio.sleep(0)  # others have their turn, also between messages that are there already
            await self._writes.storage.wait_for_write_space()
            if not self._each(payloads[first:after], began_s):
                await self._writes.time.refresh()
                await self._writes.storage.wait_for_write_space()
                self._each(payloads[first:after], began_s, is_sure=True)

    def _takes_all(self, size: int, count: int) -> bool:
        writes = self._writes
        return writes.storage.write_failure is None and admission.takes_all(
            size, writes.state(), writes.disk_guard.disk, writes.storage.prewrites(count)
        )

    def _keys_fit(self, payloads: list[bytes], heads: list[Head]) -> bool:
        needed = self._writes.storage.prewrites().need_keys
        return binlog.keys_fit(payloads, heads, needed=needed)

    def _each(self, payloads: Sequence[bytes], began_s: float, *, is_sure: bool = False) -> bool:
        """Admit payloads one by one; False, without effect, if one is from the future as far as known."""
        writes = self._writes
        failure, state, disk = writes.storage.write_failure, writes.state(), writes.disk_guard.disk
        verdicts: list[Verdict] = []
        stored: list[bytes] = []
        heads: list[Head] = []
        opened = 0
        for came in payloads:
            verdict: Verdict
            try:
                payload, head = write_request.stored_form(came)
            except Rejected as error:
                verdict = Refuse(Reason.PAYLOAD, error.message)
            else:
                verdict = admission.admit(
                    head,
                    len(payload),
                    state,
                    disk,
                    writes.time.limit_ts,
                    prewrites=writes.storage.prewrites(1 + opened),
                    key_bytes=binlog.key_bytes(payload),
                )
                if isinstance(verdict, Refuse) and verdict.reason is Reason.TIMESTAMP and not is_sure:
                    return False
                if failure is not None and not isinstance(verdict, Refuse):
                    verdict = Refuse(Reason.WRITER, str(failure))
                elif isinstance(verdict, Store):
                    opened += head[0] == PREWRITE
                    stored.append(payload)
                    heads.append(head)
            verdicts.append(verdict)
        for verdict in verdicts:
            if isinstance(verdict, Refuse):
                metrics.refused(verdict.reason)
        part = self.session.take(len(payloads), sum(map(len, payloads)), verdicts)
        self._failed += len(part.failures)
        self._failures += len(part.failures)
        self._store(part, stored, heads, began_s)
        return True

    def _store(self, part: Part, payloads: list[bytes], heads: list[Head], began_s: float) -> None:
        if not payloads:
            self._end(part, began_s)
            return
        try:
            done = asyncio.ensure_future(self._writes.storage.write_many(payloads, heads))
        except WriteFailed as error:
            self._end(part, began_s, error)
        else:
            done.add_done_callback(partial(self._written, part, began_s))

    def _written(self, part: Part, began_s: float, done: asyncio.Future[None]) -> None:
        error = done.exception()
        assert error is None or isinstance(error, WriteFailed), error
        self._end(part, began_s, error)

    def _end(self, part: Part, began_s: float, error: WriteFailed | None = None) -> None:
        """Everything of a part has ended."""
        if error is not None:
            failed = Refuse(Reason.WRITER, str(error))
            metrics.refused(failed.reason, len(part.stored) - error.durable)
            metrics.STORAGE_ERRORS.labels("write_binlog").inc(len(part.stored) - error.durable)
            self.session.end(part, failed, error.durable)
        else:
            self.session.end(part)
        took_s = self._writes.clock.monotonic_s() - began_s
        (_FAILURE if part.failures else _SUCCESS).observe(took_s)
        self.changed.set()


def _stopping() -> Unavailable:
    return Unavailable("the pump is stopping", hint="use another one")


def _encoded(answer: Acknowledgement) -> bytes:
    failures = [
        pump_pb2.WriteFailure(number=number, reason=_REASONS[reason], text=text)
        for number, reason, text in answer.failures
    ]
    return pump_pb2.WriteBinlogsResp(answered=answer.answered, failures=failures).SerializeToString()

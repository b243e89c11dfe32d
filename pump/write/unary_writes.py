"""Unary writes: calls of `WriteBinlog`, one binlog each.

Order   what came together is queued together, in the order in which it came
Why     nearly every write is usual: it is admitted, and waits for the sync that it shares with others. Those
        that one read brought are read, queued and acknowledged as one. If one of them has to be refused or to
        wait for anything else, each goes its own way
Holds   both ways store the same octets and give the same answers
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from pump import metrics
from pump.log.writer import WriteFailed
from pump.storage.storage import Storage
from pump.write import admission, write_request
from pump.write.admission import Probe, Reason, Refuse
from pump.write.disk_guard import DiskGuard
from pump.write.write_request import WriteRequests
from tidb_binlog import binlog, rpc
from tidb_binlog.binlog import Head
from tidb_binlog.clock import Clock
from tidb_binlog.errors import Rejected
from tidb_binlog.upstream.upstream_time import UpstreamTime
from tidb_binlog.wire import pump_pb2

_ANSWER: Final = pump_pb2.WriteBinlogResp().SerializeToString()
_SUCCESS = metrics.RPC_SECONDS.labels("WriteBinlog", "succ")
_SIZE = metrics.WRITE_SIZE.labels("single")
_FAILURE = metrics.RPC_SECONDS.labels("WriteBinlog", "fail")


class UnaryWrites:
    """All single writes of one pump. `state` is the node's current state."""

    def __init__(
        self,
        storage: Storage,
        disk_guard: DiskGuard,
        cluster_id: int,
        state: Callable[[], str],
        clock: Clock,
        time: UpstreamTime,
    ) -> None:
        self._storage = storage
        self._disk_guard = disk_guard
        self._cluster_id = cluster_id
        self._requests = WriteRequests(cluster_id)
        self._state = state
        self._clock = clock
        self._time = time

    # -- together --------------------------------------------------------------------------------

    def take(self, requests: Sequence[bytes], calls: rpc.TakenCalls) -> bool:
        """Queue writes that came together; False, without effect, if that cannot be."""
        size = max(map(len, requests))
        prewrites = self._storage.prewrites(len(requests))
        if not admission.takes_all(size, self._state(), self._disk_guard.disk, prewrites):
            return False
        read = self._requests.read_stored(requests)
        if read is None:
            return False
        payloads, heads = read
        limit_ts = self._time.limit_ts
        if not admission.are_drawn(heads, limit_ts):
            return False  # a probe, or from the future as far as known
        if (prewrites.need_keys or size > binlog.KEY_BYTES_MAX) and not binlog.keys_fit(
            payloads, heads, needed=prewrites.need_keys
        ):
            return False
        written = partial(self._written, calls, len(payloads), self._clock.monotonic_s())
        if not self._storage.submit(payloads, heads, written):
            return False
        _SIZE.observe_each(list(map(len, payloads)))
        return True

    def _written(
        self, calls: rpc.TakenCalls, count: int, began_s: float, failure: WriteFailed | None
    ) -> None:
        took_s = self._clock.monotonic_s() - began_s
        if failure is None:
            answered = calls.succeed(_ANSWER)
            _SUCCESS.observe(took_s, answered)
            _FAILURE.observe(took_s, count - answered)  # they were cancelled
            return
        failed = calls.fail(_status(Refuse(Reason.WRITER, str(failure))))
        _FAILURE.observe(took_s, count)
        metrics.STORAGE_ERRORS.labels("write_binlog").inc(failed)
        metrics.refused(Reason.WRITER, failed)

    # -- one by one ------------------------------------------------------------------------------

    async def write_binlog(self, data: bytes) -> bytes:
        """Store one binlog. Raises `RpcStatus` UNKNOWN with the text old clients know."""
        began_s = self._clock.monotonic_s()
        try:
            payload, head = self._read(data)
            del data  # it may be large, and is stored from a copy
            if head[1] > self._time.limit_ts or head[2] > self._time.limit_ts:
                await self._time.refresh()
            if self._admit(payload, head):
                await self._storage.write(payload, head)
        except WriteFailed as error:
            _FAILURE.observe(self._clock.monotonic_s() - began_s)
            metrics.STORAGE_ERRORS.labels("write_binlog").inc()
            raise _refusal(Refuse(Reason.WRITER, str(error))) from None
        except BaseException:
            _FAILURE.observe(self._clock.monotonic_s() - began_s)
            raise
        _SUCCESS.observe(self._clock.monotonic_s() - began_s)
        return _ANSWER

    def _read(self, data: bytes) -> tuple[bytes, Head]:
        """The binlog in a request. Raises `RpcStatus`."""
        try:
            cluster_id, payload = self._requests.read(data)
        except Rejected as error:
            raise rpc.RpcStatus(rpc.INVALID_ARGUMENT, error.message) from None
        if cluster_id != self._cluster_id:
            refused = admission.cluster(cluster_id, self._cluster_id)
            assert refused is not None
            raise _refusal(refused)
        try:
            return write_request.stored_form(payload)
        except Rejected as error:
            raise _refusal(Refuse(Reason.PAYLOAD, error.message)) from None

    def _admit(self, payload: bytes, head: Head) -> bool:
        """Whether to store it; not so a probe. Raises `RpcStatus`."""
        disk, limit_ts = self._disk_guard.disk, self._time.limit_ts
        prewrites, key_bytes = self._storage.prewrites(), binlog.key_bytes(payload)
        verdict = admission.admit(
            head, len(payload), self._state(), disk, limit_ts, prewrites=prewrites, key_bytes=key_bytes
        )
        if isinstance(verdict, Refuse):
            raise _refusal(verdict)
        if isinstance(verdict, Probe):
            if self._storage.write_failure is not None:
                raise _refusal(Refuse(Reason.WRITER, str(self._storage.write_failure)))
            return False
        _SIZE.observe(len(payload))
        return True


def _refusal(refused: Refuse) -> rpc.RpcStatus:
    """Counted."""
    metrics.refused(refused.reason)
    return _status(refused)


def _status(refused: Refuse) -> rpc.RpcStatus:
    # Clients never repeat what is RESOURCE_EXHAUSTED: only what is too large for every pump may be.
    code = rpc.RESOURCE_EXHAUSTED if refused.reason is Reason.SIZE else rpc.UNKNOWN
    return rpc.RpcStatus(code, refused.text)

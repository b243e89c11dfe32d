"""Server: the pump's gRPC services, as functions from bytes to bytes.

    binlog.Pump/WriteBinlog       one binlog, acknowledged when it is durable
    binlog.Pump/PullBinlogs       one entity a message
    binlog.PumpBatch/WriteBinlogs many binlogs a message, see `write.batch_stream`
    binlog.PumpBatch/PullBatches  many payloads a message

Drives  `admission`
Start   `services_before_start` answers for a pump that cannot serve yet, so that clients go elsewhere
Never   answers a write before it is durable, and never in the reply's `errmsg`: a failed call carries a
        status, which is what old and new clients read
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from common import rpc
from common.binlog import Head
from common.clock import Clock
from common.errors import Rejected, Unavailable
from common.serving import health
from common.serving.starting import Starting
from common.upstream.upstream_time import UpstreamTime
from common.wire import pump_pb2
from pump import metrics
from pump.log.writer import WriteFailed
from pump.pull.puller import Pullers
from pump.storage.storage import Storage
from pump.write import admission, write_request
from pump.write.admission import Probe, Reason, Refuse
from pump.write.batch_stream import BatchWrites
from pump.write.disk_guard import DiskGuard
from pump.write.write_request import WriteRequests

_ANSWER = pump_pb2.WriteBinlogResp().SerializeToString()
_SUCCESS = metrics.RPC_SECONDS.labels("WriteBinlog", "succ")
_SIZE = metrics.WRITE_SIZE.labels("single")
_FAILURE = metrics.RPC_SECONDS.labels("WriteBinlog", "fail")


class PumpServer:
    """The handlers. `state` is the node's current state."""

    def __init__(
        self,
        storage: Storage,
        pullers: Pullers,
        disk_guard: DiskGuard,
        cluster_id: int,
        state: Callable[[], str],
        clock: Clock,
        time: UpstreamTime,
    ) -> None:
        self._storage = storage
        self._pullers = pullers
        self._disk_guard = disk_guard
        self._cluster_id = cluster_id
        self._requests = WriteRequests(cluster_id)
        self._state = state
        self._clock = clock
        self._time = time
        self._batch_writes = BatchWrites(storage, disk_guard, cluster_id, state, clock, time)

    def services(self) -> list[rpc.Service]:
        return [
            rpc.Service(
                "binlog.Pump",
                inline={"WriteBinlog": self.write_binlog},
                server_streams={"PullBinlogs": self._pullers.pull_binlogs},
            ),
            rpc.Service(
                "binlog.PumpBatch",
                bidi_streams={
                    "WriteBinlogs": self._batch_writes.write_binlogs,
                    "PullBatches": self._pullers.pull_batches,
                },
            ),
        ]

    def end_streams(self) -> None:
        """End all streams, each after the message it is at."""
        self._batch_writes.end()
        self._pullers.end()

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
        verdict = admission.admit(head, len(payload), self._state(), disk, limit_ts)
        if isinstance(verdict, Refuse):
            raise _refusal(verdict)
        if isinstance(verdict, Probe):
            if self._storage.write_failure is not None:
                raise _refusal(Refuse(Reason.WRITER, str(self._storage.write_failure)))
            return False
        _SIZE.observe(len(payload))
        return True


def _refusal(refused: Refuse) -> rpc.RpcStatus:
    metrics.refused(refused.reason)
    # Clients never repeat what is RESOURCE_EXHAUSTED: only what is too large for every pump may be.
    code = rpc.RESOURCE_EXHAUSTED if refused.reason is Reason.SIZE else rpc.UNKNOWN
    return rpc.RpcStatus(code, refused.text)


def services_before_start(starting: Starting) -> list[rpc.Service]:
    """All that a pump serves, not served yet: each method answers UNAVAILABLE with the reason to wait."""

    def refusal() -> Unavailable:
        return Unavailable(f"pump is {health.STARTING}: {starting.reason}", hint="use another one")

    async def call(_: Any) -> bytes:
        raise refusal()

    async def stream(_: Any) -> AsyncIterator[bytes]:
        for reply in list[bytes]():
            yield reply
        raise refusal()

    services: list[rpc.Service] = []
    for service in pump_pb2.DESCRIPTOR.services_by_name.values():
        calls, streams, bidi = {}, {}, {}
        for method in service.methods:
            if not method.server_streaming:
                calls[method.name] = call
            elif method.client_streaming:
                bidi[method.name] = stream
            else:
                streams[method.name] = stream
        services.append(rpc.Service(service.full_name, calls, streams, bidi))
    return services

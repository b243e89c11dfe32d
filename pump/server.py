"""Server: the pump's gRPC services, as functions from bytes to bytes.

    binlog.Pump/WriteBinlog       one binlog, acknowledged when it is durable
    binlog.Pump/PullBinlogs       one entity a message
    binlog.PumpBatch/PullBatches  many payloads a message

Drives  `admission`
Never   answers a write before it is durable, and never in the reply's `errmsg`: a failed call carries a
        status, which is what clients of all ages look at
"""

from __future__ import annotations

from collections.abc import Callable

from common import binlog, rpc
from common.clock import Clock
from common.errors import Rejected
from common.wire import pump_pb2
from pump import admission, metrics
from pump.admission import Probe, Reason, Refuse
from pump.disk_guard import DiskGuard
from pump.puller import Pullers
from pump.storage import Storage, WriteFailed
from pump.write_request import WriteRequests

_ANSWER = pump_pb2.WriteBinlogResp().SerializeToString()
_LARGE_BYTES = 1 << 18  # from here on copies cost more than looking
_SUCCESS = metrics.RPC_SECONDS.labels("WriteBinlog", "succ")
_SIZE = metrics.WRITE_SIZE.labels("single")
_FAILURE = metrics.RPC_SECONDS.labels("WriteBinlog", "fail")


class PumpServer:
    """The handlers. `state` tells the node's current state."""

    def __init__(
        self,
        storage: Storage,
        pullers: Pullers,
        disk_guard: DiskGuard,
        cluster_id: int,
        state: Callable[[], str],
        clock: Clock,
    ) -> None:
        self._storage = storage
        self._pullers = pullers
        self._disk_guard = disk_guard
        self._cluster_id = cluster_id
        self._requests = WriteRequests(cluster_id)
        self._state = state
        self._clock = clock

    def services(self) -> list[rpc.Service]:
        return [
            rpc.Service(
                "binlog.Pump",
                inline={"WriteBinlog": self.write_binlog},
                server_streams={"PullBinlogs": self._pullers.pull_binlogs},
            ),
            rpc.Service("binlog.PumpBatch", bidi_streams={"PullBatches": self._pullers.pull_batches}),
        ]

    async def write_binlog(self, data: bytes) -> bytes:
        """Store one binlog. Raises `RpcStatus` UNKNOWN with the text old clients know, `WriteFailed`."""
        began_s = self._clock.monotonic_s()
        try:
            binlog_to_store = self._admit(data)
            if binlog_to_store is not None:
                await self._storage.write(*binlog_to_store)
        except WriteFailed as error:
            _FAILURE.observe(self._clock.monotonic_s() - began_s)
            metrics.STORAGE_ERRORS.labels("write_binlog").inc()
            raise self._refusal(Refuse(Reason.WRITER, str(error))) from None
        except BaseException:
            _FAILURE.observe(self._clock.monotonic_s() - began_s)
            raise
        _SUCCESS.observe(self._clock.monotonic_s() - began_s)
        return _ANSWER

    def _admit(self, data: bytes) -> tuple[bytes, binlog.Header] | None:
        """What to store of a request; None for a probe. Raises `RpcStatus`."""
        try:
            cluster_id, payload = self._requests.read(data)
        except Rejected as error:
            raise rpc.RpcStatus(rpc.INVALID_ARGUMENT, error.message) from None
        refused = admission.cluster(cluster_id, self._cluster_id)
        if refused is not None:
            raise self._refusal(refused)
        header = binlog.canonical_header(payload) if len(payload) >= _LARGE_BYTES else None
        if header is None:
            try:
                message = binlog.parse(payload)
            except Rejected as error:
                raise self._refusal(Refuse(Reason.PAYLOAD, error.message)) from None
            header = binlog.header(message)
            payload = binlog.canonical(message)
        verdict = admission.admit(header, self._state(), self._disk_guard.disk)
        if isinstance(verdict, Refuse):
            raise self._refusal(verdict)
        if isinstance(verdict, Probe):
            if self._storage.write_failure is not None:
                raise self._refusal(Refuse(Reason.WRITER, str(self._storage.write_failure)))
            return None
        _SIZE.observe(len(payload))
        return payload, header

    def _refusal(self, refused: Refuse) -> rpc.RpcStatus:
        metrics.REFUSED.labels(refused.reason.value).inc()
        if refused.reason is not Reason.CLUSTER:
            metrics.LOST.inc()
        return rpc.RpcStatus(rpc.UNKNOWN, refused.text)

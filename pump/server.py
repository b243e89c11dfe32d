"""Server: the pump's gRPC services, as functions from bytes to bytes.

    binlog.Pump/WriteBinlog       one binlog, see `write.unary_writes`
    binlog.Pump/PullBinlogs       one entity a message
    binlog.PumpBatch/WriteBinlogs many binlogs a message, see `write.batch_stream`
    binlog.PumpBatch/PullBatches  many payloads a message
    binlog.PumpBatch/CutRange     where a range may be cut for several readers

Start   `services_before_start` answers for a pump that cannot serve yet, so that clients go elsewhere
Never   answers a write before it is durable, and never in the reply's `errmsg`: a failed call carries a
        status, which is what old and new clients read
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from pump.pull.puller import Pullers
from pump.storage.storage import Storage
from pump.write.batch_stream import BatchWrites
from pump.write.disk_guard import DiskGuard
from pump.write.unary_writes import UnaryWrites
from tidb_binlog import rpc
from tidb_binlog.clock import Clock
from tidb_binlog.errors import Unavailable
from tidb_binlog.net.permission import Permission
from tidb_binlog.serving.starting import STARTING, Starting
from tidb_binlog.upstream.upstream_time import UpstreamTime
from tidb_binlog.wire import pump_pb2

PERMISSIONS: Final = {
    "WriteBinlog": Permission.WRITE,
    "PullBinlogs": Permission.READ,
    "WriteBinlogs": Permission.WRITE,
    "PullBatches": Permission.READ,
    "CutRange": Permission.READ,
}


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
        self._pullers = pullers
        self._unary_writes = UnaryWrites(storage, disk_guard, cluster_id, state, clock, time)
        self._batch_writes = BatchWrites(storage, disk_guard, cluster_id, state, clock, time)
        self.write_binlog = self._unary_writes.write_binlog

    def services(self) -> list[rpc.Service]:
        return [
            rpc.Service(
                "binlog.Pump",
                inline={"WriteBinlog": self.write_binlog},
                taken={"WriteBinlog": self._unary_writes.take},
                server_streams={"PullBinlogs": self._pullers.pull_binlogs},
                permissions=PERMISSIONS,
            ),
            rpc.Service(
                "binlog.PumpBatch",
                {"CutRange": self._pullers.cut_range},
                bidi_streams={
                    "WriteBinlogs": self._batch_writes.write_binlogs,
                    "PullBatches": self._pullers.pull_batches,
                },
                permissions=PERMISSIONS,
            ),
        ]

    def end_streams(self) -> None:
        """End all streams, each after the message it is at."""
        self._batch_writes.end()
        self._pullers.end()


def services_before_start(starting: Starting) -> list[rpc.Service]:
    """All that a pump serves, not served yet: each method answers UNAVAILABLE with the reason to wait."""

    def refusal() -> Unavailable:
        return Unavailable(f"pump is {STARTING}: {starting.reason}", hint="use another one")

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
        services.append(rpc.Service(service.full_name, calls, streams, bidi, permissions=PERMISSIONS))
    return services

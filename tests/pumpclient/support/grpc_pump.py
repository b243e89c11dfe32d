"""A pump that speaks real gRPC and keeps what it acknowledged in memory."""

from __future__ import annotations

from typing import Self

from tests.fakes import grpcio_server
from tidb_binlog import binlog, rpc
from tidb_binlog.cluster.node import ONLINE, NodeStatus
from tidb_binlog.cluster.registry import PUMPS
from tidb_binlog.etcd.registry import EtcdRegistry
from tidb_binlog.wire import pump_pb2


class GrpcPump:
    """Serves `WriteBinlog` on a loopback port. `refuse_next` calls are answered with an error."""

    def __init__(self, node_id: str, cluster_id: int, server: grpcio_server.Server | None = None) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.payloads: list[bytes] = []
        self.probes = 0
        self.refuse_next = 0
        self.refuse_every = 0
        self._calls = 0
        self._server = server
        self._receive_bytes_max = 0

    @classmethod
    async def start(
        cls, node_id: str, cluster_id: int, *, port: int = 0, receive_bytes_max: int = 2**31 - 1
    ) -> Self:
        pump = cls(node_id, cluster_id)
        pump._receive_bytes_max = receive_bytes_max
        await pump.listen(port)
        return pump

    async def listen(self, port: int = 0) -> None:
        service = rpc.Service("binlog.Pump", unary={"WriteBinlog": self._write})
        self._server = await grpcio_server.serve(
            [service], "127.0.0.1", port, receive_bytes_max=self._receive_bytes_max
        )

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.port

    async def register(self, registry: EtcdRegistry, state: str = ONLINE) -> None:
        entry = (await registry.view()).pumps.get(self.node_id)
        status = NodeStatus(self.node_id, f"127.0.0.1:{self.port}", state)
        await registry.put(PUMPS, status, entry.mod_revision if entry else None)

    async def stop(self) -> None:
        assert self._server is not None
        await self._server.stop(0.0)

    def transactions(self) -> list[tuple[int, int, int]]:
        headers = [binlog.header(binlog.parse(payload)) for payload in self.payloads]
        return [(header.tp, header.start_ts, header.commit_ts) for header in headers]

    async def _write(self, request: bytes) -> bytes:
        message = pump_pb2.WriteBinlogReq.FromString(request)
        self._calls += 1
        if self.refuse_next or (self.refuse_every and self._calls % self.refuse_every):
            self.refuse_next = max(self.refuse_next - 1, 0)
            raise rpc.RpcStatus(rpc.UNKNOWN, "no available space")
        if message.clusterID != self.cluster_id:
            raise rpc.RpcStatus(
                rpc.UNKNOWN, f"cluster ID are mismatch, {message.clusterID} vs {self.cluster_id}"
            )
        if message.payload:
            self.payloads.append(message.payload)
        else:
            self.probes += 1
        return pump_pb2.WriteBinlogResp().SerializeToString()

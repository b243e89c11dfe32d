"""Nodes: the registry as etcd has it, then every node and TiDB server at the address it gives.

Out    `RegistryFacts`: the nodes with what they answered, keys that are no entries, TiDB servers, clocks
Tests  tests/deploy/binlogctl/doctor/test_examination.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from binlogctl.doctor.facts import ClockFacts, NodeFacts, TidbFacts, host_of
from binlogctl.doctor.gather import answers
from tidb_binlog.cluster.node import OFFLINE, NodeStatus
from tidb_binlog.cluster.registry import KINDS, PUMPS, ClusterView
from tidb_binlog.errors import Corruption, Unavailable
from tidb_binlog.etcd.client import EtcdClient
from tidb_binlog.etcd.registry import EtcdRegistry
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.net.http_client import HttpClient, Page
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.upstream.standalone.layout import Prepared, prepared

TIDB_SERVERS: Final = b"/tidb/server/info/"
_STATUSES: Final = b"/tidb-binlog/v1/"
_AT_ONCE: Final = 32


@dataclass(frozen=True, slots=True)
class RegistryFacts:
    """`damaged`: keys below the registry's root that hold no status. `prepared`: entries of the standalone
    upstream by start_ts, or why they cannot be read."""

    nodes: tuple[NodeFacts, ...] = ()
    damaged: tuple[str, ...] = ()
    servers: tuple[TidbFacts, ...] = ()
    clocks: tuple[ClockFacts, ...] = ()
    prepared: Mapping[int, Prepared] | Corruption = field(default_factory=dict)


class NodeGatherer:
    """Asks one cluster's nodes. Use once."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http
        self._clocks: list[ClockFacts] = []
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def gather(
        self, endpoints: str, tls: TlsConfig | None, timeout_s: float, tidb: Iterable[str]
    ) -> RegistryFacts:
        """`tidb`: addresses of status ports besides those that are registered. Raises `Unavailable`."""
        client = await EtcdClient.connect(endpoints, tls=tls, timeout_s=timeout_s)
        try:
            view = await EtcdRegistry(client).view()
            _, statuses = await client.range(_STATUSES)
            _, listed = await client.range(TIDB_SERVERS)
            in_table = await prepared(client)
        finally:
            await client.close()
        damaged = [
            pair.key.decode(errors="replace") for pair in statuses if not _is_status(pair.key, pair.value)
        ]
        servers = {
            server.address: server for pair in listed if (server := answers.read_tidb(pair.value)) is not None
        }
        servers |= {address: TidbFacts(address) for address in tidb if address not in servers}
        nodes = await asyncio.gather(*map(self.look_at, _entries(view)))
        seen = await asyncio.gather(*map(self._tidb, servers.values()))
        return RegistryFacts(tuple(nodes), tuple(damaged), tuple(seen), tuple(self._clocks), in_table)

    async def look_at(self, node: NodeFacts) -> NodeFacts:
        """What a registered node answers at its address."""
        if node.state == OFFLINE:
            return node
        node = replace(node, tls=self._http.scheme == "https")
        async with self._gate:
            try:
                node = replace(node, resolved=await self._http.resolve(host_of(node.host)))
            except Unavailable:
                pass  # `resolved` stays None: checked later
            try:
                return await self._ask(node)
            except Unavailable as error:
                return replace(node, error=error.message)

    async def _ask(self, node: NodeFacts) -> NodeFacts:
        address = node.host
        page = await self._http.get(address, "/status")
        if page.status != 200:
            return replace(node, error=f"/status answers HTTP {page.status}")
        if node.kind == PUMPS:
            answer = answers.read_pump(page.body, await self._exposition(address))
        else:
            answer = answers.read_drainer(page.body)
        if answer is None:
            return replace(node, error=f"what answers is no {node.kind.removesuffix('s')}")
        self._note(page, node.label, answer.time_s)
        return replace(node, answer=answer)

    async def _exposition(self, address: str) -> bytes:
        try:
            page = await self._http.get(address, "/metrics")
        except Unavailable:
            return b""
        return page.body if page.status == 200 else b""

    def _note(self, page: Page, who: str, body_s: float | None = None) -> None:
        if (clock := ClockFacts.of_page(who, page, body_s)) is not None:
            self._clocks.append(clock)

    async def _tidb(self, server: TidbFacts) -> TidbFacts:
        server = replace(server, tls=self._http.scheme == "https")
        async with self._gate:
            try:
                page = await self._http.get(server.address, "/info")
                self._note(page, f"TiDB {server.address}")
                answered = answers.read_tidb(page.body)
                if page.status != 200 or answered is None:
                    return replace(server, error=f"/info answers HTTP {page.status}, and not as TiDB does")
                server = replace(server, binlog=answered.binlog, version=answered.version)
                page = await self._http.get(server.address, "/binlog/recover?op=status")
            except Unavailable as error:
                return replace(server, error=error.message)
        skipping = answers.read_skipping(page.body) if page.status == 200 else None
        return replace(server, skipping=skipping)


def _entries(view: ClusterView) -> list[NodeFacts]:
    return [
        NodeFacts(
            kind,
            node_id,
            entry.status.host,
            entry.status.state,
            entry.alive,
            entry.status.max_commit_ts,
            entry.status.update_ts,
            reader=entry.status.is_reader,
        )
        for kind in KINDS
        for node_id, entry in sorted(view.of(kind).items())
    ]


def _is_status(key: bytes, value: bytes) -> bool:
    path = key.removeprefix(_STATUSES).split(b"/")
    try:
        status = NodeStatus.from_json(value)
    except Corruption:
        return False
    return (
        len(path) == 2
        and path[0].decode(errors="replace") in KINDS
        and status.node_id == path[1].decode(errors="replace")
    )

"""Ways: how a stream reaches its cluster: its upstream, its registry, its pumps.

`network` is the way to what runs; a test's cluster in memory (`binlog_testing`) enters its own in `IN_MEMORY`
under an endpoint of its own, so that a program under test is given another endpoint and nothing else.

Tests  tests/deploy/binlog_testing/test_cluster.py, tests/integration/subscribe/test_subscribe.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from drainer.points.rows.snapshot_position import SnapshotRequest
from drainer.reading.subscribe.live_stream import Before, Presence
from drainer.reading.subscribe.stream_start import Ask, asks_pumps
from drainer.stream.pull.collector import PumpListing
from drainer.stream.pull.pump_source import PullClient
from drainer.stream.schema.tracker import SchemaTracker
from tidb_binlog import rpc
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import ConfigError
from tidb_binlog.etcd.registry import connect_registry
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.upstream import choice
from tidb_binlog.upstream.upstream_time import UpstreamTime
from tidb_binlog.upstream_port import Upstream

if TYPE_CHECKING:  # only a reader with a name listens for pumps
    from drainer.reading.subscribe.named_reader import ReaderAddress


class PumpRegistry(PumpListing, Protocol):
    """What a stream needs of the registry."""

    async def close(self) -> None:
        """End connections."""
        ...


class Way(Protocol):
    """To one cluster. Each raises `Unavailable`."""

    async def upstream(self, kind: choice.Kind) -> Upstream:
        """Where timestamps and the schema come from."""
        ...

    async def registry(self) -> PumpRegistry:
        """Where the pumps are found; asked for before a name is."""
        ...

    async def reader(
        self,
        name: str,
        time: UpstreamTime,
        doing: Callable[[], str],
        address: ReaderAddress | None,
    ) -> Presence:
        """Take a name. Raises `NameTaken`, `ConfigError`."""
        ...

    async def snapshot(self, request: SnapshotRequest) -> tuple[Before, SchemaTracker]:
        """Rows of the upstream's tables, and the schema at their timestamp. Raises `SnapshotLost`,
        `Rejected`, `ConfigError`, `DownstreamError`."""
        ...

    def asks(self) -> Ask:
        """Up to where a pump has purged."""
        ...

    def client(self, address: str) -> PullClient:
        """A connection to a pump."""
        ...


class Network:
    """The way to what runs."""

    def __init__(self, endpoint: str, tls: TlsConfig | None) -> None:
        self._endpoint = endpoint
        self._tls = tls

    async def upstream(self, kind: choice.Kind) -> Upstream:
        return await choice.connect(kind, self._endpoint, tls=self._tls, create=False)

    async def registry(self) -> PumpRegistry:
        self._registry = await connect_registry(self._endpoint, tls=self._tls)
        return self._registry

    async def reader(
        self,
        name: str,
        time: UpstreamTime,
        doing: Callable[[], str],
        address: ReaderAddress | None,
    ) -> Presence:
        from drainer.reading.subscribe.named_reader import open_reader

        return await open_reader(
            name,
            self._registry,
            self._endpoint,
            now_ts=lambda: time.now_ts,
            clock=SystemClock(),
            doing=doing,
            address=address,
            tls=self._tls,
        )

    async def snapshot(self, request: SnapshotRequest) -> tuple[Before, SchemaTracker]:
        try:
            from drainer.reading.subscribe.first_rows import open_first_rows
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"snapshot needs the package {error.name}", hint="pip install 'tidb-binlog[server]'"
            ) from error

        return await open_first_rows(request)

    def asks(self) -> Ask:
        return asks_pumps(self._tls)

    def client(self, address: str) -> PullClient:
        return rpc.Client(address, tls=self._tls)


IN_MEMORY: Final[dict[str, Way]] = {}
"""Clusters of tests, by endpoint."""


def to(endpoint: str, tls: TlsConfig | None) -> Way:
    """The way to the cluster at an endpoint."""
    return IN_MEMORY.get(endpoint) or Network(endpoint, tls)

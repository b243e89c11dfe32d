"""Examination: asks everything that can be asked from here and lets the checks decide on it.

Holds   whatever cannot be reached or fails is a finding, and the rest goes on; what was not examined is said
Never   changes anything: it reads, and draws one timestamp
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import datetime
from typing import Any, Final

from binlogctl.doctor.checks.checkpoint import check_checkpoint
from binlogctl.doctor.checks.clocks import check_clocks
from binlogctl.doctor.checks.downstream import check_downstream, check_row_server
from binlogctl.doctor.checks.files import check_urls
from binlogctl.doctor.checks.nodes import check_nodes, is_local
from binlogctl.doctor.checks.storage import check_disks, check_retention
from binlogctl.doctor.checks.upstream import (
    check_etcd_release,
    check_members,
    check_prepared,
    check_stores,
    check_tidb,
)
from binlogctl.doctor.config_files import ConfigFiles, DownstreamPlan
from binlogctl.doctor.facts import ClockFacts, MemberFacts, host_of
from binlogctl.doctor.findings import Check, Finding, Report, all_of
from binlogctl.doctor.gather.downstream import gather_downstream
from binlogctl.doctor.gather.nodes import NodeGatherer, RegistryFacts
from binlogctl.doctor.gather.upstream import STANDALONE, TIDB, UpstreamFacts, UpstreamGatherer
from drainer.mysql.connection import Target
from tidb_binlog import time_text, tso
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.cluster.node import OFFLINE
from tidb_binlog.errors import BinlogError, FlagError
from tidb_binlog.etcd.client import parse_endpoints
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net.http_client import HttpClient
from tidb_binlog.net.port import split_address
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.upstream.choice import KINDS

TIMEOUT_S: Final = 5.0
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """What to examine. `tidb`: comma list of host:status_port besides those that are registered in etcd.

    `time_zone`: the zone that users of the upstream have, as `Asia/Shanghai` or `+08:00`. `timeout_s`: how
    long each server may take to answer once.
    """

    pd_urls: str = "http://127.0.0.1:2379"
    upstream: str = "auto"
    drainer_config: str = ""
    pump_config: str = ""
    tidb: str = ""
    output: str = "table"
    time_zone: str = ""
    ssl_ca: str = ""
    ssl_cert: str = ""
    ssl_key: str = ""
    timeout_s: float = TIMEOUT_S

    def check(self) -> None:
        """Raises `ConfigError` for options that cannot be meant."""
        parse_endpoints(self.pd_urls)
        for address in self.tidb_addresses:
            split_address("tidb", address)
        if self.upstream not in KINDS:
            raise FlagError(f"upstream {self.upstream!r} is not known", hint="use " + ", ".join(KINDS))
        if self.output not in ("table", "json"):
            raise FlagError(f"output {self.output!r} is unknown", hint="use table or json")
        if self.timeout_s <= 0:
            raise FlagError(f"timeout is {self.timeout_s:g}", hint="seconds above 0")
        _ = self.zone_offset_s, self.tls

    @property
    def tls(self) -> TlsConfig | None:
        """Read the TLS files; None without TLS. Raises `ConfigError`."""
        return TlsConfig.from_paths(self.ssl_ca, self.ssl_cert, self.ssl_key)

    @property
    def tidb_addresses(self) -> tuple[str, ...]:
        """List the TiDB servers that the operator named."""
        return tuple(part.strip() for part in self.tidb.split(",") if part.strip())

    @property
    def zone_offset_s(self) -> float | None:
        """East of UTC, now. Raises `FlagError`."""
        if not self.time_zone:
            return None
        try:
            if self.time_zone[0] in "+-":
                zone = datetime.strptime(self.time_zone, "%z").tzinfo
            else:
                zone = time_text.zone(self.time_zone)
        except ValueError:
            raise FlagError(
                f"time-zone {self.time_zone!r} is not known", hint="as Asia/Shanghai, Local or +08:00"
            ) from None
        offset = datetime.now(zone).astimezone(zone).utcoffset()
        return offset.total_seconds() if offset is not None else 0.0


async def examine(
    options: DoctorOptions, *, progress: Progress = lambda _: None, clock: Clock | None = None
) -> Report:
    """Raises `ConfigError` for options that cannot be meant; all else is in the report."""
    options.check()
    return await Examination(options, progress, clock or SystemClock()).run()


class Examination:
    """One examination. Use once."""

    def __init__(self, options: DoctorOptions, progress: Progress, clock: Clock) -> None:
        self._options = options
        self._progress = progress
        self._clock = clock
        self._http = HttpClient(clock, options.tls, options.timeout_s)
        self._findings: list[Finding] = []  # of all steps, in the order in which they end
        self._clocks: list[ClockFacts] = []  # of every server that told its time
        self._upstream_asked_s = 0.0  # when PD's time was asked for, monotonic: a checkpoint moves on since
        self._files = ConfigFiles(options.pump_config, options.drainer_config)

    async def run(self) -> Report:
        """Examine everything and report."""
        options = self._options
        endpoints = parse_endpoints(options.pd_urls)
        await self._step("files", self._examine_files())
        upstream: UpstreamFacts | None
        registry: RegistryFacts | None
        upstream, registry = await asyncio.gather(
            self._step("PD and etcd", self._examine_upstream()),
            self._step("pumps and drainers", self._examine_nodes()),
        )
        await asyncio.gather(
            self._step("cluster", self._check_cluster(upstream, registry, endpoints)),
            self._step("downstream", self._examine_downstream(upstream, registry)),
            self._step("pd-urls of the files", self._compare_urls(upstream)),
        )
        self._findings += check_clocks(self._clocks)
        return Report.of(self._findings)

    async def _step(self, name: str, work: Coroutine[Any, Any, Any]) -> Any:
        """A part of the examination: its failure is a finding."""
        self._progress(name)
        try:
            return await work
        except BinlogError as failure:
            self._findings += self._failed(name, str(failure))
        except Exception as failure:
            self._findings += self._failed(name, f"{type(failure).__name__} in the doctor itself")
        return None

    @staticmethod
    def _failed(name: str, said: str) -> list[Finding]:
        return Check("doctor", name).unchecked(
            said, "this part was not examined to its end", "correct what it says and run doctor again"
        )

    async def _examine_files(self) -> None:
        files, now_s = self._files, self._clock.wall_s()
        self._findings += files.check(now_s)
        self._findings += files.check_tls("flags", self._options.tls, (), now_s)

    async def _examine_upstream(self) -> UpstreamFacts:
        options = self._options
        gatherer = UpstreamGatherer(self._http, self._clock, options.tls, options.timeout_s)
        self._upstream_asked_s = self._clock.monotonic_s()
        seen = await gatherer.gather(options.pd_urls, options.upstream)
        self._clocks += seen.clocks
        self._findings += check_members(seen.members, who="etcd" if seen.kind == STANDALONE else "PD")
        if seen.kind == STANDALONE:
            self._findings += check_etcd_release(seen.members)
        if seen.kind == TIDB:
            self._findings += check_stores(seen.stores)
            if seen.stores_error is not None:
                self._findings += Check("upstream.store", "TiKV").unchecked(
                    seen.stores_error,
                    "a store that is down is not noticed",
                    f"curl -s {options.pd_urls.split(',')[0]}/pd/api/v1/stores",
                )
        if seen.error is not None:
            self._findings += Check("upstream.timestamp", "upstream").error(
                seen.error,
                "without timestamps no transaction commits and no node starts",
                seen.hint or "binlogctl doctor -upstream tidb|standalone   # and see the log of the leader",
            )
        elif seen.now_ts is not None:
            self._findings += Check("upstream.timestamp", "upstream").ok(
                f"{seen.kind}, cluster {seen.cluster_id}"
            )
        return seen

    async def _examine_nodes(self) -> RegistryFacts | None:
        options = self._options
        try:
            seen = await NodeGatherer(self._http).gather(
                options.pd_urls, options.tls, options.timeout_s, options.tidb_addresses
            )
        except BinlogError as failure:
            self._findings += Check("registry", "etcd").unchecked(
                failure.message,
                "which pumps, drainers and TiDB servers there are is not known",
                "make PD or etcd reachable and run doctor again",
            )
            return None
        self._clocks += seen.clocks
        self._findings += all_of(
            Check("registry.entry", key).error(
                "holds no status of a node",
                "a Go node's or TiDB's listing of all nodes fails because of it",
                f"etcdctl --endpoints {options.pd_urls} del {key}",
            )
            for key in seen.damaged
        )
        return seen

    async def _compare_urls(self, upstream: UpstreamFacts | None) -> None:
        """Files may name the same cluster by other URLs."""
        members = upstream.members if upstream is not None else ()
        endpoints = {
            *parse_endpoints(self._options.pd_urls),
            *(member.url.partition("://")[2] for member in members),
        }
        for kind, path, urls in self._files.pd_urls():
            if endpoints & set(parse_endpoints(urls)):
                continue
            gatherer = UpstreamGatherer(self._http, self._clock, self._options.tls, self._options.timeout_s)
            named = await gatherer.members(urls, self._options.upstream)
            self._findings += check_urls(kind, path, urls, _ids(named), _ids(members))

    async def _check_cluster(
        self, upstream: UpstreamFacts | None, registry: RegistryFacts | None, endpoints: list[str]
    ) -> None:
        if registry is None:
            return
        is_tidb = upstream is not None and upstream.kind == TIDB
        self._findings += check_tidb(
            registry.servers, expected=is_tidb, asked=bool(self._options.tidb_addresses)
        )
        now_s = self._now_s(upstream)
        self._findings += check_prepared(registry.prepared, now_s)
        hosts = [*endpoints, *(node.host for node in registry.nodes if node.state != OFFLINE)]
        elsewhere = await asyncio.gather(*(self._is_elsewhere(host_of(host)) for host in hosts))
        one_host = not any(elsewhere)
        cluster_id = upstream.cluster_id if upstream is not None else None
        self._findings += check_nodes(registry.nodes, cluster_id, now_s, one_host=one_host)
        self._findings += check_disks(registry.nodes)
        self._findings += check_retention(registry.nodes, now_s)

    async def _is_elsewhere(self, host: str) -> bool:
        """Whether it certainly is another machine."""
        return bool(host) and not is_local(host) and await self._http.is_here(host) is False

    def _now_s(self, upstream: UpstreamFacts | None) -> float:
        if upstream is not None and upstream.now_ts is not None:
            return tso.physical_s(upstream.now_ts)
        return self._clock.wall_s()

    async def _examine_downstream(
        self, upstream: UpstreamFacts | None, registry: RegistryFacts | None
    ) -> None:
        if not self._options.drainer_config:
            self._findings += Check("downstream", "downstream").unchecked(
                "no drainer's configuration was given",
                "rights, modes and limits of the downstream, and the checkpoint, are not known",
                "binlogctl doctor -drainer-config FILE",
            )
            return
        plans = self._files.downstreams()
        if self._files.other_sink:
            self._findings += Check("downstream", "downstream").info(
                f"db-type {self._files.other_sink}: there is no database to examine",
                "whether its place takes what is written was not asked",
            )
            return
        if not plans:
            self._findings += Check("downstream", "downstream").unchecked(
                "the drainer's file cannot be used",
                "where the downstream is, is not known",
                f"drainer -config {self._options.drainer_config}   # says what is wrong",
            )
            return
        checkpoint_seen = False
        for plan in plans:
            checkpoint_seen |= await self._examine_server(plan, upstream, registry, checkpoint_seen)

    async def _examine_server(
        self,
        plan: DownstreamPlan,
        upstream: UpstreamFacts | None,
        registry: RegistryFacts | None,
        checkpoint_seen: bool,
    ) -> bool:
        """Whether it showed the checkpoint: of several servers the first one's counts, others may lag."""
        host = host_of(plan.replicated.address)
        if (plan.target.socket or is_local(plan.target.host)) and not await self._http.is_here(host):
            self._findings += Check("downstream", f"downstream {plan.target!r}").unchecked(
                f"it is on the drainer's own host, {host}, and this is another one",
                "rights, modes and limits of the downstream, and the checkpoint, are not known",
                f"run the same command on {host}",
            )
            return False
        seen = await gather_downstream(
            plan.target,
            self._clock,
            self._options.timeout_s,
            schema=plan.replicated.checkpoint_schema,
            row_table=plan.row_table if plan.row_target is None else None,
        )
        self._findings += check_downstream(seen, plan.replicated, self._options.zone_offset_s)
        row = seen
        if plan.row_target is not None:
            row = await self._gather_row(plan.row_target, plan.replicated.checkpoint_schema, plan.row_table)
            self._findings += check_row_server(row)
        for server in {id(server): server for server in (seen, row)}.values():
            self._clocks += [server.clock] if server.clock is not None else []
        if row.checkpoint is not None and not checkpoint_seen:
            since_s = self._clock.monotonic_s() - self._upstream_asked_s
            self._findings += check_checkpoint(
                row.checkpoint,
                upstream.cluster_id if upstream is not None else None,
                upstream.now_ts if upstream is not None else None,
                registry.nodes if registry is not None else (),
                plan.replicated,
                since_s,
            )
        return row.checkpoint is not None

    def _gather_row(self, target: Target, schema: str, table: str) -> Awaitable[Any]:
        return gather_downstream(
            target, self._clock, self._options.timeout_s, schema=schema, row_table=table, state_table=False
        )


def _ids(members: Iterable[MemberFacts]) -> set[int]:
    return {member.cluster_id for member in members if member.cluster_id is not None}

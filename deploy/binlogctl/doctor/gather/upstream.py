"""Upstream: asks every client URL of PD or etcd by itself, then what only a leader or all together know.

Order  the configured URLs first, then those that members tell of themselves, each by its own connection: one
       that is asked through another says nothing about its own
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from binlogctl.doctor.facts import ClockFacts, MemberFacts, StoreFacts
from tidb_binlog.clock import Clock
from tidb_binlog.errors import BinlogError, Unavailable
from tidb_binlog.etcd.client import parse_endpoints
from tidb_binlog.foreign_document import json_object
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.net.http_client import HttpClient
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.tso import Ts, physical_s
from tidb_binlog.upstream.standalone import StandaloneUpstream
from tidb_binlog.upstream.tidb.pd.oracle import PdOracle
from tidb_binlog.upstream.tidb.pd.pd import NotPd, PdClient
from tidb_binlog.upstream.tidb.tikv.regions import StoreState

TIDB: Final = "tidb"
STANDALONE: Final = "standalone"


@dataclass(frozen=True, slots=True)
class UpstreamFacts:
    """`kind` is None when no URL answers. `cluster_id` and `now_ts` are those of the binlogs' cluster;
    `error`: why they are not known, and `hint` what helps."""

    kind: str | None
    members: tuple[MemberFacts, ...]
    stores: tuple[StoreFacts, ...] = ()
    stores_error: str | None = None
    cluster_id: int | None = None
    now_ts: Ts | None = None
    clocks: tuple[ClockFacts, ...] = ()
    error: str | None = None
    hint: str = ""


class UpstreamGatherer:
    """Asks one cluster."""

    def __init__(self, http: HttpClient, clock: Clock, tls: TlsConfig | None, timeout_s: float) -> None:
        self._http = http
        self._clock = clock
        self._tls = tls
        self._timeout_s = timeout_s
        self._clocks: list[ClockFacts] = []

    async def gather(self, endpoints: str, kind: str) -> UpstreamFacts:
        """`kind`: auto, tidb or standalone. Raises `ConfigError` for URLs that cannot be read."""
        addresses = parse_endpoints(endpoints)
        asked = await asyncio.gather(*(self._member(address, kind, configured=True) for address in addresses))
        listed = {address for _, others, _ in asked for address in others} - set(addresses)
        learnt = await asyncio.gather(
            *(self._member(address, kind, configured=False) for address in sorted(listed))
        )
        members = tuple(member for member, _, _ in (*asked, *learnt))
        kinds = {upstream for _, _, upstream in asked if upstream}
        seen = UpstreamFacts(next(iter(sorted(kinds, reverse=True)), None), members)
        if seen.kind is None:
            return seen
        if seen.kind == TIDB:
            seen = await self._stores(seen, endpoints)
        seen = await self._whole(seen, endpoints)
        return replace(seen, clocks=tuple(self._clocks))

    async def members(self, endpoints: str, kind: str) -> tuple[MemberFacts, ...]:
        """The configured URLs alone. Raises `ConfigError` for URLs that cannot be read."""
        asked = await asyncio.gather(
            *(self._member(address, kind, configured=True) for address in parse_endpoints(endpoints))
        )
        return tuple(member for member, _, _ in asked)

    async def _member(
        self, address: str, kind: str, *, configured: bool
    ) -> tuple[MemberFacts, list[str], str | None]:
        """One URL: what it is, the URLs that it tells, and the kind of upstream."""
        url = f"{self._http.scheme}://{address}"
        member = MemberFacts(url, configured)
        if kind != STANDALONE:
            try:
                return await self._pd_member(member, address)
            except NotPd as error:
                if kind == TIDB:
                    return replace(member, error=f"it is no PD: {error.message}"), [], None
            except BinlogError as error:
                return replace(member, error=error.message), [], None
        try:
            return await self._etcd_member(member, address)
        except BinlogError as error:
            return replace(member, error=error.message), [], None

    async def _pd_member(
        self, member: MemberFacts, address: str
    ) -> tuple[MemberFacts, list[str], str | None]:
        pd = await PdClient.connect(address, tls=self._tls, timeout_s=self._timeout_s)
        try:
            async with asyncio.timeout(self._timeout_s):
                members = await pd.members()
        except TimeoutError:
            raise Unavailable(f"{address} did not tell its members within {self._timeout_s:g} s") from None
        finally:
            await pd.close()
        own = next((other for other in members if address in other.addresses), None)
        answered = replace(
            member,
            cluster_id=pd.cluster_id,
            name=own.name if own else "",
            has_leader=any(other.is_leader for other in members),
            version=own.version if own else "",
        )
        return (
            answered,
            [other.addresses[0] for other in members if other.addresses and own is not other],
            TIDB,
        )

    async def _etcd_member(
        self, member: MemberFacts, address: str
    ) -> tuple[MemberFacts, list[str], str | None]:
        page = await self._http.get(address, "/v3/maintenance/status", body=b"{}")
        status = (json_object(page.body) if page.status == 200 else None) or {}
        if "header" not in status:
            raise Unavailable(f"{address} answers, but not as etcd does (HTTP {page.status})")
        if (clock := ClockFacts.of_page(f"etcd {address}", page)) is not None:
            self._clocks.append(clock)
        page = await self._http.get(address, "/v3/cluster/member/list", body=b"{}")
        members: list[dict[str, Any]] = (json_object(page.body) or {}).get("members") or []
        own = next((other for other in members if other.get("ID") == status["header"].get("member_id")), {})
        answered = replace(
            member,
            cluster_id=int(status["header"].get("cluster_id") or 0) or None,
            name=str(own.get("name") or ""),
            has_leader=str(status.get("leader") or "0") != "0",
            version=str(status.get("version") or ""),
        )
        others = [
            str(urls[0]).partition("://")[2]
            for other in members
            if other is not own and (urls := other.get("clientURLs"))
        ]
        return answered, others, STANDALONE

    async def _stores(self, seen: UpstreamFacts, endpoints: str) -> UpstreamFacts:
        try:
            pd = await PdClient.connect(endpoints, tls=self._tls, timeout_s=self._timeout_s)
            try:
                listed = await pd.stores(deadline_s=self._timeout_s)
            finally:
                await pd.close()
        except BinlogError as error:
            return replace(seen, stores_error=error.message)

        async def probe(store: StoreFacts) -> StoreFacts:
            try:
                await self._http.connects(store.address)
            except Unavailable as error:
                return replace(store, error=error.message)
            return store

        facts = [
            StoreFacts(
                store.id,
                store.address,
                "Up" if store.state is StoreState.UP else store.state.name.capitalize(),
                store.version,
            )
            for store in listed
        ]
        return replace(seen, stores=tuple(await asyncio.gather(*map(probe, facts))))

    async def _whole(self, seen: UpstreamFacts, endpoints: str) -> UpstreamFacts:
        """The cluster's id, and a timestamp."""
        try:
            async with asyncio.timeout(2 * self._timeout_s):
                began_s = self._clock.wall_s()
                cluster_id, now_ts = await (self._pd_time if seen.kind == TIDB else self._etcd_time)(
                    endpoints
                )
                ended_s = self._clock.wall_s()
        except TimeoutError:
            return replace(seen, error=f"no timestamp was given within {2 * self._timeout_s:g} s")
        except BinlogError as error:
            return replace(seen, error=error.message, hint=error.hint)
        offset_s = physical_s(now_ts) - (began_s + ended_s) / 2
        who = "PD" if seen.kind == TIDB else "the cluster's clock in etcd"
        self._clocks.append(ClockFacts(who, offset_s, (ended_s - began_s) / 2))
        return replace(seen, cluster_id=cluster_id, now_ts=now_ts)

    async def _pd_time(self, endpoints: str) -> tuple[int, int]:
        pd = await PdClient.connect(endpoints, tls=self._tls, timeout_s=self._timeout_s)
        oracle = PdOracle(pd)
        try:
            return pd.cluster_id, await oracle.timestamp()
        finally:
            await oracle.close()
            await pd.close()

    async def _etcd_time(self, endpoints: str) -> tuple[int, int]:
        upstream = await StandaloneUpstream.connect(
            endpoints, tls=self._tls, create=False, timeout_s=self._timeout_s
        )
        try:
            return upstream.cluster_id, await upstream.oracle.timestamp()
        finally:
            await upstream.close()

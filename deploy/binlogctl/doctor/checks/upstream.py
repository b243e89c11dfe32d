"""Upstream: members of PD (or etcd), TiKV stores, and TiDB servers.

Out    findings: who does not answer, who belongs to another cluster, whether one more may fail; which TiDB
       servers write no binlog
Tests  tests/deploy/binlogctl/doctor/checks/test_checks.py
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from binlogctl.cluster import in_doubt
from binlogctl.doctor.facts import MemberFacts, StoreFacts, TidbFacts
from binlogctl.doctor.findings import Check, Finding, Severity, all_of
from tidb_binlog.errors import Corruption
from tidb_binlog.upstream.standalone.layout import Prepared

BINLOG_ON: Final = "On"
BINLOG_SKIPPING: Final = "Skipping"
_RESTORE: Final = (
    "what it skipped is lost to replication: copy the data anew, then have it write binlogs again: {curl}"
)
LEAST: Final = ((3, 4, 22), (3, 5, 6))
"""The first release of each line that is fit to keep data: none of an older line is, every newer one is."""
DIVERGING: Final = ((3, 5, 0), (3, 5, 2))
LEAST_TEXT: Final = " or ".join(".".join(map(str, release)) for release in LEAST)
_ETCD_RELEASE: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_UPGRADE: Final = (
    f"install etcd {LEAST_TEXT} or newer, one member after the other (Debian: apt install etcd-server)"
)


def check_members(members: Sequence[MemberFacts], *, who: str = "PD") -> list[Finding]:
    """Client URLs of one cluster, configured ones and those that members report."""
    findings: list[Finding] = []
    answering = [member for member in members if member.error is None]
    ids = {member.cluster_id for member in answering if member.cluster_id is not None}
    if len(ids) > 1:
        shown = "; ".join(f"{member.url}: {member.cluster_id}" for member in answering)
        findings += Check("upstream.cluster", who).error(
            f"pd-urls name {len(ids)} clusters: {shown}",
            "nodes register in one registry or the other, whichever answers first",
            "leave only URLs of one cluster in pd-urls of every node",
        )
    for member in members:
        if member.error is not None:
            findings += _silent(member, others=len(answering))
        elif member.has_leader is False:
            findings += Check("upstream.leader", member.url).error(
                "there is no leader",
                "no timestamps and no registry: nothing commits until a majority of members is back",
                "start the members that do not run",
            )
        else:
            findings += Check("upstream.reachable", member.url).ok(
                f"{member.name or 'answers'} {member.version}".strip()
            )
    findings += _spare(members, answering, who)
    return findings


def _silent(member: MemberFacts, *, others: int) -> list[Finding]:
    seen = str(member.error)
    mend = f"curl -sv {member.url}/health   # start it, open the firewall, or correct pd-urls"
    if not others:
        return Check("upstream.reachable", member.url).error(
            seen, "without PD (or etcd) no node gets a timestamp or finds the others", mend
        )
    why = (
        "nodes that have this URL lose seconds at every reconnect, and one more failure may end the cluster"
        if member.configured
        else "a member of the cluster is not reachable at the URL that it tells: nodes led to it wait in vain"
    )
    return Check("upstream.reachable", member.url).warning(seen, why, mend)


def _spare(members: Sequence[MemberFacts], answering: Sequence[MemberFacts], who: str) -> list[Finding]:
    """Whether one more member may fail."""
    count = len({member.name or member.url for member in members})
    alive = len({member.name or member.url for member in answering})
    if not alive:
        return []
    need = count // 2 + 1
    if alive < need:
        return Check("upstream.quorum", who).error(
            f"{alive} of {count} members answer",
            "that is no majority: nothing can be written, and no timestamp is given",
            "start the members that do not run",
        )
    if alive - 1 >= need:
        return []
    if count == 1:
        return Check("upstream.quorum", who).info("one member", "when it is away, nothing commits")
    return Check("upstream.quorum", who).info(f"{alive} of {count} members answer", "none may fail any more")


def check_stores(stores: Sequence[StoreFacts]) -> list[Finding]:
    """TiKV stores that are not tombstones."""
    findings = []
    for store in stores:
        subject = f"TiKV store {store.store_id} at {store.address}"
        if store.error is not None:
            findings += Check("upstream.store", subject).warning(
                store.error,
                "pumps ask TiKV what became of transactions, drainers for"
                " DDL: regions that have their leader there are not answered from here",
                f"nc -vz {store.address.replace(':', ' ')}   # start it, or open the firewall",
            )
        elif store.state != "Up":
            findings += Check("upstream.store", subject).info(
                f"is {store.state}", "it is being taken out of the cluster"
            )
        else:
            findings += Check("upstream.store", subject).ok(f"Up {store.version}".strip())
    return findings


def check_prepared(prepared: Mapping[int, Prepared] | Corruption, now_s: float) -> list[Finding]:
    """Transactions of the standalone upstream that only an application's database can end."""
    check = Check("upstream.prepared", "transactions")
    if isinstance(prepared, Corruption):
        why = "every query for the outcome of a transaction fails on this: pumps wait, and drainers too"
        return check.error(prepared.message, why, prepared.hint or "read that key with etcdctl")
    return all_of(
        check.finding(
            Severity.ERROR if doubt.abandoned else Severity.WARNING, doubt.seen, in_doubt.WHY, in_doubt.MEND
        )
        for doubt in in_doubt.doubts(prepared, now_s)
    )


def check_tidb(servers: Sequence[TidbFacts], *, expected: bool, asked: bool) -> list[Finding]:
    """`expected`: a TiDB cluster is upstream; `asked`: the operator named servers himself."""
    if not servers:
        if not expected and not asked:
            return []
        return Check("tidb.binlog", "TiDB").unchecked(
            "no TiDB server is registered in etcd",
            "a server that writes no binlog makes both sides differ",
            "binlogctl doctor -tidb HOST:STATUS_PORT,...",
        )
    return [finding for server in servers for finding in _tidb(server)]


def _tidb(server: TidbFacts) -> list[Finding]:
    subject = f"TiDB {server.address}"
    if server.skipping or server.binlog == BINLOG_SKIPPING:
        return Check("tidb.skipping", subject).error(
            "it skips binlogs: ignore-error has tripped",
            "everything it has committed since is missing downstream, without another word",
            _RESTORE.format(curl=server.curl("/binlog/recover")),
        )
    if server.binlog is None or server.binlog == "Unknown":
        return Check("tidb.binlog", subject).unchecked(
            server.error or "does not say whether it writes binlogs",
            "a server that writes none makes both sides differ",
            f"{server.curl('/info')} | grep binlog_status",
        )
    if server.binlog != BINLOG_ON:
        return Check("tidb.binlog", subject).error(
            f"binlog is {server.binlog}",
            "what is written through this server never reaches the downstream",
            "set [binlog] enable = true in its configuration and restart it; then copy the data anew",
        )
    if server.error is not None:
        return Check("tidb.reachable", subject).warning(
            f"registered with binlog {server.binlog}, but {server.error}",
            "whether ignore-error has tripped since is not known",
            server.curl("/binlog/recover?op=status"),
        )
    return Check("tidb.binlog", subject).ok(f"binlog is on {server.version}".strip())


def _is_fit(release: tuple[int, int, int]) -> bool:
    least = next((fit for fit in LEAST if fit[:2] == release[:2]), LEAST[-1])
    return release >= least


def check_etcd_release(members: Sequence[MemberFacts]) -> list[Finding]:
    """Whether the etcd of each member that answers has after a crash what it confirmed: it is the upstream.

    Without TiDB all that must not be lost but rows stands in etcd: nodes, the clock, schema history and what
    became of transactions. etcd 3.5.0 to 3.5.2 may come back from a crash with other data than the other
    members (mended in 3.5.3); a single member before 3.4.21 or 3.5.5 may lose what it confirmed; 3.4.22 and
    3.5.6 mended what was known of that kind until then.
    """
    return all_of(_etcd_release(member) for member in members if member.error is None)


def _etcd_release(member: MemberFacts) -> list[Finding]:
    match = _ETCD_RELEASE.match(member.version)
    if match is None:
        seen = f"its release {member.version!r} is not known"
        why = "some releases of etcd may lose at a crash what they have confirmed"
        return Check("upstream.etcd", member.url).unchecked(
            seen, why, f"see that it is etcd {LEAST_TEXT} or newer"
        )
    major, minor, patch = map(int, match.groups())
    release = (major, minor, patch)
    if _is_fit(release):
        return Check("upstream.etcd", member.url).ok(f"etcd {member.version}")
    if DIVERGING[0] <= release <= DIVERGING[1]:
        why = "etcd 3.5.0 to 3.5.2 may come back from a crash with other data than they confirmed"
    else:
        why = "it may lose at a crash what it has confirmed, a single member above all"
    return Check("upstream.etcd", member.url).warning(f"etcd {member.version}", why, _UPGRADE)

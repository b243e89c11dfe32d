"""Nodes: pumps and drainers of the registry, against what was found at their addresses.

Out    findings: dead nodes, wrong ones, foreign ones, versions, roles that no node has
Tests  tests/deploy/binlogctl/doctor/checks/test_checks.py
"""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from binlogctl.doctor.facts import NodeFacts, host_of
from binlogctl.doctor.findings import Check, Finding, Severity, all_of
from tidb_binlog import tso
from tidb_binlog.cluster import node as states
from tidb_binlog.cluster.registry import DRAINERS, PUMPS
from tidb_binlog.quantities import span
from tidb_binlog.status.pump_conditions import OF_DISKS

BEAT_LATE_S: Final = 60.0
"""Older than that, the entry of a node without a lease says that it is dead: the slowest beats every 2 s."""
_ADDRESS = "node.address"
_ADVERTISE = "set advertise-addr of {node} to a host:port that other hosts reach, and restart it"


def check_nodes(
    nodes: Sequence[NodeFacts], cluster_id: int | None, now_s: float, *, one_host: bool
) -> list[Finding]:
    """`now_s` by the upstream's clock if it is known, else ours."""
    current = [node for node in nodes if node.state != states.OFFLINE]
    findings: list[Finding] = []
    for node in current:
        findings += check_address(node, one_host=one_host)
        findings += _liveness(node, now_s)
        findings += _identity(node, current, cluster_id)
        findings += _complaints(node)
    findings += check_duplicates(current)
    findings += _roles(current)
    findings += _versions(current)
    return findings


def _liveness(node: NodeFacts, now_s: float) -> list[Finding]:
    late_s = tso.age_s(node.update_ts, now_s) if node.update_ts else None
    dead = node.alive is False or (node.alive is None and late_s is not None and late_s > BEAT_LATE_S)
    if node.state in (states.ONLINE, states.CLOSING, states.PAUSING):
        if dead and node.answer is None:
            return _dead(node, late_s)
        if node.answer is None:
            return _silent(node)
        return Check("node.reachable", node.label).ok(f"{node.state}, answers at {node.host}")
    if node.state == states.PAUSED:
        return _paused(node)
    return Check("node.state", node.label).warning(
        f"its entry has the unknown state {node.state!r}",
        "no other node knows this state",
        f"binlogctl -cmd update-{node.kind.removesuffix('s')} -node-id {node.node_id} -state paused",
    )


def _dead(node: NodeFacts, late_s: float | None) -> list[Finding]:
    since = "" if late_s is None else f", last heard of {span(late_s)} ago"
    if node.kind == PUMPS:
        why = (
            "drainers wait for the binlogs that this pump has, so replication of the whole cluster stands"
            " still until it is back"
        )
        mend = f"start it again; if its disk is lost for good: {node.forget}   # then copy the data anew"
    else:
        why = (
            "nothing is replicated by it, and pumps keep binlogs for it as long as it counts as live; a Go"
            " pump does not start while such a drainer does not answer"
        )
        mend = f"start it again; if it never comes back: {node.forget}"
    return Check("node.dead", node.label).error(
        f"{node.state} in the registry, but its process is gone{since}", why, mend
    )


def _silent(node: NodeFacts) -> list[Finding]:
    lives = "lives (its lease is held)" if node.alive else "seems to live"
    host, _, port = node.host.rpartition(":")
    return Check("node.reachable", node.label).error(
        f"{lives}, but does not answer at {node.host}: {node.error or 'nothing was heard'}",
        "TiDB, pumps and drainers use this address; if they reach it no better than this host does, writes or"
        " replication stand still",
        f"{node.curl('/status')}   # firewall of {host}, port {port}; TLS flags; advertise-addr",
    )


def _paused(node: NodeFacts) -> list[Finding]:
    if node.kind == PUMPS:
        return Check("node.paused", node.label).error(
            "paused",
            "drainers wait for a paused pump, because binlogs that no other node has lie there: replication"
            " of the whole cluster stands still",
            f"start it again; if it never comes back: {node.forget}",
        )
    if node.reader:
        return Check("node.paused", node.label).info(
            f"paused, at {node.max_commit_ts}",
            "a program that ended in order: pumps keep what it has not read as long as they can",
            f"start it again; if it never comes back: {node.forget}",
        )
    return Check("node.paused", node.label).error(
        f"paused, at {node.max_commit_ts}",
        "nothing is replicated by it; once retention has passed its checkpoint it needs a new snapshot",
        f"start it again; if it never comes back: {node.forget}",
    )


def _identity(node: NodeFacts, nodes: Sequence[NodeFacts], cluster_id: int | None) -> list[Finding]:
    answer = node.answer
    if answer is None:
        return []
    if answer.foreign:
        return _foreign(node, nodes)
    if answer.node_id is not None and answer.node_id != node.node_id:
        return Check("node.identity", node.label).error(
            f"at {node.host} answers {answer.node_id}",
            "a drainer that wants this node's binlogs asks another one, and finds none",
            f"correct advertise-addr of the two; if {node.node_id} is gone: {node.forget}",
        )
    if None not in (answer.cluster_id, cluster_id) and answer.cluster_id != cluster_id:
        return Check("node.cluster", node.label).error(
            f"belongs to cluster {answer.cluster_id}, the upstream is {cluster_id}",
            "its binlogs are of another cluster; it refuses every write and every pull of this one",
            "correct pd-urls of this node, give it an empty data-dir, and restart it",
        )
    return _other_registry(node, nodes)


def _foreign(node: NodeFacts, nodes: Sequence[NodeFacts]) -> list[Finding]:
    findings = Check("node.foreign", node.label).info(
        "a Go node: it keeps no lease",
        "that it is dead shows only by its entry's age; pause or close it before its host goes away",
    )
    findings += _other_registry(node, nodes)
    findings += Check("node.identity", node.label).unchecked(
        "does not say its node id, cluster or version",
        "a wrong node at this address would not be noticed",
        f"{node.curl('/status')}   # and compare with the node's own log",
    )
    return findings


def _other_registry(node: NodeFacts, nodes: Sequence[NodeFacts]) -> list[Finding]:
    registered = node.answer.registered if node.answer is not None else None
    ours = {other.node_id for other in nodes if other.kind == PUMPS}
    if registered is None or node.kind != PUMPS or node.node_id in registered or not ours:
        return []
    return Check("node.cluster", node.label).error(
        f"its registry has {len(registered)} pumps, and not itself",
        "it is registered in another etcd than this one: it lives in two clusters, or in none",
        "correct pd-urls of this node and restart it",
    )


def _complaints(node: NodeFacts) -> list[Finding]:
    if node.answer is None:
        return []
    return all_of(
        Check("node.trouble", node.label).finding(
            Severity(trouble.severity),
            trouble.text,
            "the node says so itself",
            trouble.hint or f"see the log of {node.label}",
        )
        for trouble in node.answer.troubles
        if trouble.name not in OF_DISKS  # `check_disks` says it with the volume's size
    )


def _roles(nodes: Sequence[NodeFacts]) -> list[Finding]:
    pumps = [node for node in nodes if node.kind == PUMPS]
    online = [node for node in pumps if node.state == states.ONLINE]
    findings = []
    if not pumps:
        findings += Check("cluster.pumps", "cluster").error(
            "no pump is registered",
            "a TiDB server with binlog on does not start, or stops its transactions",
            "pump -pd-urls URLS -data-dir DIR   # start at least one",
        )
    elif not online:
        findings += Check("cluster.pumps", "cluster").error(
            f"none of {len(pumps)} pumps is online",
            "TiDB cannot write binlogs: with ignore-error its data diverges, without it transactions fail",
            "start the pumps again",
        )
    elif len(online) == 1:
        findings += Check("cluster.pumps", "cluster").info(
            "one pump is online",
            "while it restarts, transactions of TiDB wait for it",
            "start a second pump on another host",
        )
    if not any(node.kind == DRAINERS for node in nodes):
        findings += Check("cluster.drainers", "cluster").info(
            "no drainer is registered", "nothing is replicated"
        )
    return findings


def _versions(nodes: Sequence[NodeFacts]) -> list[Finding]:
    versions: dict[str, list[str]] = {}
    for node in nodes:
        if node.answer is not None and node.answer.version is not None:
            versions.setdefault(node.answer.version, []).append(node.label)
    if len(versions) < 2:
        return all_of(
            Check("cluster.versions", "cluster").ok(f"every node that tells runs {version}")
            for version in versions
        )
    shown = "; ".join(f"{version}: {', '.join(labels)}" for version, labels in sorted(versions.items()))
    return Check("cluster.versions", "cluster").warning(
        shown,
        "nodes of different releases are meant for the time of an"
        " upgrade; later each has other bugs and other options",
        "pip install --upgrade 'tidb-binlog[server]' on the older hosts: pumps one by one, then drainers",
    )


def is_local(host: str, resolved: Sequence[str] | None = None) -> bool:
    """Whether it means another machine wherever it is used."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    addresses = [parsed for text in (host, *(resolved or ())) if (parsed := _parsed(text)) is not None]
    return any(address.is_loopback for address in addresses)


def check_address(node: NodeFacts, *, one_host: bool) -> list[Finding]:
    """`one_host`: all of the cluster is on this host, so that loopback is right."""
    host = host_of(node.host)
    mend = _ADVERTISE.format(node=node.label)
    seen = f"advertises {node.host or 'nothing'}"
    parsed = _parsed(host)
    if not host or (parsed is not None and parsed.is_unspecified):
        return Check(_ADDRESS, node.label).error(
            seen,
            "that is no address to connect to from another host: a peer reaches itself, or nothing",
            mend,
        )
    if is_local(host, node.resolved):
        if one_host:
            return []
        return Check(_ADDRESS, node.label).error(
            seen,
            "on every other host this address means that host itself: TiDB,"
            " pumps and drainers there connect to nothing, or to a wrong node",
            mend,
        )
    if parsed is not None and (parsed.is_multicast or parsed.is_reserved):
        return Check(_ADDRESS, node.label).error(seen, "no host can have this address", mend)
    if parsed is not None and parsed.is_link_local:
        return Check(_ADDRESS, node.label).warning(
            seen, "an address of one network segment: hosts across a router do not reach it", mend
        )
    if parsed is None and node.resolved is None:
        return Check(_ADDRESS, node.label).error(
            f"{seen}, and this host cannot resolve {host}",
            "a name that only resolves on its own host or in its own container keeps all others away",
            f"getent hosts {host}   # add the name to DNS, or " + mend,
        )
    return []


def check_duplicates(nodes: Iterable[NodeFacts]) -> list[Finding]:
    """Two registered nodes with one address: at least one of them is not there."""
    by_host: dict[str, list[NodeFacts]] = defaultdict(list)
    for node in nodes:
        if node.host:
            by_host[node.host].append(node)
    findings = []
    for host, sharing in by_host.items():
        if len(sharing) < 2:
            continue
        answering = {node.answer.node_id for node in sharing if node.answer is not None}
        gone = [node for node in sharing if node.node_id not in answering] or sharing[1:]
        commands = "; ".join(node.forget for node in gone)
        findings += Check("node.duplicate", " and ".join(node.label for node in sharing)).error(
            f"both advertise {host}",
            "only one process can listen there: the others are leftovers of former nodes, and requests"
            " for their data reach the wrong node",
            f"{commands}   # if it is gone for good; else give each its own advertise-addr",
        )
    return findings


def _parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None

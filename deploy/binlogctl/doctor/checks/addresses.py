"""Addresses: whether others can reach what a node says of itself.

In     host:port as advertised, what its name resolves to here, where the endpoints of the cluster are
Out    findings about one address, and about addresses that two nodes share
Tests  tests/deploy/binlogctl/doctor/test_examination.py
"""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Sequence

from binlogctl.doctor.facts import NodeFacts, host_of
from binlogctl.doctor.findings import Finding, error, warning

CHECK = "node.address"
_ADVERTISE = "set advertise-addr of {node} to a host:port that other hosts reach, and restart it"


def is_local(host: str, resolved: Sequence[str] | None = None) -> bool:
    """Whether it means another machine wherever it is used."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    found = [parsed for text in (host, *(resolved or ())) if (parsed := _parsed(text)) is not None]
    return any(one.is_loopback for one in found)


def check_address(node: NodeFacts, *, one_host: bool) -> list[Finding]:
    """`one_host`: all of the cluster is on this host, so that loopback is right."""
    host = host_of(node.host)
    mend = _ADVERTISE.format(node=node.label)
    seen = f"advertises {node.host or 'nothing'}"
    parsed = _parsed(host)
    if not host or (parsed is not None and parsed.is_unspecified):
        return [
            error(
                CHECK,
                node.label,
                seen,
                "that is no address to connect to from another host: a peer reaches itself, or nothing",
                mend,
            )
        ]
    if is_local(host, node.resolved):
        if one_host:
            return []
        return [
            error(
                CHECK,
                node.label,
                seen,
                "on every other host this address means that host itself: TiDB,"
                " pumps and drainers there connect to nothing, or to a wrong node",
                mend,
            )
        ]
    if parsed is not None and (parsed.is_multicast or parsed.is_reserved):
        return [error(CHECK, node.label, seen, "no host can have this address", mend)]
    if parsed is not None and parsed.is_link_local:
        return [
            warning(
                CHECK,
                node.label,
                seen,
                "an address of one network segment: hosts across a router do not reach it",
                mend,
            )
        ]
    if parsed is None and node.resolved is None:
        return [
            error(
                CHECK,
                node.label,
                f"{seen}, and this host cannot resolve {host}",
                "a name that only resolves on its own host or in its own container keeps all others away",
                f"getent hosts {host}   # add the name to DNS, or " + mend,
            )
        ]
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
        there = {node.answer.node_id for node in sharing if node.answer is not None}
        gone = [node for node in sharing if node.node_id not in there] or sharing[1:]
        commands = "; ".join(node.forget for node in gone)
        findings.append(
            error(
                "node.duplicate",
                " and ".join(node.label for node in sharing),
                f"both advertise {host}",
                "only one process can listen there: the others are leftovers of former nodes, and requests"
                " for their data reach the wrong node",
                f"{commands}   # if it is gone for good; else give each its own advertise-addr",
            )
        )
    return findings


def _parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None

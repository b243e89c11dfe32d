"""Checkpoint: whether the stored row is one that the drainer can go on from.

Out    findings: rows of other clusters, damaged ones, ones later than the upstream or older than
       what pumps hold
Tests  tests/deploy/binlogctl/doctor/checks/test_checks.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from binlogctl.doctor.facts import CheckpointFacts, NodeFacts, Replicated
from binlogctl.doctor.findings import Check, Finding
from drainer.checkpoint.value import Checkpoint
from tidb_binlog.cluster.registry import DRAINERS, PUMPS
from tidb_binlog.errors import Corruption
from tidb_binlog.tso import Ts, age_s, physical_s

CHECK: Final = "checkpoint"

# PD moves its time on in steps of 50 ms, and its clock may be set.
CLOCK_STEP_S: Final = 1.0


def check_checkpoint(
    seen: CheckpointFacts,
    cluster_id: int | None,
    now_ts: Ts | None,
    nodes: Sequence[NodeFacts],
    replicated: Replicated,
    since_s: float = 0.0,
) -> list[Finding]:
    """`now_ts`: of the upstream, asked `since_s` ago: a drainer that runs has moved the row on since then;
    `replicated`: of the drainer whose configuration this is.
    """
    name = f"{seen.schema}.{seen.table}"
    if seen.error is not None:
        return Check(CHECK, name).unchecked(
            seen.error,
            "where the drainer would go on is not known",
            f"SELECT clusterID FROM {name};   -- as the drainer's user",
        )
    if seen.rows is None:
        return Check(CHECK, name).info("there is none yet", "the drainer begins at initial-commit-ts")
    if cluster_id is None:
        return Check(CHECK, name).unchecked(
            f"rows of {len(seen.rows)} clusters",
            "which one counts is not known",
            "make PD or etcd reachable and run doctor again",
        )
    findings = _owner(seen, name, nodes, replicated)
    others = sorted(other for other in seen.rows if other != cluster_id)
    if cluster_id not in seen.rows:
        if others:
            findings += Check(CHECK, name).warning(
                f"has rows of clusters {', '.join(map(str, others))}, and none of {cluster_id}",
                "the drainer would begin at initial-commit-ts, by default now: everything between is left out"
                " without a word if the upstream was made anew or pd-urls are another cluster's",
                f"SELECT clusterID, checkPoint FROM {name};   -- then correct pd-urls, or set"
                " initial-commit-ts",
            )
        return findings or Check(CHECK, name).info(
            "no row of this cluster yet", "the drainer begins at initial-commit-ts"
        )
    return findings + _row(seen.rows[cluster_id], name, cluster_id, now_ts, since_s, nodes)


def _owner(
    seen: CheckpointFacts, name: str, nodes: Sequence[NodeFacts], replicated: Replicated
) -> list[Finding]:
    owner = next((node for node in nodes if node.kind == DRAINERS and node.node_id == seen.owner), None)
    if owner is None or not owner.alive or replicated.node_id == owner.node_id:
        return []
    # A node id may be given as a flag; the address tells whose file it is then.
    if replicated.address == owner.host:
        return []
    whose = replicated.node_id or f"the drainer at {replicated.address}"
    return Check("checkpoint.owner", name).error(
        f"drainer {owner.node_id} works on it, the configuration is that of {whose}",
        "two drainers of one cluster need two checkpoint schemas: the second one does not start, or both"
        " write the same rows",
        "set another schema in [syncer.to.checkpoint] for one of them",
    )


def _row(
    text: str, name: str, cluster_id: int, now_ts: Ts | None, since_s: float, nodes: Sequence[NodeFacts]
) -> list[Finding]:
    try:
        row = Checkpoint.from_json(text)
    except Corruption as damage:
        return Check(CHECK, name).error(
            damage.message,
            "the drainer does not start from a damaged row",
            f"SELECT checkPoint FROM {name} WHERE clusterID={cluster_id};   -- correct it, or delete it"
            " and set initial-commit-ts",
        )
    ahead_s = age_s(now_ts, physical_s(row.commit_ts)) if now_ts is not None else 0.0
    if ahead_s > since_s + CLOCK_STEP_S:
        return Check(CHECK, name).error(
            f"commitTS {row.commit_ts} is ahead of the upstream's time {now_ts}",
            "it was written for another cluster, or the upstream was restored to an earlier time:"
            " everything up to that timestamp would be left out",
            "restore the downstream to the same time, or correct the row",
        )
    for pump in nodes:
        gc_ts = pump.answer.pump.gc_ts if pump.kind == PUMPS and pump.answer is not None else None
        if gc_ts is not None and 0 < row.commit_ts < gc_ts:
            return Check(CHECK, name).error(
                f"commitTS {row.commit_ts} lies before {gc_ts}, up to which {pump.label} has purged",
                "binlogs after the checkpoint are gone: continuing would leave a gap",
                "copy the data of the upstream anew and set the row to that copy's timestamp",
            )
    findings = Check(CHECK, name).ok(f"commitTS {row.commit_ts}")
    if row.epoch is None:
        findings += Check(CHECK, name).info(
            "written by a Go drainer", "ours goes on from it, in safe mode at first"
        )
    return findings

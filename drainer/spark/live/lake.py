"""Lake: what streams to a lake have alike: where they are, and what becomes of a DDL that needs a decision.

Tests   tests/spark/live/test_lake_stream.py, tests/spark/live/test_mirror.py
"""

from __future__ import annotations

import asyncio

from drainer.app.build_mysql import patiently
from drainer.checkpoint.resume import AheadOfUpstream
from drainer.checkpoint.value import Checkpoint
from drainer.config.options import DrainerConfig
from drainer.ddl import rules as ddl_rules
from drainer.ddl.policy import Policy, Ruling
from drainer.ddl.rules import APPLY, STOP
from drainer.lake.warehouse import LakePosition, check_begin, lake_of
from drainer.reading.archive.decode.definitions import of_schema
from drainer.sink.ddl_text import stopped
from drainer.sink.findings import Findings
from drainer.spark.live.downstream import CHANGELOG, LiveDownstream, LiveSettings
from drainer.spark.source.pump_cluster import PumpCluster
from drainer.stream.rules.rule_set import read_rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.schema.upstream_schema import read_schema
from drainer.txn import Ddl
from tidb_binlog.errors import Conflict
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.tso import Ts


def named(settings: LiveSettings) -> DrainerConfig:
    """The configuration under the name that positions have: of the Drainer whose it is, or the stream's."""
    drainer = settings.drainer
    return replace(drainer, node_id=drainer.node_id or settings.name)


def position_of(settings: LiveSettings, cluster: PumpCluster) -> LakePosition:
    """Where the stream is."""
    return LakePosition(named(settings), cluster.upstream.cluster_id, settings.mode)


async def remember(findings: Findings, settings: LiveSettings, cluster: PumpCluster) -> None:
    """What the life before told of early rows, and from now on what this one does."""
    position = position_of(settings, cluster)
    await asyncio.to_thread(findings.keep_in, position.load_findings, position.store_findings)


async def claim(position: LakePosition, name: str, cluster: PumpCluster) -> None:
    """The position is moved by the reader of this name from now on. Raises `Conflict` while one of another
    name lives that does: of one node id there may be several. Each says its name before it looks for others,
    so of two that begin at once one at least sees the other."""
    await asyncio.to_thread(position.add_reader, name)
    for other in await asyncio.to_thread(position.readers):
        if other == name:
            continue
        if await cluster.is_alive(other):
            await asyncio.to_thread(position.remove_reader, name)
            raise Conflict(
                f"the stream {other} is running and writes to {position.warehouse.shown} for this node id",
                hint="end it first, or give this one another node-id",
            )
        await asyncio.to_thread(position.remove_reader, other)


@dataclass(frozen=True)
class LakeStart:
    """Where a stream to a lake goes on, and the schema of there."""

    position: LakePosition
    floor_ts: Ts
    tracker: SchemaTracker
    policy: Policy


async def begin(settings: LiveSettings, cluster: PumpCluster) -> LakeStart:
    """Where a stream to a lake goes on, and the schema of there. Raises `Conflict` while a Drainer
    writes, or another stream; and where the stream's position is gone."""
    drainer = named(settings)
    position = position_of(settings, cluster)
    await claim(position, settings.name, cluster)
    drainer_ts = await cluster.drainer_at(drainer.name) if settings.mode == CHANGELOG else 0
    checkpoint = await asyncio.to_thread(position.load)
    now_ts, initial_ts = await cluster.now_ts(), drainer.initial_commit_ts
    floor_ts = max(checkpoint.commit_ts, drainer_ts) or (now_ts if initial_ts == -1 else initial_ts)
    if floor_ts > now_ts:
        raise AheadOfUpstream(
            f"{position.warehouse.shown} is at {floor_ts}, but the upstream is at {now_ts}: it went back in"
            " time, or is another one with the same id",
            hint="check pd-urls; after restoring the upstream choose another warehouse",
        )
    version = checkpoint.schema_version if checkpoint.commit_ts == floor_ts else 0
    at_ts = drainer.load_schema_snapshot
    tracker = await read_schema(cluster.upstream.history, floor_ts, version, at_ts=at_ts)
    if floor_ts == now_ts:
        tables = of_schema(tracker, read_rules(drainer))
        lake = lake_of(drainer, cluster.upstream.cluster_id)
        await asyncio.to_thread(check_begin, lake, [table.version.downstream for table in tables], floor_ts)
    if not checkpoint.commit_ts:  # a life that ends before its first batch has begun all the same
        await asyncio.to_thread(position.warehouse.make)
        await asyncio.to_thread(position.store, Checkpoint(floor_ts, True, 0))
    return LakeStart(position, floor_ts, tracker, Policy(ddl_rules.parse(drainer.ddl_rules)))


class LakeDownstream(LiveDownstream):
    """What is alike, whatever becomes of a batch: tables know what they have, so the next one may be any."""

    def __init__(self, start: LakeStart) -> None:
        self.position = start.position
        self.floor_ts = start.floor_ts
        self.tracker = start.tracker
        self.policy = start.policy

    def begun(self, position: Ts) -> Ts:
        return 0

    def passed(self, ddl: Ddl) -> None:
        return

    async def reach(self, commit_ts: Ts) -> None:
        checkpoint = Checkpoint(commit_ts, True, self.tracker.version)
        await patiently(lambda: self.position.store(checkpoint), lambda: None)

    async def give_back(self, commit_ts: Ts) -> None:
        await self.reach(commit_ts)


def ruling_of(ddl: Ddl, policy: Policy) -> Ruling:
    """What is to become of a DDL. Raises `DownstreamError` where an operator has to decide."""
    ruling = policy.rule(ddl)
    if ruling.action == STOP or (ddl.refused and ruling.action == APPLY):
        raise stopped(ddl, ddl.refused or ruling.reason)
    return ruling

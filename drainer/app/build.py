"""Build: from the configuration to a stream that is pulled, merged and written to its kind of downstream.

Order   the sink finds out where it is, and is built; then the stream is pulled from there
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar, cast

from drainer.app.operations import Operating
from drainer.checkpoint.resume import AheadOfUpstream
from drainer.config.options import DrainerConfig
from drainer.config.sink_options import OWN, SINKS
from drainer.points.load import join_routes
from drainer.sink.runner import Runner
from drainer.stream.pull.collector import Collector
from drainer.stream.pull.spill import SpillDirectory
from drainer.stream.rules.rule_set import read_rules
from tidb_binlog import rpc
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.cluster.registry import Registry
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import Upstream

AHEAD_WAIT_S: Final = 5.0
AHEAD_PAUSE_S: Final = 0.2
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What a sink is built from. What is to be undone at the end goes to `ends`; what may change while it
    runs is hooked to `operating`. `again`: this process has worked on the checkpoint before, which must be
    there."""

    settings: DrainerConfig
    upstream: Upstream
    nodes: Registry
    ends: contextlib.AsyncExitStack
    operating: Operating
    again: bool = False


class Builder(Protocol):
    """A module that builds a kind of sink."""

    async def build(self, context: BuildContext) -> Runner[Any]:
        """Take over what is stored, and build what runs from there. No other drainer is fenced off by one
        that could not run."""
        ...

    async def rehearse(self, settings: DrainerConfig, cluster_id: int) -> None:
        """What a takeover needs of the downstream, tried without writing anything. Raises what is in its
        way."""
        ...


def builder_of(settings: DrainerConfig) -> Builder:
    return cast(Builder, importlib.import_module(SINKS.get(settings.db_type, OWN)))


async def rehearse(settings: DrainerConfig, upstream: Upstream) -> None:
    """What a takeover needs of others, tried without writing anything. Raises what is in its way."""
    read_rules(settings)
    await builder_of(settings).rehearse(settings, upstream.cluster_id)
    await upstream.oracle.timestamp()
    await upstream.history.job(1)  # that it answers; how much it holds would be too much to read each time


async def build(
    context: BuildContext, tls: TlsConfig | None, unbroken: Callable[[], int | None]
) -> tuple[Runner[Any], Collector]:
    """`unbroken`: of the heartbeat."""
    if not context.settings.to_database:
        context.operating.offer(join_routes.add_refusals, context.settings.db_type)
    runner = await builder_of(context.settings).build(context)
    context.operating.follow(runner)
    collector = open_collector(
        context.settings,
        context.upstream,
        context.nodes,
        runner.after_ts,
        unbroken,
        context.operating.upstream_clock,
        tls,
    )
    return runner, collector


def open_collector(
    settings: DrainerConfig,
    upstream: Upstream,
    nodes: Registry,
    after_ts: Ts,
    unbroken: Callable[[], int | None],
    clock: Clock,
    tls: TlsConfig | None,
) -> Collector:
    """What pulls, merges and spills binlogs above `after_ts`. `clock`: the upstream's."""
    return Collector(
        nodes,
        upstream.history,
        cluster_id=upstream.cluster_id,
        after_ts=after_ts,
        clock=clock,
        queue_bytes_max=settings.pull_bytes,
        spill=SpillDirectory(
            os.path.join(settings.data_dir, "spill"),
            above_bytes=settings.spill_above_bytes,
            ahead_bytes=settings.spill_ahead_bytes,
        ),
        connect=functools.partial(rpc.Client, tls=tls),
        unbroken=unbroken,
        compressor=settings.compressor,
    )


async def not_ahead(begin: Callable[[], Awaitable[T]]) -> T:
    """A clock that is a little late for the checkpoint is waited for: a replayed one follows what has
    arrived."""
    end_s = SystemClock().monotonic_s() + AHEAD_WAIT_S
    while True:
        try:
            return await begin()
        except AheadOfUpstream:
            if SystemClock().monotonic_s() > end_s:
                raise
            await asyncio.sleep(AHEAD_PAUSE_S)

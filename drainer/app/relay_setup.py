"""Relay setup: a recovery from the relay log, put together from the configuration.

Order   the downstream's checkpoint is found without the upstream (by the cluster id that the relay log or the
        data directory remembers, else it must be the only one), then `relay_recovery`; marks of two-way
        replication are made before the first row and taken away at the end

Tests  tests/drainer/app/test_recovery.py
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable

from drainer.app.build_mysql import ddl_runners, patiently, prepare_marks, seen
from drainer.app.recovery import RelayRecovery, known_cluster, stored_checkpoint
from drainer.app.start_wait import Summary
from drainer.checkpoint.lane_basis import StoredBasis
from drainer.checkpoint.resume import Start
from drainer.checkpoint.store import CheckpointStore
from drainer.checkpoint.value import DEFAULT_TABLE
from drainer.config.downstream import row_target_of, target_of
from drainer.config.options import DrainerConfig
from drainer.ddl import rules as ddl_rules
from drainer.ddl.derive.values import Route
from drainer.ddl.policy import Policy
from drainer.mysql.connection import Target
from drainer.mysql.session_lock import RELEASE
from drainer.operate.control.pause_and_reload import Control
from drainer.relay.source import RelaySchema, RelaySource
from drainer.sink.findings import Findings
from drainer.sink.mysql.mysql_sink import MysqlSink, mysql_sink
from drainer.sink.mysql.quarantine_setup import QuarantineSetup, load_waiting
from drainer.sink.mysql.settings import applier_settings
from drainer.sink.runner import Runner
from drainer.stream.rules.rule_history import RuleChange, RuleHistory
from drainer.stream.rules.rule_set import Rules, read_rules
from tidb_binlog.clock import SystemClock
from tidb_binlog.observe import log

logger = log.get("drainer.relay_assembly")


async def recover(settings: DrainerConfig, findings: Findings) -> Summary:
    """Bring the downstream to what the relay log has; the summary is logged.

    Raises `Corruption`, `Conflict`, `ConfigError`, `DownstreamError`, and `Unavailable` when the downstream
    is away too.
    """
    target = target_of(settings)
    table = settings.checkpoint_table if settings.checkpoint_type else DEFAULT_TABLE
    row_target = row_target_of(settings, target)
    cluster_id = known_cluster(settings.relay_log_dir, settings.data_dir)
    stored = await patiently(
        lambda: stored_checkpoint(
            row_target or target, settings.checkpoint_schema, table, cluster_id=cluster_id
        ),
        lambda: None,
    )

    def store_of(cluster_id: int) -> CheckpointStore:
        schema, owner = settings.checkpoint_schema, settings.name
        return CheckpointStore(
            target, cluster_id, schema=schema, table=table, row_target=row_target, owner=owner
        )

    async with contextlib.AsyncExitStack() as ends:
        summary = await RelayRecovery(
            settings.relay_log_dir,
            target,
            stored,
            store_of,
            lambda store, start, source: _runner(settings, target, store, start, source, findings, ends),
            SystemClock(),
            1 if settings.dispatches_whole else settings.worker_count,
            lambda cluster_id: seen(settings, cluster_id),
        ).run()
    logger.info(str(summary))
    return summary


async def _runner(
    settings: DrainerConfig,
    target: Target,
    store: CheckpointStore,
    start: Start,
    source: RelaySource,
    findings: Findings,
    ends: contextlib.AsyncExitStack,
) -> Runner[MysqlSink]:
    rules = read_rules(settings)
    await prepare_marks(target, len(start.positions), ends)
    waiting = await patiently(lambda: load_waiting(store, foreign=start.foreign), store.close)
    clock = SystemClock()
    route_now = routes_then(start.basis, rules, source.schema)
    runner_for = ddl_runners(settings, store, target, findings.missing)
    release_guard = functools.partial(store.guard_ddl, role=RELEASE)
    sink = mysql_sink(
        start,
        store,
        target,
        runner_for(source.schema, lambda schema, table: route_now()(schema, table), store.guard_ddl),
        applier_settings(settings, lambda _commit_ts: None, findings.drift),
        clock,
        QuarantineSetup(
            waiting,
            Policy(ddl_rules.parse(settings.ddl_rules)),
            source.schema,
            lambda frozen: runner_for(frozen, frozen.route, release_guard),
            settings.data_dir,
            settings.quarantine_bytes,
            route=route_now,
        ),
    )
    return Runner(
        sink,
        source,
        Control(clock),
        rules=RuleChange(None, rules, start.basis),
        interval_s=settings.checkpoint_interval_s,
        findings=findings,
    )


def routes_then(basis: StoredBasis | None, rules: Rules, schema: RelaySchema) -> Callable[[], Route]:
    """Where tables went when the last DDL that was read was logged: by the rules that the log has with it,
    else by those that are stored downstream. `rules` are those of now.

    Raises `Corruption`, `ConfigError`.
    """
    history = RuleHistory.since(0, rules) if basis is None else RuleHistory.from_json(basis.rules, [rules])
    return lambda: (schema.rules or history.at(schema.ddl_ts)).router.route

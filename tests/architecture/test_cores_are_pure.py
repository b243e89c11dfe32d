"""Cores decide: they import no clock, socket, file, thread or logging."""

from __future__ import annotations

import pytest

from tests.architecture.source import modules

CORES = (
    "common.binlog",
    "common.door.abuse",
    "common.door.admin",
    "common.door.calls",
    "common.door.connection",
    "common.door.control",
    "common.door.fields",
    "common.door.frames",
    "common.door.grpc_words",
    "common.door.hpack",
    "common.door.http1",
    "common.door.huffman",
    "common.door.life",
    "common.door.limits",
    "common.door.messages",
    "common.door.methods",
    "common.door.outbound",
    "common.door.plain",
    "common.door.reply_blocks",
    "common.door.request_blocks",
    "common.door.session",
    "common.door.sniff",
    "common.door.streams",
    "common.node",
    "common.record",
    "common.table_info",
    "common.tso",
    "common.backoff",
    "common.quantities",
    "deploy.playground.arrival",
    "deploy.playground.encoding",
    "deploy.playground.evolution",
    "deploy.playground.job",
    "deploy.playground.kinds",
    "deploy.playground.limits",
    "deploy.playground.model",
    "deploy.playground.statistics",
    "deploy.playground.tables",
    "deploy.playground.values",
    "deploy.playground.verify",
    "deploy.playground.workload",
    "drainer.arrival",
    "drainer.binlog_file",
    "drainer.causality",
    "drainer.takeover",
    "drainer.lane_tuning",
    "drainer.checkpoint_row",
    "drainer.change",
    "drainer.column_match",
    "drainer.column_rule",
    "drainer.ddl_filter",
    "drainer.ddl_text",
    "drainer.dispatcher",
    "drainer.event_filter",
    "drainer.mark_rows",
    "drainer.lag",
    "drainer.field_walk",
    "drainer.large_txn",
    "drainer.merger",
    "drainer.name_pattern",
    "drainer.obinlog",
    "drainer.obinlog_column",
    "drainer.obinlog_read",
    "drainer.progress",
    "drainer.quarantine",
    "drainer.rate_limit",
    "drainer.relay_records",
    "drainer.row_fold",
    "drainer.row_gate",
    "drainer.row_shape",
    "drainer.rules",
    "drainer.schema",
    "drainer.session_mode",
    "drainer.statement",
    "drainer.succession",
    "drainer.table_filter",
    "drainer.table_route",
    "drainer.translator",
    "drainer.txn",
    "drainer.ddl_job",
    "drainer.ddl_aside",
    "drainer.catalog",
    "drainer.ddl_traces",
    "drainer.ddl_steps",
    "drainer.ddl_session",
    "drainer.ddl_render",
    "drainer.ddl_partition",
    "drainer.ddl_extras",
    "drainer.ddl_derive",
    "drainer.ddl_definition",
    "drainer.ddl_create",
    "drainer.ddl_compare",
    "drainer.ddl_alteration",
    "drainer.ddl_alter",
    "drainer.ddl_policy",
    "drainer.decisions",
    "drainer.ddl_rules",
    "pump.admission",
    "pump.delivery",
    "pump.departure",
    "pump.group_commit",
    "pump.logged",
    "pump.pull_session",
    "pump.recent_commits",
    "pump.recovery",
    "pump.resolve_schedule",
    "pump.retention",
    "pump.sorter",
    "pump.stages",
    "pump.stuck",
    "pump.value_pointer",
    "pump.write_request",
    "pump.write_session",
    "pumpclient.batching",
    "pumpclient.health",
    "pumpclient.options",
    "pumpclient.roster",
    "pumpclient.skipping",
    "pumpclient.selector",
    "pumpclient.write_policy",
)
FORBIDDEN = {
    "asyncio",
    "concurrent",
    "datetime",
    "grpc",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "plyvel",
    "pymysql",
    "secrets",
    "select",
    "signal",
    "socket",
    "subprocess",
    "threading",
    "time",
    "uuid",
}


@pytest.mark.parametrize("name", CORES)
def test_core_is_pure(name: str) -> None:
    found = [module for module in modules() if module.name == name or module.name.startswith(name + ".")]
    assert found, f"{name} is missing"
    for module in found:
        roots = {imported.partition(".")[0] for imported in module.imports()}
        assert not roots & FORBIDDEN, f"{module.name} imports {sorted(roots & FORBIDDEN)}"


def test_rowcodec_is_pure() -> None:
    for module in modules():
        if module.name.startswith("common.rowcodec"):
            roots = {imported.partition(".")[0] for imported in module.imports()}
            assert not roots & (FORBIDDEN - {"datetime"}), module.name


def test_only_the_clock_reads_the_time() -> None:
    """Everything else is given a clock. The event loop's own time is for deadlines of shells."""
    for module in modules():
        if module.name in ("common.clock",) or module.name.startswith("deploy"):
            continue
        assert "time" not in {name.partition(".")[0] for name in module.imports()}, module.name

"""The cores whose mutants are tried, their tests, and the mutants that no test can see."""

from __future__ import annotations

from typing import Final

HTTP2: Final = tuple(
    f"common/door/http2/test_{name}.py"
    for name in (
        "header_fields",
        "hpack",
        "lifetime",
        "streams",
        "connection_rules",
        "connection_windows",
        "conformance",
        "connection_splits",
        "connection_machine",
        "abuse",
        "recorded_clients",
    )
)
CORES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "group_commit": ("pump.log.group_commit", ("pump/log/test_group_commit.py",)),
    "safe_mode": ("drainer.checkpoint.safe_mode", ("drainer/checkpoint/test_safe_mode.py",)),
    "queue_state": ("drainer.ddl.quarantine.queue_state", ("drainer/ddl/quarantine/test_queue_state.py",)),
    "fencing": (
        "drainer.checkpoint.fencing",
        ("drainer/checkpoint/test_fencing.py",),
    ),
    "resume": (
        "drainer.checkpoint.resume",
        ("drainer/checkpoint/test_resume.py",),
    ),
    "ran_before": (
        "drainer.ddl.run.ran_before",
        ("drainer/ddl/run/test_ran_before.py", "drainer/ddl/run/test_runner_recorded.py"),
    ),
    "row_fold": (
        "drainer.mysql.rows.row_fold",
        ("drainer/mysql/rows/test_row_fold.py", "drainer/mysql/rows/test_statement.py"),
    ),
    "causality": (
        "drainer.mysql.rows.causality",
        (
            "drainer/mysql/rows/test_causality.py",
            "drainer/mysql/rows/test_column_match.py",
            "drainer/mysql/rows/test_causality_mariadb.py",
        ),
    ),
    "sorter": ("pump.index.sorter", ("pump/index/test_sorter.py", "pump/index/test_sorter_future.py")),
    "merger": (
        "drainer.stream.pull.merger",
        ("drainer/stream/pull/test_merger.py", "drainer/stream/pull/test_merger_scenarios.py"),
    ),
    "progress": ("drainer.sink.mysql.progress", ("drainer/sink/mysql/test_progress.py",)),
    "lane_basis": ("drainer.checkpoint.lane_basis", ("drainer/checkpoint/test_lane_basis_exhaustive.py",)),
    "close_conditions": ("pump.membership.close_conditions", ("pump/membership/test_close_conditions.py",)),
    "retention": (
        "pump.retention.policy",
        ("pump/retention/test_policy.py", "pump/retention/test_policy_clocks.py"),
    ),
}
EQUIVALENT: Final[dict[str, dict[str, str]]] = {}
"""By core, the mutants that do what the core does, with why."""

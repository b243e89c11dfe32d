"""Lives whose refused rows wait: what the pipeline of a daemon does about them, and what an operator does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from drainer.config.options import BESIDE_ROWS
from drainer.ddl.quarantine.entry import RETRY
from drainer.mysql.connection import Target
from drainer.mysql.refusal import RowsRefused
from drainer.sink.mysql.lane import LaneSettings
from drainer.sink.mysql.mysql_sink import MysqlSink
from drainer.sink.row_mismatch import Drift
from drainer.stream.rules.rule_set import Rules
from tests.drainer.support.apply_life import Life, Recording
from tidb_binlog.upstream_port import SchemaHistory

Document = dict[str, Any]


async def live(
    recording: Recording,
    target: Target,
    lanes: int = 2,
    *,
    batch_rows: int = 3200,
    size: int = 2,
    history: SchemaHistory | None = None,
    log_values: bool = True,
    drift: Drift | None = None,
    correct: Callable[[Document], None] | None = None,
    begun: Callable[[Life], None] = lambda life: None,
    rules: Rules | None = None,
    decision: str = RETRY,
    beside_rows: int = BESIDE_ROWS,
) -> list[Document]:
    """Get to the end of the recording, with as many lives as that takes; what waits then.

    `correct` is the operator: asked once something waits, `decision` follows.
    """
    waiting: list[Document] = []

    async def at_end(sink: MysqlSink) -> None:
        waiting[:] = await sink.finish_waiting()
        if waiting and correct is not None:
            correct(waiting[0])
            await sink.quarantine.decide(waiting[0]["job_id"], decision, "", "test")
            waiting[:] = await sink.finish_waiting()

    lane = LaneSettings(batch_rows=batch_rows, log_values=log_values, drift=drift, rows_may_wait=True)
    while True:
        life = Life(
            recording, target, lanes, rules=rules, history=history, lane=lane, beside_rows=beside_rows
        )
        begun(life)
        with contextlib.suppress(RowsRefused):
            assert await life.run(size=size, at_end=at_end)
            return waiting

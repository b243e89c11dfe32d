"""Job reader: the job document of a DDL binlog, from the upstream's history.

Waits  until it is there, TiDB writes it after the binlog; `waits_for` says so, "" while nothing is waited for

Tests  tests/drainer/stream/pull/test_collector.py
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from drainer.stream.pull.pull_message import DdlMark
from tidb_binlog import ddl_job
from tidb_binlog.errors import Unavailable
from tidb_binlog.observe import log
from tidb_binlog.upstream_port import SchemaHistory

PAUSE_FIRST_S: Final = 0.01
PAUSE_MAX_S: Final = 1.0

_logger = log.get("collector")


class JobReader:
    """Reads one job at a time."""

    def __init__(self, history: SchemaHistory) -> None:
        self._history = history
        self.waits_for = ""

    async def read(self, mark: DdlMark) -> dict[str, Any]:
        """The job of a DDL binlog."""
        pause_s = PAUSE_FIRST_S
        reason = "it is not in the DDL history yet"
        while True:
            try:
                data = await self._history.job(mark.job_id)
            except Unavailable as error:
                data, reason = None, str(error)
            if data is not None:
                if self.waits_for:
                    _logger.info("DDL job is there", job_id=mark.job_id)
                self.waits_for = ""
                return ddl_job.decode(data)
            if pause_s >= PAUSE_MAX_S and not self.waits_for:
                _logger.warning(
                    "waiting for a DDL job", job_id=mark.job_id, commit_ts=mark.commit_ts, reason=reason
                )
                self.waits_for = f"DDL job {mark.job_id} of commit_ts {mark.commit_ts}: {reason}"
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

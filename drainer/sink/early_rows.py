"""Early rows: those of which a DDL makes something that did not come with them, with what the status shows.

Rows may be written by the definition that a DDL leads to, and come before it (`Ddl.early`). Or their
transaction did not know of a DDL that took a partition from its table, and ended after it: it began before,
or its TiDB had not read the definitions of after it yet. TiDB put those of that partition where it had been,
and they are gone. Which ones that are is not known here.

Tests  tests/drainer/sink/test_early_rows.py
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from drainer.txn import DELETE, Ddl, Transaction
from tidb_binlog.clock import Clock
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.observe import log
from tidb_binlog.status.codec import plain
from tidb_binlog.status.drainer import EarlyRowsKept, EarlyRowsStatus
from tidb_binlog.tso import Ts, compose

_KEPT: Final = 200
_commit_ts: Final = operator.attrgetter("commit_ts")
_LIVES_MS: Final = 3_600_000
"""So long a transaction of TiDB may live (max-txn-ttl)."""
_TAKES_PARTITIONS: Final = frozenset(
    {
        ActionType.TRUNCATE_TABLE_PARTITION,
        ActionType.DROP_TABLE_PARTITION,
        ActionType.EXCHANGE_TABLE_PARTITION,
    }
)
LATE_ROWS: Final = (
    "rows of transactions that did not know the statement yet and ended after it may be gone with a partition"
)
logger = log.get("drainer.applier")


class EarlyRows:
    """Of a process; the next one goes on from what `kept` gave, of which `on_change` is told."""

    def __init__(self, clock: Clock, on_change: Callable[[], None] = lambda: None) -> None:
        self._clock = clock
        self._on_change = on_change
        self._told: deque[EarlyRowsStatus] = deque(maxlen=_KEPT)
        self._took: dict[int, EarlyRowsStatus] = {}  # by table id, the last DDL that took a partition
        self._last_took = EarlyRowsStatus()

    def kept(self) -> EarlyRowsKept:
        """What was told, and what rows that may follow are told by."""
        return EarlyRowsKept(self.told, {str(table_id): took for table_id, took in self._took.items()})

    def load(self, kept: EarlyRowsKept) -> None:
        """The same of the process before. What is there already stays."""
        jobs = {told.job_id for told in self._told}
        self._told.extend(told for told in kept.told if told.job_id not in jobs)
        took = {int(table_id): took for table_id, took in kept.took.items() if table_id.isdecimal()}
        self._took = took | self._took
        self._last_took = max(self._took.values(), key=_commit_ts, default=self._last_took)

    @property
    def facts(self) -> dict[str, Any]:
        """Of the status."""
        return {"EarlyRows": plain(self.told)}

    @property
    def told(self) -> list[EarlyRowsStatus]:
        return list(self._told)

    def watched(self, ts: Ts) -> tuple[int, ...]:
        """Ids of the tables of which rows from there on may be some to tell of."""
        lives = compose(_LIVES_MS)
        return tuple(table_id for table_id, took in self._took.items() if ts < took.commit_ts + lives)

    def note_ddl(self, ddl: Ddl) -> None:
        """It is taken next."""
        if ddl.skip:
            return
        tables = [".".join(name) for name in ddl.tables]
        status = EarlyRowsStatus(ddl.job_id, ddl.commit_ts, 0.0, tables, ddl.schema_version)
        if ddl.early:
            self._tell(status, ddl.early)
        if ddl.action in _TAKES_PARTITIONS:
            took = {table.id: status for table in (*ddl.before, *ddl.after)}
            self._took = self._took | took  # not the same one: a lane may be at `kept`
            self._last_took = status
            self._on_change()

    def note_rows(self, transaction: Transaction) -> None:
        """They are taken."""
        if _knows(transaction, self._last_took):
            return
        for events in transaction.tables:
            took = self._took.get(events.table.info.id)
            if took is not None and not _knows(transaction, took) and set(events.kinds) != {DELETE}:
                self._tell(took, LATE_ROWS)

    def _tell(self, status: EarlyRowsStatus, text: str) -> None:
        now_s = self._clock.wall_s()
        for earlier in self._told:
            if earlier.job_id == status.job_id:
                earlier.last_s = now_s
                return
        status.last_s = now_s
        self._told.append(status)
        self._on_change()
        logger.warning(text, job_id=status.job_id, commit_ts=status.commit_ts, tables=status.tables)


def _knows(transaction: Transaction, took: EarlyRowsStatus) -> bool:
    """Whether it began after the DDL, and by definitions that are not of before it."""
    version = transaction.schema_version
    return transaction.start_ts >= took.commit_ts and (not version or version >= took.schema_version)

"""Lane: one thread, one downstream connection, one ordered list of changes.

Drives  `row_fold` and `statement`; owns its connection and its row of the lane table
Owns    a thread; chunks come in by `offer`, results go out through the callbacks given
Holds   a batch and the lane's new position commit in one downstream transaction, guarded by the epoch
Stops   `finish` lets it commit what is queued, `abandon` ends it after the statement under way

A batch is whatever is queued when the lane is free, up to `batch_rows` and `batch_bytes`: an idle lane
commits at once, a busy one in large batches. After a lost connection or an ambiguous COMMIT the position
in the lane table says whether the batch is in.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pymysql

from common import log
from common.backoff import Backoff
from common.clock import Clock
from common.errors import Unavailable
from drainer import metrics
from drainer.change import Chunk, Position
from drainer.checkpoint import LaneTable
from drainer.row_fold import fold
from drainer.sink import mysql
from drainer.statement import Statement, statements

logger = log.get(__name__)

STATEMENT_BYTES_MAX: Final = 1 << 20
PACKET_SLACK_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class LaneSettings:
    batch_rows: int = 1600
    batch_bytes: int = 1 << 20
    queue_bytes_max: int = 32 << 20
    # First in every transaction of a lane, with its connection and number (marks for two-way replication).
    on_begin: Callable[[pymysql.Connection[Any], int], None] | None = None


class Lane(threading.Thread):
    """`on_committed(lane, sequence, rows)` and `on_failed(lane, error)` are called on the lane's thread."""

    def __init__(
        self,
        number: int,
        target: mysql.Target,
        table: LaneTable,
        settings: LaneSettings,
        clock: Clock,
        on_committed: Callable[[int, int, int], None],
        on_failed: Callable[[int, BaseException], None],
    ) -> None:
        super().__init__(name=f"lane-{number}", daemon=True)
        self.number = number
        self._target = target
        self._table = table
        self._settings = settings
        self._clock = clock
        self._on_committed = on_committed
        self._on_failed = on_failed
        self._condition = threading.Condition()
        self._queue: deque[Chunk] = deque()
        self._queued_bytes = 0
        self._finishing = False
        self._abandoned = threading.Event()
        self._connection: pymysql.Connection[Any] | None = None
        self._bytes_max = STATEMENT_BYTES_MAX
        self.replaying_up_to = 0  # safe mode: rows at or below this commit_ts may already be there
        self._running = "?"
        self.waiting_for = ""  # what keeps the lane from working, for /status

    # -- called by the applier -------------------------------------------------------------------

    def offer(self, chunk: Chunk) -> None:
        with self._condition:
            self._queue.append(chunk)
            self._queued_bytes += chunk.size_bytes
            self._condition.notify()

    @property
    def has_room(self) -> bool:
        return self._queued_bytes < self._settings.queue_bytes_max

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    def queue_size(self) -> float:
        return float(self._queued_bytes)

    def finish(self) -> None:
        """Commit what is queued, then end."""
        with self._condition:
            self._finishing = True
            self._condition.notify()

    def abandon(self) -> None:
        """End without committing what is queued."""
        self._abandoned.set()
        self.finish()

    # -- the thread ------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            while not self._abandoned.is_set():
                batch = self._take()
                if not batch:
                    return
                self._apply(batch)
        except BaseException as error:  # the daemon stops with it
            self._on_failed(self.number, error)
        finally:
            self._disconnect()

    def _take(self) -> list[Chunk]:
        """The next batch; empty when the lane is to end."""
        with self._condition:
            while not self._queue:
                if self._finishing:
                    return []
                self._condition.wait()
            batch = [self._queue.popleft()]
            rows, size = len(batch[0].changes), batch[0].size_bytes
            while self._queue:
                following = self._queue[0]
                rows += len(following.changes)
                size += following.size_bytes
                if rows > self._settings.batch_rows or size > self._settings.batch_bytes:
                    break
                batch.append(self._queue.popleft())
            return batch

    def _apply(self, batch: list[Chunk]) -> None:
        position = batch[-1].position
        replaying = batch[0].first_ts <= self.replaying_up_to or any(chunk.cut for chunk in batch)
        changes = [change for chunk in batch for change in chunk.changes]
        prepared: list[Statement] | None = None
        backoff = Backoff(0.05, 2.0)
        while True:
            try:
                connection = self._connected()
                if prepared is None:
                    prepared = list(statements(fold(changes), self._bytes_max, replaying=replaying))
                # A COMMIT whose answer got lost may have been carried out.
                if not backoff.attempts or self._table.position(connection, self.number) != position:
                    self._transaction(connection, prepared, position)
                break
            except (pymysql.err.MySQLError, OSError, Unavailable) as error:
                self._disconnect()  # rolls back; a connection after an unclear error is not used again
                self._refuse_unless_transient(error)
            if self._abandoned.wait(backoff.next_s()):
                return
        self.waiting_for = ""
        with self._condition:
            self._queued_bytes -= sum(chunk.size_bytes for chunk in batch)
        self._on_committed(self.number, batch[-1].sequence, len(changes))

    def _transaction(
        self, connection: pymysql.Connection[Any], prepared: list[Statement], position: Position
    ) -> None:
        started_s = self._clock.monotonic_s()
        if self._settings.on_begin is not None:
            self._settings.on_begin(connection, self.number)
        for statement in prepared:
            affected = self._execute(connection, statement)
            if statement.expected is not None and affected != statement.expected:
                metrics.DRIFT_ROWS.inc(abs(statement.expected - affected))
                logger.warning(
                    "downstream rows were not as expected",
                    table=statement.table.label,
                    expected=statement.expected,
                    affected=affected,
                )
        self._table.advance(connection, self.number, position)
        executed_s = self._clock.monotonic_s()
        connection.commit()
        metrics.QUERY_SECONDS.labels("exec").observe(executed_s - started_s)
        metrics.QUERY_SECONDS.labels("commit").observe(self._clock.monotonic_s() - executed_s)

    def _execute(self, connection: pymysql.Connection[Any], statement: Statement) -> int:
        self._running = statement.table.label
        if not statement.lax:
            return mysql.run(connection, statement.sql)
        mysql.run(connection, b"SET SESSION sql_mode='" + mysql.LAX_SQL_MODE.encode() + b"'")
        try:
            return mysql.run(connection, statement.sql)
        finally:
            mysql.run(connection, b"SET SESSION sql_mode='" + mysql.SQL_MODE.encode() + b"'")

    def _refuse_unless_transient(self, error: pymysql.err.MySQLError | OSError | Unavailable) -> None:
        if not isinstance(error, Unavailable) and not mysql.is_transient(error):
            raise mysql.refuse(error, f"applying rows to {self._running}") from None
        text = str(error) if isinstance(error, Unavailable) else mysql.safe_text(error)
        if self.waiting_for != text:
            logger.warning("lane waits for the downstream", lane=self.number, reason=text)
            self.waiting_for = text
        metrics.LANE_RETRIES.inc()

    def _connected(self) -> pymysql.Connection[Any]:
        if self._connection is None:
            self._connection = mysql.connect(self._target)
            packet_bytes_max = mysql.packet_bytes_max(self._connection)
            self._bytes_max = min(STATEMENT_BYTES_MAX, packet_bytes_max - PACKET_SLACK_BYTES)
            self._table.assert_epoch(self._connection, self.number)
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except (pymysql.err.MySQLError, OSError):
                pass

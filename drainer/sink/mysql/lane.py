"""Lane: one thread, one downstream connection, one ordered list of changes.

Drives  `row_fold` and `statement`; owns its connection and its row of the lane table
Owns    a thread; chunks come in by `offer`, results go out through the callbacks given
Holds   a batch and the lane's new position commit in one downstream transaction, guarded by the epoch,
        and not before the batch is durable in the relay log, if there is one
Stops   `finish` lets it commit what is queued, `abandon` ends it after the statement under way

A batch is whatever is queued when the lane is free, up to `batch_rows` and `batch_bytes`: an idle lane
commits at once, a busy one in large batches. After a lost connection or an ambiguous COMMIT the position
in the lane table says whether the batch is in: it is read with a lock, so that a COMMIT which the server is
still busy with has ended, and a session of ours that it has not given up yet is ended first. A position that
is lower than the one that was committed last says that the server went back in time (`committed`).

What passes by itself (`sink.trouble`) is tried again without limit, and the state says since when. Anything
else stops the lane, naming transactions, table and key columns; row values only if that is allowed. When a
table turns out to have other columns than it had, its definition is read again, once.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from drainer import metrics
from drainer.checkpoint.job_findings import ROWS, TEXTS, JobFindings
from drainer.checkpoint.lane_table import LaneTable
from drainer.checkpoint.safe_mode import SafeMode
from drainer.mysql.connection import TIDB_CHECKS_AT_ONCE, Connection, Target, set_if_known
from drainer.mysql.errors import (
    NO_SUCH_TABLE,
    SessionError,
    StatementRefused,
    TransientError,
    Trouble,
    broken_key,
    final_error,
    safe_text,
    trouble_of,
)
from drainer.mysql.refusal import (
    CORRECT,
    Ask,
    Refusal,
    RowsRefused,
    answer,
    not_as_upstream,
    refusal_of,
)
from drainer.mysql.rows.change import TABLE, Chunk, TableTarget
from drainer.mysql.rows.column_match import FULL
from drainer.mysql.rows.row_fold import fold
from drainer.mysql.rows.statement import Statement, statements
from drainer.mysql.rows.table_target import missing, refreshed
from drainer.mysql.session import DownstreamSession, run
from drainer.mysql.table_reader import read_table
from drainer.relay.relay_log import LogMark
from drainer.sink.mysql import refused_rows
from drainer.sink.mysql.lane_work import NotLogged, Overwritten, TooLarge, Waiting, Work, described, traced
from drainer.sink.row_mismatch import Drift
from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import Clock
from tidb_binlog.errors import BinlogError, Conflict, Corruption, DownstreamError, Unavailable
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.observe import log, trace
from tidb_binlog.status.drainer import LaneStatus

logger = log.get("drainer.lane")

STATEMENT_BYTES_MAX: Final = 1 << 20
PACKET_SLACK_BYTES: Final = 4096
READ_TIMEOUT_MAX_S: Final = 3600.0
LOG_REASON: Final = "the relay log has not got its binlogs on disk"
# Unknown column, wrong number of values, no such table, a column that needs a value or computes it: the table
# is not what it was when it was read.
OTHER_SHAPE: Final = frozenset({1054, 1136, 1364, 1906, 3105, NO_SUCH_TABLE})
LOST_DURING_QUERY: Final = 2013
LOGGED_MAX_S: Final = 1.0  # so long rows are locked downstream for a relay log whose disk is slow, or full


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """`strict`: stop where the downstream is not as it should be, instead of counting it.

    `log_values`: errors may show row values. `drift`: where lanes report; it outlives them. `findings`: where
    that is stored, for jobs that have an end. `logged`: of the relay log, None without one.
    `on_refused` is asked, once a constraint, before rows that break it are refused for good. With
    `rows_may_wait` whatever is refused of a table for good is `RowsRefused`.
    """

    batch_rows: int = 3200
    batch_bytes: int = 1 << 20
    queue_bytes_max: int = 32 << 20
    strict: bool = False
    log_values: bool = False
    sync_mode: int = FULL
    drift: Drift | None = None
    findings: JobFindings | None = None
    logged: LogMark | None = None
    on_refused: Ask | None = None
    rows_may_wait: bool = False


class Lane(threading.Thread):
    """On its thread: `on_committed(lane, sequence, rows)`, `on_failed(lane, error)`, `on_table_changed()`."""

    def __init__(
        self,
        number: int,
        target: Target,
        table: LaneTable,
        settings: LaneSettings,
        clock: Clock,
        on_committed: Callable[[int, int, int], None],
        on_failed: Callable[[int, BaseException], None],
        on_table_changed: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name=f"lane-{number}", daemon=True)
        self.number = number
        self._target = target if target.mark is None else replace(target, mark=target.mark.of_lane(number))
        self._table = table
        self._settings = settings
        self._clock = clock
        self._on_committed = on_committed
        self._on_failed = on_failed
        self._on_table_changed = on_table_changed
        self._condition = threading.Condition()  # of queue, bytes and end: both threads change them
        self._queue: deque[Chunk] = deque()  # not taken yet, in the order of the stream
        self._queued_bytes = 0  # of the queue and of the batch that is being applied; 0 when all is committed
        self._finishing = False  # the thread ends when the queue is empty; never taken back
        self._abandoned = threading.Event()  # the thread ends before its next batch or try; never taken back
        self.session = DownstreamSession(self._target, self._prepare_session)
        self._bytes_max: int  # of a statement; what the session takes, less some slack
        self._packet_bytes_max: int  # of the session: nothing as long as this is sent
        self._drift = settings.drift or Drift(clock)
        self._replaced: dict[TableTarget, TableTarget] = {}  # tables that were changed downstream
        self.safe_mode = SafeMode()  # set before the thread starts
        self._running: TableTarget | None = None  # whose statement is made or runs: what an error is about
        self._waiting: Waiting | None = None  # from the first passing error of a batch to its end; for status

    # -- called by the stream --------------------------------------------------------------------

    def change_settings(self, settings: LaneSettings) -> None:
        """From the next batch on."""
        self._settings = settings

    def offer(self, chunk: Chunk) -> None:
        with self._condition:
            self._queue.append(chunk)
            self._queued_bytes += chunk.size_bytes
            self._condition.notify()

    @property
    def has_room(self) -> bool:
        return self._queued_bytes < self._settings.queue_bytes_max

    def queue_size(self) -> float:
        return float(self._queued_bytes)

    def state(self) -> LaneStatus:
        """For /status."""
        waiting = self._waiting
        state = LaneStatus(
            lane=self.number,
            queued_bytes=self._queued_bytes,
            full=not self.has_room,
            waiting_for=waiting.reason if waiting else "",
        )
        if waiting:
            state.trouble = waiting.trouble.value
            state.waiting_s = round(self._clock.monotonic_s() - waiting.since_s, 1)
            state.tries = waiting.tries
        return state

    def finish(self) -> None:
        """Commit what is queued, then end."""
        with self._condition:
            self._finishing = True
            self._condition.notify()

    def abandon(self) -> None:
        """End without committing what is queued."""
        self._abandoned.set()
        if self._settings.logged is not None:
            self._settings.logged.wake()
        self.finish()

    # -- the thread ------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            while not self._abandoned.is_set():
                batch = self._take()
                if not batch:
                    return
                with traced(self.number, batch):
                    self._apply(batch)
        except BaseException as error:  # the daemon stops with it
            self._on_failed(self.number, self._cause(error))
        finally:
            self.session.close()

    def _cause(self, error: BaseException) -> BaseException:
        """A server that went back in time refuses for that reason alone what it would take."""
        if not isinstance(error, DownstreamError):
            return error
        self.session.close()
        try:
            self.session.open()  # finds out whether the server went back
        except Conflict as conflict:
            return conflict
        except (SessionError, BinlogError):
            pass
        return error

    def _take(self) -> list[Chunk]:
        """The next batch; empty when the lane is to end."""
        with self._condition:
            while not self._queue:
                if self._finishing:
                    return []
                with trace.span("waits for work"):
                    self._condition.wait()
            batch = [self._queue.popleft()]
            rows, size = len(batch[0].changes), batch[0].size_bytes
            logged = self._settings.logged
            if logged is not None and not logged.has(batch[0].position.commit_ts):
                logged = None  # nothing that follows is there, either
            while self._queue:
                following = self._queue[0]
                rows += len(following.changes)
                size += following.size_bytes
                if rows > self._settings.batch_rows or size > self._settings.batch_bytes:
                    break
                if logged is not None and not logged.has(following.position.commit_ts):
                    break  # a full disk has room again when what is there is committed
                batch.append(self._queue.popleft())
            return batch

    def _apply(self, batch: list[Chunk]) -> None:
        changes = [change for chunk in batch for change in chunk.changes]
        work = Work(batch, changes, self.safe_mode)
        backoff, lock_backoff = Backoff(0.05, 5.0), Backoff(0.005, 1.0)
        began_s = self._clock.monotonic_s()
        while True:
            trouble = self._attempt(work)
            if trouble is None:
                break
            # The relay log is waited for in the attempt.
            pauses = lock_backoff if trouble is Trouble.LOCK else backoff
            if self._abandoned.wait(0 if trouble is Trouble.RELAY_LOG else pauses.next_s()):
                return
        if self._waiting is not None:
            logger.info("lane continues", lane=self.number, tries=self._waiting.tries)
            self._waiting = None
        self.session.target = self._target
        self._report(work)
        metrics.EXECUTE_SECONDS.observe(self._clock.monotonic_s() - began_s - work.logging_s)
        with self._condition:
            self._queued_bytes -= sum(chunk.size_bytes for chunk in batch)
        self._on_committed(self.number, batch[-1].sequence, len(changes))

    def _attempt(self, work: Work) -> Trouble | None:
        """Apply the batch once; the trouble that was in the way, None if it is committed."""
        self._running = None
        try:
            connection = self.session.open()
            if work.prepared is None:
                with trace.span("folds, renders"):
                    work.prepared = self._prepare(work)
            if work.log_first and not self._is_logged(work):
                return self._wait(Trouble.RELAY_LOG, LOG_REASON)
            # A COMMIT whose answer got lost may have been carried out.
            if work.in_doubt and self._table.position(connection, self.number, lock=True) == work.position:
                connection.rollback()
            else:
                self._transaction(connection, work, work.prepared)
            self._table.committed.note(self.number, work.position)
            if work.checks_at_once:
                self.session.close()
            return None
        except NotLogged:
            work.log_first = True
            self._roll_back(work, Trouble.RELAY_LOG)
            return self._wait(Trouble.RELAY_LOG, LOG_REASON)
        except TooLarge:
            self.session.close()  # a new session has the limit of now
            return self._wait(Trouble.CONNECTION, "max_allowed_packet was raised")
        except Overwritten as overwritten:
            self._ask(work, Refusal(overwritten.table, "", False, work.first_ts, work.position.commit_ts))
            return self._wait(Trouble.INTERRUPTED, "rows collided with others on a unique key")
        except (SessionError, Unavailable) as error:
            trouble = trouble_of(error)
            if self._running is None and broken_key(error) and not work.checks_at_once:
                self._roll_back(work, None)
                work.checks_at_once = True  # an optimistic TiDB looks at keys when it commits
                return self._wait(Trouble.INTERRUPTED, "COMMIT was refused: the statement is to be found")
            if isinstance(error, StatementRefused) and self._shape_was_other(work, error):
                return self._wait(Trouble.INTERRUPTED, "a table was changed downstream")
            if trouble is None and self._is_gone(work, error):
                return self._wait(Trouble.INTERRUPTED, "a constraint went, which the upstream has given up")
            if trouble is None and self._may_be_there(work):
                return self._wait(Trouble.INTERRUPTED, "rows that come are there")
            self._roll_back(work, trouble)
            if trouble is None:
                doing = f"applying rows of {work.range_text} to {described(self._running)}"
                refused = final_error(error, doing, values=self._settings.log_values)
                raise self._refused(work, refused, CORRECT) from None
            if isinstance(error, SessionError) and error.number == LOST_DURING_QUERY:
                waited_s = self.session.target.read_timeout_s or READ_TIMEOUT_MAX_S  # it may only be slow
                longer_s = min(waited_s * 2, READ_TIMEOUT_MAX_S)
                self.session.target = replace(self._target, read_timeout_s=longer_s)
            return self._wait(trouble, safe_text(error, values=self._settings.log_values))

    def _is_gone(self, work: Work, error: BaseException) -> bool:
        """Whether the constraint that the batch breaks is gone by now; nothing is locked meanwhile."""
        work.refusal = refusal = refusal_of(error, self._running, work.first_ts, work.position.commit_ts)
        if not refusal or not refusal.name or not self._settings.on_refused or refusal.name in work.asked:
            return False
        work.asked.add(refusal.name)
        return self._ask(work, refusal)

    def _may_be_there(self, work: Work) -> bool:
        """Whether rows that come are there, and are to be removed first: once."""
        refusal = work.refusal
        if work.replaying or work.removes_new or not (refusal and refusal.is_about(refusal.table.row_key)):
            return False
        work.removes_new, work.prepared = True, None
        self._roll_back(work, Trouble.LOCK)
        return True

    def _ask(self, work: Work, refusal: Refusal) -> bool:
        """Whether the rows may be tried once more because more is known by now."""
        self._roll_back(work, Trouble.LOCK)
        what = refusal.name or "the keys"
        self._wait(Trouble.INTERRUPTED, f"asking the upstream about {what} of {refusal.table.label}")
        assert self._settings.on_refused is not None
        try:
            return answer(self._settings.on_refused(refusal), self._abandoned)
        except DownstreamError as error:
            work.refusal = refusal
            raise self._refused(work, error) from None

    def _refused(self, work: Work, error: BinlogError, hint: str = "") -> BinlogError:
        """The error with the rows named; of a table that may wait one that says so, with `hint` if given."""
        refusal, settings = work.refusal, self._settings
        if refusal is None:
            return error
        said = error.message
        with contextlib.suppress(SessionError, BinlogError):
            values = settings.log_values
            said += refused_rows.described(self.session.open(), work, refusal, self._execute, values=values)
        if not settings.rows_may_wait:
            return DownstreamError(said, hint=error.hint)
        return RowsRefused(said, hint=hint or error.hint, lane=self.number, refusal=refusal)

    def _roll_back(self, work: Work, trouble: Trouble | None) -> None:
        """A connection after an unclear error is not used again; the server rolls back."""
        if trouble is not None and trouble.keeps_connection and self.session.roll_back():
            return
        self.session.close()
        work.in_doubt = True

    def _wait(self, trouble: Trouble, reason: str) -> Trouble:
        waiting = self._waiting
        if waiting is None or waiting.trouble is not trouble:
            waiting = self._waiting = Waiting(trouble, reason, self._clock.monotonic_s())
            if trouble is not Trouble.LOCK:
                logger.warning("lane waits", lane=self.number, trouble=trouble.value, reason=reason)
        waiting.reason = reason
        waiting.tries += 1
        metrics.LANE_RETRIES.labels(trouble.value).inc()
        return trouble

    def _prepare(self, work: Work) -> list[Statement]:
        changes = work.changes
        if self._replaced:
            now = self._replaced
            changes = [(now.get(table, table), op, key, row, split) for table, op, key, row, split in changes]
        try:
            folds = fold(changes)
            if self._settings.on_refused is not None:
                for net in folds:
                    if net.doubled and not net.table.version.partial:
                        work.ask_about(net.table)
            prepared: list[Statement] = []
            for net in folds:
                self._running = net.table
                how = {"replaying": work.replaying, "cut": work.cut, "removes_new": work.removes_new}
                prepared += statements((net,), self._bytes_max, **how)
            self._running = None
            work.log_first |= any(net.table.repeats for net in folds)  # what COMMIT has no say in
            return prepared
        except Corruption as error:
            raise Corruption(f"{work.range_text}: {error.message}", hint=error.hint) from None
        except DownstreamError as error:
            raise self._refused(work, work.unfit(self._running, error)) from None

    def _transaction(self, connection: Connection, work: Work, prepared: list[Statement]) -> None:
        started_s = self._clock.monotonic_s()
        work.drift.clear()
        missed: list[tuple[Statement, int]] = []
        if work.checks_at_once:
            set_if_known(connection, *TIDB_CHECKS_AT_ONCE)
        for statement in prepared:
            self._running = statement.table
            if len(statement.sql) >= self._packet_bytes_max:
                self._refuse_size(connection, work, statement)
            with trace.span("statement", table=statement.table.label, bytes=len(statement.sql)):
                affected = self._execute(connection, statement)
            drift = statement.drift(affected)
            if drift and statement.met is not None and not work.replaying:
                missed.append((statement, drift))  # which may come with this batch
            else:
                self._note_drift(work, statement, drift)
            if self._settings.on_refused is not None and statement.overwrote(affected):
                work.ask_about(statement.table)
        for statement, drift in missed:
            self._running = statement.table
            again = statement.of_present_columns(drift)
            self._note_drift(
                work, statement, again.drift(self._execute(connection, again)) if again else drift
            )
        self._running = None
        if self._settings.findings is not None:
            texts = ((f"{table}.{column}", values) for table, column, values in work.texts)
            self._settings.findings.count(connection, self.number, ROWS, work.drift)
            self._settings.findings.count(connection, self.number, TEXTS, texts)
        logging_s = work.logging_s
        if not self._is_logged(work):
            raise NotLogged
        started_s += work.logging_s - logging_s
        with trace.span("moves its position"):
            self._table.advance(connection, self.number, work.position)
        executed_s = self._clock.monotonic_s()
        with trace.span("COMMIT", last_ts=work.position.commit_ts):
            connection.commit()
        metrics.QUERY_SECONDS.labels("exec").observe(executed_s - started_s)
        metrics.QUERY_SECONDS.labels("commit").observe(self._clock.monotonic_s() - executed_s)

    def _note_drift(self, work: Work, statement: Statement, drift: int) -> None:
        if drift:
            if self._settings.strict:
                raise not_as_upstream(work.range_text, statement.table, drift)
            work.drift.append((statement.table.label, drift))

    def _is_logged(self, work: Work) -> bool:
        """Whether the batch may commit, as far as the relay log is concerned; waits a moment for it."""
        logged = self._settings.logged
        if logged is None:
            return True
        began_s = self._clock.monotonic_s()
        with trace.span("waits for the relay log"):
            is_logged = logged.wait(work.position.commit_ts, self._abandoned, LOGGED_MAX_S)
        work.logging_s += self._clock.monotonic_s() - began_s
        return is_logged

    def _execute(self, connection: Connection, statement: Statement) -> int:
        return run(connection, statement, self._target.mode)

    def _report(self, work: Work) -> None:
        """What of the batch was not as it should be downstream; only now that it is committed."""
        for table, rows in work.drift:
            self._drift.note_rows(table, rows, work.first_ts, work.position.commit_ts)
        for table, column, values in work.texts:
            self._drift.note_texts(table, column, values, work.first_ts, work.position.commit_ts)

    # -- refusals --------------------------------------------------------------------------------

    def _refuse_size(self, connection: Connection, work: Work, statement: Statement) -> None:
        needed = len(statement.sql) + 1
        if connection.packet_bytes_max("global") >= needed:
            raise TooLarge
        raise self._refused(work, work.too_large(statement, needed, self._packet_bytes_max))

    def _shape_was_other(self, work: Work, error: StatementRefused) -> bool:
        """Read the table again; True if statements made for what it is now differ."""
        target, connection = self._running, self.session.current
        if target is None or connection is None or error.number not in OTHER_SHAPE:
            return False
        try:
            fresh = self._fresh(connection, target)
        except DownstreamError as refusal:
            raise self._refused(work, work.unfit(target, refusal)) from None
        except SessionError as failure:
            self.session.close()
            return isinstance(failure, TransientError)  # the batch fails in the same way
        if fresh is None:
            return False
        logger.warning("table was changed downstream, its definition is read again", table=target.label)
        for change in work.changes:
            table = change[TABLE]
            if self._replaced.get(table, table) is target:
                self._replaced[table] = fresh
        self._on_table_changed()
        work.prepared = None
        return True

    def _fresh(self, connection: Connection, target: TableTarget) -> TableTarget | None:
        if (table := read_table(connection, *target.version.downstream)) is None:
            raise missing(target.version)
        return refreshed(target, table, sync_mode=self._settings.sync_mode)

    # -- the connection --------------------------------------------------------------------------

    def _prepare_session(self, connection: Connection) -> None:
        self._packet_bytes_max = connection.packet_bytes_max()
        self._bytes_max = min(STATEMENT_BYTES_MAX, self._packet_bytes_max - PACKET_SLACK_BYTES)
        self._table.claim(connection, self.number)

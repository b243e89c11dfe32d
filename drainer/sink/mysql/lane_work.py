"""Lane work: a batch on its way through a lane, and what is known of its attempts. Values only.

Tests  tests/drainer/sink/mysql/test_lane_mariadb.py
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from drainer.checkpoint.safe_mode import SafeMode
from drainer.mysql.errors import Trouble
from drainer.mysql.refusal import Refusal
from drainer.mysql.rows.change import ROW, Change, Chunk, Position, TableTarget
from drainer.mysql.rows.statement import Statement
from tidb_binlog.errors import DownstreamError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import trace
from tidb_binlog.tso import Ts


class TooLarge(Exception):
    """A statement that the session's limit does not let through."""


class NotLogged(Exception):
    """The relay log takes long; rows are not to be locked downstream meanwhile."""


@dataclass(slots=True)
class Waiting:
    """What keeps a lane from working: since when (monotonic seconds), how often it tried."""

    trouble: Trouble
    reason: str
    since_s: float
    tries: int = 0


class Overwritten(Exception):
    """Rows took the place of others, or of each other: of which key, the upstream has to say."""

    def __init__(self, table: TableTarget) -> None:
        super().__init__(table.label)
        self.table = table


class Work:
    """A batch on its way: what it is made of, and what is known of its attempts."""

    def __init__(self, batch: list[Chunk], changes: list[Change], safe_mode: SafeMode) -> None:
        self.batch = batch
        self.changes = changes
        self.first_ts = batch[0].first_ts
        self.position: Position = batch[-1].position
        self.replaying = safe_mode.covers(self.first_ts)
        self.cut = any(chunk.cut for chunk in batch)
        self.prepared: list[Statement] | None = None
        self.in_doubt = False  # an earlier attempt may have been committed
        self.logging_s = 0.0  # waited for the relay log so far, which is no time of the downstream
        self.log_first = False  # the relay log is waited for before the first statement, not before COMMIT
        self.drift: list[tuple[str, int]] = []
        self.asked: set[str] = set()  # constraints that it broke
        self.about: set[str] = set()  # tables whose keys were asked about
        self.refusal: Refusal | None = None  # what it breaks for good
        self.removes_new = False  # rows may be there that TiDB calls new
        self.checks_at_once = False  # each statement says what it breaks, and not COMMIT

    @property
    def range_text(self) -> str:
        return _range(self.first_ts, self.position.commit_ts)

    @property
    def texts(self) -> list[tuple[str, str, int]]:
        """Table, column, values that its character set does not have."""
        return [
            (statement.table.label, column, values)
            for statement in self.prepared or ()
            for column, values in statement.foreign_text
        ]

    def range_of(self, change: Change) -> str:
        """The transactions of its chunk, most often one. Its table may have been read anew."""
        for chunk in self.batch:
            if any(each[ROW] is change[ROW] for each in chunk.changes):
                return _range(chunk.first_ts, chunk.position.commit_ts)
        return self.range_text

    def unfit(self, table: TableTarget | None, error: DownstreamError) -> DownstreamError:
        """As it is, the table takes none of the rows, for the reason in `error`."""
        if table is not None:
            self.refusal = Refusal(table, "", False, self.first_ts, self.position.commit_ts)
        return DownstreamError(f"{self.range_text}: {error.message}", hint=error.hint)

    def too_large(self, statement: Statement, needed: int, bytes_max: int) -> DownstreamError:
        label, packet = statement.table.label, -(-needed // (1 << 20)) << 20
        return self.unfit(
            statement.table,
            DownstreamError(
                f"a row of table {label} needs a statement of {needed} bytes, max_allowed_packet of the"
                f" downstream is {bytes_max}",
                hint=f"SET GLOBAL max_allowed_packet = {packet} there, then `binlogctl ddl retry JOB`, or"
                " start again where nothing may wait",
            ),
        )

    def ask_about(self, table: TableTarget) -> None:
        """Raises `Overwritten`, once for a table."""
        if table.label not in self.about:
            self.about.add(table.label)
            self.prepared = None
            raise Overwritten(table)


def trace_queued(lane: int, chunk: Chunk) -> None:
    """A chunk waits for its lane from now on."""
    if trace.is_on():
        what = {"rows": len(chunk.changes), "first_ts": chunk.first_ts, "last_ts": chunk.position.commit_ts}
        trace.waits("queued", f"lane-{lane} queue", f"{lane}:{chunk.sequence}", **what)


def traced(lane: int, batch: list[Chunk]) -> AbstractContextManager[None]:
    """A lane's work on a batch, which does not wait any more."""
    if not trace.is_on():
        return trace.span("")
    for chunk in batch:
        trace.waited("queued", f"lane-{lane} queue", f"{lane}:{chunk.sequence}")
    rows = sum(len(chunk.changes) for chunk in batch)
    first_ts, last_ts = batch[0].first_ts, batch[-1].position.commit_ts
    return trace.span("applies a batch", rows=rows, first_ts=first_ts, last_ts=last_ts)


def described(table: TableTarget | None) -> str:
    """A statement's table for an error; None: of the lane's own."""
    if table is None:
        return "the lane's position"
    key = ", ".join(column.name for column in table.sql.key_columns)
    return f"{table.label} (key {key})" if key else f"{table.label} (no key)"


def _range(first_ts: Ts, last_ts: Ts) -> str:
    if first_ts == last_ts:
        return f"transaction with commit_ts {last_ts}"
    return f"transactions with commit_ts {first_ts} to {last_ts}"

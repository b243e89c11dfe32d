"""Copier: one worker's session downstream, and how a chunk gets there, once.

Drives  a session of the upstream's snapshot, one of the downstream
Holds   a chunk's rows and its place in the stored progress commit together. After a lost connection or an
        ambiguous COMMIT the place says whether the chunk is there
        Only rows of the load are in a table that has chunks of another timestamp. One that stands in the way
        of a row of now is old, and goes: its chunk is set right when its turn comes, or has been without it
        Of a table that no key cuts the rows are committed in parts, and the place says BEGUN: it is emptied
        before the next try
        `shared`: other processes copy as well, and one of them may have been at this chunk, or still be: its
        session is ended first, and what is stored of the chunk decides. So a task that Spark does again does
        nothing twice
Order   a chunk that was copied at another timestamp is compared first, by checksums that both servers
        compute; one that differs is removed and copied in one transaction
Never   keeps more than a statement in memory, where the table is cut by a key more than a chunk
Tests   tests/drainer/points/load/test_load.py
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, Protocol

from drainer.checkpoint.load_progress import ChunkState, LoadProgress
from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.chunks.literal_rows import BYTES_MAX, LiteralSelect, NotLiteral
from drainer.mysql.connection import Connection, Target
from drainer.mysql.errors import (
    DUPLICATE,
    NOT_ALLOWED,
    SessionError,
    StatementRefused,
    Trouble,
    safe_text,
    trouble_of,
)
from drainer.mysql.literal.quoting import qualified
from drainer.mysql.rows.change import APPEND, PUT_INSERT, Change
from drainer.mysql.rows.row_fold import fold
from drainer.mysql.rows.statement import Statement, statements
from drainer.mysql.session import DownstreamSession
from drainer.points.load.table_copy import AGAIN, ALTERED, TableCopy, summed, unreadable
from drainer.points.snapshot.sessions import SnapshotLost, UpstreamSnapshot
from drainer.points.worker_pool import Ended
from drainer.txn import INSERT
from tidb_binlog.backoff import Backoff
from tidb_binlog.errors import Corruption, DownstreamError, Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.tso import Ts

logger = log.get("load")

TRIES_MAX: Final = 12
"""About half a minute; locks are waited for without a limit."""
PART_ROWS: Final = 20_000
_PACKET_SLACK_BYTES: Final = 4096
_STATEMENT_BYTES: Final = 1 << 20
Wait = Callable[[float], bool]
"""Wait so many seconds; true where the load is to end."""


@dataclass(frozen=True, slots=True)
class ChunkCopy:
    """`state` and `ts` are what is stored of the chunk: a copy at another timestamp may be there.
    `among_old`: other chunks of the table may be of another timestamp still, and have values of unique keys
    that rows of this one have got since."""

    table: TableCopy
    chunk: Chunk
    state: ChunkState
    ts: Ts
    among_old: bool = False


@dataclass(frozen=True, slots=True)
class Copied:
    """`compared`: the rows were there already, and are equal."""

    rows: int
    size_bytes: int
    compared: bool = False


class Spread(Protocol):
    """Copies chunks in other processes, as `Copier` does where it is shared."""

    @property
    def slots(self) -> int:
        """How many it copies at a time."""
        ...

    def copy(self, jobs: Sequence[ChunkCopy], wait: Wait) -> Sequence[Copied]:
        """What became of each, in their order. Blocks; from several threads. `wait` says true where all is to
        end. Raises as `Copier.copy`."""
        ...


class _Downstream(Exception):
    """An error of the downstream's session, on its way through a block of the upstream's."""

    def __init__(self, error: SessionError | Unavailable) -> None:
        super().__init__(str(error))
        self.error = error


class Copier:
    """Blocking; one thread's. `pace(rows, bytes)` waits until so much more may be written."""

    def __init__(
        self,
        snapshot: UpstreamSnapshot,
        target: Target,
        progress: LoadProgress,
        run: int,
        *,
        pace: Callable[[int, int], None],
        wait: Wait,
        log_values: bool = False,
        shared: bool = False,
    ) -> None:
        self._snapshot = snapshot
        self._target = target
        self._progress = progress
        self._run = run
        self._pace = pace
        self._wait = wait
        self._log_values = log_values
        self._shared = shared
        self._job: ChunkCopy | None = None  # the one under way, which a new session marks
        self._packet_max = 0
        self._session = DownstreamSession(target, self._prepare)
        self._rows = self._size = 0

    def close(self) -> None:
        self._session.close()

    def copy(self, job: ChunkCopy) -> Copied:
        """Raises `SnapshotLost`, `SnapshotTooOld`, `DownstreamError`, `Unavailable`, `Conflict`, `Ended`."""
        backoff, tries = Backoff(0.05, 5.0), 0
        slow, replacing = job.table.fast is None, False
        self._job, in_doubt = job, self._shared
        begun = self._shared and not job.table.writes_at_once
        while True:
            try:
                if in_doubt and (rows := self._copied_rows(job)) is not None:
                    return Copied(rows, self._size)
                return self._attempt(job, slow=slow, begun=begun, replacing=replacing)
            except NotLiteral:
                self._session.close()
                slow, begun = True, not job.table.writes_at_once
                continue
            except _Downstream as failed:
                error: SessionError | Unavailable = failed.error
                side = f"downstream {self._target!r}"
                self._session.close()
                in_doubt, begun = True, not job.table.writes_at_once
                if isinstance(error, StatementRefused):
                    if error.number == DUPLICATE and job.among_old and not replacing:
                        slow = replacing = True
                        continue
                    if slow or error.number == DUPLICATE:
                        raise self._refused(job, error) from None
                    logger.info("rows go the Drainer's way", table=job.table.source.label, why=error.number)
                    slow = True
                    continue
            except SnapshotLost:
                self._session.close()
                raise
            except (SessionError, Unavailable) as failed:
                error, side = failed, "upstream"
                self._session.close()
                begun = not job.table.writes_at_once
                if isinstance(error, StatementRefused):
                    if not slow and error.number not in (*ALTERED, *NOT_ALLOWED):
                        logger.info(
                            "rows are read one by one", table=job.table.source.label, why=error.number
                        )
                        slow = True
                        continue
                    raise unreadable(job.table.source.label, error) from None
            tries += trouble_of(error) is not Trouble.LOCK
            if tries >= TRIES_MAX:
                raise Unavailable(f"{side}: {safe_text(error)}", hint=AGAIN) from None
            if self._wait(backoff.next_s()):
                raise Ended

    def _attempt(self, job: ChunkCopy, *, slow: bool, begun: bool, replacing: bool) -> Copied:
        table, self._rows, self._size = job.table, 0, 0
        with self._snapshot.session() as source:
            is_known = job.state is ChunkState.COPIED and not slow
            if is_known and (rows := self._equal(source, job)) is not None:
                self._end(job, rows)
                return Copied(rows, 0, compared=True)
            if begun or job.state is ChunkState.BEGUN:
                self._empty(table)
            elif job.state is ChunkState.COPIED:
                self._execute(table.removal(job.chunk))
            if slow:
                self._by_rows(source, job, replacing=replacing)
            else:
                assert table.fast is not None
                self._by_literals(source, job, table.fast)
            self._end(job, self._rows)
        return Copied(self._rows, self._size)

    # -- both ways ------------------------------------------------------------------------------------

    def _by_literals(self, source: Connection, job: ChunkCopy, select: LiteralSelect) -> None:
        head = job.table.head
        bytes_max = min(BYTES_MAX, self._packet() - len(head))
        for some in select.read(source, job.chunk, bytes_max):
            self._pace(some.count, len(some.sql))
            enums = job.table.target.sql.enums
            written = self._lax(head + some.sql, enums) if some.lax else self._execute(head + some.sql)
            if written != some.count:
                raise NotLiteral
            self._wrote(job, some.count, len(some.sql))

    def _by_rows(self, source: Connection, job: ChunkCopy, *, replacing: bool) -> None:
        for rows in job.table.slow.read(source, job.chunk):
            for statement in self._statements(job, rows, replacing=replacing):
                size = len(statement.sql)
                if size >= self._packet():
                    raise DownstreamError(
                        f"a row of {job.table.target.label} needs a statement of {size} bytes, more than"
                        " max_allowed_packet of the downstream",
                        hint=f"raise max_allowed_packet there, then {AGAIN}",
                    )
                self._pace(0, size)
                if statement.lax:
                    self._lax(statement.sql, statement.table.sql.enums)
                else:
                    self._execute(statement.sql)
            self._pace(len(rows), 0)
            self._wrote(job, len(rows), sum(map(len, rows)))

    def _statements(self, job: ChunkCopy, rows: list[bytes], *, replacing: bool) -> Iterator[Statement]:
        target, edit, ts = job.table.target, job.table.source.edit, self._snapshot.ts
        changes: list[Change] = []
        try:
            for row in rows:
                event = (INSERT, row) if edit is None else edit.event(INSERT, row, ts)
                if event is None:
                    continue
                if target.keyed:
                    changes.append((target, PUT_INSERT, target.sql.insert_key(event[1]), event[1], 0))
                else:
                    changes.append((target, APPEND, b"", event[1], 0))
            yield from statements(fold(changes), min(_STATEMENT_BYTES, self._packet()), replaying=replacing)
        except RowError as error:
            raise Corruption(f"a row of {job.table.source.label}: {error.message}") from None

    def _equal(self, source: Connection, job: ChunkCopy) -> int | None:
        """How many rows the chunk has, if it is downstream as it is upstream; None if it is not, or nobody
        knows."""
        table = job.table
        if table.fast is None or not table.parts_alike:
            return None
        select = LiteralSelect.of(
            table.target.sql.stored_columns, table.downstream, table.downstream, table.key
        )
        if select is None:
            return None
        ((rows, *sum_),) = source.printed(summed(table.fast.row, table.fast.table, job.chunk))
        plain = qualified(table.downstream.schema, table.downstream.name)
        try:
            ((rows_there, *sum_there),) = self._session.open().printed(summed(select.row, plain, job.chunk))
        except (SessionError, Unavailable) as error:
            raise _Downstream(error) from None
        count = int(rows or 0)
        same = rows == rows_there and sum_ == sum_there and int(sum_[0] or 0) == count
        is_summed = None not in sum_ or not count
        return count if same and is_summed else None

    # -- downstream -----------------------------------------------------------------------------------

    def _prepare(self, connection: Connection) -> None:
        connection.keep_alive()
        if self._shared and self._job is not None:
            number, chunk = self._job.table.number, self._job.chunk.number
            self._progress.claim_chunk(connection, number, chunk, self._run)
        self._packet_max = connection.packet_bytes_max() - _PACKET_SLACK_BYTES

    def _packet(self) -> int:
        if not self._packet_max:
            self._open()
        return self._packet_max

    def _open(self) -> Connection:
        try:
            return self._session.open()
        except (SessionError, Unavailable) as error:
            raise _Downstream(error) from None

    def _execute(self, statement: bytes) -> int:
        connection = self._open()
        try:
            return connection.run(statement)
        except SessionError as error:
            raise _Downstream(error) from None

    def _lax(self, statement: bytes, enums: Collection[str]) -> int:
        connection = self._open()
        try:
            return connection.run_lax(statement, self._target.mode, enums)
        except SessionError as error:
            raise _Downstream(error) from None

    def _empty(self, table: TableCopy) -> None:
        self._execute(b"TRUNCATE TABLE " + table.target.name)

    def _wrote(self, job: ChunkCopy, rows: int, size: int) -> None:
        before = self._rows // PART_ROWS
        self._rows += rows
        self._size += size
        if not job.table.writes_at_once and self._rows // PART_ROWS > before:
            self._commit(job, ChunkState.BEGUN, self._rows)

    def _end(self, job: ChunkCopy, rows: int) -> None:
        self._commit(job, ChunkState.COPIED, rows)

    def _commit(self, job: ChunkCopy, state: ChunkState, rows: int) -> None:
        connection, number, chunk = self._open(), job.table.number, job.chunk.number
        try:
            ts = self._snapshot.ts
            self._progress.set_chunk(connection, number, chunk, self._run, state, ts=ts, rows=rows)
            connection.commit()
        except SessionError as error:
            raise _Downstream(error) from None

    def _copied_rows(self, job: ChunkCopy) -> int | None:
        """Of a chunk that is there, by a COMMIT without an answer or by another process; None: it is not."""
        try:
            connection = self._session.open()
            stored = self._progress.chunk(connection, job.table.number, job.chunk.number)
            connection.rollback()
        except (SessionError, Unavailable) as error:
            raise _Downstream(error) from None
        is_copied = stored is not None and stored.state is ChunkState.COPIED
        return stored.rows if stored is not None and is_copied and stored.ts == self._snapshot.ts else None

    def _refused(self, job: ChunkCopy, error: StatementRefused) -> DownstreamError:
        said = safe_text(error, values=self._log_values)
        hint = f"correct the downstream, then {AGAIN}"
        if error.number == DUPLICATE:
            hint = (
                "a row with this key is there already, of another table or program: remove it there, or leave"
                " the table out; then run the same command again"
            )
        return DownstreamError(f"rows of {job.table.source.label}: downstream says {said}", hint=hint)

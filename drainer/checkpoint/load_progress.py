"""Load progress: how far a load of existing rows has come, stored downstream beside the checkpoint.

    load_state   cluster_id, run, phase, ts, mode, program
    load_tables  cluster_id, number, source, target, definition, made, state
    load_chunks  cluster_id, number, chunk, run, ts, state, row_count, bounds

Holds   a chunk's row changes in the transaction of its rows. A start writes a new `run` into every row, and
        every transaction names its own: of two loads only the newer one commits, whatever the older believes
Why     only the downstream can say which rows it has. While a load is not `DONE`, it has parts of tables: a
        Drainer that started there would go on from nowhere (`refuse_unfinished`)
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from drainer.mysql.connection import Connection
from drainer.mysql.literal.quoting import qualified, quote_name, string_literal
from drainer.mysql.session_lock import Claims
from tidb_binlog import time_text
from tidb_binlog.errors import Conflict, Rejected
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.tso import Ts

LOADING: Final = "loading"
DONE: Final = "done"
JOINING: Final = "joining"
"""Some tables are loaded beside a Drainer, which goes on with it by itself."""
GIVEN_UP: Final = "given up"
"""It had begun to write these tables, and is not wanted any more: they are made anew, without rows."""
LOAD_ROLE: Final = "load"
"""Role of the session that a load holds as long as it runs (`mysql/session_lock.py`)."""
_STATEMENT_ROWS: Final = 500
_CREATE: Final = (
    b"CREATE TABLE IF NOT EXISTS %s (cluster_id BIGINT UNSIGNED PRIMARY KEY, run BIGINT NOT NULL,"
    b" phase VARCHAR(16) NOT NULL, ts BIGINT NOT NULL, mode VARCHAR(16) NOT NULL,"
    b" program VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL) ENGINE=InnoDB",
    b"CREATE TABLE IF NOT EXISTS %s (cluster_id BIGINT UNSIGNED NOT NULL, number INT NOT NULL,"
    b" source_schema VARCHAR(64) CHARACTER SET utf8mb4 NOT NULL,"
    b" source_name VARCHAR(64) CHARACTER SET utf8mb4 NOT NULL,"
    b" target_schema VARCHAR(64) CHARACTER SET utf8mb4 NOT NULL,"
    b" target_name VARCHAR(64) CHARACTER SET utf8mb4 NOT NULL, definition VARCHAR(64) NOT NULL,"
    b" made TINYINT NOT NULL, state TINYINT NOT NULL, PRIMARY KEY (cluster_id, number)) ENGINE=InnoDB",
    b"CREATE TABLE IF NOT EXISTS %s (cluster_id BIGINT UNSIGNED NOT NULL, number INT NOT NULL,"
    b" chunk INT NOT NULL, run BIGINT NOT NULL, ts BIGINT NOT NULL, state TINYINT NOT NULL,"
    b" row_count BIGINT NOT NULL, bounds LONGTEXT CHARACTER SET utf8mb4 NOT NULL,"
    b" PRIMARY KEY (cluster_id, number, chunk)) ENGINE=InnoDB",
)
NAMES: Final = ("load_state", "load_tables", "load_chunks")


class TableState(IntEnum):
    """PLANNED: nothing is done yet. READY: it is there downstream, its chunks are cut and copied."""

    PLANNED = 0
    READY = 1


class ChunkState(IntEnum):
    """BEGUN: some of its rows may be downstream, committed before the last of them."""

    PLANNED = 0
    BEGUN = 1
    COPIED = 2


@dataclass(frozen=True, slots=True)
class LoadState:
    """`run` is a timestamp of the upstream, drawn when this load or its last continuation began; `ts` the one
    at which everything is read, 0 before it is known. `program`: node id of the drainer it is for."""

    run: int
    phase: str
    ts: Ts
    mode: str
    program: str

    @property
    def is_unfinished(self) -> bool:
        """Says that the load goes on with the next start, and that no Drainer may begin before its end."""
        return self.phase == LOADING


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """`definition`: digest of what the upstream had at the load's timestamp. `is_new`: the load made the
    table, and so may drop it."""

    number: int
    source: tuple[str, str]
    target: tuple[str, str]
    definition: str
    is_new: bool
    state: TableState


@dataclass(frozen=True, slots=True)
class LoadedChunk:
    """`bounds` as the splitter writes them; `ts`: what it was copied at."""

    chunk: int
    ts: Ts
    state: ChunkState
    rows: int
    bounds: str


class LoadProgress:
    """Statements on one cluster's rows. Holds nothing but names: any thread, any connection."""

    def __init__(self, schema: str, cluster_id: int) -> None:
        self._schema = schema
        self._cluster_id = cluster_id
        self._state, self._tables, self._chunks = (qualified(schema, name) for name in NAMES)
        self._mine = b" WHERE cluster_id=%d" % cluster_id

    def create(self, connection: Connection) -> None:
        """The tables, where they are not there; that ends the transaction."""
        connection.run(b"CREATE DATABASE IF NOT EXISTS " + quote_name(self._schema))
        for statement, name in zip(_CREATE, NAMES, strict=True):
            connection.run(statement % qualified(self._schema, name))

    # -- the load ------------------------------------------------------------------------------------

    def state(self, connection: Connection) -> LoadState | None:
        """None: no load has begun. Neither the tables nor the schema need to be there."""
        (rows,) = connection.rows_if_there(
            b"SELECT run, phase, ts, mode, program FROM " + self._state + self._mine
        )
        if not rows:
            return None
        run, phase, ts, mode, program = rows[0]
        return LoadState(int(run), str(phase), int(ts), str(mode), str(program))

    def put_state(self, connection: Connection, state: LoadState) -> None:
        """Store how far the load is; the caller commits, here and below."""
        connection.run(
            b"REPLACE INTO %s (cluster_id, run, phase, ts, mode, program) VALUES (%d,%d,%s,%d,%s,%s)"
            % (
                self._state,
                self._cluster_id,
                state.run,
                string_literal(state.phase),
                state.ts,
                string_literal(state.mode),
                string_literal(state.program),
            )
        )

    def take_over(self, connection: Connection, state: LoadState) -> None:
        """`put_state` of a new run. Waits for transactions of an older one that are under way: their commits
        then count. Raises `Conflict` where a load beside a Drainer was given up, or is over."""
        if state.phase != LOADING:
            rows = connection.rows(b"SELECT phase FROM " + self._state + self._mine + b" FOR UPDATE")
            if not rows or str(rows[0][0]) != state.phase:
                raise self._taken_over()
        self.put_state(connection, state)
        connection.run(b"UPDATE %s SET run=%d" % (self._chunks, state.run) + self._mine)

    def hold(self, connection: Connection, run: int) -> None:
        """For transactions about more than one chunk: this load is still the newest one, and stays so until
        the end of it. Raises `Conflict`."""
        rows = connection.rows(b"SELECT run, phase FROM " + self._state + self._mine + b" FOR UPDATE")
        if not rows or int(rows[0][0]) != run or str(rows[0][1]) == DONE:
            raise self._taken_over()

    def claim_chunk(self, connection: Connection, number: int, chunk: int, run: int) -> None:
        """Mark a session that copies one chunk where other processes do so, too: what is left of an earlier
        try is ended. Raises `Conflict` where a newer load took over."""

        def check_ours() -> None:
            state = self.state(connection)
            connection.rollback()
            if state is None or state.run != run or not state.is_unfinished:
                raise self._taken_over()

        claims = Claims(self._schema, self._cluster_id)
        claims.reclaim(connection, f"{LOAD_ROLE}-{number}-{chunk}", check_ours)

    def _taken_over(self) -> Conflict:
        return Conflict(
            f"another load of cluster {self._cluster_id} took over",
            hint="leave this one stopped, or stop the other one and run the command again",
        )

    def give_up(self, connection: Connection, run: int) -> bool:
        """No load beside a Drainer stores anything any more but a newer run. True: it had begun to write
        tables, and they are to be made anew; false: it had not, and nothing is known of it. Raises `Rejected`
        where there is none."""
        locked = connection.rows(b"SELECT phase FROM " + self._state + self._mine + b" FOR UPDATE")
        state = self.state(connection) if locked else None
        if state is None or state.phase not in (JOINING, GIVEN_UP):
            raise Rejected("rows of these tables are loaded already", hint="there is nothing to give up")
        has_begun = state.phase == GIVEN_UP or bool(self.tables(connection))
        self.clear(connection)
        if has_begun:
            self.put_state(connection, replace(state, run=run, phase=GIVEN_UP))
        return has_begun

    def end(self, connection: Connection, run: int) -> None:
        """A load beside a Drainer is over. Raises `Conflict` where it is another one's by now."""
        self.hold(connection, run)
        self.clear(connection)

    def clear(self, connection: Connection) -> None:
        """Nothing is known of any load."""
        for name in (self._chunks, self._tables, self._state):
            connection.run(b"DELETE FROM " + name + self._mine)

    # -- tables --------------------------------------------------------------------------------------

    def tables(self, connection: Connection) -> list[LoadedTable]:
        """Reads the tables of the load, in their order."""
        rows = connection.rows(
            b"SELECT number, source_schema, source_name, target_schema, target_name, definition, made, state"
            b" FROM " + self._tables + self._mine + b" ORDER BY number"
        )
        return [
            LoadedTable(
                int(number),
                (str(names[0]), str(names[1])),
                (str(names[2]), str(names[3])),
                str(definition),
                bool(is_new),
                TableState(int(state)),
            )
            for number, *names, definition, is_new, state in rows
        ]

    def put_tables(self, connection: Connection, tables: Iterable[LoadedTable]) -> None:
        """Store tables of the load."""
        rows = [
            b"(%d,%d,%s,%s,%s,%d,%d)"
            % (
                self._cluster_id,
                table.number,
                b",".join(map(string_literal, table.source)),
                b",".join(map(string_literal, table.target)),
                string_literal(table.definition),
                table.is_new,
                table.state,
            )
            for table in tables
        ]
        self._put(connection, self._tables, rows)

    def set_table(self, connection: Connection, number: int, state: TableState) -> None:
        """Store the state of one table."""
        connection.run(
            b"UPDATE %s SET state=%d" % (self._tables, state) + self._mine + b" AND number=%d" % number
        )

    def forget_table(self, connection: Connection, number: int) -> None:
        """Remove a table and its chunks."""
        self.forget_chunks(connection, number)
        connection.run(b"DELETE FROM " + self._tables + self._mine + b" AND number=%d" % number)

    def forget_chunks(self, connection: Connection, number: int) -> None:
        """Remove the chunks of a table."""
        connection.run(b"DELETE FROM " + self._chunks + self._mine + b" AND number=%d" % number)

    # -- chunks --------------------------------------------------------------------------------------

    def chunks(self, connection: Connection, number: int) -> list[LoadedChunk]:
        """Of one table, in their order."""
        return self._read_chunks(connection, b" AND number=%d ORDER BY chunk" % number)

    def chunk(self, connection: Connection, number: int, chunk: int) -> LoadedChunk | None:
        """Reads one chunk; None: it is not stored."""
        chunks = self._read_chunks(connection, b" AND number=%d AND chunk=%d" % (number, chunk))
        return chunks[0] if chunks else None

    def _read_chunks(self, connection: Connection, which: bytes) -> list[LoadedChunk]:
        stored = connection.rows(
            b"SELECT chunk, ts, state, row_count, bounds FROM " + self._chunks + self._mine + which
        )
        return [
            LoadedChunk(int(chunk), int(ts), ChunkState(int(state)), int(rows), str(bounds))
            for chunk, ts, state, rows, bounds in stored
        ]

    def put_chunks(
        self, connection: Connection, number: int, run: int, bounds: Iterable[tuple[int, str]]
    ) -> None:
        """More chunks of a table, by their numbers, none copied."""
        rows = [
            b"(%d,%d,%d,%d,0,%d,0,%s)"
            % (self._cluster_id, number, chunk, run, ChunkState.PLANNED, string_literal(text))
            for chunk, text in bounds
        ]
        self._put(connection, self._chunks, rows)

    def set_chunk(
        self,
        connection: Connection,
        number: int,
        chunk: int,
        run: int,
        state: ChunkState,
        *,
        ts: Ts,
        rows: int,
    ) -> None:
        """In the transaction of the rows. Raises `Conflict` where a newer load took over."""
        matched = connection.run(
            b"UPDATE %s SET state=%d, ts=%d, row_count=%d" % (self._chunks, state, ts, rows)
            + self._mine
            + b" AND number=%d AND chunk=%d AND run=%d" % (number, chunk, run)
        )
        if matched != 1:
            raise self._taken_over()

    def begun(self, connection: Connection) -> frozenset[int]:
        """Tables of which some rows may be downstream."""
        numbers = connection.rows(
            b"SELECT DISTINCT number FROM %s" % self._chunks
            + self._mine
            + b" AND state<>%d" % ChunkState.PLANNED
        )
        return frozenset(int(number) for (number,) in numbers)

    def _put(self, connection: Connection, table: bytes, rows: list[bytes]) -> None:
        for at in range(0, len(rows), _STATEMENT_ROWS):
            connection.run(
                b"REPLACE INTO " + table + b" VALUES " + b",".join(rows[at : at + _STATEMENT_ROWS])
            )


def refuse_unfinished(state: LoadState | None) -> None:
    """For who would work on the checkpoint. Raises `Rejected`."""
    if state is not None and state.is_unfinished:
        raise Rejected(
            "the downstream is only partly loaded: a load that began at"
            f" {time_text.utc(state.run)} has not come to its end",
            hint="`binlogctl load -drainer-config FILE` goes on where it stopped; then a Drainer can start",
        )

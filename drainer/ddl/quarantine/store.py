"""Quarantine table: what waits for a decision and what was decided, stored in the downstream.

    tidb_binlog.quarantine     a row for each DDL that waits (`quarantine.Entry`), with up to where its tables
                               are applied: release moves that in the transaction that carries the rows
    tidb_binlog.ddl_decisions  every decision: what, about which job, when, asked from where, the outcome

Drives  nothing: every method works inside the caller's transaction, on the caller's connection
Holds   an UPDATE changes only the columns it is about, for release moves `applied_*` at the same time on a
        connection of its own. Rows carry the epoch: who has been taken over matches none
Tests   tests/drainer/ddl/quarantine/test_controller.py, tests/drainer/checkpoint/test_committed.py
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from drainer.checkpoint.fencing import Fence
from drainer.checkpoint.lane_table import LaneTable
from drainer.ddl.quarantine.entry import Decision, Entry, Floor, Name
from drainer.mysql.connection import Connection
from drainer.mysql.errors import NO_SUCH_TABLE, SessionError
from drainer.mysql.literal.quoting import qualified, string_literal
from drainer.mysql.rows.change import Position
from tidb_binlog.foreign_document import typed
from tidb_binlog.late_dataclass import dataclass

_CREATE_QUARANTINE: Final = (
    b"CREATE TABLE IF NOT EXISTS %s (cluster_id BIGINT UNSIGNED NOT NULL, job_id BIGINT NOT NULL,"
    b" epoch BIGINT NOT NULL, commit_ts BIGINT NOT NULL, floor_ts BIGINT NOT NULL,"
    b" schema_version BIGINT NOT NULL, applied_ts BIGINT NOT NULL, applied_rows BIGINT NOT NULL,"
    b" `tables` MEDIUMTEXT NOT NULL, `query` MEDIUMTEXT NOT NULL, reason TEXT NOT NULL,"
    b" since DATETIME(3) NOT NULL,"
    b" decision VARCHAR(16) NOT NULL, decision_text MEDIUMTEXT NOT NULL, decision_number BIGINT NOT NULL,"
    b" shape MEDIUMTEXT NOT NULL, intent_ts BIGINT NOT NULL, intent MEDIUMTEXT NOT NULL,"
    b" PRIMARY KEY (cluster_id, job_id)) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"
)
_CREATE_DECISIONS: Final = (
    b"CREATE TABLE IF NOT EXISTS %s (cluster_id BIGINT UNSIGNED NOT NULL, number BIGINT NOT NULL,"
    b" job_id BIGINT NOT NULL, decided DATETIME(3) NOT NULL, asked_from VARCHAR(255) NOT NULL,"
    b" decision VARCHAR(16) NOT NULL, decision_text MEDIUMTEXT NOT NULL, outcome TEXT NOT NULL,"
    b" PRIMARY KEY (cluster_id, number)) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"
)
_COLUMNS: Final = (
    b"job_id, commit_ts, floor_ts, schema_version, applied_ts, applied_rows, `tables`, `query`, reason,"
    b" since, decision, decision_text, decision_number, shape, intent_ts, intent"
)
_REASON_CHARS_MAX: Final = 4000
_EPOCH: Final = datetime.datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Decided:
    """A row of `ddl_decisions`. `asked_from`: the address that asked, or what in this drainer decided."""

    number: int
    job_id: int
    decided_ms: int
    asked_from: str
    action: str
    text: str = ""
    outcome: str = ""


class QuarantineTable:
    """The two tables of one cluster, for the drainer with this epoch."""

    def __init__(self, schema: str, cluster_id: int, epoch: int) -> None:
        self._schema = schema
        self._cluster_id = cluster_id
        self._epoch = epoch
        self._fence = Fence(cluster_id, epoch)
        self._quarantine = qualified(schema, "quarantine")
        self._decisions = qualified(schema, "ddl_decisions")

    def claim_entries(self, connection: Connection, *, foreign: bool) -> list[Entry]:
        """Make the tables if there are none; the entries, which belong to this epoch from now on.

        `foreign`: another program has gone on from the checkpoint since, so what waits is outdated.
        """
        try:
            self._take(connection)
        except SessionError as error:
            if error.number != NO_SUCH_TABLE:
                raise
            connection.run(_CREATE_DECISIONS % self._decisions)
            connection.run(_CREATE_QUARANTINE % self._quarantine)  # the last: where it is, both are
            self._take(connection)
        if foreign:
            connection.run(b"DELETE FROM %s WHERE %s" % (self._quarantine, self._mine))
            return []
        rows = connection.rows(
            b"SELECT " + _COLUMNS + b" FROM %s WHERE %s ORDER BY commit_ts" % (self._quarantine, self._mine),
        )
        return [_entry(row) for row in rows]

    def _take(self, connection: Connection) -> None:
        # Waits for a transaction that an older drainer's release has under way; its commit then counts.
        connection.run(
            b"UPDATE %s SET epoch=%d WHERE cluster_id=%d" % (self._quarantine, self._epoch, self._cluster_id),
        )

    @property
    def _mine(self) -> bytes:
        return b"cluster_id=%d AND epoch=%d" % (self._cluster_id, self._epoch)

    # -- entries --------------------------------------------------------------------------------------

    def put(self, connection: Connection, entry: Entry, instead_of: Iterable[int] = ()) -> None:
        """The whole entry; those of the jobs in `instead_of` go."""
        self.remove(connection, [*instead_of, entry.job_id])
        values = (
            b"%d" % self._cluster_id,
            b"%d" % self._epoch,
            b"%d" % entry.job_id,
            b"%d" % entry.commit_ts,
            b"%d" % entry.floor.commit_ts,
            b"%d" % entry.floor.schema_version,
            b"%d" % entry.position.commit_ts,
            b"%d" % entry.position.rows,
            _json([[*name, since] for name, since in entry.tables.items()]),
            _text(entry.query),
            _text(entry.reason[:_REASON_CHARS_MAX]),
            _datetime(entry.since_ms),
            *_decision(entry.decision),
            _json(dict(entry.before)),
            b"%d" % entry.intent_ts,
            _json(dict(entry.intent)),
        )
        connection.run(
            b"INSERT INTO %s (cluster_id, epoch, " % self._quarantine
            + _COLUMNS
            + b") VALUES ("
            + b",".join(values)
            + b")",
        )

    def put_tables(self, connection: Connection, entry: Entry) -> None:
        """More tables wait for it."""
        tables = _json([[*name, since] for name, since in entry.tables.items()])
        self._set(connection, entry.job_id, b"`tables`=" + tables)

    def put_commit_ts(self, connection: Connection, job_id: int, commit_ts: int) -> None:
        """Of a load that was given up."""
        self._set(connection, job_id, b"commit_ts=%d" % commit_ts)

    def put_decision(self, connection: Connection, entry: Entry) -> None:
        action, text, number = _decision(entry.decision)
        self._set(
            connection,
            entry.job_id,
            b"decision=" + action + b", decision_text=" + text + b", decision_number=" + number,
        )

    def put_intent(self, connection: Connection, entry: Entry) -> None:
        """A DDL of the entry's queue is about to run."""
        intent = b"intent_ts=%d, intent=" % entry.intent_ts + _json(dict(entry.intent))
        self._set(connection, entry.job_id, intent)

    def advance(self, connection: Connection, job_ids: Collection[int], position: Position) -> None:
        """Their tables are applied up to there; the intent of a DDL that is to come stays.

        `Conflict` if a newer drainer owns the entries."""
        if not job_ids:
            return
        jobs, at = b",".join(b"%d" % job_id for job_id in job_ids), position.commit_ts
        matched = connection.run(
            b"UPDATE %s SET applied_ts=%d, applied_rows=%d, intent=IF(intent_ts>%d, intent, '{}'),"
            b" intent_ts=IF(intent_ts>%d, intent_ts, 0) WHERE %s AND job_id IN (%s)"
            % (self._quarantine, at, position.rows, at, at, self._mine, jobs),
        )
        if matched != len(job_ids):
            raise self._fence.taken_over()

    def positions(
        self, connection: Connection, job_ids: Collection[int], *, lock: bool = False
    ) -> list[Position]:
        """`lock`: wait for a transaction that moves them."""
        jobs = b",".join(b"%d" % job_id for job_id in job_ids)
        stored = connection.rows(
            b"SELECT applied_ts, applied_rows FROM %s WHERE %s AND job_id IN (%s)%s"
            % (self._quarantine, self._mine, jobs, b" FOR UPDATE" if lock else b""),
        )
        if len(stored) != len(job_ids):
            raise self._fence.taken_over()
        return [Position(int(ts), int(rows)) for ts, rows in stored]

    def stored_positions(self, connection: Connection) -> dict[int, Position]:
        """By job, of all entries that are ours."""
        (stored,) = connection.rows_if_there(
            b"SELECT job_id, applied_ts, applied_rows FROM %s WHERE %s" % (self._quarantine, self._mine),
        )
        return {int(job): Position(int(ts), int(rows)) for job, ts, rows in stored}

    def remove(self, connection: Connection, job_ids: Iterable[int]) -> None:
        jobs = b",".join(b"%d" % job_id for job_id in job_ids)
        connection.run(b"DELETE FROM %s WHERE %s AND job_id IN (%s)" % (self._quarantine, self._mine, jobs))

    def _set(self, connection: Connection, job_id: int, settings: bytes) -> None:
        matched = connection.run(b"UPDATE %s SET " % self._quarantine + settings + b" WHERE " + self._mine
            + b" AND job_id=%d" % job_id,
        )  # fmt: skip
        if matched != 1:
            raise self._fence.taken_over()

    # -- decisions ------------------------------------------------------------------------------------

    def decided(self, connection: Connection, decided: Decided) -> None:
        """Write it down; again changes nothing but the outcome."""
        connection.run(
            b"REPLACE INTO %s (cluster_id, number, job_id, decided, asked_from, decision, decision_text,"
            b" outcome) VALUES (%d, %d, %d, "
            % (self._decisions, self._cluster_id, decided.number, decided.job_id)
            + b",".join(
                (
                    _datetime(decided.decided_ms),
                    _text(decided.asked_from[:255]),
                    _text(decided.action),
                    _text(decided.text),
                    _text(decided.outcome),
                )
            )
            + b")",
        )

    def outcome(self, connection: Connection, number: int, outcome: str) -> None:
        connection.run(b"UPDATE %s SET outcome=" % self._decisions + _text(outcome[:_REASON_CHARS_MAX])
            + b" WHERE cluster_id=%d AND number=%d" % (self._cluster_id, number),
        )  # fmt: skip

    def last_number(self, connection: Connection) -> int:
        """Of the decisions; 0 for none."""
        ((number,),) = connection.rows(
            b"SELECT COALESCE(MAX(number), 0) FROM %s WHERE cluster_id=%d"
            % (self._decisions, self._cluster_id),
        )
        return int(number)

    def decisions(self, connection: Connection, limit: int) -> list[Decided]:
        """The newest ones, newest first."""
        rows = connection.rows(
            b"SELECT number, job_id, decided, asked_from, decision, decision_text, outcome FROM %s"
            b" WHERE cluster_id=%d ORDER BY number DESC LIMIT %d"
            % (self._decisions, self._cluster_id, limit),
        )
        return [
            Decided(
                int(number), int(job), _milliseconds(decided), str(who), str(action), str(text), str(outcome)
            )
            for number, job, decided, who, action, text, outcome in rows
        ]


@dataclass(frozen=True, slots=True)
class ReleaseTable(LaneTable):
    """The lane table as a release lane sees it: its position is that of a queue's entries.

    `entries` are those that stand before what the lane applies, with their positions: one that was released
    further before it joined the queue is only moved on from where it is.
    """

    table: QuarantineTable
    entries: Sequence[tuple[int, Position]]

    def advance(self, connection: Connection, lane: int, position: Position) -> None:
        self._compare(connection, lane)
        jobs = [job_id for job_id, reached in self.entries if reached.order_key() < position.order_key()]
        self.table.advance(connection, jobs, position)

    def position(self, connection: Connection, lane: int, *, lock: bool = False) -> Position:
        jobs = [job_id for job_id, _ in self.entries]
        return min(self.table.positions(connection, jobs, lock=lock), key=Position.order_key)

    def check(self, connection: Connection, lane: int) -> None:
        state = qualified(self.schema, "drainer_state")
        query = b"SELECT epoch FROM %s WHERE cluster_id=%d" % (state, self.cluster_id)
        ((*epochs,),) = connection.rows_if_there(query)
        self._fence.check_epoch(max((int(epoch) for (epoch,) in epochs), default=None))
        self._compare(connection, lane)
        connection.rollback()

    def _compare(self, connection: Connection, lane: int) -> None:
        """No entry is less far than it was when the lane began, or than the lane has committed since."""
        stored = self.table.stored_positions(connection)
        committed = self.committed.of(lane)
        for job_id, reached in self.entries:
            confirmed = reached if committed is None else max(reached, committed, key=Position.order_key)
            self._fence.check_position(f"waiting DDL job {job_id}", confirmed, stored.get(job_id))


def _entry(row: tuple[Any, ...]) -> Entry:
    (job_id, commit_ts, floor_ts, version, applied_ts, applied_rows, tables, query, reason, since,
     action, text, number, shape, intent_ts, intent) = row  # fmt: skip
    what = f"entry of DDL job {job_id} in the quarantine table"
    waiting: dict[Name, int] = {
        (schema, table): since_ts
        for schema, table, since_ts in typed(tables, list[tuple[str, str, int]], what)
    }
    return Entry(
        job_id=int(job_id),
        commit_ts=int(commit_ts),
        floor=Floor(int(floor_ts), int(version)),
        tables=waiting,
        position=Position(int(applied_ts), int(applied_rows)),
        query=str(query),
        reason=str(reason),
        since_ms=_milliseconds(since),
        decision=Decision(str(action), str(text), int(number)) if action else None,
        before=typed(shape, dict[str, str | None], what),
        intent_ts=int(intent_ts),
        intent=typed(intent, dict[str, str | None], what),
    )


def _decision(decision: Decision | None) -> tuple[bytes, bytes, bytes]:
    if decision is None:
        return b"''", b"''", b"0"
    return _text(decision.action), _text(decision.text), b"%d" % decision.number


def _text(text: str) -> bytes:
    """Octets that are no UTF-8 (of an upstream statement) are shown as such, not stored."""
    return string_literal(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


def _json(value: Any) -> bytes:
    return string_literal(json.dumps(value))


def _datetime(ms: int) -> bytes:
    return b"'" + str(_EPOCH + datetime.timedelta(milliseconds=ms)).encode() + b"'"


def _milliseconds(time: datetime.datetime) -> int:
    return int((time - _EPOCH) / datetime.timedelta(milliseconds=1))

"""Job: progress of a replay, kept downstream: what was frozen, which steps are done, which chunks written.

Holds   a chunk's row of `spark_progress` moves in the transaction that carries the chunk's rows, under a lock
        on it: of two tasks that write the same chunk one waits, finds it written and leaves it. A job's range
        is what it was when the job began; resuming it with another one is refused
        A server that went back in time to before the job, or the step, takes none of its chunks
Never   trusts what tasks report: rows are counted here
Tests   tests/spark/replay/test_entry.py

    spark_jobs      one row a job: what is frozen, the step at hand, the DDL under way, tables written apart
    spark_progress  one row a bucket of a phase of a step: the next chunk, rows so far
    spark_left_out  one row a table of a chunk that was written without it, since its rows were refused
    findings        what the downstream has otherwise than the job expects (`job_findings`)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from hashlib import blake2b
from typing import Final, NamedTuple

from drainer.checkpoint.job_findings import ROWS, TEXTS, JobFindings
from drainer.checkpoint.value import Intent
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import NoSuchTable
from drainer.mysql.literal.quoting import qualified, quote_name, string_literal
from tidb_binlog.errors import Conflict, Unavailable
from tidb_binlog.late_dataclass import asdict, dataclass, replace

SCHEMA: Final = "tidb_binlog"
JOBS: Final = qualified(SCHEMA, "spark_jobs")
PROGRESS: Final = qualified(SCHEMA, "spark_progress")
LEFT_OUT: Final = qualified(SCHEMA, "spark_left_out")
WENT_BACK: Final = "the downstream went back in time"
AGAIN: Final = "run the same command again: it goes on from what is there"
_KEY_MAX: Final = 64
_ENDING_S: Final = 2  # a session that has just been closed may still hold its lock
_TABLES: Final = (
    b"CREATE TABLE IF NOT EXISTS " + JOBS + b" (job VARCHAR(64) CHARACTER SET ascii NOT NULL PRIMARY KEY,"
    b" frozen MEDIUMTEXT NOT NULL, step BIGINT NOT NULL DEFAULT 0, intent MEDIUMTEXT,"
    b" apart MEDIUMTEXT, done TINYINT NOT NULL DEFAULT 0,"
    b" updated TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP) ENGINE=InnoDB",
    b"CREATE TABLE IF NOT EXISTS " + PROGRESS + b" (job VARCHAR(64) CHARACTER SET ascii NOT NULL,"
    b" step BIGINT NOT NULL, phase INT NOT NULL, bucket INT NOT NULL, next_chunk BIGINT NOT NULL DEFAULT 0,"
    b" row_count BIGINT NOT NULL DEFAULT 0, drift BIGINT NOT NULL DEFAULT 0,"
    b" PRIMARY KEY (job, step, phase, bucket)) ENGINE=InnoDB",
    b"CREATE TABLE IF NOT EXISTS " + LEFT_OUT + b" (job VARCHAR(64) CHARACTER SET ascii NOT NULL,"
    b" step BIGINT NOT NULL, phase INT NOT NULL, bucket INT NOT NULL, chunk BIGINT NOT NULL,"
    b" fold BIGINT NOT NULL, reason TEXT CHARACTER SET utf8mb4 NOT NULL,"
    b" PRIMARY KEY (job, step, phase, bucket, chunk, fold)) ENGINE=InnoDB",
)
_REASON_CHARS_MAX: Final = 2000
_LATE: Final = "late"
"""Rows by step that go when all others are there."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """What a job is about. Everything that decides which row is in which chunk is in it.

    `asked_stop`: `stop` as it was asked for, 0 for all there is. `first`: the first segment that is read, -1
    for none. `buckets`: of every step, 0 where rows are written by the driver.
    """

    archive: str
    kind: str
    start: int
    stop: int
    asked_stop: int
    tables: tuple[str, ...]
    chunk_rows: int
    safe: bool
    first: int = -1
    buckets: tuple[int, ...] = ()
    damage: str = "fail"
    time_zone: str = "UTC"
    form: int = 2  # of buckets and chunks: a change of theirs is another number

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Frozen:
        document = json.loads(text)
        lists = {name: tuple(document[name]) for name in ("tables", "buckets")}
        return cls(**{**document, **lists})


@dataclass(frozen=True, slots=True)
class JobState:
    """How far a job is. `resumed`: it was begun before."""

    frozen: Frozen
    step: int
    intent: Intent | None
    done: bool
    resumed: bool


def findings_of(job: str) -> JobFindings:
    """Those of a job, over all its lives."""
    return JobFindings(SCHEMA, int.from_bytes(blake2b(job.encode(), digest_size=8).digest(), "big"))


@dataclass(frozen=True, slots=True)
class Bucket:
    """Chunks of it are written in their order, each once."""

    job: str
    step: int
    phase: int
    number: int

    def leave_out(self, connection: Connection, chunk: int, table: int, reason: str) -> None:
        """Chunk `chunk` is written without rows of a table; to be called in that transaction."""
        place = (string_literal(self.job), self.step, self.phase, self.number, chunk, table)
        values = b"%b,%d,%d,%d,%d,%d," % place + string_literal(reason[:_REASON_CHARS_MAX])
        connection.run(b"INSERT INTO " + LEFT_OUT + b" VALUES (" + values + b")")

    def note(
        self, connection: Connection, drift: Mapping[str, int], texts: Mapping[str, int], late_rows: int = 0
    ) -> None:
        """What a chunk brought to light, by table and by column, and of how many rows it is left to do; to be
        called in its transaction."""
        late = {str(self.step): late_rows} if late_rows else {}
        for kind, counts in ((ROWS, drift), (TEXTS, texts), (_LATE, late)):
            findings_of(self.job).count(connection, self.number, kind, counts.items())

    @property
    def where(self) -> bytes:
        return b" WHERE job=%b AND step=%d AND phase=%d AND bucket=%d" % (
            string_literal(self.job),
            self.step,
            self.phase,
            self.number,
        )

    def next_chunk(self, connection: Connection) -> int:
        """Which chunk comes next; others read it only after our transaction ends."""
        query = b"SELECT next_chunk FROM " + PROGRESS + self.where + b" FOR UPDATE"
        rows = connection.rows(query)
        if not rows:
            place = string_literal(self.job), self.step
            values = b"SELECT job,step,%d,%d FROM %b" % (self.phase, self.number, JOBS)
            head = b"INSERT IGNORE INTO " + PROGRESS + b" (job, step, phase, bucket) "
            connection.run(head + values + b" WHERE job=%b AND step=%d" % place)
            connection.commit()
            rows = connection.rows(query)
        if not rows:
            raise LessThere(
                f"{WENT_BACK}: step {self.step} of job {self.job} has not begun there", hint=AGAIN
            )
        return int(rows[0][0])

    def advance(self, connection: Connection, chunk: int, rows: int, drift: int) -> None:
        """Chunk `chunk` is written; to be called in the transaction of `next_chunk`."""
        connection.run(
            b"UPDATE %b SET next_chunk=%d, row_count=row_count+%d, drift=drift+%d"
            % (PROGRESS, chunk + 1, rows, drift)
            + self.where,
        )


class Findings(NamedTuple):
    """Of a job: rows by table that were not as they should be, values by column that its character set does
    not have, what the downstream lacks of DDL."""

    drift: dict[str, int]
    texts: dict[str, int]
    missing: tuple[str, ...]


class LessThere(Unavailable):
    """The downstream has less of a job than it had."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A table of which chunks were written without it: (phase, bucket, chunk) of each."""

    reason: str
    places: frozenset[tuple[int, int, int]]


class Job:
    """A job's row and the lock that only one driver at a time holds. One connection, given by the caller."""

    def __init__(self, connection: Connection, name: str) -> None:
        assert len(name) <= _KEY_MAX
        self.name = name
        self._connection = connection
        self._where = b" WHERE job=" + string_literal(name)

    def claim(self) -> None:
        """Raises `Conflict` if another driver works on it. Holds as long as the connection."""
        lock = string_literal(f"spark:{self.name}"[:_KEY_MAX])
        ((got,),) = self._connection.rows(b"SELECT GET_LOCK(" + lock + b",%d)" % _ENDING_S)
        if got != 1:
            raise Conflict(
                f"job {self.name} is being worked on by another session of the downstream",
                hint="wait for it, or end it; the server ends the session of a driver that is gone",
            )

    def open(self, frozen: Frozen) -> JobState:
        """Begin it, or find how far it is. Raises `Conflict` if it is about something else."""
        connection = self._connection
        connection.run(b"CREATE DATABASE IF NOT EXISTS " + quote_name(SCHEMA))
        for statement in _TABLES:
            connection.run(statement)
        findings_of(self.name).create(connection)
        self.claim()
        rows = connection.rows(b"SELECT frozen, step, intent, done FROM " + JOBS + self._where)
        if not rows:
            values = string_literal(self.name) + b"," + string_literal(frozen.to_json())
            connection.run(b"INSERT INTO " + JOBS + b" (job, frozen) VALUES (" + values + b")")
            connection.commit()
            return JobState(frozen, 0, None, done=False, resumed=False)
        connection.commit()
        text, step, intent, done = rows[0]
        then = Frozen.from_json(text)
        # What is done is not read again: its files may be gone, and its schema changes with them.
        self._refuse_another(then, replace(frozen, buckets=then.buckets) if done else frozen)
        return JobState(
            then, int(step), Intent.from_json(intent) if intent else None, bool(done), resumed=True
        )

    def _refuse_another(self, then: Frozen, now: Frozen) -> None:
        before, asked = asdict(then), asdict(now)
        differing = [
            f"{name} was {before[name]!r}, now {asked[name]!r}"
            for name in before
            if before[name] != asked[name]
        ]
        if differing:
            raise Conflict(
                f"job {self.name} was begun for something else: {'; '.join(differing)}",
                hint="give the same archive, range and options, or another name for another job",
            )

    def intend(self, intent: Intent) -> None:
        """A DDL is about to run."""
        self._update(b"intent=" + string_literal(intent.to_json()))

    def reach(self, step: int) -> None:
        """Everything before step `step` is done."""
        self._update(b"intent=NULL, apart=NULL, step=%d" % step)

    def settle(self, apart: Set[int]) -> frozenset[int]:
        """The tables whose removals go first in the step at hand: as it was decided when it began, whatever
        became of the tables since, because it decides which rows are in which chunk."""
        rows = self._connection.rows(b"SELECT apart FROM " + JOBS + self._where)
        self._connection.rollback()
        if rows[0][0] is not None:
            return frozenset(json.loads(rows[0][0]))
        self._update(b"apart=" + string_literal(json.dumps(sorted(apart))))
        return frozenset(apart)

    def finish(self) -> None:
        self._update(b"done=1")

    def has_late(self, step: int) -> bool:
        """Whether chunks of a step left rows for the phase after them."""
        steps = findings_of(self.name).counts(self._connection, _LATE)
        self._connection.rollback()
        return str(step) in steps

    def findings(self) -> Findings:
        """What all its lives have found."""
        findings, connection = findings_of(self.name), self._connection
        drift, texts = (findings.counts(connection, kind) for kind in (ROWS, TEXTS))
        missing = findings.all_missing(connection)
        connection.rollback()
        return Findings(drift, texts, missing)

    def _update(self, what: bytes) -> None:
        self._connection.run(b"UPDATE " + JOBS + b" SET " + what + self._where)
        self._connection.commit()

    def left_out(self, step: int) -> dict[int, LeftOut]:
        """Tables that chunks of a step were written without."""
        query = b"SELECT fold, phase, bucket, chunk, reason FROM " + LEFT_OUT + self._where
        tables: dict[int, LeftOut] = {}
        for table, phase, bucket, chunk, reason in self._connection.rows(query + b" AND step=%d" % step):
            before = tables.get(int(table), LeftOut(str(reason), frozenset()))
            place = int(phase), int(bucket), int(chunk)
            tables[int(table)] = replace(before, places=before.places | {place})
        self._connection.rollback()
        return tables

    def counts(self) -> tuple[int, int, int]:
        """(rows, rows that were not as they should be, chunks) that are written."""
        query = b"SELECT SUM(row_count), SUM(drift), SUM(next_chunk) FROM " + PROGRESS + self._where
        ((rows, drift, chunks),) = self._connection.rows(query)
        self._connection.rollback()
        return int(rows or 0), int(drift or 0), int(chunks or 0)


def reached(connection: Connection, name: str) -> tuple[int, int, int] | None:
    """How far a job is: the step, whether it is done, chunks. In the transaction of the caller."""
    where = b" WHERE job=" + string_literal(name)
    chunks = b"(SELECT COALESCE(SUM(next_chunk), 0) FROM " + PROGRESS + where + b")"
    rows = connection.rows(b"SELECT step, done, " + chunks + b" FROM " + JOBS + where)
    return (int(rows[0][0]), int(rows[0][1]), int(rows[0][2])) if rows else None


def stored(target: Target, name: str) -> Frozen | None:
    """What a job was begun for, if it was begun."""
    connection = connect(target)
    try:
        query = b"SELECT frozen FROM " + JOBS + b" WHERE job=" + string_literal(name)
        rows = connection.rows(query)
    except NoSuchTable:
        return None
    finally:
        connection.close()
    return Frozen.from_json(rows[0][0]) if rows else None

"""The limit of a drainer: its own statements, made beforehand, sent to the downstream by two threads.

Everything that costs a drainer (pulling, decoding, folding, rendering, positions) is left out; what remains
is the downstream's work and the wire. No drainer with these statements can be faster.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from binlog_playground.scenario import Scenario
from drainer.ddl.run.plan import is_of_database, statement_of
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.rows.change import Change, Chunk, Position
from drainer.mysql.rows.row_fold import fold
from drainer.mysql.rows.statement import statements
from drainer.mysql.rows.table_target import target_of
from drainer.sink.mysql.dispatcher import Dispatcher
from drainer.sink.mysql.lane import STATEMENT_BYTES_MAX, LaneSettings
from drainer.sink.mysql.lane_feed import ROWS
from drainer.stream.pull.merged import Merged
from drainer.stream.rules.table_rules import TableFilter
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from drainer.txn import Ddl, Transaction
from tidb_binlog import binlog, ddl_job
from tidb_binlog.table_info import SchemaState

LANES: Final = 2

Batches = list[list[bytes]]
"""Statements of each downstream transaction of a lane."""


@dataclass(slots=True)
class Stretch:
    """DDL to run one after the other, then rows that lanes may apply at the same time."""

    ddl: list[tuple[str, bytes]] = field(default_factory=list)
    chunks: list[tuple[int, Chunk]] = field(default_factory=list)
    waiting_rows: int = 0  # dispatched and in no chunk yet
    lanes: list[Batches] = field(default_factory=lambda: [[] for _ in range(LANES)])
    rows: int = 0
    first_ts: int = 0  # commit_ts of the first row change
    before_ts: int = 0  # commit_ts of the last DDL before the rows


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole workload as statements."""

    stretches: list[Stretch]

    @property
    def with_rows(self) -> list[Stretch]:
        return [stretch for stretch in self.stretches if stretch.rows]

    @property
    def rows(self) -> int:
        return sum(stretch.rows for stretch in self.stretches)


def merged(scenario: Scenario) -> list[Merged]:
    """What a drainer gets: joined payloads in commit order, finished DDL with its job."""
    jobs = dict(scenario.jobs)
    prewrites = {r.start_ts: r for records in scenario.files for r in records if r.tp == binlog.PREWRITE}
    entries = []
    for records in scenario.files:
        for record in records:
            if record.tp != binlog.COMMIT:
                continue
            payload = binlog.join(prewrites[record.start_ts].payload, record.payload)
            message = binlog.parse(payload)
            job = None
            if message.ddl_job_id and message.ddl_schema_state != SchemaState.DELETE_ONLY:
                job = ddl_job.decode(jobs[message.ddl_job_id])
            entries.append(Merged(record.commit_ts, payload, job))
    return sorted(entries, key=lambda entry: entry.commit_ts)


def prepare(scenario: Scenario) -> Plan:
    """Through the drainer's own cores: translator, dispatcher, fold, statements."""
    ignored = LaneSettings()
    translator = Translator(
        SchemaTracker.from_history([raw for _, raw in scenario.jobs]), TableFilter(ignore_schemas=["mysql"])
    )
    dispatcher = Dispatcher([Position(0)] * LANES)
    stretches = [Stretch()]
    for entry in merged(scenario):
        item = translator.translate(entry)
        stretch = stretches[-1]
        if isinstance(item, Ddl):
            _close(stretch, dispatcher, ignored)
            if stretch.rows:
                stretches.append(Stretch())
            stretches[-1].before_ts = item.commit_ts
            if not item.skip:
                schema = "" if is_of_database(item) else item.schema
                stretches[-1].ddl.append((schema, statement_of(item)))
        else:
            _dispatch(stretch, dispatcher, item)
    _close(stretches[-1], dispatcher, ignored)
    return Plan(stretches)


def _dispatch(stretch: Stretch, dispatcher: Dispatcher, transaction: Transaction) -> None:
    for version in dispatcher.unknown(transaction):
        dispatcher.learn(target_of(version, LANES))
    rows = dispatcher.dispatch(transaction)
    if rows and not stretch.rows:
        stretch.first_ts = transaction.commit_ts
    stretch.rows += rows
    stretch.waiting_rows += rows
    if stretch.waiting_rows >= ROWS:
        stretch.chunks += dispatcher.take()
        stretch.waiting_rows = 0


def _close(stretch: Stretch, dispatcher: Dispatcher, settings: LaneSettings) -> None:
    chunks = [*stretch.chunks, *dispatcher.take()]
    stretch.chunks.clear()
    for lane in range(LANES):
        stretch.lanes[lane] = _batches([chunk for at, chunk in chunks if at == lane], settings)


def _batches(chunks: Iterable[Chunk], settings: LaneSettings) -> Batches:
    """As full as a busy lane's batches get."""
    batches: Batches = []
    changes: list[Change] = []
    size = 0

    def close() -> None:
        if changes:
            made = statements(fold(changes), STATEMENT_BYTES_MAX, replaying=False)
            batches.append([statement.sql for statement in made])

    for chunk in chunks:
        rows = len(changes) + len(chunk.changes)
        if changes and (rows > settings.batch_rows or size + chunk.size_bytes > settings.batch_bytes):
            close()
            changes, size = [], 0
        changes.extend(chunk.changes)
        size += chunk.size_bytes
    close()
    return batches


@dataclass(frozen=True, slots=True)
class Sent:
    """`seconds`: from the first row statement to the end; `last_s`: of the last stretch alone."""

    seconds: float
    last_s: float


def send(plan: Plan, target: Target) -> Sent:
    """Run it. Raises PyMySQL's errors."""
    connections = [connect(target) for _ in range(LANES)]
    try:
        began_s = 0.0
        stretch_s = 0.0
        for stretch in plan.stretches:
            for schema, statement in stretch.ddl:
                if schema:
                    connections[0].select_db(schema)
                connections[0].run(statement)
            stretch_s = time.monotonic()
            if stretch.rows and not began_s:
                began_s = stretch_s
            _send_rows(connections, stretch.lanes)
        ended_s = time.monotonic()
        return Sent(ended_s - began_s, ended_s - stretch_s)
    finally:
        for connection in connections:
            connection.close()


def _send_rows(connections: Sequence[Connection], lanes: Sequence[Batches]) -> None:
    errors: list[BaseException] = []

    def lane(connection: Connection, batches: Batches) -> None:
        try:
            for batch in batches:
                for statement in batch:
                    connection.run(statement)
                connection.commit()
        except BaseException as error:
            errors.append(error)

    pairs = zip(connections, lanes, strict=True)
    threads = [threading.Thread(target=lane, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]

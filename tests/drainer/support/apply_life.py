"""Lives of the apply side on recorded or made-up binlogs and a real MariaDB: run, die anywhere, look."""

from __future__ import annotations

import asyncio
import atexit
import base64
import contextlib
import gzip
import json
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from binlog_playground.check.downstream import Downstream
from binlog_playground.check.verify import Canonical, ColumnForm, Limit, compare
from binlog_playground.scenario import load
from drainer.checkpoint.resume import Start
from drainer.checkpoint.store import CheckpointStore
from drainer.ddl.policy import Policy
from drainer.ddl.quarantine.early_drop import UpstreamJobs
from drainer.ddl.quarantine.rows_entry import quarantine_rows
from drainer.ddl.run.recycle_bin import KeepDropped
from drainer.ddl.run.runner import DdlRunner
from drainer.mysql import session_lock
from drainer.mysql.connection import Target, connect
from drainer.mysql.literal.quoting import quote_name
from drainer.mysql.refusal import RowsRefused
from drainer.mysql.rows.dialect import Dialect
from drainer.operate.control.pause_and_reload import Control
from drainer.relay.relay_log import RelayLog
from drainer.sink.findings import Findings
from drainer.sink.mysql.lane import LaneSettings
from drainer.sink.mysql.mysql_sink import MysqlSink, mysql_sink
from drainer.sink.mysql.quarantine_setup import QuarantineSetup, load_waiting
from drainer.sink.mysql.settings import ApplierSettings
from drainer.sink.runner import Runner
from drainer.stream.pull.merged import Merged, MergedBatch
from drainer.stream.rules.rule_history import RuleChange
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from pumpclient import create_table_job
from tests.rig.workload.limits import MARIADB, misplaced
from tests.waiting import PATIENCE_S
from tidb_binlog import binlog
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.foreign_document import ready
from tidb_binlog.status.drainer import DrainerDocument
from tidb_binlog.table_info import LONG, VARCHAR, Column, FieldType, TableInfo
from tidb_binlog.upstream_port import SchemaHistory


def _same_json(column: ColumnForm, expected: Canonical, actual: Canonical) -> bool:
    if column.type != "json" or not isinstance(expected, str) or not isinstance(actual, str):
        return False
    return bool(json.loads(expected) == json.loads(actual))


JSON_OBJECTS = Limit(
    "order in JSON", "MySQL keeps the members of an object in an order of its own", _same_json
)
DATA_DIR = tempfile.mkdtemp(prefix="drainer-lives-")  # one after the other, as lives of one drainer
atexit.register(shutil.rmtree, DATA_DIR, ignore_errors=True)
CORPUS = Path(__file__).resolve().parents[2] / "golden" / "corpus"


@dataclass
class Recording:
    """What a pump served, ready for the applier."""

    cluster_id: int
    jobs: list[bytes]
    entries: list[Merged]

    def since(self, after_ts: int) -> list[Merged]:
        return [entry for entry in self.entries if entry.commit_ts > after_ts]


def read(name: str) -> Recording:
    directory = CORPUS / name
    jobs = {}
    with gzip.open(directory / "ddl_jobs.jsonl.gz") as lines:
        for line in lines:
            document = json.loads(line)
            jobs[document["id"]] = base64.b64decode(document["raw"])
    entries = []
    for path in directory.glob("pulled*.jsonl.gz"):
        with gzip.open(path) as lines:
            for line in lines:
                document = json.loads(line)
                payload = base64.b64decode(document["payload"])
                if binlog.parse(payload).ddl_query.lower().startswith(b"select setval"):
                    continue  # the collector leaves them out: their job does not exist
                job = jobs.get(document["ddl_job_id"]) if document["ddl_job_id"] else None
                entries.append(
                    Merged(
                        document["commit_ts"],
                        payload,
                        json.loads(job) if job else None,
                    )
                )
    cluster_id = int(json.loads((directory / "meta.json").read_text())["cluster_id"])
    return Recording(cluster_id, list(jobs.values()), sorted(entries, key=lambda entry: entry.commit_ts))


def run(target: Target, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements and commit; the rows of the last one."""
    connection = connect(target)
    try:
        for statement in statements[:-1]:
            connection.run(statement.encode())
        found = connection.rows(statements[-1].encode())
        connection.commit()
        return found
    finally:
        connection.close()


@contextlib.contextmanager
def drainer_at_work(target: Target) -> Iterator[None]:
    """A session as that of a Drainer of cluster 77."""
    run(
        target,
        "CREATE DATABASE elsewhere",
        "CREATE TABLE elsewhere.drainer_state (cluster_id BIGINT UNSIGNED PRIMARY KEY, epoch BIGINT,"
        " owner TEXT, checkpoint TEXT, intent TEXT)",
        "INSERT INTO elsewhere.drainer_state VALUES (77, 0, '', NULL, NULL)",
    )
    with contextlib.closing(connect(target)) as other:
        assert session_lock.claim(other, session_lock.Claims("elsewhere", 77).name(session_lock.STORE))
        yield


def clean(target: Target) -> None:
    connection = connect(target)
    system = {"information_schema", "performance_schema", "metrics_schema", "mysql", "sys"}
    for (name,) in connection.rows(b"SHOW DATABASES"):
        if name.lower() not in system:
            connection.run(b"DROP DATABASE " + quote_name(name))
    connection.close()


class Life:
    """One run of the apply side, from taking over the checkpoint to its end."""

    def __init__(
        self,
        recording: Recording,
        target: Target,
        lanes: int = 2,
        batch_rows: int = 3200,
        rules: Rules | None = None,
        clock: Clock | None = None,
        history: SchemaHistory | None = None,
        relay: RelayLog | None = None,
        lane: LaneSettings | None = None,
        findings: Findings | None = None,
        **settings: Any,
    ) -> None:
        clock = clock or SystemClock()
        findings = findings or Findings(clock)
        self.recording = recording
        self.control = Control(clock)
        self.store = CheckpointStore(target, recording.cluster_id)
        self.start: Start = self.store.start(lanes, 0, recording.entries[-1].commit_ts)
        version = self.start.checkpoint.schema_version if self.start.checkpoint else 0
        tracker = SchemaTracker.from_history(recording.jobs, schema_version=version)
        self.translator = Translator(tracker, rules or Rules())
        keep = KeepDropped("tidb_binlog", recording.cluster_id, 1800.0)
        self.sink = mysql_sink(
            self.start,
            self.store,
            target,
            DdlRunner(target, tracker, self.translator.route, keep=keep, missing=findings.missing),
            ApplierSettings(lane or LaneSettings(batch_rows=batch_rows), **settings),
            clock,
            QuarantineSetup(
                load_waiting(self.store, foreign=self.start.foreign),
                Policy(),
                tracker,
                lambda frozen: DdlRunner(target, frozen, frozen.route, keep=keep, missing=findings.missing),
                DATA_DIR,
                64 << 20,
                UpstreamJobs(
                    history, lambda: tracker.last_job_id, self.translator.replicated, self.translator.runs
                )
                if history
                else None,
                lambda: self.translator.rules.router.route,
                self.translator.sharing,
            ),
            relay=relay,
        )
        self.runner = Runner(
            self.sink,
            self.translator,
            self.control,
            rules=RuleChange(self.translator, rules or Rules(), self.start.basis),
            interval_s=0.05,
            findings=findings,
        )
        self.runner.rules.check_start()

    async def batches(self, size: int) -> AsyncIterator[MergedBatch]:
        entries = self.recording.since(self.sink.start_ts)
        for at in range(0, len(entries), size):
            piece = entries[at : at + size]
            yield MergedBatch(piece, piece[-1].commit_ts)

    async def run(
        self,
        *,
        size: int = 50,
        seconds: float | None = None,
        dies_at_ts: int | None = None,
        at_end: Callable[[MysqlSink], Awaitable[None]] | None = None,
    ) -> bool:
        """Apply everything and stop gracefully, or stop dead after `seconds` or once `dies_at_ts` is applied.

        True if it got through. `at_end` comes before the stop. Where rows are refused, their table waits when
        this raises.
        """
        tasks = [
            asyncio.create_task(self.runner.run(self.batches(size))),
            asyncio.create_task(self.runner.watch()),
            asyncio.create_task(self.runner.keep_checkpoint()),
        ]
        if dies_at_ts is not None:
            tasks.append(asyncio.create_task(self._reached(dies_at_ts)))
        ended = False
        try:
            done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if tasks[0] in done and dies_at_ts is None:
                if at_end is not None:
                    await at_end(self.sink)
                # What pages and conditions go by is what the sink says, to the last field.
                msgspec.convert(self.runner.facts(), ready(DrainerDocument))
                ended = await self.runner.stop(PATIENCE_S)
                assert ended
            return ended
        except RowsRefused as refused:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await quarantine_rows(self.sink.quarantine.dependencies, refused)
            raise
        finally:
            for task in tasks:
                task.cancel()
            if not ended:
                self.die()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _reached(self, ts: int) -> None:
        while self.runner.resolved_ts < ts:
            await asyncio.sleep(0)

    def die(self) -> None:
        """What kill -9 leaves: nothing goes to the server any more, on whatever connection.

        Threads are waited for: a process that is gone has none, and the next life begins.
        """
        lanes = self.sink.lanes.now.lanes
        for lane in lanes:
            lane.abandon()
        for connection in (*(lane.session.current for lane in lanes), self.store.session.current):
            if connection is not None:
                cut(connection)
        self.sink.keeper.thread.shutdown(cancel_futures=True)
        for lane in lanes:
            lane.join()
        # Of those that nobody closes, which one is collected first decides whether one warns.
        for session in (self.store, self.sink.ddl_runner, *self.sink.readers):
            session.close()


def cut(connection: Any) -> None:
    """From any thread: closing it would take it away from the thread that works with it."""
    if (taken := connection._sock) is not None:
        with contextlib.suppress(OSError):
            taken.shutdown(socket.SHUT_RDWR)


def differences(name: str, target: Target) -> list[str]:
    connection = connect(target)
    try:
        scenario = load(CORPUS / name)
        actual = Downstream(connection).contents(scenario.expected)
        limits = MARIADB if connection.dialect is Dialect.MARIADB else (*MARIADB, JSON_OBJECTS)
        report = compare(scenario.expected, actual, limits, misplaced(scenario.statements))
        return [str(found) for found in report.differences]
    finally:
        connection.close()


def stored_ts(target: Target) -> int:
    connection = connect(target)
    ((text,),) = connection.rows(b"SELECT checkPoint FROM tidb_binlog.checkpoint")
    connection.close()
    return int(json.loads(text)["commitTS"])


def column(number: int, name: str, tp: int, flag: int = 0) -> Column:
    charset = "utf8mb4" if tp == VARCHAR else "binary"
    kind = FieldType(tp, flag, 64, charset=charset, collate=f"{charset}_bin")
    return Column(number, name, number - 1, kind)


def create_job(table: TableInfo, *, job_id: int = 9, schema_version: int = 1) -> dict[str, Any]:
    """The DDL job of `CREATE TABLE` in database d."""
    job: dict[str, Any] = json.loads(create_table_job(job_id, 5, "d", table, schema_version=schema_version))
    parts = [f"`{each.name}` {'INT' if each.type.tp == LONG else 'VARCHAR(64)'}" for each in table.columns]
    job["query"] = f"CREATE TABLE `{table.name}` ({', '.join(parts)})"
    return job


def created(job: dict[str, Any], commit_ts: int = 900) -> Merged:
    """The DDL binlog of a job."""
    prewrite = binlog.prewrite_ddl(commit_ts - 10, b"m", job["query"], job_id=job["id"])
    return Merged(commit_ts, binlog.join(prewrite, binlog.commit(commit_ts - 10, commit_ts, b"m")), job)

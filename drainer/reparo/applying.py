"""Applying: a range of an archive goes into a database, by the Drainer's own engine.

Order   what is wrong with archive, rules and downstream is said first; then the job is taken over, and its
        positions say where the stream begins
Holds   killed anywhere and started again, nothing is lost and nothing applied twice
Stops   a DDL that the downstream refuses ends it, before the DDL; a signal ends it after what was begun

Tests   tests/drainer/reparo/test_applying.py, tests/integration/test_reparo.py
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any, Final, Protocol

from drainer.checkpoint.inspection import Inspection
from drainer.checkpoint.job_findings import ROWS, TEXTS, JobFindings
from drainer.checkpoint.resume import Start
from drainer.checkpoint.store import CheckpointStore
from drainer.config.downstream import target_of
from drainer.ddl import rules as ddl_rules
from drainer.ddl.policy import Policy
from drainer.ddl.run.execution import Ran
from drainer.ddl.run.recycle_bin import KeepDropped
from drainer.ddl.run.runner import DdlRunner, Refused
from drainer.formats.binlog_directory import BinlogDirectory
from drainer.mysql.connection import Target, connect
from drainer.mysql.errors import SessionError, final_error
from drainer.mysql.session_lock import DDL, RELEASE
from drainer.operate.control.pause_and_reload import Control
from drainer.operate.control.rate_limit import Limits
from drainer.reading.archive.decode.definitions import of_archive
from drainer.reading.archive.files.payload import RELAY
from drainer.reading.archive.files.segments import Survey
from drainer.reading.archive.files.selection import Selection
from drainer.relay.source import RelaySchema
from drainer.reparo.archive_source import ArchivedTables, ArchiveSource
from drainer.reparo.job import Job, check_no_drainer, inspected
from drainer.reparo.options import SCHEMA, ReparoConfig
from drainer.reparo.ordered_records import Seen
from drainer.reparo.relay_stream import RelayStream
from drainer.reparo.summary import Summary
from drainer.sink.findings import Lacks
from drainer.sink.mysql.bounded_stream import run_to_end
from drainer.sink.mysql.mysql_sink import MysqlSink, mysql_sink
from drainer.sink.mysql.quarantine_setup import QuarantineSetup, load_waiting
from drainer.sink.mysql.settings import applier_settings
from drainer.sink.row_mismatch import Drift
from drainer.sink.runner import Runner
from drainer.stream.pull.merged import Merged, MergedBatch
from drainer.stream.rules.rule_set import Rules
from drainer.txn import Ddl
from tidb_binlog import tso
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import DownstreamError, Unavailable
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.observe import log
from tidb_binlog.status.drainer import LackStatus
from tidb_binlog.tso import Ts

logger = log.get("drainer.reparo")

_CLOCK: Final = SystemClock()
DONE_ALREADY: Final = frozenset({1007, 1008, 1049, 1050, 1051, 1054, 1060, 1061, 1091, 1146, 1176, 1831})
"""Errors of the server that mean that a DDL has nothing left to do, as the Go tool takes them: a full copy
that was made within the range has it already."""


Watch = Callable[[Seen, Callable[[], int]], None]
"""With what was read, and how many row changes were taken, as long as it runs."""


class Stream(Protocol):
    """An archive or a relay log, as a sink is fed from it."""

    seen: Seen

    @property
    def schema(self) -> RelaySchema: ...

    def route(self, schema: str, table: str = "") -> tuple[str, str]: ...
    def take(self, after_ts: Ts) -> None: ...
    def batches(self) -> AsyncIterator[MergedBatch]: ...
    def translate(self, merged: Merged) -> Any: ...
    def pieces(self, spilled: Any) -> Iterator[Any]: ...
    @property
    def end_ts(self) -> Ts: ...


class Forgiving(DdlRunner):
    """A DDL that the server says was done is passed over, as the Go tool does, and told as missing: what is
    there under its names may be another thing."""

    def run(self, ddl: Ddl, text: str | None = None) -> Ran:
        """Run a DDL, or pass over it."""
        try:
            return super().run(ddl, text)
        except Refused as error:
            if error.code not in DONE_ALREADY or ddl.refused:
                raise
            logger.warning(
                "DDL was done already, says the destination", commit_ts=ddl.commit_ts, reason=error
            )
            said = f"done already, says the destination (error {error.code}): {text or ddl.query}"
            names = [".".join(name).rstrip(".") for name in ddl.tables]
            lack = LackStatus(job_id=ddl.job_id, commit_ts=ddl.commit_ts, tables=names, missing=[said])
            self.missing.append(lack)
            return Ran()


Open = Callable[[Target, Rules, ExitStack], Stream]
"""A stream in place of an archive's. Blocks; what is to be closed goes to the stack."""


@dataclass(frozen=True)
class Application:
    """One run. `stop` ends it early. `job` and `open_stream` are for who applies something else besides."""

    config: ReparoConfig
    survey: Survey | None
    stop: asyncio.Event
    job: Job | None = None
    open_stream: Open | None = None

    async def run(self, watch: Watch = lambda seen, rows: None) -> Summary:
        """`watch` is called when the stream begins, for who shows progress.

        Raises `Corruption`, `Conflict`, `ConfigError`, `DownstreamError`, `Unavailable`."""
        began_s = _CLOCK.monotonic_s()
        with ExitStack() as ends:
            try:
                return await self._run(ends, began_s, watch)
            except SessionError as error:
                raise final_error(error, "applying the archive") from None

    async def _run(self, ends: ExitStack, began_s: float, watch: Watch) -> Summary:
        config, job = self.config, self.job or Job.of(self.config)
        rules, settings = config.rules, config.drainer
        target = target_of(settings)
        await asyncio.to_thread(_probe, target)
        if not config.beside_drainer:
            await asyncio.to_thread(check_no_drainer, target)
        inspection = await inspected(target, job, _CLOCK)
        stream = await asyncio.to_thread(self.open_stream or self._stream, target, rules, ends)
        store = CheckpointStore(target, job.number, schema=SCHEMA, owner=job.owner)
        begin_ts = max(config.start - 1, 0)
        start = await asyncio.to_thread(
            store.start, settings.worker_count, begin_ts, self._now_ts(inspection), initial_is_given=True
        )
        findings = JobFindings(SCHEMA, job.number)
        await asyncio.to_thread(_create, findings, target)
        runner = self._runner(stream, store, start, target, findings)
        resumed_ts = runner.sink.start_ts if inspection.stored.state is not None else 0
        stream.take(runner.sink.start_ts)
        logger.info("job", name=job.name, after_ts=runner.sink.start_ts, resumed=bool(resumed_ts))
        watch(stream.seen, lambda: runner.rows)
        tuning = runner.sink.lanes.tasks().values()
        _, drained = await run_to_end(runner, stream.batches(), *tuning, stop=self.stop)
        seen = stream.seen
        return replace(
            await asyncio.to_thread(summary_of, target, job),
            dest=config.dest_type,
            finished=drained and not self.stop.is_set(),
            resumed_after_ts=resumed_ts,
            first_ts=seen.first_ts,
            last_ts=seen.last_ts,
            upto_ts=runner.sink.stored_ts,
            transactions=runner.transactions,
            rows=runner.rows,
            ddl=seen.ddl,
            seconds=round(_CLOCK.monotonic_s() - began_s, 3),
        )

    def _now_ts(self, inspection: Inspection) -> Ts:
        """A timestamp that nothing of the job is above."""
        state = inspection.stored.state
        stored = [state.checkpoint.commit_ts] if state is not None and state.checkpoint is not None else []
        lanes = [position.commit_ts for position in inspection.stored.lanes]
        return max(tso.from_wall_s(_CLOCK.wall_s()), self.config.stop, self.config.start, *stored, *lanes)

    def _stream(self, target: Target, rules: Rules, ends: ExitStack) -> Stream:
        config, survey = self.config, self.survey
        assert survey is not None
        selection = Selection(config.start, config.stop)
        if survey.kind == RELAY:
            directory = BinlogDirectory(config.data_dir, SystemClock())
            ends.callback(directory.close)
            relay = RelayStream(directory, target, selection, rules)
            ends.callback(relay.close)
            return relay
        tables = ArchivedTables(of_archive(survey.location, survey), target, rules.router.route)
        ends.callback(tables.close)
        return ArchiveSource(survey, selection, tables, rules)

    def _runner(
        self, stream: Stream, store: CheckpointStore, start: Start, target: Target, findings: JobFindings
    ) -> Runner[MysqlSink]:
        settings, clock = self.config.drainer, SystemClock()
        keep = KeepDropped(SCHEMA, store.lane_table().cluster_id, settings.keep_dropped_s)

        def runner_of(role: str) -> DdlRunner:
            def guard(connection: Any) -> None:
                store.guard_ddl(connection, role=role)

            missing = Lacks(functools.partial(findings.keep_lack, target))
            return Forgiving(target, stream.schema, stream.route, guard, keep, missing=missing)

        applying = applier_settings(settings, lambda _commit_ts: None, Drift(clock))
        sink = mysql_sink(
            start,
            store,
            target,
            runner_of(DDL),
            replace(applying, lane=replace(applying.lane, findings=findings)),
            clock,
            QuarantineSetup(
                load_waiting(store, foreign=start.foreign),
                Policy(ddl_rules.parse(settings.ddl_rules)),
                stream.schema,
                lambda frozen: runner_of(RELEASE),
                settings.data_dir,
                settings.quarantine_bytes,
                route=lambda: stream.route,
            ),
        )
        control = Control(clock, Limits(rows=self.config.speed))
        return Runner(sink, stream, control, interval_s=settings.checkpoint_interval_s)


def _create(findings: JobFindings, target: Target) -> None:
    with closing(connect(target)) as connection:
        findings.create(connection)


def summary_of(target: Target, job: Job) -> Summary:
    """What all runs of a job so far have found. Blocks."""
    findings = JobFindings(SCHEMA, job.number)
    with closing(connect(target)) as connection:
        return Summary(
            "",
            job.name,
            drift=findings.counts(connection, ROWS),
            texts=findings.counts(connection, TEXTS),
            missing=list(findings.all_missing(connection)),
        )


def _probe(target: Target) -> None:
    """Whether the destination is there and lets us in: what is wrong with it is said at once."""
    try:
        connect(target).close()
    except (Unavailable, DownstreamError) as error:
        raise type(error)(error.message, hint="check host, port, user and password of [dest-db]") from None

"""Begin with rows that exist: a program's database is loaded while it is written to, then the Drainer runs.

Drives  the program's sessions (`application_writer`), `binlogctl load` and `binlogctl verify` as processes
Owns    when the load is killed, and started again with the same command
Holds   rows were there before the program published anything; transactions and DDL go on all the time
Stops   the load, when anything fails
Never   starts the Drainer before the load says that it is through
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from binlog_playground.application import SCHEMA
from binlog_playground.check.downstream import Downstream
from binlog_playground.check.live_view import LiveView
from binlog_playground.check.verify import ExpectedTable, Report, compare
from binlog_playground.cluster.mariadb import MariaDbServer
from binlog_playground.cluster.supervisor import Process
from binlog_playground.run import PUMPS, STALLED_S
from pumpclient.publish.publisher import open_publisher
from tests.rig.cluster import RigCluster, start_application
from tests.rig.options import RigOptions
from tests.rig.run import FIRST_ID, RigRun
from tests.rig.workload import tables
from tests.rig.workload.application import OUTCOMES, Application
from tests.rig.workload.application_writer import ApplicationWriter
from tests.rig.workload.evolution import Evolution, creation
from tests.rig.workload.limits import MARIADB
from tests.rig.workload.model import Model
from tests.rig.workload.session import Writer, run_evolution, run_rare_endings, run_session
from tests.rig.workload.workload import Ending, Workload
from tidb_binlog.clock import Clock
from tidb_binlog.errors import Unavailable

ROWS_THERE: Final = 1200
"""Of a table before anything is published, fewer where keys are taken."""
TURN_S: Final = 5.0
DDL_PAUSE_S: Final = 1.5
RARE_ENDINGS: Final = {Ending.ABANDON: 4.0, Ending.LOSE_COMMIT: 3.0}
KILLED_AFTER_S: Final = (0.3, 4.0)
COPIES_S: Final = 1.0
"""Of a life that ends so; the rest is its start. A load that is to be killed is slowed down to that."""
COMMAND_S: Final = 180.0
DONE: Final = "exit 0"
RENAMED: Final = "exit 15"  # binlogctl's, where a table could not be compared
UNSETTLED_MAX: Final = 3
WATCH_S: Final = 0.05
CONTROL: Final = "binlogctl"


@dataclass(slots=True)
class Loading:
    """What became of the load."""

    rows: int = 0
    kills: int = 0
    seconds: float = 0.0


class Begin(RigRun):
    """One run on one cluster."""

    def __init__(self, options: RigOptions, cluster: RigCluster, view: LiveView, clock: Clock) -> None:
        super().__init__(options, cluster, view, clock)
        self.loading = Loading()

    async def begin(self) -> Report:
        """Rows, the load beside the sessions, the Drainer, comparison of all three."""
        self._view.say(f"starting etcd, {PUMPS} Pumps and two MariaDB in {self.cluster.directory}")
        upstream = await self.cluster.start_base(None)
        server = await start_application(self.cluster)
        await self.cluster.start_pumps(PUMPS)
        self._view.say(f"set up in {self._elapsed_s():.1f} s")
        model, application = Model(SCHEMA), Application(server, SCHEMA)
        await asyncio.to_thread(application.create)
        try:
            async with (
                self._background([]),
                await open_publisher(self.cluster.etcd_endpoint, outcomes=application.outcomes) as publisher,
            ):
                ids = itertools.count(FIRST_ID)
                writer = ApplicationWriter(
                    application, publisher, upstream, model, self.statistics, ids, publisher.schema_version
                )
                await self._fill(writer, application, ids)
                await self._write_and_load(writer, server, application, ids)
                await publisher.flush(STALLED_S)
                await self._drain(writer.last_commit_ts)
            expected = model.expected()
            report = await asyncio.to_thread(self._compare_both, expected, server)
        finally:
            application.close()
        return report

    async def _fill(self, writer: ApplicationWriter, application: Application, ids: Iterator[int]) -> None:
        """The tables are published; the rows in them are not."""
        self._phase = "rows that are there before"
        workload = Workload(Random(self._random.random()), writer.model)
        await writer.create_schema()
        for table in tables.standing_tables(SCHEMA, ids):
            await writer.run_ddl(creation(table))
            state = writer.model.tables[table.name]
            made = state.fill(workload.random_row(table) for _ in range(ROWS_THERE))
            await asyncio.to_thread(application.fill, table, made)
            self.loading.rows += len(made)
        self._view.say(
            f"{len(writer.model.tables)} tables with {self.loading.rows} rows that nobody published"
        )

    async def _write_and_load(
        self, writer: ApplicationWriter, server: MariaDbServer, application: Application, ids: Iterator[int]
    ) -> None:
        """Sessions and DDL from before the load until some time after the Drainer has begun."""
        self._phase = "load beside random transactions and DDL"
        done = asyncio.Event()
        self.statistics.started_s = self._clock.monotonic_s()
        async with asyncio.TaskGroup() as group:
            for work in self._sessions(writer, ids):
                group.create_task(self._in_turns(work, done))
            try:
                await self._load(server, application)
                self._phase = "random transactions and DDL"
                await self._verify(self._clock.monotonic_s() + self.options.seconds)
            finally:
                done.set()
        self.statistics.ended_s = self._clock.monotonic_s()

    def _sessions(self, writer: Writer, ids: Iterator[int]) -> list[Callable[[float], Awaitable[None]]]:
        options, clock, model = self.options, self._clock, writer.model
        workload = Workload(Random(self._random.random()), model)
        changes = Evolution(Random(self._random.random()), model, ids)
        interval_s = options.sessions / options.rate if options.rate else 0.0

        async def session(end_s: float) -> None:
            await run_session(writer, workload, interval_s, end_s, clock)

        async def ddl(end_s: float) -> None:
            await run_evolution(writer, changes, DDL_PAUSE_S, end_s, clock)

        async def rare(end_s: float) -> None:
            await run_rare_endings(writer, workload, RARE_ENDINGS, end_s, clock)

        return [*([session] * options.sessions), ddl, rare]

    async def _in_turns(self, work: Callable[[float], Awaitable[None]], done: asyncio.Event) -> None:
        """Again and again until it is done; none is left in the middle."""
        while not done.is_set():
            await work(self._clock.monotonic_s() + TURN_S)

    async def _load(self, server: MariaDbServer, application: Application) -> None:
        """Until the load says that it is through; then the Drainer goes on from there."""
        drainer = self.cluster.prepare_drainer(sections=self._source(server, application))
        arguments = ["load", "-drainer-config", str(self.cluster.config_of(drainer.name))]
        began_s = self._clock.monotonic_s()
        await self._kill(self.options.kills, arguments)
        await self._run_command("load", arguments, COMMAND_S)
        self.loading.seconds = self._clock.monotonic_s() - began_s
        self._view.say(
            f"loaded in {self.loading.seconds:.1f} s, killed {self.loading.kills} times, beside"
            f" {self.statistics.transactions} transactions and {self.statistics.ddl} DDL"
        )
        await self.cluster.begin_drainer(drainer)

    def _source(self, server: MariaDbServer, application: Application) -> str:
        """What a Drainer's file says of the program's database."""
        return (
            f'[syncer.from]\nhost = "{server.host}"\nport = {server.port}\nuser = "{server.user}"\n'
            f'password = "{server.password}"\noutcome-table = "{application.outcome_table}"\n'
        )

    async def _kill(self, times: int, arguments: list[str]) -> None:
        """Kill -9 at random moments, unless it is through before."""
        rate = int(self.loading.rows / max(1, times) / COPIES_S) + 1
        arguments = [*arguments, f"-rate={rate}"]
        random = Random(self._random.random())
        first_s, last_s = KILLED_AFTER_S[0], min(KILLED_AFTER_S[1], times * COPIES_S)  # not through by then
        for _ in range(times):
            process = self._started("load", arguments)
            try:
                await self._until_ended(process, random.uniform(first_s, last_s))
            finally:
                process.kill()
            if process.state == DONE:
                return
            if process.state != "killed":
                raise _ended_badly(process, arguments)
            self.loading.kills += 1
            self.statistics.killed("load")

    async def _verify(self, end_s: float) -> None:
        """While both sides are written to, again and again until `end_s`."""
        assert self.cluster.drainer is not None
        arguments = ["verify", "-drainer-config", str(self.cluster.config_of(self.cluster.drainer.name))]
        times = unsettled = 0
        while not times or self._clock.monotonic_s() < end_s:
            # A table that got its name between two looks cannot be compared as a whole: verify says "again".
            again = RENAMED if unsettled < UNSETTLED_MAX else DONE
            if await self._run_command("verify", arguments, COMMAND_S, (DONE, again)) == DONE:
                times += 1
            else:
                unsettled += 1
        self._view.say(f"verified {times} times while both sides were written to: equal")

    async def _run_command(
        self, name: str, arguments: list[str], deadline_s: float, ends: tuple[str, ...] = (DONE,)
    ) -> str:
        """One of binlogctl's, and how it ended; `Unavailable` when it does not, or not as in `ends`."""
        process = self._started(name, arguments)
        try:
            if not await self._until_ended(process, deadline_s) or process.state not in ends:
                raise _ended_badly(process, arguments)
            return process.state
        finally:
            process.kill()

    def _started(self, name: str, arguments: list[str]) -> Process:
        process = self.cluster.command(name, CONTROL, arguments)
        process.start()
        return process

    async def _until_ended(self, process: Process, deadline_s: float) -> bool:
        end_s = self._clock.monotonic_s() + deadline_s
        while process.is_running:
            if self._clock.monotonic_s() > end_s:
                return False
            await asyncio.sleep(WATCH_S)
        return True

    def _compare_both(self, expected: list[ExpectedTable], server: MariaDbServer) -> Report:
        """Downstream is what the model says; and so is the program's database, or the model is wrong."""
        for one, limits, hidden in (
            (server, (), {(SCHEMA, OUTCOMES)}),
            (self.cluster.mariadb, MARIADB, set[tuple[str, str]]()),
        ):
            connection = one.open()
            try:
                found = Downstream(connection).contents(expected)
            finally:
                connection.close()
            report = compare(expected, {k: v for k, v in found.items() if k not in hidden}, limits)
            if one is server and not report.equal:
                raise AssertionError(f"the model is not the program's database: {report.differences[0]}")
        return report


def _ended_badly(process: Process, arguments: list[str]) -> Unavailable:
    return Unavailable(
        f"binlogctl {' '.join(arguments)}: {process.state}: {process.tail(3)}", hint=f"see {process.log}"
    )

"""A controller of DDL over a downstream in memory, and the DDL that it is given."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from drainer.checkpoint.keeper import CheckpointKeeper
from drainer.checkpoint.store import SIDE_LANES, CheckpointStore
from drainer.ddl import rules as ddl_rules
from drainer.ddl.policy import Policy
from drainer.ddl.quarantine.controller import QuarantineController
from drainer.ddl.rules import APPLY
from drainer.ddl.run.runner import DdlRunner
from drainer.mysql.connection import Target, connect
from drainer.sink.mysql.lane import LaneSettings
from drainer.sink.mysql.quarantine_setup import QuarantineSetup, load_waiting, open_quarantine
from drainer.sink.mysql.target_reader import TableReader
from drainer.txn import Ddl, TableVersion, Tracked
from tests.waiting import until
from tidb_binlog.clock import SystemClock
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.errors import Conflict
from tidb_binlog.table_info import LONG, Column, FieldType, TableInfo

ADD_COLUMN = 5

NOW_TS = 1 << 40


def info(number: int, *columns: str) -> TableInfo:
    names = columns or ("a",)
    return TableInfo(
        number,
        "tuv-----m"[number - 1],
        tuple(Column(at + 1, name, at, FieldType(LONG)) for at, name in enumerate(names)),
    )


T, U = (TableVersion(info(number), "d", "tuv"[number - 1], 1) for number in (1, 2))

T_WIDE = TableVersion(info(1, "a", "b"), "d", "t", 2)


def ddl(commit_ts: int, query: str, *names: str, action: int = ADD_COLUMN) -> Ddl:
    tables = tuple(("d", name) for name in names or ("t",))
    before = (Tracked("d", "t", T.info.to_json()),)
    after = (Tracked("d", "t", T_WIDE.info.to_json()),)
    if action == ActionType.CREATE_TABLE:
        before, after = (), (Tracked("d", names[0], info(9).to_json()),)
    if action == ActionType.RENAME_TABLES:
        before = tuple(Tracked("d", one.name, one.info.to_json()) for one in (T, U))
        after = tuple(Tracked("d", name, one.info.to_json()) for name, one in (("u", T), ("w", U)))
    return Ddl(commit_ts, commit_ts, action, "d", query, tables, commit_ts, before=before, after=after)


class NoCollations:
    def database_collation(self, schema: str) -> tuple[str, str] | None:
        return None


class Stage:
    """A quarantine between a stream that the test plays and a downstream, without the lanes of the stream."""

    def __init__(
        self,
        target: Target,
        path: Path,
        rules: Sequence[dict[str, Any]] = (),
        bytes_max: int = 1 << 20,
    ) -> None:
        clock = SystemClock()
        self.held = False
        self.target = target
        self.store = CheckpointStore(target, 1)
        start = self.store.start(2, 100, NOW_TS)
        failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.keeper = CheckpointKeeper(self.store, start, failure, clock, always_safe=False)
        self.tables = TableReader(target, sync_mode=1)
        plan = QuarantineSetup(
            load_waiting(self.store, foreign=start.foreign),
            Policy(ddl_rules.parse(rules)),
            NoCollations(),
            lambda frozen: DdlRunner(target, frozen),
            str(path),
            bytes_max,
            held=lambda: self.held,
        )
        highest_ts = max(position.commit_ts for position in start.positions)
        settings = LaneSettings()
        self.controller: QuarantineController = open_quarantine(
            plan, highest_ts, 0, self.keeper, target, settings, self.tables, clock
        )
        self.task = asyncio.create_task(self.controller.run())

    async def refuse(self, statement: Ddl) -> None:
        """The downstream takes it in no form."""
        runner = DdlRunner(self.target, NoCollations())
        before = runner.before(statement)
        runner.close()
        assert (await self.controller.judge(statement, 1)).action == APPLY
        await self.controller.refused(statement, 1, before, "refused by the test")

    async def close(self) -> None:
        self.controller.stop()
        with contextlib.suppress(Conflict, asyncio.CancelledError):
            await self.task
        await self.controller.close()
        await self.keeper.close(self.tables.close)

    async def until(self, condition: Callable[[], bool]) -> None:
        await until(condition, beside=[self.task])

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        connection = connect(self.target)
        connection.autocommit(True)
        try:
            for statement in statements[:-1]:
                connection.run(statement.encode())
            return connection.rows(statements[-1].encode())
        finally:
            connection.close()

    def values(self, table: str) -> list[int]:
        return [value for (value,) in self.sql(f"SELECT a FROM d.{table}")]

    async def finish(self, at_ts: int) -> None:
        """Release has reached the end; the stream stands still meanwhile."""
        await self.until(lambda: self.controller.wants_pause(at_ts))
        await self.controller.pause(at_ts)
        assert not self.controller.waits
        assert (
            self.sql(f"SELECT applied_ts, applied_rows FROM tidb_binlog.lanes WHERE lane < {SIDE_LANES}")
            == [(at_ts, -1)] * 2
        )

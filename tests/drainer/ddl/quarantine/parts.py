"""All that a quarantine works with, without a server: it notes what it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, cast

from drainer.checkpoint.value import Intent
from drainer.ddl.quarantine.release import ReleaseDependencies
from drainer.ddl.quarantine.store import ReleaseTable
from drainer.ddl.run.execution import Ran
from drainer.mysql.rows.causality import Spread
from drainer.mysql.rows.change import Position, TableTarget
from drainer.mysql.rows.table_target import target_of
from drainer.txn import INSERT, TableEvents, TableVersion, Transaction
from tests.drainer.ddl.quarantine.stage import T, ddl
from tidb_binlog.clock import ManualClock

DDL = ddl(10, "ALTER TABLE t ADD b INT")
BEFORE = {"d.t": "as it was"}
NOW_MS = 1_700_000_000_000
INTENT = Intent(10, 10, DDL.query, BEFORE)
RULES = [{"kind": "add column", "action": "skip"}]


def row(
    commit_ts: int, *versions: TableVersion, rows: int = 1, last: bool = True, first: int = 0
) -> Transaction:
    events = tuple(
        TableEvents(version, [INSERT] * rows, [b"r"] * rows, first) for version in versions or (T,)
    )
    return Transaction(commit_ts - 1, commit_ts, events, 10, last=last)


class Keeper:
    """Of `Parts`: what waits here is done at once."""

    schema_version = 3

    def __init__(self, parts: Parts) -> None:
        self.store = parts

    async def call(self, function: Callable[..., Any], *of: Any, thread: Any = None) -> Any:
        return function(*of)

    async def together(self, work: Callable[[Any], None], *, lanes_at: Any, upto_ts: int) -> None:
        self.store.said.append(("stores", lanes_at, upto_ts))
        work(None)


class Parts:
    """All that release works with: it notes what is asked for in its order, and answers as it was told.
    Lanes commit what they are given at once, or, `held`, when `commit` says so."""

    schema, cluster_id, epoch = "s", 1, 7

    def __init__(self, **answers: Any) -> None:
        self.said: list[Any] = []
        self.answers: dict[str, Any] = {"before": BEFORE, "run": Ran(("ALTER",)), "progress": "", **answers}
        self.keeper = Keeper(self)
        self.held = self.full = False
        self.spread = Spread.BY_TABLE
        self.given: list[Transaction] = []
        self.resolved_ts = 0
        self.handed_ts = 0
        self.known: list[TableTarget] = []
        self.tables: list[ReleaseTable] = []
        self.changed: Callable[[], None] = lambda: None
        self.failed: Callable[[BaseException], None] = lambda error: None

    # -- the store

    def together(self, work: Callable[[Any], None], **more: Any) -> None:
        self.said.append(("stores", *more.items()) if more else "stores")
        work(None)

    def lane_table(self) -> Any:
        return self

    # -- lanes

    def lanes(self, position: Position, table: ReleaseTable, changed: Any, failed: Any) -> Any:
        assert position == Position(0)
        self.tables.append(table)
        self.changed, self.failed = changed, failed
        return self

    def start(self) -> None:
        self.said.append("lanes")

    def unknown(self, part: Transaction) -> list[TableVersion]:
        known = {target.version for target in self.known}
        return [events.table for events in part.tables if events.table not in known]

    def learn(self, targets: Iterable[TableTarget]) -> None:
        self.known += targets

    def forget(self) -> None:
        self.said.append("forget")
        self.known.clear()

    def dispatch(self, part: Transaction) -> int:
        self.given.append(part)
        self.said.append(part.commit_ts)
        return len(part.tables)

    def hand_over(self, upto_ts: int) -> None:
        self.handed_ts = upto_ts
        if not self.held:
            self.resolved_ts = upto_ts

    def commit(self) -> None:
        self.resolved_ts, self.full = self.handed_ts, False
        self.changed()

    @property
    def has_room(self) -> bool:
        return not self.full

    @property
    def drained(self) -> bool:
        return self.resolved_ts == self.handed_ts

    async def end(self, *, drained: bool) -> None:
        self.said.append(("end", drained))

    def __getattr__(self, name: str) -> Any:
        """The table of what waits, and the runner."""

        def answer(*of: Any) -> Any:
            of = tuple(each for each in of if each is not None)
            if name not in ("progress", "close"):
                self.said.append((name, *of))
            given = self.answers.get(name)
            if isinstance(given, list):
                given = given.pop(0)
            if isinstance(given, Exception):
                raise given
            return given

        return answer

    def targets(self, versions: list[TableVersion], lanes: int) -> list[TableTarget]:
        assert lanes == 1, "of release there is one"
        return [replace(target_of(version, lanes), spread=self.spread) for version in versions]

    def dependencies(
        self, on_freed: Callable[[], None], numbers: Iterator[int], in_the_way: str = ""
    ) -> ReleaseDependencies:
        return ReleaseDependencies(
            cast(Any, self.keeper),
            cast(Any, self),
            cast(Any, self.lanes),
            self.targets,
            lambda frozen: cast(Any, self),
            ManualClock(),
            numbers,
            on_freed,
            lambda ddl: in_the_way,
        )

"""Application: what the demo's program publishes: random transactions and DDL, and what its rows come to.

Owns    one task for each session and one for DDL; the model of all rows
Holds   a session changes rows of its own alone, and no DDL runs beside a transaction: what must be downstream
        in the end does not depend on the order of the commits
Tests   tests/deploy/binlog_playground/test_run.py
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final

from binlog_playground.check.statistics import Statistics
from binlog_playground.check.verify import Canonical, ColumnForm, ExpectedTable
from pumpclient import column
from pumpclient.publish.publisher import Publisher
from tidb_binlog.clock import Clock
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.tso import Ts

SCHEMA: Final = "playground"
PROBE: Final = "lag_probe"
PROBES_KEPT: Final = 20
STATEMENTS_MAX: Final = 6
ROWS_WANTED: Final = 40
"""Of a table and session; beyond it rows are deleted as often as others come."""
ROLLED_BACK: Final = 0.03
NULLS: Final = 0.1
DDL_PAUSE_S: Final = 1.5
TABLES_MIN: Final = 3
TABLES_MAX: Final = 8
INDEX: Final = "secondary"
FIRST_DAY: Final = datetime(2024, 1, 1)
WORDS: Final = (
    "",
    "plain",
    'it\'s "quoted"',
    "back\\slash %s",
    "line\nbreak\ttab",
    "ünïcödé",
    "日本語",
    "😀",
)

_Row = dict[str, Any]
_KINDS: Final[dict[str, tuple[str, Callable[[Random], Any]]]] = {
    "bigint": ("int", lambda random: random.randint(-(2**63), 2**63 - 1)),
    "decimal(12,2)": ("dec", lambda random: Decimal(random.randint(-(10**11), 10**11)).scaleb(-2)),
    "double": ("double", lambda random: random.uniform(-1e9, 1e9)),
    "varchar(60)": ("text", lambda random: random.choice(WORDS) + str(random.randrange(1000))),
    "varbinary(16)": ("hex", lambda random: random.randbytes(random.randrange(17))),
    "datetime(6)": ("text", lambda random: FIRST_DAY + timedelta(microseconds=random.randrange(10**14))),
}
"""Types of columns: how `check.verify` compares their values, and a random value."""


@dataclass(slots=True)
class Table:
    """A table as it stands upstream."""

    name: str
    columns: dict[str, str]
    """Types by name, in order, besides the key `id`."""
    rows: list[dict[int, _Row]] = field(default_factory=list)
    """By id, for each session; those of transactions that have committed."""
    indexed: str = ""
    """The column of `INDEX`; "": it has no such index."""

    @property
    def full_name(self) -> str:
        """Give the name with that of the database."""
        return f"{SCHEMA}.{self.name}"

    def all_rows(self) -> Iterator[_Row]:
        """Rows of all sessions."""
        return itertools.chain.from_iterable(own.values() for own in self.rows)

    def expected(self) -> ExpectedTable:
        """What must be downstream."""
        types = {"id": "bigint", **self.columns}
        rows = [tuple(_canonical(row[name]) for name in types) for row in self.all_rows()]
        forms = tuple(ColumnForm(name, _KINDS[sql_type][0], sql_type) for name, sql_type in types.items())
        return ExpectedTable(SCHEMA, self.name, forms, ("id",), rows)


@dataclass(slots=True)
class Application:
    """A program with sessions. `create` first, then `session` and `change_schema` as tasks."""

    publisher: Publisher
    statistics: Statistics
    clock: Clock
    random: Random
    sessions: int
    tables: list[Table] = field(default_factory=list)
    probes: dict[int, str] = field(default_factory=dict)
    """Rows of the table of probes: `sent_at` by id."""
    last_commit_ts: Ts = 0
    """The largest of all transactions and DDL."""
    _locks: list[asyncio.Lock] = field(default_factory=list)
    """One for each session, held during its transactions; a DDL holds all of them."""
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    """For ids of rows, and for names of tables and columns: each once."""

    async def create(self) -> None:
        """The database and its first tables."""
        self._locks = [asyncio.Lock() for _ in range(self.sessions)]
        self._note_ddl(await self.publisher.create_database(SCHEMA))
        columns = [column("id", "bigint", nullable=False), column("sent_at", "varchar(60)")]
        self._note_ddl(await self.publisher.create_table(f"{SCHEMA}.{PROBE}", columns, primary_key=["id"]))
        types = list(_KINDS)
        for name, first in (("accounts", 0), ("orders", 2), ("events", 4)):
            await self._create_table(name, [*types[first:], *types[:first]])

    async def session(self, number: int, interval_s: float, end_s: float) -> None:
        """A transaction every `interval_s` (0: as fast as it goes) until `end_s` (monotonic)."""
        random = Random(self.random.random())
        due_s = self.clock.monotonic_s()
        while (now_s := self.clock.monotonic_s()) < end_s:
            if now_s < due_s:
                await asyncio.sleep(min(due_s, end_s) - now_s)
                continue
            due_s = max(due_s + interval_s, now_s - interval_s)  # one that is late leaves beats out
            async with self._locks[number]:
                await self._run_transaction(number, random)

    async def _run_transaction(self, number: int, random: Random) -> None:
        """Some statements; the model follows if they commit."""
        changed: dict[tuple[int, int], _Row | None] = {}  # by table and id: the last image, None: deleted
        rows = 0
        transaction = self.publisher.transaction()
        await transaction.begin()
        for _ in range(random.randint(1, STATEMENTS_MAX)):
            position = random.randrange(len(self.tables))
            table = self.tables[position]
            own = table.rows[number]
            row_id = random.choice(list(own)) if own and random.random() < 0.6 else next(self._numbers)
            before = changed.get((position, row_id), own.get(row_id))
            after: _Row | None = None
            rows += 1
            if before is None:  # also after this transaction has deleted it
                after = {name: _random_value(sql_type, random) for name, sql_type in table.columns.items()}
                after["id"] = row_id
                transaction.insert(table.full_name, after)
            elif random.random() < (0.7 if len(own) > ROWS_WANTED else 0.2):
                transaction.delete(table.full_name, before)
            else:
                name = random.choice(list(table.columns))
                after = before | {name: _random_value(table.columns[name], random)}
                transaction.update(table.full_name, before, after)
            changed[position, row_id] = after
        if random.random() < ROLLED_BACK:
            await transaction.prewrite()
            await transaction.roll_back()
            self.statistics.rolled_back += 1
            return
        self.last_commit_ts = max(self.last_commit_ts, await transaction.commit())
        self.statistics.committed(rows)
        for (position, row_id), after in changed.items():
            own = self.tables[position].rows[number]
            if after is None:
                own.pop(row_id, None)
            else:
                own[row_id] = after

    async def probe(self, number: int, sent_at: str) -> bool:
        """Insert row `number` into the table of probes, and delete the one `PROBES_KEPT` before it."""
        transaction = self.publisher.transaction()
        await transaction.begin()
        name, rows = f"{SCHEMA}.{PROBE}", self.probes
        transaction.insert(name, {"id": number, "sent_at": sent_at})
        if number > PROBES_KEPT:
            transaction.delete(name, {"id": number - PROBES_KEPT, "sent_at": rows[number - PROBES_KEPT]})
        self.last_commit_ts = max(self.last_commit_ts, await transaction.commit())
        rows[number] = sent_at
        rows.pop(number - PROBES_KEPT, None)
        return True

    async def change_schema(self, end_s: float) -> None:
        """One DDL after the other until `end_s` (monotonic)."""
        while self.clock.monotonic_s() + DDL_PAUSE_S < end_s:
            await asyncio.sleep(DDL_PAUSE_S)
            async with AsyncExitStack() as stack:
                for lock in self._locks:
                    await stack.enter_async_context(lock)
                await self._run_ddl()

    async def _run_ddl(self) -> None:
        random, publisher = self.random, self.publisher
        table = random.choice(self.tables)
        last = list(table.columns)[-1]
        match random.choice(("add", "add", "drop", "index", "truncate", "rename", "create", "drop table")):
            case "drop" if len(table.columns) > 3 and last != table.indexed:
                commit_ts = await publisher.drop_column(table.full_name, last)
                del table.columns[last]
                for row in table.all_rows():
                    del row[last]
            case "index" if table.indexed:
                commit_ts = await publisher.drop_index(table.full_name, INDEX)
                table.indexed = ""
            case "index":
                name = random.choice(list(table.columns))
                commit_ts = await publisher.add_index(table.full_name, INDEX, [name])
                table.indexed = name
            case "truncate":
                commit_ts = await publisher.truncate_table(table.full_name)
                for own in table.rows:
                    own.clear()
            case "rename":
                name = f"{table.name.partition('_')[0]}_{next(self._numbers)}"
                commit_ts = await publisher.rename_table(table.full_name, name)
                table.name = name
            case "drop table" if len(self.tables) > TABLES_MIN:
                commit_ts = await publisher.drop_table(table.full_name)
                self.tables.remove(table)
            case "create" if len(self.tables) < TABLES_MAX:
                await self._create_table(f"more_{next(self._numbers)}", random.sample(list(_KINDS), 4))
                return
            case _:
                name, sql_type = f"c{next(self._numbers)}", random.choice(list(_KINDS))
                commit_ts = await publisher.add_column(table.full_name, column(name, sql_type))
                table.columns[name] = sql_type
                for row in table.all_rows():
                    row[name] = None
        self._note_ddl(commit_ts)

    async def _create_table(self, name: str, types: list[str]) -> None:
        table = Table(name, {f"c{next(self._numbers)}": sql_type for sql_type in types})
        table.rows = [{} for _ in range(self.sessions)]
        columns = [column("id", "bigint", nullable=False)]
        columns += [column(column_name, sql_type) for column_name, sql_type in table.columns.items()]
        self._note_ddl(await self.publisher.create_table(table.full_name, columns, primary_key=["id"]))
        self.tables.append(table)

    def _note_ddl(self, commit_ts: Ts) -> None:
        self.last_commit_ts = max(self.last_commit_ts, commit_ts)
        self.statistics.ddl += 1

    def expected(self) -> list[ExpectedTable]:
        """What must be downstream once `last_commit_ts` is."""
        rows = {number: {"id": number, "sent_at": sent_at} for number, sent_at in self.probes.items()}
        probes = Table(PROBE, {"sent_at": "varchar(60)"}, [rows])
        return [table.expected() for table in (*self.tables, probes)]


def _random_value(sql_type: str, random: Random) -> Any:
    return None if random.random() < NULLS else _KINDS[sql_type][1](random)


def _canonical(value: Any) -> Canonical:
    match value:
        case None:
            return None
        case bytes():
            return value.hex()
        case float():
            return repr(value)
        case datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S.%f")
        case _:
            return str(value)

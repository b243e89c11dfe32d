"""Readers' world: publishers that write, and programs that read by name.

Holds   a transaction that etcd says is committed comes to every reader, whatever died, and none else does;
        each comes once, in the order of commit_ts, and what was committed before a later one came has come
        before it; healed, all has arrived in `converges_s`, and transactions of programs that live commit.
        A reader that was away for long may be told that something is purged, and takes a new snapshot

Tests  tests/sim/test_worlds.py
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import itertools
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import drainer
import pumpclient
from pumpclient import OutcomeUnknown, Publisher, column
from pumpclient.publish.publisher import LEASE_TTL_S
from tests.sim.life import Life
from tests.sim.node import ETCD, die, in_life, new_life
from tests.sim.shrinking import Size
from tests.sim.world import World
from tidb_binlog.errors import BinlogError
from tidb_binlog.tso import Ts

TABLES: Final = ("shop.orders", "shop.items")
_PROMPT_TIMES: Final = 5
_PROMPT_S: Final = 0.25


class End(enum.Enum):
    """What a publisher knows of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    UNKNOWN = "unknown"
    NOT_COMMITTED = "not committed"


@dataclass
class Txn:
    """`number` is the key of its rows."""

    number: int
    began_s: float
    end: End = End.OPEN
    commit_ts: int = 0
    note: str = ""


@dataclass
class Reader:
    """A program that keeps its position with its rows: what it `has`, numbers by commit_ts, is there once."""

    name: str
    life: Life | None = None
    position: int = 0
    done: int = 0
    may_lose: bool = False  # it was away, and something went that it has not done
    has: dict[int, list[int]] = field(default_factory=dict)
    begun: asyncio.Event = field(default_factory=asyncio.Event)


class ReadersWorld(World):
    live_s = 20.0

    def __init__(
        self, seed: int, size: Size, directory: Path, say: Callable[[str], None] | None = None
    ) -> None:
        super().__init__(seed, size, directory, say)
        self.readers = [Reader(f"reader-{number}") for number in range(1, size.readers + 1)]
        self.txns: dict[int, Txn] = {}
        self.committed: list[int] = []  # commit_ts of what etcd says is, ascending
        self._together = self._draw("together", (1, 1, 4))  # transactions of a program at a time
        self._gives_up = self._draw("rollbacks", (0.1, 0.5))
        self._sizes = self._draw("large_rows", ((0,), (0, 0, 3_000), (0, 0, 0, 20_000, 100_000)))
        self._numbers = itertools.count(1)

    def _lives(self) -> list[Life | None]:
        return [*super()._lives(), *(reader.life for reader in self.readers)]

    async def _begin(self) -> None:
        await self._founded()
        for number in range(1, self.size.programs + 1):
            self._start_app(f"app-{number}")
        for reader in self.readers:  # known from the start: a Pump that leaves waits for them
            self._start_reader(reader)
            await reader.begun.wait()

    async def _founded(self) -> None:
        """The tables are there."""
        life = new_life("founder")

        async def found() -> None:
            while True:
                with contextlib.suppress(BinlogError):
                    async with await pumpclient.open_publisher(ETCD) as publisher:
                        await publisher.create_database("shop", if_not_exists=True)
                        for table in TABLES:
                            columns = [column("id", "bigint", nullable=False), column("note", "longtext")]
                            await publisher.create_table(
                                table, columns, primary_key=["id"], if_not_exists=True
                            )
                        return
                await asyncio.sleep(0.5)

        await self.loop.create_task(found(), context=in_life(life))
        await die(life)
        self.committed.clear()  # DDL that changes nothing comes to nobody

    def _commits(self, start_ts: Ts, commit_ts: Ts) -> None:
        if start_ts not in self.commits:
            insort(self.committed, commit_ts)
            self.counts["committed"] += 1
        super()._commits(start_ts, commit_ts)

    def _applied(self) -> dict[str, Ts]:
        return {reader.name: reader.done for reader in self.readers}

    def _lost(self, host: str, name: str, commit_ts: Ts) -> None:
        """Pumps keep nothing for one that has lost something, until it says from where it begins anew. One
        that has nothing asks for what all of them have."""
        for reader in self.readers:
            if reader.name == name and not reader.may_lose:
                if reader.position:
                    super()._lost(host, name, commit_ts)
                reader.may_lose = True

    # -- who uses it -----------------------------------------------------------------------------------

    def _start_app(self, host: str) -> None:
        self.apps[host] = life = new_life(host)
        self.loop.create_task(self._checked(self._write(host)), context=in_life(life))

    async def _write(self, host: str) -> None:
        while True:
            try:
                async with await pumpclient.open_publisher(ETCD) as publisher, asyncio.TaskGroup() as group:
                    for _ in range(self._together):
                        group.create_task(self._transactions(publisher))
            except BinlogError as error:
                self.trace(host, "opens anew", type(error).__name__, error.message)
            await asyncio.sleep(0.5)

    async def _transactions(self, publisher: Publisher) -> None:
        while True:
            await self.rhythm.turn()
            await self._transaction(publisher)
            await asyncio.sleep(self.rng.expovariate(5.0))

    async def _transaction(self, publisher: Publisher, *, hurries: bool = False) -> None:
        number = next(self._numbers)
        note = chr(ord("a") + number % 26) * self.rng.choice(self._sizes)
        self.txns[number] = record = Txn(number, self.loop.time(), note=note)
        table = TABLES[number % len(TABLES)]
        gives_up = not hurries and self.rng.random() < self._gives_up
        short_s = LEASE_TTL_S if self.healed_s else 0.5  # others may end it meanwhile
        ttl_s = self.rng.choice((short_s, LEASE_TTL_S))
        try:
            async with publisher.transaction(ttl_s=ttl_s) as txn:
                txn.insert(table, {"id": number, "note": note})
                if self.rng.random() < 0.5:  # a Pump has it open until it is committed or rolled back
                    await asyncio.sleep(self.rng.choice((0.0, 0.5)))
                    await txn.prewrite()
                await asyncio.sleep(0.0 if hurries else self.rng.choice((0.0, 0.01, 0.5, 5.0)))
                if gives_up:
                    raise _GivesUp
        except _GivesUp:
            record.end = End.NOT_COMMITTED
        except OutcomeUnknown:
            record.end = End.UNKNOWN
        except BinlogError as error:
            record.end = End.NOT_COMMITTED
            if 0 < self.healed_s < record.began_s:
                self.breaks(f"{number} did not commit though nothing is wrong: {error}")
        else:
            record.end, record.commit_ts = End.COMMITTED, int(txn.commit_ts)
            if record.commit_ts not in self.committed:
                self.breaks(f"{number} was said to be committed at {record.commit_ts}, and is not")
        self.trace(number, record.end.value, record.commit_ts)

    def _start_reader(self, reader: Reader) -> None:
        if reader.life is not None and reader.life.alive:
            return
        reader.life = new_life(reader.name)
        read = self._checked(self._read(reader))
        self.loop.create_task(read, context=in_life(reader.life))

    async def _read(self, reader: Reader) -> None:
        tasks: list[asyncio.Task[None]] = []
        while True:
            try:
                reader.done = reader.position
                start: int | str = reader.position or "oldest"
                async with drainer.subscribe(
                    ETCD,
                    name=reader.name,
                    start=start,
                    upstream=self.upstream,
                    spill_dir=str(self.directory),
                ) as stream:
                    reader.begun.set()
                    async for change in stream:
                        self._came(reader, change)
                        if self.rng.random() < 0.5 or self.healed_s:
                            await self._do(reader, stream, change)
                        else:
                            later = self._do(reader, stream, change, after_s=10.0)
                            tasks.append(asyncio.create_task(later))
            except BinlogError as error:
                self.trace(reader.name, "opens anew", type(error).__name__, error.message)
                if isinstance(error, drainer.BinlogsLost) and self._may_be_told(reader, error.lowest):
                    reader.may_lose = True  # Pumps keep nothing for where it stands
                    if error.lowest:
                        self._take_snapshot(reader, error.lowest)
                elif isinstance(error, drainer.BinlogsLost | drainer.OutOfOrder):
                    self.breaks(f"{reader.name} was told: {error}")
            finally:
                for task in tasks:
                    task.cancel()
            await asyncio.sleep(0.5)

    async def _do(self, reader: Reader, stream: Any, change: Any, after_s: float = 0.0) -> None:
        await asyncio.sleep(after_s)
        if change.commit_ts > reader.done:
            reader.done = change.commit_ts
            await stream.done(change)

    def _may_be_told(self, reader: Reader, lowest: Ts) -> bool:
        """It begins at the last change that it has, behind what it had done when nothing came. Without
        `lowest`: who opens anew is told by all Pumps."""
        missed = bisect_right(self.committed, lowest) - bisect_right(self.committed, reader.position)
        return reader.may_lose or not lowest or missed == 0

    def _take_snapshot(self, reader: Reader, ts: Ts) -> None:
        """The tables as they were then, all rows of which are there."""
        if ts <= reader.position:
            self.breaks(f"{reader.name} at {reader.position} is told to begin after {ts}")
        self.counts["snapshots"] += 1
        reader.position = reader.done = ts
        for commit_ts in self.committed[: bisect_right(self.committed, ts)]:
            reader.has.setdefault(commit_ts, [])

    def _came(self, reader: Reader, change: drainer.Transaction | drainer.Ddl) -> None:
        """Rows and position in one step."""
        commit_ts = change.commit_ts
        if commit_ts <= reader.position:
            self.breaks(f"{reader.name} was given {commit_ts} behind its position {reader.position}")
        if reader.position == 0 and reader.may_lose:  # nothing was done, and it asked for what there is
            self._take_snapshot(reader, commit_ts - 1)
        reader.may_lose = False  # until then another Pump may tell of more
        after = bisect_right(self.committed, reader.position)
        missing = self.committed[after : bisect_left(self.committed, commit_ts)]
        if missing:
            self.breaks(f"{reader.name} was given {commit_ts} without {missing}, committed before it came")
        reader.position = commit_ts
        if isinstance(change, drainer.Ddl):
            reader.has[commit_ts] = []
            return
        if commit_ts not in self.committed:
            self.breaks(f"{reader.name} was given {commit_ts}, which did not commit")
        reader.has[commit_ts] = numbers = [int(row.key_values[0]) for row in change.rows]
        self.trace(reader.name, "has", numbers, commit_ts)
        for number, row in zip(numbers, change.rows, strict=True):
            record = self.txns[number]
            if row.after is None or row.after.get("note", "") != record.note:
                self.breaks(f"{reader.name} was given {number} at {commit_ts} with another note")
            if record.end is End.NOT_COMMITTED or record.commit_ts not in (0, commit_ts):
                self.breaks(f"{reader.name} was given {number} at {commit_ts}; its program knows {record}")

    # -- what goes wrong -------------------------------------------------------------------------------

    def _faults(self) -> tuple[Callable[[], Any], ...]:
        return *super()._faults(), self._kill_reader, self._kill_app

    def _programs(self) -> list[str]:
        return [*self._readers(), *super()._programs()]

    def _readers(self) -> list[str]:
        return [reader.name for reader in self.readers]

    async def _kill_reader(self) -> bool:
        reader = self.rng.choice(self.readers)
        assert reader.life is not None
        if not reader.life.alive:
            return False
        self.trace(reader.name, "is killed")
        await die(reader.life)
        self.loop.call_later(self.rhythm.lasts_s(0.0, 0.0, 5.0, 40.0), self._start_reader, reader)
        return True

    async def _kill_app(self) -> None:
        host = self.rng.choice(list(self.apps))
        self.trace(host, "is killed")
        await die(self.apps[host])
        for record in self.txns.values():
            if record.end is End.OPEN:
                record.end = End.UNKNOWN  # others' are still open; they say so themselves in the end
        self._start_app(host)

    # -- the end ---------------------------------------------------------------------------------------

    async def _end(self) -> None:
        for reader in self.readers:
            self._start_reader(reader)
        await asyncio.sleep(5.0)
        for life in self.apps.values():
            await die(life)

    async def _converge(self) -> None:
        end_s = self.loop.time() + self.converges_s
        while self.loop.time() < end_s:
            await self._start_all()
            await asyncio.sleep(1.0)
            if all(set(self.committed) <= set(reader.has) for reader in self.readers):
                break
        else:
            for reader in self.readers:
                if missing := sorted(set(self.committed) - set(reader.has)):
                    self.breaks(f"{reader.name} still has no {missing[:5]} of {len(missing)}")
        one, other = self.readers[0], self.readers[-1]
        if any(other.has[ts] not in ([], numbers) for ts, numbers in one.has.items() if numbers):
            self.breaks("two readers have different histories")
        if self.upstream == "standalone":
            await self._prompt()
        await self._purged()

    async def _prompt(self) -> None:
        """Nothing is wrong, and nothing else is written: a commit is with its readers as soon as it is
        stored, and not once somebody looks."""
        life, waits = new_life("prompt"), []
        self.network.slow_share = 0.0
        publisher = await self.loop.create_task(pumpclient.open_publisher(ETCD), context=in_life(life))
        for _ in range(_PROMPT_TIMES):
            await asyncio.sleep(self.rng.uniform(1.0, 2.0))
            await self.loop.create_task(self._transaction(publisher, hurries=True), context=in_life(life))
            commit_ts, came_s = self.committed[-1], self.loop.time()
            while not all(commit_ts in reader.has for reader in self.readers):
                await asyncio.sleep(0.005)
            waits.append(self.loop.time() - came_s)
        self.trace("prompt", [round(wait, 3) for wait in waits])
        if (middle := sorted(waits)[_PROMPT_TIMES // 2]) > _PROMPT_S:
            self.breaks(f"a commit is {middle:.3f} s on its way to the readers")
        await die(life)


class _GivesUp(Exception):
    """The program rolls back."""

"""Settlement: asks the application's database about prepared transactions without a recorded end.

Owns    which transactions of this process are in doubt, the questions under way
Order   the list of prepared transactions; for each whose owner's lease ran out, or that is in doubt here:
        the database's answer, then the end in the table. At last the database may forget what is settled
Holds   a question that waits for a lock keeps none of the others waiting, as far as `QUESTIONS_MAX` goes
Stops   `end` waits for no answer
Never   decides by a timer: without an answer a transaction stays prepared, and the stream waits for it
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum
from typing import Final, Protocol, TypeVar

from pumpclient.publish.outcome_table import Outcomes
from tidb_binlog.errors import BinlogError, ConfigError, Conflict
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.standalone import InDoubt
from tidb_binlog.upstream_port import Committed, RolledBack

T = TypeVar("T")


async def in_daemon_thread(function: Callable[..., T], *arguments: object) -> T:
    """What `function` returns or raises, from a thread of its own."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: T | None, error: BaseException | None) -> None:
        if ended.done():
            return
        if error is None:
            ended.set_result(result)  # type: ignore[arg-type]
        else:  # a future takes no StopIteration
            ended.set_exception(RuntimeError(repr(error)) if isinstance(error, StopIteration) else error)

    def run() -> None:
        result: T | None = None
        failed: BaseException | None = None
        try:
            result = context.run(function, *arguments)
        except BaseException as error:
            failed = error
        with suppress(RuntimeError):  # the loop is closed: no call waits any more
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=run, name="pumpclient database", daemon=True).start()
    return await ended


logger: Final = logging.getLogger("pumpclient")

SETTLE_EVERY_S: Final = 2.0
PURGE_EVERY: Final = 15
QUESTIONS_MAX: Final = 16
"""At once, each with a connection of its own to the application's database."""


class Decisions(Protocol):
    async def in_doubt(self, database: str) -> tuple[list[InDoubt], int]: ...

    async def decide(self, start_ts: Ts, *, committed: bool) -> Committed | RolledBack | None: ...


@dataclass(frozen=True, slots=True)
class Settled:
    """What a check of all prepared transactions brought; `waiting` ones belong to others who may yet live, or
    the database did not answer for them. Those that others have settled meanwhile are in none."""

    committed: tuple[int, ...] = ()
    rolled_back: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()


def missing_database() -> ConfigError:
    """There is nothing to be asked."""
    return ConfigError("the publisher knows no database to ask", hint="pass outcomes= to open_publisher")


class _End(Enum):
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    WAITING = "the database did not answer"
    OTHERS = "others were quicker"


class Settlement:
    """One application's database. One event loop."""

    def __init__(self, decisions: Decisions, outcomes: Outcomes) -> None:
        self.due = asyncio.Event()
        self._decisions = decisions
        self._outcomes = outcomes
        self._name = ""
        self._ours: set[int] = set()
        self._asking: dict[int, asyncio.Task[_End]] = {}
        self._places = asyncio.Semaphore(QUESTIONS_MAX)

    async def name(self) -> str:
        """The database's. Raises what `Outcomes.name` raises."""
        if not self._name:
            self._name = await in_daemon_thread(self._outcomes.name)
        return self._name

    def doubt(self, start_ts: Ts) -> None:
        """This process does not know what the database did: ask without waiting for the lease."""
        self._ours.add(start_ts)
        self.due.set()

    async def settle(self, *, purge: bool = False) -> Settled:
        """Look once at every prepared transaction of this database, and wait for its answers. Raises
        `Unavailable` (etcd).
        """
        asked, horizon_ts = await self._begin()
        if questions := [task for task in asked.values() if task is not None]:
            await asyncio.wait(questions)
        ends = {start_ts: _End.WAITING if task is None else task.result() for start_ts, task in asked.items()}
        if purge:
            await in_daemon_thread(self._outcomes.purge, horizon_ts)

        def ended(how: _End) -> tuple[int, ...]:
            return tuple(start_ts for start_ts, end in ends.items() if end is how)

        return Settled(ended(_End.COMMITTED), ended(_End.ROLLED_BACK), ended(_End.WAITING))

    async def run_turn(self, turn: int) -> None:
        """One turn of a background task: asks, and leaves the questions to themselves. A failure is logged;
        the next turn tries again."""
        try:
            _, horizon_ts = await self._begin()
            if turn % PURGE_EVERY == 0:
                await in_daemon_thread(self._outcomes.purge, horizon_ts)
        except BinlogError as error:
            logger.warning("prepared transactions are not settled now: %s", error)
        except Exception as error:  # the driver's, in `purge` or `name`
            logger.warning("the application's database does not answer: %s", type(error).__name__)

    async def end(self) -> None:
        """Wait for no answer any more."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _begin(self) -> tuple[dict[int, asyncio.Task[_End] | None], int]:
        """Every prepared transaction with the question about it, None where its owner may yet live; and a
        start_ts below which there is none."""
        self.due.clear()
        ours = set(self._ours)
        in_doubt, horizon_ts = await self._decisions.in_doubt(await self.name())
        asked = {
            entry.start_ts: self._question(entry.start_ts)
            if entry.left_s <= 0 or entry.start_ts in ours
            else None
            for entry in in_doubt
        }
        # What was not listed is not prepared, and if it comes to be, its lease decides.
        self._ours -= ours - asked.keys()
        return asked, horizon_ts

    def _question(self, start_ts: Ts) -> asyncio.Task[_End]:
        """The one that is under way, or a new one."""
        task = self._asking.get(start_ts)
        if task is None:
            task = asyncio.get_running_loop().create_task(
                self._settle(start_ts), name=f"outcome of {start_ts}"
            )
            self._asking[start_ts] = task
            task.add_done_callback(lambda ended: self._answered(start_ts, ended))
        return task

    def _answered(self, start_ts: Ts, task: asyncio.Task[_End]) -> None:
        del self._asking[start_ts]
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            logger.warning("the end of transaction %d is not written down yet: %s", start_ts, error)
        elif task.result() is not _End.WAITING:
            self._ours.discard(start_ts)

    async def _settle(self, start_ts: Ts) -> _End:
        async with self._places:
            answer = await self._answer(start_ts)
        if answer is None:
            return _End.WAITING
        if not await self._record(start_ts, answer):
            return _End.OTHERS
        return _End.COMMITTED if answer else _End.ROLLED_BACK

    async def _answer(self, start_ts: Ts) -> bool | None:
        """None: the database does not answer now."""
        try:
            if inspect.iscoroutinefunction(self._outcomes.committed):
                return bool(await self._outcomes.committed(start_ts))
            answer = await in_daemon_thread(self._outcomes.committed, start_ts)
            return bool(await answer if isinstance(answer, Awaitable) else answer)
        except Exception as error:  # a driver's: any of them means that there is no answer
            logger.warning("transaction %d is in doubt: %s", start_ts, type(error).__name__)
            return None

    async def _record(self, start_ts: Ts, committed: bool) -> bool:
        """False when others were quicker: then the database may have forgotten it, and its answer is void."""
        try:
            end = await self._decisions.decide(start_ts, committed=committed)
        except Conflict as error:
            logger.warning("%s", error)
            return False
        if end is not None:
            logger.info("transaction %d: its database says %s", start_ts, type(end).__name__)
        return end is not None

"""Settlement: asks the application's database about prepared transactions of which nobody wrote down the end.

Drives  the transaction table, `Outcomes`
Owns    nothing but which transactions of this process are in doubt
Order   the list of prepared transactions; for each whose owner's lease ran out, or that is in doubt here:
        the database's answer, then the end in the table. At last the database may forget what is settled
Never   decides by a timer: without an answer a transaction stays prepared, and the stream waits behind it
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from dataclasses import dataclass
from typing import Final, Protocol

from common.errors import BinlogError, Conflict
from common.upstream import Committed, RolledBack
from common.upstream.standalone import InDoubt
from pumpclient.outcome_table import Outcomes

logger: Final = logging.getLogger("pumpclient")

SETTLE_EVERY_S: Final = 2.0
PURGE_EVERY: Final = 15


class Decisions(Protocol):
    async def in_doubt(self, database: str) -> tuple[list[InDoubt], int]: ...

    async def decide(self, start_ts: int, *, committed: bool) -> Committed | RolledBack | None: ...


@dataclass(frozen=True, slots=True)
class Settled:
    """What a look at all prepared transactions brought; `waiting` ones belong to others who may yet live, or
    the database did not answer for them. Those that others have settled meanwhile are in none."""

    committed: tuple[int, ...] = ()
    rolled_back: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()


class Settlement:
    """One application's database. One event loop."""

    def __init__(self, decisions: Decisions, outcomes: Outcomes) -> None:
        self.wanted = asyncio.Event()
        self._decisions = decisions
        self._outcomes = outcomes
        self._name = ""
        self._ours: set[int] = set()
        self._looking = asyncio.Lock()

    async def name(self) -> str:
        """The database's. Raises what `Outcomes.name` raises."""
        if not self._name:
            self._name = await asyncio.to_thread(self._outcomes.name)
        return self._name

    def doubt(self, start_ts: int) -> None:
        """This process does not know what the database did: ask without waiting for the lease."""
        self._ours.add(start_ts)
        self.wanted.set()

    async def settle(self, *, purge: bool = False) -> Settled:
        """Look once at every prepared transaction of this database. Raises `Unavailable` (etcd)."""
        async with self._looking:
            self.wanted.clear()
            ours = set(self._ours)
            found, horizon_ts = await self._decisions.in_doubt(await self.name())
            committed: list[int] = []
            rolled_back: list[int] = []
            waiting: list[int] = []
            for one in found:
                due = one.left_s <= 0 or one.start_ts in ours
                answer = await self._answer(one.start_ts) if due else None
                if answer is None:
                    waiting.append(one.start_ts)
                elif await self._write_down(one.start_ts, answer):
                    (committed if answer else rolled_back).append(one.start_ts)
            # What was not listed is not prepared, and if it comes to be, its lease will tell.
            self._ours -= ours - set(waiting)
            if purge:
                await asyncio.to_thread(self._outcomes.purge, horizon_ts)
        return Settled(tuple(committed), tuple(rolled_back), tuple(waiting))

    async def _answer(self, start_ts: int) -> bool | None:
        """None: the database does not answer now."""
        try:
            return await self._ask(start_ts)
        except Exception as error:  # a driver's: any of them means that there is no answer
            logger.warning("transaction %d is in doubt: %s", start_ts, type(error).__name__)
            return None

    async def _write_down(self, start_ts: int, committed: bool) -> bool:
        """False when others were quicker: then the database may have forgotten it, and its answer is void."""
        try:
            end = await self._decisions.decide(start_ts, committed=committed)
        except Conflict as error:
            logger.warning("%s", error)
            return False
        if end is not None:
            logger.info("transaction %d: its database says %s", start_ts, type(end).__name__)
        return end is not None

    async def _ask(self, start_ts: int) -> bool:
        if inspect.iscoroutinefunction(self._outcomes.committed):
            return bool(await self._outcomes.committed(start_ts))
        answer = await asyncio.to_thread(self._outcomes.committed, start_ts)
        return bool(await answer if inspect.isawaitable(answer) else answer)

    async def look(self, turn: int) -> None:
        """One turn of a background task: a failure is said, and the next turn tries again."""
        try:
            await self.settle(purge=turn % PURGE_EVERY == 0)
        except BinlogError as error:
            logger.warning("prepared transactions are not settled now: %s", error)
        except Exception as error:  # the driver's, in `purge` or `name`
            logger.warning("the application's database does not answer: %s", type(error).__name__)

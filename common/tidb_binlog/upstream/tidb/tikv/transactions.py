"""What became of a transaction of TiDB: asked at its primary key in TiKV.

Drives  questions about many transactions at once, so many per region and altogether; `txn_status` (core)
Owns    final outcomes; since when each open transaction has been asked about
Order   the history of the primary key first, which changes nothing. TiKV is asked to decide, which rolls back
        a lock that has expired, where that lock was left alone for a minute after its end: a TiDB that lives
        renews it, or ends it. Where there is no trace of a transaction, only when it began long ago and has
        long been asked about; a prewrite is not on its way for that long. Whose client has given up is
        decided at once, in one question: nothing of it is on its way
Why     no trace is no rollback where garbage collection may have passed: its safe point is read before TiKV
        is asked to decide and, after an answer from the lack of a trace, once more. Until then it is unknown
Stops   each call at its deadline, with what has been answered by then
Never   rolls back a live lock; takes a client's word for a rollback, or an expired async-commit lock for a
        verdict; keeps "alive" for an answer
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final, Protocol

from tidb_binlog import tso
from tidb_binlog.binlog import KEY_BYTES_MAX
from tidb_binlog.errors import BinlogError, Rejected, Unavailable
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.tidb.tikv.key_errors import refusal
from tidb_binlog.upstream.tidb.tikv.locks import LockResolver, RecentTime
from tidb_binlog.upstream.tidb.tikv.regions import name_of
from tidb_binlog.upstream.tidb.tikv.tikv import Deadline, TikvClient
from tidb_binlog.upstream.tidb.tikv.txn_status import (
    Failed,
    FinalOutcomes,
    Locked,
    NotFound,
    NothingThere,
    OtherPrimary,
    abandoned,
    expired,
    recorded,
)
from tidb_binlog.upstream.watched import Watched
from tidb_binlog.upstream_port import Committed, Outcome, RolledBack, Undecided, Unknown
from tidb_binlog.wire import kvrpcpb_pb2 as kv

YOUNG_S: Final = 600.0
ABANDONED_S: Final = 60.0  # that a lock has been expired
ABANDONED_WATCHED_S: Final = 10.0
DEADLINE_S: Final = 8.0
TIMEOUT_S: Final = 4.0
QUESTIONS_MAX: Final = 256
REGION_QUESTIONS_MAX: Final = 8
RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 1.0
FRESH_S: Final = 300.0
"""So long ago garbage is not collected: TiDB takes no life time of less than ten minutes."""
ALIVE_HINT: Final = (
    "find start_ts {start_ts} among the transactions of TiDB, end it if it hangs; what a dead TiDB left ends "
    "by itself: in a minute, in ten where TiKV has no trace of it"
)

_logger = log.get("tikv")


class Collected(Protocol):
    """The safe point of the garbage collection."""

    async def now(self) -> int: ...


class TikvTransactions:
    """See the port `TransactionStatus`. One event loop."""

    def __init__(
        self,
        tikv: TikvClient,
        locks: LockResolver,
        oracle: RecentTime,
        collected: Collected,
        *,
        young_s: float = YOUNG_S,
        watched_s: float = YOUNG_S,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """A transaction without a trace is rolled back `young_s` after its start_ts, but not before it has
        been asked about here for `watched_s`.
        """
        self._tikv = tikv
        self._locks = locks
        self._oracle = oracle
        self._collected = collected
        self._young_s = young_s
        self._watched_s = watched_s
        self._deadline_s = deadline_s
        self._final = FinalOutcomes()
        self._unknown: dict[int, Unknown] = {}  # with a rollback by now that is none
        self._asked = Watched()
        self._questions = asyncio.Semaphore(QUESTIONS_MAX)

    @property
    def clients_know(self) -> bool:
        """See the port: TiDB says "rolled back" of whatever ended with an error."""
        return False

    async def outcomes(
        self, transactions: Sequence[tuple[int, bytes]], given_up: Collection[int] = ()
    ) -> list[Outcome]:
        """See the port. A question without an answer among others that have one is `Undecided`.

        Raises `Unavailable`, or what else is wrong, if there is no answer at all.
        """
        deadline = Deadline(self._tikv.clock, self._deadline_s)
        regions: defaultdict[int, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(REGION_QUESTIONS_MAX)
        )
        loop = asyncio.get_running_loop()
        tasks = {
            start_ts: loop.create_task(
                self._ask(start_ts, key, deadline, regions, start_ts in given_up), name=f"outcome {start_ts}"
            )
            for start_ts, key in transactions
        }
        try:
            if tasks:
                await asyncio.wait(tasks.values(), timeout=self._deadline_s)
        finally:
            late = [task for task in tasks.values() if task.cancel()]
            if late:
                await asyncio.wait(late)
        answers = {start_ts: self._answer(task) for start_ts, task in tasks.items()}
        errors = [answer for answer in answers.values() if isinstance(answer, BinlogError)]
        if errors and len(errors) == len(answers):
            raise errors[0]
        if errors:
            _logger.warning("some transactions without an answer", count=len(errors), error=errors[0])
        return [
            Undecided(RETRY_MAX_S, str(answer))
            if isinstance(answer := answers[start_ts], BinlogError)
            else answer
            for start_ts, _ in transactions
        ]

    def _answer(self, task: asyncio.Task[Outcome]) -> Outcome | BinlogError:
        if task.cancelled():
            return Unavailable(f"no answer about {task.get_name()} within {self._deadline_s:g} s")
        error = task.exception()
        if error is None:
            return task.result()
        if isinstance(error, BinlogError):
            return error
        raise error

    async def _ask(
        self,
        start_ts: Ts,
        key: bytes,
        deadline: Deadline,
        regions: defaultdict[int, asyncio.Semaphore],
        given_up: bool,
    ) -> Outcome:
        """A slow region gets few questions at once, so that it does not take the place of all others."""
        outcome: Outcome | None = self._final.get(start_ts) or self._unknown.get(start_ts)
        if outcome is not None:
            return outcome
        if not 0 < len(key) <= KEY_BYTES_MAX:
            return Unknown("its prewrite binlog names no primary key, at which TiKV could be asked")
        region = await self._tikv.region(key, deadline)
        async with regions[region.id], self._questions:
            outcome = await self._look(start_ts, key, deadline, given_up)
        if isinstance(outcome, Committed | RolledBack):
            self._final.put(start_ts, outcome)
            self._asked.forget(start_ts)
        return outcome

    async def _look(self, start_ts: Ts, key: bytes, deadline: Deadline, given_up: bool) -> Outcome:
        watched_s = self._asked.seconds(start_ts, self._tikv.clock.monotonic_s())
        now_ts = await self._oracle.recent()
        age_s = tso.age_s(start_ts, tso.physical_s(now_ts))
        if given_up and age_s < FRESH_S:
            return await self._decide(start_ts, key, now_ts, deadline, None, end_if_absent=True, kept=True)
        old = watched_s >= self._watched_s or given_up
        problem: BinlogError | None = None
        lock: kv.MvccLock | None = None  # its own, not that of whoever wrote the key later
        try:
            reply, _ = await self._tikv.send(
                key,
                "MvccGetByKey",
                lambda _: kv.MvccGetByKeyRequest(key=key),
                kv.MvccGetByKeyResponse,
                timeout_s=TIMEOUT_S,
                # A history may be too long to be sent in time; the other question has a short answer.
                deadline=Deadline(self._tikv.clock, deadline.left_s / 2) if old else deadline,
            )
            outcome = recorded(reply.info, start_ts)
            if outcome is not None:
                return outcome
            lock = reply.info.lock if reply.info.lock.start_ts == start_ts else None
            if reply.error:
                problem = refusal(reply.error)
        except (Rejected, Unavailable) as error:
            problem = error
        if (age_s > self._young_s or given_up) and old:
            absent = not isinstance(problem, Unavailable)
            return await self._decide(start_ts, key, now_ts, deadline, problem, end_if_absent=absent)
        if (
            lock is not None
            and watched_s >= ABANDONED_WATCHED_S
            and abandoned(lock, start_ts, now_ts, ABANDONED_S)
        ):
            return await self._decide(start_ts, key, now_ts, deadline, problem, end_if_absent=False)
        if problem is not None:
            raise problem
        if (
            lock is None
            and watched_s >= ABANDONED_WATCHED_S
            and start_ts <= (floor := await self._collected.now())
        ):
            return _nobody_knows(start_ts, floor)
        return Undecided(min(max(watched_s / 4, RETRY_FIRST_S), RETRY_MAX_S), hint=ALIVE_HINT)

    async def _decide(
        self,
        start_ts: Ts,
        key: bytes,
        now_ts: Ts,
        deadline: Deadline,
        problem: BinlogError | None,
        *,
        end_if_absent: bool,
        kept: bool = False,
    ) -> Outcome:
        """Have TiKV decide: the question rolls back what has expired, or with `end_if_absent` left no trace.
        `kept`: its trace cannot have been collected yet.

        `problem`: why there is no history. One that only did not come in time may hold a commit that is not
        found any more in the other way, so that the lack of a trace says nothing.
        """
        floor = 0 if kept or not end_if_absent else await self._collected.now()
        status = await self._locks.check(
            key,
            start_ts,
            caller_ts=start_ts,
            now_ts=now_ts,
            deadline=deadline,
            end_if_absent=end_if_absent and start_ts > floor,
        )
        if isinstance(status, NotFound) and problem is not None:
            raise problem
        if isinstance(status, NotFound) and start_ts <= floor:
            return _nobody_knows(start_ts, floor)
        if isinstance(status, NothingThere):
            if start_ts <= (floor := await self._collected.now()):
                self._unknown[start_ts] = _nobody_knows(start_ts, floor)
                return self._unknown[start_ts]
            status = RolledBack()
        if isinstance(status, Locked) and status.by_secondaries and expired(start_ts, status.ttl_ms, now_ts):
            status = await self._locks.end_of_expired(status.by_secondaries, now_ts, deadline)
        if isinstance(status, Committed | RolledBack):
            _logger.info("old transaction settled", start_ts=start_ts, outcome=type(status).__name__)
            return status
        if isinstance(status, Failed):
            raise status.error
        if isinstance(status, OtherPrimary):
            raise Rejected(
                f"{name_of(key)} is not the primary key of transaction {start_ts}, as its binlog says"
            )
        # However long its lock lasts: it may end at any time.
        return Undecided(RETRY_MAX_S, hint=ALIVE_HINT)


def _nobody_knows(start_ts: Ts, floor: int) -> Unknown:
    return Unknown(
        f"TiKV has no trace of transaction {start_ts}, and garbage is collected up to {floor}: what it left "
        "may be gone"
    )

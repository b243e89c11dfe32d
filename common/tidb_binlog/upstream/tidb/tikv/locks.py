"""Locks that a reader finds: waited for while their transaction lives, cleared away once it is over.

Drives  `txn_status` (core); questions to the region of the primary key, clean-up in the region of the lock
Owns    the outcomes that are final
Order   the status of the transaction at its primary key, by the time of the oracle; ended: the lock is
        replaced by its commit or removed, and the read is repeated; alive: the read is repeated past it where
        TiKV has promised a later commit_ts, otherwise after a pause
Stops   with the caller's deadline
Never   rolls back a live lock: the time that is given to TiKV is the oracle's, also for a lock with ttl 0,
        and an async-commit transaction is asked about at its secondary keys only once it has expired
Tests   tests/common/upstream/tidb/tikv/test_transactions.py
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from tidb_binlog.errors import Unavailable
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.tidb.tikv.key_errors import problem_of
from tidb_binlog.upstream.tidb.tikv.region_errors import Pause, Pauses
from tidb_binlog.upstream.tidb.tikv.regions import name_of
from tidb_binlog.upstream.tidb.tikv.tikv import Deadline, TikvClient
from tidb_binlog.upstream.tidb.tikv.txn_status import (
    Failed,
    FinalOutcomes,
    Locked,
    NotFound,
    Secondaries,
    Status,
    Unlocked,
    by_transaction,
    expired,
    left_s,
    status_of,
)
from tidb_binlog.upstream_port import Committed, RolledBack
from tidb_binlog.wire import kvrpcpb_pb2 as kv

POINT_TIMEOUT_S: Final = 5.0
SMALL_TXN_LOCKS: Final = 16
NOW_AGE_S: Final = 0.05
ALIVE: Final = Pause(0.002, 3.0)
NOT_FOUND: Final = Pause(0.002, 0.5)


class RecentTime(Protocol):
    """What is needed of PD's oracle: a timestamp not above the present one."""

    async def recent(self, max_age_s: float = ...) -> int: ...


@dataclass
class Reader:
    """A reader of locked keys: one operation of a snapshot. `later`: transactions that commit after `ts`, if
    ever."""

    ts: Ts
    later: set[int]
    deadline: Deadline
    pauses: Pauses = field(default_factory=Pauses)


class LockResolver:
    """Settles locks for all readers of a cluster."""

    def __init__(self, tikv: TikvClient, oracle: RecentTime) -> None:
        self._tikv = tikv
        self._oracle = oracle
        self._final = FinalOutcomes()

    async def settle(self, locks: list[kv.LockInfo], reader: Reader) -> None:
        """Do what there is to do about locks in the way of a read; then the read is to be repeated.

        Returns after the pause. Raises `Unavailable` when that would be beyond the deadline.
        """
        pauses = [await self._settle(group, reader) for group in by_transaction(locks)]
        pause_s = max(pauses, default=0.0)
        if pause_s >= reader.deadline.left_s:
            raise Unavailable(
                f"{name_of(locks[0].key)} cannot be read at {reader.ts} within {reader.deadline.seconds:g} s"
                f", locked by transaction {locks[0].lock_version}",
                hint="look for a transaction in TiDB that does not end",
            )
        if pause_s > 0:
            await self._tikv.sleep(pause_s)

    async def _settle(self, locks: list[kv.LockInfo], reader: Reader) -> float:
        """Locks of one transaction; seconds to wait before the read is repeated."""
        lock, pauses, deadline = locks[0], reader.pauses, reader.deadline
        # Not an old one: a lock that has just expired is not waited for once more.
        start_ts, now_ts = lock.lock_version, await self._oracle.recent(NOW_AGE_S)
        status: Status | None = self._final.get(start_ts)
        if status is None:
            status = await self._status(lock, reader, now_ts)
        if isinstance(status, Locked) and status.by_secondaries and expired(start_ts, status.ttl_ms, now_ts):
            status = await self.end_of_expired(status.by_secondaries, now_ts, deadline)
        if isinstance(status, Committed | RolledBack):
            self._final.put(start_ts, status)
            await self._resolve(
                [lock.key for lock in locks],
                start_ts,
                status,
                deadline,
                all_of_regions=lock.txn_size >= SMALL_TXN_LOCKS,
            )
            return pauses.next_s(None)
        if isinstance(status, Unlocked) or (isinstance(status, Locked) and status.pushed):
            # It had not prewritten by now, or has been pushed: if it ever commits, then above our timestamp.
            reader.later.add(start_ts)
            return pauses.next_s(None)
        if isinstance(status, Locked):
            rest_s = left_s(start_ts, status.ttl_ms, now_ts)
            return min(pauses.next_s(ALIVE), max(rest_s, ALIVE.first_s))
        if isinstance(status, Failed) and not isinstance(status.error, Unavailable):
            raise status.error
        return pauses.next_s(NOT_FOUND)

    async def _status(self, lock: kv.LockInfo, reader: Reader, now_ts: Ts) -> Status:
        for end_if_absent in (False, True):
            status = await self.check(
                lock.primary_lock,
                lock.lock_version,
                caller_ts=reader.ts,
                now_ts=now_ts,
                deadline=reader.deadline,
                pessimistic=lock.lock_type == kv.PessimisticLock,
                end_if_absent=end_if_absent,
            )
            # Nothing there, and this lock has expired: the primary was never locked and must not be any more.
            if not isinstance(status, NotFound) or not expired(lock.lock_version, lock.lock_ttl, now_ts):
                break
        return status

    async def check(
        self,
        primary: bytes,
        start_ts: Ts,
        *,
        caller_ts: Ts,
        now_ts: Ts,
        deadline: Deadline,
        timeout_s: float = POINT_TIMEOUT_S,
        pessimistic: bool = False,
        end_if_absent: bool = False,
        ordinary: bool = False,
    ) -> Status:
        """Ask the primary key. A lock that has expired by `now_ts` is rolled back by the question, and with
        `end_if_absent` so is a transaction of which there is nothing.
        """
        reply, _ = await self._tikv.send(
            primary,
            "KvCheckTxnStatus",
            lambda _: kv.CheckTxnStatusRequest(
                primary_key=primary,
                lock_ts=start_ts,
                caller_start_ts=caller_ts,
                current_ts=now_ts,
                rollback_if_not_exist=end_if_absent,
                force_sync_commit=ordinary,
                resolving_pessimistic_lock=pessimistic,
                verify_is_primary=True,
            ),
            kv.CheckTxnStatusResponse,
            timeout_s=timeout_s,
            deadline=deadline,
        )
        return status_of(reply)

    async def end_of_expired(self, primary: kv.LockInfo, now_ts: Ts, deadline: Deadline) -> Status:
        """The end of an expired async-commit transaction, which is written down at its keys."""
        start_ts = primary.lock_version
        secondaries = Secondaries(primary)
        async for keys, reply in self._tikv.send_by_region(
            primary.secondaries,
            "KvCheckSecondaryLocks",
            lambda keys: kv.CheckSecondaryLocksRequest(keys=keys, start_version=start_ts),
            kv.CheckSecondaryLocksResponse,
            timeout_s=POINT_TIMEOUT_S,
            deadline=deadline,
        ):
            if reply.HasField("error"):
                return Failed(problem_of(reply.error))
            secondaries.add(len(keys), reply)
        if secondaries.ordinary:
            return await self.check(
                primary.primary_lock,
                start_ts,
                caller_ts=start_ts,
                now_ts=now_ts,
                deadline=deadline,
                ordinary=True,
            )
        outcome = secondaries.outcome()
        await self._resolve([primary.primary_lock, *primary.secondaries], start_ts, outcome, deadline)
        return outcome

    async def _resolve(
        self,
        keys: Iterable[bytes],
        start_ts: Ts,
        outcome: Committed | RolledBack,
        deadline: Deadline,
        *,
        all_of_regions: bool = False,
    ) -> None:
        """Put the commits in place of the locks, or remove them; perhaps all that the keys' regions have of
        the transaction. An error here only means that the lock is met again.
        """
        commit_ts = outcome.commit_ts if isinstance(outcome, Committed) else 0
        async for _ in self._tikv.send_by_region(
            keys,
            "KvResolveLock",
            lambda part: kv.ResolveLockRequest(
                start_version=start_ts, commit_version=commit_ts, keys=[] if all_of_regions else part
            ),
            kv.ResolveLockResponse,
            timeout_s=POINT_TIMEOUT_S,
            deadline=deadline,
        ):
            pass

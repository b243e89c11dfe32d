"""Transaction status: what TiKV's answers say of a transaction.

Out    committed, rolled back, or a lock that stands and for how long; final outcomes again, by start_ts
Why    a live lock read as "rolled back" loses a transaction: the lock is checked before the commit_ts, and
       an async-commit lock is never a verdict, however old it is
Holds  at most `FINAL_MAX` final outcomes
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidb_binlog import tso
from tidb_binlog.errors import BinlogError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.tidb.tikv.key_errors import problem_of
from tidb_binlog.upstream_port import Committed, RolledBack
from tidb_binlog.wire import kvrpcpb_pb2

FINAL_MAX: Final = 2048


@dataclass(frozen=True, slots=True)
class Locked:
    """The lock on the primary key stands. `pushed`: its commit_ts will be above the asker's timestamp.

    `ttl_ms` counts from the physical part of the transaction's start_ts. `by_secondaries` is the lock of a
    transaction whose outcome its other locks decide once it has expired.
    """

    ttl_ms: int
    pushed: bool = False
    by_secondaries: kvrpcpb_pb2.LockInfo | None = None


@dataclass(frozen=True, slots=True)
class Unlocked:
    """A pessimistic lock is gone, or was never there; nothing is said about the transaction."""


@dataclass(frozen=True, slots=True)
class NotFound:
    """No lock and no record: perhaps its prewrite is still on its way."""


@dataclass(frozen=True, slots=True)
class NothingThere(RolledBack):
    """There was no lock and no record, and from now on there is a rollback. A commit that garbage collection
    has removed looks the same."""


@dataclass(frozen=True, slots=True)
class OtherPrimary:
    """The key is not the primary key of the transaction: the question cannot be answered there."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Another error of the key."""

    error: BinlogError


Status = Committed | RolledBack | Locked | Unlocked | NotFound | OtherPrimary | Failed


def status_of(reply: kvrpcpb_pb2.CheckTxnStatusResponse) -> Status:
    """What an answer to CheckTxnStatus says."""
    if reply.HasField("error"):
        if reply.error.HasField("txn_not_found"):
            return NotFound()
        if reply.error.HasField("primary_mismatch"):
            return OtherPrimary()
        return Failed(problem_of(reply.error))
    lock = reply.lock_info if reply.HasField("lock_info") else None
    by_secondaries = lock if lock is not None and lock.use_async_commit else None
    # A lock with ttl 0 is recognized by its lock_info alone, a lock of an old TiKV by its ttl alone. Where
    # the lock has just been rolled back some versions still describe it.
    gone = reply.commit_version > 0 or reply.action in (
        kvrpcpb_pb2.TTLExpireRollback,
        kvrpcpb_pb2.TTLExpirePessimisticRollback,
    )
    if reply.lock_ttl > 0 or (lock is not None and lock.lock_version and not gone):
        return Locked(reply.lock_ttl, reply.action == kvrpcpb_pb2.MinCommitTSPushed, by_secondaries)
    if reply.commit_version > 0:
        return Committed(reply.commit_version)
    if reply.action in (kvrpcpb_pb2.TTLExpirePessimisticRollback, kvrpcpb_pb2.LockNotExistDoNothing):
        return Unlocked()
    return NothingThere() if reply.action == kvrpcpb_pb2.LockNotExistRollback else RolledBack()


def recorded(info: kvrpcpb_pb2.MvccInfo, start_ts: Ts) -> Committed | RolledBack | None:
    """The end of a transaction as the history of its primary key has it; None if it has none.

    A rollback whose place in the history another's commit had taken is only a mark on that commit. A commit
    that is not above its start_ts cannot be, and says nothing.
    """
    for write in info.writes:
        if write.start_ts == start_ts:
            if write.type == kvrpcpb_pb2.Rollback:
                return RolledBack()
            if write.commit_ts > start_ts:
                return Committed(write.commit_ts)
        elif write.commit_ts == start_ts and write.has_overlapped_rollback:
            return RolledBack()
    return None


def expired(start_ts: Ts, ttl_ms: int, now_ts: Ts) -> bool:
    """Whether a lock may be rolled back at `now_ts`; as strict as TiKV."""
    return tso.physical_ms(start_ts) + ttl_ms < tso.physical_ms(now_ts)


def abandoned(lock: kvrpcpb_pb2.MvccLock, start_ts: Ts, now_ts: Ts, after_s: float) -> bool:
    """Whether no reader has touched the prewrite lock of a transaction since it expired `after_s` ago.

    A pessimistic lock is no prewrite yet: that may be on its way.
    """
    if lock.start_ts != start_ts or lock.type == kvrpcpb_pb2.PessimisticLock:
        return False
    return expired(start_ts, lock.ttl + int(after_s * 1000), now_ts)


def left_s(start_ts: Ts, ttl_ms: int, now_ts: Ts) -> float:
    """Seconds until a lock expires; 0 if it has."""
    return max(0.0, (tso.physical_ms(start_ts) + ttl_ms + 1 - tso.physical_ms(now_ts)) / 1000)


class Secondaries:
    """The end of an expired async-commit transaction, out of all its locks.

    All there: committed at the largest min_commit_ts. One missing: it has ended already, at the commit_ts
    that the reply has, 0 if it was rolled back; the question itself has seen to it that it stays so. One
    that is no async-commit lock: the transaction went back to the ordinary way, and its primary decides.
    """

    def __init__(self, primary: kvrpcpb_pb2.LockInfo) -> None:
        self._commit_ts = primary.min_commit_ts
        self._ended: Committed | RolledBack | None = None
        self.ordinary = not primary.min_commit_ts

    def add(self, asked: int, reply: kvrpcpb_pb2.CheckSecondaryLocksResponse) -> None:
        """The answer of one region, asked about so many keys."""
        if len(reply.locks) < asked:
            self._ended = Committed(reply.commit_ts) if reply.commit_ts else RolledBack()
        for lock in reply.locks:
            self.ordinary = self.ordinary or not lock.use_async_commit or not lock.min_commit_ts
            self._commit_ts = max(self._commit_ts, lock.min_commit_ts)

    def outcome(self) -> Committed | RolledBack:
        """After all regions have answered, and `ordinary` is False."""
        return self._ended or Committed(self._commit_ts)


class FinalOutcomes:
    """What has been learned for good, by start_ts; the oldest goes first."""

    def __init__(self, at_most: int = FINAL_MAX) -> None:
        self._at_most = at_most
        self._outcomes: dict[int, Committed | RolledBack] = {}

    def __len__(self) -> int:
        return len(self._outcomes)

    def get(self, start_ts: Ts) -> Committed | RolledBack | None:
        return self._outcomes.get(start_ts)

    def put(self, start_ts: Ts, outcome: Committed | RolledBack) -> None:
        while len(self._outcomes) >= self._at_most:
            del self._outcomes[next(iter(self._outcomes))]
        self._outcomes[start_ts] = outcome


def by_transaction(locks: Iterable[kvrpcpb_pb2.LockInfo]) -> list[list[kvrpcpb_pb2.LockInfo]]:
    """Locks in groups, one for each transaction."""
    groups: dict[int, list[kvrpcpb_pb2.LockInfo]] = {}
    for lock in locks:
        groups.setdefault(lock.lock_version, []).append(lock)
    return list(groups.values())

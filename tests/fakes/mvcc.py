"""Percolator as TiKV does it, over a dict: locks, write records, and the questions about transactions.

Written from the tables of the reference, one row after the other; the tests of the client ask it everything.
Keys are raw. `max_ts` plays no part but for async commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from tidb_binlog import tso
from tidb_binlog.wire import kvrpcpb_pb2 as kv

PUT, DELETE, LOCK, ROLLBACK, PESSIMISTIC = kv.Put, kv.Del, kv.Lock, kv.Rollback, kv.PessimisticLock
TS_MAX = (1 << 64) - 1


@dataclass(frozen=True)
class MvccLock:
    """A lock on one key."""

    kind: kv.Op.ValueType
    start_ts: int
    primary: bytes
    ttl_ms: int
    value: bytes = b""
    min_commit_ts: int = 0
    secondaries: tuple[bytes, ...] | None = None
    """Not None: async commit."""
    for_update_ts: int = 0
    txn_size: int = 1

    def message(self, key: bytes) -> kv.LockInfo:
        return kv.LockInfo(
            primary_lock=self.primary,
            lock_version=self.start_ts,
            key=key,
            lock_ttl=self.ttl_ms,
            txn_size=self.txn_size,
            lock_type=self.kind,
            lock_for_update_ts=self.for_update_ts,
            use_async_commit=self.secondaries is not None,
            min_commit_ts=self.min_commit_ts,
            secondaries=self.secondaries or (),
        )


@dataclass(frozen=True)
class Write:
    """What became of a transaction on one key."""

    kind: kv.Op.ValueType
    start_ts: int
    commit_ts: int
    value: bytes = b""
    overlapped_rollback: bool = False


@dataclass
class Row:
    """All versions of a key; `writes` by commit_ts, the newest first."""

    lock: MvccLock | None = None
    writes: list[Write] = field(default_factory=list)

    def add(self, write: Write) -> None:
        self.writes.append(write)
        self.writes.sort(key=lambda one: -one.commit_ts)


class KeyFailure(Exception):
    """A request fails on a key."""

    def __init__(self, error: kv.KeyError) -> None:
        super().__init__(str(error))
        self.error = error


class Mvcc:
    """The store of all regions."""

    def __init__(self) -> None:
        self.rows: dict[bytes, Row] = {}
        self.max_ts = 0

    def row(self, key: bytes) -> Row:
        return self.rows.setdefault(key, Row())

    def dump(self) -> dict[bytes, tuple[MvccLock | None, tuple[Write, ...]]]:
        """All that is stored, for comparing."""
        return {
            key: (row.lock, tuple(row.writes)) for key, row in self.rows.items() if row.lock or row.writes
        }

    # What transactions do.

    def prewrite(self, key: bytes, lock: MvccLock) -> None:
        """Lock a key. Fails where another's lock is, or where this transaction is over already."""
        row = self.row(key)
        if row.lock is not None and row.lock.start_ts != lock.start_ts:
            raise KeyFailure(kv.KeyError(locked=row.lock.message(key)))
        if any(_rolled_back(write, lock.start_ts) for write in row.writes):
            raise KeyFailure(kv.KeyError(abort="WriteConflict: rolled back"))
        if lock.secondaries is not None:
            lock = replace(lock, min_commit_ts=max(lock.min_commit_ts, self.max_ts + 1, lock.start_ts + 1))
        row.lock = lock

    def commit(self, key: bytes, start_ts: int, commit_ts: int) -> None:
        row = self.row(key)
        if row.lock is None or row.lock.start_ts != start_ts:
            if any(write.start_ts == start_ts and write.kind != ROLLBACK for write in row.writes):
                return
            raise KeyFailure(kv.KeyError(retryable=f"TxnLockNotFound {start_ts}"))
        if commit_ts < row.lock.min_commit_ts:
            raise KeyFailure(kv.KeyError(abort="CommitTsExpired"))
        kind = LOCK if row.lock.kind == PESSIMISTIC else row.lock.kind
        row.add(Write(kind, start_ts, commit_ts, row.lock.value))
        row.lock = None

    def roll_back(self, key: bytes, start_ts: int) -> None:
        """Remove the lock if it is there, leave a rollback record; nothing if the transaction is over."""
        row = self.row(key)
        if row.lock is not None and row.lock.start_ts == start_ts:
            row.lock = None
        for at, write in enumerate(row.writes):
            if write.start_ts == start_ts:
                return
            if write.commit_ts == start_ts:  # the slot is taken
                row.writes[at] = replace(write, overlapped_rollback=True)
                return
        row.add(Write(ROLLBACK, start_ts, start_ts))

    # What readers ask.

    def get(self, key: bytes, version: int, bypass: Iterable[int] = ()) -> bytes | None:
        """Value at a version. Raises `KeyFailure` for a lock in the way."""
        self._read_at(version)
        row = self.rows.get(key)
        if row is None:
            return None
        lock = row.lock
        if (
            lock is not None
            and lock.start_ts <= version
            and lock.kind in (PUT, DELETE)
            and lock.min_commit_ts <= version
            and lock.start_ts not in bypass
            and not (version == TS_MAX and key == lock.primary)
        ):
            raise KeyFailure(kv.KeyError(locked=lock.message(key)))
        return _visible(row, version)

    def keys(self, start_key: bytes, end_key: bytes) -> Iterator[bytes]:
        """Ascending keys of a range; an empty end is none."""
        for key in sorted(self.rows):
            if key >= start_key and (not end_key or key < end_key):
                yield key

    def snapshot(self, version: int) -> dict[bytes, bytes]:
        """All values at a version, blind to locks."""
        found = ((key, _visible(self.rows[key], version)) for key in sorted(self.rows))
        return {key: value for key, value in found if value is not None}

    def check_txn_status(self, request: kv.CheckTxnStatusRequest) -> kv.CheckTxnStatusResponse:
        """Raises `KeyFailure` for txn_not_found and primary_mismatch."""
        for ts in (request.lock_ts, request.caller_start_ts, request.current_ts):
            self._read_at(ts)
        key, start_ts = request.primary_key, request.lock_ts
        row = self.row(key)
        if row.lock is not None and row.lock.start_ts == start_ts:
            return self._status_of_lock(row, row.lock, request)
        for write in row.writes:
            if write.start_ts == start_ts and write.kind != ROLLBACK:
                return kv.CheckTxnStatusResponse(commit_version=write.commit_ts)
            if _rolled_back(write, start_ts):
                return kv.CheckTxnStatusResponse(action=kv.NoAction)
        if not request.rollback_if_not_exist:
            raise KeyFailure(kv.KeyError(txn_not_found=kv.TxnNotFound(start_ts=start_ts, primary_key=key)))
        if request.resolving_pessimistic_lock:
            return kv.CheckTxnStatusResponse(action=kv.LockNotExistDoNothing)
        self.roll_back(key, start_ts)
        return kv.CheckTxnStatusResponse(action=kv.LockNotExistRollback)

    def _status_of_lock(
        self, row: Row, lock: MvccLock, request: kv.CheckTxnStatusRequest
    ) -> kv.CheckTxnStatusResponse:
        key = request.primary_key
        if request.verify_is_primary and lock.primary != key:
            raise KeyFailure(kv.KeyError(primary_mismatch=kv.PrimaryMismatch(lock_info=lock.message(key))))
        if lock.secondaries is not None and not request.force_sync_commit:
            return kv.CheckTxnStatusResponse(lock_ttl=lock.ttl_ms, lock_info=lock.message(key))
        if tso.physical_ms(lock.start_ts) + lock.ttl_ms < tso.physical_ms(request.current_ts):
            if request.resolving_pessimistic_lock and lock.kind == PESSIMISTIC:
                row.lock = None
                return kv.CheckTxnStatusResponse(action=kv.TTLExpirePessimisticRollback)
            self.roll_back(key, lock.start_ts)
            return kv.CheckTxnStatusResponse(action=kv.TTLExpireRollback)
        caller = request.caller_start_ts
        if lock.min_commit_ts and caller != TS_MAX and caller >= lock.min_commit_ts:
            lock = row.lock = replace(lock, min_commit_ts=max(caller + 1, request.current_ts))
        pushed = caller == TS_MAX or 0 < caller < lock.min_commit_ts
        return kv.CheckTxnStatusResponse(
            lock_ttl=lock.ttl_ms,
            action=kv.MinCommitTSPushed if pushed else kv.NoAction,
            lock_info=lock.message(key),
        )

    def check_secondary_locks(self, keys: Iterable[bytes], start_ts: int) -> kv.CheckSecondaryLocksResponse:
        """All locks, or, once one is missing, the commit_ts (0: rolled back, and now for good)."""
        reply = kv.CheckSecondaryLocksResponse()
        self._read_at(start_ts)
        for key in keys:
            lock = self.row(key).lock
            if lock is not None and lock.start_ts == start_ts and lock.kind != PESSIMISTIC:
                reply.locks.append(lock.message(key))
                continue
            self.roll_back(key, start_ts)  # no matter where it is committed
            committed = [one for one in self.row(key).writes if one.start_ts == start_ts]
            commit_ts = committed[0].commit_ts if committed and committed[0].kind != ROLLBACK else 0
            return kv.CheckSecondaryLocksResponse(commit_ts=commit_ts)
        return reply

    def resolve_lock(self, keys: Iterable[bytes], start_ts: int, commit_ts: int) -> None:
        for key in keys:
            lock = self.row(key).lock
            if lock is None or lock.start_ts != start_ts:
                continue
            if commit_ts:
                self.commit(key, start_ts, commit_ts)
            else:
                self.roll_back(key, start_ts)

    def history(self, key: bytes) -> kv.MvccInfo:
        """As MvccGetByKey tells it."""
        info = kv.MvccInfo()
        row = self.rows.get(key, Row())
        if row.lock is not None:
            lock = row.lock
            info.lock.CopyFrom(
                kv.MvccLock(type=lock.kind, start_ts=lock.start_ts, primary=lock.primary, ttl=lock.ttl_ms)
            )
        for write in row.writes:
            info.writes.add(
                type=write.kind,
                start_ts=write.start_ts,
                commit_ts=write.commit_ts,
                short_value=write.value,
                has_overlapped_rollback=write.overlapped_rollback,
            )
        return info

    def _read_at(self, ts: int) -> None:
        if ts != TS_MAX:
            self.max_ts = max(self.max_ts, ts)


def _visible(row: Row, version: int) -> bytes | None:
    for write in row.writes:
        if write.commit_ts <= version and write.kind in (PUT, DELETE):
            return write.value if write.kind == PUT else None
    return None


def _rolled_back(write: Write, start_ts: int) -> bool:
    own = write.start_ts == start_ts and write.kind == ROLLBACK
    return own or (write.commit_ts == start_ts and write.start_ts != start_ts and write.overlapped_rollback)

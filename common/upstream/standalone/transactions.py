"""What becomes of transactions whose applications commit elsewhere: a table with leases in etcd.

An application begins (an open entry with a deadline), writes its prewrite to a pump, commits here, and tells
the pump. If it dies on the way, whoever asks after the deadline rolls the entry back. Commit and roll-back
are compare-and-set on the same entry: exactly one of them wins, and the answer is final.

A transaction without an entry (its begin never arrived, or it ended long ago and was forgotten) is rolled
back once it is older than a grace, and that is written down before it is said, so nobody can commit it
afterwards.

Deadlines are wall-clock times of the machine that wrote them. Where clocks disagree or jump, a judge also
believes its own monotonic clock: an entry that has not changed for a whole lease under its eyes is over.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final

from common import log, tso
from common.clock import Clock
from common.errors import Conflict, Rejected, Unavailable
from common.etcd import EtcdClient
from common.etcd import client as etcd
from common.etcd.client import KeyValue
from common.upstream import Committed, Outcome, RolledBack, Undecided
from common.upstream.standalone.compare_and_set import CompareAndSet, Swap
from common.upstream.standalone.layout import Entry, Open, decode_entry, encode_entry, txn_key
from common.upstream.standalone.oracle import StandaloneOracle

GRACE_S: Final = 3.0
LEASE_S: Final = 3.0
READS_MAX: Final = 100
FORGET_DELAY_S: Final = 0.05
FORGOTTEN_MAX: Final = 10_000
SEEN_MAX: Final = 100_000
RETRY_S: Final = 0.02

_logger = log.get("standalone")


class StandaloneTransactions:
    """The table. One event loop; `close` flushes what is to be forgotten."""

    def __init__(
        self, client: EtcdClient, oracle: StandaloneOracle, clock: Clock, *, grace_s: float = GRACE_S
    ) -> None:
        self._client = client
        self._oracle = oracle
        self._clock = clock
        self._grace_s = grace_s
        self._swaps = CompareAndSet(client)
        self._revisions: dict[int, int] = {}
        # start_ts -> (revision of its entry, when we first saw it so)
        self._seen: dict[int, tuple[int, float]] = {}
        self._to_forget: dict[int, None] = {}
        self._forgetting: asyncio.Task[None] | None = None
        self._forget_failing = False

    async def begin(self, ttl_s: float = LEASE_S) -> int:
        """Draw a start_ts and open its entry, in one step. Concurrent ones share a round trip.

        Raises `Unavailable`, `Rejected` while the clock is pinned.
        """
        entry = encode_entry(self._open(ttl_s))
        drawn = await self._oracle.draw(lambda start_ts: [etcd.put(txn_key(start_ts), entry)])
        while len(self._revisions) >= SEEN_MAX:  # begun and never ended here; costs one read if ended yet
            del self._revisions[next(iter(self._revisions))]
        self._revisions[drawn.ts] = drawn.revision
        return drawn.ts

    async def commit(self, start_ts: int) -> int:
        """Draw the commit_ts and commit, in one step where this process began it. Asked again, it answers
        the same.

        Raises `Conflict` if it is rolled back; `Unavailable`: ask again, it may be committed.
        """
        key, revision = txn_key(start_ts), self._revisions.get(start_ts)

        def end(commit_ts: int) -> Sequence[Any]:
            if revision is None:
                return ()
            return [
                etcd.nested([etcd.mod_is(key, revision)], [etcd.put(key, encode_entry(Committed(commit_ts)))])
            ]

        drawn = await self._oracle.draw(end)
        commit_ts = drawn.ts
        if drawn.results and drawn.results[0].nested is not None and drawn.results[0].nested.succeeded:
            self._revisions.pop(start_ts, None)
            return commit_ts
        self._revisions.pop(start_ts, None)  # not as we left it: look
        final = await self._end(start_ts, Committed(commit_ts))
        if isinstance(final, Committed):
            return final.commit_ts
        raise Conflict(
            f"transaction {start_ts} cannot commit: it was rolled back, its lease had run out",
            hint="run the transaction again; if it is long, keep it alive",
        )

    async def roll_back(self, start_ts: int) -> None:
        """Make sure that it never commits. Raises `Conflict` if it has, `Unavailable`."""
        final = await self._end(start_ts, RolledBack())
        if isinstance(final, Committed):
            raise Conflict(f"transaction {start_ts} is committed at {final.commit_ts} already")

    async def keep_alive(self, start_ts: int, ttl_s: float = LEASE_S) -> None:
        """Move the deadline to `ttl_s` from now. Raises `Conflict` if the transaction is over."""
        value = encode_entry(self._open(ttl_s))
        found = await self._known(start_ts)
        while found is not None and isinstance(decode_entry(found.key, found.value), Open):
            swapped = await self._swaps.swap(Swap(found.key, found.mod_revision, value))
            if swapped.won:
                assert swapped.found is not None
                self._revisions[start_ts] = swapped.found.mod_revision
                return
            found = swapped.found
        raise Conflict(f"transaction {start_ts} is over", hint="begin a new one")

    async def record(self, start_ts: int, outcome: Committed | RolledBack) -> None:
        """Write down an outcome that is known from elsewhere, whatever stands there."""
        await self._client.put(txn_key(start_ts), encode_entry(outcome))

    async def hold(self, start_ts: int, ttl_s: float) -> None:
        """Open an entry for a start_ts that was drawn elsewhere, whatever stands there. For replays: nobody
        rolls it back before its outcome is recorded or `ttl_s` are over.
        """
        await self._client.put(txn_key(start_ts), encode_entry(self._open(ttl_s)))

    async def forget(self, start_ts: int) -> None:
        """Drop the entry, some time soon: its end is durable in a pump, nobody will ask any more.

        Returns at once. With etcd away for long, entries beyond 10,000 stay in the table.
        """
        self._revisions.pop(start_ts, None)
        self._seen.pop(start_ts, None)
        if len(self._to_forget) < FORGOTTEN_MAX:
            self._to_forget[start_ts] = None
        if self._forgetting is None or self._forgetting.done():
            self._forgetting = asyncio.get_running_loop().create_task(
                self._forget_soon(), name="transactions.forget"
            )

    async def outcomes(self, transactions: Sequence[tuple[int, bytes]]) -> list[Outcome]:
        """See the port `TransactionStatus`. The keys are not needed here."""
        start_tss = [start_ts for start_ts, _ in transactions]
        found: dict[int, KeyValue | None] = {}
        for at in range(0, len(start_tss), READS_MAX):
            part = start_tss[at : at + READS_MAX]
            result = await self._client.read([etcd.get(txn_key(start_ts)) for start_ts in part])
            for start_ts, reply in zip(part, result.results, strict=True):
                found[start_ts] = reply.kvs[0] if reply.kvs else None
        answers = await asyncio.gather(*(self._judge(start_ts, found[start_ts]) for start_ts in found))
        outcome_of = dict(zip(found, answers, strict=True))
        return [outcome_of[start_ts] for start_ts in start_tss]

    async def close(self) -> None:
        """Forget what is still to be forgotten, if etcd answers, and stop."""
        if self._forgetting is not None:
            self._forgetting.cancel()
            await asyncio.wait({self._forgetting})
        with contextlib.suppress(Unavailable, Rejected):
            await self._flush_forgotten()
        await self._swaps.close()

    def _open(self, ttl_s: float) -> Open:
        assert ttl_s > 0
        return Open(int((self._clock.wall_s() + ttl_s) * 1000), max(1, int(ttl_s * 1000)))

    async def _known(self, start_ts: int) -> KeyValue | None:
        """The entry; from memory where this process wrote it (a stale memory only costs a lost swap)."""
        revision = self._revisions.get(start_ts)
        if revision is None:
            return await self._client.get(txn_key(start_ts))
        return KeyValue(txn_key(start_ts), encode_entry(Open(0, 1)), revision)

    async def _end(self, start_ts: int, wanted: Committed | RolledBack) -> Committed | RolledBack:
        """Bring an entry to its end; the end that it has afterwards, ours or an earlier one."""
        found = await self._known(start_ts)
        while True:
            entry = decode_entry(found.key, found.value) if found else None
            if isinstance(entry, Committed | RolledBack):
                self._revisions.pop(start_ts, None)
                return entry
            if entry is None and isinstance(wanted, Committed):
                # Never begun, or judged and forgotten: nobody may commit it now.
                return RolledBack()
            expected = found.mod_revision if found else 0
            swapped = await self._swaps.swap(Swap(txn_key(start_ts), expected, encode_entry(wanted)))
            if swapped.won:
                self._revisions.pop(start_ts, None)
                return wanted
            found = swapped.found

    async def _judge(self, start_ts: int, found: KeyValue | None) -> Outcome:
        entry: Entry | None = decode_entry(found.key, found.value) if found else None
        if isinstance(entry, Committed | RolledBack):
            self._seen.pop(start_ts, None)
            return entry
        left_s = self._left_s(start_ts, found, entry)
        if left_s > 0:
            return Undecided(max(left_s, RETRY_S))
        expected = found.mod_revision if found else 0
        swapped = await self._swaps.swap(Swap(txn_key(start_ts), expected, encode_entry(RolledBack())))
        self._seen.pop(start_ts, None)
        if swapped.won:
            return RolledBack()
        if swapped.found is not None:
            entry = decode_entry(swapped.found.key, swapped.found.value)
            if isinstance(entry, Committed | RolledBack):
                return entry
        return Undecided(RETRY_S)  # its lease was extended, or it was begun, at this very moment

    def _left_s(self, start_ts: int, found: KeyValue | None, entry: Open | None) -> float:
        """Seconds until it may be rolled back; 0 or less: now."""
        revision = found.mod_revision if found else 0
        now_s, now_wall_s = self._clock.monotonic_s(), self._clock.wall_s()
        if len(self._seen) >= SEEN_MAX:
            self._seen.clear()
        seen_revision, since_s = self._seen.get(start_ts, (revision, now_s))
        if seen_revision != revision:
            since_s = now_s
        self._seen[start_ts] = (revision, since_s)
        watched_s = now_s - since_s
        if entry is None:
            return min(self._grace_s - tso.age_s(start_ts, now_wall_s), self._grace_s - watched_s)
        return min(entry.deadline_ms / 1000 - now_wall_s, entry.lease_ms / 1000 - watched_s)

    async def _forget_soon(self) -> None:
        while self._to_forget:
            await asyncio.sleep(FORGET_DELAY_S)
            try:
                await self._flush_forgotten()
                self._forget_failing = False
            except (Unavailable, Rejected) as error:
                if not self._forget_failing:
                    self._forget_failing = True
                    _logger.warning("cannot drop ended transactions, trying again", error=error)
                await asyncio.sleep(1.0)

    async def _flush_forgotten(self) -> None:
        while self._to_forget:
            part = list(self._to_forget)[:READS_MAX]
            await self._client.txn([], [etcd.delete(txn_key(start_ts)) for start_ts in part])
            for start_ts in part:
                self._to_forget.pop(start_ts, None)

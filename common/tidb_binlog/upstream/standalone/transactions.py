"""What becomes of transactions whose applications commit elsewhere: a table with leases in etcd.

An application begins (an open entry with a deadline), writes its prewrite to a pump, commits here, and
notifies the pump. If it dies on the way, the first that asks after the deadline rolls the entry back. Commit
and roll-back are compare-and-set on the same entry: exactly one of them wins, and the answer is final.

Where the application's own database decides, the entry is prepared before that database commits: its
commit_ts is drawn, and from then on no deadline rolls it back. `decide` writes down what the database did,
the first to find out: the application, or after its death another process that asks the database.

A write that must see a certain schema names the revision of the catalogue's head; when that has moved, the
step does not take place.

A transaction without an entry (its begin never arrived, or it ended long ago and was forgotten) is rolled
back once it is older than a grace, and that is written down before it is said, so that none can commit it
afterwards.

An end is dropped when its owner has notified a pump (`forget`), or else some time after every pump's
watermark has passed it (`sweep`): its owner may still ask, having lost the answer. Dropped ends say nothing:
an entry that is gone, or was begun anew, is no rollback to who cannot know whether its commit arrived
(`Forgotten`).

No wall clock ends what lives: deadlines are those of the machine that wrote them, and who judges believes its
own monotonic clock alone. An entry that has not changed for a whole lease under its eyes is over.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from tidb_binlog import tso
from tidb_binlog.clock import Clock
from tidb_binlog.errors import Conflict, Rejected, Unavailable
from tidb_binlog.etcd import client as etcd
from tidb_binlog.etcd.client import EtcdClient, KeyValue
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.standalone.compare_and_set import CompareAndSet, Swap
from tidb_binlog.upstream.standalone.layout import (
    DATABASE_NAME,
    SCHEMA,
    Entry,
    Open,
    Prepared,
    decode_entry,
    encode_entry,
    entries,
    txn_key,
)
from tidb_binlog.upstream.standalone.oracle import StandaloneOracle
from tidb_binlog.upstream.watched import Watched
from tidb_binlog.upstream_port import Committed, Outcome, RolledBack, Undecided

GRACE_S: Final = 3.0
LEASE_S: Final = 3.0
READS_MAX: Final = 100
KEPT_S: Final = 60.0
"""An end is kept for so long after its commit_ts: longer than any process keeps asking."""
FORGET_DELAY_S: Final = 0.05
FORGOTTEN_MAX: Final = 10_000
MINE_MAX: Final = 100_000
RETRY_S: Final = 0.02
PREPARED_RETRY_S: Final = 0.5

LEASE_HINT: Final = (
    "its publisher lives and renews its lease: let that program end the transaction, or end the program; the "
    "lease runs out seconds later"
)
ASK_THE_DATABASE: Final = (
    "only the database {database} knows: run the application's publisher with it again, or settle once: "
    "await publisher.settle(OutcomeTable(CONNECT))"
)

_logger = log.get("standalone")


class SchemaMoved(Conflict):
    """The catalogue has changed since the rows were encoded. Nothing took place: load it and check."""


class Forgotten(Conflict):
    """There is no entry, or not the one that was begun: it never was, or it ended and was dropped. Who has
    asked for a commit before cannot know from this whether it took place."""


@dataclass(frozen=True, slots=True)
class InDoubt:
    """A prepared transaction: only `database` knows its outcome. `left_s`: what its lease has left."""

    start_ts: Ts
    commit_ts: Ts
    database: str
    left_s: float


@dataclass(frozen=True, slots=True)
class _Known:
    """`created`: the revision that the entry was begun with."""

    revision: int
    entry: Entry
    created: int


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
        self._mine: dict[int, _Known] = {}
        self._seen = Watched()  # in which revision of its entry
        self._to_forget: dict[int, None] = {}
        self._forgetting: asyncio.Task[None] | None = None
        self._forget_failing = False

    async def begin(self, ttl_s: float = LEASE_S) -> int:
        """Draw a start_ts and open its entry, in one step. Concurrent ones share a round trip.

        Raises `Unavailable`, `Rejected` while the clock is pinned.
        """
        opened = self._open(ttl_s)
        value = encode_entry(opened)
        drawn = await self._oracle.draw(lambda start_ts: [etcd.put(txn_key(start_ts), value)])
        while len(self._mine) >= MINE_MAX:  # begun and never ended here; costs one read if ended yet
            del self._mine[next(iter(self._mine))]
        self._mine[drawn.ts] = _Known(drawn.revision, opened, drawn.revision)
        return drawn.ts

    async def commit(
        self,
        start_ts: Ts,
        *,
        schema_revision: int | None = None,
        writes: Callable[[int], Sequence[Any]] | None = None,
    ) -> int:
        """Draw the commit_ts and commit, in one step where this process began it. Asked again, it answers
        the same. `writes` (of the commit_ts) take place in the same step.

        Raises `Conflict` if it is rolled back, `Forgotten` where it is not known, `SchemaMoved` if the
        catalogue's head is not at `schema_revision` any more, `Unavailable`: ask again, it may be committed.
        """
        final = await self._advance(start_ts, Committed, schema_revision, writes)
        if isinstance(final, Committed):
            self._mine.pop(start_ts, None)
            return final.commit_ts
        raise Conflict(
            f"transaction {start_ts} is prepared: {final.database} decides", hint="use decide, not commit"
        )

    async def prepare(
        self, start_ts: Ts, database: str, ttl_s: float = LEASE_S, *, schema_revision: int | None = None
    ) -> int:
        """Draw the commit_ts and leave the decision to `database`, in one step. Asked again, it answers the
        same. Raises what `commit` raises, and `Rejected` for a name that cannot be one.
        """
        if not DATABASE_NAME.fullmatch(database):
            raise Rejected(f"{database!r} cannot name a database", hint="use letters, digits and . _ : -")
        lease = self._open(ttl_s)
        final = await self._advance(
            start_ts,
            lambda commit_ts: Prepared(lease.deadline_ms, lease.lease_ms, commit_ts, database),
            schema_revision,
        )
        return final.commit_ts

    async def decide(self, start_ts: Ts, *, committed: bool) -> Committed | RolledBack | None:
        """Write down what the database did with a prepared transaction; the end that it has now.

        None: it is not prepared (not yet, or ended and forgotten), nothing was written. Raises `Conflict`
        when the opposite is written down already, `Unavailable`: ask again.
        """
        entry = self._mine.get(start_ts)
        if entry is None or not isinstance(entry.entry, Prepared):
            entry = _read(await self._client.get(txn_key(start_ts)))
        while entry is not None and isinstance(entry.entry, Prepared):
            end = Committed(entry.entry.commit_ts) if committed else RolledBack()
            entry = await self._swap(start_ts, entry.revision, end)
        if entry is None or not isinstance(entry.entry, Committed | RolledBack):
            return None
        if isinstance(entry.entry, Committed) is not committed:
            said = "committed" if committed else "rolled back"
            raise Conflict(
                f"transaction {start_ts} was {said}, and the opposite is written down",
                hint="whoever answers for the database must answer for the one that was written to",
            )
        return entry.entry

    async def in_doubt(self, database: str) -> tuple[list[InDoubt], int]:
        """Prepared transactions of this database, and a start_ts: every one below it has ended, but these.
        Open ones whose lease has run out are rolled back, as `outcomes` does. Raises `Unavailable`.
        """
        horizon_ts: int = await self._oracle.timestamp()
        doubtful: list[InDoubt] = []
        async for start_ts, pair, entry in entries(self._client):
            if isinstance(entry, Open) and isinstance(await self._judge(start_ts, pair), Undecided):
                horizon_ts = min(horizon_ts, start_ts)
            if isinstance(entry, Prepared) and entry.database == database:
                horizon_ts = min(horizon_ts, start_ts)
                left_s = self._left_s(start_ts, pair, entry)
                doubtful.append(InDoubt(start_ts, entry.commit_ts, database, left_s))
        return doubtful, horizon_ts

    async def sweep(self, below_ts: Ts) -> None:
        """Drop the ends `KEPT_S` below a timestamp that every pump's watermark has passed: no pump will ask
        for them, and no owner any more.

        They are those that no owner forgets, having died or lost sight of its pump. Open ones whose lease has
        run out are rolled back, as `outcomes` does. Raises `Unavailable`.
        """
        below_ts = max(below_ts - tso.compose(int(KEPT_S * 1000)), 0)
        async for start_ts, pair, _ in entries(self._client):
            if start_ts >= below_ts:
                break
            end = await self._judge(start_ts, pair)
            if isinstance(end, RolledBack) or (isinstance(end, Committed) and end.commit_ts < below_ts):
                await self.forget(start_ts)

    async def roll_back(self, start_ts: Ts) -> None:
        """Make sure that it never commits. Raises `Conflict` if it has, `Unavailable`."""
        final = await self._end(start_ts)
        if isinstance(final, Committed):
            raise Conflict(f"transaction {start_ts} is committed at {final.commit_ts} already")

    async def keep_alive(self, start_ts: Ts, ttl_s: float = LEASE_S) -> None:
        """Move the deadline to `ttl_s` from now. Raises `Conflict` if the transaction is over."""
        lease = self._open(ttl_s)
        entry = await self._known(start_ts)
        while entry is not None and isinstance(entry.entry, Open | Prepared):
            renewed = replace(entry.entry, deadline_ms=lease.deadline_ms, lease_ms=lease.lease_ms)
            entry = await self._swap(start_ts, entry.revision, renewed)
            if entry is not None and entry.entry == renewed:
                return
        raise Conflict(f"transaction {start_ts} is over", hint="begin a new one")

    async def record(self, start_ts: Ts, outcome: Committed | RolledBack) -> None:
        """Write down an outcome that is known from elsewhere, whatever stands there."""
        await self._client.put(txn_key(start_ts), encode_entry(outcome))

    async def hold(self, start_ts: Ts, ttl_s: float) -> None:
        """Open an entry for a start_ts that was drawn elsewhere, whatever stands there. For replays: no
        process rolls it back before its outcome is recorded or `ttl_s` are over.
        """
        await self._client.put(txn_key(start_ts), encode_entry(self._open(ttl_s)))

    async def forget(self, start_ts: Ts) -> None:
        """Drop the entry, some time soon: its end is durable in a pump, it will not be asked for any more.

        Returns at once. With etcd away for long, entries beyond 10,000 stay in the table.
        """
        self._mine.pop(start_ts, None)
        self._seen.forget(start_ts)
        if len(self._to_forget) < FORGOTTEN_MAX:
            self._to_forget[start_ts] = None
        if self._forgetting is None or self._forgetting.done():
            self._forgetting = asyncio.get_running_loop().create_task(
                self._forget_soon(), name="transactions.forget"
            )

    @property
    def clients_know(self) -> bool:
        """See the port: a publisher says what stands in its entry."""
        return True

    async def outcomes(
        self, transactions: Sequence[tuple[int, bytes]], given_up: Collection[int] = ()
    ) -> list[Outcome]:
        """See the port `TransactionStatus`. The keys are not needed here."""
        start_tss = [start_ts for start_ts, _ in transactions]
        stored: dict[int, KeyValue | None] = {}
        for at in range(0, len(start_tss), READS_MAX):
            part = start_tss[at : at + READS_MAX]
            result = await self._client.read([etcd.get(txn_key(start_ts)) for start_ts in part])
            for start_ts, reply in zip(part, result.results, strict=True):
                stored[start_ts] = reply.kvs[0] if reply.kvs else None
        answers = await asyncio.gather(*(self._judge(start_ts, stored[start_ts]) for start_ts in stored))
        outcome_of = dict(zip(stored, answers, strict=True))
        return [outcome_of[start_ts] for start_ts in start_tss]

    async def close(self) -> None:
        """Forget what is still to be forgotten, if etcd answers, and stop."""
        if self._forgetting is not None:
            self._forgetting.cancel()
            await asyncio.wait({self._forgetting})
        with contextlib.suppress(Unavailable, Rejected):
            await self.drop_forgotten()
        await self._swaps.close()

    def _open(self, ttl_s: float) -> Open:
        assert ttl_s > 0
        return Open(int((self._clock.wall_s() + ttl_s) * 1000), max(1, int(ttl_s * 1000)))

    async def _known(self, start_ts: Ts) -> _Known | None:
        """The entry; from memory where this process wrote it (a stale memory only costs a lost swap)."""
        mine = self._mine.get(start_ts)
        return mine or _read(await self._client.get(txn_key(start_ts)))

    async def _swap(self, start_ts: Ts, expected: int, entry: Entry) -> _Known | None:
        """Compare and set; the entry as it is now. Remembered while this process may need it again."""
        swapped = await self._swaps.swap(Swap(txn_key(start_ts), expected, encode_entry(entry)))
        now = _read(swapped.actual)
        mine = self._mine.get(start_ts)
        if mine is not None:
            if now is None or isinstance(now.entry, Committed | RolledBack):
                del self._mine[start_ts]
            elif now.revision > mine.revision:
                self._mine[start_ts] = replace(now, created=mine.created)
        return now

    async def _advance(
        self,
        start_ts: Ts,
        entry_of: Callable[[int], Committed | Prepared],
        schema_revision: int | None,
        writes: Callable[[int], Sequence[Any]] | None = None,
    ) -> Committed | Prepared:
        """From open to what `entry_of` makes of a commit_ts, drawn in the same step; the entry that it has
        afterwards if that is not open any more."""
        mine = self._mine.get(start_ts)
        key, current = txn_key(start_ts), await self._known(start_ts)
        while current is not None and isinstance(current.entry, Open):
            compare = [etcd.mod_is(key, current.revision)]
            if schema_revision is not None:
                compare.append(etcd.mod_is(SCHEMA, schema_revision))

            def end(commit_ts: Ts, compare: Sequence[Any] = tuple(compare)) -> Sequence[Any]:
                puts = [
                    etcd.put(key, encode_entry(entry_of(commit_ts))),
                    *(writes(commit_ts) if writes else ()),
                ]
                return [etcd.nested(compare, puts, [etcd.get(key), etcd.get(SCHEMA)])]

            drawn = await self._oracle.draw(end)
            decided = drawn.results[0].nested
            assert decided is not None
            if decided.succeeded:
                entry = entry_of(drawn.ts)
                self._mine[start_ts] = _Known(drawn.revision, entry, current.created)
                return entry
            pairs = decided.results[0].kvs
            before, current = current.revision, _read(pairs[0] if pairs else None)
            if current is not None and current.revision == before:  # so it was the other condition
                raise SchemaMoved("the schema has changed since the rows were encoded", hint="load it anew")
        self._mine.pop(start_ts, None)
        if current is not None and isinstance(current.entry, Committed | Prepared):
            return current.entry
        # Rolled back, or never begun, or ended and dropped: it may not be committed now.
        gone = current is None or mine is None or current.created != mine.created
        why = (
            "it was rolled back, its lease had run out" if current is not None else "it has no entry any more"
        )
        raise (Forgotten if gone else Conflict)(
            f"transaction {start_ts} cannot commit: {why}",
            hint="run the transaction again; if it is long, keep it alive",
        )

    async def _end(self, start_ts: Ts) -> Committed | RolledBack:
        """Roll back; the end that it has afterwards, ours or an earlier one."""
        current = await self._known(start_ts)
        while True:
            if current is not None and isinstance(current.entry, Committed | RolledBack):
                self._mine.pop(start_ts, None)
                return current.entry
            current = await self._swap(start_ts, current.revision if current else 0, RolledBack())

    async def _judge(self, start_ts: Ts, stored: KeyValue | None) -> Outcome:
        entry: Entry | None = decode_entry(stored.key, stored.value) if stored else None
        if isinstance(entry, Committed | RolledBack):
            self._seen.forget(start_ts)
            return entry
        left_s = self._left_s(start_ts, stored, entry)
        if isinstance(entry, Prepared):
            hint = ASK_THE_DATABASE.format(database=entry.database)
            return Undecided(max(left_s, PREPARED_RETRY_S), hint=hint)
        if left_s > 0:
            return Undecided(max(left_s, RETRY_S), hint=LEASE_HINT)
        expected = stored.mod_revision if stored else 0
        swapped = await self._swaps.swap(Swap(txn_key(start_ts), expected, encode_entry(RolledBack())))
        self._seen.forget(start_ts)
        if swapped.won:
            return RolledBack()
        if swapped.actual is not None:
            entry = decode_entry(swapped.actual.key, swapped.actual.value)
            if isinstance(entry, Committed | RolledBack):
                return entry
        return Undecided(RETRY_S)  # its lease was extended, or it was begun, just now

    def _left_s(self, start_ts: Ts, stored: KeyValue | None, entry: Open | Prepared | None) -> float:
        """Seconds until it may be rolled back, or its database asked; 0 or less: now."""
        revision = stored.mod_revision if stored else 0
        watched_s = self._seen.seconds(start_ts, self._clock.monotonic_s(), revision)
        if entry is None:
            return self._grace_s - watched_s
        left_s = entry.lease_ms / 1000 - watched_s
        if isinstance(entry, Open):
            return left_s
        # It ends nothing: its database is asked, which answers right at any time.
        return min(entry.deadline_ms / 1000 - self._clock.wall_s(), left_s)

    async def _forget_soon(self) -> None:
        while self._to_forget:
            await asyncio.sleep(FORGET_DELAY_S)
            try:
                await self.drop_forgotten()
                self._forget_failing = False
            except (Unavailable, Rejected) as error:
                if not self._forget_failing:
                    self._forget_failing = True
                    _logger.warning("cannot drop ended transactions, trying again", error=error)
                await asyncio.sleep(1.0)

    async def drop_forgotten(self) -> None:
        """Drop now what `forget` was told of. Raises `Unavailable`, `Rejected`."""
        while self._to_forget:
            part = list(self._to_forget)[:READS_MAX]
            await self._client.txn([], [etcd.delete(txn_key(start_ts)) for start_ts in part])
            for start_ts in part:
                self._to_forget.pop(start_ts, None)


def _read(stored: KeyValue | None) -> _Known | None:
    if stored is None:
        return None
    return _Known(stored.mod_revision, decode_entry(stored.key, stored.value), stored.create_revision)

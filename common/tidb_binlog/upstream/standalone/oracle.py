"""Timestamps from etcd: larger than every one that any process got before, in windows of one write each.

Everything that waits when a reservation begins gets its timestamps from that reservation, and nothing is
kept for later: a timestamp left over from a window would be smaller than one that another process drew in
between, and watermarks rest on "drawn later is larger". The window's end is stored by compare-and-set
before anything is handed out, so a restart, a second process or a clock set back never repeats one. A clock
that is ahead is not followed: see `TimeBound`.

A request may bring a write that belongs to its timestamp (a transaction's first entry, or its end): it goes
into the same etcd transaction, so both exist or neither, at the price of no further round trip.

Pinned (replay of recorded work), the clock stands: `timestamp` returns the pinned value, however often.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from tidb_binlog import tso
from tidb_binlog.clock import Clock
from tidb_binlog.errors import BinlogError, Rejected, Unavailable
from tidb_binlog.etcd import client as etcd
from tidb_binlog.etcd.client import EtcdClient, OpResult
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.standalone.layout import PIN, TSO, decode_number

SLACK_S: Final = 5.0
ASK_AGAIN_S: Final = 10.0


class TimeBound:
    """The bound of one process. `now_s` is always its monotonic clock."""

    def __init__(self) -> None:
        self._stored_s: float | None = None  # what the two moments are when the monotonic clock is zero
        self._etcd_s: float | None = None
        self._asked_s: float | None = None

    def stored(self, ts: Ts, now_s: float) -> None:
        """The clock stood at `ts` (0: there was none) at `now_s` or before."""
        if ts and (self._stored_s is None or tso.physical_s(ts) - now_s > self._stored_s):
            self._stored_s = tso.physical_s(ts) - now_s

    def should_ask(self, wall_s: float, now_s: float) -> bool:
        """Whether this host's time is above what is known, and etcd's hosts were not asked just now."""
        if self._asked_s is not None and now_s - self._asked_s < ASK_AGAIN_S:
            return False
        limit_s = self._limit_s(now_s)
        return limit_s is None or wall_s > limit_s

    def observe(self, clocks: Iterable[float | None], began_s: float) -> None:
        """What etcd's hosts said, asked at `began_s`: seconds since 1970, None of one that did not say."""
        self._asked_s = began_s
        self._etcd_s = max((clock - began_s for clock in clocks if clock is not None), default=None)

    def _limit_s(self, now_s: float) -> float | None:
        limits_s = [] if self._stored_s is None else [self._stored_s + now_s]
        if self._etcd_s is not None:
            limits_s.append(self._etcd_s + now_s + SLACK_S)
        return max(limits_s, default=None)

    def physical_s(self, wall_s: float, now_s: float) -> float:
        """Up to where this process may move the clock, seconds since 1970."""
        limit_s = self._limit_s(now_s)
        return wall_s if limit_s is None else min(wall_s, limit_s)

    @property
    def has_asked(self) -> bool:
        """Whether etcd's hosts were asked at all."""
        return self._asked_s is not None

    @property
    def etcd_is_silent(self) -> bool:
        """Whether no host of etcd said its time when asked."""
        return self._asked_s is not None and self._etcd_s is None


# etcd takes 128 operations in a transaction; one is the clock's own, a conditional write counts twice.
WRITES_MAX: Final = 60

_CLOCKS_S: Final = 1.0  # within which etcd's hosts say their time
_LOG_FROM_S: Final = 1.0  # of a host's time that is not followed

_logger = log.get("oracle")

Writes = Callable[[int], Sequence[Any]]


@dataclass(slots=True, eq=False)
class _Request:
    future: asyncio.Future[Drawn]
    writes: Writes | None


@dataclass(frozen=True, slots=True)
class Drawn:
    """A timestamp, the etcd revision under which it was reserved, and what its writes answered."""

    ts: Ts
    revision: int
    results: Sequence[OpResult] = ()


class StandaloneOracle:
    """See the module. One event loop; `close` fails all that wait."""

    def __init__(self, client: EtcdClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._waiting: deque[_Request] = deque()
        self._alone: deque[_Request] = deque()  # of a group that was refused: each is tried by itself
        self._worker: asyncio.Task[None] | None = None
        self._last_ts = 0
        self._revision = 0
        self._closed = False
        self._bound = TimeBound()
        self._logged_ahead = False
        self._asking: asyncio.Task[None] | None = None

    async def timestamp(self) -> Ts:
        """A timestamp; the pinned one while pinned. Raises `Unavailable`."""
        return (await self._request(None)).ts

    async def latest(self) -> Ts:
        """See `ReadableOracle`: what is stored; no compare-and-set, which races with others."""
        result = await self._client.txn([], [etcd.get(TSO), etcd.get(PIN)])
        pairs, pinned = result.results[0].kvs, result.results[1].kvs
        if pinned:
            return decode_number(PIN, pinned[0].value)
        return decode_number(TSO, pairs[0].value) if pairs else 0

    async def draw(self, writes: Writes) -> Drawn:
        """A timestamp, with at most one write made from it in the same step.

        Raises `Unavailable` (the step may have taken place), `Rejected` while the clock is pinned.
        """
        return await self._request(writes)

    async def pin(self, ts: Ts) -> None:
        """Let the clock of all processes stand at `ts`. Later, unpinned timestamps are larger than it."""
        assert 0 < ts <= tso.TS_MAX
        while True:
            stored = await self._client.get(TSO)
            last = decode_number(TSO, stored.value) if stored else 0
            result = await self._client.txn(
                [etcd.mod_is(TSO, stored.mod_revision if stored else 0)],
                [etcd.put(TSO, b"%d" % max(last, ts)), etcd.put(PIN, b"%d" % ts)],
            )
            if result.succeeded:
                return

    async def advance(self, ts: Ts) -> int:
        """Let the clock stand at `ts` if it is not above it, as an operator says; where it stands now.

        For what no process may do by itself: see `TimeBound`. There is no way back.
        """
        assert 0 < ts <= tso.TS_MAX
        while True:
            stored = await self._client.get(TSO)
            last = decode_number(TSO, stored.value) if stored else 0
            if last >= ts:
                return last
            result = await self._client.txn(
                [etcd.mod_is(TSO, stored.mod_revision if stored else 0)], [etcd.put(TSO, b"%d" % ts)]
            )
            if result.succeeded:
                return ts

    async def unpin(self) -> None:
        """Let the clock run again. Fine when it does."""
        await self._client.txn([], [etcd.delete(PIN)])

    async def close(self) -> None:
        self._closed = True
        running = {task for task in (self._worker, self._asking) if task is not None}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        for waiting in (self._waiting, self._alone):
            self._fail(list(waiting), Unavailable("the timestamp oracle is closed"))
            waiting.clear()

    async def _request(self, writes: Writes | None) -> Drawn:
        if self._closed:
            raise Unavailable("the timestamp oracle is closed")
        loop = asyncio.get_running_loop()
        request = _Request(loop.create_future(), writes)
        self._waiting.append(request)
        if self._worker is None or self._worker.done():
            self._worker = loop.create_task(self._work(), name="oracle.reserve")
        return await request.future

    async def _work(self) -> None:
        """Reserve for all that wait until none does."""
        # Requests made in this turn of the loop belong together.
        await asyncio.sleep(0)
        while self._waiting or self._alone:
            group: list[_Request] = []
            try:
                await self._serve(group)
            except Rejected as error:
                # Nothing took place: who is to blame (one too large for etcd) is to fail, and no other.
                if len(group) > 1:
                    self._alone.extend(group)
                else:
                    self._fail(group, error)
            except BinlogError as error:
                self._fail(group, error)
            except BaseException:
                self._fail(group, Unavailable("the timestamp oracle is closed"))
                raise

    def _take(self, group: list[_Request]) -> None:
        """Add everything that waits, as far as one etcd transaction holds its writes."""
        group[:] = [request for request in group if not request.future.done()]
        writes = sum(request.writes is not None for request in group)
        later: list[_Request] = []
        while self._waiting:
            request = self._waiting.popleft()
            if request.future.done():
                continue
            if request.writes is not None:
                if writes == WRITES_MAX:
                    later.append(request)
                    continue
                writes += 1
            group.append(request)
        self._waiting.extend(later)

    async def _serve(self, group: list[_Request]) -> None:
        """One reservation for everyone who waits when it begins; lost races begin it again."""
        alone = bool(self._alone)
        if alone:
            group.append(self._alone.popleft())
        while True:
            await self._ask_etcds_clock()
            if not alone:
                self._take(group)
            if not group:
                return
            first = max(self._last_ts + 1, tso.from_wall_s(self._physical_s()))
            last = first + len(group) - 1
            if last > tso.TS_MAX:
                raise Rejected("timestamps are used up", hint="the clock or the tso key in etcd is wrong")
            ops = [etcd.put(TSO, b"%d" % last)]
            counts = []
            for offset, request in enumerate(group):
                writes = request.writes(first + offset) if request.writes is not None else ()
                counts.append(len(writes))
                ops.extend(writes)
            result = await self._client.txn(
                [etcd.mod_is(TSO, self._revision), etcd.mod_is(PIN, 0)],
                ops,
                [etcd.get(TSO), etcd.get(PIN)],
            )
            if result.succeeded:
                self._last_ts, self._revision = last, result.revision
                self._bound.stored(last, self._clock.monotonic_s())
                answers = result.results[1:]
                for offset, (request, count) in enumerate(zip(group, counts, strict=True)):
                    own, answers = answers[:count], answers[count:]
                    if not request.future.done():
                        request.future.set_result(Drawn(first + offset, result.revision, own))
                return
            pairs, pinned = result.results[0].kvs, result.results[1].kvs
            # An absent clock (a new or wiped etcd) starts over from the wall clock, never below our last.
            self._revision = pairs[0].mod_revision if pairs else 0
            stored = decode_number(TSO, pairs[0].value) if pairs else 0
            self._bound.stored(stored, self._clock.monotonic_s())
            self._last_ts = max(stored, self._last_ts)
            if pinned:
                self._answer_pinned(group, decode_number(PIN, pinned[0].value), result.revision)
                return

    async def _ask_etcds_clock(self) -> None:
        """Before the first reservation; later it runs beside them."""
        if not self._bound.should_ask(self._clock.wall_s(), self._clock.monotonic_s()):
            return
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask(), name="oracle.clocks")
        if not self._bound.has_asked:
            await asyncio.wait({self._asking})

    async def _ask(self) -> None:
        began_s = self._clock.monotonic_s()
        try:
            self._bound.observe(await self._client.clocks(_CLOCKS_S), began_s)
        finally:
            self._asking = None

    def _physical_s(self) -> float:
        """The time that may be stored now; says it where that is not this host's."""
        wall_s = self._clock.wall_s()
        found_s = self._bound.physical_s(wall_s, self._clock.monotonic_s())
        ahead_s = wall_s - found_s
        if ahead_s < _LOG_FROM_S:
            self._logged_ahead = False
        elif not self._logged_ahead:
            self._logged_ahead = True
            other = "the clock stored in etcd" if self._bound.etcd_is_silent else "etcd's clock"
            _logger.warning(
                f"this host's clock is ahead of {other}: timestamps do not follow it",
                ahead_s=round(ahead_s, 3),
                hint="correct this host's clock or etcd's; if this one is right and the cluster was off for "
                "long: `binlogctl advance now`",
            )
        return found_s

    @staticmethod
    def _answer_pinned(group: list[_Request], ts: Ts, revision: int) -> None:
        for request in group:
            if request.future.done():
                continue
            if request.writes is None:
                request.future.set_result(Drawn(ts, revision))
            else:
                error = Rejected("the clock is pinned for a replay", hint="unpin it before new transactions")
                request.future.set_exception(error)

    @staticmethod
    def _fail(group: list[_Request], error: BinlogError) -> None:
        for request in group:
            if not request.future.done():
                # An exception of its own for each: tracebacks grow on shared ones.
                request.future.set_exception(type(error)(error.message, hint=error.hint))

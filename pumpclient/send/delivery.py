"""Delivery: brings one payload to a pump, attempt by attempt.

Owns    nothing: it runs in the caller's task and ends with it
Stops   when `closing` is set: a prewrite raises `ClientClosed`, a commit or rollback returns False
Never   sends an end to another pump than the one that has the prewrite
Tests   tests/pumpclient/test_client.py, tests/pumpclient/send/test_write_model.py
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from pumpclient.errors import BinlogTooLarge, ClientClosed, WriteFailed
from pumpclient.options import Options
from pumpclient.pumps import health
from pumpclient.pumps.roster import Effect, LabelServed, ReplaceAddress, Roster
from pumpclient.pumps.selector import NoPump
from pumpclient.send.batch_stream import Outcome
from pumpclient.send.transport import PumpTransport, QueueingTransport, TransportFailure
from pumpclient.send.write_policy import Failure, FinishPolicy, GiveUp, LastChance, PrewritePolicy
from pumpclient.tasks import Pauses
from tidb_binlog.clock import Clock
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts

logger: Final = logging.getLogger("pumpclient")

NO_PUMP: Final = "no available pump to write binlog"
PROBE_PAYLOAD: Final = b""
_NONE: Final[frozenset[str]] = frozenset()
_TO_WRITE: Final[Outcome] = (None, "")


@dataclass(slots=True)
class Counters:
    """What the client has done since it started."""

    prewrites_stored: int = 0
    prewrites_failed: int = 0
    prewrites_skipped: int = 0
    """With `ignore_error`: of transactions that continued without; the first that failed is one of them."""
    finishes_delivered: int = 0
    finishes_lost: int = 0
    """Commits and rollbacks that did not reach their pump; it asks the upstream, so they are only late."""
    finishes_skipped: int = 0
    """With `ignore_error`: not sent, since their prewrite was skipped or nothing is written now."""
    attempts_failed: int = 0
    probes_sent: int = 0


class Delivery:
    """`closing` is set once, by the client; `probe_schedule_changed` whenever a pump changes state."""

    def __init__(
        self,
        roster: Roster,
        transport: PumpTransport,
        *,
        cluster_id: int,
        options: Options,
        clock: Clock,
        pauses: Pauses,
        closing: asyncio.Event,
    ) -> None:
        self.counters = Counters()
        self.probe_schedule_changed = asyncio.Event()
        self._roster = roster
        self._transport = transport
        self._submit = transport.submit if isinstance(transport, QueueingTransport) else _takes_writes
        self._cluster_id = cluster_id
        self._options = options
        self._write_timeout_s = options.write_timeout_s
        self._now_s = clock.monotonic_s
        self._pauses = pauses
        self._closing = closing

    async def store(self, start_ts: Ts, payload: bytes) -> None:
        """Try pumps until one has the prewrite. Raises `WriteFailed`, `BinlogTooLarge`, `ClientClosed`."""
        roster, started_s = self._roster, self._now_s()
        try:
            usable_count = roster.selector.size
            choice = roster.selector.choose(start_ts, 0, _NONE, started_s)
            if isinstance(choice, NoPump):
                await self._last_chance(started_s, start_ts, payload, NO_PUMP)
            else:
                failure = await self._store_at(choice.pump_id, start_ts, payload)
                if failure is not None:
                    policy = PrewritePolicy(self._options, usable_count, started_s)
                    await self._store_again(policy, started_s, start_ts, payload, choice.pump_id, failure)
        except BaseException:
            self.counters.prewrites_failed += 1
            raise
        self.counters.prewrites_stored += 1

    async def finish(self, pump_id: str, payload: bytes) -> bool:
        """The same pump again and again until it has the payload or time is up."""
        delivered, started_s = False, self._now_s()
        self._roster.begin(pump_id)
        try:
            if not self._closing.is_set():
                answer = self._queue(pump_id, payload)
                if answer is not None and await answer is None and self._roster.health.is_settled(pump_id):
                    delivered = True
                else:
                    failure = await self.attempt(pump_id, payload, health.Alive, answer)
                    delivered = failure is None or await self._finish_again(
                        started_s, pump_id, payload, failure
                    )
        except ClientClosed:
            pass
        finally:
            self._roster.end(pump_id, started_s)
            if delivered:
                self.counters.finishes_delivered += 1
            else:
                self.counters.finishes_lost += 1
        return delivered

    async def probe(self, pump_id: str) -> None:
        """Ask with an empty payload: a pump checks it like a prewrite and stores nothing."""
        self.counters.probes_sent += 1
        self._roster.begin(pump_id)
        try:
            await self.attempt(pump_id, PROBE_PAYLOAD, health.Stored)
        finally:
            self._roster.end(pump_id, self._now_s())

    async def _store_at(self, pump_id: str, start_ts: Ts, payload: bytes) -> TransportFailure | None:
        """One attempt of a prewrite. The pump stays known until it is noted that the end belongs there."""
        roster = self._roster
        failure: TransportFailure | None = None
        roster.begin(pump_id)
        try:
            answer = self._queue(pump_id, payload)
            if answer is None or await answer is not None or not roster.health.is_settled(pump_id):
                failure = await self.attempt(pump_id, payload, health.Stored, answer)
            if failure is None:
                roster.affinity.remember(start_ts, pump_id, self._now_s())
            return failure
        finally:
            roster.end(pump_id, self._now_s())

    def _queue(self, pump_id: str, payload: bytes) -> asyncio.Future[Outcome] | None:
        """The short way, of which the selector need not know; None: `attempt` has to do it all."""
        if self._roster.selector.counts_loads:
            return None
        address = self._roster.address(pump_id)
        return self._submit(address, self._cluster_id, payload, self._write_timeout_s)

    async def attempt(
        self,
        pump_id: str,
        payload: bytes,
        acknowledged: Callable[[str], health.Fact],
        answer: asyncio.Future[Outcome] | None = None,
    ) -> TransportFailure | None:
        """One call to one pump; None when it acknowledged, which says `acknowledged` of the pump. `answer` if
        it is queued already."""
        roster = self._roster
        address = roster.address(pump_id)
        load = self._load(pump_id) if answer is None and roster.selector.counts_loads else None
        failure: TransportFailure | None = None
        try:
            outcome = _TO_WRITE if answer is None else await answer
            if outcome is None:
                pass
            elif outcome[0] is None:
                await self._transport.write(address, self._cluster_id, payload, self._write_timeout_s)
            else:
                failure = TransportFailure(outcome[0], f"pump at {address}: {outcome[1]}")
        except TransportFailure as error:
            failure = error
        except BaseException as error:
            if load is not None:
                roster.selector.cancelled(pump_id)
            if isinstance(error, asyncio.CancelledError) and self._cut_by_close():
                raise ClientClosed("the pump client was closed during a write") from None
            raise
        if load is not None:
            now_s = self._now_s()
            roster.selector.finished(pump_id, now_s, now_s - load, failure is None)
        if failure is not None:
            self.counters.attempts_failed += 1
            logger.debug("pump %s at %s: %s", pump_id, address, failure.message)
        await self.carry_out(roster.feed(_fact(pump_id, failure, acknowledged), self._now_s()))
        return failure

    def _load(self, pump_id: str) -> float:
        """Tell the selector of a call; when it began."""
        self._roster.selector.started(pump_id)
        return self._now_s()

    async def carry_out(self, effects: Iterable[Effect]) -> None:
        """Log state changes and drop connections. Probes are the client's to send."""
        for effect in effects:
            if isinstance(effect, health.Moved):
                if health.PumpState.PROBING not in (effect.before, effect.after):
                    before = effect.before.value if effect.before else "new"
                    after = effect.after.value if effect.after else "gone"
                    logger.info("pump %s: %s -> %s", effect.pump_id, before, after)
                self.probe_schedule_changed.set()
            elif isinstance(effect, ReplaceAddress):
                await self._transport.drop(effect.old)
            elif isinstance(effect, LabelServed):
                label = ", ".join(f"{name}={value}" for name, value in self._roster.label.items())
                if effect.served:
                    logger.info("pumps with label %s take prewrites again", label)
                else:
                    logger.warning("no pump with label %s takes prewrites: they go to other pumps", label)
            elif isinstance(effect, health.Reconnect):
                await self._transport.drop(self._roster.address(effect.pump_id))

    async def _store_again(
        self,
        policy: PrewritePolicy,
        started_s: float,
        start_ts: Ts,
        payload: bytes,
        pump_id: str,
        failure: TransportFailure,
    ) -> None:
        """What follows a first `failure` on `pump_id`."""
        while True:
            usable = self._roster.health.usable()
            decision = policy.after(failure.failure, pump_id, usable, self._now_s())
            if isinstance(decision, GiveUp):
                raise _too_large(payload, failure)
            if isinstance(decision, LastChance):
                break
            if decision.pause_s:
                await self._pauses.pause(decision.pause_s, self._closing)
            self._require_open()
            choice = self._roster.selector.choose(start_ts, policy.attempts, policy.tried, self._now_s())
            if isinstance(choice, NoPump):
                break
            pump_id = choice.pump_id
            again = await self._store_at(pump_id, start_ts, payload)
            if again is None:
                return
            failure = again
        await self._last_chance(started_s, start_ts, payload, failure.message)

    async def _last_chance(self, started_s: float, start_ts: Ts, payload: bytes, cause: str) -> None:
        """Over every pump that the registry calls online, once; again while no pump is usable, as when the
        only one restarts, or is not online again yet, until that has lasted for the write timeout. Later
        prewrites fail at once.
        """
        out_since_s = self._roster.out_since_s
        began_s = started_s if out_since_s is None else min(started_s, out_since_s)
        give_up_s = began_s + self._write_timeout_s
        while True:
            for pump_id in self._roster.health.online():
                if self._roster.health.state(pump_id) in (None, health.PumpState.AWAY):
                    continue  # it left while others were tried
                self._require_open()
                failure = await self._store_at(pump_id, start_ts, payload)
                if failure is None:
                    return
                if failure.failure is Failure.TOO_LARGE:
                    raise _too_large(payload, failure)
            if self._now_s() + self._options.retry_pause_s > give_up_s:
                break
            await self._pauses.pause(self._options.retry_pause_s, self._closing)
        self._require_open()
        logger.error("prewrite start_ts=%d of %d bytes: %s", start_ts, len(payload), cause)
        raise WriteFailed(
            f"write binlog failed, the last error {cause}",
            hint="roll the transaction back; `binlogctl -cmd pumps` shows the state of the pumps",
        )

    async def _finish_again(
        self, started_s: float, pump_id: str, payload: bytes, failure: TransportFailure
    ) -> bool:
        """After a first `failure`: whether the pump has it in the end."""
        policy = FinishPolicy(self._options, started_s)
        while True:
            decision = policy.after(self._now_s())
            if isinstance(decision, GiveUp):
                logger.warning("pump %s did not take a commit or rollback: %s", pump_id, failure.message)
                return False
            await self._pauses.pause(decision.pause_s, self._closing)
            if self._closing.is_set():
                return False
            again = await self.attempt(pump_id, payload, health.Alive)
            if again is None:
                return True
            failure = again

    def _cut_by_close(self) -> bool:
        """Whether a CancelledError came from closing the connection, not from the caller."""
        task = asyncio.current_task()
        return self._closing.is_set() and task is not None and not task.cancelling()

    def _require_open(self) -> None:
        if self._closing.is_set():
            raise ClientClosed("the pump client was closed during a write")


def _takes_writes(address: str, cluster_id: int, payload: bytes, timeout_s: float) -> None:
    """`submit` of a transport that has none."""


def _too_large(payload: bytes, failure: TransportFailure) -> BinlogTooLarge:
    return BinlogTooLarge(
        f"binlog of {len(payload)} bytes is larger than a pump receives: {failure.message}",
        hint="split the transaction, or raise the pump's message size limit",
    )


def _fact(
    pump_id: str, failure: TransportFailure | None, acknowledged: Callable[[str], health.Fact]
) -> health.Fact:
    if failure is None:
        return acknowledged(pump_id)
    if failure.failure in (Failure.REFUSED, Failure.TOO_LARGE):
        return health.Alive(pump_id)
    return health.Failed(pump_id)

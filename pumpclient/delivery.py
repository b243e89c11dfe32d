"""Delivery: brings one payload to a pump, attempt by attempt.

Drives  roster (whom to ask, what the answer says of the pump) and write_policy (what to do next)
Owns    nothing: it runs in the caller's task and ends with it
Stops   when `closing` is set: a prewrite raises `ClientClosed`, a commit or rollback returns False
Never   sends an end to another pump than the one that has the prewrite
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from common.clock import Clock
from pumpclient import health
from pumpclient.errors import BinlogTooLarge, ClientClosed, WriteFailed
from pumpclient.options import Options
from pumpclient.pause import Pauses
from pumpclient.roster import Effect, ReplaceAddress, Roster
from pumpclient.selector import NoPump
from pumpclient.transport import PumpTransport, TransportFailure
from pumpclient.write_policy import Failure, FinishPolicy, GiveUp, LastChance, PrewritePolicy

logger: Final = logging.getLogger("pumpclient")

NO_PUMP: Final = "no available pump to write binlog"


@dataclass(slots=True)
class Counters:
    """What the client has done since it started."""

    prewrites_stored: int = 0
    prewrites_failed: int = 0
    prewrites_skipped: int = 0
    """With `ignore_error`: of transactions that went on without; the one that failed first is one of them."""
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
        self._cluster_id = cluster_id
        self._options = options
        self._clock = clock
        self._pauses = pauses
        self._closing = closing

    async def store(self, start_ts: int, payload: bytes) -> None:
        """Try pumps until one has the prewrite. Raises `WriteFailed`, `BinlogTooLarge`, `ClientClosed`."""
        stored = False
        try:
            pump_id = await self._store(start_ts, payload)
            self._roster.stored(start_ts, pump_id, self._now_s())
            stored = True
        finally:
            if stored:
                self.counters.prewrites_stored += 1
            else:
                self.counters.prewrites_failed += 1

    async def finish(self, pump_id: str, payload: bytes) -> bool:
        """The same pump again and again until it has the payload or time is up."""
        delivered = False
        self._roster.begin(pump_id)
        try:
            delivered = await self._finish(pump_id, payload)
        except ClientClosed:
            pass
        finally:
            self._roster.end(pump_id, self._now_s())
            if delivered:
                self.counters.finishes_delivered += 1
            else:
                self.counters.finishes_lost += 1
        return delivered

    async def attempt(
        self, pump_id: str, payload: bytes, acknowledged: Callable[[str], health.Fact]
    ) -> TransportFailure | None:
        """One call to one pump; None when it acknowledged, which says `acknowledged` of the pump."""
        roster, started_s = self._roster, self._now_s()
        address = roster.address(pump_id)
        roster.begin(pump_id)
        roster.selector.started(pump_id)
        failure: TransportFailure | None = None
        try:
            await self._transport.write(address, self._cluster_id, payload, self._options.write_timeout_s)
        except TransportFailure as error:
            failure = error
        except BaseException as error:
            roster.selector.cancelled(pump_id)
            if isinstance(error, asyncio.CancelledError) and self._cut_by_close():
                raise ClientClosed("the pump client was closed during a write") from None
            raise
        finally:
            roster.end(pump_id, self._now_s())
        now_s = self._now_s()
        roster.selector.finished(pump_id, now_s, now_s - started_s, failure is None)
        if failure is not None:
            self.counters.attempts_failed += 1
            logger.debug("pump %s at %s: %s", pump_id, address, failure.message)
        await self.carry_out(roster.feed(_fact(pump_id, failure, acknowledged), now_s))
        return failure

    async def carry_out(self, effects: Iterable[Effect]) -> None:
        """Log state changes and drop connections. Probes are the client's to send."""
        for effect in effects:
            if isinstance(effect, health.Moved):
                if health.State.PROBING not in (effect.before, effect.after):
                    before = effect.before.value if effect.before else "new"
                    after = effect.after.value if effect.after else "gone"
                    logger.info("pump %s: %s -> %s", effect.pump_id, before, after)
                self.probe_schedule_changed.set()
            elif isinstance(effect, ReplaceAddress):
                await self._transport.drop(effect.old)
            elif isinstance(effect, health.Reconnect):
                await self._transport.drop(self._roster.address(effect.pump_id))

    async def _store(self, start_ts: int, payload: bytes) -> str:
        policy = PrewritePolicy(self._options, len(self._roster.health.usable()), self._now_s())
        cause = NO_PUMP
        while True:
            choice = self._roster.choose(start_ts, policy.attempts, policy.tried, self._now_s())
            if isinstance(choice, NoPump):
                break
            failure = await self.attempt(choice.pump_id, payload, health.Stored)
            if failure is None:
                return choice.pump_id
            cause = failure.message
            usable = self._roster.health.usable()
            decision = policy.after(failure.failure, choice.pump_id, usable, self._now_s())
            if isinstance(decision, GiveUp):
                raise _too_large(payload, failure)
            if isinstance(decision, LastChance):
                break
            if decision.pause_s:
                await self._pauses.pause(decision.pause_s, self._closing)
            self._require_open()
        return await self._last_chance(start_ts, payload, cause)

    async def _last_chance(self, start_ts: int, payload: bytes, cause: str) -> str:
        """Once over every pump that the registry calls online, with a new connection each."""
        for pump_id in self._roster.health.online():
            if self._roster.health.state(pump_id) in (None, health.State.AWAY):
                continue  # it left while others were tried
            await self._transport.drop(self._roster.address(pump_id))
            failure = await self.attempt(pump_id, payload, health.Stored)
            if failure is None:
                return pump_id
            if failure.failure is Failure.TOO_LARGE:
                raise _too_large(payload, failure)
            self._require_open()
        logger.error("prewrite start_ts=%d of %d bytes: %s", start_ts, len(payload), cause)
        raise WriteFailed(
            f"write binlog failed, the last error {cause}",
            hint="roll the transaction back; `binlogctl -cmd pumps` shows the state of the pumps",
        )

    async def _finish(self, pump_id: str, payload: bytes) -> bool:
        policy = FinishPolicy(self._options, self._now_s())
        while not self._closing.is_set():
            failure = await self.attempt(pump_id, payload, health.Alive)
            if failure is None:
                return True
            decision = policy.after(self._now_s())
            if isinstance(decision, GiveUp):
                logger.warning("pump %s did not take a commit or rollback: %s", pump_id, failure.message)
                return False
            await self._pauses.pause(decision.pause_s, self._closing)
        return False

    def _cut_by_close(self) -> bool:
        """Whether a CancelledError came from closing the connection, not from the caller."""
        task = asyncio.current_task()
        return self._closing.is_set() and task is not None and not task.cancelling()

    def _require_open(self) -> None:
        if self._closing.is_set():
            raise ClientClosed("the pump client was closed during a write")

    def _now_s(self) -> float:
        return self._clock.monotonic_s()


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

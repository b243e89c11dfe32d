"""Standby: a second drainer with the same node id, ready to take over when the first one ends.

Owns    nothing that the active drainer needs: not its name, not its entry, not a row downstream
Order   port, upstream and history first; then the wait; then the name; then, last, the checkpoint's epoch.
        So no drainer is fenced off by a process that could not replicate itself
Holds   a false judgement is harmless: a drainer that was replaced while it lived finds the newer epoch in the
        next transaction it tries to commit, and another's announcement at its next heartbeat, and ends with
        exit code 5

How soon: a graceful stop ends the announcement, which the watch shows within milliseconds; a killed process
of this machine is found to be gone at the next check; one of another machine when its lease has run out.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from typing import Any, Final

from drainer import metrics
from drainer.operate.control.failover import ActiveNode, FailoverDecision, FailoverRule
from tidb_binlog.clock import Clock
from tidb_binlog.cluster import rival
from tidb_binlog.cluster.registry import DRAINERS, ClusterView, Registry
from tidb_binlog.errors import BinlogError, Conflict, Unavailable
from tidb_binlog.observe import log
from tidb_binlog.status.codec import plain
from tidb_binlog.status.drainer import DrainerDocument, StandbyFacts
from tidb_binlog.tso import Ts

TOLD_TO_LEAVE: Final = {"labels": {"standby": "stay"}}
"""In the entry of a drainer that an operator paused or closed; in the form that Go nodes read."""
STANDBY: Final = "standby"
"""What `/status` shows as the state of a drainer that waits."""
LEASE_MIN_S: Final = 3
BEATS_PER_LEASE: Final = 3
LOOK_S: Final = 0.25
REFRESH_S: Final = 5.0

_logger = log.get("standby")


def lease_s(heartbeat_interval_s: float) -> int:
    """The lease of a drainer: after so many seconds without a heartbeat it may be replaced."""
    return max(LEASE_MIN_S, math.ceil(heartbeat_interval_s * BEATS_PER_LEASE))


class StandbyStatus:
    """`/status` of a drainer that waits: the Go drainer's keys, with what the active one has stored."""

    def __init__(self, standby: Standby, node_id: str) -> None:
        self._standby = standby
        self._node_id = node_id

    @property
    def stored_ts(self) -> Ts:
        """The checkpoint that the active drainer has stored."""
        return self._standby.stored_ts

    def document(self) -> dict[str, Any]:
        """Gives the document of `/status`."""
        standby = self._standby
        shown = DrainerDocument(
            last_ts=standby.stored_ts,
            node_id=self._node_id,
            state=STANDBY,
            doing=f"standing by for {standby.reason}",
            waits_for=standby.reason,
            standby=standby.facts(),
        )
        document: dict[str, Any] = plain(shown)
        return document


class Standby:
    """Waits for its turn. `rehearse` does, without writing, what a takeover will have to do (log in
    downstream, read the history), again and again, so that what would fail is known before it is needed.
    `answers`: whether a process listens at an address."""

    def __init__(
        self,
        registry: Registry,
        node_id: str,
        clock: Clock,
        rehearse: Callable[[], Awaitable[None]],
        *,
        answers: Callable[[str], Awaitable[bool]] = rival.answers,
    ) -> None:
        self._registry = registry
        self._node_id = node_id
        self._clock = clock
        self._rehearse = rehearse
        self._answers = answers
        self._rule = FailoverRule(node_id)
        self._wake = asyncio.Event()
        self._since_s = clock.monotonic_s()
        self.waiting = False
        self.reason = "the first answer of the registry"
        self.stored_ts = 0
        """The active drainer's stored checkpoint, as its entry has it."""
        self.trouble = ""
        """Why a takeover would fail now, "" if it would not."""

    async def wait_and_register(self, register: Callable[[], Awaitable[object]]) -> None:
        """Return when this process has the name: `register` announced it. Raises what that raises, but for
        `Conflict` (another standby was faster) and `Unavailable`."""
        self.waiting = True
        metrics.STANDBY_WAITING.set(1)
        beside = {
            asyncio.create_task(self._watch(), name="standby.watch"),
            asyncio.create_task(self._keep_warm(), name="standby.rehearse"),
        }
        try:
            while True:
                await self._turn()
                try:
                    await register()
                except Conflict as error:
                    _logger.info("another standby took over first", node_id=self._node_id, error=error)
                except Unavailable as error:
                    self._tell(FailoverDecision(False, f"the registry: {error.message}"))
                    await asyncio.sleep(LOOK_S)
                else:
                    break
        finally:
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)
            self.waiting = False
            metrics.STANDBY_WAITING.set(0)
        waited_s = round(self._clock.monotonic_s() - self._since_s, 3)
        _logger.warning("taking over", node_id=self._node_id, waited_s=waited_s)

    def facts(self) -> StandbyFacts:
        """For the status."""
        return StandbyFacts(
            waits_for=self.reason,
            waiting_s=round(self._clock.monotonic_s() - self._since_s, 3),
            trouble=self.trouble,
        )

    async def _keep_warm(self) -> None:
        while True:
            try:
                await self._rehearse()
                trouble = ""
            except (BinlogError, OSError) as error:
                trouble = str(error)
            if trouble != self.trouble:
                self.trouble = trouble
                if trouble:
                    _logger.warning(
                        "this standby could not take over now", node_id=self._node_id, reason=trouble
                    )
                else:
                    _logger.info("this standby could take over now", node_id=self._node_id)
            metrics.STANDBY_TROUBLE.set(float(bool(trouble)))
            await asyncio.sleep(REFRESH_S)

    def unready(self) -> str:
        """Why this process does not replicate, for `/readyz`."""
        return f"{STANDBY}: {self.reason}" + (
            f"; could not take over now: {self.trouble}" if self.trouble else ""
        )

    async def _turn(self) -> None:
        """Until the active drainer may be replaced."""
        while True:
            self._wake.clear()
            try:
                decision = self._rule.decide(await self._seen(), self._clock.monotonic_s())
            except Unavailable as error:
                decision = FailoverDecision(False, f"the registry: {error.message}")
            self._tell(decision)
            if decision.take:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._wake.wait()

    def _tell(self, decision: FailoverDecision) -> None:
        if decision.reason != self.reason and not decision.take:
            _logger.info("standing by", node_id=self._node_id, waits_for=decision.reason)
        self.reason = decision.reason

    async def _seen(self) -> ActiveNode:
        view = await self._registry.view()
        held = await self._registry.is_held(DRAINERS, self._node_id)
        return await self._of_view(view, held)

    async def _of_view(self, view: ClusterView, held: bool) -> ActiveNode:
        entry = view.drainers.get(self._node_id)
        if entry is None:
            return ActiveNode(held=held)
        status, lease = entry.status, entry.alive is not None
        self.stored_ts = status.max_commit_ts
        answers = not lease and await self._answers(status.host)
        told_to_leave = status.label == TOLD_TO_LEAVE
        return ActiveNode(status.state, status.host, entry.mod_revision, held, lease, answers, told_to_leave)

    async def _watch(self) -> None:
        """Decide anew at once when the registry changes."""
        views = self._registry.watch()
        try:
            async for _ in views:
                self._wake.set()
        finally:
            close = getattr(views, "aclose", None)
            if close is not None:
                await close()

"""Closing: a pump that an operator closes waits until no drainer needs it.

Does    stores the time marks it asks for, reads storage and registry, logs every 10 s what is waited for
Order   the caller has published `closing` and refuses prewrites; heartbeats and pulls continue all the time
Stops   by `force`, or when the process is stopped for another reason: then the pump is paused and nothing of
        its data is given up
Tests   tests/pump/membership/test_lifecycle.py
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from pump.membership.close_conditions import CloseConditions, CloseSnapshot, DrawMark, Leave, Reader, Stage
from pump.storage.storage import Storage
from pump.watermark.idle import store_fake_binlog
from tidb_binlog.clock import Clock
from tidb_binlog.cluster import node
from tidb_binlog.cluster.registry import Registry
from tidb_binlog.errors import BinlogError, Rejected, Unavailable
from tidb_binlog.observe import log
from tidb_binlog.status.codec import plain
from tidb_binlog.status.pump import LeavingStatus
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import TimestampOracle

_POLL_S: Final = 0.2
_LOG_S: Final = 10.0
FORCE_HINT: Final = "close?force=true leaves without waiting; what no drainer has read is lost then"

_logger = log.get("closing")


class Closing:
    """The close of one pump. Idle until `run`. `show` is given what is waited for, whenever it is logged."""

    def __init__(
        self,
        storage: Storage,
        registry: Registry,
        oracle: TimestampOracle,
        clock: Clock,
        show: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._storage = storage
        self._registry = registry
        self._oracle = oracle
        self._clock = clock
        self._show = show
        self._conditions: CloseConditions | None = None
        self._forced = asyncio.Event()
        self._trouble = ""
        self._logged_s: float | None = None

    @property
    def last_commit_ts(self) -> Ts:
        """All transactions of this pump are at or below it; of a forced close, all that are known."""
        storage, conditions = self._storage, self._conditions
        forced = conditions is None or conditions.forced
        unsettled = forced and (storage.open_count or storage.index_lag_bytes)
        return storage.watermark if unsettled else max(storage.index.last_commit_ts, storage.gc_ts)

    @property
    def waits_for_prewrites(self) -> bool:
        """Whether an open prewrite keeps the pump from leaving."""
        return self._conditions is not None and self._conditions.stage is Stage.SETTLING

    def facts(self) -> LeavingStatus | None:
        """What is waited for; None while the pump stays."""
        return None if self._conditions is None else self._conditions.facts()

    def force(self) -> None:
        """Wait no longer."""
        self._forced.set()

    async def check(self) -> None:
        """Raise `Rejected` where a close would not end: no drainer is there to read what is stored."""
        try:
            drainers = await self._drainers()
        except Unavailable as error:
            raise Rejected(f"who reads this pump is not known: {error.message}; {FORCE_HINT}") from None
        if all(reader.state == node.OFFLINE for reader in drainers.values()):
            raise Rejected(f"no drainer is registered that could read what is stored; {FORCE_HINT}")

    async def run(self) -> None:
        """Return when the pump may leave."""
        self._conditions = conditions = CloseConditions(self._clock.monotonic_s())
        marking: asyncio.Task[int] | None = None
        try:
            while True:
                if marking is not None and marking.done():
                    conditions.drawn(marking.result())
                    marking = None
                if self._forced.is_set():
                    conditions.force()
                for effect in conditions.observe(await self._snapshot()):
                    match effect:
                        case DrawMark():
                            marking = asyncio.get_running_loop().create_task(self._mark(), name="mark")
                        case Leave():
                            self._log_end(conditions)
                            return
                self._log(conditions)
                await self._pause(marking)
        finally:
            if marking is not None:
                marking.cancel()
                await asyncio.wait({marking})

    async def _pause(self, marking: asyncio.Task[int] | None) -> None:
        """Until something may have changed."""
        with contextlib.suppress(TimeoutError):
            if marking is None:
                await asyncio.wait_for(self._forced.wait(), _POLL_S)
            else:
                await asyncio.wait({marking}, timeout=_POLL_S)

    async def _mark(self) -> int:
        """A time mark, stored: nothing that was admitted earlier follows it in the log."""
        while True:
            try:
                await store_fake_binlog(self._storage, self._oracle)
                # Drawn when the mark was durable already: reached only when all in front of it is settled.
                ts = await self._oracle.timestamp()
                self._storage.mark(ts)
                self._trouble = ""
                return ts
            except BinlogError as error:
                self._trouble = str(error)
            await asyncio.sleep(_POLL_S)

    async def _snapshot(self) -> CloseSnapshot:
        storage = self._storage
        drainers: dict[str, Reader] | None = None
        # Forced: no drainer is waited for, so the registry is not asked.
        if not self._forced.is_set():
            with contextlib.suppress(Unavailable):
                drainers = await self._drainers()
        oldest = next(storage.open_prewrites(), None)
        failure = storage.write_failure
        return CloseSnapshot(
            now_s=self._clock.monotonic_s(),
            watermark=storage.watermark,
            open_count=storage.open_count,
            oldest_open=0 if oldest is None else oldest.start_ts,
            drainers=drainers,
            trouble=self._trouble if failure is None else str(failure),
        )

    async def _drainers(self) -> dict[str, Reader]:
        view = await self._registry.view()
        return {
            node_id: Reader(entry.status.state, entry.alive, entry.status.max_commit_ts)
            for node_id, entry in view.drainers.items()
        }

    def _log(self, conditions: CloseConditions) -> None:
        now_s = self._clock.monotonic_s()
        if self._logged_s is not None and now_s - self._logged_s < _LOG_S:
            return
        self._logged_s = now_s
        facts = conditions.facts()
        _logger.info(
            "close waits",
            waits_for=facts.waits_for,
            target_ts=facts.target_ts,
            since_s=facts.since_s,
            left_s=facts.left_s,
            hint=FORCE_HINT,
        )
        self._show(f"closing: waits for {facts.waits_for}")

    def _log_end(self, conditions: CloseConditions) -> None:
        facts = conditions.facts()
        if conditions.forced:
            _logger.warning("close was forced: what drainers have not read is lost", facts=plain(facts))
        else:
            _logger.info(
                "every drainer has read everything", target_ts=facts.target_ts, since_s=facts.since_s
            )

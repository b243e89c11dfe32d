"""Heartbeat: keeps this node's registry entry true and its lease alive.

Does    registration wins over whatever an earlier life left in the entry; a living process with the same id
        is refused. A registry that does not answer is waited for (one log line when it goes, one when it is
        back) and never ends the daemon. A lost lease or an entry changed by an operator is written again:
        while the process runs, the process knows best
Pace    every beat extends the lease. The entry is written when it says something new, and else by every fifth
        beat: each write wakes whoever watches the registry. Of a pump a moved watermark alone is not news to
        anybody, of a drainer the checkpoint is: pumps keep what lies above it
Stops   `run` raises `Conflict` when another process took the id while our lease was lost. From then on
        nothing is written: the entry is the other's. `leave` checks first, for a process that slept through
        all that has not heard it from a beat
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import Clock, look_later
from tidb_binlog.cluster import rival
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import Announcement, EntryChanged, Registry
from tidb_binlog.errors import Conflict, Rejected, Unavailable
from tidb_binlog.observe import log

# A node counts as dead after this many missed beats, and never sooner than the floor: with the beats of a
# pump (2 s) and the second in which etcd searches for leases that ran out, within 10 s.
BEATS_PER_LEASE: Final = 4
LEASE_MIN_S: Final = 8
BEATS_PER_ENTRY: Final = 5
_RETRY_FIRST_S: Final = 0.2
_WRITE_ATTEMPTS_MAX: Final = 10

_logger = log.get("heartbeat")


class Heartbeat:
    """One node's presence. `status` gives the current entry; its `state` is what was registered last."""

    def __init__(
        self,
        registry: Registry,
        kind: str,
        status: Callable[[], NodeStatus],
        interval_s: float,
        clock: Clock,
        *,
        lease_s: int | None = None,
        position_is_news: bool = True,
        on_left: Callable[[NodeStatus], None] = lambda _: None,
    ) -> None:
        """`position_is_news`: an entry of which nothing but the position has changed is written at once.
        `on_left` gets what an earlier life left, before `register` writes over it."""
        assert interval_s > 0
        self._registry = registry
        self._kind = kind
        self._status = status
        self._interval_s = interval_s
        self._clock = clock
        self._lease_s = lease_s or max(LEASE_MIN_S, math.ceil(interval_s * BEATS_PER_LEASE))
        self._state = ""
        self._sent = ""  # state of the last attempt to write, whatever became of it
        self._revision = 0
        self._told: NodeStatus | None = None  # the last entry that was written
        self._untold = 0  # beats since
        self._position_is_news = position_is_news
        self._on_left = on_left
        self._announcement: Announcement | None = None
        self._broken_since_s: float | None = None
        self._left = False
        self._lost: Conflict | None = None  # why the entry is another process's by now
        self._sure_until_s = 0.0
        self._unbroken = 0
        self._beat_lock = asyncio.Lock()
        self._write_lock = asyncio.Lock()

    async def register(self, state: str) -> None:
        """Announce this process and write the first entry.

        Raises `Conflict` if another living process has this node id, `ConfigError` for an impossible id,
        `Unavailable`.
        """
        node_id = self._status().node_id
        asked_s = self._clock.monotonic_s()
        self._announcement = await self._registry.announce(self._kind, node_id, self._lease_s)
        try:
            entry = (await self._registry.view()).of(self._kind).get(node_id)
            if entry is not None and rival.may_live(entry, self._status()):
                await rival.check_gone(self._registry, self._kind, entry)
            self._revision = entry.mod_revision if entry else 0
            if entry is not None:
                self._on_left(entry.status)
            self._state = state
            await self._write()
            self._extended(asked_s)
        except BaseException:
            with contextlib.suppress(Unavailable):
                await self._announcement.withdraw()
            self._announcement = None
            raise

    @property
    def unbroken(self) -> int | None:
        """A number that stays the same as long as the lease cannot have run out; None while it may have.

        Others count on a process with a lease and forget one without: a process that finds another number
        here than before has to search for what it was not sent.
        """
        return self._unbroken if self._clock.monotonic_s() < self._sure_until_s else None

    async def change_state(self, state: str) -> None:
        """Show another state at once. Raises `Unavailable`; later beats write it then."""
        self._state = state
        await self._write()

    async def run(self) -> None:
        """Beat until cancelled. Raises `Conflict` when another process has this node id by now."""
        backoff = Backoff(_RETRY_FIRST_S, max(self._interval_s, _RETRY_FIRST_S))
        pause_s = self._interval_s
        while True:
            await look_later(pause_s)
            if await self.beat():
                backoff.reset()
                pause_s = self._interval_s
            else:
                pause_s = backoff.next_s()

    async def beat(self) -> bool:
        """One round: lease and entry. False when the registry did not take it. Nothing after `leave`.

        Raises `Conflict` when another process has this node id by now, each time.
        """
        async with self._beat_lock:
            if self._lost is not None:
                raise self._lost
            return self._left or await self._beat()

    async def _beat(self) -> bool:
        assert self._announcement is not None, "register first"
        try:
            await self._keep_alive(self._announcement)
            self._untold += 1
            if self._has_news() or self._untold >= BEATS_PER_ENTRY:
                await self._write()
        except (Unavailable, Conflict, Rejected) as error:
            if self._lost is not None:
                raise
            self._told = None
            if self._broken_since_s is None:
                self._broken_since_s = self._clock.monotonic_s()
                _logger.warning("send heartbeat failed, trying again", node_id=self._node_id(), error=error)
            return False
        if self._broken_since_s is not None:
            broken_s = round(self._clock.monotonic_s() - self._broken_since_s, 3)
            self._broken_since_s = None
            _logger.info("heartbeat works again", node_id=self._node_id(), broken_s=broken_s)
        return True

    def _has_news(self) -> bool:
        """Whether the entry says more than that time has passed."""
        told, now = self._told, self._status().with_state(self._state)
        if told is None:
            return True
        position = told.max_commit_ts if self._position_is_news else now.max_commit_ts
        return now != replace(told, update_ts=now.update_ts, max_commit_ts=position)

    async def _keep_alive(self, announcement: Announcement) -> None:
        """Extend the lease. Raises `Conflict` when another process has the id, `Unavailable`."""
        asked_s = self._clock.monotonic_s()
        try:
            await announcement.keep_alive()
        except Conflict as error:
            self._lost = error
            self._left = True
            raise
        self._extended(asked_s)

    def _extended(self, asked_s: float) -> None:
        """The lease lasts at least from when it was asked for."""
        if self.unbroken is None:
            self._unbroken += 1
        self._sure_until_s = asked_s + self._lease_s

    async def leave(self, state: str) -> None:
        """Write the last state and end the lease; no beat follows. Raises `Unavailable`.

        Writes nothing, and does not raise, if another process has this node id by now.
        """
        async with self._beat_lock:
            self._left = True
            self._state = state
            try:
                if self._announcement is not None and self._lost is None:
                    with contextlib.suppress(Conflict):
                        await self._keep_alive(self._announcement)
                await self._write()
            finally:
                announcement, self._announcement = self._announcement, None
                if announcement is not None:
                    with contextlib.suppress(Unavailable):
                        await announcement.withdraw()

    def _node_id(self) -> str:
        return self._status().node_id

    async def _write(self) -> None:
        """Write the entry over whatever is there; we hold the lease, so we are its owner."""
        if self._lost is not None:
            return
        async with self._write_lock:
            earlier, self._sent = self._sent, self._state
            for attempt in range(_WRITE_ATTEMPTS_MAX):
                status = self._status().with_state(self._state)
                try:
                    self._revision = await self._registry.put(self._kind, status, self._revision)
                    self._told, self._untold = status, 0
                    return
                except EntryChanged as error:
                    if attempt == _WRITE_ATTEMPTS_MAX - 1:
                        raise
                    entry = (await self._registry.view()).of(self._kind).get(status.node_id)
                    # One that cannot be read is not in the view, and is written over all the same.
                    self._revision = entry.mod_revision if entry else error.revision
                    if attempt or entry is None:
                        continue
                    if entry.status.host != status.host:
                        _logger.error(
                            "another node writes this node's entry: stop one, two with one id lose data",
                            node_id=status.node_id,
                            found=entry.status.host,
                        )
                    elif entry.status.state not in (self._state, earlier):
                        _logger.warning(
                            "registry entry was changed by somebody else, written again",
                            node_id=status.node_id,
                            found=entry.status.state,
                            state=self._state,
                        )

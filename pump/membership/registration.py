"""Registration: this pump's state and its registry entry, from the start to the end of the process.

Order   start: a new pump's entry says paused, every living drainer is notified, and only when all have
        confirmed it says online and prewrites are accepted. That some may not know it is stored before the
        entry is: whatever happens meanwhile (a reply that is lost, a crash), the next attempt notifies them
        all again. end: prewrites are refused first, the entry follows, then whatever has to be waited for
Never   lets two processes with one node id run: the lease refuses the second. Never says offline of a pump
        whose data a drainer may still want: an interrupted start or close leaves it paused
Tests   tests/pump/membership/test_lifecycle.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from pump.membership.notify_drainers import Notices
from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import Clock
from tidb_binlog.cluster import node
from tidb_binlog.cluster.heartbeat import Heartbeat
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import PUMPS, NodeEntry, Registry
from tidb_binlog.errors import ConfigError, Conflict, Rejected, Unavailable
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.upstream_time import UpstreamTime

if TYPE_CHECKING:
    from pump.storage.data_dir import DataDir

_RETRY_FIRST_S: Final = 0.2
_RETRY_MAX_S: Final = 2.0
_logger = log.get("presence")


class Registration:
    """`state` is what admission goes by; the registry entry may be ahead of it while starting."""

    def __init__(
        self,
        registry: Registry,
        time: UpstreamTime,
        node_id: str,
        host: str,
        *,
        watermark: Callable[[], Ts],
        last_commit_ts: Callable[[], Ts],
        heartbeat_s: float,
        clock: Clock,
        tls: TlsConfig | None,
        confirmation: DataDir,
        labels: Mapping[str, str] | None = None,
        score: Callable[[], int] = lambda: 0,
    ) -> None:
        self._label = node.label_of(labels or {})
        self._score = score
        self._confirmation = confirmation
        self._registry = registry
        self._time = time
        self.node_id = node_id
        self._host = host
        self._watermark = watermark
        self._last_commit_ts = last_commit_ts
        self._tls = tls
        self.state = node.OFFLINE
        self._resting = node.OFFLINE  # the state of a start that came to nothing
        self._registered = False
        self._heartbeat = Heartbeat(registry, PUMPS, self.status, heartbeat_s, clock, position_is_news=False)

    def status(self) -> NodeStatus:
        """The entry as of now; `update_ts` follows the upstream's clock, also where that one is set."""
        return NodeStatus(
            self.node_id,
            self._host,
            self.state,
            self._watermark(),
            self._time.now_ts,
            score=self._score(),
            label=self._label,
        )

    async def register(self) -> None:
        """Take the node id. Raises `Conflict` if it is another's, `Unavailable`; may be called again then."""
        await self._time.draw()
        entry = (await self._registry.view()).pumps.get(self.node_id)
        if entry is None or entry.status.state == node.OFFLINE:
            self._confirmation.keep_unknown(True)
        await self._heartbeat.register(node.PAUSED if self._confirmation.is_unknown else node.ONLINE)
        if not self._confirmation.is_unknown:
            self._resting = node.PAUSED
        self._registered = True

    async def go_online(self, waits: Callable[[str], None]) -> None:
        """Notify the drainers, then accept prewrites; `register` has been called, and `run` runs:
        a drainer that does not answer takes longer than the lease lasts.

        A pump that was registered before is known to the drainers already; then one that cannot be reached
        is only logged. A new pump waits for each that lives, and shows that. Raises `DrainerNotNotified`.
        """
        notices = Notices(self._registry, self._time, self._tls, waits)
        if self._confirmation.is_unknown:
            await notices.until_confirmed()
            self._confirmation.keep_unknown(False)
            self._resting = node.PAUSED
            await self._published(self._heartbeat.change_state(node.ONLINE))
        else:
            await notices.remind()
        self.state = node.ONLINE

    async def run(self) -> None:
        """Beat until cancelled. Raises `Conflict` when another process has taken the node id meanwhile."""
        await self._heartbeat.run()

    async def begin_leaving(self, event: str) -> None:
        """`pause` or `close`: refuse prewrites from now on, publish it. Raises `Rejected`."""
        target = node.LIFECYCLE.get((self.state, event))
        if target is None:
            raise Rejected(f"this pump's state is {self.state}, apply {event} failed!")
        self.state = target
        await self._published(self._heartbeat.change_state(target))

    async def retire(self) -> None:
        """Say offline at the end of a close, until the registry takes it: drainers wait for a pump that is
        closing, and nobody starts one again that ended in order."""
        self._go_offline()
        backoff = Backoff(_RETRY_FIRST_S, _RETRY_MAX_S)
        while True:
            if await self._published(self._heartbeat.change_state(self.state)):
                return
            await asyncio.sleep(backoff.next_s())

    async def leave(self) -> None:
        """The last entry: offline after `retire` and after a start that came to nothing, else paused."""
        if not self._registered:
            return
        if self.state != node.OFFLINE:
            self.state = node.LIFECYCLE[(self.state, "interrupt")]
        elif self._resting != node.OFFLINE:
            self.state = self._resting
        else:
            self._go_offline()
        await self._published(self._heartbeat.leave(self.state))

    def _go_offline(self) -> None:
        """Readers that nobody waits for go by the position of an offline pump. All that it had is at or below
        its last commit. Its watermark is of a later moment, and of one that had nothing nothing is missing.
        """
        self._watermark = self._last_commit_ts
        self.state = self._resting = node.OFFLINE

    async def _published(self, publishing: Awaitable[None]) -> bool:
        """A registry that does not answer keeps no pump from leaving; a later heartbeat publishes it."""
        try:
            await publishing
            return True
        except Unavailable as error:
            _logger.warning("the registry does not hear this pump's state", state=self.state, error=error)
            return False


# Identity: the node id of a pump whose directory has none.
# Why    a Go pump that was run with -node-id leaves no trace of it in its directory. Under its default id our
#        pump would stand beside the old entry: two with one address, both waited for and both pulled from
#        here, and nothing says that one of them will never come back
# Holds  a place is taken only with a log in the directory, and only if it is a single one: an empty directory
#        in the place of a pump that drainers wait for would be a loss without a word


def twins(pumps: Mapping[str, NodeEntry], address: str) -> list[str]:
    """Ids of pumps that are registered at an address and have not left for good."""
    return sorted(
        node_id
        for node_id, entry in pumps.items()
        if entry.status.host == address and entry.status.state != node.OFFLINE
    )


def place_of(pumps: Mapping[str, NodeEntry], address: str, default_id: str, *, has_log: bool) -> str | None:
    """Raises `ConfigError` where an operator has to say which it is."""
    free = [name for name in twins(pumps, address) if name != default_id and pumps[name].alive is not True]
    if not free or default_id in pumps:
        return None
    if has_log and len(free) == 1:
        return free[0]
    names = " and ".join(free)
    why = "the data directory is empty" if not has_log else "only one of them can have been here"
    raise ConfigError(
        f"pump {names} is registered at {address}, which is this pump's address, and {why}",
        hint=f"start with --node-id={free[0]} to take its place with its data, or with another --node-id; "
        f"take one that never comes back out with `binlogctl forget {free[0]}`",
    )


def check_new(pumps: Mapping[str, NodeEntry], node_id: str, data_dir: str) -> None:
    """Raises `ConfigError` where a pump that is to begin with nothing is one that drainers wait for: with
    another disk mounted, or none, it would say that it had no more than what they get from here. `Conflict`
    while it has its lease: its process runs, or has died just now.
    """
    entry = pumps.get(node_id)
    if entry is None or entry.status.state == node.OFFLINE:
        return
    place = f"the data directory {data_dir} is new, and pump {node_id} is registered as {entry.status.state}"
    if entry.alive:
        raise Conflict(
            f"{place}, with a lease", hint="end the process that has it, or give another --node-id"
        )
    raise ConfigError(
        f"{place}: drainers wait for what it holds",
        hint="mount its disk, correct data-dir, or give another --node-id; if its data is gone for good, "
        f"`binlogctl forget {node_id}` says what is lost, and then it may start here",
    )

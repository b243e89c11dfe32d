"""Notify drainers: every living drainer learns that this pump exists, before it accepts writes.

A drainer that does not merge this pump yet could pass a timestamp that this pump commits next. So each
drainer that is online is called, all in parallel, again and again until it has confirmed, has left, or is
known to be dead. A dead one finds this pump when it starts, and must not keep a new pump from working.

Who is dead: a drainer with a lease whose lease is gone. A Go drainer has none; it ends itself after 20
heartbeats that failed, each of which takes 1 to 6 seconds. So one that cannot be called and whose entry is
older than that merges nothing any more.

Tests  tests/pump/membership/test_lifecycle.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tidb_binlog import tso
from tidb_binlog.cluster import node
from tidb_binlog.cluster.registry import ClusterView, NodeEntry, Registry
from tidb_binlog.errors import BinlogError, Rejected, Unavailable
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.observe import log
from tidb_binlog.rpc import Client, RpcStatus
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import TimestampOracle
from tidb_binlog.wire import drainer_pb2

REMIND_S: Final = 10.0
SILENT_MAX_S: Final = 120.0
_METHOD: Final = "/binlog.Cistern/Notify"
_CALL_S: Final = 10.0
_PAUSE_S: Final = 0.5
_POLL_S: Final = 1.0
_REFUSALS_MAX: Final = 3
_logger = log.get("notify")


class DrainerNotNotified(Rejected):
    """A living drainer refuses the notice of this pump; writes must not be accepted."""

    exit_code = 2


def to_notify(view: ClusterView) -> dict[str, NodeEntry]:
    """Drainers that are online and not known to be dead."""
    return {
        node_id: entry
        for node_id, entry in sorted(view.drainers.items())
        if entry.status.state == node.ONLINE and entry.alive is not False
    }


def is_silent(entry: NodeEntry, now_ts: Ts) -> bool:
    """Whether a drainer without a lease has not beaten for so long that it must have ended itself."""
    if entry.alive is not None:
        return False
    return tso.physical_s(now_ts) - tso.physical_s(entry.status.update_ts) > SILENT_MAX_S


class Notices:
    """One round of notices. `waits` is given a line about drainers that have not confirmed, "" at the end."""

    def __init__(
        self,
        registry: Registry,
        oracle: TimestampOracle,
        tls: TlsConfig | None,
        waits: Callable[[str], None],
    ) -> None:
        self._registry = registry
        self._oracle = oracle
        self._tls = tls
        self._waits = waits
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._hosts: dict[str, str] = {}
        self._failures: dict[str, BinlogError] = {}  # the last one of each that was not reached
        self._skipped: set[str] = set()

    async def until_confirmed(self) -> None:
        """Return when no living drainer is left that has not confirmed; raises `DrainerNotNotified`."""
        try:
            while await self._outstanding():
                running = [call for call in self._calls.values() if not call.done()]
                if running:
                    await asyncio.wait(running, timeout=_POLL_S, return_when=asyncio.FIRST_COMPLETED)
                else:
                    await asyncio.sleep(_POLL_S)
        finally:
            await self._end()
        self._waits("")
        self._log_count()

    async def remind(self) -> None:
        """Notify them of a pump that they know already: one that cannot be reached is logged."""
        try:
            for node_id, entry in to_notify(await self._registry.view()).items():
                self._call(node_id, entry)
            if self._calls:
                await asyncio.wait(self._calls.values(), timeout=REMIND_S)
            for node_id, call in self._calls.items():
                error: BaseException | None = self._failures.get(node_id)
                if call.done() and not call.cancelled():
                    error = call.exception() or error
                if error is not None or not call.done():
                    _logger.warning("drainer not notified", node_id=node_id, error=error or "no answer")
        except Unavailable as error:
            _logger.warning("drainers not notified", error=error)
        finally:
            await self._end()
        self._log_count()

    async def _outstanding(self) -> bool:
        """Call the drainers that were not called yet, forget those that need not confirm any more."""
        try:
            living = to_notify(await self._registry.view())
            now_ts = await self._oracle.timestamp()
        except Unavailable as error:
            self._waits(f"waits for registry and timestamps: {error.message}")
            return True
        for node_id in self._calls.keys() - living.keys():
            self._skip(node_id, "it has left or its lease is gone")
        for node_id, entry in living.items():
            # One that answers, if only to refuse, lives.
            if isinstance(self._failures.get(node_id), Unavailable) and is_silent(entry, now_ts):
                self._skip(node_id, f"it cannot be called and has not beaten for {SILENT_MAX_S:g} s")
            elif node_id not in self._calls and node_id not in self._skipped:
                self._call(node_id, entry)
            elif self._has_moved(node_id, entry):
                self._calls[node_id].cancel()
                self._call(node_id, entry)
        waiting = [node_id for node_id, call in self._calls.items() if not call.done()]
        for call in self._calls.values():
            if call.done():
                call.result()
        if waiting:
            reasons = (f"{node_id} ({self._failures.get(node_id, 'no answer yet')})" for node_id in waiting)
            self._waits("waits for drainers to confirm this pump: " + ", ".join(reasons))
        return bool(waiting)

    def _has_moved(self, node_id: str, entry: NodeEntry) -> bool:
        """Whether one that has not confirmed is elsewhere by now: it was started again, or its standby took
        over."""
        call = self._calls.get(node_id)
        return call is not None and not call.done() and self._hosts[node_id] != entry.status.host

    def _call(self, node_id: str, entry: NodeEntry) -> None:
        self._hosts[node_id] = entry.status.host
        self._calls[node_id] = asyncio.get_running_loop().create_task(
            self._notify(node_id, entry.status.host), name=f"notify {node_id}"
        )

    def _skip(self, node_id: str, why: str) -> None:
        self._skipped.add(node_id)
        self._failures.pop(node_id, None)
        call = self._calls.pop(node_id, None)
        if call is not None and not call.done():
            call.cancel()
            _logger.warning("drainer need not be notified", node_id=node_id, why=why)

    async def _end(self) -> None:
        running = [call for call in self._calls.values() if not call.done()]
        for call in running:
            call.cancel()
        if running:
            await asyncio.wait(running)

    def _log_count(self) -> None:
        called = sum(call.done() and not call.cancelled() for call in self._calls.values())
        if self._calls:
            _logger.info("drainers notified", count=called - len(self._failures))

    async def _notify(self, node_id: str, address: str) -> None:
        """Until it has confirmed. Raises `DrainerNotNotified` when it refuses again and again."""
        client = Client(address, tls=self._tls)
        refusals = 0
        try:
            while True:
                try:
                    request = drainer_pb2.NotifyReq().SerializeToString()
                    await client.unary(_METHOD, request, _CALL_S)
                    self._failures.pop(node_id, None)
                    return
                except Unavailable as error:
                    self._failures[node_id] = error
                except RpcStatus as error:
                    self._failures[node_id] = error
                    refusals += 1
                    if refusals == _REFUSALS_MAX:
                        raise _not_notified(node_id, address, error) from None
                await asyncio.sleep(_PAUSE_S)
        finally:
            await client.close()


def _not_notified(node_id: str, address: str, error: BinlogError) -> DrainerNotNotified:
    return DrainerNotNotified(
        f"fail to notify all living drainer: notify drainer {node_id} ({address}): {error.message}",
        hint="start that drainer, or mark it: binlogctl -cmd update-drainer "
        f"-node-id {node_id} -state offline",
    )

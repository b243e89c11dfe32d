"""The registry in etcd: adapter of `tidb_binlog.cluster.registry` over `EtcdClient`."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Mapping
from typing import Final

from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import (
    DRAINERS,
    PUMPS,
    ROOT,
    Announcement,
    ClusterView,
    EntryChanged,
    NodeEntry,
    alive_key,
    announced_key,
    check_node_id,
    status_key,
)
from tidb_binlog.errors import Conflict, Corruption, Unavailable
from tidb_binlog.etcd import client as etcd
from tidb_binlog.etcd.client import REQUEST_TIMEOUT_S, EtcdClient, KeyValue, LeaseLost
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.observe import log
from tidb_binlog.process import process_identity

_RETRY_FIRST_S: Final = 0.1
_RETRY_MAX_S: Final = 2.0
_ANNOUNCE_POLL_S: Final = 0.2

_logger = log.get("registry")


class EtcdRegistry:
    """See the port. Owns its client; `close` ends the announcements made through it."""

    def __init__(self, client: EtcdClient, clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._token = secrets.token_hex(8)
        self.announcements: dict[tuple[str, str], EtcdAnnouncement] = {}
        self._bad_entries: dict[bytes, int] = {}
        self._is_closing = False

    async def view(self) -> ClusterView:
        revision, pairs = await self._client.range(ROOT.encode())
        return self._build(revision, {pair.key: pair for pair in pairs})

    async def watch(self) -> AsyncGenerator[ClusterView, None]:
        """The current view, then one after every change."""
        backoff = Backoff(_RETRY_FIRST_S, _RETRY_MAX_S)
        last: ClusterView | None = None
        while True:
            try:
                async with contextlib.aclosing(self._changes()) as changes:
                    async for revision, pairs in changes:
                        view = self._build(revision, pairs)
                        if backoff.attempts:
                            _logger.info("registry watch works again", revision=revision)
                            backoff.reset()
                        if last is None or (last.pumps, last.drainers) != (view.pumps, view.drainers):
                            last = view
                            yield view
            except (Unavailable, etcd.Compacted) as error:
                if backoff.attempts == 0 and not self._is_closing:
                    _logger.warning("registry watch broken, trying again", error=error)
            await asyncio.sleep(backoff.next_s())

    async def _changes(self) -> AsyncGenerator[tuple[int, dict[bytes, KeyValue]], None]:
        revision, listed = await self._client.range(ROOT.encode())
        pairs = {pair.key: pair for pair in listed}
        yield revision, pairs
        async with contextlib.aclosing(self._client.watch(ROOT.encode(), revision + 1)) as watch:
            async for revision, changes in watch:
                for change in changes:
                    if isinstance(change, KeyValue):
                        pairs[change.key] = change
                    else:
                        pairs.pop(change.key, None)
                yield revision, pairs

    async def put(self, kind: str, status: NodeStatus, expected: int | None) -> int:
        check_node_id(status.node_id)
        key, mark = status_key(kind, status.node_id), announced_key(kind, status.node_id)
        before = expected or 0
        announcement = self.announcements.get((kind, status.node_id))
        if announcement is not None:
            follow = etcd.put(mark, b"")
        else:
            # Somebody else's entry (an operator corrects it): the mark stays as true as it was.
            follow = etcd.nested([etcd.mod_is(mark, before)], [etcd.put(mark, b"")] if before else [])
        result = await self._client.txn(
            [etcd.mod_is(key, before)],
            [etcd.put(key, status.to_json()), follow],
            [etcd.get(key)],
            timeout_s=announcement.patience_s if announcement else None,
        )
        if result.succeeded:
            return result.revision
        pairs = result.results[0].kvs
        what = f"has revision {pairs[0].mod_revision}, not {before}" if pairs else "does not exist"
        revision = pairs[0].mod_revision if pairs else 0
        raise EntryChanged(f"entry of {kind[:-1]} {status.node_id} {what}", revision, hint="read it again")

    async def remove(self, kind: str, node_id: str, expected: int) -> None:
        """Delete the entry, at revision `expected`, of a node that never comes back. Raises `Conflict`."""
        key = status_key(kind, node_id)
        result = await self._client.txn(
            [etcd.mod_is(key, expected), etcd.mod_is(alive_key(kind, node_id), 0)],
            [etcd.delete(key), etcd.delete(announced_key(kind, node_id))],
        )
        if not result.succeeded:
            raise Conflict(f"entry of {kind[:-1]} {node_id} changed, or its node lives", hint="read it again")

    async def announce(self, kind: str, node_id: str, ttl_s: int) -> Announcement:
        check_node_id(node_id)
        announcement = EtcdAnnouncement(self, self._client, kind, node_id, ttl_s, self._token)
        deadline_s = self._clock.monotonic_s() + ttl_s + 1
        while True:
            try:
                await announcement.take()
                break
            except AnnouncedElsewhere as error:
                # On another machine that cannot be checked: its lease runs out if it is dead.
                if error.certain or self._clock.monotonic_s() >= deadline_s:
                    raise
            await asyncio.sleep(_ANNOUNCE_POLL_S)
        self.announcements[(kind, node_id)] = announcement
        return announcement

    async def is_held(self, kind: str, node_id: str) -> bool:
        holder = await self._client.get(alive_key(kind, node_id))
        if holder is None:
            return False
        identity = process_identity.ProcessIdentity.from_json(holder.value)
        return identity is None or not process_identity.is_gone(identity)

    def withdrawn(self, kind: str, node_id: str) -> None:
        self.announcements.pop((kind, node_id), None)

    async def close(self) -> None:
        self._is_closing = True
        for announcement in list(self.announcements.values()):
            with contextlib.suppress(Unavailable, Conflict):
                await announcement.withdraw()
        await self._client.close()

    def _build(self, revision: int, pairs: Mapping[bytes, KeyValue]) -> ClusterView:
        return ClusterView(
            revision=revision, pumps=self._entries(PUMPS, pairs), drainers=self._entries(DRAINERS, pairs)
        )

    def _entries(self, kind: str, pairs: Mapping[bytes, KeyValue]) -> dict[str, NodeEntry]:
        prefix = status_key(kind, "")
        entries: dict[str, NodeEntry] = {}
        for key, pair in pairs.items():
            if not key.startswith(prefix):
                continue
            try:
                node_id = key[len(prefix) :].decode()
                status = NodeStatus.from_json(pair.value, where=key.decode())
                if "/" in node_id or status.node_id != node_id:
                    raise Corruption(f"registry entry {key.decode()} names node {status.node_id!r}")
            except (Corruption, UnicodeDecodeError) as error:
                if self._bad_entries.get(key) != pair.mod_revision:
                    self._bad_entries[key] = pair.mod_revision
                    _logger.warning("registry entry ignored", key=repr(key), error=error)
                continue
            mark = pairs.get(announced_key(kind, node_id))
            alive: bool | None = None
            if mark is not None and mark.mod_revision == pair.mod_revision:
                alive = alive_key(kind, node_id) in pairs
            entries[node_id] = NodeEntry(status, pair.mod_revision, alive)
        return entries


class AnnouncedElsewhere(Conflict):
    """The id belongs to another process. `certain`: it was seen alive on this machine."""

    certain = False


class EtcdAnnouncement:
    """A lease and the key under it; a new lease after every change of etcd's leader.

    A leader that stood still does not know, for a short time after it wakes up, that there is another by now.
    It ends what has run out by its own reckoning, and the other leader carries that out (etcd up to 3.5.12).
    But it knows no lease that was granted since.
    """

    def __init__(
        self, registry: EtcdRegistry, client: EtcdClient, kind: str, node_id: str, ttl_s: int, token: str
    ) -> None:
        self._registry = registry
        self._client = client
        self._kind = kind
        self._node_id = node_id
        self._ttl_s = ttl_s
        self._key = alive_key(kind, node_id)
        self._identity = process_identity.current(token)
        self.lease = 0
        self._term = 0
        self._unsure: list[int] = []  # leases of moves that failed: the key may be under one of them
        # A member that stands still may not cost the lease: another one is asked in time.
        self.patience_s = min(REQUEST_TIMEOUT_S, ttl_s / 4)

    async def take(self) -> None:
        """Put the key under a new lease, if no process that may be alive holds it."""
        lease = await self._client.grant(self._ttl_s)
        try:
            await self._take_with(lease.id)
        except BaseException:
            with contextlib.suppress(Unavailable):
                await self._client.revoke(lease.id)
            raise
        self.lease, self._term = lease.id, lease.term

    async def _move(self, term: int) -> None:
        """Put the key under a lease that leaders before `term` do not know.

        A move that fails is made again with the next extension; its lease stays, the key may be under it.
        """
        lease = await self._client.grant(self._ttl_s, self.patience_s)
        self._unsure.append(lease.id)
        await self._take_with(lease.id, self.patience_s)
        # Not the new lease's term: that may have begun after the grant.
        earlier = {self.lease, *self._unsure} - {lease.id}
        self.lease, self._term, self._unsure = lease.id, term, []
        with contextlib.suppress(Unavailable):
            for useless in earlier:
                await self._client.revoke(useless)

    async def _take_with(self, lease: int, timeout_s: float | None = None) -> None:
        expected = 0
        while True:
            result = await self._client.txn(
                [etcd.mod_is(self._key, expected)],
                [etcd.put(self._key, self._identity.to_json(), lease)],
                [etcd.get(self._key)],
                timeout_s=timeout_s,
            )
            if result.succeeded:
                return
            holders = result.results[0].kvs
            if not holders:
                expected = 0
                continue
            self._check_free(holders[0])
            expected = holders[0].mod_revision

    def _check_free(self, holder: KeyValue) -> None:
        identity = process_identity.ProcessIdentity.from_json(holder.value)
        if identity == self._identity:
            return
        if identity is not None and process_identity.is_gone(identity):
            _logger.info("taking over from a dead process", node_id=self._node_id, pid=identity.pid)
            return
        owner = "another process" if identity is None else f"process {identity.pid} on {identity.host}"
        error = AnnouncedElsewhere(
            f"{self._kind[:-1]} {self._node_id} is already running: {owner}",
            hint="stop it, or start this one with another --node-id",
        )
        error.certain = identity is not None and identity.space == self._identity.space != ""
        raise error

    async def keep_alive(self) -> None:
        if self.lease:
            try:
                term = await self._client.keep_alive(self.lease, self.patience_s)
                if term != self._term:
                    await self._move(term)
                return
            except LeaseLost:
                _logger.warning("lease had run out, announcing anew", node_id=self._node_id)
                self.lease = 0
        await self.take()

    async def withdraw(self) -> None:
        self._registry.withdrawn(self._kind, self._node_id)
        leases, self.lease, self._unsure = [self.lease, *self._unsure], 0, []
        for lease in filter(None, leases):
            await self._client.revoke(lease)


async def connect_registry(
    endpoints: str, *, tls: TlsConfig | None = None, timeout_s: float = REQUEST_TIMEOUT_S
) -> EtcdRegistry:
    """The registry at a comma list of http://host:port or host:port.

    Raises `Unavailable` naming the endpoints when none answers, `ConfigError` for malformed ones.
    """
    return EtcdRegistry(await EtcdClient.connect(endpoints, tls=tls, timeout_s=timeout_s))

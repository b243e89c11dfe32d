"""Named reader: a program that reads the stream under a name, present in the registry as a Drainer is.

Owns    the entry below `drainers/`, its lease, and the port on which pumps and operators call
Does    pumps' retention and their closing go by `maxCommitTS` of the entry: it is the reader's position. Done
        transactions move it within `STORE_GAP_S`, and at the close
        A pump that joins calls `binlog.Cistern/Notify` of every drainer that is online, and takes no prewrite
        before all have answered; a Go pump even ends when one cannot be called. So a reader listens: at an
        address that it is given, or at a free port of the address that the registry's server sees
        `binlogctl pause` and `close` end the stream as they end a Drainer
Order   the name first, then the place where the stream begins: what is stored is held meanwhile
Holds   one process a name: another is refused while this one lives. An entry of a Drainer is never taken
        A position is stored after it was said to be done, never before; it never falls
Stops   `close` stores the position and says paused: pumps keep what comes after it, as for a Drainer

Tests  tests/drainer/reading/subscribe/test_named_reader.py
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final

from drainer.operate.control.http import NodeState, add_routes, notify_service
from drainer.operate.control.standby import lease_s
from drainer.points.rows.snapshot_position import SnapshotPosition
from drainer.reading.subscribe.reader_position import NotGiven, ReaderPosition
from tidb_binlog import tso, version
from tidb_binlog.clock import Clock
from tidb_binlog.cluster import node
from tidb_binlog.cluster.heartbeat import Heartbeat
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import DRAINERS, Registry, check_node_id
from tidb_binlog.door.http.admin_guard import AdminGuard
from tidb_binlog.door.http.routes import Routes
from tidb_binlog.door.server.listener import Server, serve
from tidb_binlog.errors import BinlogError, ConfigError, Conflict, Rejected, Unavailable
from tidb_binlog.etcd.client import parse_endpoints
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net.port import own_address, split_address
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.observe import log
from tidb_binlog.status.codec import plain
from tidb_binlog.status.drainer import DrainerDocument
from tidb_binlog.tso import Ts

BEAT_S: Final = 1.0
STORE_GAP_S: Final = 0.25
"""Pause after a position was stored: a program that is done a thousand times a second writes four times."""
_SNAPSHOT: Final = "snapshot"  # label of the entry
_ANY_HOST: Final = ("", "0.0.0.0", "::")

_logger = log.get("reader")


class NameTaken(Conflict):
    """Another process reads under this name, or a Drainer has it."""


class ReaderStopped(Rejected):
    """An operator paused or closed this reader."""


@dataclass(frozen=True, slots=True)
class ReaderAddress:
    """Where a reader listens. `listen`: host:port, port 0 for a free one; "": a free port of the address that
    `endpoints` sees. `advertise`: how pumps reach it, if that is another one."""

    listen: str = ""
    advertise: str = ""


class NamedReader:
    """Made by `open_reader`. `now_ts` gives the upstream's time; `doing` says what is shown of the stream."""

    def __init__(
        self, name: str, registry: Registry, now_ts: Callable[[], int], clock: Clock, doing: Callable[[], str]
    ) -> None:
        self.name = name
        self._position: ReaderPosition | None = None  # from `begin` on
        self._left_ts = 0  # where an earlier process of this name stopped
        self._left_snapshot = ""
        self.ended: BinlogError | None = None
        """Why this reader is one no more. Whatever the program calls next raises it."""
        self.facts: Callable[[], dict[str, Any]] = dict
        """What its program adds to `/status`."""
        self._registry = registry
        self._now_ts = now_ts
        self._doing = doing
        self._clock = clock
        self._host = ""  # where pumps reach this reader, from `listen` on
        self._state = NodeState(name, node.ONLINE)
        self._heartbeat = Heartbeat(
            registry,
            DRAINERS,
            self._entry,
            BEAT_S,
            clock,
            lease_s=lease_s(BEAT_S),
            on_left=self._know_left,
        )
        self._registered = False  # the entry is ours, and `close` has to leave it
        # From `register` on: until the stream begins its program reads a schema, or starts Spark, which may
        # take longer than a lease.
        self._beating: asyncio.Task[None] | None = None
        self._server: Server | None = None
        self._routes = Routes()
        # What a pump that joins is answered by; there when the stream begins.
        self._notify: asyncio.Future[Callable[[], Awaitable[None]]] = (
            asyncio.get_running_loop().create_future()
        )
        self._moved = asyncio.Event()  # the position has moved since it was stored
        self._told = asyncio.Event()  # an operator has ended this reader

    @property
    def stored_ts(self) -> Ts:
        """The position; until the stream begins: where an earlier life stopped, 0 if there was none."""
        return self._left_ts if self._position is None else self._position.position

    # -- the stream ------------------------------------------------------------------------------------

    @property
    def stored_snapshot(self) -> str:
        """Until the stream begins: how far an earlier life came in a snapshot; "" if in none."""
        return self._left_snapshot

    def begin(
        self, ts: Ts, notify: Callable[[], Awaitable[None]], snapshot: SnapshotPosition | None = None
    ) -> None:
        """The stream begins after `ts`, what is left of `snapshot` comes before; `notify` returns when it
        waits for every pump of the registry."""
        self._position = ReaderPosition(ts, snapshot)
        if self._notify.done():  # the stream was built anew
            self._notify = asyncio.get_running_loop().create_future()
        self._notify.set_result(notify)

    def given(self, ts: Ts, snapshot: SnapshotPosition | None = None) -> None:
        """The item of this commit_ts went to the program; rows of a snapshot up to that position."""
        self._begun.given(ts, snapshot)

    def passed(self, ts: Ts) -> None:
        """Everything at or below it has been given; stored with a beat."""
        self._begun.passed(ts)

    def done(self, ts: Ts, snapshot: str = "") -> None:
        """The program has done it, and all before it. Raises `NotGiven`, and what ended this reader: the
        position of one that an operator ended is stored all the same."""
        self._begun.done(ts, snapshot)
        self._moved.set()
        if self.ended is not None:
            raise self.ended

    @property
    def _begun(self) -> ReaderPosition:
        if self._position is None:
            raise NotGiven("nothing was given yet", hint="read the stream first")
        return self._position

    @property
    def unbroken(self) -> int | None:
        """As of the heartbeat: pumps that join wait for who holds a lease."""
        return self._heartbeat.unbroken

    async def run(self) -> None:
        """Store until cancelled. Raises `NameTaken` when another process has the name by now, `ReaderStopped`
        when an operator ended this reader."""
        assert self._beating is not None, "register first"
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_ended(self._beating), name="reader beats")
                tasks.create_task(self._store_moves(), name="reader position")
                tasks.create_task(self._end_when_told(), name="reader told")
        except BaseExceptionGroup as errors:
            first = errors.exceptions[0]
            if isinstance(first, Conflict):
                first = _taken(self.name, first)
            if self.ended is None and isinstance(first, BinlogError):
                self.ended = first
            raise first from None

    async def store(self) -> bool:
        """Write the position now; False when the registry did not take it, the next beat tries again. Raises
        `NameTaken` when another process has the name by now."""
        try:
            return await self._heartbeat.beat()
        except Conflict as error:
            self.ended = _taken(self.name, error)
            raise self.ended from None

    async def close(self) -> None:
        """Store the position, leave the name to who comes next, listen no more. Idempotent."""
        registered, self._registered = self._registered, False
        try:
            if self._beating is not None:
                self._beating.cancel()
                await asyncio.wait({self._beating})
                _ = self._beating.cancelled() or self._beating.exception()  # `run` raises it, if there is one
            if registered:
                self._state.apply("stop")
                await self._heartbeat.leave(self._state.state)
        except Unavailable as error:
            _logger.warning(
                "the last position of this reader is not stored: what came after the stored one comes again",
                name=self.name,
                position=self.stored_ts,
                error=error,
            )
        finally:
            if self._server is not None:
                await self._server.stop(0.0)

    # -- the entry -------------------------------------------------------------------------------------

    def _entry(self) -> NodeStatus:
        snapshot = self._position.snapshot if self._position is not None else self._left_snapshot
        label = {"labels": {**node.READER["labels"], _SNAPSHOT: snapshot}} if snapshot else node.READER
        return NodeStatus(
            self.name, self._host, self._state.state, self.stored_ts, self._now_ts(), label=label
        )

    def _know_left(self, left: NodeStatus) -> None:
        if left.is_reader:
            self._left_ts = left.max_commit_ts
            self._left_snapshot = left.labels.get(_SNAPSHOT, "")

    async def register(self) -> None:
        """Raises `NameTaken`, `ConfigError` for an impossible name, `Unavailable`."""
        entry = (await self._registry.view()).drainers.get(self.name)
        if entry is not None and not entry.status.is_reader and entry.status.state != node.OFFLINE:
            raise NameTaken(
                f"{self.name} is a Drainer's node id", hint="give this reader another name"
            ) from None
        try:
            await self._heartbeat.register(node.ONLINE)
        except Conflict as error:
            raise _taken(self.name, error) from None
        self._registered = True
        self._beating = asyncio.create_task(self._heartbeat.run(), name="reader heartbeat")

    async def _store_moves(self) -> None:
        while True:
            await self._moved.wait()
            self._moved.clear()
            await self._heartbeat.beat()
            await asyncio.sleep(STORE_GAP_S)

    async def _end_when_told(self) -> None:
        await self._told.wait()
        with contextlib.suppress(Unavailable):
            await self._heartbeat.change_state(self._state.state)
        raise ReaderStopped(
            f"reader {self.name} was told to end: an operator's binlogctl made it {self._state.state}",
            hint="start it again when it is to go on",
        )

    # -- the port --------------------------------------------------------------------------------------

    async def listen(self, address: ReaderAddress, endpoints: str, tls: TlsConfig | None) -> None:
        """Raises `PortTaken`, `ConfigError`."""
        first = split_address("endpoint", parse_endpoints(endpoints)[0])
        host, port = split_address("address", address.listen) if address.listen else ("", 0)
        seen = await asyncio.to_thread(own_address, first) if host in _ANY_HOST else host
        shown, shown_port = seen, 0
        if address.advertise:
            shown, shown_port = split_address("advertise", address.advertise)
        add_routes(self._routes, self, self._state, self._told.set)
        self._server = await serve(
            [notify_service(self._on_notify)],
            self._routes,
            host or seen,
            port,
            tls=tls.server_tls() if tls else None,
            guard=AdminGuard((), {host, shown, socket.gethostname()}),
            flag="address",
        )
        self._host = f"{f'[{shown}]' if ':' in shown else shown}:{shown_port or self._server.port}"

    def offer(self, add: Callable[[Routes], None]) -> None:
        """Routes of the program besides. Each takes the place of an earlier one for the same."""
        add(self._routes)

    async def _on_notify(self) -> None:
        """A pump joins: it is answered when the stream waits for it."""
        notify = await asyncio.shield(self._notify)
        await notify()

    def document(self) -> dict[str, Any]:
        """`/status`, with the keys of a Drainer."""
        keys = DrainerDocument(
            last_ts=self.stored_ts,
            applied_ts=self.stored_ts,
            node_id=self.name,
            version=version.release(),
            time=self._clock.wall_s(),
            state=self._state.state,
            doing=self._doing(),
            lag_seconds=round(max(0.0, tso.age_s(self.stored_ts, tso.physical_s(self._now_ts()))), 3),
        )
        document: dict[str, Any] = plain(keys)
        return document | self.facts()


async def _ended(beating: asyncio.Task[None]) -> None:
    await beating


def _taken(name: str, error: BaseException) -> NameTaken:
    said = error.message if isinstance(error, Conflict) else str(error)
    return NameTaken(
        f"the name {name} is another process's: {said}", hint="end that one, or give this reader another name"
    )


async def open_reader(
    name: str,
    registry: Registry,
    endpoints: str,
    *,
    now_ts: Callable[[], int],
    clock: Clock,
    doing: Callable[[], str] = lambda: "",
    address: ReaderAddress | None = None,
    tls: TlsConfig | None = None,
) -> NamedReader:
    """Listen and take the name. `now_ts`: of the upstream; `doing`: in words, for `/status`.

    Raises `NameTaken`, `ConfigError` for a name or an address that cannot be, `Unavailable`.
    """
    try:
        check_node_id(name)
    except ConfigError as error:
        raise ConfigError(error.message.replace("node id", "name", 1), hint="choose another name") from None
    reader = NamedReader(name, registry, now_ts, clock, doing)
    await reader.listen(address or ReaderAddress(), endpoints, tls)
    try:
        await reader.register()
    except BaseException:
        await reader.close()
        raise
    return reader

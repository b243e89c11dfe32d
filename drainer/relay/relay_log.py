"""Relay log: what goes downstream is on this disk first, so that a consistent state can be reached without
the upstream.

Drives  a process of its own that encodes and writes (`relay_process`), so that rows cost little here
Owns    what was appended and not sent yet, and what is known to be durable
Order   append, sync, hand to the lanes; remove a file when all in it is applied and the checkpoint stored
Holds   what `sync` returned for is durable with its directory entry. A full disk is waited for, nothing is
        lost; any other failure of the disk is final, and so is the death of the process
Stops   `close` syncs what was appended

A large transaction comes in pieces and is one record: its pieces are written as they come, and its length is
filled in when the last one is there. Until then the file ends inside a record.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from common.clock import Clock
from common.errors import BinlogError
from common.observe import log
from drainer import metrics
from drainer.relay import protocol
from drainer.relay.child import RelayChild
from drainer.relay.protocol import Entry, Opened, Opening, Synced, WaitingForSpace
from drainer.txn import Ddl, Item, TableVersion

logger = log.get("drainer.relay")

MAX_FILE_SIZE: Final = 10 << 20
BUFFERED_BYTES_MAX: Final = 16 << 20
SEND_BYTES: Final = 64 << 10  # so much is sent before a sync is asked for: it is encoded meanwhile
VERSIONS_MAX: Final = 10_000
_RECEIVE_BYTES: Final = 1 << 16


class Child(Protocol):
    """What serves the other end of the socket pair."""

    socket: socket.socket

    def death(self) -> BinlogError: ...

    def end(self) -> None: ...


class RelayLog:
    """`append`, `sync`, `done` and `close` are called on the event loop, in the order of the stream."""

    def __init__(self, child: Child, clock: Clock) -> None:
        """The other end has opened its directory."""
        self._clock = clock
        self._child = child
        self._socket = child.socket
        self._socket.setblocking(False)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._entries: list[Entry] = []
        self._send_at = SEND_BYTES  # of the bytes appended
        self._numbers: dict[TableVersion, int] = {}
        self._inside = False  # a transaction of which more pieces come
        self._appended = self._durable = 0  # items, and removals, since the start
        self._appended_bytes = self._durable_bytes = 0
        self._asked: asyncio.Future[None] | None = None  # the sync that is under way
        self._asked_upto = (0, 0)
        self._asked_s = 0.0
        self._outgoing: deque[memoryview] = deque()
        self._incoming = bytearray()
        self._failure: BinlogError | None = None
        self._on_failed: Callable[[BaseException], None] = lambda error: None
        self.waiting_for = ""
        """Why nothing can be written now, for /status; "" if it can."""

    @classmethod
    def open(
        cls,
        path: str,
        max_file_size: int,
        clock: Clock,
        *,
        cluster_id: int = 0,
        after_ts: int = 0,
        child: Child | None = None,
    ) -> RelayLog:
        """`after_ts`: the stream continues after it; a log that cannot be continued from there begins anew.

        Blocks. Raises `ConfigError`, `DirectoryLocked`, `ForeignDirectory`, `Corruption`.

        Without a `child` one is started, which dies with the thread that calls.
        """
        child = child or RelayChild()
        size = max_file_size if max_file_size > 0 else MAX_FILE_SIZE
        opening = Opening(path, size, cluster_id, metrics.FILE_SIZES, after_ts)
        try:
            child.socket.sendall(protocol.message(opening))
            answer = _answer(child.socket)
        except ConnectionError:
            answer = None
        if isinstance(answer, Opened):
            return cls(child, clock)
        error = answer if isinstance(answer, BinlogError) else child.death()
        child.end()
        raise error

    def watch(self, on_failed: Callable[[BaseException], None]) -> None:
        """From now on `on_failed` gets a failure at once, also while nothing waits. On the event loop."""
        self._on_failed = on_failed
        self._listen()

    def _listen(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._socket, self._readable)

    # -- appending -------------------------------------------------------------------------------

    def append(self, item: Item, text: str | None = None) -> None:
        """A transaction, a piece of one, or a DDL that is to run (with `text` if not with its own).

        Nothing is written yet. A transaction without rows leaves no record. A row that cannot be right is
        found when it is encoded: the next `sync` raises `RowError`.
        """
        if isinstance(item, Ddl):
            query = text if text is not None else "; ".join(item.instead) or item.query
            self._entries.append(protocol.ddl_entry(item, query))
            self._appended += 1
        elif item.tables or self._inside or not item.last:
            numbers, tables = self._numbers, []
            for events in item.tables:
                number = numbers.get(events.table) or self._introduce(events.table)
                tables.append((number, events.kinds, events.rows, events.first_ordinal))
            self._entries.append((item.commit_ts, item.last, tables))
            self._inside = not item.last
            self._appended += 1
            self._appended_bytes += item.size_bytes
            if self._appended_bytes >= self._send_at:
                self._send_entries(sync=False)

    def _introduce(self, version: TableVersion) -> int:
        if len(self._numbers) >= VERSIONS_MAX:
            self._numbers.clear()
        number = self._numbers[version] = len(self._numbers) + 1
        self._entries.append(protocol.table_entry(number, version))
        return number

    @property
    def has_room(self) -> bool:
        """Whether more should be appended before the next `sync`."""
        return self._appended_bytes - self._durable_bytes < BUFFERED_BYTES_MAX

    # -- sending ---------------------------------------------------------------------------------

    async def sync(self) -> None:
        """Everything appended before is on the medium when this returns; calls share their syncs.

        A transaction in pieces is there when its last piece was appended before. Raises `Broken`, `RowError`.
        """
        wanted = self._appended
        while self._durable < wanted or self._failure is not None:
            if self._failure is not None:
                raise self._failure
            if self._asked is None:
                self._asked = asyncio.get_running_loop().create_future()
                self._asked_upto = self._appended, self._appended_bytes
                self._asked_s = self._clock.monotonic_s()
                self._send_entries(sync=True)
            await asyncio.shield(self._asked)

    def _send_entries(self, *, sync: bool) -> None:
        entries, self._entries = self._entries, []
        self._send_at = self._appended_bytes + SEND_BYTES
        self._send(protocol.order(entries, sync=sync))

    def _send(self, data: bytes) -> None:
        if self._failure is not None:
            return
        self._listen()
        self._outgoing.append(memoryview(data))
        if len(self._outgoing) == 1 and not self._push():
            assert self._loop is not None
            self._loop.add_writer(self._socket, self._writable)

    def _writable(self) -> None:
        if self._push() and self._loop is not None:
            self._loop.remove_writer(self._socket)

    def _push(self) -> bool:
        """True if everything is sent."""
        outgoing = self._outgoing
        while outgoing:
            try:
                sent = self._socket.send(outgoing[0])
            except BlockingIOError:
                return False
            except ConnectionError:  # what it said last is still to be read
                outgoing.clear()
                return True
            if sent == len(outgoing[0]):
                outgoing.popleft()
            else:
                outgoing[0] = outgoing[0][sent:]
        return True

    def done(self, resolved_ts: int) -> None:
        """Everything at or below it is applied, and the stored checkpoint says so: remove what holds no more.

        Does not wait; a failure is raised by the next `sync`.
        """
        self._send(protocol.order([], sync=False, resolved_ts=resolved_ts))
        self._appended += 1

    # -- what comes back -------------------------------------------------------------------------

    def _readable(self) -> None:
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self._fail(self._child.death())
            return
        self._incoming += data
        incoming, head = self._incoming, protocol.LENGTH
        while len(incoming) >= head.size:
            end = head.size + head.unpack_from(incoming)[0]
            if len(incoming) < end:
                break
            answer = protocol.read_message(incoming[head.size : end])
            del incoming[:end]
            self._take(answer)

    def _take(self, answer: Any) -> None:
        if isinstance(answer, Synced):
            metrics.RELAY_RECORD_BYTES.add(answer.counts, answer.total)
            metrics.RELAY_WRITE_SECONDS.observe(self._clock.monotonic_s() - self._asked_s)
            self._durable, self._durable_bytes = self._asked_upto
            self._answered()
        elif isinstance(answer, WaitingForSpace):
            if answer.reason and not self.waiting_for:
                logger.warning("relay log waits for space on its disk", reason=answer.reason)
            elif not answer.reason:
                logger.info("relay log has space again")
            self.waiting_for = answer.reason
        else:
            self._fail(answer)

    def _answered(self) -> None:
        asked, self._asked = self._asked, None
        if asked is not None and not asked.done():
            asked.set_result(None)

    def _fail(self, error: BinlogError) -> None:
        if self._failure is None:
            self._failure = error
            self._let_go()
            self._answered()
            self._on_failed(error)

    def _let_go(self) -> None:
        """Close this end; the other one ends then."""
        if self._loop is not None and self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        self._outgoing.clear()
        self._socket.close()

    async def close(self) -> None:
        """Sync what was appended and let go of the directory. Raises `Broken`."""
        try:
            await self.sync()
        finally:
            self._let_go()
            await asyncio.to_thread(self._child.end)


def _answer(end: socket.socket) -> Any:
    """The first one, which is waited for; None if the other end is closed."""
    data = bytearray()
    head = protocol.LENGTH
    while len(data) < head.size or len(data) < head.size + head.unpack_from(data)[0]:
        got = end.recv(_RECEIVE_BYTES)
        if not got:
            return None
        data += got
    return protocol.read_message(data[head.size :])

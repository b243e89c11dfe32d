"""Writer: the single thread that owns the end of the value log.

Drives  `group_commit`
Owns    the writer thread and the queue in front of it, bounded in bytes: a full queue makes writers wait
Order   append, fdatasync, then one call back into the event loop acknowledges the whole group
Stops   finishes what is queued. After a failed write or sync nothing is written until a restart: what the
        file holds behind the last acknowledged byte is unknown, and asking the disk again proves nothing
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from common import binlog
from common.clock import Clock
from common.errors import BinlogError
from pump.group_commit import GroupCommit
from pump.logged import Logged
from pump.value_log import ValueLog
from pump.value_pointer import ValuePointer


class WriteFailed(BinlogError):
    """The value log could not be written; the pump stores nothing more until it is restarted."""


@dataclass(frozen=True, slots=True)
class WrittenGroup:
    """One durable group: its records, their payloads in the same order, the end of the log behind them."""

    records: list[Logged]
    payloads: list[bytes]
    end: ValuePointer
    write_s: float
    sync_s: float
    waited_s: float  # about, of the group's first member in the queue


_new = tuple.__new__  # a NamedTuple's own constructor is a Python function
_Write = tuple[bytes, binlog.Header, "asyncio.Future[None]"]
"""Payload, header, and who waits."""


class Writer:
    """Stores payloads durably. `on_group` is called on the event loop before the writers are acknowledged."""

    def __init__(
        self,
        log: ValueLog,
        group_commit: GroupCommit,
        *,
        queue_bytes_max: int,
        sync: bool,
        clock: Clock,
        on_group: Callable[[WrittenGroup], None],
        on_failure: Callable[[WriteFailed], None],
    ) -> None:
        self._log = log
        self._group_commit = group_commit
        self._queue_bytes_max = queue_bytes_max
        self._sync = sync
        self._clock = clock
        self._on_group = on_group
        self._on_failure = on_failure
        self._inbox: deque[_Write] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._queued_bytes = 0
        self._first_s = 0.0  # when the inbox got its first write
        self._room = asyncio.Event()
        self._room.set()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="pump-writer", daemon=True)
        self.failure: WriteFailed | None = None

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    def start(self) -> None:
        self._thread.start()

    def write(self, payload: bytes, header: binlog.Header) -> Awaitable[None]:
        """Done when the payload is durable; `WriteFailed` if it may not be."""
        if self._queued_bytes >= self._queue_bytes_max:
            return self._write_later(payload, header)
        return self._enqueue(payload, header)

    async def _write_later(self, payload: bytes, header: binlog.Header) -> None:
        while self._queued_bytes >= self._queue_bytes_max and self.failure is None:
            self._room.clear()
            await self._room.wait()
        await self._enqueue(payload, header)

    def _enqueue(self, payload: bytes, header: binlog.Header) -> asyncio.Future[None]:
        if self.failure is not None:
            raise self.failure
        if self._stopping:
            raise WriteFailed("the value log is closed", hint="the pump is stopping, use another one")
        done = self._loop.create_future()
        self._queued_bytes += len(payload)
        inbox = self._inbox
        inbox.append((payload, header, done))
        # Looked at after the append: whoever finds another write here knows that the thread, which was woken
        # for that one, has not emptied the inbox yet and takes this one too.
        if len(inbox) == 1:
            self._first_s = self._clock.monotonic_s()
            self._wake.set()
        return done

    async def stop(self) -> None:
        """Finish what is queued, then end the thread."""
        self._stopping = True
        self._wake.set()
        await asyncio.to_thread(self._thread.join)
        await asyncio.sleep(0)  # the last group's call back runs before this returns

    # -- event loop ------------------------------------------------------------------------------

    def _acknowledge(self, writes: list[_Write], group: WrittenGroup) -> None:
        self._release(writes)
        self._on_group(group)
        for _, _, done in writes:
            if not done.done():
                done.set_result(None)

    def _fail(self, writes: list[_Write], failure: WriteFailed) -> None:
        self._release(writes)
        if self.failure is None:
            self.failure = failure
            self._on_failure(failure)
        for _, _, done in writes:
            if not done.done():
                done.set_exception(failure)

    def _release(self, writes: list[_Write]) -> None:
        self._queued_bytes -= sum(len(payload) for payload, _, _ in writes)
        self._room.set()

    # -- writer thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        pending: deque[_Write] = deque()
        failure: WriteFailed | None = None
        while True:
            if not pending and not self._inbox:
                if self._stopping:
                    return
                self._wake.wait()
                self._wake.clear()
            while self._inbox:
                pending.append(self._inbox.popleft())
            if not pending:
                continue
            count = self._group_commit.take(len(payload) for payload, _, _ in pending)
            writes = [pending.popleft() for _ in range(count)]
            if failure is None:
                try:
                    group = self._store(writes)
                except (
                    Exception
                ) as error:  # whatever it is: a thread that died silently would hang every writer
                    failure = WriteFailed(
                        f"unable to write to log file: {self._log.active.file.path}: {error}",
                        hint="the pump stores nothing more; free or repair the disk, then restart it",
                    )
                else:
                    self._call(self._acknowledge, writes, group)
                    continue
            self._call(self._fail, writes, failure)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop is closed: nobody waits for an answer any more
            pass

    def _store(self, writes: list[_Write]) -> WrittenGroup:
        began = self._clock.monotonic_s()
        payloads = [payload for payload, _, _ in writes]
        places = self._log.append(payloads)
        wrote = self._clock.monotonic_s()
        max_ts = max(header.index_ts for _, header, _ in writes)
        self._log.commit(places, len(payloads[-1]), max_ts, sync=self._sync)
        synced = self._clock.monotonic_s()
        records = [
            _new(Logged, (*header, place)) for (_, header, _), place in zip(writes, places, strict=True)
        ]
        waited = max(began - self._first_s, 0.0)
        return WrittenGroup(records, payloads, self._log.end, wrote - began, synced - wrote, waited)

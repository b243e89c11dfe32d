"""Writer: the single thread that owns the end of the value log.

Owns    the writer thread and the queue in front of it, bounded in bytes: a full queue makes writers wait
Order   append, fdatasync, then one call back into the event loop acknowledges the whole group
Stops   finishes what is queued. After a failed write or sync nothing is written until a restart: what the
        file holds after the last acknowledged byte is unknown, and asking the disk again proves nothing
Tests   tests/pump/storage/test_storage.py
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Final

from pump.log.group_commit import GroupCommit
from pump.log.record import LogRecord, ValuePointer
from pump.log.value_log import ValueLog
from tidb_binlog import binlog
from tidb_binlog.binlog import Head
from tidb_binlog.clock import Clock
from tidb_binlog.errors import BinlogError
from tidb_binlog.late_dataclass import dataclass

_RECORD_BYTES: Final = 256  # what a record costs in memory besides its payload


class WriteFailed(BinlogError):
    """The value log could not be written; the pump stores nothing more until it is restarted.

    `durable`: how many of the call's payloads, from its first, are stored all the same.
    """

    def __init__(self, message: str, *, hint: str = "", durable: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.durable = durable


@dataclass(frozen=True, slots=True)
class WrittenGroup:
    """One durable group: its records, their payloads in the same order, the end of the log after them."""

    records: list[LogRecord]
    payloads: list[bytes]
    end: ValuePointer
    write_s: float
    sync_s: float
    waited_s: float  # about, of the group's first member in the queue


_new = tuple.__new__  # a NamedTuple's own constructor is a Python function
Ended = Callable[[WriteFailed | None], None]
"""Called on the event loop: payloads are durable, or may not be."""

_Write = tuple[Sequence[bytes], Sequence[Head], int, Ended, int, bool]
"""Payloads, their heads, bytes held, who is called, how many payloads of the same call stand before them, and
whether they are the call's last. Of a failed call each part says so."""
_payloads_of, _heads_of, _bytes_of = itemgetter(0), itemgetter(1), itemgetter(2)


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
        # Not an Event, whose lock and condition cost more than a short write.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._stopping = False
        self._queued_bytes = 0
        self.prewrites = 0  # that were queued since the start, written by now or not
        self._first_s = 0.0  # when the inbox got its first write
        self._space = asyncio.Event()
        self._space.set()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="pump-writer", daemon=True)
        self.failure: WriteFailed | None = None

    @property
    def queued_bytes(self) -> int:
        """Of payloads that wait or are being written, with what each costs besides."""
        return self._queued_bytes

    def start(self) -> None:
        self._thread.start()

    # -- writing ---------------------------------------------------------------------------------

    def write(self, payload: bytes, header: Head) -> Awaitable[None]:
        """Done when the payload is durable; `WriteFailed` if it may not be."""
        if self._queued_bytes >= self._queue_bytes_max:
            return self._write_later([payload], [header])
        done = self._future()
        ended = partial(_settle, done)
        self._enqueue(((payload,), (header,), len(payload) + _RECORD_BYTES, ended, 0, True))
        return done

    def submit(self, payloads: Sequence[bytes], headers: Sequence[Head], ended: Ended) -> bool:
        """The same without anything to await: `ended` is called, once and later. False, without effect, if
        the payloads do not fit the queue or a group, or nothing is stored any more."""
        sizes = sum(map(len, payloads))
        if (
            not self._group_commit.has_room(len(payloads), sizes)
            or self.failure is not None
            or self._stopping
        ):
            return False
        size = sizes + _RECORD_BYTES * len(payloads)
        if self._queued_bytes + size > self._queue_bytes_max:
            return False
        self._enqueue((payloads, headers, size, ended, 0, True))
        return True

    def write_many(self, payloads: Sequence[bytes], headers: Sequence[Head]) -> Awaitable[None]:
        """Done when all payloads are durable, in this order; they share groups, each within its bounds.

        `WriteFailed` if some may not be: those from its `durable` on.
        """
        if self._queued_bytes >= self._queue_bytes_max:
            return self._write_later(payloads, headers)
        done = self._future()
        sizes = list(map(len, payloads))
        if not sizes:
            done.set_result(None)
        ended = partial(_settle, done)
        for first, after in self._group_commit.cut(sizes):
            size = sum(sizes[first:after]) + _RECORD_BYTES * (after - first)
            last = after == len(sizes)
            self._enqueue((payloads[first:after], headers[first:after], size, ended, first, last))
        return done

    async def _write_later(self, payloads: Sequence[bytes], headers: Sequence[Head]) -> None:
        await self.wait_for_space()
        await self.write_many(payloads, headers)

    async def wait_for_space(self) -> None:
        """Return when the queue takes more, or nothing for ever."""
        while self._queued_bytes >= self._queue_bytes_max and self.failure is None:
            self._space.clear()
            await self._space.wait()

    def _future(self) -> asyncio.Future[None]:
        if self.failure is not None:
            raise WriteFailed(self.failure.message, hint=self.failure.hint)
        if self._stopping:
            raise WriteFailed("the value log is closed", hint="the pump is stopping, use another one")
        return self._loop.create_future()

    def _enqueue(self, write: _Write) -> None:
        self._queued_bytes += write[2]
        self.prewrites += [head[0] for head in write[1]].count(binlog.PREWRITE)
        inbox = self._inbox
        inbox.append(write)
        # Checked after the append: if another write is here, the thread, which was woken for it, has not
        # emptied the inbox yet and takes this one too.
        if len(inbox) == 1:
            self._first_s = self._clock.monotonic_s()
            if self._wake.empty():  # a thread that is never idle takes none of them
                self._wake.put(None)

    async def stop(self) -> None:
        """Finish what is queued, then end the thread."""
        self._stopping = True
        self._wake.put(None)
        await asyncio.to_thread(self._thread.join)
        await asyncio.sleep(0)  # the last group's call back runs before this returns

    # -- event loop ------------------------------------------------------------------------------

    def _acknowledge(self, writes: list[_Write], group: WrittenGroup) -> None:
        self._release(writes)
        self._on_group(group)
        for _, _, _, ended, _, last in writes:
            if last:
                ended(None)

    def _fail(self, writes: list[_Write], failure: WriteFailed) -> None:
        self._release(writes)
        if self.failure is None:
            self.failure = failure
            self._on_failure(failure)
        for _, _, _, ended, before, _ in writes:
            ended(WriteFailed(failure.message, hint=failure.hint, durable=before))

    def _release(self, writes: list[_Write]) -> None:
        self._queued_bytes -= sum(map(_bytes_of, writes))
        self._space.set()

    # -- writer thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        inbox = self._inbox
        failure: WriteFailed | None = None
        while True:
            if not inbox:
                if self._stopping:
                    return
                self._wake.get()
                continue
            writes = self._take()
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

    def _take(self) -> list[_Write]:
        """What forms the next group."""
        inbox, has_room = self._inbox, self._group_commit.has_room
        write = inbox.popleft()
        writes = [write]
        records, size = len(write[0]), write[2]
        while inbox:
            write = inbox[0]
            records += len(write[0])
            size += write[2]
            if not has_room(records, size - _RECORD_BYTES * records):
                break
            writes.append(inbox.popleft())
        return writes

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop is closed: no call waits for an answer any more
            pass

    def _store(self, writes: list[_Write]) -> WrittenGroup:
        began = self._clock.monotonic_s()
        waited = max(began - self._first_s, 0.0)
        payloads = list(chain.from_iterable(map(_payloads_of, writes)))
        heads = list(chain.from_iterable(map(_heads_of, writes)))
        places = self._log.append(payloads)
        wrote = self._clock.monotonic_s()
        max_ts = max([start if tp == binlog.PREWRITE else commit for tp, start, commit in heads])
        self._log.commit(places, len(payloads[-1]), max_ts, sync=self._sync)
        synced = self._clock.monotonic_s()
        records = [_new(LogRecord, (*head, place)) for head, place in zip(heads, places, strict=True)]
        return WrittenGroup(records, payloads, self._log.end, wrote - began, synced - wrote, waited)


def _settle(done: asyncio.Future[None], failure: WriteFailed | None) -> None:
    """End a call that awaits its writes."""
    if done.done():  # cancelled, or another part of it has failed before
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)

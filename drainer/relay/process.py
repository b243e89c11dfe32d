"""Relay process: encodes, writes, syncs and removes, in a process of its own beside the drainer's.

Drives  `relay_records`, `relay_writer`, the directory and its locks
Owns    its end of a socket pair
Order   what is asked for, in the order in which it was asked; only removing does not wait for a full disk
Holds   `Synced` is sent after the sync. A full disk is waited for and said; any other failure is sent and
        is the end
Stops   when the drainer closes its end, and at once when the drainer is dead

It ignores the signals that stop a drainer: the drainer still has something to write then.
"""

from __future__ import annotations

import pickle
import select
import signal
import socket
import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import Final, NoReturn

from common.backoff import Backoff
from common.clock import Clock, SystemClock
from common.errors import DirectoryLocked
from common.process.die_with_parent import die_with
from common.process.garbage import collect_rarely
from drainer.formats.binlog_directory import BinlogDirectory, DiskFull
from drainer.formats.group_writer import RelayWriter
from drainer.formats.obinlog.writer import commit_ts_of
from drainer.formats.record_groups import RelayRecords
from drainer.relay import protocol
from drainer.relay.protocol import Entry, Opened, Opening, RelayAnswer, Synced, WaitingForSpace
from drainer.txn import TableEvents, TableVersion, Transaction

HEAD_BYTES: Final = 32  # enough for type and commit_ts
WRITE_BYTES: Final = 1 << 20  # so much is written at once, so that little is held
# The process of a drainer that was killed may still be in a sync.
LOCK_TRIES: Final = 20
LOCK_PAUSE_S: Final = 0.1


class Gone(Exception):
    """The drainer closed its end, or is dead."""


class Link:
    """The process's end of the socket pair."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._kept: deque[bytearray] = deque()
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)

    def next(self) -> bytearray:
        """The next message. Raises `Gone`."""
        return self._kept.popleft() if self._kept else self._receive()

    def pause(self, seconds: float) -> bytearray | None:
        """Ends early with a message if one comes. Raises `Gone`."""
        return self._receive() if self._poll.poll(seconds * 1000) else None

    def keep(self, data: bytearray) -> None:
        """For a later `next`: it came during a pause and has to wait."""
        self._kept.append(data)

    def _receive(self) -> bytearray:
        (size,) = protocol.LENGTH.unpack(self._exactly(protocol.LENGTH.size))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view, at = memoryview(data), 0
        while at < size:
            try:
                got = self._socket.recv_into(view[at:])
            except ConnectionError:
                got = 0
            if not got:
                raise Gone
            at += got
        return data

    def send(self, answer: RelayAnswer) -> None:
        try:
            self._socket.sendall(protocol.message(answer))
        except ConnectionError:
            raise Gone from None

    def close(self) -> None:
        self._socket.close()


class Sizes:
    """Sizes of records since the last answer, counted as a histogram counts them."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0

    def observe(self, size: int) -> None:
        self._counts[bisect_left(self._bounds, size)] += 1
        self._total += size

    def taken(self) -> Synced:
        found = Synced(tuple(self._counts), self._total)
        self._counts = [0] * len(self._counts)
        self._total = 0
        return found


class Scribe:
    """Does what messages ask for."""

    def __init__(self, link: Link, opening: Opening, directory: BinlogDirectory) -> None:
        self._link = link
        self._sizes = Sizes(opening.bounds)
        newest = directory.newest
        self._records = RelayRecords(
            newest.index, newest.size, last_timestamps(directory), opening.max_file_size, self._sizes.observe
        )
        self._directory = directory
        self._writer = RelayWriter(directory)
        self._versions: dict[int, TableVersion] = {}

    def run(self) -> None:
        """Until the drainer closes its end: raises `Gone`, or what made writing impossible."""
        while True:
            self._do(self._link.next())

    def _do(self, data: bytearray) -> None:
        sync, resolved_ts, entries = protocol.read_order(data)
        del data
        for entry in entries:
            self._take(entry)
            if self._records.waiting >= WRITE_BYTES:
                self._write()
        del entries
        self._write()
        if sync:
            self._patiently(self._writer.sync)
            self._link.send(self._sizes.taken())
        if resolved_ts:
            self._remove(resolved_ts)

    def _take(self, entry: Entry) -> None:
        if len(entry) == 3:
            commit_ts, last, tables = entry
            versions = self._versions
            events = tuple(
                [TableEvents(versions[number], kinds, rows, first) for number, kinds, rows, first in tables]
            )
            self._records.transaction(Transaction(0, commit_ts, events, 0, last))
        elif len(entry) == 2:
            number, pickled = entry
            self._versions[number] = pickle.loads(pickled)
        else:
            ddl, text = pickle.loads(entry[0])
            self._records.ddl(ddl, text)

    def _remove(self, resolved_ts: int) -> None:
        done = self._records.done(resolved_ts)
        if done:
            self._directory.note_purged(resolved_ts)
            self._writer.remove(done)

    def _write(self) -> None:
        groups = self._records.take()
        self._patiently(lambda: self._writer.write(groups), self._writer.write)

    def _patiently(self, step: Callable[[], None], again: Callable[[], None] | None = None) -> None:
        """A step that a full disk may hold up; `again` continues it."""
        backoff, said = Backoff(0.1, 2.0), ""
        while True:
            try:
                step()
                break
            except DiskFull as error:
                if str(error) != said:
                    said = str(error)
                    self._link.send(WaitingForSpace(said))
            step = again or step
            self._pause(backoff.next_s())
        if said:
            self._link.send(WaitingForSpace(""))

    def _pause(self, seconds: float) -> None:
        """Finished files free space: they are removed while the disk is full."""
        data = self._link.pause(seconds)
        if data is None:
            return
        _, resolved_ts, entries = protocol.read_order(data)
        if resolved_ts and not entries:
            self._remove(resolved_ts)
        else:
            self._link.keep(data)


def last_timestamps(directory: BinlogDirectory) -> dict[int, int]:
    """The largest commit_ts of each file; files without a record have none to wait for."""
    found = {}
    for index, file in directory.files.items():
        heads = [file.read(place.start, min(place.size, HEAD_BYTES)) for place in directory.places[index]]
        found[index] = max(map(commit_ts_of, heads), default=0)
    directory.places.clear()
    return found


def opened(link: Link, opening: Opening, clock: Clock) -> BinlogDirectory:
    """Raises what `BinlogDirectory` raises."""
    for _ in range(LOCK_TRIES):
        try:
            directory = BinlogDirectory(opening.path, clock)
            break
        except DirectoryLocked:
            link.pause(LOCK_PAUSE_S)
    else:
        directory = BinlogDirectory(opening.path, clock)
    if opening.cluster_id:
        directory.adopt_cluster(opening.cluster_id)
    if opening.after_ts and directory.purged_ts > opening.after_ts:
        # The downstream went back in time: between here and what is kept there is a gap.
        directory.begin_anew(opening.after_ts)
    return directory


def serve(end: socket.socket, clock: Clock) -> None:
    """Until the other end is closed, or an error that was sent to it."""
    link, directory = Link(end), None
    try:
        opening = protocol.read_message(link.next())
        directory = opened(link, opening, clock)
        scribe = Scribe(link, opening, directory)
        link.send(Opened())
        scribe.run()
    except Gone:
        pass
    except Exception as error:
        try:
            link.send(protocol.failure(error))
        except Gone:
            pass
    finally:
        link.close()
        if directory is not None:
            directory.close()


def main(descriptor: str, parent: str) -> NoReturn:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    die_with(int(parent))
    collect_rarely()
    serve(socket.socket(fileno=int(descriptor)), SystemClock())
    sys.exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])

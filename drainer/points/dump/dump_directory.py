"""Dump directory: how far an image has come that is being written, beside its files.

    .dump/lock              held by the process that writes; in an object store it names that process, and is
                            gone when it has ended in order
    .dump/state.json        the timestamp that the rows are read at
    .dump/TABLE             the first chunks of a table, a line each: made before their rows are read
    .dump/TABLE,NUMBER      those after them

Holds  a chunk is known before its file is there, so the one who goes on has the same chunks. When the image
       is whole, the directory is gone and the manifest is there
Tests  tests/drainer/points/dump/test_dump.py
"""

from __future__ import annotations

import os
import socket
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from drainer.mysql.chunks.chunk import Chunk
from drainer.places.place import CREATE, READ, WRITE, Place
from drainer.points.image.manifest import MANIFEST, is_image
from tidb_binlog import checked, filesystem
from tidb_binlog.errors import Conflict, Corruption, Rejected, Unavailable
from tidb_binlog.tso import Ts

PLACE: Final = ".dump"
NEEDS: Final = READ | WRITE | CREATE
_STATE: Final = "state.json"
_LOCK: Final = "lock"
_MODE: Final = 0o644
_ANEW: Final = "delete the directory and begin anew"


class DumpDirectory:
    """Raises `Rejected` where an image or anything else is, `Conflict` where another process writes one."""

    def __init__(self, directory: str) -> None:
        self._image = Place(directory).require("-dir", NEEDS)
        self._place = self._image.under(PLACE)
        shown = self._image.shown
        if is_image(directory):
            raise Rejected(f"{shown} has an image already", hint="name another directory")
        inside = self._image.directories()
        if PLACE not in inside and (inside or self._image.list(missing_ok=True)):
            raise Rejected(
                f"{shown} is not empty, and has no image that was begun", hint="name another directory"
            )
        self._place.make()
        self._lock = -1
        self._files: defaultdict[str, int] = defaultdict(int)
        if not self._locked():
            if self._lock >= 0:
                os.close(self._lock)
            raise Conflict(f"another process writes an image into {shown}", hint=self._hint)

    def _locked(self) -> bool:
        local = self._place.local
        if local is None:
            return self._place.create(_LOCK, f"{socket.gethostname()} {os.getpid()}".encode())
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._lock = os.open(os.path.join(local, _LOCK), flags, 0o666)
        except OSError as error:
            raise Unavailable(f"{local} cannot be written: {error.strerror}", hint="correct -dir") from None
        return filesystem.lock(self._lock)

    @property
    def _hint(self) -> str:
        if self._place.local is not None:
            return "wait for its end"
        return f"wait for its end; where it was killed, remove {self._place.path_of(_LOCK)}, and go on"

    def close(self) -> None:
        """Let another process write it."""
        if self._lock >= 0:
            os.close(self._lock)
        elif self._place.local is None:
            self._place.delete(_LOCK)

    # -- the timestamp ---------------------------------------------------------------------------

    @property
    def ts(self) -> Ts:
        """Of the rows that are there; 0 where none are. Raises `Corruption`."""
        text = self._place.content(_STATE)
        if text is None:
            return 0
        try:
            return int(checked.read_document(text)["ts"])
        except (ValueError, KeyError, TypeError) as error:
            raise Corruption(f"{self._place.path_of(_STATE)} cannot be read: {error}", hint=_ANEW) from None

    def begin(self, ts: Ts) -> None:
        """What is there of another timestamp goes, that timestamp first: nobody goes on with half of it."""
        if self.ts == ts:
            return
        self._place.delete(_STATE)
        for name in self._image.directories():
            if name != PLACE:
                self._image.under(name).clear()
        self._place.delete(*(entry.name for entry in self._place.list() if entry.name != _LOCK))
        self._place.put(_STATE, checked.document({"ts": ts}))

    def end(self) -> None:
        """The manifest is there."""
        assert self._image.has(MANIFEST)
        self._place.clear()

    # -- chunks ----------------------------------------------------------------------------------

    def chunks(self, table: str) -> list[Chunk]:
        """Those of a table that were cut. A line that is torn was never used. Raises `Corruption`."""
        names = [entry.name for entry in self._place.list() if entry.name.partition(",")[0] == table]
        chunks = []
        for name in names:
            whole, end, torn = (self._place.content(name) or b"").rpartition(b"\n")
            if torn and name != names[-1]:
                raise Corruption(f"{self._place.path_of(name)} has lost its end", hint=_ANEW)
            if torn:
                self._place.put(name, whole + end, _MODE)
            try:
                lines = whole.decode().splitlines()
                chunks += [Chunk.of_stored(checked.read_text(f"{line}\n")) for line in lines]
            except ValueError as error:
                raise Corruption(f"{self._place.path_of(name)}: {error}", hint=_ANEW) from None
        self._files[table] = len(names)
        return chunks

    def add(self, table: str, chunks: Iterable[Chunk]) -> None:
        """After `chunks` was asked for."""
        number = self._files[table]
        data = "".join(checked.text(chunk.stored()) for chunk in chunks).encode()
        self._place.put(f"{table},{number:06d}" if number else table, data, _MODE)
        self._files[table] = number + 1

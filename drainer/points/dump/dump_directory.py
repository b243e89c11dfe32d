"""Dump directory: how far an image has come that is being written, beside its files.

    .dump/lock              held by the process that writes
    .dump/state.json        the timestamp that the rows are read at
    .dump/TABLE             the chunks of a table, a line each: made before their rows are read

Holds  a chunk is known before its file is there, so the one who goes on has the same chunks. When the image
       is whole, the directory is gone and the manifest is there
Tests  tests/drainer/points/dump/test_dump.py
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from drainer.mysql.chunks.chunk import Chunk
from drainer.points.image.manifest import MANIFEST, is_image
from tidb_binlog import checked, filesystem
from tidb_binlog.errors import Conflict, Corruption, Rejected, Unavailable
from tidb_binlog.tso import Ts

PLACE: Final = ".dump"
_STATE: Final = "state.json"
_LOCK: Final = "lock"
_MODE: Final = 0o777
_ANEW: Final = "delete the directory and begin anew"


class DumpDirectory:
    """Raises `Rejected` where an image or anything else is, `Conflict` where another process writes one."""

    def __init__(self, directory: str) -> None:
        self.path = directory
        self._place = Path(directory) / PLACE
        self._writing = threading.Lock()
        if is_image(directory):
            raise Rejected(f"{directory} has an image already", hint="name another directory")
        try:
            if not self._place.exists() and os.path.isdir(directory) and os.listdir(directory):
                raise Rejected(
                    f"{directory} is not empty, and has no image that was begun",
                    hint="name another directory",
                )
            filesystem.make_directory(str(self._place), _MODE)
            self._lock = os.open(self._place / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise Unavailable(
                f"{directory} cannot be written: {error.strerror}", hint="correct -dir"
            ) from None
        if not filesystem.lock(self._lock):
            os.close(self._lock)
            raise Conflict(f"another process writes an image into {directory}", hint="wait for its end")

    def close(self) -> None:
        os.close(self._lock)

    # -- the timestamp ---------------------------------------------------------------------------

    @property
    def ts(self) -> Ts:
        """Of the rows that are there; 0 where none are. Raises `Corruption`."""
        try:
            return int(checked.read_document((self._place / _STATE).read_bytes())["ts"])
        except FileNotFoundError:
            return 0
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Corruption(f"{self._place / _STATE} cannot be read: {error}", hint=_ANEW) from None

    def begin(self, ts: Ts) -> None:
        """What is there of another timestamp goes."""
        stored_ts = self.ts
        if stored_ts == ts:
            return
        for path in Path(self.path).iterdir():
            if path.name != PLACE and path.is_dir():
                shutil.rmtree(path)
        for path in self._place.iterdir():
            if path.name != _LOCK:
                path.unlink()
        filesystem.replace_file(str(self._place / _STATE), checked.document({"ts": ts}))

    def end(self) -> None:
        """The manifest is there."""
        assert (Path(self.path) / MANIFEST).exists()
        shutil.rmtree(self._place)

    # -- chunks ----------------------------------------------------------------------------------

    def chunks(self, table: str) -> list[Chunk]:
        """Those of a table that were cut. A line that is torn was never used. Raises `Corruption`."""
        path = self._place / table
        if not path.exists():
            return []
        try:
            whole, _, torn = path.read_text("utf-8").rpartition("\n")
            if torn:
                path.write_text(whole + "\n" if whole else "", "utf-8")
            return [Chunk.of_stored(checked.read_text(f"{line}\n")) for line in whole.splitlines()]
        except ValueError as error:
            raise Corruption(f"{path}: {error}", hint=_ANEW) from None

    def add(self, table: str, chunks: Iterable[Chunk]) -> None:
        data = "".join(checked.text(chunk.stored()) for chunk in chunks).encode()
        path = str(self._place / table)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            filesystem.append(descriptor, [data])
            os.fsync(descriptor)
        except OSError as error:
            raise Unavailable(
                f"{path} cannot be written: {error.strerror}", hint="make room; the same command goes on"
            ) from None
        finally:
            os.close(descriptor)
        filesystem.sync_directory(str(self._place))

"""Small disk: a file system in memory of a few MiB, so that "disk full" is the real thing.

Owns    a mount; only root may make one, and `possible` says so before a run relies on it
Stops   `remove` takes it away, whatever is open on it
Tests   tests/rig/test_rig.py
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path
from typing import Final

FILLER: Final = "filler"
PIECE: Final = bytes(1 << 16)


def possible() -> bool:
    """Whether this user may mount."""
    return os.geteuid() == 0


class SmallDisk:
    """`directory` is where it is mounted."""

    def __init__(self, directory: Path, size_mib: int) -> None:
        self.directory = directory
        self._size_mib = size_mib

    def make(self) -> None:
        """Raises `OSError` when the mount is refused."""
        self.directory.mkdir(mode=0o700, parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={self._size_mib}m", "tmpfs", str(self.directory)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"cannot mount {self.directory}: {done.stderr.strip()}")

    def fill(self) -> None:
        """Leave no free space at all."""
        with contextlib.suppress(OSError), (self.directory / FILLER).open("ab", buffering=0) as filler:
            while True:
                filler.write(PIECE)

    def clear(self) -> None:
        (self.directory / FILLER).unlink(missing_ok=True)

    def remove(self) -> None:
        subprocess.run(["umount", "-l", str(self.directory)], capture_output=True, check=False)

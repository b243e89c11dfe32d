"""Durable file: small files that are there whole or as they were before, whatever happens in between.

The order is the point: bytes to the medium, then the name, then the directory that holds the name.
"""

from __future__ import annotations

import os
from contextlib import suppress


def replace_file(path: str, data: bytes, mode: int = 0o600) -> None:
    """Put `data` in the place of the file; durable when this returns. Raises `OSError`."""
    descriptor = _new_file(path + ".new", mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(path + ".new", path)
    sync_directory(os.path.dirname(path) or ".")


def _new_file(path: str, mode: int) -> int:
    """A file that nobody has open and no link leads to; what a killed process left is removed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, mode)
    except FileExistsError:
        os.unlink(path)
        return os.open(path, flags, mode)


def make_directory(path: str, mode: int) -> None:
    """Make a directory and what is missing above it; its name is on the medium when this returns, also where
    a process that was killed made it. Raises `OSError`."""
    parent = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(path):
        make_directory(parent, 0o777)
        os.mkdir(path, mode)
        sync_directory(parent)
        return
    with suppress(PermissionError):  # who may not look into the parent did not make this
        sync_directory(parent)


def sync_directory(path: str) -> None:
    """Bring the entries of a directory to the medium. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Durable file: small files that are there whole or as they were before, whatever happens in between.

The order is the point: bytes to the medium, then the name, then the directory that holds the name.
"""

from __future__ import annotations

import os


def replace_file(path: str, data: bytes, mode: int = 0o600) -> None:
    """Put `data` in the place of the file; durable when this returns. Raises `OSError`."""
    descriptor = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(path + ".new", path)
    sync_directory(os.path.dirname(path) or ".")


def sync_directory(path: str) -> None:
    """Bring the entries of a directory to the medium. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

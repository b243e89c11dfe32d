"""Claim store: values that are too large for a topic, in a directory or wherever pyarrow.fs leads.

In     a name, the bytes of a value, piece by piece
Out    the URI that the message has in their place
Holds  a value is whole and durable when `close` returns; a name that is written again has the same value

Tests  tests/drainer/sink/kafka/test_claim_store.py
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

from tidb_binlog.errors import ConfigError, DownstreamError
from tidb_binlog.filesystem import make_directory, sync_directory


class Claim(Protocol):
    """A value that is being written."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> str:
        """Its URI. Raises `DownstreamError`."""
        ...


class ClaimStore(Protocol):
    def open(self, name: str) -> Claim:
        """Raises `DownstreamError`."""
        ...


def open_store(where: str) -> ClaimStore:
    """`where`: a directory, or a URI of pyarrow.fs. Raises `ConfigError`."""
    if "://" not in where:
        return _Directory(where)
    try:
        from pyarrow import fs
    except ImportError:
        raise ConfigError(
            f"syncer.to.claim-check = {where!r} needs pyarrow", hint="pip install tidb-binlog[arrow]"
        ) from None
    try:
        filesystem, path = fs.FileSystem.from_uri(where)
    except (ValueError, OSError) as error:
        raise ConfigError(
            f"syncer.to.claim-check {where!r} cannot be used: {error}",
            hint="a directory, or s3://, gs://, hdfs://",
        ) from None
    return _Remote(filesystem, path, where)


class _Directory:
    def __init__(self, path: str) -> None:
        self._path = Path(path).absolute()
        try:
            if not self._path.is_dir():
                make_directory(str(self._path), 0o755)
        except OSError as error:
            raise ConfigError(
                f"syncer.to.claim-check {path} cannot be made: {error.strerror}", hint="choose a directory"
            ) from None

    def open(self, name: str) -> Claim:
        return _File(self._path / name)


class _File:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._new = path.with_name(path.name + ".new")
        try:
            self._file = open(self._new, "wb")  # noqa: SIM115 -- it is closed by `close`
        except OSError as error:
            raise _failed(str(path), error) from None

    def write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise _failed(str(self._path), error) from None

    def close(self) -> str:
        try:
            with self._file:
                self._file.flush()
                os.fsync(self._file.fileno())
            self._new.rename(self._path)
            sync_directory(str(self._path.parent))
        except OSError as error:
            raise _failed(str(self._path), error) from None
        return self._path.as_uri()


class _Remote:
    def __init__(self, filesystem: Any, path: str, uri: str) -> None:
        self._filesystem = filesystem
        self._path = path.rstrip("/")
        self._uri = uri.rstrip("/")

    def open(self, name: str) -> Claim:
        return _Object(self._filesystem, f"{self._path}/{name}", f"{self._uri}/{name}")


class _Object:
    """Object stores show a value when it is whole; what shows it earlier has no URI in any message yet."""

    def __init__(self, filesystem: Any, path: str, uri: str) -> None:
        self._uri = uri
        try:
            self._stream = filesystem.open_output_stream(path)
        except OSError as error:
            raise _failed(uri, error) from None

    def write(self, data: bytes) -> None:
        try:
            self._stream.write(data)
        except OSError as error:
            raise _failed(self._uri, error) from None

    def close(self) -> str:
        try:
            self._stream.close()
        except OSError as error:
            raise _failed(self._uri, error) from None
        return self._uri


def _failed(where: str, error: OSError) -> DownstreamError:
    return DownstreamError(
        f"value {where} cannot be stored: {error.strerror or error}",
        hint="make room or give rights at syncer.to.claim-check, and start again: no message was sent for it",
    )

"""Location: a directory of segments, local or on any file system that pyarrow reaches.

Drives  the operating system, pyarrow.fs
Owns    files that it opened, until they are closed
Holds   a credential is in no text that this makes: not in `repr`, not in errors. It travels to tasks in
        pickles only
Never   writes
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import os
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tidb_binlog.errors import ConfigError, Corruption, Unavailable
from tidb_binlog.filesystem import read_at

if TYPE_CHECKING:
    from pyarrow import fs

OPTION_PREFIX: Final = "fs."
EXTRA_HINT: Final = "pip install 'tidb-binlog[arrow]'"
COMPRESSED: Final = (".zst", ".gz")
_STREAM_CHUNK: Final = 1 << 20
_PACKED_CHUNK: Final = 128 << 10
"""Of a compressed file: what it becomes, often ten times as much, is in memory."""
_CLASSES: Final = {
    "s3": "S3FileSystem",
    "gs": "GcsFileSystem",
    "gcs": "GcsFileSystem",
    "hdfs": "HadoopFileSystem",
    "viewfs": "HadoopFileSystem",
    "abfs": "AzureFileSystem",
    "abfss": "AzureFileSystem",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a directory. `mtime_ns` 0 where the file system does not say."""

    name: str
    size: int
    mtime_ns: int


class File(contextlib.AbstractContextManager["File"]):
    """An open file. `size` is None where only reading tells (compressed ones)."""

    size: int | None

    def read(self, offset: int, size: int) -> bytes:
        """Fewer bytes only at the end."""
        raise NotImplementedError

    def close(self) -> None:
        """Close it; the end of a `with` does it, too."""
        raise NotImplementedError

    def __exit__(self, *_: object) -> None:
        self.close()


class _LocalFile(File):
    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._descriptor).st_size

    def read(self, offset: int, size: int) -> bytes:
        assert self.size is not None
        size = min(size, self.size - offset)  # it may grow meanwhile; and a damaged length is no size
        return read_at(self._descriptor, offset, size) if size > 0 else b""

    def close(self) -> None:
        os.close(self._descriptor)


class _RemoteFile(File):
    def __init__(self, filesystem: fs.FileSystem, path: str) -> None:
        self._file = filesystem.open_input_file(path)
        self.size = int(self._file.size())

    def read(self, offset: int, size: int) -> bytes:
        assert self.size is not None
        size = min(size, self.size - offset)
        return bytes(self._file.read_at(size, offset)) if size > 0 else b""

    def close(self) -> None:
        self._file.close()


class _Raw(io.RawIOBase):
    """A file as a stream from its beginning, for what unpacks it."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(self._at, len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


class _Frames:
    """What zstd frames hold. zstandard's own stream just ends where a frame is cut off."""

    def __init__(self, packed: io.BufferedReader[_Raw]) -> None:
        self._packed = packed
        self._frame: Any = None
        self._rest = self._ready = b""

    def read(self, size: int) -> bytes:
        """Raises `EOFError` for a frame without an end, and zstandard's own errors."""
        import zstandard

        while not self._ready:
            data, self._rest = self._rest or self._packed.read(_PACKED_CHUNK), b""
            if not data:
                if self._frame is not None:
                    raise EOFError("it ends in the middle of a frame")
                break
            if self._frame is None:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._ready = self._frame.decompress(data)
            if self._frame.eof:
                self._frame, self._rest = None, self._frame.unused_data
        data, self._ready = self._ready[:size], self._ready[size:]
        return data


class _Unpacked(File):
    """A compressed file, read from its beginning to its end; going back begins anew."""

    def __init__(self, name: str, packed: File) -> None:
        self._name = name
        self._packed = packed
        self.size = None
        self._begin()

    def _begin(self) -> None:
        raw = io.BufferedReader(_Raw(self._packed), _STREAM_CHUNK)
        if self._name.endswith(".gz"):
            self._stream: Any = gzip.GzipFile(fileobj=raw)
        else:
            self._stream = _Frames(raw)
        self._base = 0
        self._kept = b""

    def read(self, offset: int, size: int) -> bytes:
        if offset < self._base:
            self._begin()
        try:
            if not self._packed.size:
                raise EOFError("it is empty, which no compressed file is")
            while self._base + len(self._kept) < offset:
                self._base += len(self._kept)
                self._kept = self._stream.read(min(_STREAM_CHUNK, offset - self._base))
                if not self._kept:
                    return b""
            pieces = [self._kept[offset - self._base :]]
            have = len(pieces[0])
            while have < size:
                data = self._stream.read(min(_STREAM_CHUNK, size - have))
                if not data:
                    break
                pieces.append(data)
                have += len(data)
        except (OSError, EOFError, ValueError) as error:
            raise self._broken(error) from None
        except Exception as error:  # of zstandard, which is imported only where it is needed
            if type(error).__module__.partition(".")[0] not in ("zstandard", "zlib"):
                raise
            raise self._broken(error) from None
        self._base, self._kept = offset, b"".join(pieces)
        return self._kept[:size]

    def _broken(self, error: Exception) -> Corruption:
        return Corruption(f"{self._name} cannot be unpacked: {error}", hint="restore the file from a backup")

    def close(self) -> None:
        self._packed.close()


@dataclass(frozen=True, slots=True)
class Location:
    """A directory. `options` are arguments of the file system, which may be credentials."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        return f"Location({self.shown!r})"

    @classmethod
    def of(cls, uri: str, options: Mapping[str, str]) -> Location:
        """`options`: of a reader or a command, of which those with the prefix `fs.` count."""
        prefix = OPTION_PREFIX
        arguments = {key[len(prefix) :]: value for key, value in options.items() if key.startswith(prefix)}
        return cls(uri, arguments)

    @property
    def shown(self) -> str:
        """How it is called in messages."""
        local = self.local
        if local is not None:
            return local
        parts = urllib.parse.urlsplit(self.uri)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def local(self) -> str | None:
        """Its path, if it is one of this machine."""
        if self.uri.startswith("file:"):
            return urllib.parse.unquote(urllib.parse.urlsplit(self.uri).path) or "/"
        return None if "://" in self.uri else self.uri

    def path_of(self, name: str) -> str:
        """How a file of it is called in messages."""
        return f"{self.shown.rstrip('/')}/{name}"

    def under(self, name: str) -> Location:
        """A directory in it."""
        head, mark, query = self.uri.partition("?")
        return Location(f"{head.rstrip('/')}/{name}{mark}{query}", self.options)

    def filesystem(self) -> tuple[fs.FileSystem, str]:
        """pyarrow's file system and the path in it. Raises `ConfigError`."""
        return _filesystem(self.uri, tuple(sorted(self.options.items())))

    def list(self) -> list[Entry]:
        """Its files, by name. Raises `ConfigError` for a directory that is not there."""
        local = self.local
        if local is not None:
            try:
                with os.scandir(local) as entries:
                    files = [entry for entry in entries if entry.is_file()]
            except OSError as error:
                raise self._missing(error.strerror or "") from None
            # Only now: a file that is followed by another one in the list has its last size.
            return sorted(_sized(files), key=lambda entry: entry.name)
        fs = _pyarrow()

        try:
            with self._reached():
                filesystem, path = self.filesystem()
                infos = filesystem.get_file_info(fs.FileSelector(path))
        except FileNotFoundError:
            raise self._missing("it does not exist") from None
        return sorted(
            (
                Entry(info.base_name, int(info.size), int(info.mtime_ns or 0))
                for info in infos
                if info.type == fs.FileType.File
            ),
            key=lambda entry: entry.name,
        )

    def has(self, name: str) -> bool:
        """Whether there is a file or directory of that name."""
        local = self.local
        if local is not None:
            return os.path.exists(os.path.join(local, name))
        fs = _pyarrow()

        with self._reached():
            filesystem, path = self.filesystem()
            (info,) = filesystem.get_file_info([f"{path.rstrip('/')}/{name}"])
        return bool(info.type != fs.FileType.NotFound)

    def open(self, name: str) -> File:
        """A file, unpacked if its name says that it is compressed. `FileNotFoundError` comes through."""
        packed = self._open(name)
        return _Unpacked(name, packed) if name.endswith(COMPRESSED) else packed

    def _open(self, name: str) -> File:
        local = self.local
        if local is not None:
            return _LocalFile(os.path.join(local, name))
        with self._reached():
            filesystem, path = self.filesystem()
            return _RemoteFile(filesystem, f"{path.rstrip('/')}/{name}")

    def read(self, name: str, offset: int, size: int) -> bytes:
        """A stretch of a file; fewer bytes only at its end."""
        with self.open(name) as file:
            return file.read(offset, size)

    def content(self, name: str) -> bytes | None:
        """A small file as a whole; None if it is not there."""
        try:
            with self.open(name) as file:
                return file.read(0, file.size if file.size is not None else 1 << 40)
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def _reached(self) -> Any:
        """Errors of the file system, without what may be a secret in their text."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise Unavailable(
                f"{self.shown} cannot be read: {type(error).__name__}",
                hint="check the address, the network and the credentials (options with the prefix fs.)",
            ) from None

    def _missing(self, why: str) -> ConfigError:
        return ConfigError(
            f"there is no directory {self.shown} to read from: {why}", hint="check the path of the archive"
        )


def _sized(files: Iterable[os.DirEntry[str]]) -> Iterator[Entry]:
    for entry in files:
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            stat = entry.stat()
            yield Entry(entry.name, stat.st_size, stat.st_mtime_ns)


def _pyarrow() -> Any:
    """`pyarrow.fs`, which local directories do not need. Raises `ConfigError`."""
    try:
        from pyarrow import fs
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed", hint=EXTRA_HINT) from None
    return fs


@functools.lru_cache(maxsize=8)
def _filesystem(uri: str, options: tuple[tuple[str, str], ...]) -> tuple[fs.FileSystem, str]:
    arrow = _pyarrow()
    parts = urllib.parse.urlsplit(uri)
    place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    try:
        if not options:
            opened: tuple[fs.FileSystem, str] = arrow.FileSystem.from_uri(
                uri if parts.scheme else os.path.abspath(uri)
            )
            return opened
        if parts.scheme in ("", "file"):
            raise ValueError("a local directory takes none")
        kind = getattr(arrow, _CLASSES[parts.scheme])
        arguments: dict[str, Any] = {name: _argument(text) for name, text in options}
        if kind.__name__ == "HadoopFileSystem":
            return kind(parts.hostname or "default", parts.port or 0, **arguments), parts.path
        return kind(**arguments), f"{parts.netloc.rpartition('@')[2]}{parts.path}"
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        what = "not supported" if isinstance(error, KeyError) else type(error).__name__
        names = ", ".join(f"fs.{name}" for name, _ in options) or "none"
        raise ConfigError(
            f"{place} cannot be opened with the options given ({names}): {what}",
            hint="options with the prefix fs. are arguments of the file system's class in pyarrow.fs",
        ) from None


def _argument(text: str) -> str | int | bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text

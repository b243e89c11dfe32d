"""Place: a directory that a user names: a path, `file://`, or a URI of a file system or an object store.

    scheme              reads, lists   writes whole files   creates   appends
    none, file          yes            yes                  yes       yes
    s3, gs, gcs         yes            yes                  yes       no
    hdfs, viewfs        yes            yes                  no        no
    abfs, abfss         yes            no                   no        no

Holds   a file that is written is there whole or as it was before; when a call returns it is durable. A
        credential is in no text that this makes: not in `repr`, not in errors. It travels to tasks in
        pickles only
Tests   tests/drainer/places/test_place.py, tests/drainer/places/test_object_store.py
"""

from __future__ import annotations

import contextlib
import enum
import importlib.util
import os
import pathlib
import re
import shutil
import tempfile
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Final

from drainer.places import file_system, object_store
from drainer.places.object_store import Version
from drainer.places.open_file import COMPRESSED, File, LocalFile, RemoteFile, Unpacked
from tidb_binlog.errors import ConfigError, Unavailable
from tidb_binlog.filesystem import make_directory, replace_file, sync_directory
from tidb_binlog.late_dataclass import dataclass, field

if TYPE_CHECKING:
    from pyarrow import fs

OPTION_PREFIX: Final = "fs."
UNFINISHED: Final = ".unfinished"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(file|s3a?|gcs|gs|hdfs|viewfs|abfss?):")
_CHUNK: Final = 8 << 20
_DIRECTORY_MODE: Final = 0o777


class Ability(enum.Flag):
    """What a place can be used for."""

    READ = enum.auto()
    WRITE = enum.auto()
    """Files that are whole when they appear, and are replaced whole."""
    CREATE = enum.auto()
    """A file only where none is of that name, whoever else tries it."""
    APPEND = enum.auto()


READ, WRITE, CREATE, APPEND = Ability.READ, Ability.WRITE, Ability.CREATE, Ability.APPEND
_ABILITIES: Final[Mapping[str, Ability]] = {
    "file": READ | WRITE | CREATE | APPEND,
    **dict.fromkeys(file_system.SCHEMES, READ),
    **dict.fromkeys(("hdfs", "viewfs"), READ | WRITE),
    **dict.fromkeys(object_store.STORES, READ | WRITE | CREATE),
}
_VERBS: Final = {READ: "read", WRITE: "written to", CREATE: "owned by one writer", APPEND: "appended to"}


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a directory. `mtime_ns` 0 where the file system does not say."""

    name: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Place:
    """A directory. `options` are arguments of the file system, which may be credentials."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        return f"Place({self.shown!r})"

    @classmethod
    def of(cls, uri: str, options: Mapping[str, str]) -> Place:
        """`options`: of a reader or a command, of which those with the prefix `fs.` count."""
        prefix = OPTION_PREFIX
        arguments = {key[len(prefix) :]: value for key, value in options.items() if key.startswith(prefix)}
        return cls(uri, arguments)

    # -- what it is ------------------------------------------------------------------------------

    @property
    def scheme(self) -> str:
        """`file` for a path."""
        match = _SCHEME.match(self.uri)
        return (match[1] or match[2]).lower() if match else "file"

    @property
    def shown(self) -> str:
        """How it is called in messages."""
        local = self.local
        return file_system.shown(self.uri) if local is None else local

    @property
    def local(self) -> str | None:
        """Its path, if it is one of this machine."""
        if self.scheme != "file":
            return None
        if not self.uri.startswith("file:"):
            return self.uri
        return urllib.parse.unquote(urllib.parse.urlsplit(self.uri).path) or "/"

    def require(self, name: str, needs: Ability) -> Place:
        """Itself, if it can do what it is needed for. `name`: of the option or key that names it. It asks
        nobody, and writes nothing. Raises `ConfigError`."""
        where, scheme = f"{name} {self.shown}", self.scheme
        match, parts = _SCHEME.match(self.uri), urllib.parse.urlsplit(self.uri)
        if scheme not in _ABILITIES:
            raise ConfigError(
                f"{where}: {scheme} is no file system that is known here",
                hint="give a path, or a URI with file://, s3://, gs:// or hdfs://",
            )
        if match and not match[1] and scheme != "file":
            raise ConfigError(f"{where} is no URI", hint=f"write {scheme}://BUCKET/PATH")
        if scheme == "file":
            if match and parts.netloc not in ("", "localhost"):
                raise ConfigError(f"{where} names another host", hint="write file:///PATH")
            return self
        lacks = next((each for each in needs if each not in _ABILITIES[scheme]), None)
        if lacks is not None:
            raise ConfigError(f"{where}: {scheme}:// cannot be {_VERBS[lacks]}", hint=_instead(lacks))
        if not parts.netloc and scheme in object_store.STORES:
            raise ConfigError(f"{where} names no bucket", hint=f"write {scheme}://BUCKET/PATH")
        if needs & WRITE and "@" in parts.netloc:
            raise ConfigError(
                f"{where} has credentials in it, which every user of this host could read",
                hint="put them into the environment (AWS_ACCESS_KEY_ID, ...), a file or the instance's role",
            )
        self._require_packages(where, needs)
        return self

    def _require_packages(self, where: str, needs: Ability) -> None:
        packages = {"pyarrow": file_system.EXTRA_HINT}
        if needs & (WRITE | CREATE) and self.scheme in object_store.STORES:
            packages["obstore"] = object_store.EXTRA_HINT
        for package, hint in packages.items():
            if importlib.util.find_spec(package) is None:
                raise ConfigError(f"{where}: {package} is not installed", hint=hint)

    def path_of(self, name: str) -> str:
        """How a file of it is called in messages."""
        return f"{self.shown.rstrip('/')}/{name}"

    def uri_of(self, name: str) -> str:
        """What leads to a file of it, for programs that know no more of the place than that."""
        local = self.local
        if local is None:
            return f"{self.uri.partition('?')[0].rstrip('/')}/{name}"
        return pathlib.Path(local, name).absolute().as_uri()

    def under(self, name: str) -> Place:
        """A directory in it."""
        if not _SCHEME.match(self.uri):
            return Place(f"{self.uri.rstrip('/')}/{name}", self.options)
        head, mark, query = self.uri.partition("?")
        return Place(f"{head.rstrip('/')}/{urllib.parse.quote(name)}{mark}{query}", self.options)

    def filesystem(self) -> tuple[fs.FileSystem, str]:
        """pyarrow's file system and the path in it. Raises `ConfigError`."""
        return file_system.file_system(self.uri, tuple(sorted(self.options.items())))

    # -- reading ---------------------------------------------------------------------------------

    def list(self, *, missing_ok: bool = False) -> list[Entry]:
        """Its files, by name. Raises `ConfigError` for a directory that is not there, which with `missing_ok`
        has none."""
        local = self.local
        try:
            entries = _scanned(local) if local is not None else self._listed()
            return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            if missing_ok and isinstance(error, FileNotFoundError | NotADirectoryError):
                return []
            why = error.strerror if local is not None else "it does not exist"
            raise ConfigError(
                f"there is no directory {self.shown} to read from: {why}",
                hint="check the path of the archive",
            ) from None

    def _listed(self) -> Iterator[Entry]:
        files, _ = self._infos()
        for info in files:
            yield Entry(info.base_name, int(info.size), int(info.mtime_ns or 0))

    def directories(self) -> Sequence[str]:
        """The names of those in it; none where it is not there itself."""
        local = self.local
        if local is None:
            return [info.base_name for info in self._infos(missing_ok=True)[1]]
        if not os.path.isdir(local):
            return []
        with self._reached("read"), os.scandir(local) as entries:
            return [entry.name for entry in entries if entry.is_dir()]

    def _infos(self, *, missing_ok: bool = False, below: bool = False) -> tuple[Sequence[Any], Sequence[Any]]:
        """What pyarrow says of the files in it, and of the directories."""
        arrow = file_system.pyarrow_fs()
        with self._reached("read"):
            filesystem, path = self.filesystem()
            infos = filesystem.get_file_info(arrow.FileSelector(path, missing_ok, below))
        kinds = arrow.FileType.File, arrow.FileType.Directory
        files, directories = ([info for info in infos if info.type == kind] for kind in kinds)
        return files, directories

    def has(self, name: str) -> bool:
        """Whether there is a file or directory of that name."""
        local = self.local
        if local is not None:
            return os.path.exists(os.path.join(local, name))
        arrow = file_system.pyarrow_fs()
        with self._reached("read"):
            filesystem, path = self.filesystem()
            (info,) = filesystem.get_file_info([f"{path.rstrip('/')}/{name}"])
        return bool(info.type != arrow.FileType.NotFound)

    def open(self, name: str) -> File:
        """A file, unpacked if its name says that it is compressed. `FileNotFoundError` comes through."""
        packed = self.open_packed(name)
        return Unpacked(name, packed) if name.endswith(COMPRESSED) else packed

    def open_packed(self, name: str) -> File:
        """A file as it is stored. `FileNotFoundError` comes through."""
        local = self.local
        if local is not None:
            return LocalFile(os.path.join(local, name))
        with self._reached("read"):
            filesystem, path = self.filesystem()
            return RemoteFile(filesystem, f"{path.rstrip('/')}/{name}")

    def native(self, name: str) -> Any:
        """A file as pyarrow reads it. Raises `OSError`, for one of another machine `Unavailable`."""
        local = self.local
        if local is None:
            with self._reached("read"):
                filesystem, path = self.filesystem()
                return filesystem.open_input_file(f"{path.rstrip('/')}/{name}")
        from pyarrow import OSFile

        return OSFile(os.path.join(local, name))

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

    # -- writing ---------------------------------------------------------------------------------
    # Raises `Unavailable` where it cannot be done now, `ConfigError` where never.

    def make(self) -> None:
        """Make the directory, where there is such a thing."""
        local = self.local
        if local is not None:
            with self._reached("written"):
                make_directory(local, _DIRECTORY_MODE)

    def put(self, name: str, data: bytes, mode: int = 0o600) -> None:
        """Write a small file, in the place of one that is there."""
        with self._reached("written", name):
            local = self.local
            if local is not None:
                path = os.path.join(local, name)
                make_directory(os.path.dirname(path), _DIRECTORY_MODE)
                replace_file(path, data, mode)
            else:
                self._store(name, [data])

    def create(self, name: str, data: bytes, mode: int = 0o600) -> bool:
        """Write a small file unless one is there; whether it was written."""
        with self._reached("written", name):
            local = self.local
            if local is None:
                return object_store.create(self.uri, self.options, name, data)
            path = os.path.join(local, name)
            parent = os.path.dirname(path)
            make_directory(parent, _DIRECTORY_MODE)
            with tempfile.NamedTemporaryFile(dir=parent, prefix=".new-") as file:
                file.write(data)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
                try:
                    os.link(file.name, path)
                except FileExistsError:
                    return False
            sync_directory(parent)
            return True

    def exchange(self, name: str, data: bytes, version: Version) -> Version | None:
        """Write a file in the place of that version of it, {} for none; None if another one is there. In
        object stores only."""
        with self._reached("written", name):
            return object_store.exchange(self.uri, self.options, name, data, version)

    def version_of(self, name: str) -> Version:
        """Of a file, {} where there is none. In object stores only."""
        with self._reached("read", name):
            return object_store.version_of(self.uri, self.options, name)

    @contextlib.contextmanager
    def stream(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file to be written, which has its name when this ends well, and is not there otherwise. What
        goes to another machine is on a disk of this one until then."""
        local = self.local
        if local is None:
            with tempfile.TemporaryFile() as spool:
                yield spool
                size = spool.seek(0, os.SEEK_END)
                spool.seek(0)
                with self._reached("written", name):
                    self._store(name, _pieces(spool, size))
            return
        path = os.path.join(local, name)
        with self._reached("written", name):
            file = open(path + UNFINISHED, "wb")  # noqa: SIM115 -- it is closed below
        try:
            with file:
                yield file
                with self._reached("written", name):
                    file.flush()
                    os.fsync(file.fileno())
            with self._reached("written", name):
                os.rename(path + UNFINISHED, path)
                sync_directory(os.path.dirname(path) or ".")
        except BaseException:
            _unlink(path + UNFINISHED)
            raise

    def delete(self, *names: str) -> None:
        """Remove files; those that are not there are passed over."""
        local = self.local
        for name in names if local is not None else ():
            with self._reached("removed", name):
                _unlink(os.path.join(local or "", name))
        if local is None and names:
            with self._reached("changed"):
                if self.scheme in object_store.STORES:
                    object_store.delete(self.uri, self.options, names)
                    return
                filesystem, path = self.filesystem()
                for name in names:
                    with contextlib.suppress(FileNotFoundError):
                        filesystem.delete_file(f"{path.rstrip('/')}/{name}")

    def clear(self) -> None:
        """Remove all that is in it and below it."""
        local = self.local
        with self._reached("removed"):
            if local is not None:
                if os.path.isdir(local):
                    shutil.rmtree(local)
                return
            root = self.filesystem()[1].rstrip("/") + "/"
        files, _ = self._infos(missing_ok=True, below=True)
        self.delete(*(info.path.removeprefix(root) for info in files))

    def _store(self, name: str, pieces: Iterable[bytes]) -> None:
        """Write a file of another machine whole."""
        if self.scheme in object_store.STORES:
            object_store.put(self.uri, self.options, name, pieces)
            return
        filesystem, path = self.filesystem()
        path = f"{path.rstrip('/')}/{name}"
        filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        with filesystem.open_output_stream(path + UNFINISHED) as file:
            for piece in pieces:
                file.write(piece)
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_file(path)  # a file system of this kind renames to no name that is taken
        filesystem.move(path + UNFINISHED, path)

    @contextlib.contextmanager
    def _reached(self, verb: str, name: str = "") -> Any:
        """Errors of the file system, without what may be a secret in their text."""
        kinds: tuple[type[Exception], ...] = (OSError,)
        if self.scheme in object_store.STORES and importlib.util.find_spec("obstore") is not None:
            kinds = object_store.errors()
        try:
            yield
        except kinds as error:
            if verb == "read" and isinstance(error, FileNotFoundError):
                raise
            what = self.path_of(name) if name else self.shown
            raise Unavailable(
                f"{what} cannot be {verb}: {file_system.reason(error)}", hint=self._hint
            ) from None

    @property
    def _hint(self) -> str:
        if self.local is not None:
            return "make room, or choose a directory that may be written; the same command goes on"
        return "check the bucket, the network and the credentials (environment, a file, or options fs.*)"


def check_readable(*given: tuple[str, str]) -> None:
    """That each URI or path can be read from, if it is given. Raises `ConfigError`."""
    for name, uri in given:
        if uri:
            Place(uri).require(name, READ)


def _instead(lacks: Ability) -> str:
    return "name a local directory" if lacks & APPEND else "name a local directory, s3:// or gs://"


def _pieces(file: Any, size: int) -> Iterator[bytes]:
    while size and (data := file.read(min(size, _CHUNK))):
        size -= len(data)
        yield data


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _scanned(path: str) -> Iterator[Entry]:
    with os.scandir(path) as entries:
        files = [entry for entry in entries if entry.is_file()]
    for entry in files:  # only now: a file that is followed by another one in the list has its last size
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            stat = entry.stat()
            yield Entry(entry.name, stat.st_size, stat.st_mtime_ns)

"""Remote files: an archive in an object store, whose segments are written here, and uploaded.

    <archive>/.owner         the Drainer that writes: a token of its life, its node id, its cluster
    <archive>/binlog-INDEX   a segment: without the time that names have elsewhere, so that what two lives
                             make of one index is one object

Order   a segment is synced here; then its definitions, its bytes up to the last whole record, its index and
        the mark are uploaded, in this order; then the checkpoint may move. What is closed and uploaded is not
        kept here
Holds   an object is replaced whole, and only by the life that owns the archive: before each upload the token
        is compared, and an object takes only the place of the version that this life knows. At the start what
        is here is forgotten: the last segments are downloaded, and the archive goes on from them
Never   takes an archive from a Drainer with another node id

Tests   tests/drainer/sink/file/test_remote_files.py
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import sys
import threading
import uuid
from collections.abc import Callable
from typing import Any, Final

from drainer.formats import binlog_file, segment_index
from drainer.formats.binlog_file import SYNCED, SYNCED_SIZE, Synced
from drainer.formats.segment_index import SegmentIndex
from drainer.places.object_store import Version
from drainer.places.place import Place
from drainer.sink.file import table_definitions
from drainer.sink.file.archive import MAX_FILE_SIZE, Archive, ArchiveFiles
from tidb_binlog import checked, filesystem
from tidb_binlog.clock import Clock
from tidb_binlog.errors import Conflict, Corruption, DirectoryLocked, ForeignDirectory, Unavailable
from tidb_binlog.foreign_document import UNREADABLE
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("drainer.remote_archive")

OWNER: Final = ".owner"
_LOCK: Final = "owner.lock"
_TIME: Final = re.compile(r"(?<=\d{16})-\d{14}")
_OTHER: Final = -1


@dataclass(frozen=True, slots=True)
class SegmentState:
    """A segment as it is here: bytes of whole records, of definitions, and its index."""

    name: str
    size: int
    tables: int
    index: bytes

    @property
    def is_closed(self) -> bool:
        index = SegmentIndex.from_json(self.index) if self.index else None
        return index is not None and index.closed


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is on this machine's medium. `mark`: the file `.synced`."""

    segments: tuple[SegmentState, ...]
    mark: bytes


class RemoteFiles(ArchiveFiles):
    """As `ArchiveFiles`; `snapshot` on its thread, `upload` on any. Raises `Unavailable`, too."""

    def __init__(
        self, place: Place, local: str, clock: Clock, cluster_id: int, stored_ts: Ts, node_id: str
    ) -> None:
        """`local`: a directory for this alone. Raises `Conflict` where another Drainer owns the archive."""
        self._place = place
        self._cluster_id = cluster_id
        self._node_id, self._token = node_id, uuid.uuid4().hex
        self._uploading = threading.Lock()
        self._uploaded: dict[str, SegmentState] = {}
        self._versions: dict[str, Version] = {}
        self._mark = b""
        self._gone = False
        self._local_lock = _locked(local)
        try:
            self._own()
            self._download(local)
            super().__init__(local, clock, cluster_id, stored_ts)
        except BaseException:
            os.close(self._local_lock)
            raise

    # -- whose it is -----------------------------------------------------------------------------

    def _own(self) -> None:
        document = {"token": self._token, "node_id": self._node_id, "cluster_id": self._cluster_id}
        data = checked.document({**document, "host": socket.gethostname()})
        if self._place.create(OWNER, data):
            return
        owner = self._owner()
        self._check_cluster(owner["cluster_id"])
        if owner["node_id"] != self._node_id:
            raise self._foreign(owner)
        self._place.put(OWNER, data)
        logger.info("archive taken over from an earlier life", host=owner["host"])

    def _check_cluster(self, owner: int) -> None:
        if owner not in (0, self._cluster_id):
            raise ForeignDirectory(
                f"{self._place.shown} has binlogs of cluster {owner}, but the upstream is cluster"
                f" {self._cluster_id}",
                hint="give each cluster an archive of its own",
            )

    def _owner(self) -> dict[str, Any]:
        text = self._place.content(OWNER)
        try:
            document = checked.read_document(text or b"{}")
            return {key: document[key] for key in ("token", "node_id", "cluster_id", "host")}
        except UNREADABLE as error:
            raise Corruption(
                f"{self._place.path_of(OWNER)} does not say whose the archive is: {error!r}",
                hint="stop whatever writes there, remove that file, and start again",
            ) from None

    def _foreign(self, owner: dict[str, Any]) -> Conflict:
        return Conflict(
            f"{self._place.shown} is written by {owner['node_id']} on {owner['host']}",
            hint="give each Drainer an archive of its own; if that one is gone for good, remove "
            + self._place.path_of(OWNER),
        )

    def _check_owner(self) -> None:
        owner = self._owner()
        if owner["token"] != self._token:
            raise self._foreign(owner)

    # -- what is there ---------------------------------------------------------------------------

    def _download(self, local: str) -> None:
        """The last segment, and those before it up to one that has records."""
        for entry in os.scandir(local):
            if entry.is_dir():
                shutil.rmtree(entry.path)
            elif entry.name != _LOCK:
                os.unlink(entry.path)
        sizes = {entry.name: entry.size for entry in self._place.list(missing_ok=True)}
        segments = binlog_file.in_order(self._place.shown, list(sizes), compressed=True)
        for _, name in reversed(segments):
            self._fetch(local, name)
            index = self._fetch(local, _index_name(name))
            tables = self._fetch(local, _tables_name(name))
            described = SegmentIndex.from_json(index) if index else None
            self._check_cluster(described.cluster_id if described else 0)
            # Definitions are put in order at the start: no length says that they are there as they are here.
            self._uploaded[name] = SegmentState(name, sizes[name], _OTHER if tables else 0, index)
            if sizes[name]:
                break
        if segments:
            index_number, name = segments[-1]
            mark = Synced(index_number, sizes[name]).to_bytes()
            filesystem.replace_file(os.path.join(local, SYNCED), mark)

    def _fetch(self, local: str, name: str) -> bytes:
        """A file as it is there, b"" if it is not."""
        self._versions[name] = self._place.version_of(name)
        try:
            with self._place.open_packed(name) as file:
                data = file.read(0, file.size or 0)
        except FileNotFoundError:
            return b""
        path = os.path.join(local, name)
        filesystem.make_directory(os.path.dirname(path), 0o700)
        filesystem.replace_file(path, data)
        return data

    # -- uploading -------------------------------------------------------------------------------

    @property
    def backlog(self) -> int:
        """Segments that are closed, and not yet uploaded."""
        return len(self._segments.in_order()) - 1

    def snapshot(self) -> Snapshot:
        """Blocks; on the thread that writes."""
        path = self._directory.path
        with open(os.path.join(path, SYNCED), "rb") as file:
            mark = file.read(SYNCED_SIZE)
        synced = Synced.from_bytes(mark)
        segments = []
        for index, name in self._segments.in_order():
            size = os.stat(os.path.join(path, name)).st_size
            if index == self.newest:
                size = synced.offset if synced is not None and synced.index == index else 0
            segments.append(
                SegmentState(name, size, len(_read(path, _tables_name(name))), _read(path, _index_name(name)))
            )
        return Snapshot(tuple(segments), mark)

    def upload(self, snapshot: Snapshot) -> None:
        """Bring to the place what it lacks; durable when this returns. Blocks, beside what is written."""
        with self._uploading:
            path = self._directory.path
            for segment in snapshot.segments:
                if self._gone:
                    raise Unavailable(
                        f"{self._place.shown}: the Drainer stops", hint="it goes on when it starts"
                    )
                if not os.path.exists(os.path.join(path, segment.name)):
                    continue  # by an upload before
                self._upload_segment(path, segment)
                if segment.is_closed and segment != snapshot.segments[-1]:
                    for name in (segment.name, _index_name(segment.name), _tables_name(segment.name)):
                        with contextlib.suppress(FileNotFoundError):
                            os.unlink(os.path.join(path, name))
                        self._versions.pop(name, None)
                    self._uploaded.pop(segment.name, None)
            if snapshot.mark != self._mark:
                self._place.put(SYNCED, snapshot.mark)
                self._mark = snapshot.mark

    def _upload_segment(self, path: str, segment: SegmentState) -> None:
        name, before = segment.name, self._uploaded.get(segment.name)
        if before == segment:
            return
        self._check_owner()
        if before is not None and segment.size < before.size:
            # A DDL was taken back, that comes again: no reader is to miss it by what is beside the segment.
            self._mark = Synced(0, 0).to_bytes()
            self._place.put(SYNCED, self._mark)
            self._replace(_index_name(name), segment.index)
        if before is None or before.tables != segment.tables:
            self._replace(_tables_name(name), _read(path, _tables_name(name), segment.tables))
        if before is None or before.size != segment.size:
            self._replace(name, _read(path, name, segment.size))
        if before is None or before.index != segment.index:
            self._replace(_index_name(name), segment.index)
        self._uploaded[name] = segment

    def _replace(self, name: str, data: bytes) -> None:
        object_name = _object_name(name)
        version = self._place.exchange(object_name, data, self._versions.get(name, {}))
        if version is None:
            # Another life's, or ours, whose answer was lost.
            self._check_owner()
            self._place.put(object_name, data)
            version = self._place.version_of(object_name)
        self._versions[name] = version

    def remove_older(self, than_s: float, than_ts: Ts) -> int:
        """As `ArchiveSegments.remove_older`, of what is uploaded."""
        entries = {entry.name: entry for entry in self._place.list()}
        gone = 0
        for index, name in binlog_file.named(entries):
            if index >= self.newest or entries[name].mtime_ns >= than_s * 1e9:
                break
            stored_index = SegmentIndex.from_json(self._place.content(_index_name(name)) or b"")
            if stored_index is not None and stored_index.last_ts >= than_ts:
                break
            self._check_owner()
            self._place.delete(name, _index_name(name), _tables_name(name))
            gone += 1
            logger.info("segment is older than retention-time", segment=name)
        return gone

    def compress(self, newest: int, stopped: Callable[[], bool]) -> int:
        """Nothing: `binlogctl config check` refuses it."""
        return 0

    def close(self) -> None:
        self._gone = True
        super().close()
        os.close(self._local_lock)


def open_remote(
    place: Place,
    local: str,
    clock: Clock,
    *,
    cluster_id: int,
    node_id: str,
    stored_ts: Ts = 0,
    max_file_size: int = MAX_FILE_SIZE,
) -> Archive:
    """Blocks. `local`: where segments are written, of this Drainer alone. Raises as `RemoteFiles`."""
    files = RemoteFiles(place, local, clock, cluster_id, stored_ts, node_id)
    return Archive(files, clock, max_file_size, files)


def _locked(local: str) -> int:
    filesystem.make_directory(local, 0o700)
    descriptor = os.open(os.path.join(local, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not filesystem.lock(descriptor):
        os.close(descriptor)
        raise DirectoryLocked(
            f"{local} is locked: file already locked", hint="another drainer uses it; stop that one"
        )
    return descriptor


def _object_name(name: str) -> str:
    """What is called so here is called there."""
    return _TIME.sub("", name)


def _index_name(name: str) -> str:
    return f"{segment_index.DIRECTORY}/{segment_index.file_name(binlog_file.plain_name(name))}"


def _tables_name(name: str) -> str:
    return f"{segment_index.DIRECTORY}/{table_definitions.file_name(binlog_file.plain_name(name))}"


def _read(path: str, name: str, size: int = sys.maxsize) -> bytes:
    """The beginning of a file here, b"" where it is not."""
    try:
        with open(os.path.join(path, name), "rb", 0) as file:
            return filesystem.read_at(file.fileno(), 0, min(size, os.fstat(file.fileno()).st_size))
    except FileNotFoundError:
        return b""

"""Lives of an archive on recorded items: run, end anywhere, look at what is there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drainer.checkpoint.savepoint import Savepoint
from drainer.ddl.policy import Policy
from drainer.formats import binlog_file
from drainer.operate.control.pause_and_reload import Control
from drainer.places.place import Place
from drainer.sink.file.archive import Archive
from drainer.sink.file.file_sink import FileSink, where_to_go_on
from drainer.sink.file.remote_files import open_remote
from drainer.sink.runner import Runner
from drainer.stream.pull.merged import Merged, MergedBatch, Spilled
from drainer.txn import Item, Transaction
from tests.waiting import PATIENCE_S
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.record import decode_file

CLUSTER_ID = 7
FILE_SIZE = 20_000


@dataclass
class Ready:
    """A translator whose items are there. Large ones come in pieces."""

    stream: Sequence[Item]
    large: dict[int, list[Transaction]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._items = {item.commit_ts: item for item in self.stream}

    def translate(self, merged: Merged) -> Item:
        return self._items[merged.commit_ts]

    def pieces(self, spilled: Spilled) -> Iterator[Transaction]:
        return iter(self.large[spilled.commit_ts])

    def route(self, schema: str, table: str = "") -> tuple[str, str]:
        return schema, table


def merged_of(source: Ready, commit_ts: int) -> Merged:
    if commit_ts in source.large:
        return Merged(commit_ts, b"", None, Spilled(commit_ts, 0, 0, 0, 0, lambda _offset, _size: b""))
    return Merged(commit_ts, b"")


class Life:
    """One run, from opening the archive to its end. `remote`: where the archive is, if it is not the
    directory."""

    def __init__(self, directory: Path, source: Ready, clock: Clock | None = None, **settings: Any) -> None:
        clock = clock or SystemClock()
        self.source = source
        self.savepoint = Savepoint(str(directory))
        stored = self.savepoint.load()
        given: dict[str, Any] = {
            "cluster_id": CLUSTER_ID,
            "stored_ts": stored.commit_ts if stored else 0,
            "max_file_size": settings.pop("max_file_size", FILE_SIZE),
        }
        remote: Place | None = settings.pop("remote", None)
        if remote is None:
            self.archive = Archive.open(str(directory), clock, **given)
        else:
            node_id = settings.pop("node_id", "drainer-1")
            self.archive = open_remote(remote, str(directory / "here"), clock, node_id=node_id, **given)
        self.start = where_to_go_on(self.archive.last_ts, stored, 0)
        self.sink = FileSink(
            self.start, self.archive, self.savepoint, source.route, Policy(), clock, **settings
        )
        self.runner = Runner(self.sink, source, Control(clock))

    async def batches(self, size: int = 10) -> AsyncIterator[MergedBatch]:
        rest = [item.commit_ts for item in self.source.stream if item.commit_ts > self.start.commit_ts]
        for at in range(0, len(rest), size):
            entries = [merged_of(self.source, commit_ts) for commit_ts in rest[at : at + size]]
            yield MergedBatch(entries, entries[-1].commit_ts)

    async def whole(self) -> None:
        """To the end of the stream, and a graceful stop."""
        await self.runner.run(self.batches())
        assert await self.runner.stop(PATIENCE_S)


async def whole(directory: Path, source: Ready, **settings: Any) -> None:
    """A life from here to the end of the stream."""
    await Life(directory, source, **settings).whole()


def payloads(directory: Path) -> list[bytes]:
    """Everything in the archive, in order."""
    found = []
    for _, name in binlog_file.in_order(str(directory), [path.name for path in directory.iterdir()]):
        data, at = (directory / name).read_bytes(), 0
        while at < len(data):
            payload, at = decode_file(data, at)
            found.append(payload)
    return found

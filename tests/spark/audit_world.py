"""What tests of the audit have in common: archives of recorded scenarios, and faults planted in them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from common.record import decode_file, encode_file
from common.wire import pb_binlog_pb2 as pb
from tests.drainer import archive_life
from tests.drainer.relay_world import items

INDEX = "index"


def write_archive(directory: Path, scenario: str, file_size: int = archive_life.FILE_SIZE) -> Path:
    """The archive that a drainer writes of a scenario, in files of about that size."""

    async def live() -> None:
        source = archive_life.Ready(items(scenario))
        await archive_life.Life(directory, source, max_file_size=file_size).whole()

    asyncio.run(live())
    return directory


@dataclass
class Record:
    """One record of a file as it is written."""

    payload: bytes

    @property
    def message(self) -> pb.Binlog:
        return pb.Binlog.FromString(self.payload)


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.name.startswith("binlog-"))


def records(file: Path) -> list[Record]:
    data, at, found = file.read_bytes(), 0, []
    while at < len(data):
        payload, at = decode_file(data, at)
        found.append(Record(payload))
    return found


def rewrite(file: Path, change: Callable[[list[Record]], list[Record]]) -> None:
    """The file with other records, framed and with checksums as if they had been written so."""
    file.write_bytes(b"".join(encode_file(one.payload) for one in change(records(file))))


def without_indexes(directory: Path) -> None:
    """As a Go drainer leaves it, but with the tables' definitions."""
    for path in (directory / INDEX).glob("*.json"):
        path.unlink()


def rows_of(record: Record, kind: int) -> list[pb.Event]:
    """Events of one kind of a record's transaction."""
    return [event for event in record.message.dml_data.events if event.tp == kind]

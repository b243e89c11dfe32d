"""What tests of replay have in common: archives of recorded scenarios, and what is downstream afterwards."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

from tests.drainer.support import archive_life, recorded
from tests.drainer.support.relay_world import go_relay, items, our_relay


def go_events(scenario: str, directory: Path) -> Path:
    """What the Go drainer's file sink wrote."""
    directory.mkdir()
    for path in (recorded.ROOT / scenario / "events").glob("binlog-*.gz"):
        (directory / path.name.removesuffix(".gz")).write_bytes(gzip.decompress(path.read_bytes()))
    return directory


def our_archive(scenario: str, directory: Path, max_file_size: int = 64 << 10) -> Path:
    """The archive that this drainer writes."""
    asyncio.run(
        archive_life.whole(directory, archive_life.Ready(items(scenario)), max_file_size=max_file_size)
    )
    return directory


def our_relay_log(scenario: str, directory: Path) -> Path:
    return asyncio.run(our_relay(items(scenario), directory))


SOURCES = {"archive": our_archive, "relay": our_relay_log, "go-events": go_events, "go-relay": go_relay}

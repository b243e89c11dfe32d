"""Snapshot position: how far the rows of a snapshot were given, as text that a program or a registry keeps.

    snapshot:TS:ROWS:PLACE      PLACE: `begin`, `end`, or base64 of JSON: table, chunk, which tables

Never  takes a text for a position that `text` does not give
Holds  what follows a position is the same whenever it is read at the same timestamp: tables come in the order
       of their names, rows in chunks by a key, and a position is the end of a chunk
Tests  tests/drainer/points/rows/test_snapshot_position.py
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Self

from drainer.points.load.contents import Source
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.tso import Ts

if TYPE_CHECKING:
    from drainer.config.database_options import UpstreamOptions
    from drainer.stream.rules.rule_set import Rules
    from tidb_binlog.upstream_port import Upstream

PREFIX: Final = "snapshot:"
ROWS_MAX: Final = 1 << 38
"""A snapshot has fewer rows; every commit_ts is larger."""
_BEGIN: Final = "begin"
_END: Final = "end"


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """The rows of the tables of `rules` from `position` on, at its timestamp; at a new one where that is 0.

    `settings`: where the upstream's SQL server is. `hold_name`: under which its garbage is held. `directory`:
    for chunks that are large. `planned`: the first chunk ends there, as it did before; else chunks may be cut
    at other places."""

    settings: UpstreamOptions
    upstream: Upstream
    rules: Rules
    position: SnapshotPosition
    hold_name: str
    directory: str | None = None
    planned: SnapshotPosition | None = None


@dataclass(frozen=True, slots=True)
class SnapshotPosition:
    """`rows` were given of the snapshot at `ts` (0: none is taken yet). The next ones follow `chunk` (as
    `Chunk.stored` has it) of `table` (`key_of`), both "" at the beginning. `tables`: checksum of them
    all, and of whose they are."""

    ts: Ts = 0
    rows: int = 0
    table: str = ""
    chunk: str = ""
    tables: int = 0
    is_end: bool = False

    def text(self) -> str:
        """Text that `of` reads."""
        place = _END if self.is_end else _BEGIN
        if self.table and not self.is_end:
            document = json.dumps([self.table, self.chunk, self.tables])
            place = base64.urlsafe_b64encode(document.encode()).decode()
        return f"{PREFIX}{self.ts}:{self.rows}:{place}"

    @classmethod
    def of(cls, text: str) -> Self:
        """Raises `ConfigError`."""
        try:
            _, ts, rows, place = text.split(":")
            if place in (_BEGIN, _END):
                position = cls(int(ts), int(rows), is_end=place == _END)
            else:
                table, chunk, tables = json.loads(base64.urlsafe_b64decode(place))
                position = cls(int(ts), int(rows), str(table), str(chunk), int(tables))
            if position.text() != text or position.rows < 0 or position.ts < (place != _BEGIN):
                raise ValueError
            return position
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise ConfigError(
                f"{text[:80]!r} is no position of a snapshot",
                hint="give `snapshot` of the last transaction that was done, as it was",
            ) from None


def key_of(name: tuple[str, str]) -> str:
    """Of a table, by which they are in order. Two tables have never one: there may be dots in names."""
    return "\0".join(name)


def begun(sources: Iterable[Source], position: SnapshotPosition, ts: Ts, cluster_id: int) -> SnapshotPosition:
    """The position at `ts` in these tables, in their order. Raises `ConfigError` for one in others, by other
    rules, or of another cluster."""
    names = [key_of(source.name) + source.digest for source in sources]
    tables = zlib.crc32("\n".join([str(cluster_id), *names]).encode())
    if position.table and position.tables != tables:
        raise ConfigError(
            "the snapshot was begun with other tables or rules than are given now, or of another cluster",
            hint="give the same ones until it has ended, or begin anew with start=0",
        )
    return replace(position, ts=ts, tables=tables)

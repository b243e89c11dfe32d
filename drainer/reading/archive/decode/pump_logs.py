"""Pump logs: the value logs of one pump or several as one stream, in commit order.

In     data directories of pumps, definitions with the DDL history
Out    binlogs as the collector hands them on; or `Changes` and `SchemaChange`, as a file archive has them
Holds  transactions of all pumps are in one order, each once. Of every transaction 16 bytes are in memory,
       besides those of one file
Why    a value log is in the order in which transactions began
Never  writes into a pump's directory, or needs the pump
Tests  tests/spark/test_export.py, tests/drainer/reading/archive/test_archive.py
"""

from __future__ import annotations

import contextlib
import heapq
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Final, NamedTuple

from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.pump_reader import PumpReader, followed
from drainer.reading.archive.decode.records import Record
from drainer.reading.archive.decode.value_log import LONGEST
from drainer.reading.archive.files.location import File, Location
from drainer.reading.archive.files.segments import PUMP, survey
from drainer.reading.archive.files.selection import Selection
from drainer.stream.pull.merged import Merged
from tidb_binlog.errors import ConfigError, Corruption
from tidb_binlog.rowcodec.row_error import RowError

_NEEDS_HISTORY: Final = "give the file with the DDL history (ddl-history): one job of the history a line"


class _Place(NamedTuple):
    """Where a transaction is. The first one of several with one commit_ts counts."""

    commit_ts: int
    log: int
    pos: int


class PumpLogs:
    """Files of value logs. Raises `ConfigError` for a directory without any, and `Corruption`.

    `unfinished`: how many prewrites have no end. `complete_ts`: no transaction up to it will come, though
    the pumps run: a commit_ts is taken when the prewrite is in the log.
    """

    def __init__(
        self, pumps: Sequence[Location], definitions: Definitions, *, skip_damage: bool = False
    ) -> None:
        self._definitions = definitions
        self._logs: list[PumpReader] = []
        self._committed: list[tuple[array[int], array[int]]] = []
        reaches: list[int] = []
        begun: list[int] = []
        for pump in pumps:
            seen = survey(pump, PUMP)
            if not seen.segments:
                raise ConfigError(
                    f"{pump.shown} has no value log", hint="give the data directory of a pump, or a copy"
                )
            reach = 0
            for part in seen.plan(Selection(), skip_damage=skip_damage):
                log = PumpReader(seen.location, part, definitions, skip_damage=skip_damage)
                found = log.transactions()
                reach = max(reach, found.reach)
                begun += found.unfinished
                self._logs.append(log)
                times = array("q", [commit_ts for commit_ts, _ in found.committed])
                self._committed.append((times, array("q", [pos for _, pos in found.committed])))
            reaches.append(reach)
        self.unfinished = len(begun)
        reach = min(reaches)
        open_ts = [start_ts for start_ts in begun if start_ts + LONGEST > reach]
        self.complete_ts = min([reach, *(start_ts - 1 for start_ts in open_ts)])

    @property
    def files(self) -> int:
        return len(self._logs)

    @property
    def first_ts(self) -> int:
        return min((times[0] for times, _ in self._committed if times), default=0)

    def after(self, ts: int) -> int:
        """How many transactions."""
        return sum(one > ts for times, _ in self._committed for one in times)

    def merged(self, after_ts: int, stop_ts: int) -> Iterator[Merged]:
        """What lies after the one commit_ts, up to the other. A client that was not answered may have told
        two pumps."""
        with contextlib.ExitStack() as ends:
            for _, entry in self._entries(_Files(self._logs, ends), after_ts, stop_ts):
                yield entry

    def records(self, selection: Selection) -> Iterator[Record]:
        """Raises `Corruption`, and `ConfigError` without a DDL history."""
        if not self._definitions.history:
            raise ConfigError("value logs have no definitions of tables", hint=_NEEDS_HISTORY)
        begin = max(selection.start, self.first_ts, 1)
        translator = followed(self._definitions, begin)
        with contextlib.ExitStack() as ends:
            places = self._entries(_Files(self._logs, ends), begin - 1, selection.stop or 1 << 63)
            for place, entry in places:
                log = self._logs[place.log]
                try:
                    yield from log.record(translator, entry, place.pos, selection)
                except (Corruption, RowError) as error:
                    raise Corruption(
                        f"{log.path}: offset {place.pos}: {error.message}", hint=error.hint
                    ) from None

    def _entries(self, files: _Files, after_ts: int, stop_ts: int) -> Iterator[tuple[_Place, Merged]]:
        last_ts = after_ts
        for place in self._places():
            if place.commit_ts > stop_ts:
                return
            if place.commit_ts <= last_ts:
                continue
            entry = self._logs[place.log].merged(files.of(place.log), place.commit_ts, place.pos)
            if entry is not None:
                last_ts = place.commit_ts
                yield place, entry

    def _places(self) -> Iterable[_Place]:
        of_files = (
            map(_Place, times, repeat(number), places)
            for number, (times, places) in enumerate(self._committed)
        )
        return heapq.merge(*of_files)


class _Files:
    """Files that are open, until the reading ends."""

    def __init__(self, logs: Sequence[PumpReader], ends: contextlib.ExitStack) -> None:
        self._logs = logs
        self._ends = ends
        self._open: dict[int, File] = {}

    def of(self, log: int) -> File:
        file = self._open.get(log)
        if file is None:
            file = self._open[log] = self._ends.enter_context(self._logs[log].open())
        return file

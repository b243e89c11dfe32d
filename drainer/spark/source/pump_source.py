"""Pump source: `format("binlog")` over the Pumps of a cluster, read as an archive of the same range would be.

    path, pd-urls              pumps://HOST:2379, or HOST:2379 alone
    ssl-ca, ssl-cert, ssl-key  paths, on each node that runs tasks as well
    name, listen               of a stream alone, see `pump_stream`

Out     partitions, each a stretch of the range of all Pumps between two DDL, and the schema there
Holds   a frame has everything between `start`, or the oldest that Pumps have, and `stop`, or the upstream's
        time when it is planned. Each action plans anew: without `stop` a later one sees more
        A range that Pumps have purged, in part or whole, is refused
Why     the driver pulls DDL alone, tasks read rows as those of a live stream do
Tests   tests/spark/source/test_pump_source.py
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from drainer.config.options import DrainerConfig
from drainer.places.place import Place
from drainer.reading.archive import archive_source
from drainer.reading.archive.archive_source import ArchiveSource, Part
from drainer.reading.archive.decode.definitions import Definitions, of_schema
from drainer.reading.archive.decode.pump_range import PumpSlice, StreamState, packed
from drainer.reading.archive.files.segments import SLICE_BYTES, Slice
from drainer.reading.archive.files.selection import Selection
from drainer.reading.archive.read_options import newest
from drainer.spark.source.pump_cluster import Bound, PumpCluster
from drainer.spark.source.source import PUMPS, BinlogReader
from drainer.stream.pull import range_cuts
from drainer.stream.pull.range_reader import PumpSet
from drainer.stream.rules.rule_set import Rules, read_rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.schema.upstream_schema import read_schema
from drainer.stream.translate.translator import Translator
from drainer.txn import Ddl, TableVersion
from tidb_binlog import time_text
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.tso import Ts

if TYPE_CHECKING:
    import pyarrow as pa

WAIT_S: Final = 60.0
"""So long a frame waits for Pumps that do not answer."""
_OWN: Final = ("pd-urls", "ssl-ca", "ssl-cert", "ssl-key", "name", "listen")
_OF_FILES: Final = ("kind", "damage", "verify", "ddl-history", "definitions", "time-zone")


class PumpSource(ArchiveSource):
    """What options name. Raises `ConfigError`, `BinlogsLost`, `Unavailable`."""

    def __init__(self, given: Mapping[str, str]) -> None:
        options = {key.lower(): value for key, value in given.items()}
        own = {name: options.pop(name, "") for name in _OWN}
        path = options.pop("path", "")
        if own["pd-urls"] and path:
            raise ConfigError("both path and pd-urls are given", hint="pd-urls alone names the Pumps")
        of_files = sorted(set(options) & set(_OF_FILES)) or [key for key in options if key[:3] == "fs."]
        if of_files:
            raise ConfigError(f"{of_files[0]} is about an archive's files", hint="leave it out for Pumps")
        endpoints = (own["pd-urls"] or path).removeprefix(PUMPS)
        super().__init__({**options, "path": PUMPS + endpoints})
        if self.view.is_of_files:
            raise ConfigError(
                f"the view {self.options.view} is of an archive: of Pumps it would be empty",
                hint="choose changes, transactions, ddl or definitions; `binlogctl nodes` shows Pumps",
            )
        self.name, self._listen = own["name"], own["listen"]
        self._settings = replace(
            DrainerConfig(),
            pd_urls=endpoints,
            ssl_ca=own["ssl-ca"],
            ssl_cert=own["ssl-cert"],
            ssl_key=own["ssl-key"],
        )
        _ = self._settings.tls  # said here, before anybody is asked
        self.rules: Rules = read_rules(self._settings)

    @asynccontextmanager
    async def cluster(self, name: str = "", part_bytes: int = 0) -> AsyncIterator[PumpCluster]:
        """Open it, for a reader of that name. `part_bytes`: of a task, where the options do not say it."""
        asked = self.options.partition_bytes
        size = part_bytes or range_cuts.TASK_BYTES if asked == SLICE_BYTES else asked
        with tempfile.TemporaryDirectory(prefix="binlog-pumps-") as directory:
            settings = replace(self._settings, data_dir=directory)
            async with PumpCluster(settings, name, self._listen, SystemClock(), size) as cluster:
                yield cluster

    # -- a frame -----------------------------------------------------------------------------------

    @cached_property
    def range(self) -> PumpRange:
        """What the frame reads, planned once."""
        return asyncio.run(self._plan())

    async def _plan(self) -> PumpRange:
        selection = self.options.selection
        async with self.cluster() as cluster:
            stop_ts = await self._stop_ts(cluster)
            after_ts = await cluster.first_position(selection.start - 1 if selection.start else None)
            if after_ts >= stop_ts and not selection.start:
                raise ConfigError(
                    f"Pumps have nothing up to {stop_ts} ({time_text.utc(stop_ts)}) any more",
                    hint=f"the lowest start is {after_ts} ({time_text.utc(after_ts)})",
                )
            walk = SchemaWalk(await read_schema(cluster.upstream.history, after_ts, 0), self.rules)
            await cluster.begin(after_ts)
            steps = [
                walk.take(each, cluster.pumps) for each in await cluster.bounds(after_ts, stop_ts, WAIT_S)
            ]
        return PumpRange(
            tuple(step.state for step in steps),
            tuple((number, part) for number, step in enumerate(steps) for part in step.parts),
            tuple(ddl for step in steps for ddl in step.ddl),
            walk.definitions,
        )

    async def _stop_ts(self, cluster: PumpCluster) -> Ts:
        now_ts, stop_ts = await cluster.now_ts(), self.options.selection.stop
        if stop_ts > now_ts:
            raise ConfigError(
                f"stop {stop_ts} ({time_text.utc(stop_ts)}) lies in the future: the upstream is at {now_ts}",
                hint="leave it out to read up to now",
            )
        return stop_ts or now_ts

    @property
    def location(self) -> Place:
        """Of nothing but its name."""
        return self.options.location

    @cached_property
    def definitions(self) -> Definitions:
        """Tables as they were at the beginning, and what DDL made of them."""
        return self.range.definitions

    @property
    def table_names(self) -> set[tuple[str, str]]:
        """At the beginning, and those that came."""
        return {(table.schema, table.table) for table in self.definitions}

    def ddl_names(self, selection: Selection) -> set[tuple[str, str]]:
        """Of the range."""
        return {name for ddl in self.range.ddl for name in ddl.tables}

    @cached_property
    def version(self) -> TableVersion | None:
        """As the upstream has the table at `stop`, or now."""
        return asyncio.run(self.asked_version()) if self.options.table[0] else None

    async def asked_version(self) -> TableVersion | None:
        """The same, for who has a loop."""
        if not self.options.table[0]:
            return None
        async with self.cluster() as cluster:
            ts = min(self.options.selection.stop or await cluster.now_ts(), await cluster.now_ts())
            tracker = await read_schema(cluster.upstream.history, ts, 0)
        version = newest(self.options, Definitions(of_schema(tracker, self.rules)))
        if version is None:
            raise ConfigError(
                f"there is no table {'.'.join(self.options.table)} at {ts} ({time_text.utc(ts)})",
                hint="see the view definitions for the tables that there are; of one that was dropped, give a"
                " stop before that",
            )
        return version

    def parts(self, target_bytes: int = 0) -> list[Part]:
        """What is no stretch of rows."""
        if self.view.is_of_definitions:
            return [Part(archive_source.NOTHING)]
        return [Part(self.range.ddl_slice)] if self.options.view == "ddl" and self.range.ddl else []


@dataclass(frozen=True)
class PumpRange:
    """A range as tasks read it. `parts`: each with the number of its state."""

    states: tuple[StreamState, ...]
    parts: tuple[tuple[int, range_cuts.Part], ...]
    ddl: tuple[Ddl, ...]
    definitions: Definitions

    @property
    def ddl_slice(self) -> Slice:
        """All DDL, and no row."""
        return PumpSlice.of(self.states[0], 0, 0, 0, self.ddl)


@dataclass
class _Stretch(InputPartition):
    state: int
    part: range_cuts.Part


class PumpReader(BinlogReader):
    """Of one frame. States of the schema go to tasks once, not with each part."""

    def __init__(self, source: PumpSource, columns: StructType) -> None:
        super().__init__(source, columns)
        is_of_rows = source.options.view in ("changes", "transactions")
        self._states = source.range.states if is_of_rows else ()
        self._stretches = source.range.parts if is_of_rows else ()

    def partitions(self) -> list[InputPartition]:
        return [*super().partitions(), *(_Stretch(*each) for each in self._stretches)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, _Stretch):
            part = Part(PumpSlice.of(self._states[partition.state], *partition.part))
            yield from archive_source.read(self._task, self._view, part)
        else:
            yield from super().read(partition)


# -- the schema along the way ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A bound as tasks read it: its rows by `state`, then its DDL, one at most."""

    state: StreamState
    parts: tuple[range_cuts.Part, ...]
    ddl: tuple[Ddl, ...]


class SchemaWalk:
    """Follows the DDL of bounds, which are given in order. `definitions`: of all tables on the way."""

    def __init__(self, tracker: SchemaTracker, rules: Rules) -> None:
        self._tracker = tracker
        self._translator = Translator(tracker, rules)
        self._rules = rules
        self._packed: tuple[int, bytes] = (-1, b"")  # generation and tracker, as tasks get it
        self.definitions = Definitions(of_schema(tracker, rules))

    def take(self, bound: Bound, pumps: PumpSet) -> Step:
        """The next one. Raises `Corruption`."""
        tracker = self._tracker
        self._translator.catch_up(bound.stop_ts, 0)
        if self._packed[0] != tracker.generation:
            self._packed = tracker.generation, packed(tracker)
        state = StreamState(pumps, self._packed[1], self._rules.text)
        ddl = tuple(self._ddl(bound))
        return Step(state, bound.parts, ddl)

    def _ddl(self, bound: Bound) -> Iterator[Ddl]:
        item = self._translator.translate(bound.ddl) if bound.ddl is not None else None
        if not isinstance(item, Ddl):
            return
        for after in item.after:
            version = self._tracker.table_named(after.schema, after.name)
            if version is not None:
                self.definitions.add(item.commit_ts, *version.downstream, version)
        if not (item.skip or item.half_done):
            yield replace(item, job=None, before=(), after=())

"""First copy into a lake: what the upstream has at one timestamp T, from which a stream goes on.

Drives  the upstream's snapshot, tasks that write data files (`copy_task`), a commit for each table
Order   T is noted in the warehouse; ranges become files, which are noted some at a time; when all are there,
        each table is made of its files, in one commit at T; at last the position
Owns    the name of the stream's reader meanwhile: Pumps keep what follows T, and there is one copy at a time
Holds   killed at any time, the same command goes on at the same T. Where T is gone before all files are
        there, it begins anew at a later one: no table is there yet
Stops   when it is cancelled: files that were begun are gone
Tests   tests/spark/live/test_lake_copy.py
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from drainer.app.build_lake import sink_of
from drainer.checkpoint.value import Checkpoint
from drainer.config.downstream import upstream_target_of
from drainer.lake import mirror
from drainer.lake.data_files import DataFile, Form
from drainer.lake.delta import DeltaLake
from drainer.lake.iceberg import IcebergLake
from drainer.lake.lake_table import Name, plain_name, versioned
from drainer.lake.warehouse import MIRROR, LakePosition, lake_of
from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.points.load.contents import Contents, Source, contents_of
from drainer.points.load.copying import CHUNKS_A_SLOT, grouped
from drainer.points.load.counters import FINISHING, PREPARING, Counters
from drainer.points.load.load import LOSSES_MAX, Loaded
from drainer.points.load.table_copy import check_columns
from drainer.points.load.upstream_schema import (
    UpstreamTables,
    pass_until_kept,
    schema_at,
    snapshot_with_schema,
)
from drainer.points.rows.table_rows import tried
from drainer.points.snapshot.sessions import UpstreamSnapshot, read_beside
from drainer.points.worker_pool import Ended
from drainer.reading.archive.decode.definitions import Definitions, archived, of_schema
from drainer.spark.chunk_tasks import patient
from drainer.spark.engine import Executors, SparkOf
from drainer.spark.live.copy_task import LakeCopying, LakePart, Written, table_of
from drainer.spark.live.downstream import LiveSettings
from drainer.spark.live.lake import claim, named
from drainer.spark.source.pump_cluster import PumpCluster
from drainer.stream.rules.rule_set import read_rules
from drainer.stream.schema.tracker import SchemaTracker
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import Conflict, Rejected
from tidb_binlog.late_dataclass import asdict, dataclass, field
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("drainer.lake_copy")

Job = tuple[Source, DownstreamTable, Chunk]


@dataclass(slots=True)
class TableFiles:
    """What of a table is written. `last`: the last range; `files`: path, bytes, rows."""

    last: str = ""
    files: list[tuple[str, int, int]] = field(default_factory=list)


@dataclass(slots=True)
class CopyState:
    """How far a copy is, as it is stored. `rules`: a digest of those that say which tables and columns there
    are, and where; `is_written`: all files are there; `is_done`: the stream's turn."""

    ts: Ts = 0
    rules: str = ""
    tables: dict[str, TableFiles] = field(default_factory=dict)
    is_written: bool = False
    is_done: bool = False

    @classmethod
    def of(cls, document: dict[str, Any]) -> CopyState:
        """Of what `document` gave."""
        if not document:
            return cls()
        tables = {label: TableFiles(**files) for label, files in document["tables"].items()}
        return cls(document["ts"], document["rules"], tables, document["is_written"], document["is_done"])

    def add(self, job: Job, written: Written) -> None:
        """A range is written, after all before it."""
        source, _, chunk = job
        files = self.tables.setdefault(source.label, TableFiles())
        files.last = chunk.stored()
        if (file := written.file) is not None:
            files.files.append((file.path, file.size, file.rows))


class LakeCopy:
    """One run. `is_replacing`: tables that are there go, but for a copy's. `rate_rows`: rows a second, 0: no
    limit."""

    def __init__(
        self,
        settings: LiveSettings,
        spark: SparkOf,
        cluster: PumpCluster,
        *,
        is_replacing: bool = False,
        rate_rows: int = 0,
        clock: Clock | None = None,
    ) -> None:
        self.counters = Counters()
        self._drainer = named(settings)
        self._is_mirror = settings.mode == MIRROR
        self._spark = spark
        self._cluster = cluster
        self._is_replacing = is_replacing
        self._rate_rows = rate_rows
        self._clock = clock or SystemClock()
        self._rules = read_rules(self._drainer)
        self._rules_digest = hashlib.sha256(self._rules.text.encode()).hexdigest()
        self._target = upstream_target_of(self._drainer)
        self._position = LakePosition(self._drainer, cluster.upstream.cluster_id, settings.mode)
        self._state = CopyState()
        self._name = settings.name
        self._has_begun = False
        self._stop = threading.Event()

    async def run(self) -> Loaded | None:
        """None where there is nothing to copy: the stream goes on. Raises `Rejected`, `Conflict`,
        `DownstreamError`, `Unavailable`, `Corruption`, `ConfigError`."""
        began_s = self._clock.monotonic_s()
        await claim(self._position, self._name, self._cluster)
        self._state = state = CopyState.of(await asyncio.to_thread(self._position.load_copy))
        checkpoint = await asyncio.to_thread(self._position.load)
        if state.is_done or (checkpoint.commit_ts and not state.ts and not self._is_replacing):
            return None
        if not self._is_mirror:
            await self._cluster.drainer_at(self._drainer.name)
        if state.rules != self._rules_digest:  # files of before may be of other tables, columns or places
            self._state = CopyState()
        if not self._state.is_written:
            await self._passes()
        self.counters.say(FINISHING)
        tracker = await schema_at(self._cluster.upstream.history, self._state.ts)
        tables = await asyncio.to_thread(self._commit, tracker)
        done, seconds = self.counters.view(), self._clock.monotonic_s() - began_s
        return Loaded(self._state.ts, tables, done.rows_here, 0, seconds)

    async def _passes(self) -> None:
        """One timestamp after the other, until all files are of one."""

        def say(why: str) -> None:
            logger.warning("the copy begins anew at a later timestamp", reason=why)
            self.counters.say(PREPARING, f"begins again at a later timestamp: {why}")

        at_ts = 0 if self._drainer.from_outcome_table else self._state.ts
        await pass_until_kept(self._pass, at_ts, say, losses_max=LOSSES_MAX)

    async def _pass(self, at_ts: Ts) -> None:
        async with snapshot_with_schema(
            self._drainer,
            self._cluster.upstream,
            2,
            at_ts=at_ts,
            hold_name=f"binlog_load_{self._drainer.name}",
        ) as (snapshot, tracker):
            contents = self._contents(tracker)
            if not self._has_begun:
                await self._cluster.begin(snapshot.ts)
                self._has_begun = True
            writing = asyncio.to_thread(self._write, snapshot, tracker, contents)
            await read_beside(writing, snapshot, self._stop.set)

    def _contents(self, tracker: SchemaTracker) -> Contents:
        """Raises `Rejected` for several tables that go into one, `DownstreamError` for what no mirror has."""
        contents = contents_of(tracker, self._rules).only(lambda source: source.copies)
        shared = sorted({".".join(table.target) for table in contents.tables if table.shared})
        if shared:
            raise Rejected(
                f"several tables are routed to {', '.join(shared)}: a copy into a lake makes one of each",
                hint="route them apart; or keep a changelog, and begin with the stream alone",
            )
        if self._is_mirror:
            for table in contents.tables:
                mirror.key_of(table.version)
        return contents

    # -- files, on a thread ----------------------------------------------------------------------------

    def _write(self, snapshot: UpstreamSnapshot, tracker: SchemaTracker, contents: Contents) -> None:
        if self._state.ts != snapshot.ts:
            self._make_room(contents)
            self._state = CopyState(snapshot.ts, self._rules_digest)
            self._position.store_copy(asdict(self._state))
        with contextlib.closing(UpstreamTables(self._target, snapshot)) as upstream:
            here = {source.name: upstream.table(source.name) for source in contents.tables}
            sizes = {source.name: upstream.size(source.name) for source in contents.tables}
        for source in contents.tables:
            check_columns(source, here[source.name])
        self.counters.begin(snapshot.ts, {each.label: sizes[each.name].rows for each in contents.tables})
        ordered = sorted(contents.tables, key=lambda source: -sizes[source.name].size_bytes)

        def jobs() -> Iterator[Job]:
            for source in ordered:
                table = table_of(source, here[source.name], sizes[source.name])
                files = self._state.tables.get(source.label, TableFiles())
                self.counters.count_stored(source.label, sum(rows for _, _, rows in files.files))
                last = Chunk.of_stored(files.last) if files.last else None
                while last is None or not last.is_last:
                    chunks = tried(source.label, self._stop.wait, table.cut, snapshot, last)
                    for chunk in chunks:
                        self.counters.given(source.label)
                        yield source, here[source.name], chunk
                    last = chunks[-1]
                self.counters.cut(source.label)

        at_once, write = self._writing(snapshot, tracker)
        for group in grouped(jobs(), at_once):
            if self._stop.is_set():
                raise Ended
            self.counters.at(group[0][0].label)
            parts = [LakePart(source.name, table, chunk) for source, table, chunk in group]
            for job, written in zip(group, write(parts), strict=True):
                self._state.add(job, written)
                self.counters.copied(job[0].label, written.rows, written.size, compared=False)
            self._cluster.check()
            self._position.store_copy(asdict(self._state))
        self._state.is_written = True
        self._position.store_copy(asdict(self._state))

    def _writing(
        self, snapshot: UpstreamSnapshot, tracker: SchemaTracker
    ) -> tuple[int, Callable[[Sequence[LakePart]], Sequence[Written]]]:
        """How many ranges at a time, and what makes files of them: tasks, where they can see T."""
        slots = 1
        if snapshot.reopens:
            slots = max(1, self._spark().sparkContext.defaultParallelism)
        work = LakeCopying(
            source=self._target,
            ts=snapshot.ts,
            warehouse=self._position.warehouse,
            is_mirror=self._is_mirror,
            schema=pickle.dumps(tracker),
            rules=self._rules.text,
            rate_rows=max(1, self._rate_rows // slots) if self._rate_rows else 0,
        )
        if not snapshot.reopens:
            return 1, lambda parts: [work.written(part, snapshot) for part in parts]

        def in_tasks(parts: Sequence[LakePart]) -> Sequence[Written]:
            rows = Executors(self._spark()).over(parts, work)
            return patient(lambda: rows.gather(iter), self._stop.wait)

        return slots * CHUNKS_A_SLOT, in_tasks

    # -- tables, on a thread ---------------------------------------------------------------------------

    def _make_room(self, contents: Contents) -> None:
        """Raises `Conflict` for a table that is there."""
        lake = lake_of(self._drainer, self._cluster.upstream.cluster_id)
        lake.open()
        try:
            names = [plain_name(source.target) for source in contents.tables]
            present = [each for name in names for each in _there(lake, name)]
            if present and not self._is_replacing:
                raise Conflict(
                    f"{lake.shown} has tables already: {', '.join('.'.join(name) for name in present)}",
                    hint="--replace removes them; or name another warehouse",
                )
            self._position.forget()
            for name in reversed(present):  # that killed, the rest is found again
                lake.remove(name)
        finally:
            lake.close()

    def _commit(self, tracker: SchemaTracker) -> int:
        """How many tables there are. What is committed is seen by its position."""
        state, cluster_id = self._state, self._cluster.upstream.cluster_id
        contents = self._contents(tracker)
        definitions = Definitions(of_schema(tracker, self._rules))
        lake, sink = lake_of(self._drainer, cluster_id), sink_of(self._drainer, cluster_id)
        lake.open()
        sink.open()
        try:
            for source in contents.tables:
                version, name = archived(source.version), plain_name(source.target)
                form, number = Form.of_new(name, version), definitions.number_of(version)
                written = state.tables.get(source.label, TableFiles()).files
                ts = 0 if self._is_mirror else state.ts
                files = [
                    DataFile(source.target, number, form, path, size, rows, ts, ts)
                    for path, size, rows in written
                ]
                table = lake.load(name)
                if table is not None and table.position == state.ts:
                    continue
                is_other = table is not None and table.position > state.ts
                if self._is_mirror and not is_other:
                    table = table or lake.create(name, mirror.schema_of(version), "")
                    if files:
                        table.add(files, state.ts)
                elif is_other or (files and sink.add(files, definitions, state.ts)):
                    self._position.forget()
                    raise Conflict(
                        f"{'.'.join(name)} was changed by another program while it was copied",
                        hint="--replace copies it anew",
                    )
        finally:
            sink.close()
            lake.close()
        if self._is_mirror:
            self._position.store_tables(frozenset(plain_name(each.target) for each in contents.tables))
        self._position.store(Checkpoint(state.ts, True, tracker.version))
        state.is_done = True
        self._position.store_copy(asdict(state))
        return len(contents.tables)


def _there(lake: DeltaLake | IcebergLake, name: Name) -> list[Name]:
    """Of a table what is in the warehouse, with the tables that a changelog went on in."""
    later = (versioned(name, count) for count in itertools.count(2))
    others = itertools.takewhile(lambda each: lake.load(each) is not None, later)
    return [*([name] if lake.load(name) is not None else []), *others]

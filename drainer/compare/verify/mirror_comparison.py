"""Mirror comparison: whether a mirror in a lake has the rows of the upstream, where its stream is.

Drives  `Verifying`, with the tables of the lake in the downstream's place; without Spark and Java
Holds   a TiDB is read at the position of the stream, a table that is ahead of it at its own: so the stream
        may run, or have died at any point. Of another upstream only what stands still is compared. A table is
        one chunk, whose rows are parted as those of an image. A table that the lake does not have is one
        without rows, as it is before its first one
Tests   tests/drainer/compare/verify/test_mirror_comparison.py
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import chain

from drainer.compare.verify.column_pairs import ColumnPair
from drainer.compare.verify.image_comparison import described
from drainer.compare.verify.live import notes_of, own_errors, requests_of
from drainer.compare.verify.result import Name, OnDifference, Verification
from drainer.compare.verify.row_differences import Printed
from drainer.compare.verify.row_source import Rows, Session, Side, Sides, StoredSide, seen_at
from drainer.compare.verify.table_work import Request
from drainer.compare.verify.verifying import Pace, Progress, Verifying
from drainer.config.downstream import upstream_target_of
from drainer.config.options import DrainerConfig
from drainer.lake.delta import DeltaChangelog
from drainer.lake.iceberg import IcebergChangelog
from drainer.lake.lake_table import plain_name
from drainer.lake.mirror import texts
from drainer.lake.warehouse import MIRROR, LakePosition, lake_of, named_by_its_mirror
from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.points.load.contents import contents_of
from drainer.points.load.upstream_schema import newest_version, schema_at
from drainer.points.snapshot.moment import open_upstream_snapshot
from drainer.reading.archive.views.changes import INVALID
from drainer.reading.subscribe.table_choice import TablePattern
from drainer.stream.rules.rule_set import read_rules
from drainer.txn import TableVersion
from tidb_binlog.errors import ConfigError, Corruption
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import Upstream

Tables = dict[Name, DeltaChangelog | IcebergChangelog | None]
"""By their names in the lake, as they were when they were loaded; None for one without rows."""


@dataclass
class MirrorVerification:
    """`at_rest`: nobody writes to the upstream. `selected`: patterns of names upstream."""

    settings: DrainerConfig
    upstream: Upstream
    workers: int = 4
    selected: Sequence[TablePattern] = ()
    at_rest: bool = False
    on_difference: OnDifference | None = None
    on_progress: Callable[[Progress], None] | None = None

    async def run(self) -> Verification:
        """Raises `ConfigError`, `Conflict`, `Corruption`, `DownstreamError`, `Unavailable`, `Rejected`."""
        if self.settings.from_outcome_table and not self.at_rest:
            raise ConfigError(
                "the upstream is no TiDB, which would show what was at the position of the mirror",
                hint="stop what writes, wait until the stream is there, and add -at-rest",
            )
        cluster_id = self.upstream.cluster_id
        settings = await asyncio.to_thread(named_by_its_mirror, self.settings, cluster_id)
        self._rules = read_rules(settings)
        position = LakePosition(settings, cluster_id, MIRROR)
        with closing(lake_of(settings, cluster_id)) as lake:
            await asyncio.to_thread(lake.open)
            ts = (await asyncio.to_thread(position.load)).commit_ts
            if not ts:
                raise ConfigError(f"the mirror {lake.shown} has only begun", hint="wait for its first batch")
            names = await asyncio.to_thread(position.load_tables)
            names |= {plain_name(request.downstream) for request in await self._listed(ts, {})}
            tables: Tables = await asyncio.to_thread(lambda: {name: lake.load(name) for name in names})
            return await self._verified(ts, tables, f"mirror {lake.shown}")

    async def _listed(self, ts: Ts, tables: Tables) -> list[Request]:
        history = self.upstream.history
        newest = await newest_version(history) if self.settings.from_outcome_table else 0
        contents = contents_of(await schema_at(history, ts, newest), self._rules)
        versions = {source.target: source.version for source in contents.tables}
        requests = []
        for request in requests_of(contents, self._rules, self.selected):
            version = versions[request.downstream]
            computed = {column.name.lower() for column in version.info.columns if not column.is_writable}
            stored = _MirrorTable(tables.get(plain_name(request.downstream)), version)
            requests.append(replace(request, left_out=request.left_out | computed, stored=stored))
        return requests

    async def _verified(self, position: Ts, tables: Tables, shown: str) -> Verification:
        moments = {name: max(position, table.position) for name, table in tables.items() if table is not None}
        rest, parts, notes = set(moments), list[Verification](), notes_of(self._rules)
        for ts in sorted({position, *moments.values()}):
            requests = [
                request
                for request in await self._listed(ts, tables)
                if moments.get(plain_name(request.downstream), position) == ts
            ]
            rest -= {plain_name(request.downstream) for request in requests}
            parts.append(await self._at(ts, requests, shown))
        if len(parts) > 1:
            notes.append(
                "the stream is within a batch: a table that is ahead was compared at its own position"
            )
        if rest and not self.selected:
            notes.append(f"the warehouse has {', '.join(map('.'.join, sorted(rest)))} besides: not compared")
        results = sorted(chain.from_iterable(part.tables for part in parts), key=lambda each: each.downstream)
        notes += chain.from_iterable(part.notes for part in parts)
        return replace(parts[0], tables=tuple(results), ended_s=parts[-1].ended_s, notes=tuple(notes))

    async def _at(self, ts: Ts, requests: list[Request], shown: str) -> Verification:
        target, is_tidb = upstream_target_of(self.settings), not self.settings.from_outcome_table
        above = await open_upstream_snapshot(
            self.settings,
            self.upstream,
            self.workers + 1,
            at_ts=ts if is_tidb else 0,
            hold_name="binlogctl-verify",
        )
        side = Side(seen_at(target, ts) if is_tidb else target, above.session)
        below = StoredSide({each.downstream: each.stored for each in requests if each.stored is not None})
        sides = Sides(ts, side, below, lambda: None)
        pace = Pace(self.workers, retries=0, moment_s=float("inf"))
        verifying = Verifying(lambda: sides, lambda _: requests, pace, self.on_difference, self.on_progress)
        try:
            with own_errors():
                return await asyncio.to_thread(verifying.run, repr(target), shown)
        finally:
            await above.close()


@dataclass(frozen=True, slots=True)
class _MirrorTable:
    """See `StoredTable`. `table` None: it has had no row."""

    table: DeltaChangelog | IcebergChangelog | None
    version: TableVersion
    changed: None = None

    def described(self) -> DownstreamTable:
        whole = described(self.version)
        names = None if self.table is None else {name.lower() for name in self.table.schema.names}
        columns = tuple(
            replace(column, type="varchar") if column.type in ("enum", "set") else column
            for column in whole.columns
            if names is None or column.name.lower() in names
        )
        schema, name = self.version.downstream
        return replace(whole, schema=schema, name=name, columns=columns)

    def reader(self, table: DownstreamTable, pairs: Sequence[ColumnPair], session: Session, ts: Ts) -> Rows:
        """See `SourceTable`. What a column cannot hold comes from `_invalid`; a number without a name is
        nothing, as servers show it."""
        forms = {pair.name.lower(): pair.form for pair in pairs}
        named = {column.name.lower() for column in self.version.info.columns if column.type.elems}

        def rows() -> Iterator[Printed]:
            for batch in () if self.table is None else self.table.batches():
                arrays = {name.lower(): batch.column(place) for place, name in enumerate(batch.schema.names)}
                columns = {name: texts(arrays[name], form) for name, form in forms.items()}
                for row, note in enumerate(arrays[INVALID].to_pylist()):
                    for name, text in json.loads(note).items() if note is not None else ():
                        key = name.lower()
                        if key in forms:
                            columns[key][row] = b"" if key in named else text.encode()
                yield from zip(*columns.values(), strict=True)

        def read(chunk: Chunk) -> Iterator[Printed]:
            try:
                yield from rows()
            except (KeyError, ValueError, AttributeError, NotImplementedError) as error:
                raise Corruption(
                    f"{table.label} in the lake is no mirror of its table: {error!r}", hint="copy it anew"
                ) from None

        return read

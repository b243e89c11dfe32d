"""Lake sink: a batch sink that appends every change to the changelog of its table.

Out    commits: of each batch one for each table that it has rows of, in the order of their first rows
Holds  once: a table stores the commit_ts of its last rows with them. What the Drainer gives again after its
       savepoint, or after an error that left it open whether the commit was done, is passed over up to there,
       table by table
       columns: follow the table versions that rows come with (`evolution`). Where they cannot, `NAME__v2`
       begins, `NAME__v3` after it; the position counts over all of them
Never  removes a row: DROP and TRUNCATE leave the changelog as it is
Tests  tests/drainer/lake/test_lake_sink.py, tests/contract/test_lake_sinks.py
"""

from __future__ import annotations

import datetime
import functools
import json
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from drainer.lake.changelog import Change, Changelog, columns_of, schema_of
from drainer.lake.data_files import DataFile, Form
from drainer.lake.evolution import evolution
from drainer.lake.lake_table import Lake, LakeTable, Name, plain_name, versioned
from drainer.points.rows.snapshot_position import ROWS_MAX, SnapshotPosition
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.images import Images
from drainer.sink.batch.batching import Item
from drainer.txn import Ddl, TableVersion, Transaction
from tidb_binlog.clock import Clock
from tidb_binlog.errors import BinlogError, Conflict, DownstreamError, Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log

logger = log.get("drainer.lake")

BATCH_ROWS: Final = 1 << 20
SEQ_END: Final = 1 << 30  # of a chunk's first row: a snapshot may have more rows than `_seq` can count
_ROW_BITS: Final = ROWS_MAX.bit_length() - 1
"""Of a position in a snapshot; above them it is told from other snapshots, and from any commit_ts."""
IDS_MAX: Final = 64
"""So many tables upstream that one changelog knows the ids of: it is another one after each TRUNCATE."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Changes of one transaction in one table. `versions` are all that they come with. `position`: what the
    table stores with them; of a snapshot, which has one commit_ts, which one and how many of all rows it is
    up to them: below any commit_ts."""

    commit_ts: int
    versions: tuple[TableVersion, ...]
    changes: Callable[[], Iterator[Change]]
    position: int


class LakeItems:
    """Makes of items what the sink is given: of each transaction its pieces by table. Those of a large one
    are read while they are written, each table's by a pass of its own."""

    def __init__(self) -> None:
        self._images = Images()

    def __call__(self, items: Sequence[Item]) -> list[dict[Name, Piece]]:
        """Raises `RowError`."""
        return [self._pieces(item) for item in items if not isinstance(item, Ddl)]

    def _pieces(self, item: Any) -> dict[Name, Piece]:
        is_small = isinstance(item, Transaction)
        versions: dict[Name, dict[TableVersion, None]] = {}
        position = item.commit_ts
        for part in [item] if is_small else item.pieces():
            for events in part.tables:
                versions.setdefault(events.table.downstream, {})[events.table] = None
            if part.snapshot:
                position = _position_in(SnapshotPosition.of(part.snapshot))
        pieces = {}
        for name, those in versions.items():
            read = self._reading(item.commit_ts, name, (lambda: [item]) if is_small else item.pieces)
            # Of a small one a row that cannot be right is found here.
            changes = functools.partial(iter, list(read())) if is_small else read
            pieces[name] = Piece(item.commit_ts, tuple(those), changes, position)
        return pieces

    def _reading(
        self, commit_ts: int, name: Name, parts: Callable[[], Iterable[Transaction]]
    ) -> Callable[[], Iterator[Change]]:
        def changes() -> Iterator[Change]:
            for part in parts():
                is_snapshot = bool(part.snapshot)
                for events in part.tables:
                    if events.table.downstream == name:
                        first = events.first_ordinal % SEQ_END if is_snapshot else events.first_ordinal
                        for seq, row in enumerate(self._images.rows(events), first):
                            yield Change(commit_ts, seq, row, is_snapshot)

        return changes


def _position_in(snapshot: SnapshotPosition) -> int:
    return (zlib.crc32(b"%d" % snapshot.ts) >> 14 << _ROW_BITS) + snapshot.rows


class OpenTable:
    """A changelog in all its versions, the last of which is written."""

    def __init__(self, lake: Lake, name: Name) -> None:
        self._lake = lake
        self.name = name
        self.table: LakeTable | None = None
        self.position = 0
        self._count = 0
        self._fitting: set[TableVersion] = set()
        self._changelog = Changelog({})  # kept, as it has compiled how the table's images are read
        while (table := lake.load(self._name_of(self._count + 1))) is not None:
            self.table = table
            self.position = max(self.position, table.position)
            self._count += 1

    def _name_of(self, count: int) -> Name:
        return versioned(plain_name(self.name), count)

    @property
    def shown(self) -> str:
        """How the version that is written is called."""
        return ".".join(self._name_of(max(self._count, 1)))

    def write(self, pieces: Iterable[Piece]) -> None:
        """Commit what is above the position."""
        if self.table is not None:
            self._look_again(self.table)
        waiting: list[Piece] = []
        for piece in pieces:
            if piece.position < piece.commit_ts:
                self._check_snapshot(piece.position)
            if piece.position <= self.position:
                continue
            if obstacle := self._fit(piece.versions):
                self._commit(waiting)
                waiting = []
                self._begin_next(obstacle, piece.versions, piece.commit_ts)
            waiting.append(piece)
        self._commit(waiting)

    def _check_snapshot(self, position: int) -> None:
        """Only what came last may come again, and nothing else be there than rows before."""
        is_other = bool(self.position) and self.position >> _ROW_BITS != position >> _ROW_BITS
        if is_other or position < self.position:
            raise Conflict(
                f"{self.shown} in the warehouse has changes already, or rows of another snapshot",
                hint="a snapshot needs a warehouse of its own, and the same rules until it has ended; or"
                " begin without --load",
            )

    def form(self) -> Form:
        """As it is now."""
        columns = self.table.columns if self.table is not None else {}
        return Form(self._name_of(max(self._count, 1)), tuple(columns.items()))

    def add(self, files: Sequence[DataFile], versions: Collection[TableVersion], position: int) -> bool:
        """Commit files of all rows up to a position; False if it has become another one than they are
        for."""
        if self.table is not None:
            self._look_again(self.table)
        if any(file.first_ts <= self.position for file in files):
            return False
        if obstacle := self._fit(versions):
            self._begin_next(obstacle, versions, position)
        form = self.form()
        if any(file.form != form for file in files):
            return False
        assert self.table is not None
        self.table.add(files, position)
        self.position = position
        return True

    def _look_again(self, table: LakeTable) -> None:
        columns = table.columns
        table.refresh()
        if table.columns != columns:
            self._fitting.clear()
        if not table.columns:
            raise Conflict(
                f"{self.shown} in the warehouse is no changelog: it has no struct `after` of columns",
                hint="another program has made or changed it: move it away, or choose another warehouse",
            )
        if table.position > self.position:
            raise Conflict(
                f"{self.shown} in the warehouse is at {table.position}, and this drainer wrote"
                f" {self.position}: another drainer writes it with the same node-id",
                hint="stop one of them, or give it another node-id and warehouse",
            )

    def _fit(self, versions: Iterable[TableVersion]) -> str:
        """Let the columns follow; why they cannot, or ""."""
        for version in versions:
            if version not in self._fitting:
                if self.table is None:
                    self._create(version)
                elif obstacle := self._evolved(self.table, version):
                    return obstacle
                self._fitting.add(version)
        return ""

    def _evolved(self, table: LakeTable, version: TableVersion) -> str:
        columns = columns_of(version)
        remembered: dict[str, dict[str, int]] = json.loads(table.ids or "{}")
        ids = remembered.pop(str(version.id), {})
        change = evolution(table.columns, ids, columns, can_widen=self._lake.can_widen)
        if change.obstacle:
            return change.obstacle
        now = ids | {column.name: column.id for column in columns}
        if now != ids:
            kept = list(remembered.items())[1 - IDS_MAX :]
            table.remember(json.dumps(dict(kept) | {str(version.id): now}))
        if change.added or change.widened:
            table.evolve(dict(change.added), dict(change.widened))
            logger.info(
                "columns of a changelog follow",
                table=self.shown,
                added=[name for name, _ in change.added],
                widened=[name for name, _ in change.widened],
            )
        return ""

    def _create(self, version: TableVersion) -> None:
        columns = columns_of(version)
        ids = json.dumps({str(version.id): {column.name: column.id for column in columns}})
        self._count += 1
        schema = schema_of({column.name: column.type for column in columns})
        self.table = self._lake.create(self._name_of(self._count), schema, ids)

    def _begin_next(self, obstacle: str, versions: Iterable[TableVersion], commit_ts: int) -> None:
        before = self.shown
        self.table = None
        self._fitting.clear()
        logger.warning(
            "a changelog goes on in another table",
            before=before,
            table=".".join(self._name_of(self._count + 1)),
            reason=obstacle,
        )
        if obstacle := self._fit(versions):
            raise DownstreamError(
                f"rows of {self.shown} at commit_ts {commit_ts} do not fit into one table: {obstacle}",
                hint="tables that are routed into one need the same types: route them apart",
            )

    def _commit(self, pieces: list[Piece]) -> None:
        if not pieces:
            return
        assert self.table is not None
        columns = self.table.columns
        if list(columns.items()) != list(self._changelog.columns.items()):
            self._changelog = Changelog(columns)
        changelog = self._changelog
        errors: list[Exception] = []

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                yield from changelog.batches(change for piece in pieces for change in piece.changes())
            except Exception as error:  # the library tells its text only
                errors.append(error)
                raise

        position = pieces[-1].position
        try:
            self.table.append(pa.RecordBatchReader.from_batches(changelog.schema, batches()), position)
        except BinlogError:
            if errors:
                raise errors[0] from None
            raise
        self.position = position


class LakeSink:
    """Stores no position of all tables: the savepoint has it, and each table its own. `compact_s`: how often
    tables are looked after, 0 for never; `retention`: how old versions of them may be, zero for any age."""

    batch_rows = BATCH_ROWS
    retriable = (Unavailable,)

    def __init__(
        self,
        lake: Lake,
        clock: Clock,
        *,
        batch_bytes: int,
        batch_interval_s: float,
        target_bytes: int = 512 << 20,
        compact_s: float = 0.0,
        retention: datetime.timedelta = datetime.timedelta(),
    ) -> None:
        self.batch_bytes = batch_bytes
        self.batch_interval_s = batch_interval_s
        self._lake = lake
        self._clock = clock
        self._target_bytes = target_bytes
        self._compact_s = compact_s
        self._retention = retention
        self._tables: dict[Name, OpenTable] = {}
        self._to_compact: set[Name] = set()
        self._compacted_s = clock.monotonic_s()

    def open(self) -> None:
        """Connect."""
        self._lake.open()

    def write(self, items: Sequence[dict[Name, Piece]], position: int) -> None:
        """A commit for each table."""
        by_table: dict[Name, list[Piece]] = {}
        for item in items:
            for name, piece in item.items():
                by_table.setdefault(name, []).append(piece)
        for name, pieces in by_table.items():
            self._table(name).write(pieces)
        self._look_after_some(by_table)

    def _table(self, name: Name) -> OpenTable:
        if name not in self._tables:
            self._tables[name] = OpenTable(self._lake, name)
        return self._tables[name]

    def forms(self) -> tuple[dict[Name, Form], dict[Name, int]]:
        """How changelogs are that were written to, and up to where they have everything."""
        tables = {name: table for name, table in self._tables.items() if table.table is not None}
        return (
            {name: table.form() for name, table in tables.items()},
            {name: table.position for name, table in tables.items()},
        )

    def add(self, files: Iterable[DataFile], definitions: Definitions, position: int) -> set[Name]:
        """Commit files of all rows up to a position, for each table; the tables of which `forms` says more by
        now than their files were written with: theirs are to be written again."""
        by_table: dict[Name, list[DataFile]] = {}
        for file in files:
            by_table.setdefault(file.table, []).append(file)
        lacking = set()
        for name, some in by_table.items():
            versions = {definitions.version(file.definition): None for file in some}
            if not self._table(name).add(some, versions, position):
                lacking.add(name)
        self._look_after_some(by_table)
        return lacking

    def _look_after_some(self, names: Iterable[Name]) -> None:
        self._to_compact.update(names)
        if self._compact_s and self._clock.monotonic_s() - self._compacted_s >= self._compact_s:
            self._look_after()

    def _look_after(self) -> None:
        """Failures are logged: rows are there."""
        for name in sorted(self._to_compact & self._tables.keys()):
            table = self._tables[name].table
            if table is None:
                continue
            try:
                table.refresh()
                table.compact(self._target_bytes)
                if self._retention:
                    table.expire(self._retention)
            except BinlogError as error:
                logger.warning(
                    "a changelog was not compacted", table=self._tables[name].shown, reason=str(error)
                )
        self._to_compact.clear()
        self._compacted_s = self._clock.monotonic_s()

    def close(self) -> None:
        """Forget what the tables were like: after an error nobody knows."""
        self._tables.clear()
        self._lake.close()

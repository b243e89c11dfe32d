"""Archive source: the records of a file archive as the stream that a sink takes, in place of pumps.

Out    batches and their items, in order of commit_ts, each once; a DDL ends its batch
Holds  the batch after a DDL is decoded when the DDL has run: rows of an archive without definitions are read
       by what the downstream says of their tables. What a Drainer that was started again wrote a second
       time, in the same file or the next one, is left out; anything else that is out of order is damage
Why    a large transaction is decoded piece by piece: a record may have a gigabyte
Tests  tests/drainer/reparo/test_archive_source.py

Blocks on a thread; `batches` and `translate` are called on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from drainer.ddl.derive.values import Route
from drainer.formats.segment_index import UTC
from drainer.mysql.connection import Target
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.pb_walk import PbWalker, Shape
from drainer.reading.archive.decode.records import Piece, SchemaChange
from drainer.reading.archive.files.segments import Slice, Survey
from drainer.reading.archive.files.selection import Selection
from drainer.relay.downstream_definitions import DownstreamTables
from drainer.relay.record_readers import to_utc
from drainer.relay.source import RelaySchema
from drainer.reparo.ddl_screen import screened
from drainer.reparo.ordered_records import Seen, at_place, ordered
from drainer.reparo.sink_rows import SinkRows
from drainer.stream.pull.merged import DecodedItems, Merged, MergedBatch, Spilled
from drainer.stream.rules.rule_set import Rules
from drainer.stream.translate.moved_rows import in_order
from drainer.txn import Ddl, Item, TableEvents, TableVersion, Transaction
from tidb_binlog.errors import Corruption, DownstreamError
from tidb_binlog.protobuf_fields import varint
from tidb_binlog.rowcodec.varint import put_uvarint
from tidb_binlog.tso import Ts


class ArchivedTables(DownstreamTables):
    """Definitions of the rows of an archive, from beside it or else from the downstream.

    An archive of a Go Drainer says of a column how it is called and of which type it is, not whether it is a
    key, unsigned or which elements an ENUM has. The table downstream says it: every schema change before the
    event has run there. Nothing is guessed.
    """

    def __init__(self, archived: Definitions, target: Target, route: Route) -> None:
        super().__init__(target)
        self._archived = archived
        self._route = route
        # Tables of the downstream under their names in the archive.
        self._theirs = Definitions()

    def forget(self) -> None:
        """Tables downstream may have changed."""
        super().forget()
        self._theirs = Definitions()

    def names(self) -> set[tuple[str, str]]:
        """The names of all tables that the archive defines."""
        return {(table.schema, table.table) for table in self._archived}

    # -- what a walk asks ----------------------------------------------------------------------------

    def find(
        self,
        schema: str,
        table: str,
        commit_ts: Ts,
        column_names: Sequence[str],
        fits: Callable[[TableVersion], bool],
    ) -> TableVersion | None:
        """Find the definition in the archive, else downstream."""
        version = self._archived.find(schema, table, commit_ts, column_names, fits)
        if version is not None:
            return version
        theirs = self.named(*self._route(schema, table))
        if theirs is not None:
            self._theirs.add(0, schema, table, TableVersion(theirs.info, schema, table, 0))
        return self._theirs.find(schema, table, commit_ts, column_names, fits)

    def guess(self, schema: str, table: str, shape: Shape) -> TableVersion:
        """Refuse to guess."""
        columns = ", ".join(column.name for column in shape)
        schema_there, table_there = self._route(schema, table)
        theirs = self.named(schema_there, table_there)
        lacks = "there is no such table"
        if theirs is not None:
            lacks = "it has " + ", ".join(column.name for column in theirs.info.columns)
        raise DownstreamError(
            f"the archive has rows of {schema}.{table} ({columns}) and no definition, and downstream"
            f" ({schema_there}.{table_there}) {lacks}",
            hint="create it there as it was upstream, or leave it out with replicate-ignore-table",
        )

    def valid(self, commit_ts: Ts) -> tuple[int, int]:
        """Ask the archive's definitions."""
        return self._archived.valid(commit_ts)


PIECE_BYTES: Final = 4 << 20
"""Of a transaction; a larger one is decoded in pieces of so many bytes."""


class ArchiveSource:
    """Raises `Corruption` and `DownstreamError` while it is read."""

    def __init__(self, survey: Survey, selection: Selection, tables: ArchivedTables, rules: Rules) -> None:
        self._survey = survey
        self._selection = selection
        self._tables = tables
        self._rules = rules
        self._rows = SinkRows(rules)
        self._walkers: dict[str, PbWalker] = {}  # by time zone
        self._known = tables.names()  # tables that the archive or a DDL so far has named
        self._ready = DecodedItems()  # items of the batch that is applied
        self._large: dict[int, tuple[Piece, Slice]] = {}  # the large transaction that comes, by commit_ts
        self._after_ts = 0
        self.schema = RelaySchema()
        self.seen = Seen()

    def take(self, after_ts: Ts) -> None:
        """Leave out what lies at or below `after_ts`."""
        self._after_ts = after_ts
        self._selection = replace(self._selection, start=max(self._selection.start, after_ts + 1))

    @property
    def end_ts(self) -> Ts:
        """Where the stream has come to when all was read: the end of the range, or of the archive before it,
        since more may be written there."""
        stop = self._selection.stop
        reaches = stop and (
            self.seen.last_ts >= stop
            or any(
                segment.first_ts is not None and segment.first_ts > stop for segment in self._survey.segments
            )
        )
        return stop if reaches else max(self.seen.last_ts, self._after_ts)

    def route(self, schema: str, table: str = "") -> tuple[str, str]:
        """Name a table downstream."""
        return self._rules.router.route(schema, table)

    # -- the stream ------------------------------------------------------------------------------

    async def batches(self) -> AsyncIterator[MergedBatch]:
        """Ends after the last record. A batch is read when the one before is applied."""
        items = self._items()
        while (batch := await asyncio.to_thread(self._ready.batch, items)) is not None:
            yield batch
        yield MergedBatch([], self.end_ts)

    def translate(self, merged: Merged) -> Item:
        """The item of the next entry."""
        item = self._ready.next()
        if isinstance(item, Ddl):
            self.schema.pass_ddl(item)
            self._tables.forget()
            for walker in self._walkers.values():
                walker.forget()
            if not item.skip:
                self.seen.ddl += 1
        return item

    def pieces(self, spilled: Spilled) -> Iterator[Transaction]:
        """The pieces of a large transaction. Blocks."""
        piece, part = self._large[spilled.commit_ts]
        walker = self._walker(part)
        seq, waiting = 0, None
        for cut, rows in _cut(piece):
            if waiting is not None:
                yield waiting
            tables = self._decoded(walker, part, cut, seq)
            waiting = Transaction(0, piece.commit_ts, tables, len(cut.payload), last=False)
            seq += rows
        yield Transaction(0, piece.commit_ts, (), 0) if waiting is None else replace(waiting, last=True)

    def whole_items(self) -> Iterator[Item]:
        """All of them as `batches` and `translate` give them, pieces of large transactions too, for who only
        looks. Blocks."""
        for item in self._items():
            if isinstance(item, Spilled):
                yield from self.pieces(item)
            else:
                if isinstance(item, Ddl):
                    self.schema.pass_ddl(item)
                yield item

    def _items(self) -> Iterator[Item | Spilled]:
        waiting: Ddl | None = None
        for item, part in ordered(self._survey, self._selection, self.seen):
            if isinstance(item, SchemaChange):
                ddl = screened(item.ddl, self._rules, self._known)
                self._known.update(name for name in ddl.tables if name[1])
                if waiting is not None and item.part:
                    waiting = _both(waiting, ddl)
                    continue
                if waiting is not None:
                    yield waiting
                waiting = ddl
                continue
            if waiting is not None:
                yield waiting
                waiting = None
            size = len(item.payload)
            if size > PIECE_BYTES:
                self._large = {item.commit_ts: (item, part)}
                yield Spilled(item.commit_ts, 0, size, 0, 0, lambda offset, size: b"")
                continue
            tables = self._decoded(self._walker(part), part, item, 0)
            if tables:
                yield Transaction(0, item.commit_ts, tables, size)
        if waiting is not None:
            yield waiting

    # -- rows ------------------------------------------------------------------------------------

    def _walker(self, part: Slice) -> PbWalker:
        zone = part.time_zone
        walker = self._walkers.get(zone)
        if walker is None:
            walker = PbWalker(self._tables, self._wants, None if zone == UTC else to_utc(zone))
            self._walkers[zone] = walker
        return walker

    def _wants(self, schema: str, table: str, kind: int) -> bool:
        rules = self._rules
        return rules.allows(schema, table) and kind not in rules.events.ignored_rows(schema, table)

    def _decoded(
        self, walker: PbWalker, part: Slice, piece: Piece, first_seq: int
    ) -> tuple[TableEvents, ...]:
        try:
            tables: list[TableEvents] = []
            for seq, rows in walker.rows(piece.payload, piece.commit_ts):
                tables += self._rows.events(rows, first_seq + seq, piece.commit_ts)
            return in_order(tuple(tables), piece.commit_ts)
        except (Corruption, DownstreamError) as error:
            raise at_place(error, self._survey, part, piece.pos) from None


def _both(first: Ddl, second: Ddl) -> Ddl:
    """Records with one commit_ts are one schema change in several statements."""
    if first.skip or second.skip:
        return second if first.skip else first
    texts = (*(first.instead or (first.query,)), *(second.instead or (second.query,)))
    return replace(
        first,
        instead=texts,
        tables=tuple(dict.fromkeys((*first.tables, *second.tables))),
        targets=tuple(dict.fromkeys((*first.targets, *second.targets))),
        refused=first.refused or second.refused,
    )


def _cut(piece: Piece) -> Iterator[tuple[Piece, int]]:
    """A record as several, each with some of its events and how many they are."""
    payload, at = piece.payload, piece.begin
    head = b"\x08\x00\x10" + put_uvarint(piece.commit_ts) + b"\x1a"
    begin, rows = at, 0
    while at < len(payload):
        size, inner = varint(payload, at + 1)
        at = inner + size
        rows += 1
        if at - begin >= PIECE_BYTES or at >= len(payload):
            events = payload[begin:at]
            whole = head + put_uvarint(len(events)) + events
            yield piece._replace(payload=whole, begin=len(whole) - len(events)), rows
            begin, rows = at, 0

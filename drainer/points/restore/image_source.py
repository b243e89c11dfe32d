"""Image source: an image as the stream that a sink takes: what makes its tables, then its rows.

Out    batches and their items, numbered from 1 on in place of a commit_ts; the last number is the image's own
Holds  the same image under the same rules has the same numbers, so a position in it stays one: each row goes
       downstream once, whether the table has a key or not. Numbers lie far below every commit_ts
Why    then rows of an image come to a database as those of an archive do, and a restore that was killed goes
       on where it was
Tests  tests/drainer/points/restore/test_restoring.py

Blocks on a thread; `batches` and `translate` are called on the event loop.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from drainer.points.image.manifest import Manifest
from drainer.points.image.objects import DatabaseObject, Objects, TableObject
from drainer.points.image.parquet_reader import Group, TableReader
from drainer.relay.source import RelaySchema
from drainer.reparo.ordered_records import Seen
from drainer.reparo.sink_rows import SinkRows
from drainer.stream.pull.merged import DecodedItems, Merged, MergedBatch, Spilled
from drainer.stream.rules.rule_set import Rules
from drainer.txn import INSERT, Ddl, Item, TableVersion, Transaction
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.errors import Rejected
from tidb_binlog.tso import Ts

ROWS_AT_ONCE: Final = 2_000
"""Of one transaction. Positions stand on it: another number makes others of them."""


class ImageSource:
    """Raises `Corruption` and `Rejected` while it is read."""

    def __init__(self, directory: str, manifest: Manifest, rules: Rules) -> None:
        self._manifest = manifest
        self._rules = rules
        self._rows = SinkRows(rules)
        self._objects = Objects.load(directory, manifest)
        self._readers = [
            TableReader(directory, image)
            for image in sorted(manifest.tables, key=lambda image: (image.schema, image.table))
            if rules.allows(image.schema, image.table)
        ]
        self._ready = DecodedItems()
        self._after = 0
        self._number = 0
        self.schema = RelaySchema()
        self.seen = Seen()

    def take(self, after_ts: Ts) -> None:
        """Leave out what has a number up to `after_ts`."""
        self._after = after_ts

    @property
    def end_ts(self) -> Ts:
        return self._manifest.commit_ts

    def route(self, schema: str, table: str = "") -> tuple[str, str]:
        """Of a name upstream."""
        return self._rules.router.route(*self._objects.place(schema, table))

    def targets(self) -> list[tuple[str, str]]:
        """The tables downstream that rows go to."""
        names = (
            self._rules.router.route(reader.table.schema, reader.table.table) for reader in self._readers
        )
        return list(dict.fromkeys(names))

    def versions(self) -> list[TableVersion]:
        """Of the tables, as rows go to them."""
        return [self._rows.placed(reader.version) for reader in self._readers]

    def rows(self) -> Iterator[Transaction]:
        """All of them, and nothing else. Blocks."""
        return self._all_rows()

    # -- the stream ------------------------------------------------------------------------------

    async def batches(self) -> AsyncIterator[MergedBatch]:
        items = self._items()
        while (batch := await asyncio.to_thread(self._ready.batch, items)) is not None:
            yield batch
        if self._number >= self._manifest.commit_ts:
            raise Rejected(
                f"the image is of commit_ts {self._manifest.commit_ts}, which is no timestamp of a TiDB",
                hint="make it anew",
            )
        yield MergedBatch([], self.end_ts)

    def translate(self, merged: Merged) -> Item:
        item = self._ready.next()
        if isinstance(item, Ddl):
            self.schema.pass_ddl(item)
            self.seen.ddl += 1
        return item

    def pieces(self, spilled: Spilled) -> Iterator[Transaction]:
        raise NotImplementedError  # no item is spilled: `ROWS_AT_ONCE` bounds them

    def _items(self) -> Iterator[Item]:
        parts: tuple[Iterator[Ddl | Transaction], ...] = (self._making(), self._all_rows(), self._views())
        for item in itertools.chain.from_iterable(parts):
            if item.commit_ts > self._after:
                yield item

    def _next(self) -> int:
        self._number += 1
        return self._number

    # -- what makes tables -----------------------------------------------------------------------

    def _making(self) -> Iterator[Ddl]:
        if not self._rules.sync_ddl:
            return
        schemas = {reader.table.schema for reader in self._readers}
        for database in self._objects.databases:
            if database.name in schemas:
                yield self._database(database)
        # A default may ask a sequence.
        for table in sorted(self._wanted(), key=lambda table: not table.is_sequence):
            if not table.is_view:
                yield self._table(table)

    def _views(self) -> Iterator[Ddl]:
        if self._rules.sync_ddl:
            yield from (self._table(table) for table in self._wanted() if table.is_view)

    def _wanted(self) -> list[TableObject]:
        return [table for table in self._objects.tables if self._rules.allows(*table.name)]

    def _database(self, database: DatabaseObject) -> Ddl:
        number = self._next()
        document = {"db_name": {"O": database.name, "L": database.name.lower()}}
        if database.charset and database.collate:
            document |= {"charset": database.charset, "collate": database.collate}  # type: ignore[dict-item]
        job = {"binlog": {"DBInfo": document}}
        name = (database.name, "")
        return Ddl(number, number, ActionType.CREATE_SCHEMA, database.name, "", (name,), 0, job=job)

    def _table(self, table: TableObject) -> Ddl:
        number, tracked = self._next(), table.tracked
        action = ActionType.CREATE_TABLE
        if table.is_view:
            action = ActionType.CREATE_VIEW
        elif table.is_sequence:
            action = ActionType.CREATE_SEQUENCE
        name = (tracked.schema, tracked.name)
        target = self._rules.router.route(*table.name)
        targets = () if target == name else (target,)
        job: dict[str, Any] = {"type": int(action)}
        return Ddl(
            number, number, action, tracked.schema, "", (name,), 0, job=job, after=(tracked,), targets=targets
        )

    # -- rows ------------------------------------------------------------------------------------

    def _all_rows(self) -> Iterator[Transaction]:
        groups = [(reader, reader.groups()) for reader in self._readers]
        self.seen.bytes_all = sum(group.rows for _, some in groups for group in some)
        for reader, some in groups:
            for group in some:
                yield from self._of_group(reader, group)
                self.seen.bytes += group.rows

    def _of_group(self, reader: TableReader, group: Group) -> Iterator[Transaction]:
        parts = -(-group.rows // ROWS_AT_ONCE)
        if self._number + parts <= self._after:
            self._number += parts
            return
        images = reader.images(group)
        while some := list(itertools.islice(images, ROWS_AT_ONCE)):
            number = self._next()
            if number <= self._after:
                continue
            rows = [(reader.version, INSERT, None, image) for image in some]
            events = tuple(self._rows.events(rows, 0, number))
            yield Transaction(0, number, events, sum(map(len, some)))

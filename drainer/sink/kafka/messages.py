"""Messages: what a transaction, a DDL and a watermark are in Kafka, and what becomes of too large ones.

Out    envelopes in the order in which they are to be sent
Holds  obinlog without anything else asked for is byte for byte what the Go drainer sends: one message a
       transaction or DDL, no key, no headers. Whatever is cut or spread over topics says where it stands
       (`position`), and `last` says whether more of the transaction follows

Tests  tests/drainer/sink/kafka/test_kafka_sink.py
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from drainer.formats.obinlog.column import varint
from drainer.formats.obinlog.writer import ObinlogWriter
from drainer.sink.kafka.position import WHOLE, Headers, Position, after, headers_of, last_ordinal
from drainer.txn import Ddl, TableEvents, Transaction
from tidb_binlog.errors import DownstreamError
from tidb_binlog.tso import Ts

FAIL: Final = "fail"
SPLIT: Final = "split"
HANDLE_KEY_ONLY: Final = "handle-key-only"
CLAIM_CHECK: Final = "claim-check"
OVERSIZE: Final = (FAIL, SPLIT, HANDLE_KEY_ONLY, CLAIM_CHECK)
LAST: Final = "last"
KIND: Final = "kind"
SNAPSHOT: Final = "snapshot"
WATERMARK: Final = "watermark"
# Of a record batch and of one record in it, besides key, value and headers; and of a header.
_FRAME_BYTES: Final = 61 + 6 * 5
_HEADER_BYTES: Final = 10
# What stands before the tables of an obinlog, and headers about its place.
_HEAD_BYTES: Final = 120


def snapshot_header(transaction: Transaction) -> Headers:
    """Of messages of rows that stood in the upstream."""
    return [(SNAPSHOT, b"1")] if transaction.snapshot else []


class Envelope(NamedTuple):
    """One message. `claim`: `value` is to be stored elsewhere, and `reference` sent in its place."""

    key: bytes | None
    value: bytes | None
    position: Position
    headers: Headers
    claim: bool = False
    reference: bytes = b""

    @property
    def size(self) -> int:
        return size_of(self.key, self.value, self.headers)


def size_of(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Bytes of a message alone in its batch, as brokers count them, or some more."""
    named = sum(len(name) + len(text) + _HEADER_BYTES for name, text in headers)
    return len(value or b"") + len(key or b"") + named + _FRAME_BYTES


class Unit(NamedTuple):
    """A part of a transaction that goes to one partition of one topic."""

    schema: str
    table: str
    transaction: Transaction


class ObinlogMessages:
    """`by_table`: tables go to topics or partitions of their own. A `limit` is of a message in bytes."""

    def __init__(self, *, by_table: bool, headers: bool, oversize: str) -> None:
        self._writer = ObinlogWriter(bare=True)
        self._headers = headers or by_table
        self.by_table = by_table
        self.oversize = oversize

    def units(self, transaction: Transaction) -> Iterable[Unit]:
        """Parts without rows are left out."""
        if not transaction.tables:
            return ()
        if not self.by_table:
            return (Unit("", "", transaction),)
        runs = [
            (name, tuple(of))
            for name, of in itertools.groupby(transaction.tables, lambda events: events.table.downstream)
        ]
        return [
            Unit(
                schema, table, replace(transaction, tables=of, last=transaction.last and number == len(runs))
            )
            for number, ((schema, table), of) in enumerate(runs, 1)
        ]

    def transaction(
        self, unit: Transaction, stored: Position, limit: int, *, cut: bool = False
    ) -> Iterator[Envelope]:
        """Of a unit, what is above `stored`. `cut`: it is a piece of a larger transaction. Raises
        `DownstreamError` for what is too large."""
        if stored.commit_ts >= unit.commit_ts:
            unit = after(unit, stored) if stored.commit_ts == unit.commit_ts else replace(unit, tables=())
            cut = True
        if unit.tables:
            yield from self._fitting(unit, limit, cut=cut)

    def _fitting(self, unit: Transaction, limit: int, *, cut: bool) -> Iterator[Envelope]:
        value = self._writer.transaction(unit)
        position = Position(unit.commit_ts, last_ordinal(unit))
        headers: Headers = headers_of(position) if cut or self._headers or unit.snapshot else []
        headers += snapshot_header(unit)
        if cut:
            headers.append((LAST, b"1" if unit.last else b"0"))
        size = size_of(None, value, headers)
        if size <= limit:
            yield Envelope(None, value, position, headers)
        elif self.oversize == CLAIM_CHECK:
            yield self.claimed(value, position, headers)
        elif self.oversize == SPLIT and rows_of(unit) > 1:
            for half in _halves(unit):
                yield from self._fitting(half, limit, cut=True)
        else:
            sizes = {events.table.downstream: sum(map(len, events.rows)) for events in unit.tables}
            raise too_large(unit.commit_ts, size, limit, rows_of(unit), sizes)

    def claimed(self, value: bytes, position: Position, headers: Headers) -> Envelope:
        """`value` is kept elsewhere; what is sent has its commit_ts and no rows."""
        reference = self._writer.transaction(Transaction(0, position.commit_ts, (), 0))
        return Envelope(None, value, position, headers or headers_of(position), True, reference)

    # -- a large transaction, piece by piece ---------------------------------------------------------

    def tables(self, piece: Transaction) -> bytes:
        """Its part of what follows `beginning`."""
        return self._writer.tables(piece)

    def size_of_tables(self, piece: Transaction) -> int:
        return len(self._writer.tables(piece))

    def beginning(self, commit_ts: Ts, size: int) -> bytes:
        """What stands before `size` bytes of tables."""
        return self._writer.beginning(commit_ts) + varint(size)

    @staticmethod
    def fits(size: int, limit: int) -> bool:
        """Whether so many bytes of tables can be one message."""
        return size + _FRAME_BYTES + _HEAD_BYTES <= limit

    # -- what else there is ------------------------------------------------------------------------

    def ddl(
        self, ddl: Ddl, schema: str, table: str, statements: Sequence[str], limit: int
    ) -> Iterator[Envelope]:
        """`schema`, `table`: as they are downstream."""
        named = replace(ddl, schema=schema, tables=((schema, table),))
        for number, text in enumerate(statements):
            position = Position(ddl.commit_ts, number if len(statements) > 1 else WHOLE)
            headers = headers_of(position) if len(statements) > 1 or self._headers else []
            value = self._writer.ddl(named, text)
            if size_of(None, value, headers) > limit:
                raise DownstreamError(
                    f"DDL job {ddl.job_id} at commit_ts {ddl.commit_ts} is a message of {len(value)} bytes,"
                    f" the limit is {limit}",
                    hint="raise the topic's max.message.bytes, and syncer.to.kafka-max-message-size",
                )
            yield Envelope(None, value, position, headers)

    def watermark(self, ts: Ts) -> Envelope:
        value = self._writer.transaction(Transaction(0, ts, (), 0))
        return named_watermark(ts, None, value)


UNNAMED_WATERMARK: Final = b'{"_tidb":"watermark"}'
"""Its key where a topic takes nothing without one and the format has none."""


def named_watermark(ts: Ts, key: bytes | None, value: bytes | None) -> Envelope:
    """Everything at or below `ts` was sent before it."""
    return Envelope(key, value, Position(ts), [*headers_of(Position(ts)), (KIND, WATERMARK.encode())])


def rows_of(transaction: Transaction) -> int:
    return sum(len(events.rows) for events in transaction.tables)


def _halves(transaction: Transaction) -> tuple[Transaction, Transaction]:
    """Its rows in two parts, in order; there are at least two."""
    left = rows_of(transaction) // 2
    first: list[TableEvents] = []
    second: list[TableEvents] = []
    for events in transaction.tables:
        here = min(left, len(events.rows))
        left -= here
        if here:
            first.append(
                TableEvents(events.table, events.kinds[:here], events.rows[:here], events.first_ordinal)
            )
        if here < len(events.rows):
            second.append(
                TableEvents(
                    events.table, events.kinds[here:], events.rows[here:], events.first_ordinal + here
                )
            )
    return (
        replace(transaction, tables=tuple(first), last=False),
        replace(transaction, tables=tuple(second)),
    )


def merged(pieces: Sequence[Transaction]) -> Transaction:
    """A whole transaction of its pieces: a table's rows that a cut went through are together again."""
    tables: list[TableEvents] = []
    for piece in pieces:
        for events in piece.tables:
            if tables and _goes_on(tables[-1], events):
                tables[-1].kinds = [*tables[-1].kinds, *events.kinds]
                tables[-1].rows = [*tables[-1].rows, *events.rows]
            else:
                tables.append(replace(events))
    return replace(pieces[-1], tables=tuple(tables), size_bytes=sum(piece.size_bytes for piece in pieces))


def _goes_on(before: TableEvents, events: TableEvents) -> bool:
    return before.table is events.table and before.first_ordinal + len(before.rows) == events.first_ordinal


def too_large(
    commit_ts: Ts, size: int, limit: int, rows: int, sizes: Mapping[tuple[str, str], int]
) -> DownstreamError:
    """`sizes` of its tables: the one that has most of it is named."""
    schema, name = max(sizes, key=lambda table: sizes[table])
    return DownstreamError(
        f"the transaction of commit_ts {commit_ts} is a message of {size} bytes, the limit is {limit}:"
        f" {rows} rows, most of them of `{schema}`.`{name}`",
        hint="raise the topic's max.message.bytes (and syncer.to.kafka-max-message-size), or choose"
        ' syncer.to.oversize = "split" or "claim-check"',
    )

"""Binlog arrays: the rows of a stretch of binlogs as Pumps send them, found for thousands at once.

Out    of each row its binlog, table id, kind and ordinal, and where it lies, in execution order
Why    two messages and their lists are taken apart for each transaction otherwise, twenty microseconds
Holds  what is found is what `Translator` finds. What is not exactly as writers make it, a DDL and a schema
       version that changes are not found here (`None`)
Tests  tests/spark/effects/test_row_effects.py

    Binlog         08 01 10 start_ts 18 commit_ts [22 key] 2a { prewrite } [32 00] 38 00 40 00
    PrewriteValue  08 schema_version  12 { mutation } ...
    TableMutation  08 table_id  12 inserted ...  1a updated ...  32 deleted ...  38 kind ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from drainer.reading.archive.columns.pb_arrays import Buffer, Events, Numbers, event_sizes, followed
from drainer.reading.archive.columns.row_arrays import RowSpans
from drainer.txn import DELETE, INSERT, UPDATE
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.wire import binlog_pb2

_ROW_TAGS: Final = {0x12: INSERT, 0x1A: UPDATE, 0x32: DELETE}
_SAID: Final = {binlog_pb2.Insert: INSERT, binlog_pb2.Update: UPDATE, binlog_pb2.DeleteRow: DELETE}
_UNKNOWN: Final = 3
_KIND_OF_TAG: Final = np.array([_ROW_TAGS.get(octet, _UNKNOWN) for octet in range(256)])
_KIND_SAID: Final = np.array([_SAID.get(octet, _UNKNOWN) for octet in range(256)])  # type: ignore[call-overload]
_VARINT_BITS: Final = 63


@dataclass(frozen=True, slots=True)
class BinlogRows:
    """`binlog`: number of the one that a row is of, `ordinal`: its place among that one's rows."""

    schema_version: int
    binlog: Numbers
    table: Numbers
    kind: Numbers
    ordinal: Numbers
    spans: RowSpans


def binlog_rows(payloads: Sequence[bytes]) -> BinlogRows | None:
    """None where they are to be taken one by one."""
    whole = RowSpans.joined(payloads)
    values = _values(whole)
    if values is None:
        return None
    buffer = whole.buffer
    versions, at = _uvarints(buffer, values.begin + 1)
    if (buffer.bytes[values.begin] != 0x08).any() or (versions != versions[0]).any():
        return None
    chain = followed(buffer, at, values.end, b"\x12")
    if chain is None or (chain[1] != values.end).any():
        return None
    return _rows(buffer, chain[0], int(versions[0]))


def _values(whole: RowSpans) -> RowSpans | None:
    """The prewrites' values."""
    buffer, ends = whole.buffer, whole.end
    right = buffer.holds(whole.begin, b"\x08\x01\x10")
    at = _uvarints(buffer, whole.begin + 3)[1]
    right &= buffer.bytes[at] == 0x18
    at = _uvarints(buffer, at + 1)[1]
    keyed = buffer.bytes[at] == 0x22
    sizes, begins, longer = event_sizes(buffer, at)
    right &= ~(keyed & longer)
    at = np.minimum(np.where(keyed, begins + sizes, at), ends)
    sizes, begins, longer = event_sizes(buffer, at)
    right &= (buffer.bytes[at] == 0x2A) & ~longer
    stops = np.minimum(begins + sizes, ends)
    rest = stops + 2 * buffer.holds(stops, b"\x32\x00")
    right &= buffer.holds(rest, b"\x38\x00\x40\x00") & (rest + 4 == ends)
    return RowSpans(buffer, begins, stops) if right.all() else None


def _rows(buffer: Buffer, mutations: Events, schema_version: int) -> BinlogRows | None:
    tables, at = _uvarints(buffer, mutations.begin + 1)
    chain = followed(buffer, at, mutations.end, bytes(_ROW_TAGS))
    if chain is None or (buffer.bytes[mutations.begin] != 0x08).any():
        return None
    rows, at = chain
    counts = mutations.end - at  # what is left are the kinds, two octets each
    if ((counts < 0) | (counts & 1 != 0)).any():
        return None
    counts >>= 1
    stops = np.cumsum(counts)
    numbers = np.arange(int(stops[-1]) if len(stops) else 0)
    of = np.repeat(np.arange(len(counts)), counts)
    places = np.repeat(at, counts) + 2 * (numbers - np.repeat(stops - counts, counts))
    kinds = _KIND_SAID[buffer.bytes[places + 1]]
    # In a mutation rows lie by kind, in the order in which their kind is said.
    said = of * 4 + kinds
    order = np.argsort(said, kind="stable")
    lying = rows.record * 4 + _KIND_OF_TAG[rows.tag]
    if (buffer.bytes[places] != 0x38).any() or len(order) != len(lying) or (said[order] != lying).any():
        return None
    spans = RowSpans(buffer, np.empty_like(rows.begin), np.empty_like(rows.end))
    spans.begin[order], spans.end[order] = rows.begin, rows.end
    binlogs = mutations.record[of]
    ordinals = numbers - np.searchsorted(binlogs, binlogs)
    return BinlogRows(schema_version, binlogs, tables[of], kinds, ordinals, spans)


def _uvarints(buffer: Buffer, places: Numbers) -> tuple[Numbers, Numbers]:
    """Numbers of up to 63 bits, and where they end; of longer ones the end is wrong."""
    values, at, more = np.zeros(len(places), np.int64), places, np.ones(len(places), np.bool_)
    for bits in range(0, _VARINT_BITS, 7):
        octets = buffer.at(at)
        values |= np.where(more, (octets & 127) << bits, 0)
        at = at + more
        more &= octets > 127
        if not more.any():
            break
    return values, at

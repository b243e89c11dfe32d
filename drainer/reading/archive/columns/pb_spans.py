"""pb spans: where the values of many events lie, found for all of them at once.

In     payloads of records one after another in one buffer; what stands before the values of a table's events
Out    arrays: record, place in the transaction, begin and end of every event; begin and size of every datum
Why    a walk takes events one by one, half a microsecond a value; here a step is taken for thousands
Holds  what is not exactly as writers make it is not found here (`None`): the walk decides about it
Tests  tests/drainer/reading/archive/test_typed_values.py

Positions are in the buffer. It is followed by zeros, so that eight bytes can be loaded anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from tidb_binlog.rowcodec.datum import BYTES

Numbers: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_EVENT: Final = 0x0A
_ELEMENT: Final = 0x22
_CHANGED: Final = 0x2A
_PADDING: Final = bytes(1024)  # more than what stands before a value
_FEW: Final = 16
"""Below so many records with events left they are followed one by one."""


class Buffer:
    """Bytes that are read by position."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        self.data = b"".join([*parts, _PADDING])
        self.size = len(self.data) - len(_PADDING)
        self.bytes: Numbers = np.frombuffer(self.data, np.uint8)
        count = len(self.data) - 7
        # Eight bytes from any position on, as one number.
        self.words: Numbers = np.ndarray((count,), "<u8", self.data, strides=(1,))

    def at(self, places: Numbers) -> Numbers:
        return self.bytes[places].astype(np.int64)

    def holds(self, places: Numbers, text: bytes) -> Numbers:
        """Whether the text lies at each place."""
        found = np.ones(len(places), np.bool_)
        begin = 0
        while len(text) - begin >= 8:
            found &= self.words[places + begin] == int.from_bytes(text[begin : begin + 8], "little")
            begin += 8
        rest = text[begin:]
        if rest:
            mask = np.uint64((1 << 8 * len(rest)) - 1)
            found &= self.words[places + begin] & mask == int.from_bytes(rest, "little")
        return found

    def cut(self, begins: Numbers, sizes: Numbers, absent: Numbers | None = None) -> pa.Array:
        """Stretches, one after the other, as binary values, copied once: every second of an array of them
        and of what lies between them."""
        ends = begins + sizes
        if absent is not None:
            ends = np.where(absent, 0, ends)
        after = np.maximum.accumulate(ends) if len(ends) else ends
        before = np.concatenate((np.zeros(1, np.int64), after[:-1])) if len(ends) else ends
        offsets = np.empty(2 * len(begins), np.int32)
        offsets[0::2] = begins if absent is None else np.where(absent, before, begins)
        offsets[1::2] = ends if absent is None else np.where(absent, before, ends)
        count = max(len(offsets) - 1, 0)
        if not count:
            return pa.array([], pa.binary())
        whole = pa.Array.from_buffers(
            pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        )
        return whole.take(pa.array(np.arange(0, count, 2), mask=absent))

    def sizes(self, places: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Sizes of one or two bytes, where they end, which of them are longer."""
        first = self.at(places)
        second = self.at(places + 1)
        long = first > 127
        sizes = np.where(long, first - 128 + (second << 7), first)
        return sizes, places + 1 + long, long & (second > 127)


@dataclass(frozen=True, slots=True)
class Events:
    """One entry an event: number of its record, place among its rows, begin and end."""

    record: Numbers
    seq: Numbers
    begin: Numbers
    end: Numbers

    def where(self, chosen: Numbers) -> Events:
        return Events(self.record[chosen], self.seq[chosen], self.begin[chosen], self.end[chosen])


def events(buffer: Buffer, begins: Numbers, ends: Numbers) -> Events | None:
    """The events that fill the stretches, in their order."""
    found: list[tuple[Numbers, Numbers, Numbers, Numbers]] = []
    live = np.flatnonzero(begins < ends)
    at, seq = begins.copy(), 0
    while len(live) >= _FEW:
        places = at[live]
        sizes, starts, longer = _event_sizes(buffer, places)
        stops = starts + sizes
        if longer.any() or (buffer.bytes[places] != _EVENT).any() or (stops > ends[live]).any():
            return None
        found.append((live, np.full(len(live), seq), starts, stops))
        at[live] = stops
        live = live[stops < ends[live]]
        seq += 1
    for number in live.tolist():
        one = _one_by_one(buffer.data, int(at[number]), int(ends[number]))
        if one is None:
            return None
        starts, stops = one
        count = len(starts)
        found.append((np.full(count, number), np.arange(seq, seq + count), starts, stops))
    if not found:
        nothing = np.zeros(0, np.int64)
        return Events(nothing, nothing, nothing, nothing)
    record, place, begin, end = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.argsort(begin, kind="stable")
    return Events(record[order], place[order], begin[order], end[order])


def _event_sizes(buffer: Buffer, places: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    sizes, starts, longer = buffer.sizes(places + 1)
    if longer.any():  # three bytes
        third = buffer.at(places + 3)
        sizes = np.where(longer, (sizes & 16383) + (third << 14), sizes)
        starts = starts + longer
        longer = longer & (third > 127)
    return sizes, starts, longer


def _one_by_one(b: bytes, i: int, end: int) -> tuple[Numbers, Numbers] | None:
    starts, stops = [], []
    while i < end:
        if b[i] != _EVENT:
            return None
        size, shift, i = 0, 0, i + 1
        while True:
            size |= (b[i] & 127) << shift
            shift += 7
            i += 1
            if b[i - 1] < 128:
                break
            if shift > 28:
                return None
        starts.append(i)
        i += size
        stops.append(i)
    return (np.array(starts), np.array(stops)) if i == end else None


@dataclass(frozen=True, slots=True)
class Spans:
    """Datums of a column, by event: where they begin, how many bytes they have."""

    begin: Numbers
    size: Numbers


@dataclass(frozen=True, slots=True)
class Element:
    """What is known of a column's elements. `flag`: of its datums, 0 where they are text made from values.

    `prefix` None: the column is passed over.
    """

    prefix: bytes | None
    flag: int


def elements(
    buffer: Buffer, begins: Numbers, ends: Numbers, shape: Sequence[Element], *, paired: bool
) -> list[tuple[Spans, Spans]] | None:
    """(old, new) datums of every column; without pairs both are the same."""
    at, right = begins, np.ones(len(begins), np.bool_)
    found = []
    for element in shape:
        right &= buffer.bytes[at] == _ELEMENT
        sizes, inner, longer = buffer.sizes(at + 1)
        right &= ~longer
        at = np.minimum(inner + sizes, ends)
        right &= at == inner + sizes
        if element.prefix is None:
            nothing = Spans(inner, np.zeros_like(inner))
            found.append((nothing, nothing))
            continue
        right &= buffer.holds(inner, element.prefix + b"\x22")
        old, right = _datum(buffer, inner + len(element.prefix) + 1, at, element.flag, right)
        new, after = old, old.begin + old.size
        if paired:
            right &= buffer.bytes[after] == _CHANGED
            new, right = _datum(buffer, after + 1, at, element.flag, right)
            after = new.begin + new.size
        right &= after == at
        found.append((old, new))
    right &= at == ends
    return found if right.all() else None


def _datum(
    buffer: Buffer, places: Numbers, ends: Numbers, flag: int, right: Numbers
) -> tuple[Spans, Numbers]:
    """The datum after its size, which lies at `places`."""
    sizes, begins, longer = buffer.sizes(np.minimum(places, ends))
    right = right & ~longer & (sizes > 0) & (begins + sizes <= ends)
    begins = np.minimum(begins, ends)
    sizes = np.where(right, sizes, 0)
    first = buffer.bytes[begins]
    is_null = (sizes == 1) & (first == 0)
    right &= is_null | (first == (flag or BYTES))
    if flag in (0, BYTES):
        right &= is_null | _is_whole(buffer, begins, sizes)
    return Spans(begins, sizes), right


def content(spans: Spans) -> tuple[Numbers, Numbers]:
    """Where the contents of strings begin, how long they are; 0 and below for what is no string."""
    heads = 2 + (spans.size > 65) + (spans.size > 8194)
    return spans.begin + heads, spans.size - heads


def _is_whole(buffer: Buffer, begins: Numbers, sizes: Numbers) -> Numbers:
    """Whether strings have the length that they say."""
    heads = 2 + (sizes > 65) + (sizes > 8194)
    zigzag = (sizes - heads) << 1
    said, ends, longer = buffer.sizes(begins + 1)
    found: Numbers = ~longer & (said == zigzag) & (ends == begins + heads)
    return found

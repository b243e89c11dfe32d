"""Binlogs: payloads into all that walks them without the parser, beside the parser."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

from google.protobuf.message import DecodeError

from drainer.formats.relay_payload import in_memory
from drainer.reading.archive.columns.binlog_arrays import binlog_rows
from drainer.stream.pull import large_txn
from drainer.stream.pull.merged import Spilled
from drainer.stream.translate.row_filter import row_events
from drainer.txn import TableVersion, Transaction
from pump.log import record_scan
from pump.write import write_request
from tests.common.rowcodec.tables import key, kind, table
from tests.drainer.support import recorded
from tests.fuzz.campaign import ending
from tidb_binlog import binlog
from tidb_binlog.errors import Corruption, Rejected
from tidb_binlog.record import encode_value
from tidb_binlog.wire import binlog_pb2, pump_pb2

INFO = table(("id", key("bigint")), ("v", kind("varchar")))
PAYLOAD_BYTES_MAX = 2048
TS = 99
LARGE_FIELD = b"\x7a\x80\x80\x40" + bytes(write_request.WALK_BYTES_MIN)
Row = tuple[int, int, int, bytes]
"""Table id, kind, ordinal, row."""


@cache
def payloads() -> tuple[bytes, ...]:
    """As pumps have delivered them, of each scenario some."""
    found: list[bytes] = []
    for scenario in ("basic", "ddl", "keys", "txn", "types"):
        entries = [one.payload for one in recorded.pulled(scenario) if len(one.payload) < PAYLOAD_BYTES_MAX]
        found += random.Random(1).sample(entries, 12)
    return tuple(found)


@cache
def _table(table_id: int) -> TableVersion:
    return TableVersion(replace(INFO, id=table_id), "shop", "t", 1)


def walked(payload: bytes) -> list[Row]:
    """The rows of a payload that is on disk."""
    read = in_memory(payload)
    outline = large_txn.outline(read, len(payload))
    assert outline.value is None or sum(outline.value) <= len(payload)
    spilled = Spilled(TS, 1, len(payload), 0, 0, read)
    pieces = list(large_txn.pieces(spilled, lambda table_id, *_: _table(table_id), rows_max=3, bytes_max=50))
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    return [row for piece in pieces for row in rows_of(piece)]


def rows_of(piece: Transaction) -> list[Row]:
    return [
        (events.table.info.id, kind, events.first_ordinal + place, row)
        for events in piece.tables
        for place, (kind, row) in enumerate(zip(events.kinds, events.rows, strict=True))
    ]


def parsed(payload: bytes) -> list[Row]:
    """The same by the parser."""
    message = binlog_pb2.Binlog.FromString(payload)
    rows: list[Row] = []
    for mutation in binlog_pb2.PrewriteValue.FromString(message.prewrite_value).mutations:
        kinds, images = row_events(mutation, mutation.sequence[:], TS)
        rows += [
            (mutation.table_id, kind, len(rows) + place, image)
            for place, (kind, image) in enumerate(zip(kinds, images, strict=True))
        ]
    return rows


def is_encoded(payload: bytes) -> bool:
    """Whether an encoder may have written it: each field once, in order."""
    value = binlog.parse(payload).prewrite_value
    return binlog_pb2.PrewriteValue.FromString(value).SerializeToString() == value


def into_walk(octets: bytes, rng: random.Random) -> str:
    """A walk may refuse more than the parser does, and never gives other rows."""
    try:
        rows, end = walked(octets), "rows"
    except Corruption as error:
        return ending(error)
    try:
        assert rows == parsed(octets)
    except (DecodeError, Corruption):
        end = "rows, but not for the parser"
    else:
        tables = {row[0] for row in rows} if is_encoded(octets) else set()
        for chosen in ({*list(tables)[:1], 1 << 40}, {1 << 40}):
            stored = binlog.touches_stored(chosen, in_memory(octets), 0, len(octets))
            assert bool(chosen & tables) <= binlog.touches(chosen, octets)
            assert bool(chosen & tables) <= stored
    if (arrays := binlog_rows([octets])) is not None:
        places = zip(arrays.spans.begin, arrays.spans.end, strict=True)
        images = [bytes(arrays.spans.buffer.bytes[begin:stop]) for begin, stop in places]
        numbers = (each.tolist() for each in (arrays.table, arrays.kind, arrays.ordinal))
        assert [*zip(*numbers, images, strict=True)] == rows
        end = "rows, in arrays too"
    return end


def into_store(octets: bytes, rng: random.Random) -> str:
    """What a pump does with a payload that it is sent."""
    request = pump_pb2.WriteBinlogsReq(cluster_id=1, payloads=[octets, octets]).SerializeToString()
    assert write_request.read_many(request) == (1, [octets, octets])
    heads = write_request.heads_if_all_stored(request, 2)
    try:
        payload, head = write_request.stored_form(octets)
        message = binlog.parse(octets)
    except Rejected as error:
        assert heads is None
        return ending(error)
    assert head == (message.tp, message.start_ts, message.commit_ts)
    assert write_request.stored_form(payload) == (payload, head)
    assert heads in (None, [head] * 2)
    assert heads is None or payload == octets
    message.ClearField("settled")
    assert binlog.parse(payload) == binlog.parse(binlog.canonical(message))
    assert binlog.canonical_header(payload) in (None, head)
    assert binlog.leading_header(payload[:40]) == head
    assert binlog.key_bytes(payload) >= len(message.prewrite_key)
    whole = binlog.parse(binlog.join(payload, binlog.commit(5, 7, b"key")))
    assert (whole.start_ts, whole.commit_ts, whole.prewrite_key) == (5, 7, b"key")
    assert (whole.prewrite_value, whole.ddl_query) == (message.prewrite_value, message.ddl_query)
    record = encode_value(payload)
    scanned = record_scan.scan(record, 0, 0, len(record))
    assert scanned.after == len(record)
    assert scanned.records[0][:3] == head
    return f"stored, type {message.tp}"


def into_requests(octets: bytes, rng: random.Random) -> str:
    """Requests: a large one is walked, and never gives anything else than the parser does."""
    try:
        parsed_request = write_request.read_many(octets)
    except Rejected as error:
        return ending(error)
    try:
        assert write_request.read_many(octets + LARGE_FIELD) == parsed_request
    except Rejected as error:
        return f"parsed, but {ending(error)}"
    return f"{min(len(parsed_request[1]), 4)} payloads"


def requests() -> list[bytes]:
    made = [pump_pb2.WriteBinlogsReq(cluster_id=1, payloads=payloads()[at : at + 2]) for at in (0, 20, 40)]
    return [one.SerializeToString() for one in made]

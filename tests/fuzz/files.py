"""Files: records of relay logs and of archives, mutated inside: their checksums are right."""

from __future__ import annotations

import gzip
import os
import random
import re
from collections.abc import Sequence
from functools import cache
from typing import Final

from drainer.formats import binlog_file
from drainer.formats.binlog_directory import BinlogFile
from drainer.formats.obinlog.writer import ObinlogWriter
from drainer.formats.pb import PbEncoder
from drainer.formats.relay_payload import PayloadWriter, in_memory
from drainer.formats.segment_index import SegmentIndex
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.pb_walk import PbWalker
from drainer.reading.archive.files import payload as payloads
from drainer.reading.archive.files.framing import file_records
from drainer.relay.record_readers import RecordReaders
from drainer.reparo.viewing import lines_of_rows
from drainer.sink.file.segments import add_record
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from drainer.txn import Ddl, Item, Transaction
from tests.drainer.support import recorded
from tests.fuzz.campaign import ending
from tidb_binlog.errors import ConfigError, Corruption
from tidb_binlog.record import FILE_HEADER_SIZE, FILE_OVERHEAD, encode_file
from tidb_binlog.wire import pb_binlog_pb2

PAYLOAD_BYTES_MAX = 4096
_NAMED: Final = re.compile(r"column .* of an archived row of .*(?= (?:has no type|cannot be read))", re.S)
"""Names are mutated, too: with them each error would be another end."""


@cache
def items() -> tuple[Item, ...]:
    """Of some scenarios, with what pumps sent: rows of every type, DDL."""
    found: list[Item] = []
    for scenario in ("types", "ddl"):
        translator = Translator(SchemaTracker.from_history([], finished_ts=0), Rules())
        each = [translator.translate(entry) for entry in recorded.merged(scenario)]
        kept = [one for one in each if one is not None and (isinstance(one, Ddl) or one.tables)]
        found += random.Random(1).sample(kept, 25)
    return tuple(found)


@cache
def go_records() -> tuple[bytes, ...]:
    """Of the Go drainer: its relay log and its archive."""
    found: list[bytes] = []
    for kind in ("relay", "events"):
        for path in sorted((recorded.ROOT / "types" / kind).glob("binlog-*.gz")):
            each = [record for _, record in file_records(in_memory(gzip.decompress(path.read_bytes())))]
            found += random.Random(1).sample(each, 12)
    return tuple(found)


def records(encoders: Sequence[PayloadWriter | ObinlogWriter | PbEncoder]) -> list[bytes]:
    made = [
        encoder.ddl(item, item.query) if isinstance(item, Ddl) else encoder.transaction(item)
        for item in items()
        for encoder in encoders
        if not encoder.begin_file()  # type: ignore[func-returns-value]
    ]
    return [record for record in (*made, *go_records()) if len(record) < PAYLOAD_BYTES_MAX]


def relay_records() -> list[bytes]:
    return records([PayloadWriter(), ObinlogWriter()])


def archive_records() -> list[bytes]:
    return records([PbEncoder()])


def into_relay(octets: bytes, rng: random.Random) -> str:
    """A record by itself. In pieces it is what it is as a whole."""
    read, size = in_memory(octets), len(octets)
    try:
        commit_ts, reader = RecordReaders().of(read, size)
        if reader.is_ddl(read, size):
            return "a DDL" if isinstance(reader.item(read, size), Ddl) else "no DDL"
        whole = reader.item(read, size)
        pieces = list(reader.pieces(read, size))
    except (Corruption, ConfigError) as error:
        return ending(error)
    assert isinstance(whole, Transaction)
    assert {piece.commit_ts for piece in (whole, *pieces)} == {commit_ts}
    assert rows_of([whole]) == rows_of(pieces)
    return "rows"


def rows_of(pieces: Sequence[Transaction]) -> list[tuple[int, bytes]]:
    return [
        pair
        for piece in pieces
        for events in piece.tables
        for pair in zip(events.kinds, events.rows, strict=True)
    ]


def is_encoded(octets: bytes) -> bool:
    """Whether an encoder may have written it: each field once, in order."""
    return pb_binlog_pb2.Binlog.FromString(octets).SerializeToString() == octets


def indexed(octets: bytes) -> SegmentIndex:
    """As a Drainer that starts again reads a record of its own."""
    index, descriptor = SegmentIndex(), os.memfd_create("record")
    try:
        os.write(descriptor, encode_file(octets))
        file = BinlogFile("record", 1, descriptor, len(octets) + FILE_OVERHEAD)
        add_record(index, file, binlog_file.Place(FILE_HEADER_SIZE, len(octets)))
    finally:
        os.close(descriptor)
    return index


def into_archive(octets: bytes, rng: random.Random) -> str:
    """A record by itself. Its rows are counted as they are read, and read alike the second time, by what was
    learned from the first."""
    try:
        body = payloads.body(octets)
        kind = payloads.kind_of(octets)
        counts = payloads.Counts()
        head = payloads.HEADS[kind](octets, 0, counts)
        assert (head.commit_ts, head.size, head.is_ddl) == (
            body.commit_ts,
            len(octets),
            body.tag == payloads.DDL,
        )
        if body.tag == payloads.DDL or kind != payloads.PB:
            return f"{kind}, {body.tag}"
        lines_of_rows(octets, lambda *_: True)
        index = indexed(octets)
        walker = PbWalker(Definitions())
        rows = walker.rows(octets, body.commit_ts)
        again = walker.rows(octets, body.commit_ts)  # by what was learned: which numbers have no sign
        assert [[row[1] for row in run] for _, run in again] == [[row[1] for row in run] for _, run in rows]
        assert walker.rows(octets, body.commit_ts) == again
    except (Corruption, ConfigError) as error:
        return ending(type(error)(_NAMED.sub("a column of a row", error.message)))
    assert sum(len(run) for _, run in rows) == head.rows == sum(map(sum, counts.values()))
    named = {payloads.table_name(name): kinds for name, kinds in counts.items()}
    assert index.rows == named or not is_encoded(octets)  # of two names the parser takes the last
    assert SegmentIndex.from_json(index.to_json()) == index
    return "rows"

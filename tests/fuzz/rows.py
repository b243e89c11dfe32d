"""Rows and header blocks: octets into the row codec and into HPACK, beside a second reader of each."""

from __future__ import annotations

import random

import hpack as oracle

from tests.common.door.support.door_recordings import Client
from tests.common.rowcodec.agreeing import CLUSTERED, HIDDEN, PLANS, WIDE, outcomes_agree
from tests.fuzz.campaign import ending
from tests.fuzz.octets import any_of, below
from tidb_binlog.http2 import hpack
from tidb_binlog.rowcodec.encoder import UnwritableValue
from tidb_binlog.rowcodec.row_error import RowError

TABLES = (WIDE, WIDE, CLUSTERED, HIDDEN)
LIST_BYTES_MAX = 5000


def rows() -> list[bytes]:
    """With values of every type, with none, as every image."""
    full = (1, 2, "text", b"raw", "1.50", 1.5, 2.5, "2020-01-02 03:04:05.678", "2020-01-02",
            "01:02:03.456789", 2020, "a", "p,q", 5, '{"a": [1, true, "x", null, 1.5], "b": {}}')  # fmt: skip
    bare = (-(1 << 63), (1 << 64) - 1, "", *[None] * 3, 0.0, None, "1000-01-01", *[None] * 6)
    pairs = {
        WIDE: (full, bare),
        CLUSTERED: (("a", "b", "01:02:03", 7),) * 2,
        HIDDEN: ((1, "x"), (None, None)),
    }
    found = []
    for info, (one, other) in pairs.items():
        encoder = PLANS[info.columns][2]
        found += [encoder.insert(one, 9), encoder.delete(one, 9), encoder.update(one, other, 9)]
    return found


def into_rows(octets: bytes, rng: random.Random) -> str:
    plan, sql, encoder = PLANS[any_of(rng, TABLES).columns]
    is_row = outcomes_agree(plan, sql, octets)
    try:
        # A DECIMAL may come with other digits than its column's, and JSON with texts that are not UTF-8.
        written = plan.decode_delete(encoder.delete(plan.decode_delete(octets), 9))
        assert repr(plan.decode_delete(encoder.delete(written, 9))) == repr(written)
    except (RowError, UnwritableValue) as error:
        return f"{is_row}, {ending(error)}"
    return "written again"


def blocks() -> list[bytes]:
    """Blocks of one connection, each after its size."""
    found = []
    for huffman in (False, True):
        client, octets = Client(huffman=huffman), b""
        for number in range(4):
            fields = [
                (b":path", b"/binlog.Pump/%d" % number),
                (b"te", b"trailers"),
                (b"x-%d" % number, b"v" * 40),
            ]
            block = client.block((b":method", b"POST"), *fields)
            octets += bytes((len(block),)) + block
        found.append(octets)
    return [*found, b"\x03\x3f\xe1\x1f" + found[0], hpack.integer(1 << 20, 7)]


def into_hpack(octets: bytes, rng: random.Random) -> str:
    """All blocks of a connection. What comes out is what another decoder gives, and reads again."""
    ours = hpack.Decoder(lambda name, value: None, list_bytes_max=LIST_BYTES_MAX, fields_max=1 << 20)
    theirs = oracle.Decoder(max_header_list_size=1 << 30)
    again = hpack.Decoder(lambda name, value: None, list_bytes_max=LIST_BYTES_MAX, fields_max=1 << 20)
    at = number = 0
    while at < len(octets):
        size = octets[at] if rng.random() < 0.9 else below(rng, len(octets))
        block, at = octets[at + 1 : at + 1 + size], at + 1 + size
        number += 1
        try:
            fields = [entry[:2] for entry in ours.decode(block)]
        except (hpack.CompressionError, hpack.ListTooLarge) as error:
            return f"block {min(number, 3)}: {ending(error)}"
        assert [(*field,) for field in theirs.decode(block, raw=True)] == fields
        coded = b"".join((hpack.insert, hpack.literal)[below(rng, 2)](*field) for field in fields)
        assert [entry[:2] for entry in again.decode(coded)] == fields
    return f"{min(number, 9)} blocks"

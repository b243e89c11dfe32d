"""A position is read as it was written, and nothing else is taken for one."""

from __future__ import annotations

import base64
import random

import pytest

from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.literal.quoting import quote_bytes, text_literal
from drainer.points.rows.snapshot_position import SnapshotPosition
from tests.cases import case
from tidb_binlog.errors import ConfigError


def test_it_is_read_as_it_was_written() -> None:
    chance = random.Random(31)
    for _ in range(200):
        literal = text_literal(bytes(chance.randrange(256) for _ in range(chance.randrange(1, 40))))
        quoted = b"'%b'" % quote_bytes(bytes(chance.randrange(256) for _ in range(40)))
        chunk = Chunk(chance.randrange(1 << 20), ("a`:b", "é"), (literal, b"1"), (b"'x'", quoted))
        names = chance.randrange(1 << 32)
        position = SnapshotPosition(
            chance.randrange(1 << 62), chance.randrange(1 << 40), "s:h.o", chunk.stored(), names
        )
        again = SnapshotPosition.of(position.text())
        assert again == position
        assert Chunk.of_stored(again.chunk) == chunk


def test_beginning_and_end() -> None:
    assert SnapshotPosition.of(SnapshotPosition(7).text()) == SnapshotPosition(7)
    end = SnapshotPosition.of(SnapshotPosition(7, 12, "a.b", "[]", 5, is_end=True).text())
    assert (end.ts, end.rows, end.is_end) == (7, 12, True)


def place(document: str) -> str:
    return base64.urlsafe_b64encode(document.encode()).decode()


REFUSED = [
    *("", "snapshot:", "snapshot:1:2", "snapshot:a:0:end", "snapshot:1:2:!!", "snapshot:1:2:e30=", "7"),
    *("other:1:2:end", "snapshot:-1:0:begin", "snapshot:1:-2:end", "snapshot:0:0:end", "snapshot: 1:0:begin"),
    "snapshot:0:2:" + place('["a.b", "[]", 5]'),  # of no timestamp: rows of a new one would be passed over
    "snapshot:1:2:" + place('["a.b", "[]", 5]') + "!",
    "snapshot:1:2:" + place('["a.b", "[]", Infinity]'),
    "snapshot:1:2:" + place("[" * 100_000),
]


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_what_is_none_is_refused(text: str) -> None:
    with case(text[:80]), pytest.raises(ConfigError, match="no position of a snapshot"):
        SnapshotPosition.of(text)

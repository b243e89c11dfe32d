"""gRPC's message framing and its gzip (P): cuts, claims, bombs."""

from __future__ import annotations

import gzip
import random
import time
import tracemalloc
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.common.door.support.model import prefixed
from tidb_binlog.rpc.message_framing import (
    INFLATE_STEP_BYTES,
    RATIO_FREE_BYTES,
    VIEW_BYTES,
    Inflater,
    Message,
    MessageReader,
    deflate,
)
from tidb_binlog.rpc.service import INTERNAL, RESOURCE_EXHAUSTED, RpcStatus

MAX = 1 << 30


def fed(octets: bytes, cuts: list[int], bytes_max: int = MAX) -> list[Message]:
    reader = MessageReader(bytes_max)
    found: list[Message] = []
    edges = [0, *sorted(cuts), len(octets)]
    for start, stop in pairwise(edges):
        found += reader.feed(octets, start, stop)
    assert not reader.inside
    assert reader.held == 0
    return found


@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=40)), max_size=6), st.data())
def test_messages_are_the_same_however_they_are_cut(
    sent: list[tuple[bool, bytes]], draw: st.DataObject
) -> None:
    octets = b"".join(prefixed(body, int(flag)) for flag, body in sent)
    cuts = draw.draw(st.lists(st.integers(0, len(octets)), max_size=12))
    assert fed(octets, cuts) == [(int(flag), body) for flag, body in sent]


def test_every_split_of_three_messages() -> None:
    octets = prefixed(b"one") + prefixed(b"") + prefixed(b"three")
    for first in range(len(octets) + 1):
        for second in range(first, len(octets) + 1):
            assert fed(octets, [first, second]) == [(0, b"one"), (0, b""), (0, b"three")]


def test_what_is_inside_and_what_is_left() -> None:
    reader = MessageReader(MAX)
    octets = prefixed(b"abcdef")
    for stop, inside, left, held in ((1, True, 0, 0), (4, True, 0, 0), (5, True, 6, 0), (7, True, 4, 2)):
        reader.feed(octets, reader_at(reader), stop)
        assert (reader.inside, reader.left, reader.held) == (inside, left, held), stop
    assert reader.feed(octets, 7, 11) == [(0, b"abcdef")]
    assert (reader.inside, reader.left, reader.held) == (False, 0, 0)


def reader_at(reader: MessageReader) -> int:
    return len(reader._prefix) if not reader.left else 11 - reader.left


def test_a_large_message_is_handed_on_as_a_view() -> None:
    body = bytes(range(256)) * (VIEW_BYTES // 256)
    (flag, message), *_ = fed(prefixed(body), [10])
    assert (flag, type(message)) == (0, memoryview)
    assert message == body
    assert type(fed(prefixed(body[1:]), [10])[0][1]) is bytes


@pytest.mark.parametrize("flag", [2, 3, 128, 255])
def test_a_flag_that_is_not_known(flag: int) -> None:
    with pytest.raises(RpcStatus, match=f"message flag {flag} is not known") as caught:
        MessageReader(MAX).feed(prefixed(b"", flag), 0, 5)
    assert caught.value.code == INTERNAL


def test_a_message_that_is_too_large_is_refused_from_its_prefix() -> None:
    assert fed(prefixed(bytes(100)), [], bytes_max=100) == [(0, bytes(100))]
    with pytest.raises(RpcStatus) as caught:
        MessageReader(100).feed(prefixed(bytes(101)), 0, 5)
    assert caught.value.code == RESOURCE_EXHAUSTED
    assert str(caught.value) == "grpc: received message larger than max (101 vs. 100)"  # Go's words


def test_a_claim_allocates_nothing() -> None:
    claim = b"\x00\x40\x00\x00\x00x"  # 1 GiB
    tracemalloc.start()
    try:
        readers = [MessageReader(MAX) for _ in range(1000)]
        for reader in readers:
            reader.feed(claim, 0, len(claim))
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()
    assert all(reader.left == MAX - 1 for reader in readers)


# -- gzip --------------------------------------------------------------------------------------------


def unpacked(packed: bytes, bytes_max: int = MAX, ratio_max: int = 200) -> bytes | memoryview:
    inflater = Inflater(packed, bytes_max, ratio_max)
    while not inflater.step():
        pass
    return inflater.result()


@given(st.binary(max_size=2000))
def test_gzip_there_and_back(body: bytes) -> None:
    assert unpacked(gzip.compress(body)) == body
    assert gzip.decompress(deflate(body)) == body


def test_gzip_is_unpacked_in_steps() -> None:
    body = bytes(3 * INFLATE_STEP_BYTES)
    inflater = Inflater(gzip.compress(body), MAX, 100_000)
    steps = 1
    while not inflater.step():
        steps += 1
    assert steps in (3, 4)
    assert inflater.result() == body
    assert type(inflater.result()) is memoryview


@pytest.mark.parametrize(
    ("packed", "text"),
    [
        (b"", "ends early"),
        (gzip.compress(b"abc", mtime=0)[:-1], "ends early"),
        (gzip.compress(b"abc", mtime=0)[:5], "ends early"),
        (b"not gzip", "cannot be unpacked"),
        (zlib.compress(b"abc"), "cannot be unpacked"),
        (gzip.compress(b"abc", mtime=0)[:-8] + bytes(8), "cannot be unpacked"),
        (gzip.compress(bytes(5000), mtime=0)[:20], "ends early"),
        (gzip.compress(b"abc", mtime=0) + b"x", "octets after"),
        (gzip.compress(b"abc", mtime=0) + gzip.compress(b"def", mtime=0), "octets after"),
    ],
)
def test_gzip_that_is_broken(packed: bytes, text: str) -> None:
    with pytest.raises(RpcStatus, match=text) as caught:
        unpacked(packed)
    assert caught.value.code == INTERNAL


def test_gzip_above_the_limit_of_messages() -> None:
    packed = gzip.compress(bytes(1000))
    assert unpacked(packed, bytes_max=1000) == bytes(1000)
    with pytest.raises(RpcStatus, match=r"larger than max \(1000 vs. 999\)") as caught:
        unpacked(packed, bytes_max=999)
    assert caught.value.code == RESOURCE_EXHAUSTED


def test_gzip_above_the_ratio() -> None:
    """Free up to 4 MiB, then so many times its size."""
    size = RATIO_FREE_BYTES
    assert len(unpacked(gzip.compress(bytes(size)), ratio_max=1)) == size
    packed = gzip.compress(bytes(size + 1))
    with pytest.raises(RpcStatus, match=f"vs. {size}"):
        unpacked(packed, ratio_max=1)
    enough = -(-(size + 1) // len(packed))
    assert len(unpacked(packed, ratio_max=enough)) == size + 1
    with pytest.raises(RpcStatus):
        unpacked(packed, ratio_max=(size + 1) // len(packed) - 1)


def test_a_bomb_is_stopped_early() -> None:
    """64 MiB in 65 KB; the ratio allows 200 times its size, the limit here 4 MiB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = bytes(1 << 20)
    bomb = b"".join(packer.compress(block) for _ in range(64)) + packer.flush()
    tracemalloc.start()
    began_s = time.process_time()
    try:
        with pytest.raises(RpcStatus) as caught:
            unpacked(bomb, bytes_max=4 << 20)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert caught.value.code == RESOURCE_EXHAUSTED
    assert time.process_time() - began_s < 1.0


def test_packed_messages_of_many_pieces() -> None:
    """What does not shrink is fed piece by piece; what follows its end is found in later pieces too."""
    message = random.Random(1).randbytes(1 << 20)
    packed = gzip.compress(message, 1)
    assert len(packed) > 10 << 16
    assert unpacked(packed) == message
    for after in (b"x", bytes(1 << 17)):
        with pytest.raises(RpcStatus, match="after the end"):
            unpacked(packed + after)
    with pytest.raises(RpcStatus, match="ends early"):
        unpacked(packed[:-1])


def test_what_ends_with_a_step_is_whole() -> None:
    for size in (INFLATE_STEP_BYTES - 1, INFLATE_STEP_BYTES, INFLATE_STEP_BYTES + 1, 3 * INFLATE_STEP_BYTES):
        assert unpacked(gzip.compress(bytes(size))) == bytes(size)

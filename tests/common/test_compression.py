"""Compression of messages: what goes in comes out, and nothing else, whatever a peer sends."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidb_binlog import compression
from tidb_binlog.compression import GZIP, NAMES, ZSTD, zstd

TEXT = b"a transaction, and another transaction, " * 50


@pytest.mark.parametrize("name", NAMES)
@given(data=st.binary(max_size=3000))
def test_what_goes_in_comes_out(name: str, data: bytes) -> None:
    assert compression.decompress(name, compression.compressor(name)(data), len(data)) == data


@pytest.mark.parametrize("name", NAMES)
@given(data=st.binary(max_size=300), damage=st.data())
def test_a_damaged_frame_is_refused_or_gives_what_went_in(
    name: str, data: bytes, damage: st.DataObject
) -> None:
    """A frame has no checksum of zstd's: what is in it has."""
    frame = compression.compressor(name)(data)
    at = damage.draw(st.integers(0, len(frame) - 1))
    broken = bytearray(frame)
    broken[at] ^= damage.draw(st.integers(1, 255))
    for bad in (bytes(broken), frame[:at], frame + b"x", frame + frame):
        try:
            found = compression.decompress(name, bad, len(data))
        except ValueError:
            continue
        assert len(found) == len(data)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [0, 1, len(TEXT) - 1, len(TEXT) + 1])
def test_a_frame_that_holds_more_or_less_than_was_said(name: str, size: int) -> None:
    with pytest.raises(ValueError, match=f"does not hold {size} bytes"):
        compression.decompress(name, compression.compressor(name)(TEXT), size)


def test_a_bomb_is_not_made() -> None:
    """1 GiB of zeros in some KiB: neither what was said nor what the frame says is made."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join([packer.compress(bytes(1 << 20)) for _ in range(64)]) + packer.flush()
    with pytest.raises(ValueError, match="does not hold 1000 bytes"):
        compression.decompress(GZIP, bomb, 1000)
    streamed = zstd.packer(3)  # does not say how much is in it
    frame = streamed.compress(bytes(1 << 20)) + streamed.flush()
    with pytest.raises(ValueError, match="does not hold 1000 bytes"):
        compression.decompress(ZSTD, frame, 1000)
    lying = bytearray(compression.compressor(ZSTD)(bytes(1000)))
    at = lying.index((1000 - 256).to_bytes(2, "little"))
    lying[at : at + 2] = (2000 - 256).to_bytes(2, "little")
    for size in (1000, 2000):
        with pytest.raises(ValueError):
            compression.decompress(ZSTD, bytes(lying), size)


def test_the_first_of_a_peers_names_that_is_known_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compression.available() == (ZSTD, GZIP)
    assert [compression.choose(taken) for taken in ((), ("lz4",), ("lz4", "gzip", "zstd"), ("zstd",))] == [
        "",
        "",
        GZIP,
        ZSTD,
    ]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert (compression.choose(("zstd", "gzip")), compression.choose(("zstd",))) == (GZIP, "")


def test_what_this_host_has_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many names a peer sends: the lookup goes to the file system, and the others of a node wait."""
    looks: list[None] = []

    def look() -> tuple[str, ...]:
        looks.append(None)
        return NAMES

    monkeypatch.setattr(compression, "available", look)
    assert compression.choose(["a"] * 1000 + [GZIP]) == GZIP
    assert len(looks) == 1

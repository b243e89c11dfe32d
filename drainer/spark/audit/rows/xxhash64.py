"""xxhash64: the hash that Spark's function of this name gives, of many rows at once.

In     keys and rows, bytes
Out    one number of 64 bits for each pair, as an array
Why    checksums of audits are compared over time, and were Spark's own. In plain Python a row would cost more
       to hash than to compare; here an array holds all rows, the longest first, and each step is done for as
       many of them as are long enough (XXH64: github.com/Cyan4973/xxHash, doc/xxhash_spec.md)
Tests  tests/spark/audit/rows/test_xxhash64.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.uint64]

SEED: Final = 42
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_WORD: Final = 8
_STRIPE: Final = 32
_BATCH: Final = 8192


def of_keys(keys: Sequence[bytes]) -> Numbers:
    """`xxhash64(key)`."""
    return _in_batches(keys, np.full(len(keys), SEED, np.uint64))


def of_rows(keys: Sequence[bytes], rows: Sequence[bytes]) -> Numbers:
    """`xxhash64(key, row)`: the hash of one is the seed of the next."""
    return _in_batches(rows, of_keys(keys))


def _in_batches(values: Sequence[bytes], seeds: Numbers) -> Numbers:
    parts = [
        _hashes(values[start : start + _BATCH], seeds[start : start + _BATCH])
        for start in range(0, len(values), _BATCH)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def _hashes(values: Sequence[bytes], seeds: Numbers) -> Numbers:
    sizes = np.fromiter(map(len, values), np.int64, len(values))
    order = np.argsort(-sizes, kind="stable")
    sizes, seeds = sizes[order], seeds[order]
    padded = b"".join([values[at] + bytes(-len(values[at]) % _WORD) for at in order.tolist()])
    words: Numbers = np.frombuffer(padded, "<u8")
    counts = -(-sizes // _WORD)
    at = np.cumsum(counts) - counts
    hashes = seeds + _P5
    stripes = sizes // _STRIPE
    if longer := int(np.count_nonzero(stripes)):
        hashes[:longer] = _of_stripes(words, at[:longer], stripes[:longer], seeds[:longer])
    hashes += sizes.astype(np.uint64)
    at, rest = at + stripes * (_STRIPE // _WORD), sizes % _STRIPE
    for _ in range(3):
        some = np.flatnonzero(rest >= _WORD)
        hashes[some] ^= _round(np.zeros(len(some), np.uint64), words[at[some]])
        hashes[some] = _turned(hashes[some], 27) * _P1 + _P4
        at[some] += 1
        rest[some] -= _WORD
    last = np.zeros(len(hashes), np.uint64)
    left = np.flatnonzero(rest)
    last[left] = words[at[left]]
    some = np.flatnonzero(rest >= 4)
    hashes[some] ^= (last[some] & np.uint64(0xFFFFFFFF)) * _P1
    hashes[some] = _turned(hashes[some], 23) * _P2 + _P3
    last[some] >>= np.uint64(32)
    rest[some] -= 4
    for byte in range(3):
        some = np.flatnonzero(rest > byte)
        hashes[some] ^= (last[some] >> np.uint64(8 * byte) & np.uint64(0xFF)) * _P5
        hashes[some] = _turned(hashes[some], 11) * _P1
    hashes = _mixed(hashes)
    in_order = np.empty_like(hashes)
    in_order[order] = hashes
    return in_order


def _of_stripes(words: Numbers, at: Any, stripes: Any, seeds: Numbers) -> Numbers:
    """Of values of 32 bytes and more, the longest first: four lanes, put together."""
    lanes = [seeds + _P1 + _P2, seeds + _P2, seeds.copy(), seeds - _P1]
    for number in range(int(stripes[0])):
        some = int(np.searchsorted(-stripes, -number))
        for lane, values in enumerate(lanes):
            values[:some] = _round(values[:some], words[at[:some] + (4 * number + lane)])
    hashes = _turned(lanes[0], 1) + _turned(lanes[1], 7) + _turned(lanes[2], 12) + _turned(lanes[3], 18)
    for values in lanes:
        hashes = (hashes ^ _round(np.zeros(len(values), np.uint64), values)) * _P1 + _P4
    return hashes


def _round(values: Numbers, words: Numbers) -> Numbers:
    return _turned(values + words * _P2, 31) * _P1


def _turned(values: Numbers, bits: int) -> Numbers:
    """To the left."""
    return values << np.uint64(bits) | values >> np.uint64(64 - bits)


def _mixed(values: Numbers) -> Numbers:
    values = (values ^ values >> np.uint64(33)) * _P2
    values = (values ^ values >> np.uint64(29)) * _P3
    return values ^ values >> np.uint64(32)

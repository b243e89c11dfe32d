"""Times by seconds and fractions apart: what the plain text is, and no bytes that are no time."""

from __future__ import annotations

from random import Random

import pytest

from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.rowcodec.temporal import date_text, datetime_text, fraction_text, pack_datetime
from tidb_binlog.rowcodec.time_caches import CACHE_MAX, Fractions, Seconds, Times
from tidb_binlog.rowcodec.varint import put_uvarint, uvarint

SECONDS = Seconds(lambda packed: datetime_text(packed, 0))
REFUSED = (KeyError, ValueError, IndexError, RowError)


def random_time(chance: Random) -> int:
    day = f"{chance.randrange(100, 10000):04}-{chance.randrange(13):02}-{chance.randrange(32):02}"
    clock = f"{chance.randrange(24)}:{chance.randrange(60)}:{chance.randrange(60)}"
    micro = chance.choice((0, 1, 999_999, 120_000, chance.randrange(1_000_000)))
    return pack_datetime(f"{day} {clock}.{micro:06}")


@pytest.mark.parametrize("fsp", range(7))
def test_both_parts_are_the_plain_text(fsp: int) -> None:
    chance = Random(fsp)
    fractions = Fractions(lambda micro: fraction_text(micro, fsp))
    for _ in range(300):
        packed = random_time(chance)
        t = put_uvarint(packed)
        assert len(t) == 9
        for _ in range(2):  # made, and found again
            assert SECONDS[t[3:]] + fractions[t[:3]] == datetime_text(packed, fsp)


def test_bytes_that_are_no_time_are_refused_as_the_plain_form_does() -> None:
    """Nine bytes with any of them changed: the same text, or refused by both."""
    chance = Random(7)
    fractions = Fractions(lambda micro: fraction_text(micro, 6))
    times, days = Times(lambda packed: datetime_text(packed, 6)), Times(date_text)
    refused = 0
    for _ in range(2000):
        raw = bytearray(put_uvarint(random_time(chance)))
        raw[chance.randrange(9)] = chance.randrange(256)
        t = bytes(raw)
        try:
            packed, end = uvarint(t, 0)
            plain = datetime_text(packed, 6) if end == 9 else None
        except REFUSED:
            plain = None
        if plain is not None:
            assert SECONDS[t[3:]] + fractions[t[:3]] == times[t] == plain
            assert days[t] == plain[:10]
            continue
        refused += 1
        with pytest.raises(REFUSED):
            times[t]
        with pytest.raises(REFUSED):
            SECONDS[t[3:]] + fractions[t[:3]]
    assert refused > 500


def test_caches_have_a_bound() -> None:
    seconds = Seconds(lambda packed: packed)
    fractions = Fractions(lambda micro: micro)
    times = Times(lambda packed: packed)
    base = pack_datetime("2026-01-02 03:04:05")
    for number in range(CACHE_MAX + 10):
        t = put_uvarint(base + number)
        assert fractions[t[:3]] == number
        assert times[t] == base + number
        other = put_uvarint(base + (number << 24))
        assert seconds[other[3:]] == base + (number << 24)
    assert len(times) <= CACHE_MAX
    assert len(seconds) <= CACHE_MAX
    assert len(fractions) < CACHE_MAX


def test_the_upper_bits_of_a_fraction_are_no_seconds() -> None:
    """Whoever shows seconds may rely on it."""
    seconds = Seconds(lambda packed: packed)
    packed = pack_datetime("2026-01-02 03:04:05")
    for bit in (21, 22, 23):
        with pytest.raises(KeyError):
            seconds[put_uvarint(packed | 1 << bit)[3:]]
    assert seconds[put_uvarint(packed | 1 << 20)[3:]] == packed

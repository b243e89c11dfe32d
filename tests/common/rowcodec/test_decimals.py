"""DECIMAL by a function a precision: the plain texts, and refused what the plain reader refuses."""

from __future__ import annotations

import struct
from random import Random

import pytest

from tests.common.rowcodec.tables import decimal_types
from tidb_binlog.rowcodec.decimals import (
    PRECISION_MAX,
    SCALE_MAX,
    decimal_bytes,
    decimal_str,
    header_of,
    put_decimal,
    read_decimal,
    size_of,
)
from tidb_binlog.rowcodec.row_error import RowError


@pytest.mark.parametrize("negative", ["", "-"])
def test_every_precision_and_scale_gives_the_plain_text(negative: str) -> None:
    chance = Random(1)
    for precision, scale in decimal_types():
        for digits in ("0", "9" * precision, "1", "5" + "0" * (precision - 1), f"{chance.getrandbits(216)}"):
            padded = digits[:precision].rjust(scale + 1, "0")
            text = (
                negative + padded[: len(padded) - scale] + ("." + padded[len(padded) - scale :]) * bool(scale)
            )
            datum = put_decimal(text, precision, scale)
            plain, _ = read_decimal(datum, 0)
            for _ in range(2):  # made, and found again
                assert decimal_str(precision, scale)(datum[3:]) == plain
                assert decimal_bytes(precision, scale)(datum[3:]) == plain.encode()


def test_random_bytes_are_taken_and_refused_alike() -> None:
    chance = Random(2)
    taken = 0
    for precision, scale in decimal_types():
        for _ in range(3):
            # Digits seldom fill their bytes: half of the bytes are 0, as those of small numbers are.
            raw = bytes(chance.choice((0, chance.randrange(256))) for _ in range(size_of(precision, scale)))
            raw = bytes([raw[0] ^ chance.choice((0, 128)), *raw[1:]])
            try:
                plain = read_decimal(header_of(precision, scale) + raw, 0)[0]
                taken += 1
            except RowError:
                with pytest.raises(ValueError):
                    decimal_bytes(precision, scale)(raw)
                continue
            assert decimal_bytes(precision, scale)(raw) == plain.encode()
            with pytest.raises(struct.error):
                decimal_bytes(precision, scale)(raw[:-1])
    assert taken > 100


def test_no_header_stands_for_a_type_that_there_is_not() -> None:
    for precision, scale in ((0, 0), (-1, -1), (10, -1), (PRECISION_MAX + 1, 2), (5, 6), (40, SCALE_MAX + 1)):
        assert header_of(precision, scale) == b""

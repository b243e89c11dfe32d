"""Orders of text: what is equal, what pads, what LIKE takes for a character."""

from __future__ import annotations

import pytest

from drainer.stream.rules.where.text_order import BYTES, ORDERS, like_bytes


@pytest.mark.parametrize(
    ("collation", "left", "right", "order"),
    [
        ("utf8mb4_bin", "a", "A", 1),
        ("utf8mb4_bin", "a", "a  ", 0),
        ("utf8mb4_bin", "a", "a\t", 1),  # the blank that pads is above a tab
        ("utf8mb4_bin", "é", "z", 1),
        ("utf8mb4_0900_bin", "a", "a ", -1),
        ("utf8mb4_general_ci", "Straße", "STRASE", 0),
        ("utf8mb4_general_ci", "é", "E ", 0),
        ("utf8mb4_general_ci", "😀", "😁", 0),
        ("utf8mb4_general_ci", "_", "a", 1),
        ("utf8mb4_unicode_ci", "_", "a", -1),
        ("utf8mb4_unicode_ci", "É", "e", 0),
        ("utf8mb4_unicode_ci", "Straße", "strasse", 0),
        ("utf8mb4_unicode_ci", "a\x01", "A", 0),
        ("utf8mb4_unicode_ci", "a ", "a", 0),
        ("utf8mb4_unicode_ci", "^", "_", -1),
        ("utf8mb4_0900_ai_ci", "^", "_", 1),
        ("utf8mb4_0900_ai_ci", "a ", "a", 1),
        ("utf8mb4_0900_ai_ci", "ÀB", "ab", 0),
    ],
)
def test_two_texts(collation: str, left: str, right: str, order: int) -> None:
    known = ORDERS[collation]
    one, other = known.key(left.encode()), known.key(right.encode())
    assert (known.order(one, other), known.order(other, one)) == (order, -order)
    equal = known.equality_key(left.encode()) == known.equality_key(right.encode())
    assert equal == (order == 0)


def test_like_does_not_pad() -> None:
    like = ORDERS["utf8mb4_general_ci"].like
    assert like("A_c%", "\\")(b"abcdef")
    assert not like("a", "\\")(b"a ")
    assert like("é", "\\")(b"E")
    assert like("a|%", "|")(b"a%")
    assert not like("a|%", "|")(b"ab")
    assert like("a\\", "\\")(b"a\\")  # an escape at the end is itself
    assert like("a\\%", "")(b"a\\b")  # no escape


def test_characters_without_a_weight_are_alike() -> None:
    like = ORDERS["utf8mb4_0900_ai_ci"].like
    assert like("\x0e", "")(b"\x19")
    assert not like("\x0e", "")(b"")


def test_like_of_bytes_counts_bytes() -> None:
    assert like_bytes("__", "\\")("é".encode())
    assert ORDERS["utf8mb4_bin"].like("_", "\\")("é".encode())
    assert BYTES.order(b"a", b"a ") == -1

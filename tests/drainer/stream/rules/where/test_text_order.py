"""Orders of text: what is equal, what pads, what is like a pattern."""

from __future__ import annotations

import pytest

from drainer.stream.rules.where.text_order import BYTES, ORDERS, like


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


@pytest.mark.parametrize(
    ("pattern", "escape", "text", "is_like"),
    [
        ("a_c%", "\\", "abcdef", True),
        ("A_c%", "\\", "abcdef", False),
        ("a", "\\", "a ", False),  # it does not pad
        ("a|%", "|", "a%", True),
        ("a|%", "|", "ab", False),
        ("a\\", "\\", "a\\", True),  # an escape at the end is itself
        ("a\\%", "", "a\\b", True),  # no escape
        ("_", "\\", "é", True),
    ],
)
def test_like(pattern: str, escape: str, text: str, is_like: bool) -> None:
    assert like(pattern, escape, of_bytes=False)(text.encode()) is is_like


def test_like_of_bytes_counts_bytes() -> None:
    assert like("__", "\\", of_bytes=True)("é".encode())
    assert BYTES.order(b"a", b"a ") == -1

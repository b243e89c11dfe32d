"""Names and values between quotes."""

from __future__ import annotations

import pytest

from drainer.mysql.literal.quoting import (
    binary_literal,
    qualified,
    quote_bytes,
    quote_name,
    string_literal,
    text_literal,
)


def test_names() -> None:
    assert quote_name("a`b") == b"`a``b`"
    assert qualified("d`", "tä") == "`d```.`tä`".encode()


@pytest.mark.parametrize(
    ("raw", "quoted"),
    [(b"plain", b"plain"), (b"it's", b"it''s"), (b"a\\'b", b"a\\\\''b"), (b"\0\n", b"\0\n")],
)
def test_quote_and_backslash_are_doubled_and_nothing_else(raw: bytes, quoted: bytes) -> None:
    assert quote_bytes(raw) == quoted
    assert text_literal(raw) == b"'%b'" % quoted
    assert string_literal(raw.decode()) == b"'%b'" % quoted


def test_a_binary_literal_is_hexadecimal_while_short() -> None:
    assert binary_literal(b"\x00\xff") == b"x'00ff'"
    assert binary_literal(b"'" * 256) == b"x'%b'" % (b"27" * 256)
    assert binary_literal(b"'" * 257) == b"_binary'%b'" % (b"''" * 257)


def test_text_that_is_no_utf_8_is_binary() -> None:
    assert text_literal("é".encode()) == "'é'".encode()
    assert text_literal(b"\xff") == b"x'ff'"

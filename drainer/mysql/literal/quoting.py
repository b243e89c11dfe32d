"""Quoting: names and values as SQL for a utf8mb4 session in which a backslash escapes.

A binary literal is hexadecimal while short; a long one is not, because hexadecimal doubles it.
"""

from __future__ import annotations

from typing import Final

_HEX_MAX: Final = 256


def quote_name(name: str) -> bytes:
    """A name between backquotes."""
    return b"`%b`" % name.encode().replace(b"`", b"``")


def qualified(schema: str, table: str) -> bytes:
    return quote_name(schema) + b"." + quote_name(table)


def quote_bytes(raw: bytes) -> bytes:
    """Content of a quoted literal: quote and backslash doubled, nothing else."""
    if 92 in raw:
        raw = raw.replace(b"\\", b"\\\\")
    if 39 in raw:
        raw = raw.replace(b"'", b"''")
    return raw


def binary_literal(raw: bytes) -> bytes:
    if len(raw) <= _HEX_MAX:
        return b"x'%b'" % raw.hex().encode()
    return b"_binary'%b'" % quote_bytes(raw)


def text_literal(raw: bytes) -> bytes:
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError:
            return binary_literal(raw)
    return b"'%b'" % quote_bytes(raw)


def text_is(name: bytes, literal: bytes) -> bytes:
    """True for exactly this text in a column, byte by byte. `name` is quoted, `literal` as `text_literal`
    writes it."""
    # Collations take different texts for equal: compare the bytes, in the connection's character set. Text
    # that is not UTF-8, which a TiDB keeps in latin1, has none there.
    is_text = not literal.startswith((b"x'", b"_binary'"))
    return b"BINARY %b<=>%b" % (b"CONVERT(%b USING utf8mb4)" % name if is_text else name, literal)


def string_literal(text: str) -> bytes:
    return text_literal(text.encode())

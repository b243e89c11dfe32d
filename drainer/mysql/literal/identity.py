"""When are two key values the same? Canonical bytes of raw column values, in two strengths.

*Identity* is exact: equal bytes mean equal values, whatever image they came from. *Normal form* is coarse:
values that the server may take for equal (case, accents, trailing blanks, prefixes) have equal bytes; values
it keeps apart may collide, which costs parallelism and nothing else. The reverse must never happen.

Tests  tests/drainer/mysql/literal/test_plan.py
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from tidb_binlog.table_info import DECIMAL, DOUBLE, FLOAT, STRING, STRING_TYPES, WHOLE_COLUMN, FieldType

Canonical = Callable[[Any], bytes]

# Collations whose equalities are known; any other that is neither *_bin nor binary gets one bucket.
_KNOWN: Final = re.compile(r"utf8(mb3|mb4)?_(general_ci|unicode_ci|0900_ai_ci)|gbk_chinese_ci")
_ONE_BUCKET: Final = b"*"
_LETTER: Final = re.compile(r"LATIN (?:SMALL |CAPITAL )?(?:LETTER |LIGATURE )(.*)")
_NAMED: Final = {"ETH": "d", "THORN": "th", "ENG": "n", "SCHWA": "e", "KRA": "q", "EZH": "z", "ESH": "s"}
_ASCII_IGNORED: Final = bytes([*range(9), *range(14, 32), 127])


def number(value: int) -> bytes:
    return b"%d" % value


def floating(value: float) -> bytes:
    return repr(value + 0.0).encode()  # -0.0 + 0.0 is 0.0


def decimal(text: bytes) -> bytes:
    """1.50 and 1.5 are one number."""
    return text.rstrip(b"0").rstrip(b".") if b"." in text else text


def _char(raw: bytes) -> bytes:
    return raw.rstrip(b" ")


def _as_is(raw: bytes) -> bytes:
    return raw


def identity_of(kind: FieldType) -> Canonical:
    """Exact canonical form of raw values (see `literals`) of a type."""
    if kind.tp in STRING_TYPES:
        return _char if kind.tp == STRING and not kind.is_binary_string else _as_is
    if kind.tp in (FLOAT, DOUBLE):
        return floating
    if kind.tp == DECIMAL:
        return decimal
    return _number_or_text


def _number_or_text(raw: int | bytes) -> bytes:
    return b"%d" % raw if isinstance(raw, int) else raw


@lru_cache(maxsize=4096)
def _letters_of(character: str) -> str:
    """Skeleton of one character: lower-case ASCII letters and digits where they are known, or nothing.

    Only characters that surely equal nothing but their own case stay as they are (basic Greek and Cyrillic,
    unified ideographs). All that may be ignored, expanded or shared (kana, Hangul, signs beyond 16 bits) is
    dropped.
    """
    digit = unicodedata.digit(character, None)
    if digit is not None:
        return str(digit)
    category = unicodedata.category(character)
    if category[0] in "MC":
        return ""
    if character.isascii() or "α" <= character <= "ω" or "а" <= character <= "я":
        return character
    if "\u3400" <= character <= "\u9fff":
        return character
    match = _LETTER.fullmatch(unicodedata.name(character, ""))
    if match is None:
        return ""
    words = match[1].split()
    short = next((word for word in words if len(word) <= 2), "")
    return short.lower() or _NAMED.get(words[0], "")


def _folded(raw: bytes) -> bytes:
    """Normal form under the known case-insensitive collations."""
    if raw.isascii():
        folded = raw.translate(None, _ASCII_IGNORED).lower()
    else:
        text = unicodedata.normalize("NFKD", raw.decode("utf-8", "ignore")).casefold()
        text = unicodedata.normalize("NFKD", text)
        folded = "".join(map(_letters_of, text)).encode()
    while b"ss" in folded:  # sharp s is one s or two, depending on the collation
        folded = folded.replace(b"ss", b"s")
    return folded.rstrip(b" ")


def _bin_prefix(length: int) -> Canonical:
    # The first n characters contain the first n bytes: cutting bytes can only make more values equal.
    return lambda raw: raw[:length].rstrip(b" ")


def _folded_prefix(length: int) -> Canonical:
    return lambda raw: _folded(raw.decode("utf-8", "ignore")[:length].encode())


def normal_form_of(kind: FieldType, length: int) -> Canonical:
    """Coarse canonical form; `length` is the index prefix (characters, or bytes of binary strings), or -1."""
    if kind.tp not in STRING_TYPES:
        return identity_of(kind)
    whole = length == WHOLE_COLUMN
    if kind.is_binary_string:
        return _as_is if whole else lambda raw: raw[:length]
    if kind.collate.endswith("_bin"):
        return _char if whole else _bin_prefix(length)
    if _KNOWN.fullmatch(kind.collate):
        return _folded if whole else _folded_prefix(length)
    return lambda raw: _ONE_BUCKET


def sized(raw: bytes) -> bytes:
    """Self-delimiting form, for keys of several columns."""
    return b"%d:%b" % (len(raw), raw)

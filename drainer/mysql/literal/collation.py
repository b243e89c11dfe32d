"""Collation: which texts the downstream takes for one key, as bytes that decide a lane.

Out    of a text, bytes that are the same for all texts that the collation takes for equal
Holds  texts that the server takes for equal have equal bytes. Texts that differ may have the same ones
       (accents under `as`, case under `cs`, blanks at the end under NO PAD): that costs parallelism, no more
Why    texts are equal only if their weights are, one character's after the other's. So every weight may be
       written as any character, or left out, if that is so wherever it comes from: of a character, an
       expansion ('ﬁ' has those of 'f' and 'i'), a contraction

A contraction is two characters with other weights than one after the other. `general`, `unicode` and
`unicode_520` have none (measured: all pairs that could be one), tailored collations do and are not taken.
`uca1400` and `0900` come from a table that has some: vowels of Thai and Indic scripts, a dot after l, a breve
after и. Weights of all these are left out, and so is every weight that is of no `_CERTAIN` character.

A character that was not asked for is left out. Beyond `ASKED` there are ideographs, whose weights no other
character has, and what is ignored.

Tests  tests/drainer/mysql/literal/test_collation.py, test_collation_mariadb.py
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Final

_PER_CHARACTER: Final = re.compile(
    r"utf8(mb3|mb4)?_("
    r"general(_nopad)?_ci|general_mysql500_ci|unicode(_520)?(_nopad)?_ci"
    r"|uca1400(_nopad)?_a[is]_c[is]|0900_(ai_ci|as_ci|as_cs))"
)
_WITH_CONTRACTIONS: Final = re.compile(r".*_(uca1400|0900)_.*")
_BMP: Final = range(0x10000)
_SURROGATES: Final = range(0xD800, 0xE000)
# The second plane, and ideographs of the third that are others' doubles.
_ABOVE: Final = (range(0x10000, 0x20000), range(0x2F800, 0x2FA20))
# Latin, Greek and Cyrillic, kana, ideographs, Hangul; and what is in a contraction all the same.
_CERTAIN: Final = (
    *(range(0x250), range(0x370, 0x460)),
    *(range(0x3041, 0x3100), range(0x3400, 0xA000), range(0xAC00, 0xD7A4)),
)
_CONTRACTED: Final = "\u00b7\u0387ИЙ"
_FOR_WHAT_IS_FAR: Final = b"\xff\xfd"  # many collations give it to all characters beyond the first plane
_IMPLICIT: Final = 0xFB  # two units of which the first begins so are one weight
_OWN: Final = 0xF0000  # characters for weights that no character has alone


def is_per_character(name: str) -> bool:
    """Whether weights of characters tell which texts a collation takes for equal."""
    return _PER_CHARACTER.fullmatch(name) is not None


def asked(name: str) -> Iterator[str]:
    """The characters whose weights make a `Collation`."""
    ranges = (_BMP, *_ABOVE) if name.startswith("utf8mb4_") else (_BMP,)
    return (chr(code) for codes in ranges for code in codes if code not in _SURROGATES)


class _Characters(dict[int, str]):
    """What stands for a character: itself if it is `plain`, else nothing, unless an entry says otherwise."""

    def __init__(self, plain: tuple[range, ...]) -> None:
        self.plain = plain

    def is_plain(self, code: int) -> bool:
        return any(code in codes for codes in self.plain)

    def __missing__(self, code: int) -> str:
        text = chr(code) if self.is_plain(code) else ""
        if code in _BMP:  # so that there is an end to it
            self[code] = text
        return text


class Collation:
    """`label`: the name, and a digest of what gives a text its bytes."""

    def __init__(self, name: str, weights: Mapping[str, bytes]) -> None:
        """`weights` of all `asked` characters, units of two bytes. `ValueError` if they are no such."""
        sizes = set(map(len, weights.values()))
        if any(size % 2 for size in sizes):
            raise ValueError(f"{name}: weights that are not of two bytes")
        if sizes != {2} and any(len(raw) == 2 and raw[0] == _IMPLICIT for raw in weights.values()):
            raise ValueError(f"{name}: half a weight")
        plain = _CERTAIN if _WITH_CONTRACTIONS.fullmatch(name) else (_BMP,)
        characters = self._characters = _Characters(plain)
        stands = _stands_for(weights, plain)
        for character, raw in weights.items():
            text = stands.get(raw)
            if text is None:
                text = "" if _is_one(raw) else "".join([stands.get(unit, "") for unit in _units(raw)])
            if text != character and (text or characters.is_plain(ord(character))):
                characters[ord(character)] = text
        digest = blake2b(repr((plain, sorted(characters.items()))).encode(), digest_size=8)
        self.label: Final = f"{name} {digest.hexdigest()}"
        ascii_ = [characters[code] for code in range(128)]
        if ascii_[32] != " " or not all(len(text) <= 1 and text.isascii() for text in ascii_):
            raise ValueError(f"{name}: ASCII characters that are not of one weight each")
        self._ascii = "".join(text or "\0" for text in ascii_).encode().ljust(256, b"\0")
        self._ignored = bytes(code for code, text in enumerate(ascii_) if not text)

    def form(self, raw: bytes) -> bytes:
        """Of UTF-8 text: equal where the texts are equal to the server."""
        if raw.isascii():
            return raw.translate(self._ascii, self._ignored).rstrip(b" ")
        return raw.decode("utf-8", "ignore").translate(self._characters).rstrip(" ").encode()


def _is_one(raw: bytes) -> bool:
    """A unit alone, or a pair that is one weight."""
    return len(raw) == 2 or (len(raw) == 4 and raw[0] == _IMPLICIT)


def _units(raw: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(raw):
        size = 4 if raw[at] == _IMPLICIT and len(raw) > 2 else 2
        yield raw[at : at + size]
        at += size


def _stands_for(weights: Mapping[str, bytes], plain: tuple[range, ...]) -> dict[bytes, str]:
    """A character for each weight that counts: the first that has it alone, the blank before all others."""
    left_out = {_FOR_WHAT_IS_FAR}
    if plain is _CERTAIN:
        left_out.update(unit for character in _CONTRACTED for unit in _units(weights[character]))
    stands: dict[bytes, str] = {}
    longer = []
    for code in (32, *itertools.chain.from_iterable(plain)):
        raw = weights.get(chr(code), b"")
        if _is_one(raw):
            stands.setdefault(raw, chr(code))
        else:
            longer.append(raw)
    for unit in itertools.chain.from_iterable(map(_units, longer)):
        stands.setdefault(unit, chr(_OWN + len(stands)))
    return {unit: text for unit, text in stands.items() if unit not in left_out}

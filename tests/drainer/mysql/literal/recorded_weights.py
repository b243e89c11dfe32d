"""Weights of a few characters as MariaDB 10.11 gives them, and collations made of them."""

from __future__ import annotations

from typing import Final

from drainer.mysql.literal.collation import Collation

GENERAL, UNICODE, ROOT = "utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_uca1400_ai_ci"
CHARACTERS: Final = "\0\t aAbáßsſﬁfiÆæeé\u0301\xa0иИйЙl·ŀ\u0387ก日⽇ω\u2126😀\U0001d400"
RECORDED: Final = {
    GENERAL: "0000 0009 0020 0041 0041 0042 0041 0053 0053 0053 fb01 0046 0049 00c6 00c6 0045 0045 0301"
    " 00a0 0418 0418 0419 0419 004c 00b7 013f 0387 0e01 65e5 2f47 03a9 2126 fffd fffd",
    UNICODE: "- 0201 0209 0e33 0e33 0e4a 0e33 0fea0fea 0fea 0fea 0eb90efb 0eb9 0efb 0e38 0e38 0e8b 0e8b -"
    " 0209 117c 117c 1190 1190 0f2e 0267 0f2e0267 0267 17e4 fb40e5e5 fb40e5e5 1109 1109 fffd fffd",
    ROOT: "- 0201 0209 2075 2075 208f 2075 22b622b6 22b6 22b6 21162167 2116 2167 207520db 207520db 20db 20db"
    " - 0209 24d4 24d4 24e1 24e1 21b0 0296 21b0 0296 3339 fb40e5e5 fb40e5e5 2435 2435 196c 2075",
}


def collation(name: str, **other: bytes) -> Collation:
    """All other ASCII characters have a weight of their own."""
    weights = {chr(code): b"\x01" + bytes([code]) for code in range(128)}
    for character, weight in zip(CHARACTERS, RECORDED[name].split(), strict=True):
        weights[character] = b"" if weight == "-" else bytes.fromhex(weight)
    return Collation(name, weights | other)

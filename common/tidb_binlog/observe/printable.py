"""Printable: text from outside as a terminal, a pipe and a log file may have it.

In     any text: names, addresses and error texts that other programs and people chose
Out    the same with what steers a terminal written out (`\\x1b`, `\\u202e`): control characters, changes of
       the writing direction, surrogates that no encoding takes
Why    a table's or node's name could otherwise clear an operator's screen, hide a line or type for him
"""

from __future__ import annotations

import re
from typing import Final

_CONTROLS: Final = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but for tabs and line breaks, delete, C1
    r"\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
)
_STEERING: Final = re.compile(f"[{_CONTROLS}]")
_STEERING_OR_BREAKS: Final = re.compile(rf"[{_CONTROLS}\t\n]")


def printable(text: str) -> str:
    """Line breaks and tabs stay."""
    return _STEERING.sub(_written_out, text) if _STEERING.search(text) else text


def one_line(text: str) -> str:
    """Line breaks and tabs become blanks, each run of them one."""
    return printable(" ".join(text.split()))


def in_json(text: str) -> str:
    """A JSON document with the same meaning: only inside its strings may there be such characters."""
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text) if _STEERING.search(text) else text


def is_printable(text: str) -> bool:
    """Whether nothing in it steers a terminal or begins a line."""
    return _STEERING_OR_BREAKS.search(text) is None


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

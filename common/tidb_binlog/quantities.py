"""Quantities as people write them in flags and files, and read them: sizes, durations, retention times.

    size        digits with optional point and commas, then a unit in any case; `MB` is 10**6, `MiB` 2**20;
                a bare number is bytes
    duration    Go's form (`1m30s`, `1.5h`, `30ms`); a bare number is seconds
    retention   a bare integer is days; anything else is a duration; must be above zero

Each reader raises `ValueError` with a text that says what is expected.
"""

from __future__ import annotations

import re
from typing import Final

SIZE_MAX: Final = (1 << 63) - 1
RETENTION_DAYS_MAX: Final = 106_751  # more does not fit into Go's durations

SIZE_TEXT: Final = r"\s*(?:[0-9][0-9,]*(?:\.[0-9,]*)?\s*(?:[kmgtpeKMGTPE][iI]?)?[bB]?\s*)?"
DURATION_TEXT: Final = (
    r"\s*(?:[+-]?[0-9]+(?:\.[0-9]*)?|[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)\s*"
)
"""What the readers take, but for what is too large, as a JSON Schema says it."""

DURATION_MAX_S: Final = RETENTION_DAYS_MAX * 86400.0
_SIZE = re.compile(r"\s*([0-9][0-9.,]*)\s*([A-Za-z]*)\s*")
_SIZE_UNITS: Final = {
    "": 1,
    "b": 1,
    **{name: 1000 ** (power + 1) for power, letter in enumerate("kmgtpe") for name in (letter, f"{letter}b")},
    **{
        name: 1024 ** (power + 1)
        for power, letter in enumerate("kmgtpe")
        for name in (f"{letter}i", f"{letter}ib")
    },
}
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_DURATION_UNITS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")


def size_bytes(value: str | int) -> int:
    """Bytes of `42 MB`, `10GiB`, `4096`; the empty text is 0."""
    if isinstance(value, int):
        if value < 0:
            raise ValueError("a size of at least 0 is expected")
        if value > SIZE_MAX:
            raise ValueError(f"too large: {value}")
        return value
    if not value.strip():
        return 0
    match = _SIZE.fullmatch(value)
    if match is None:
        raise ValueError('a size like "10 GiB" is expected')
    number, unit = match.group(1).replace(",", ""), match.group(2).lower()
    if unit not in _SIZE_UNITS:
        raise ValueError(f"unhandled size name: {match.group(2)}; use for example MB, MiB, GB or GiB")
    factor = _SIZE_UNITS[unit]
    try:
        result = int(number) * factor if "." not in number else int(float(number) * factor)
    except ValueError:
        raise ValueError('a size like "10 GiB" is expected') from None
    if result > SIZE_MAX:
        raise ValueError(f"too large: {value}")
    return result


def duration_s(value: str | int | float) -> float:
    """Seconds of `1m30s`; a number is seconds already. Finite, and no more than Go's durations hold."""
    seconds = _seconds(value)
    if not abs(seconds) <= DURATION_MAX_S:  # so is "not a number"
        raise ValueError(f"a duration of at most {RETENTION_DAYS_MAX} days is expected")
    return seconds


def _seconds(value: str | int | float) -> float:
    if isinstance(value, int | float):
        return float(value)
    text = value.strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    sign = -1.0 if text.startswith("-") else 1.0
    body = text[1:] if text[:1] in ("+", "-") else text
    at, total = 0, 0.0
    for part in _DURATION_PART.finditer(body):
        if part.start() != at:
            break
        total += float(part.group(1)) * _DURATION_UNITS[part.group(2)]
        at = part.end()
    if not body or at != len(body):
        raise ValueError('a duration like "1m30s" or "500ms" is expected')
    return sign * total


def retention_s(value: str | int) -> float:
    """Seconds of a retention time: `7` is seven days, `12h30m` a duration."""
    if isinstance(value, int) or value.strip().isdigit():
        days = int(value)
        if not 0 < days <= RETENTION_DAYS_MAX:
            raise ValueError(f"GC is {value}, must bigger than 0 and at most {RETENTION_DAYS_MAX} days")
        return days * 86400.0
    try:
        seconds = duration_s(value)
    except ValueError:
        raise ValueError(f"unsupported gc time {value}, etc: use 7 for 7 day, 7h for 7 hour") from None
    if seconds <= 0:
        raise ValueError(f"GC is {value}, must bigger than 0")
    return seconds


UP_TO_DATE: Final = "up to date"


def behind_text(seconds: float) -> str:
    """How far something is behind, as people read it."""
    return f"{span(seconds)} behind" if seconds else UP_TO_DATE


def span(seconds: float) -> str:
    """A length of time as people read it; negative ones count as nothing."""
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86400:.1f} d"


def count(number: int, word: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def size(number: int) -> str:
    """Bytes as people read them: `3.0 MiB`."""
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if number >= unit:
            return f"{number / unit:.1f} {name}"
    return f"{number} B"

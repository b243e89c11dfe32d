"""Dates and times: packed integers and nanoseconds, to and from MySQL's text.

A packed time is `(year * 13 + month) << 46 | day << 41 | hour << 36 | minute << 30 | second << 24 | us`.
Zero dates, month or day 0 and days such as 2010-02-30 are legal and pass through as text: what rows hold is
never handed to `datetime`. TIMESTAMP is UTC, here and in the row. TIME is a signed count of nanoseconds.

Tests  tests/common/rowcodec/test_golden.py
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from tidb_binlog.rowcodec.row_error import RowError

# A little above the largest TIME, 838:59:59: a fraction may follow.
TIME_END_NS: Final = 839 * 3600 * 10**9
_DATE_CACHE_MAX: Final = 20_000
_TWO: Final = tuple(f"{n:02d}" for n in range(64))
_dates: dict[int, str] = {}

_DATETIME_TEXT: Final = re.compile(
    r"(\d{1,4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,6})\d*)?)?)?"
)
_TIME_TEXT: Final = re.compile(r"(-?)(?:(\d{1,3}):)?(\d{1,2}):(\d{1,2})(?:\.(\d{0,6})\d*)?")


def date_text(packed: int) -> str:
    """YYYY-MM-DD of a packed time; `RowError` if the year has more than four digits."""
    key = packed >> 41
    text = _dates.get(key)
    if text is None:
        year, month = divmod(packed >> 46, 13)
        if year > 9999:
            raise RowError("time beyond the year 9999")
        text = f"{year:04d}-{month:02d}-{key & 31:02d}"
        if len(_dates) >= _DATE_CACHE_MAX:
            _dates.clear()
        _dates[key] = text
    return text


def datetime_text(packed: int, fsp: int) -> str:
    """`YYYY-MM-DD HH:MM:SS` and `fsp` digits of fraction."""
    hour, minute, second = packed >> 36 & 31, packed >> 30 & 63, packed >> 24 & 63
    if hour > 23 or minute > 59 or second > 59:
        raise RowError("time of day out of range")
    text = f"{date_text(packed)} {_TWO[hour]}:{_TWO[minute]}:{_TWO[second]}"
    micro = packed & 0xFFFFFF
    if micro > 999_999:
        raise RowError("fraction of a second out of range")
    return text + fraction_text(micro, fsp)


def fraction_text(micro: int, fsp: int) -> str:
    """A point and `fsp` digits, cut off; nothing for 0."""
    return f".{micro:06d}"[: 1 + fsp] if fsp else ""


def duration_text(ns: int, fsp: int) -> str:
    """`[-]HH:MM:SS` and `fsp` digits of fraction, cut off."""
    sign = "-" if ns < 0 else ""
    ns = abs(ns)
    if ns >= TIME_END_NS:
        raise RowError("TIME out of range")
    seconds, fraction = divmod(ns, 1_000_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    text = f"{sign}{hour:02d}:{_TWO[minute]}:{_TWO[second]}"
    return f"{text}.{fraction // 10 ** (9 - fsp):0{fsp}d}" if fsp else text


def clock_text(value: date | time | timedelta) -> str:
    """Text of what Python programs have, in UTC if it has a zone. TypeError or ValueError if it has none."""
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            value = value.astimezone(UTC).replace(tzinfo=None)
        return value.isoformat(sep=" ")
    if isinstance(value, timedelta):
        ns = value // timedelta(microseconds=1) * 1000
        if abs(ns) >= TIME_END_NS:
            raise ValueError("TIME out of range")
        return duration_text(ns, 6)
    if isinstance(value, date | time):
        return value.isoformat()
    raise TypeError(f"a {type(value).__name__} is neither date nor time")


def pack_datetime(text: str) -> int:
    """Packed time of a date or date and time; ValueError if it is none. Digits beyond 6 are cut."""
    match = _DATETIME_TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError("not a date or time")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    micro = int((match[7] or "").ljust(6, "0"))
    if month > 12 or day > 31 or hour > 23 or minute > 59 or second > 59:
        raise ValueError("date or time out of range")
    return (year * 13 + month) << 46 | day << 41 | hour << 36 | minute << 30 | second << 24 | micro


def parse_duration(text: str) -> int:
    """Nanoseconds of `[-][HHH:]MM:SS[.f]`; ValueError if it is none."""
    match = _TIME_TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError("not a TIME")
    hour, minute, second = (int(part or 0) for part in match.groups()[1:4])
    if minute > 59 or second > 59:
        raise ValueError("TIME out of range")
    micro = int((match[5] or "").ljust(6, "0"))
    ns = ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + micro * 1000
    if ns >= TIME_END_NS:
        raise ValueError("TIME out of range")
    return -ns if match[1] else ns

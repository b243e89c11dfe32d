"""Moments: dates, times of day and zones as TiDB reads, rounds and prints them when a column's type changes.

Out    `Moment` (a tuple of fields, as dates may be invalid: 2020-00-10) or microseconds for TIME; None for
       what TiDB takes for no date
Why    servers differ in what they take for a date and in how they round: values must be TiDB's
Tests  tests/drainer/ddl/convert/test_cast.py
"""

from __future__ import annotations

import calendar
import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final, NamedTuple

from tidb_binlog.rowcodec.temporal import duration_text, fraction_text, parse_duration
from tidb_binlog.time_text import named_zone

SECOND_US: Final = 1_000_000
_HOUR_MAX: Final = 838
TIME_MAX_US: Final = (_HOUR_MAX * 3600 + 59 * 60 + 59) * SECOND_US
_DAY: Final = re.compile(r"(\d+) +(\d+)(?::(\d{1,2}))?(?::(\d{1,2}))?", re.ASCII)
_CLOCK: Final = re.compile(r"(\d+) *: *(\d{1,2})(?: *: *(\d{1,2}))?", re.ASCII)
_DIGITS: Final = re.compile(r"\d+", re.ASCII)
_LIKE_A_DATE: Final = re.compile(r"\d+[^\w\s]+\d+[^\w\s]+\d+[ T]", re.ASCII)
_ZONED: Final = re.compile(r"^(.*\d)(Z|[+-]\d{2}(?::?\d{2})?)$", re.DOTALL | re.ASCII)
_PARTS: Final = re.compile(r"\d+", re.ASCII)
_COMPACT: Final = {14: 4, 12: 2, 11: 2, 10: 2, 9: 2, 8: 4, 7: 2, 6: 2, 5: 2}  # digits: those of the year
_OFFSET: Final = re.compile(r"([+-])(\d{2}):?(\d{2})?", re.ASCII)
_TIMESTAMP_RANGE: Final = 1, 2_147_483_647


class NoCast(Exception):
    """What TiDB makes of the value is not known here; the text says why, and never has the value."""


class Moment(NamedTuple):
    year: int = 0
    month: int = 0
    day: int = 0
    hour: int = 0
    minute: int = 0
    second: int = 0
    micro: int = 0

    @property
    def is_zero(self) -> bool:
        return not any(self)


ZERO: Final = Moment()


def zone_of(name: str, offset: str) -> tzinfo:
    """The zone of that name, or the offset where the name is none or is not known here."""
    for text in (name, offset):
        match = _OFFSET.fullmatch(text)
        size = timedelta(hours=int(match[2]), minutes=int(match[3] or 0)) if match else timedelta()
        if match and size < timedelta(days=1):
            return timezone(-size if match[1] == "-" else size)
        if zone := named_zone(text):
            return zone
    raise NoCast(f"time zone {name}")


def is_valid(moment: Moment) -> bool:
    """As TiDB checks dates under an empty SQL mode: zeros for month and day may be there."""
    year, month, day, hour, minute, second, _ = moment
    if year > 9999 or month > 12 or hour > 23 or minute > 59 or second > 59:
        return False
    days = 31 if month == 0 else _days(year, month)
    return day <= days


def _days(year: int, month: int) -> int:
    return calendar.monthrange(year or 4, month)[1]  # a year 0 is a leap year


def rounded(moment: Moment, digits: int) -> Moment:
    """With so many digits after the second, halves upwards."""
    micro = round_half_up(moment.micro, 6 - digits)
    if micro < SECOND_US:
        return moment._replace(micro=micro)
    try:
        whole = datetime(*moment[:6]) + timedelta(seconds=1)
    except ValueError:  # no real date: the clock alone goes on
        clock = datetime(1, 1, 1, *moment[3:6]) + timedelta(seconds=1)
        return Moment(*moment[:3], clock.hour, clock.minute, clock.second)
    except OverflowError:
        raise NoCast("a date after the year 9999") from None
    return of(whole)


def round_half_up(number: int, digits: int) -> int:
    """Without that many last digits, halves upwards."""
    unit = int(10**digits)
    return (number + unit // 2) // unit * unit


def of(when: datetime) -> Moment:
    return Moment(when.year, when.month, when.day, when.hour, when.minute, when.second, when.microsecond)


def read(text: str) -> Moment:
    """As a server prints a DATE, DATETIME or TIMESTAMP."""
    whole, _, fraction = text.partition(".")
    fields = [int(part) for part in _PARTS.findall(whole)]
    fields += [0] * (6 - len(fields)) + [int(fraction[:6].ljust(6, "0")) if fraction else 0]
    return Moment._make(fields)


def read_time(text: str) -> int:
    """As a server prints a TIME."""
    return parse_duration(text) // 1000


def text_of(moment: Moment, digits: int, *, clock: bool = True) -> str:
    year, month, day, hour, minute, second, micro = moment
    text = f"{year:04d}-{month:02d}-{day:02d}"
    if clock:
        text += f" {hour:02d}:{minute:02d}:{second:02d}"
    return text + (fraction_text(micro, digits) if clock else "")


def time_text(size: int, digits: int) -> str:
    return duration_text(size * 1000, digits)


# Zones ---------------------------------------------------------------------------------------------------


def to_zone(moment: Moment, zone: tzinfo) -> Moment:
    """A TIMESTAMP, as it is kept, as the zone's clock shows it."""
    if moment.is_zero:
        return moment
    try:
        return of(datetime(*moment, tzinfo=UTC).astimezone(zone))
    except (ValueError, OverflowError):
        raise NoCast("a TIMESTAMP that the zone's calendar does not have") from None


def to_utc(moment: Moment, zone: tzinfo) -> Moment:
    if moment.is_zero:
        return moment
    try:
        local = datetime(*moment, tzinfo=zone)
        moment_utc = local.astimezone(UTC)
    except OverflowError:
        return moment  # as far away as it was: no downstream has it in a TIMESTAMP
    except ValueError:
        raise NoCast("an invalid date as TIMESTAMP") from None
    if moment_utc.astimezone(zone).replace(tzinfo=None) != local.replace(tzinfo=None):
        raise NoCast(f"a time that the clock of {zone} leaves out")
    return of(moment_utc)


def is_timestamp(moment: Moment, zone: tzinfo) -> bool:
    """It lies between 1970 and 2038, as TiDB asks of texts and numbers."""
    if moment.is_zero:
        return True
    try:
        second = int(datetime(*moment[:6], tzinfo=zone).timestamp())
    except (ValueError, OverflowError):
        return False
    return _TIMESTAMP_RANGE[0] <= second <= _TIMESTAMP_RANGE[1]


# Numbers and texts ---------------------------------------------------------------------------------------


def from_number(number: int) -> Moment | None:
    """20200102030405, 20200102, 200102 and the like."""
    if number == 0:
        return ZERO
    if number < 101:
        return None
    if number < 10_000_101_000_000:
        steps = (  # up to; at least; added; whether the clock is missing
            (691_231, 101, 20_000_000, True),
            (991_231, 700_101, 19_000_000, True),
            (99_991_231, 10_000_101, 0, True),
            (691_231_235_959, 101_000_000, 20_000_000_000_000, False),
            (991_231_235_959, 700_101_000_000, 19_000_000_000_000, False),
        )
        for most, least, added, short in steps:
            if number <= most:
                if number < least:
                    return None
                number = (number + added) * (1_000_000 if short else 1)
                break
    date, clock = divmod(number, 1_000_000)
    moment = Moment(
        date // 10000, date // 100 % 100, date % 100, clock // 10000, clock // 100 % 100, clock % 100
    )
    return moment if is_valid(moment) else None


def to_number(moment: Moment) -> int:
    """Without its fraction."""
    year, month, day, hour, minute, second, _ = moment
    return (year * 10000 + month * 100 + day) * 1_000_000 + hour * 10000 + minute * 100 + second


def from_text(text: str, digits: int, zone: tzinfo) -> Moment | None:
    """A date as somebody wrote it."""
    text = text.strip()
    zoned = _ZONED.match(text)
    if zoned and ":" in zoned[1]:
        moment = from_text(zoned[1], digits, zone)
        if moment is None or moment.is_zero:
            return None
        own = UTC if zoned[2] == "Z" else zone_of(zoned[2], "")
        return to_zone(to_utc(moment, own), zone)
    if not text or not (text[0].isdigit() and text[-1].isdigit()) or not text.isascii():
        return None
    if re.search(r"[A-SU-Za-z]|T.*T", text):
        return None
    whole, fraction = text, ""
    if "." in text:
        whole, _, fraction = text.rpartition(".")
        if len(_PARTS.findall(whole)) not in (1, 6) or not fraction.isdigit():
            whole, fraction = text, ""
    parts = _PARTS.findall(whole)
    if len(parts) == 1:
        moment = _compact(parts[0], fraction)
        fraction = fraction if len(parts[0]) in (12, 14) else ""
    else:
        moment = _delimited(parts)
    if moment is None or not is_valid(moment):
        return None
    micro = int(fraction[:7].ljust(7, "0")) if fraction else 0
    unit = 10 ** (7 - digits)
    micro = (micro + unit // 2) // unit * unit // 10
    if micro >= SECOND_US:
        return rounded(moment._replace(micro=SECOND_US - 1), 0)
    return moment._replace(micro=micro)


def _year(text: str) -> int:
    year = int(text)
    if len(text) <= 2:
        return year + (2000 if year < 70 else 1900)
    return year


def _compact(digits: str, fraction: str) -> Moment | None:
    size = _COMPACT.get(len(digits))
    if size is None:
        return None
    fields = [_year(digits[:size])]
    fields += [int(digits[at : at + 2]) for at in range(size, len(digits), 2)]
    if len(digits) in (5, 6, 8) and fraction:  # digits behind a day are a clock
        fields += [int(fraction[at : at + 2]) for at in range(0, min(len(fraction), 6), 2)]
    return Moment(*fields)


def _delimited(parts: list[str]) -> Moment | None:
    if not 3 <= len(parts) <= 6 or len(parts[0]) > 4 or any(len(part) > 2 for part in parts[1:]):
        return None
    if all(int(part) == 0 for part in parts):
        return ZERO
    return Moment(_year(parts[0]), *map(int, parts[1:]))


def time_from_text(text: str, digits: int, zone: tzinfo) -> int:
    """A time of day or a duration as somebody wrote it; 0 for what is none."""
    text = text.strip()
    time, is_right = _time(text, digits)
    if is_right:
        return time
    number = _DIGITS.match(text)
    if not (number and len(number[0]) in (12, 14)) and not _LIKE_A_DATE.match(text):
        return time
    moment = from_text(text, 6, zone)
    return 0 if moment is None else time_of(moment, digits)


def time_of(moment: Moment, digits: int) -> int:
    """The clock of a date, rounded: 23:59:59.5 is 24:00:00."""
    size = ((moment.hour * 60 + moment.minute) * 60 + moment.second) * SECOND_US + moment.micro
    return round_half_up(size, 6 - digits)


def _time(text: str, digits: int) -> tuple[int, bool]:
    """Microseconds, and whether the whole text is a time."""
    sign, rest = (-1, text[1:].lstrip()) if text.startswith("-") else (1, text)
    length = len(rest)
    if match := _DAY.match(rest):
        days, hour, minute, second = (int(part or 0) for part in match.groups())
        hour += 24 * days
    elif match := _CLOCK.match(rest):
        hour, minute, second = (int(part or 0) for part in match.groups())
    elif match := _DIGITS.match(rest):
        number = int(match[0])
        if number >= 1 << 63:
            return 0, False
        hour, minute, second = number // 10000, number // 100 % 100, number % 100
    else:
        return 0, False
    rest = rest[match.end() :].lstrip()
    micro = 0
    if rest.startswith("."):
        fraction = re.match(r"\.(\d*)", rest, re.ASCII)
        assert fraction is not None
        rest = rest[fraction.end() :]
        unit = 10 ** (7 - digits)
        micro = (int(fraction[1][:7].ljust(7, "0")) + unit // 2) // unit * unit // 10
    if (rest and length >= 12) or minute > 59 or second > 59:
        return 0, False
    if micro >= SECOND_US and second == 59:
        raise NoCast("a TIME that is rounded up to a full minute")
    if hour > _HOUR_MAX:
        return sign * TIME_MAX_US, False
    size = ((hour * 60 + minute) * 60 + second) * SECOND_US + micro
    return sign * min(size, TIME_MAX_US), not rest

"""Time text: times as people write them, and timestamps of the upstream.

    408012403141509121           a timestamp of the upstream
    now                          -2h  -1h30m         so long ago
    @1556443799                  seconds since 1970
    2019-04-28T09:29:59.5Z       RFC 3339; with a blank instead of the T too
    2019-04-28 09:29[:59]        in the given zone, else in this host's
    2019-04-28                   its beginning

Never  guesses: a number that is too small for a timestamp is refused, for it would be a time in 1970
Tests  tests/deploy/binlogctl/commands/test_position.py
"""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING, Final

from tidb_binlog import tso
from tidb_binlog.errors import FlagError
from tidb_binlog.quantities import duration_s
from tidb_binlog.tso import Ts

if TYPE_CHECKING:
    import zoneinfo

_TS_MIN: Final = tso.compose(946_684_800_000)  # the year 2000
_FORMS: Final = "use a timestamp, now, -2h, @SECONDS, RFC 3339 or 'YYYY-MM-DD HH:MM:SS'"
_LOCAL: Final = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?")
_ZONED: Final = re.compile(r"(\d{4}-\d\d-\d\d[ Tt]\d\d:\d\d:\d\d(\.\d+)?) ?([Zz]|[+-]\d\d:?\d\d)")


def zone(name: str) -> datetime.tzinfo | None:
    """The zone of this name; None for `Local` and for no name. Raises `FlagError`."""
    if name in ("", "Local"):
        return None
    known_zone = named_zone(name)
    if known_zone is None:
        raise FlagError(f"unknown time zone {name}", hint="use a name like Asia/Shanghai, or Local")
    return known_zone


def named_zone(name: str) -> zoneinfo.ZoneInfo | None:
    """None where none has this name, which may come from anywhere: it is looked for as a file is."""
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


def parse(text: str, now_s: float, assumed: datetime.tzinfo | None = None) -> int:
    """The timestamp that is meant, the first of its time. `assumed`: zone of times without one, None: this
    host's. Raises `FlagError`."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        ts = int(text)
        if not _TS_MIN <= ts <= tso.TS_MAX:
            hint = f"a timestamp has 18 digits; seconds since 1970 are written @{text}"
            raise FlagError(f"{text} is no timestamp of the upstream", hint=hint)
        return ts
    try:
        return tso.compose(_milliseconds(text, now_s, assumed))
    except (ValueError, OverflowError, OSError) as error:
        raise FlagError(f"{text!r} is no time: {error}", hint=_FORMS) from None


def _milliseconds(text: str, now_s: float, assumed: datetime.tzinfo | None) -> int:
    if text == "now":
        return int(now_s * 1000)
    if text.startswith("-"):
        return _positive(int((now_s + duration_s(text)) * 1000))
    if text.startswith("@"):
        return _positive(int(float(text[1:]) * 1000))
    if match := _ZONED.fullmatch(text):
        moment = datetime.datetime.fromisoformat(match[1].upper() + match[3].upper())
    elif _LOCAL.fullmatch(text):
        moment = datetime.datetime.fromisoformat(text)
        moment = moment.astimezone() if assumed is None else moment.replace(tzinfo=assumed)
    else:
        raise ValueError("its form is unknown")
    since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return _positive(since // datetime.timedelta(milliseconds=1))


def _positive(milliseconds: int) -> int:
    if not 0 <= milliseconds <= tso.physical_ms(tso.TS_MAX):
        raise ValueError("it is before 1970, or too far ahead")
    return milliseconds


def _moment(ts: Ts) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(
        milliseconds=tso.physical_ms(ts)
    )


def utc(ts: Ts) -> str:
    """RFC 3339 with milliseconds."""
    return _moment(ts).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def local(ts: Ts, shown: datetime.tzinfo | None = None) -> str:
    """In a zone, None: this host's."""
    moment = _moment(ts).astimezone(shown)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d} {moment:%z}"

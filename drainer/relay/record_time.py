"""Record time: in which time zone the TIMESTAMPs of an obinlog record are.

In     the zone that a record names; "" for this machine's
Out    a function from its texts to those of UTC
Tests  tests/drainer/formats/obinlog/test_writer.py
"""

from __future__ import annotations

import datetime
import zoneinfo

from drainer.formats.obinlog.reader import ToUtc
from tidb_binlog.errors import Corruption


def to_utc(time_zone: str) -> ToUtc:
    """How TIMESTAMP texts of a record become UTC. Go drainers write local time and do not say so."""
    if time_zone in ("UTC", "+00:00"):
        return lambda text: text
    try:
        zone = zoneinfo.ZoneInfo(time_zone) if time_zone else None
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        raise Corruption(
            f"the relay log has TIMESTAMPs of the time zone {time_zone!r}, which is not known here",
            hint="install the time zone data of the system",
        ) from None

    def convert(text: str) -> str:
        if text.startswith("0000-00-00"):
            return text
        whole, dot, fraction = text.partition(".")
        local = datetime.datetime.fromisoformat(whole).replace(tzinfo=zone)
        return f"{local.astimezone(datetime.UTC):%Y-%m-%d %H:%M:%S}{dot}{fraction}"

    return convert

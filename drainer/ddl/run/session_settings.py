"""DDL session: the settings a job's statement ran with upstream, as far as a job says and they matter here.

Out    SQL mode, time zone and collation for the session that runs the statement downstream

A job that reorganizes rows keeps the SQL mode and the time zone of its session; others keep neither. Then
the mode is not strict: what the upstream took under a loose mode must not be refused here, and what a loose
server changes silently is found by comparing the columns afterwards.

Modes that change how text is read (ANSI_QUOTES, PIPES_AS_CONCAT, NO_BACKSLASH_ESCAPES) are never set: what is
derived is in one dialect, and TiDB writes the text anew for the binlog as if the session had none of them.
Nor is PAD_CHAR_TO_FULL_LENGTH: servers pad the CHAR columns that they copy, TiDB does not. Zero dates are
allowed although the job's mode may forbid them: servers of MySQL's kind copy whole tables, with values that
the job leaves alone.
Foreign key checks are off: jobs do not keep the setting, and what the upstream accepted needs no check here.
"""

from __future__ import annotations

import re
from typing import Any, Final

from tidb_binlog.late_dataclass import dataclass

ALWAYS: Final = ("NO_AUTO_VALUE_ON_ZERO", "NO_ENGINE_SUBSTITUTION", "ALLOW_INVALID_DATES")
ANY_VALUE: Final = ",".join(ALWAYS)
"""A mode that refuses no value."""
_MODES: Final = {
    6: "NO_UNSIGNED_SUBTRACTION",
    21: "STRICT_TRANS_TABLES",
    22: "STRICT_ALL_TABLES",
    26: "ERROR_FOR_DIVISION_BY_ZERO",
}
_UTC: Final = frozenset({"", "UTC", "Etc/UTC", "Local"})
_ZONE: Final = re.compile(r"[A-Za-z0-9_+/:-]+")


@dataclass(frozen=True, slots=True)
class Session:
    """`time_zone` is a name or an offset; `offset` serves servers that do not know the name."""

    sql_mode: str
    time_zone: str = "+00:00"
    offset: str = "+00:00"
    collation: str = ""


def session_of(job: dict[str, Any] | None) -> Session:
    """Settings for a job; the defaults where it says nothing."""
    document = job or {}
    reorg = document.get("reorg_meta") or {}
    modes = list(ALWAYS)
    bits = reorg.get("sql_mode")
    if isinstance(bits, int):
        modes += [name for bit, name in _MODES.items() if bits >> bit & 1]
    location = reorg.get("location")
    zone, offset = _zone(location if isinstance(location, dict) else {})
    collation = str(document.get("collate") or "")
    return Session(
        ",".join(modes),
        zone,
        offset,
        collation=collation if re.fullmatch(r"\w+", collation) else "",
    )


def _zone(location: dict[str, Any]) -> tuple[str, str]:
    name, seconds = str(location.get("name") or ""), int(location.get("offset") or 0)
    minutes = abs(seconds) // 60
    offset = f"{'-' if seconds < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"
    if name in _UTC and not seconds:
        return "+00:00", "+00:00"
    return (name if name not in _UTC and _ZONE.fullmatch(name) else offset), offset

"""DDL session: the job's mode and time zone as a downstream takes them."""

from __future__ import annotations

from typing import Any

import pytest

from drainer.ddl.run.session_settings import ALWAYS, session_of

LAX = ",".join(ALWAYS)
DEFAULT_OF_TIDB = 1436549152
ANSI_QUOTES, NO_BACKSLASH_ESCAPES, STRICT_ALL_TABLES = 1 << 2, 1 << 20, 1 << 22


def reorg(mode: int, name: str = "UTC", offset: int = 0) -> dict[str, Any]:
    return {"reorg_meta": {"sql_mode": mode, "location": {"name": name, "offset": offset}}}


@pytest.mark.parametrize(
    ("job", "mode"),
    [
        (None, LAX),
        ({}, LAX),
        ({"reorg_meta": None}, LAX),
        (reorg(0), LAX),
        (reorg(DEFAULT_OF_TIDB), f"{LAX},STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO"),
        (reorg(ANSI_QUOTES | NO_BACKSLASH_ESCAPES | STRICT_ALL_TABLES), f"{LAX},STRICT_ALL_TABLES"),
    ],
)
def test_modes_that_convert_values_are_the_jobs_and_those_that_read_text_never(
    job: dict[str, Any] | None, mode: str
) -> None:
    assert session_of(job).sql_mode == mode


@pytest.mark.parametrize(
    ("name", "offset", "zone", "without_names"),
    [
        ("UTC", 0, "+00:00", "+00:00"),
        ("Etc/UTC", 0, "+00:00", "+00:00"),
        ("Asia/Shanghai", 0, "Asia/Shanghai", "+00:00"),
        ("", 28800, "+08:00", "+08:00"),
        ("", -16200, "-04:30", "-04:30"),
        ("x'; DROP", 3600, "+01:00", "+01:00"),
    ],
)
def test_time_zones(name: str, offset: int, zone: str, without_names: str) -> None:
    found = session_of(reorg(0, name, offset))
    assert (found.time_zone, found.offset) == (zone, without_names)


def test_the_collation_of_newer_jobs() -> None:
    assert session_of({"collate": "utf8mb4_general_ci"}).collation == "utf8mb4_general_ci"
    assert session_of({"collate": "x'y"}).collation == ""

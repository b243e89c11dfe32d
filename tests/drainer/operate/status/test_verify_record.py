"""What is kept of comparisons, and when the next one is due."""

from __future__ import annotations

from typing import Any

import pytest

from drainer.operate.status import verify_record
from drainer.operate.status.verify_record import AGAIN_S, FIRST_S
from tidb_binlog.status.codec import plain
from tidb_binlog.status.drainer import VerifyStatus

HOUR = 3600.0
NOW = 1_700_000_000.0


def table(name: str, state: str, **more: Any) -> dict[str, Any]:
    return {"downstream": name, "state": state, "why": "", "missing": 0, "extra": 0, "changed": 0, **more}


DOCUMENT: dict[str, Any] = {
    "state": "differs",
    "ts": 77,
    "rows": 1000,
    "wrong": 6,
    "held_ms": 3.5,
    "tables": [
        table("shop.a", "equal"),
        table("shop.b", "differs", missing=1, changed=1),
        table("shop.c", "differs", extra=4),
        table("shop.d", "not comparable", why="a row rule in Python"),
    ],
}


def test_what_a_comparison_found() -> None:
    status = VerifyStatus()
    verify_record.begun(status, NOW)
    assert status.running_since_s == NOW
    verify_record.ended(status, DOCUMENT, 6 * HOUR, NOW + 60)
    assert plain(status) == {
        "state": "differs",
        "ts": 77,
        "began_s": NOW,
        "ended_s": NOW + 60,
        "rows": 1000,
        "tables": 4,
        "wrong": 6,
        "left_out": 1,
        "wrong_rows": {"shop.c": 4, "shop.b": 2},
        "not_compared": {"shop.d": "a row rule in Python"},
        "held_ms": 3.5,
        "running_since_s": 0.0,
        "progress": "",
        "grid": [],
        "next_s": NOW + 6 * HOUR,
        "failures": 0,
        "trouble": "",
    }


def test_one_that_takes_longer_than_its_interval_is_followed_at_once() -> None:
    status = VerifyStatus()
    verify_record.begun(status, NOW)
    verify_record.ended(status, DOCUMENT, HOUR, NOW + 2 * HOUR)
    assert status.next_s == NOW + 2 * HOUR


def test_one_that_failed_is_made_again_later_and_later_and_takes_nothing_away() -> None:
    status = VerifyStatus()
    verify_record.begun(status, NOW)
    verify_record.ended(status, DOCUMENT, HOUR, NOW)
    pauses = []
    for number in range(1, 9):
        verify_record.begun(status, NOW)
        verify_record.failed(status, "no drainer", HOUR, NOW)
        assert (status.state, status.wrong, status.failures, status.trouble) == (
            "differs",
            6,
            number,
            "no drainer",
        )
        pauses.append(status.next_s - NOW)
    assert pauses == [60, 120, 240, 480, 960, 1920, HOUR, HOUR]
    verify_record.begun(status, NOW)
    verify_record.ended(status, DOCUMENT, HOUR, NOW)
    assert (status.failures, status.trouble) == (0, "")


@pytest.mark.parametrize(
    ("began_s", "due_s"),
    [
        (0.0, NOW + FIRST_S),
        (NOW - 1000, NOW - 1000 + 6 * HOUR),
        (NOW - 7 * HOUR, NOW + FIRST_S),
        (NOW + 99 * HOUR, NOW + 6 * HOUR),
    ],
    ids=["never", "lately", "due", "by a clock that was wrong"],
)
def test_a_restart_makes_it_when_it_is_due(began_s: float, due_s: float) -> None:
    stored = plain(VerifyStatus(state="equal", began_s=began_s, running_since_s=5.0, failures=2))
    status = verify_record.at_start(stored, 6 * HOUR, NOW)
    assert (status.state, status.failures, status.running_since_s) == ("equal", 2, 0.0)
    assert status.next_s == due_s


@pytest.mark.parametrize("stored", [None, [], "x", {"began_s": "now", "wrong_rows": 7}])
def test_a_damaged_record_is_as_good_as_none(stored: object) -> None:
    status = verify_record.at_start(stored, 10.0, NOW)
    assert (status.state, status.wrong_rows, status.next_s) == ("", {}, NOW + 10.0)


def test_the_wait_after_failures_never_ends_before_it_began() -> None:
    status = VerifyStatus(failures=10_000)
    verify_record.failed(status, "", 1e9, NOW)
    assert NOW + AGAIN_S <= status.next_s <= NOW + 1e9

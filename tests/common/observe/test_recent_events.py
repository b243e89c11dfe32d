"""Events: bounded, the newest first, and nothing in them that is not for everybody."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tidb_binlog.observe import log
from tidb_binlog.observe.recent_events import (
    ALIKE_MAX,
    EVENT_CHARS_MAX,
    EVENTS_MAX,
    Event,
    RecentEvents,
    Recorder,
)

_logger = log.get("scene")


def event(text: str, details: str = "", time_s: float = 1.0) -> Event:
    return Event(time_s, "INFO", "scene", text, details)


def test_the_newest_is_first_and_a_repeated_line_is_one_event() -> None:
    events = RecentEvents()
    for one in (event("a"), event("b", "x"), event("b", "x", time_s=9.0), event("b", "y"), event("a")):
        events.note(one)
    shown = [(one.text, one.details, one.count, one.time_s) for one in events.newest_first()]
    assert shown == [("a", "", 1, 1.0), ("b", "y", 1, 1.0), ("b", "x", 2, 9.0), ("a", "", 1, 1.0)]


def test_they_are_bounded_and_one_message_does_not_push_out_all_others() -> None:
    events = RecentEvents()
    events.note(event("first"))
    for number in range(1000):
        events.note(event("again and again", str(number)))
        events.note(event("and this one too", str(number)))
    assert len(events.newest_first()) == 1 + 2 * ALIKE_MAX
    assert events.newest_first()[-1].text == "first"
    assert events.newest_first()[0].details == "999"
    for number in range(1000):
        events.note(event(str(number)))
    assert [one.text for one in events.newest_first()] == [str(999 - n) for n in range(EVENTS_MAX)]


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    level = log.root().level
    log.root().setLevel(logging.INFO)
    with Recorder() as made:
        yield made
    log.root().setLevel(level)


def test_what_is_logged_is_an_event_with_what_anyone_may_know(recorder: Recorder) -> None:
    _logger.debug("not at this level")
    _logger.warning(
        "lane waits", lane=3, reason="mysql://u:geheim@h:1 is away", password="geheim", row=b"geheim"
    )
    _logger.info("start", config={"to.host": "geheim"}, host="geheim", node_id="p1", hint="")
    start, waits = recorder.newest_first()
    assert (start.text, start.details, start.level, start.component) == (
        "start",
        "node_id: p1",
        "INFO",
        "scene",
    )
    assert (waits.level, waits.text) == ("WARN", "lane waits")
    assert waits.details == "lane: 3; reason: mysql://u:******@h:1 is away"


def test_a_failure_is_told_without_its_traceback(recorder: Recorder) -> None:
    try:
        raise ValueError("inner")
    except ValueError as error:
        _logger.failure("request failed", error, method="GET")
    (found,) = recorder.newest_first()
    assert (found.level, found.text, found.details) == ("ERROR", "request failed", "error: ValueError: inner")


def test_long_lines_are_cut(recorder: Recorder) -> None:
    _logger.info("x" * 10_000, reason="y" * 10_000)
    (found,) = recorder.newest_first()
    assert (len(found.text), len(found.details)) == (EVENT_CHARS_MAX, EVENT_CHARS_MAX)


def test_nothing_is_kept_after_its_end() -> None:
    with Recorder() as recorder:
        _logger.error("during")
    _logger.error("later")
    assert [one.text for one in recorder.newest_first()] == ["during"]

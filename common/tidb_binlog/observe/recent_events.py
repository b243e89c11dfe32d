"""Recent events: the last lines that were logged, in memory, for who looks at a node and not at its files.

Out    `Event`s, the newest first: a line that is repeated is one event with a count
Holds  at most EVENTS_MAX events of EVENT_CHARS_MAX characters each; ALIKE_MAX of one message, so that one
       which is logged again and again does not push out all others
Never  keeps more than SHOWN of what a line names: anyone may see the events of a node, and its configuration
       is for administrators. What looks like a secret is masked as in the log
"""

from __future__ import annotations

import contextlib
import logging
from typing import Final

from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.observe import log

EVENTS_MAX: Final = 100
ALIKE_MAX: Final = 10
EVENT_CHARS_MAX: Final = 500
SHOWN: Final = frozenset(
    (
        *("address", "asked_from", "available", "by", "commit_ts", "count", "decision", "drainer", "error"),
        *("hint", "job_id", "lane", "leader", "node_id", "outcome", "phase", "progress", "pump", "reason"),
        *("signal", "start_ts", "state", "table", "trouble", "ts", "upto", "waits_for", "why"),
    )
)
"""Names of values that say what has happened, and nothing of rows or of the configuration."""


@dataclass(frozen=True, slots=True)
class Event:
    """`time_s`: of the newest one, seconds since 1970; `count`: of equal ones, one after the other."""

    time_s: float
    level: str
    component: str
    text: str
    details: str = ""
    count: int = 1

    def is_alike(self, other: Event) -> bool:
        """The same message, whatever it is about."""
        return (self.level, self.component, self.text) == (other.level, other.component, other.text)


class RecentEvents:
    """The events."""

    def __init__(self) -> None:
        self._events: list[Event] = []  # the newest last

    def note(self, event: Event) -> None:
        last = self._events[-1] if self._events else None
        if last is not None and event.is_alike(last) and event.details == last.details:
            self._events[-1] = replace(event, count=last.count + 1)
            return
        self._events.append(event)
        alike = [number for number, earlier in enumerate(self._events) if earlier.is_alike(event)]
        if len(alike) > ALIKE_MAX:
            del self._events[alike[0]]
        del self._events[:-EVENTS_MAX]

    def newest_first(self) -> list[Event]:
        return self._events[::-1]


def event_of(record: logging.LogRecord) -> Event:
    """What a record says, as far as anyone may know it."""
    fields = getattr(record, "fields", {})
    said = (
        f"{name}: {log.plain(value, name)}"
        for name, value in fields.items()
        if name in SHOWN and value not in ("", None) and not isinstance(value, dict | list | tuple | bytes)
    )
    return Event(
        record.created,
        log.level_name(record.levelname),
        record.name.partition(".")[2],
        str(log.plain(record.getMessage()))[:EVENT_CHARS_MAX],
        "; ".join(said)[:EVENT_CHARS_MAX],
    )


class _Handler(logging.Handler):
    """Its lock is taken for every record, by whatever thread."""

    def __init__(self, events: RecentEvents) -> None:
        super().__init__()
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        self._events.note(event_of(record))


class Recorder:
    """Keeps what is logged while it is entered."""

    def __init__(self) -> None:
        self._events = RecentEvents()
        self._handler = _Handler(self._events)

    def __enter__(self) -> Recorder:
        log.root().addHandler(self._handler)
        return self

    def __exit__(self, *_: object) -> None:
        log.root().removeHandler(self._handler)

    def newest_first(self) -> list[Event]:
        with self._handler.lock or contextlib.nullcontext():
            return self._events.newest_first()

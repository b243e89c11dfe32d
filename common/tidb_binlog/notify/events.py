"""Events: what `notify-url` is told of, from what is the case now.

Out    an event when a condition begins and one when it ends, and none while it lasts
Never  tells of a condition twice, though its words change (a number of bytes, a time that is left)
"""

from __future__ import annotations

import datetime
import itertools
import json
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, Final

from tidb_binlog.late_dataclass import dataclass, field

SCHEMA: Final = 1
"""Of the document; a receiver of this one may get further keys and types."""


class Type(StrEnum):
    """What an event is about. `ENDED` and `TOOK_OVER` happen, the others last."""

    DDL_WAITS = "ddl_waits"
    ROWS_WAIT = "rows_wait"
    SINK_HELD = "sink_held"
    PURGE_AHEAD = "purge_ahead"
    VERIFY_DIFFERS = "verify_differs"
    TOOK_OVER = "standby_took_over"
    ENDED = "ended"


class State(StrEnum):
    FIRING = "firing"
    RESOLVED = "resolved"
    HAPPENED = "happened"


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that holds now. It is the same one as long as `type` and `subject` are."""

    type: Type
    subject: str
    message: str
    hint: str = ""
    details: dict[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Origin:
    """The node that tells: a pump or a drainer. `run` tells one process of it from the next, in the ids."""

    kind: str
    node_id: str
    run: str


@dataclass(frozen=True, slots=True)
class Event:
    """One message. `key`: never the same for two of them, always for two tries of one."""

    key: str
    state: State
    condition: Condition
    time_s: float
    origin: Origin

    def body(self) -> bytes:
        """The document that is posted."""
        condition = self.condition
        document = {
            "schema": SCHEMA,
            "id": self.key,
            "type": condition.type,
            "state": self.state,
            "time": _utc(self.time_s),
            "node": {"kind": self.origin.kind, "id": self.origin.node_id},
            "subject": condition.subject,
            "message": condition.message,
            "hint": condition.hint,
            "details": condition.details,
        }
        # A path in a message may have octets that are no text.
        return json.dumps(document, ensure_ascii=False).encode(errors="replace")


def _utc(time_s: float) -> str:
    moment = datetime.datetime.fromtimestamp(time_s, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Events:
    """Of one process."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self._numbers = itertools.count(1)
        self._holding: dict[tuple[Type, str], Condition] = {}

    def look(self, conditions: Iterable[Condition], now_s: float) -> Iterator[Event]:
        """What began and what ended since the last look. Each is noted when it is taken."""
        by_name = {(condition.type, condition.subject): condition for condition in conditions}
        for name in [name for name in self._holding if name not in by_name]:
            yield self._event(State.RESOLVED, self._holding.pop(name), now_s)
        for name, condition in by_name.items():
            if name not in self._holding:
                self._holding[name] = condition
                yield self._event(State.FIRING, condition, now_s)

    def happened(self, condition: Condition, now_s: float) -> Event:
        """Something that does not last."""
        return self._event(State.HAPPENED, condition, now_s)

    def _event(self, state: State, condition: Condition, now_s: float) -> Event:
        key = f"{self.origin.run}-{next(self._numbers)}"
        return Event(key, state, condition, now_s, self.origin)

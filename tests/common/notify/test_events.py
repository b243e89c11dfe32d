"""An event where a condition begins and where it ends, none between, and never the same id twice."""

from __future__ import annotations

import json

from tidb_binlog.notify.events import SCHEMA, Condition, Event, Events, Origin, State, Type


def events() -> Events:
    return Events(Origin("pump", "p1", "run"))


def told(found: list[Event]) -> list[tuple[str, str]]:
    return [(event.state, event.condition.subject) for event in found]


def waits(subject: str, message: str = "waits") -> Condition:
    return Condition(Type.DDL_WAITS, subject, message, details={"kept_bytes": len(message)})


def test_what_lasts_is_told_once_and_its_end_once() -> None:
    one = events()
    assert told(list(one.look([waits("1")], 1.0))) == [(State.FIRING, "1")]
    assert told(list(one.look([waits("1", "waits longer")], 2.0))) == []
    assert told(list(one.look([waits("2"), waits("1")], 3.0))) == [(State.FIRING, "2")]
    assert told(list(one.look([waits("2")], 4.0))) == [(State.RESOLVED, "1")]
    assert told(list(one.look([], 5.0))) == [(State.RESOLVED, "2")]
    assert told(list(one.look([waits("1")], 6.0))) == [(State.FIRING, "1")], "it came back"


def test_the_type_belongs_to_the_name() -> None:
    one = events()
    both = [waits("1"), Condition(Type.ROWS_WAIT, "1", "rows")]
    assert len(list(one.look(both, 1.0))) == 2
    assert told(list(one.look(both[:1], 2.0))) == [(State.RESOLVED, "1")]


def test_what_happens_is_told_each_time_under_an_id_of_its_own() -> None:
    one = events()
    ended = Condition(Type.ENDED, "p1", "ended")
    found = [one.happened(ended, 1.0), one.happened(ended, 1.0), *one.look([waits("1")], 1.0)]
    assert [event.key for event in found] == ["run-1", "run-2", "run-3"]
    assert found[0].state is State.HAPPENED


def test_the_document() -> None:
    (event,) = events().look([waits("7")], 1795425600.5)
    assert json.loads(event.body()) == {
        "schema": SCHEMA,
        "id": "run-1",
        "type": "ddl_waits",
        "state": "firing",
        "time": "2026-11-23T09:20:00.500Z",
        "node": {"kind": "pump", "id": "p1"},
        "subject": "7",
        "message": "waits",
        "hint": "",
        "details": {"kept_bytes": 5},
    }


def test_a_name_that_is_no_text_keeps_no_event_back() -> None:
    event = events().happened(Condition(Type.ENDED, "d", "cannot read a\udcff"), 0.0)
    assert json.loads(event.body())["message"] == "cannot read a?"

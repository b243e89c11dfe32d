"""What of a drainer's status an operator is told of."""

from __future__ import annotations

from typing import Any

from drainer.compare.verify.result import State
from drainer.operate.status.conditions import conditions

WAITING: dict[str, Any] = {
    "job_id": 7,
    "commit_ts": 5,
    "tables": ["d.t", "d.u"],
    "query": "ALTER TABLE t ADD x",
    "reason": "Duplicate column",
    "decision": "",
}


def names(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one.type, one.subject) for one in conditions(document)]


def test_a_quiet_drainer_tells_nothing() -> None:
    assert names({}) == []
    assert names({"DDL": {"waiting": []}, "Sink": {"held": False}, "Verify": {"state": "equal"}}) == []


def test_a_ddl_and_refused_rows_that_wait_for_a_decision() -> None:
    rows = {**WAITING, "job_id": 9, "query": ""}
    decided = {**WAITING, "job_id": 8, "decision": "skip"}
    joins = {**WAITING, "job_id": 10, "query": "", "loads": True}  # nobody is asked
    found = list(conditions({"DDL": {"waiting": [WAITING, rows, decided, joins]}}))
    assert [(one.type, one.subject) for one in found] == [("ddl_waits", "7"), ("rows_wait", "9")]
    assert found[0].message == "a DDL waits for a decision, and d.t, d.u with it: Duplicate column"
    assert found[0].details["query"] == "ALTER TABLE t ADD x"


def test_a_sink_that_holds_the_stream() -> None:
    document = {"Sink": {"name": "http", "held": True, "error": "400"}}
    (one,) = conditions(document)
    assert (one.type, one.message) == ("sink_held", "the sink http holds the stream: 400")


def test_a_comparison_that_found_a_difference() -> None:
    verify = {"state": str(State.DIFFERS), "wrong": 3, "wrong_rows": {"d.t": 3}, "ts": 9}
    (one,) = conditions({"Verify": verify})
    assert (one.type, one.details) == ("verify_differs", {"rows": 3, "tables": {"d.t": 3}, "ts": 9})

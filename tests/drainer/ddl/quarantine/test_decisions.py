"""Decisions: what an operator is offered is what would be taken, in every state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drainer.ddl.quarantine import decisions
from drainer.ddl.quarantine.entry import DECISIONS, ROWS, SHARED, Decision, Entry, Floor
from drainer.ddl.quarantine.queue_state import QueueState
from drainer.ddl.quarantine.waiting_tables import Queue
from drainer.mysql.rows.change import Position
from tests.cases import case
from tidb_binlog.errors import Conflict, Rejected

WAITS = Entry(7, 100, Floor(99, 1), {("d", "t"): 100}, Position(99), "ALTER TABLE t", "1062")
OVER = Entry(7, 100, Floor(99, 1), {("d", "t"): 100}, Position(100), "ALTER TABLE t", "1062")
REFUSED_ROWS = Entry(ROWS, 100, Floor(99, 1), {("d", "t"): 100}, Position(99), "", "1062")
RELEASING = {QueueState.RELEASING, QueueState.RELEASING_AGAIN, QueueState.ENDING, QueueState.HALTING}
HALTED = {QueueState.HALTED, QueueState.DECIDING_HALTED}


def test_what_is_offered_is_what_is_taken() -> None:
    for entry in [WAITS, OVER, REFUSED_ROWS]:
        for state in QueueState:
            with case(entry, state):
                queue = Queue(1, {entry.job_id: entry}, state)
                taken = []
                for action in DECISIONS:
                    try:
                        decisions.check(queue, entry, action=action, text="x" if action == "rewrite" else "")
                    except (Rejected, Conflict):
                        continue
                    taken.append(action)
                assert list(decisions.possible(queue, entry)) == taken
                assert decisions.document(queue, entry, doing="", kept_bytes=0)["possible"] == taken
                if state in RELEASING:
                    expected = []
                elif entry is WAITS:
                    expected = ["retry", "skip", "rewrite"]
                else:
                    expected = ["retry"] if state in HALTED else []
                assert taken == expected


EARLIER = replace(WAITS, job_id=6, commit_ts=90, position=Position(89))
SHARD = replace(WAITS, reason=f"{SHARED} d.u")
DECIDED = Decision("skip")


@pytest.mark.parametrize(
    ("entry", "others", "told"),
    [
        (WAITS, {}, "waiting for a decision"),
        (replace(WAITS, decision=DECIDED), {}, "decided"),
        (WAITS, {6: EARLIER}, "waits for job 6"),
        (EARLIER, {7: WAITS}, "waiting for a decision"),
        (OVER, {}, "its tables catch up"),
        (SHARD, {}, f"{SHARED} d.u"),
        (replace(SHARD, decision=DECIDED), {}, "decided"),
    ],
)
def test_what_an_operator_is_told(entry: Entry, others: dict[int, Entry], told: str) -> None:
    queue = Queue(1, {entry.job_id: entry, **others}, QueueState.WAITING)
    assert decisions.state_of(queue, entry, "") == told
    assert decisions.state_of(queue, entry, "runs a statement") == "runs a statement"
    halted = replace(queue, state=QueueState.HALTED, refusal="1062")
    assert decisions.state_of(halted, entry, "") == "rows were refused: 1062"
    if entry is SHARD:
        queue.shards = f"{SHARED} d.v"
        assert decisions.state_of(queue, entry, "") == f"{SHARED} d.v"
    whole = replace(entry, tables={("e", ""): 1, ("d", "t"): 1})
    assert decisions.document(queue, whole, doing="", kept_bytes=0)["tables"] == ["d.t", "e"]

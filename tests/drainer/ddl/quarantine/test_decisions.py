"""Decisions: what an operator is offered is what would be taken, in every state."""

from __future__ import annotations

from drainer.ddl.quarantine import decisions
from drainer.ddl.quarantine.entry import DECISIONS, ROWS, Entry, Floor
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

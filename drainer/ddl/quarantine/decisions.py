"""Decisions: which decision about a waiting DDL makes sense, and what an operator is shown of it.

Out    a document; `Rejected` or `Conflict` that says what to do instead
"""

from __future__ import annotations

from typing import Any

from drainer.ddl.quarantine.entry import DECISIONS, RETRY, Entry
from drainer.ddl.quarantine.waiting_tables import Queue
from drainer.ddl.rules import REWRITE
from tidb_binlog.errors import Conflict, Rejected


def check(queue: Queue, entry: Entry, *, action: str, text: str) -> None:
    """Raises `Rejected` or `Conflict`."""
    job_id = entry.job_id
    if action not in DECISIONS:
        raise Rejected(f"{action!r} is no decision", hint="use " + ", ".join(DECISIONS))
    if (action == REWRITE) != bool(text):
        raise Rejected(
            f"{action} {'needs the' if action == REWRITE else 'takes no'} text",
            hint=f"`binlogctl ddl rewrite {job_id} --text 'ALTER TABLE ...'`",
        )
    if action in possible(queue, entry):
        return
    if queue.loading:
        raise Conflict(
            f"rows of its tables are loaded ({queue.loading.job_id}): nothing is decided meanwhile",
            hint="see `binlogctl ddl list` when they are there",
        )
    if queue.state.is_releasing:
        raise Conflict(
            f"DDL job {job_id} is being carried out, or what is before it",
            hint="see `binlogctl ddl list` when it has ended",
        )
    if not queue.state.is_halted:
        raise Rejected(f"DDL job {job_id} is over, its tables catch up", hint="nothing is to be decided")
    raise Rejected(
        f"{job_id} are rows that were refused"
        if entry.is_rows
        else f"DDL job {job_id} is over, rows after it were refused",
        hint=f"correct the downstream, then `binlogctl ddl retry {job_id}`",
    )


def possible(queue: Queue, entry: Entry) -> tuple[str, ...]:
    """The decisions that `check` lets pass now."""
    if queue.loading or queue.state.is_releasing or (entry.done and not queue.state.is_halted):
        return ()
    return (RETRY,) if entry.done else DECISIONS


def state_of(queue: Queue, entry: Entry, doing: str) -> str:
    """`doing`: what release does with the queue right now, "" for nothing."""
    if doing:
        return doing
    if queue.state.is_halted:
        return f"rows were refused: {queue.refusal}"
    head = queue.waits_for
    if head is not None and head.job_id != entry.job_id:
        return f"waits for job {head.job_id}"
    if entry.done:
        return "its tables catch up"
    if entry.waits_for_shards and not entry.decision:
        return queue.shards or entry.reason
    return "decided" if entry.decision else "waiting for a decision"


def document(queue: Queue, entry: Entry, *, doing: str, kept_bytes: int) -> dict[str, Any]:
    """What an operator reads. Octets of a statement that are no UTF-8 are shown as such."""
    decision = entry.decision
    return {
        "job_id": entry.job_id,
        "commit_ts": entry.commit_ts,
        "tables": [".".join(name) if name[1] else name[0] for name in sorted(entry.tables)],
        "query": entry.query.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
        "reason": entry.reason,
        "since_ms": entry.since_ms,
        "state": state_of(queue, entry, doing),
        "decision": decision.action if decision else "",
        "text": decision.text if decision else "",
        "applied_ts": entry.position.commit_ts,
        "kept_bytes": kept_bytes,
        "loads": entry.is_load,
        "possible": list(possible(queue, entry)),
    }
